#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/hash.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/scoped.h"
#include "base/str.h"
#include "base/time.h"
#include "gateway/gateway_impl.h"

/* Snapshots and restores: bytes go between the agent's BULK connection and the storage; the
 * host bounds and counts them and never looks inside.
 *
 * The object `latest` names the archive that counts and its digest; it is written last, so an
 * interrupted snapshot leaves the last good one current. */

#define WORKSPACE "/workspace"

enum {
    CALL_MS = 30000,
    BULK_MS = 15000,
    SILENCE_MS = 120000,    /* of the agent, while it packs or unpacks */
    EARLY_ANSWER_MS = 2000, /* for what the agent said of an archive that is refused here */
    ARCHIVES_KEPT = 2,
    ARCHIVE_SLACK = 64 * 1024 * 1024, /* of an archive over the uncompressed cap: headers */
};

/* ---- persistence in its forms ---- */

json_t *gateway_persistence_record(const struct gateway_persistence *p)
{
    json_t *j;

    if (!p->directory && !p->snapshot)
        return NULL;
    j = json_object();
    json_put_true(j, "directory", p->directory);
    json_put_true(j, "snapshot", p->snapshot);
    json_put_str(j, "volume", p->volume);
    json_put_str(j, "mountPath", p->mount_path);
    json_put_int(j, "maxMb", p->snapshot_max_mb);
    json_put_int(j, "lastAt", p->last_at_ms);
    json_put_int(j, "lastBytes", p->last_bytes);
    json_put_str(j, "lastError", p->last_error[0] != 0 ? p->last_error : NULL);
    json_put_true(j, "restoreFailed", p->restore_failed);
    return j;
}

void gateway_persistence_parse(const json_t *j, struct gateway_persistence *p)
{
    *p = (struct gateway_persistence){ 0 };
    if (!json_is_object(j))
        return;
    p->directory = json_get_bool(j, "directory", false);
    p->snapshot = json_get_bool(j, "snapshot", false);
    (void)str_copy(p->volume, sizeof(p->volume), json_get_str(j, "volume", ""));
    (void)str_copy(p->mount_path, sizeof(p->mount_path), json_get_str(j, "mountPath", ""));
    p->snapshot_max_mb = json_get_int(j, "maxMb", 0);
    p->last_at_ms = json_get_int(j, "lastAt", 0);
    p->last_bytes = json_get_int(j, "lastBytes", 0);
    (void)str_copy(p->last_error, sizeof(p->last_error), json_get_str(j, "lastError", ""));
    p->restore_failed = json_get_bool(j, "restoreFailed", false);
}

json_t *gateway_persistence_json(const struct gateway_persistence *p)
{
    json_t *j;

    if (!p->directory && !p->snapshot)
        return NULL;
    j = json_object();
    if (p->directory)
        json_put_str(j, "mountPath", p->mount_path);
    json_put_time(j, "lastSnapshotAt", p->last_at_ms);
    if (p->last_at_ms != 0)
        json_put_int(j, "lastSnapshotBytes", p->last_bytes);
    json_put_str(j, "lastSnapshotError", p->last_error[0] != 0 ? p->last_error : NULL);
    json_put_bool(j, "restoreFailed", p->restore_failed);
    return j;
}

/* ---- frames on a BULK connection ---- */

struct bulk {
    struct gateway_job *job;
    int fd;
    unsigned char *frame; /* SBX_AGENT_FRAME_MAX bytes */
};

static enum sbx_code wait_io(struct bulk *b, short events, struct sbx_err *err)
{
    int64_t deadline = time_mono_ms() + SILENCE_MS;

    for (;;) {
        struct pollfd p = { .fd = b->fd, .events = events };
        int n = poll(&p, 1, 500); /* in steps: a delete must not wait for a silent agent */

        if (n > 0)
            return SBX_OK;
        if (gateway_job_cancelled(b->job))
            return err_set(err, SBX_E_CONFLICT, "the sandbox was deleted meanwhile");
        if (time_mono_ms() >= deadline)
            return err_set(err, SBX_E_AGENT_UNREACHABLE, "the sandbox's agent is silent");
    }
}

static enum sbx_code read_bytes(struct bulk *b, void *to, size_t len, struct sbx_err *err)
{
    for (size_t at = 0; at < len;) {
        ssize_t n;

        if (wait_io(b, POLLIN, err) != SBX_OK)
            return err->code;
        n = recv(b->fd, (char *)to + at, len - at, 0);
        if (n == 0 || (n < 0 && errno != EINTR))
            return err_set(err, SBX_E_AGENT_UNREACHABLE,
                           "the connection to the sandbox's agent was lost");
        at += n > 0 ? (size_t)n : 0;
    }
    return SBX_OK;
}

static enum sbx_code read_frame(struct bulk *b, struct sbx_agent_header *h, struct sbx_err *err)
{
    unsigned char head[SBX_AGENT_HEADER_LEN];

    if (read_bytes(b, head, sizeof(head), err) != SBX_OK)
        return err->code;
    if (!sbx_agent_header_parse(head, h))
        return err_set(err, SBX_E_AGENT_UNREACHABLE, "the sandbox's agent speaks no sense");
    return read_bytes(b, b->frame, h->length, err);
}

static enum sbx_code write_bytes(struct bulk *b, const void *data, size_t len, struct sbx_err *err)
{
    for (size_t at = 0; at < len;) {
        ssize_t n;

        if (wait_io(b, POLLOUT, err) != SBX_OK)
            return err->code;
        n = send(b->fd, (const char *)data + at, len - at, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n < 0 && errno != EINTR && errno != EAGAIN)
            return err_set(err, SBX_E_AGENT_UNREACHABLE,
                           "the connection to the sandbox's agent was lost");
        at += n > 0 ? (size_t)n : 0;
    }
    return SBX_OK;
}

static enum sbx_code write_frame(struct bulk *b, uint8_t type, const void *data, size_t len,
                                 struct sbx_err *err)
{
    unsigned char head[SBX_AGENT_HEADER_LEN];

    sbx_agent_header_pack(head, type, 0, (uint32_t)len);
    if (write_bytes(b, head, sizeof(head), err) != SBX_OK)
        return err->code;
    return write_bytes(b, data, len, err);
}

struct bulk_done {
    uint64_t reason, bytes, members;
    char message[GATEWAY_TEXT_MAX];
};

static void parse_done(const struct bulk *b, size_t len, struct bulk_done *out)
{
    struct sbx_agent_field f;
    size_t at = 0;
    bool bad = false;

    *out = (struct bulk_done){ 0 };
    while (sbx_agent_field_next(b->frame, len, &at, &f, &bad)) {
        uint64_t *number = f.tag == SBX_TAG_REASON    ? &out->reason
                           : f.tag == SBX_TAG_BYTES   ? &out->bytes
                           : f.tag == SBX_TAG_MEMBERS ? &out->members
                                                      : NULL;

        if (number != NULL && f.len == 8)
            *number = sbx_agent_get_u64(f.data);
        if (f.tag == SBX_TAG_MESSAGE) {
            size_t n = f.len < sizeof(out->message) - 1 ? f.len : sizeof(out->message) - 1;

            memcpy(out->message, f.data, n);
            out->message[n] = 0;
        }
    }
    if (bad && out->reason == 0)
        out->reason = SBX_AGENT_REASON_PROTOCOL;
}

static enum sbx_code bulk_open(struct gateway_job *job, struct bulk *b, struct sbx_err *err)
{
    *b = (struct bulk){ .job = job, .fd = -1 };
    if (relay_bulk(job->g->relay, job->sandbox->runtime, BULK_MS, &b->fd, err) != SBX_OK)
        return err->code;
    b->frame = mem_zalloc(SBX_AGENT_FRAME_MAX);
    return SBX_OK;
}

static void bulk_close(struct bulk *b)
{
    fd_close(&b->fd);
    free(b->frame);
    b->frame = NULL;
}

/* ---- the snapshot ---- */

struct archive {
    char key[VOLUME_KEY_MAX];
    char name[64]; /* "<generation>.tar.zst" */
    uint64_t size; /* packed */
    struct bulk_done done;
    char sha256[SHA256_HEX_SIZE];
};

static enum sbx_code key_of(const struct gateway_sandbox *s, const char *name,
                            char out[VOLUME_KEY_MAX], struct sbx_err *err)
{
    char rest[VOLUME_KEY_MAX];

    (void)snprintf(rest, sizeof(rest), "snapshots/%s%s%s", s->id, name[0] != 0 ? "/" : "", name);
    return volume_key(s->account, s->persistence.volume, rest, out, err);
}

/* The live directory lies in the workspace and is no part of its archive: an exclude pattern that
 * stands last, so that none of the caller's takes it back. */
static void exclude_directory(const struct gateway_persistence *p, struct buf *payload)
{
    SCOPED_BUF struct buf pattern = BUF_INIT(2 * GATEWAY_MOUNT_MAX);

    if (!p->directory || !str_starts(p->mount_path, WORKSPACE "/"))
        return;
    for (const char *c = p->mount_path + strlen(WORKSPACE); *c != 0; c++) {
        if (strchr("*?[\\ !#", *c) != NULL)
            (void)buf_puts(&pattern, "\\");
        (void)buf_append(&pattern, c, 1);
    }
    (void)relay_put_text(payload, SBX_TAG_EXCLUDE, pattern.data);
}

static enum sbx_code ask_pack(struct bulk *b, struct sbx_err *err)
{
    const struct gateway_job *job = b->job;
    SCOPED_BUF struct buf payload = BUF_INIT(SBX_AGENT_FRAME_MAX);

    for (const char **p = job->exclude; p != NULL && *p != NULL; p++)
        (void)relay_put_text(&payload, SBX_TAG_EXCLUDE, *p);
    exclude_directory(&job->sandbox->persistence, &payload);
    (void)relay_put_number(&payload, SBX_TAG_MAX_BYTES, (uint64_t)job->max_mb << 20);
    if (payload.full)
        return err_field(err, "exclude", "the patterns are too long");
    return write_frame(b, SBX_AGENT_PACK, payload.data, payload.len, err);
}

static enum sbx_code pump_out(struct bulk *b, struct volume_writer *w, struct archive *out,
                              struct sbx_err *err)
{
    uint64_t most = ((uint64_t)b->job->max_mb << 20) + ARCHIVE_SLACK;
    struct sha256 *sum = sha256_new();
    unsigned char digest[SHA256_LEN];
    struct sbx_agent_header h = { 0 };

    while (err->code == SBX_OK && read_frame(b, &h, err) == SBX_OK && h.type == SBX_AGENT_DATA) {
        out->size += h.length;
        sha256_add(sum, b->frame, h.length);
        if (out->size > most)
            err_put(err, SBX_E_TOO_LARGE, "the archive is larger than the cap");
        else
            (void)!volume_writer_add(w, b->frame, h.length, err);
    }
    sha256_finish(sum, digest);
    hash_hex(digest, sizeof(digest), out->sha256);
    if (err->code != SBX_OK)
        return err->code;
    if (h.type != SBX_AGENT_DONE)
        return err_set(err, SBX_E_AGENT_UNREACHABLE, "the sandbox's agent speaks no sense");
    parse_done(b, h.length, &out->done);
    if (out->done.reason == SBX_AGENT_REASON_TOO_LARGE)
        return err_set(err, SBX_E_SNAPSHOT_FAILED,
                       "the workspace is larger than the cap of %" PRId64 " MB", b->job->max_mb);
    if (out->done.reason != 0)
        return err_set(err, SBX_E_SNAPSHOT_FAILED, "%s",
                       out->done.message[0] != 0 ? out->done.message : "the agent could not pack");
    return SBX_OK;
}

/* Packs into a new object; nothing of it stays when this fails. */
static enum sbx_code pack(struct gateway_job *job, struct archive *out, struct sbx_err *err)
{
    struct volume_writer *w = NULL;
    struct bulk b;

    (void)snprintf(out->name, sizeof(out->name), "%" PRId64 ".tar.zst", job->generation);
    if (key_of(job->sandbox, out->name, out->key, err) != SBX_OK ||
        bulk_open(job, &b, err) != SBX_OK)
        return err->code;
    if (ask_pack(&b, err) == SBX_OK &&
        volume_writer_open(&job->backend, out->key, &w, err) == SBX_OK)
        (void)!pump_out(&b, w, out, err);
    bulk_close(&b);
    if (err->code == SBX_OK)
        return volume_writer_finish(w, err);
    volume_writer_abort(w);
    return err->code;
}

static enum sbx_code write_latest(struct gateway_job *job, const struct archive *a, int64_t at_ms,
                                  struct sbx_err *err)
{
    SCOPED_JSON json_t *j = json_object();
    SCOPED_BUF struct buf text = BUF_INIT(VOLUME_SMALL_MAX);
    char key[VOLUME_KEY_MAX];

    json_put_str(j, "archive", a->name);
    json_put_str(j, "sha256", a->sha256);
    json_put_int(j, "bytes", (int64_t)a->done.bytes);
    json_put_int(j, "archivedBytes", (int64_t)a->size);
    json_put_time(j, "takenAt", at_ms);
    (void)json_write(&text, j);
    if (key_of(job->sandbox, "latest", key, err) != SBX_OK)
        return err->code;
    return volume_put(&job->backend, key, text.data, text.len, err);
}

static int newest_first(const void *a, const void *b)
{
    long long x = strtoll(*(const char *const *)a, NULL, 10);
    long long y = strtoll(*(const char *const *)b, NULL, 10);

    return x < y ? 1 : x > y ? -1 : 0;
}

/* All but the newest go.  A failure here costs room, not a snapshot. */
static void prune(struct gateway_job *job)
{
    SCOPED_ARENA struct arena *a = arena_new();
    const char **names;
    char key[VOLUME_KEY_MAX];
    struct sbx_err err = { 0 };
    size_t n = 0;

    if (key_of(job->sandbox, "", key, &err) != SBX_OK ||
        volume_list(&job->backend, key, a, &names, &err) != SBX_OK)
        return;
    for (size_t i = 0; names[i] != NULL; i++) {
        if (str_ends(names[i], ".tar.zst"))
            names[n++] = names[i];
    }
    qsort(names, n, sizeof(*names), newest_first);
    for (size_t i = ARCHIVES_KEPT; i < n; i++) {
        if (key_of(job->sandbox, names[i], key, &err) == SBX_OK)
            (void)!volume_delete(&job->backend, key, &err);
        err = (struct sbx_err){ 0 };
    }
}

static enum sbx_code freeze(struct gateway_job *job, bool on, struct sbx_err *err)
{
    struct relay_call call = { .id = job->sandbox->runtime,
                               .type = on ? SBX_AGENT_FREEZE : SBX_AGENT_THAW,
                               .timeout_ms = CALL_MS };

    return relay_call(job->g->relay, &call, err);
}

static enum sbx_code may_snapshot(struct gateway_job *job, struct sbx_err *err)
{
    struct gateway *g = job->g;
    const struct gateway_sandbox *s = job->sandbox;

    (void)pthread_mutex_lock(&g->lock);
    if (s->phase == GATEWAY_PHASE_NONE || s->phase == GATEWAY_PHASE_FAILED || s->ended)
        err_put(err, SBX_E_SANDBOX_NOT_FOUND, "the sandbox is not there");
    else if (s->phase == GATEWAY_PHASE_STOPPED)
        err_put(err, SBX_E_SANDBOX_SUSPENDED, "the sandbox is suspended");
    else if (!s->persistence.snapshot)
        err_put(err, SBX_E_INVALID, "the sandbox keeps no snapshots");
    else if (s->persistence.restore_failed && !job->force)
        err_put(err, SBX_E_SNAPSHOT_OVERWRITE,
                "the last restore failed: a snapshot now would overwrite what it could not read");
    else if (!s->agent)
        err_put(err, SBX_E_UNAVAILABLE, "the sandbox has no agent");
    (void)pthread_mutex_unlock(&g->lock);
    return err->code;
}

/* The command's failure is told as SNAPSHOT_FAILED; a sentence for the owner stays. */
static void snapshot_failed(struct gateway_job *job, struct sbx_err *err)
{
    struct gateway *g = job->g;
    struct gateway_sandbox *s = job->sandbox;
    struct sbx_err thaw = { 0 };

    if (freeze(job, false, &thaw) != SBX_OK)
        log_err(LOG_WARN, "a sandbox was not thawed", &thaw, LOG_S("sandboxId", s->id));
    (void)pthread_mutex_lock(&g->lock);
    (void)str_copy(s->persistence.last_error, sizeof(s->persistence.last_error), err->msg);
    (void)pthread_mutex_unlock(&g->lock);
    if (err->code != SBX_E_CONFLICT) /* a delete came between */
        err->code = SBX_E_SNAPSHOT_FAILED;
    gateway_job_done(job, err, NULL, false); /* the same operation may be tried again */
}

static void snapshot_taken(struct gateway_job *job, const struct archive *a, int64_t at_ms)
{
    struct gateway *g = job->g;
    struct gateway_sandbox *s = job->sandbox;
    SCOPED_JSON json_t *answer = json_object();
    SCOPED_BUF struct buf text = BUF_INIT(GATEWAY_RESULT_MAX);
    struct sbx_err err = { 0 };

    (void)pthread_mutex_lock(&g->lock);
    s->persistence.last_at_ms = at_ms;
    s->persistence.last_bytes = (int64_t)a->done.bytes;
    s->persistence.last_error[0] = 0;
    s->persistence.restore_failed = false;
    (void)pthread_mutex_unlock(&g->lock);
    json_put_int(answer, "bytes", (int64_t)a->done.bytes);
    json_put_int(answer, "archivedBytes", (int64_t)a->size);
    json_put_time(answer, "takenAt", at_ms);
    (void)json_write(&text, answer);
    prune(job);
    gateway_denied_keep(g, s);
    if (gateway_release(g, s, SBX_E_SANDBOX_SUSPENDED, "the sandbox was suspended", &err) != SBX_OK)
        log_err(LOG_ERROR, "a suspended sandbox left something behind", &err,
                LOG_S("sandboxId", s->id));
    err = (struct sbx_err){ 0 };
    (void)pthread_mutex_lock(&g->lock);
    gateway_set_phase(g, s, GATEWAY_PHASE_STOPPED);
    (void)pthread_mutex_unlock(&g->lock);
    gateway_job_done(job, &err, text.data, true);
}

/* `latest` may have been written although its answer was lost. */
static bool surely_unnamed(struct gateway_job *job, const struct archive *a)
{
    SCOPED_BUF struct buf text = BUF_INIT(VOLUME_SMALL_MAX);
    SCOPED_JSON json_t *j = NULL;
    struct sbx_err one = { 0 };
    char key[VOLUME_KEY_MAX];

    if (key_of(job->sandbox, "latest", key, &one) != SBX_OK)
        return false;
    if (volume_get(&job->backend, key, &text, &one) != SBX_OK)
        return one.code == SBX_E_NOT_FOUND;
    return json_parse_object(text.data, text.len, &j, &one) == SBX_OK &&
           strcmp(json_get_str(j, "archive", ""), a->name) != 0;
}

static void snapshot_run(struct gateway_job *job)
{
    struct archive a = { 0 };
    struct sbx_err err = { 0 };
    int64_t at_ms = time_unix_ms();
    bool packed;

    if (may_snapshot(job, &err) != SBX_OK) {
        gateway_job_done(job, &err, NULL, false);
        return;
    }
    if (freeze(job, true, &err) != SBX_OK) {
        err.code = SBX_E_UNAVAILABLE;
        gateway_job_done(job, &err, NULL, false);
        return;
    }
    packed = pack(job, &a, &err) == SBX_OK;
    if (!packed || write_latest(job, &a, at_ms, &err) != SBX_OK) {
        struct sbx_err ignored = { 0 };

        if (a.key[0] != 0 &&
            (!packed ||
             surely_unnamed(
                 job, &a))) /* no object is left behind; the last good one is still `latest` */
            (void)!volume_delete(&job->backend, a.key, &ignored);
        snapshot_failed(job, &err);
        return;
    }
    snapshot_taken(job, &a, at_ms);
}

/* ---- the restore ---- */

struct restore {
    struct bulk bulk;
    struct sha256 *sum;
    uint64_t left; /* packed bytes that may still come */
};

static enum sbx_code piece(void *arg, const void *data, size_t len, struct sbx_err *err)
{
    struct restore *r = arg;
    const char *p = data;

    if (len > r->left)
        return err_set(err, SBX_E_UNKNOWN, "the archive is larger than it was");
    r->left -= len;
    sha256_add(r->sum, data, len);
    while (len > 0) {
        size_t n = len < SBX_AGENT_DATA_MAX ? len : SBX_AGENT_DATA_MAX;

        if (write_frame(&r->bulk, SBX_AGENT_DATA, p, n, err) != SBX_OK)
            return err->code;
        p += n;
        len -= n;
    }
    return SBX_OK;
}

static enum sbx_code unpack_answer(struct bulk *b, struct sbx_err *err)
{
    struct sbx_agent_header h = { 0 };
    struct bulk_done done;

    if (read_frame(b, &h, err) != SBX_OK)
        return err->code;
    if (h.type != SBX_AGENT_DONE)
        return err_set(err, SBX_E_AGENT_UNREACHABLE, "the sandbox's agent speaks no sense");
    parse_done(b, h.length, &done);
    if (done.reason == SBX_AGENT_REASON_PATH_ESCAPE)
        return err_set(err, SBX_E_PATH_ESCAPE, "%s",
                       done.message[0] != 0 ? done.message : "the archive leaves the workspace");
    if (done.reason != 0)
        return err_set(err, SBX_E_UNKNOWN, "%s",
                       done.message[0] != 0 ? done.message : "the archive cannot be unpacked");
    return SBX_OK;
}

/* An archive that is refused here may have been refused by the agent before: a hostile one is told
 * from a damaged one. */
static bool answered_early(const struct bulk *b)
{
    struct pollfd p = { .fd = b->fd, .events = POLLIN };

    return poll(&p, 1, EARLY_ANSWER_MS) > 0;
}

/* Sends the archive; its digest is known before the agent is told that all has come. */
static enum sbx_code unpack(struct gateway_job *job, const char *key, const char *sha256,
                            uint64_t size, struct sbx_err *err)
{
    struct restore r = { .left = size };
    SCOPED_BUF struct buf payload = BUF_INIT(256);
    unsigned char digest[SHA256_LEN];
    char hex[SHA256_HEX_SIZE];
    struct sbx_err early = { 0 };

    if (bulk_open(job, &r.bulk, err) != SBX_OK)
        return err->code;
    r.sum = sha256_new();
    (void)relay_put_number(&payload, SBX_TAG_MAX_BYTES,
                           (uint64_t)job->persistence.snapshot_max_mb << 20);
    if (write_frame(&r.bulk, SBX_AGENT_UNPACK, payload.data, payload.len, err) == SBX_OK)
        (void)!volume_read(&job->backend, key, piece, &r, err);
    sha256_finish(r.sum, digest);
    hash_hex(digest, sizeof(digest), hex);
    if (err->code == SBX_OK && (r.left != 0 || strcmp(hex, sha256) != 0))
        err_put(err, SBX_E_UNKNOWN, "the archive is not the one that was written");
    if (err->code == SBX_OK && write_frame(&r.bulk, SBX_AGENT_DATA_END, "", 0, err) == SBX_OK)
        (void)!unpack_answer(&r.bulk, err);
    else if (answered_early(&r.bulk) && unpack_answer(&r.bulk, &early) != SBX_E_AGENT_UNREACHABLE &&
             early.code != SBX_OK &&
             (err->code == SBX_E_AGENT_UNREACHABLE || early.code == SBX_E_PATH_ESCAPE))
        *err = early;    /* what the agent found in it says more than that it is another one */
    bulk_close(&r.bulk); /* without DATA_END the agent empties the folder */
    return err->code;
}

static enum sbx_code restore(struct gateway_job *job, struct sbx_err *err)
{
    SCOPED_BUF struct buf text = BUF_INIT(VOLUME_SMALL_MAX);
    SCOPED_JSON json_t *latest = NULL;
    struct sbx_err one = { 0 };
    char key[VOLUME_KEY_MAX];
    const char *name;
    int64_t size;

    if (key_of(job->sandbox, "latest", key, err) != SBX_OK)
        return err->code;
    if (volume_get(&job->backend, key, &text, &one) != SBX_OK) {
        if (one.code == SBX_E_NOT_FOUND)
            return SBX_OK; /* nothing was ever kept */
        return err_set(err, one.code, "%s", one.msg);
    }
    if (json_parse_object(text.data, text.len, &latest, &one) != SBX_OK)
        return err_set(err, SBX_E_UNKNOWN, "the note of the last archive is damaged");
    name = json_get_str(latest, "archive", "");
    size = json_get_int(latest, "archivedBytes", -1);
    if (name[0] == 0 || strchr(name, '/') != NULL || size < 0)
        return err_set(err, SBX_E_UNKNOWN, "the note of the last archive is damaged");
    if (key_of(job->sandbox, name, key, err) != SBX_OK ||
        unpack(job, key, json_get_str(latest, "sha256", ""), (uint64_t)size, err) != SBX_OK)
        return err->code;
    (void)pthread_mutex_lock(&job->g->lock);
    job->sandbox->persistence.last_bytes = json_get_int(latest, "bytes", 0);
    (void)time_iso_parse(json_get_str(latest, "takenAt", ""),
                         &job->sandbox->persistence.last_at_ms);
    (void)pthread_mutex_unlock(&job->g->lock);
    return SBX_OK;
}

static void restore_run(struct gateway_job *job)
{
    struct gateway *g = job->g;
    struct gateway_sandbox *s = job->sandbox;
    struct sbx_err err = { 0 };

    (void)!restore(job, &err);
    (void)pthread_mutex_lock(&g->lock);
    job->restored = true;
    if (err.code == SBX_E_PATH_ESCAPE) { /* hostile: the sandbox does not come up */
        job->refusal = err;
    } else if (err.code != SBX_OK) {
        s->persistence.restore_failed = true;
        (void)str_copy(s->persistence.last_error, sizeof(s->persistence.last_error), err.msg);
    }
    (void)pthread_mutex_unlock(&g->lock);
    if (err.code != SBX_OK)
        log_err(LOG_WARN, "restore failed", &err, LOG_S("sandboxId", s->id));
    if (job->refusal.code == SBX_OK)
        (void)relay_send(g->relay, s->runtime, SBX_AGENT_START);
    gateway_deploy_await(job);
}

void gateway_archive_work(void *gateway)
{
    struct gateway *g = gateway;
    struct gateway_job *job;

    while ((job = queue_take(g->archives)) != NULL) {
        if (job->kind == GATEWAY_JOB_SNAPSHOT)
            snapshot_run(job);
        else
            restore_run(job);
    }
}
