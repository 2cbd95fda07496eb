#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/netrule.h"
#include "base/scoped.h"
#include "base/str.h"
#include "base/time.h"
#include "gateway/image_impl.h"

enum { TEXT_SIZE = IMAGE_REFERENCE_MAX + 32, AUTH_MAX = 16 * 1024, CREDENTIAL_MAX = 4096 };

/* What skopeo says, in words of ours.  First match counts. */
static const struct {
    const char *text;
    enum sbx_code code;
    const char *say;
} replies[] = {
    { "does not match", SBX_E_INVALID, "the registry's image does not have that digest" },
    { "doesn't match", SBX_E_INVALID, "the registry's image does not have that digest" },
    { "unauthorized", SBX_E_FORBIDDEN, "the registry refuses the credentials" },
    { "authentication required", SBX_E_FORBIDDEN, "the registry asks for credentials" },
    { "invalid username/password", SBX_E_FORBIDDEN, "the registry refuses the credentials" },
    { "access to the resource is denied", SBX_E_FORBIDDEN, "the registry refuses the credentials" },
    { "manifest unknown", SBX_E_NOT_FOUND, "the registry has no such image" },
    { "name unknown", SBX_E_NOT_FOUND, "the registry has no such image" },
    { "404 (Not Found)", SBX_E_NOT_FOUND, "the registry has no such image" },
    { "no space left", SBX_E_UNAVAILABLE, "the region has no room for the image" },
    { "x509:", SBX_E_UNAVAILABLE, "the registry's certificate is not trusted" },
    { "gave HTTP response to HTTPS", SBX_E_UNAVAILABLE, "the registry does not speak TLS" },
};

static enum sbx_code explain(const struct buf *output, enum sbx_code code, struct sbx_err *err)
{
    if (code == SBX_E_TIMEOUT)
        return image_err_instead(err, SBX_E_UNAVAILABLE, "the registry took too long");
    if (code == SBX_E_TOO_LARGE)
        return image_err_instead(err, SBX_E_INVALID, "the image is larger than this region allows");
    if (code != SBX_E_INTERNAL || output->data == NULL)
        return code;
    for (size_t i = 0; i < COUNT_OF(replies); i++)
        if (strstr(output->data, replies[i].text) != NULL)
            return image_err_instead(err, replies[i].code, "%s", replies[i].say);
    return image_err_instead(err, SBX_E_UNAVAILABLE,
                             "the image cannot be pulled from its registry");
}

/* "host[:port]" of a name as the docker reference grammar has it. */
static void host_of(const char *reference, char out[IMAGE_REFERENCE_MAX])
{
    size_t n = strcspn(reference, "/@");
    bool host = reference[n] == '/' &&
                (memchr(reference, '.', n) != NULL || memchr(reference, ':', n) != NULL ||
                 (n == 9 && strncmp(reference, "localhost", n) == 0));

    (void)snprintf(out, IMAGE_REFERENCE_MAX, "%.*s", host ? (int)n : 9,
                   host ? reference : "docker.io");
}

/* The name without its tag, which the digest outranks (skopeo refuses both). */
static void source_of(const char *reference, char out[TEXT_SIZE])
{
    const char *at = strchr(reference, '@');
    const char *end = at;

    for (const char *p = at; p > reference && p[-1] != '/'; p--)
        if (p[-1] == ':') {
            end = p - 1;
            break;
        }
    if (memchr(reference, '/', (size_t)(at - reference)) == NULL)
        end =
            memchr(reference, ':', (size_t)(at - reference)) != NULL ? strchr(reference, ':') : at;
    (void)snprintf(out, TEXT_SIZE, "docker://%.*s%s", (int)(end - reference), reference, at);
}

static bool listed(const char *const *list, const char *host)
{
    for (; list != NULL && *list != NULL; list++)
        if (strcmp(*list, host) == 0)
            return true;
    return false;
}

static bool insecure(const struct image_store *s, const char *host)
{
    return listed(s->config->insecure_registries, host);
}

static const char *range_of(const struct sockaddr *sa)
{
    struct netrule_cidr c = { .family = 4, .bits = 32 };

    if (sa->sa_family == AF_INET) {
        memcpy(c.addr, &((const struct sockaddr_in *)(const void *)sa)->sin_addr, 4);
    } else {
        c.family = 6;
        c.bits = 128;
        memcpy(c.addr, &((const struct sockaddr_in6 *)(const void *)sa)->sin6_addr, 16);
    }
    return netrule_infrastructure(&c, NULL, 0);
}

/* A registry inside the operator's network is asked only when the operator says so: the reference
 * is a tenant's.  A name that changes between this look and skopeo's is not covered. */
static enum sbx_code check_host(const struct image_store *s, const char *host, struct sbx_err *err)
{
    struct addrinfo hints = { .ai_socktype = SOCK_STREAM }, *list = NULL;
    char name[IMAGE_REFERENCE_MAX];
    const char *kind = NULL;
    char *colon;

    if (insecure(s, host) || listed(s->config->internal_registries, host))
        return SBX_OK;
    (void)str_copy(name, sizeof(name), host);
    colon = strrchr(name, ':');
    if (colon != NULL)
        *colon = 0;
    if (getaddrinfo(name, NULL, &hints, &list) != 0)
        return SBX_OK; /* skopeo will say so */
    for (struct addrinfo *a = list; a != NULL && kind == NULL; a = a->ai_next)
        kind = range_of(a->ai_addr);
    freeaddrinfo(list);
    if (kind != NULL)
        return err_set(err, SBX_E_INVALID,
                       "the registry is in the operator's network, and the operator has not "
                       "listed it");
    return SBX_OK;
}

/* The credentials in memory only, as a file that the child inherits; -1 when there are none. */
static enum sbx_code auth_file(const char *host, const struct image_registry *registry, int *out,
                               struct sbx_err *err)
{
    SCOPED_BUF struct buf pair = BUF_INIT(CREDENTIAL_MAX);
    SCOPED_BUF struct buf text = BUF_INIT(AUTH_MAX);
    SCOPED_FD int fd = -1;
    bool ok;

    *out = -1;
    if (registry == NULL || registry->username == NULL || registry->password == NULL)
        return SBX_OK;
    ok = buf_puts(&pair, registry->username) && buf_puts(&pair, ":") &&
         buf_append(&pair, secret_reveal(registry->password), secret_len(registry->password));
    ok = ok && buf_puts(&text, "{\"auths\":{");
    if (ok)
        str_json_quote(&text, registry->host != NULL ? registry->host : host);
    ok = ok && buf_puts(&text, ":{\"auth\":\"") && base64_encode(&text, pair.data, pair.len) &&
         buf_puts(&text, "\"}}}");
    if (ok) {
        fd = memfd_create("registry-auth", MFD_CLOEXEC);
        ok =
            fd >= 0 && fchmod(fd, 0600) == 0 && write(fd, text.data, text.len) == (ssize_t)text.len;
    }
    if (pair.data != NULL)
        secret_wipe(pair.data, pair.len);
    if (text.data != NULL)
        secret_wipe(text.data, text.len);
    if (!ok)
        return err_set(err, SBX_E_INVALID, "the registry credentials are too large");
    *out = fd;
    fd = -1;
    return SBX_OK;
}

/* One skopeo call about a reference; to NULL inspects its manifest into output. */
static enum sbx_code skopeo(struct image_store *s, const char *source, const char *host,
                            const struct image_registry *registry, const char *to,
                            const char *watch, struct buf *output, struct sbx_err *err)
{
    SCOPED_FD int auth = -1;
    char auth_arg[64];
    const char *argv[16];
    size_t n = 0;
    struct image_tool tool = IMAGE_TOOL_INIT;
    enum sbx_code code = auth_file(host, registry, &auth, err);
    int keep[2] = { -1, -1 };

    if (code != SBX_OK)
        return code;
    argv[n++] = s->config->skopeo;
    argv[n++] = to == NULL ? "inspect" : "copy";
    if (to == NULL)
        argv[n++] = "--raw";
    else
        argv[n++] = "--quiet";
    if (auth >= 0) {
        keep[0] = auth;
        (void)snprintf(auth_arg, sizeof(auth_arg), "%s=/proc/self/fd/%d", "--authfile", auth);
        argv[n++] = auth_arg;
    } else {
        argv[n++] = "--no-creds";
    }
    if (to != NULL && auth < 0)
        argv[n - 1] = "--src-no-creds";
    if (insecure(s, host))
        argv[n++] = to == NULL ? "--tls-verify=false" : "--src-tls-verify=false";
    argv[n++] = source;
    if (to != NULL)
        argv[n++] = to;
    argv[n] = NULL;
    tool.argv = argv;
    tool.keep = auth >= 0 ? keep : NULL;
    tool.timeout_ms = s->config->pull_timeout_ms;
    tool.file_max = s->config->image_max_bytes;
    tool.watch = watch;
    tool.watch_max = s->config->image_max_bytes;
    code = image_tool_run(s, &tool, output, err);
    return code == SBX_OK ? SBX_OK : explain(output, code, err);
}

/* Asks the registry whether these credentials may have it; refuses what is too large for us. */
static enum sbx_code ask_registry(struct image_store *s, const char *reference,
                                  const struct image_registry *registry, struct sbx_err *err)
{
    SCOPED_BUF struct buf output = BUF_INIT(IMAGE_TOOL_OUTPUT_MAX * 2);
    SCOPED_JSON json_t *manifest = NULL;
    char host[IMAGE_REFERENCE_MAX], source[TEXT_SIZE];
    enum sbx_code code;

    host_of(reference, host);
    source_of(reference, source);
    code = check_host(s, host, err);
    if (code == SBX_OK)
        code = skopeo(s, source, host, registry, NULL, NULL, &output, err);
    if (code != SBX_OK)
        return code;
    if (json_parse_object(output.data, output.len, &manifest, err) != SBX_OK)
        return image_err_instead(err, SBX_E_INVALID, "the image's manifest cannot be read");
    /* A list of images for several machines has no layers; the one that is ours is looked at once
     * it is here. */
    if (json_object_get(manifest, "layers") == NULL)
        return SBX_OK;
    return image_manifest_check(s, manifest, err);
}

static enum sbx_code pull(struct image_store *s, struct image_entry *entry, const char *reference,
                          const struct image_registry *registry, struct sbx_err *err)
{
    SCOPED_BUF struct buf output = BUF_INIT(IMAGE_TOOL_OUTPUT_MAX * 2);
    char work[IMAGE_WORK_SIZE], to[IMAGE_WORK_SIZE + 32], layout[IMAGE_WORK_SIZE + 16];
    char host[IMAGE_REFERENCE_MAX], source[TEXT_SIZE];
    enum sbx_code code = ask_registry(s, reference, registry, err);

    if (code == SBX_OK)
        code = image_work_begin(s, work, err);
    if (code != SBX_OK)
        return code;
    host_of(reference, host);
    source_of(reference, source);
    (void)snprintf(layout, sizeof(layout), "%s/layout", work);
    (void)snprintf(to, sizeof(to), "oci:%s:image", layout);
    code = skopeo(s, source, host, registry, to, layout, &output, err);
    if (code == SBX_OK)
        code = image_make_room(s, 0, err);
    if (code == SBX_OK)
        code = image_unpack(s, work, entry, reference,
                            registry != NULL ? IMAGE_PRIVATE : IMAGE_PUBLIC, err);
    image_work_end(s, work);
    return code;
}

static void proof_of(struct image_store *s, const struct image_registry *registry,
                     unsigned char out[SHA256_LEN])
{
    SCOPED_FREE char *text = NULL;

    memset(out, 0, SHA256_LEN);
    if (registry == NULL || registry->username == NULL || registry->password == NULL)
        return;
    text = mem_printf("%s\n%s\n%s", registry->host != NULL ? registry->host : "",
                      registry->username, secret_reveal(registry->password));
    hmac_sha256(s->proof_key, sizeof(s->proof_key), text, strlen(text), out);
    secret_wipe(text, strlen(text));
}

/* May this caller have an image that is here already?  A local or public name: yes.  A private or
 * an unknown one: when its registry says so, now or within IMAGE_VERIFIED_MS. */
static enum sbx_code authorize(struct image_store *s, struct image_entry *e, const char *reference,
                               const struct image_registry *registry, struct sbx_err *err)
{
    unsigned char proof[SHA256_LEN];
    struct image_name *n;
    bool good;
    enum sbx_code code;

    proof_of(s, registry, proof);
    pthread_mutex_lock(&s->lock);
    n = image_entry_name(e, reference);
    good = n != NULL && (n->origin != IMAGE_PRIVATE ||
                         (n->proved_ms != 0 && time_mono_ms() - n->proved_ms < IMAGE_VERIFIED_MS &&
                          str_equal_secret(proof, n->proof, sizeof(proof))));
    pthread_mutex_unlock(&s->lock);
    if (good)
        return SBX_OK;
    code = ask_registry(s, reference, registry, err);
    if (code != SBX_OK)
        return code;
    return image_entry_add_name(s, e, reference, registry != NULL ? IMAGE_PRIVATE : IMAGE_PUBLIC,
                                err);
}

static void proved(struct image_store *s, struct image_entry *e, const char *reference,
                   const struct image_registry *registry, struct sbx_err *err)
{
    struct image_name *n;

    (void)err;
    pthread_mutex_lock(&s->lock);
    n = image_entry_name(e, reference);
    if (n != NULL && n->origin == IMAGE_PRIVATE) {
        proof_of(s, registry, n->proof);
        n->proved_ms = time_mono_ms();
    }
    pthread_mutex_unlock(&s->lock);
}

/* image.json as the caller's struct. */
static enum sbx_code load(struct image_store *s, const char *digest, struct arena *a,
                          struct image *out, struct sbx_err *err)
{
    SCOPED_JSON json_t *j = NULL;
    const json_t *groups;
    char folder[IMAGE_DIGEST_SIZE + 8];
    struct image im = { 0 };
    const char **list;
    size_t n = 0;
    enum sbx_code code = image_json_load(s, digest, &j, err);

    if (code != SBX_OK)
        return code;
    image_folder_name(digest, folder);
    (void)str_copy(im.digest, sizeof(im.digest), digest);
    im.rootfs = arena_printf(a, "%s/%s/rootfs", s->config->dir, folder);
    list = json_strings(a, json_object_get(j, "argv"), &n);
    im.argv = list != NULL ? list : arena_zalloc(a, sizeof(char *));
    list = json_strings(a, json_object_get(j, "env"), &n);
    im.env = list != NULL ? list : arena_zalloc(a, sizeof(char *));
    for (size_t i = 0; im.argv[i] != NULL; i++)
        im.argv[i] = arena_strdup(a, im.argv[i]);
    for (size_t i = 0; im.env[i] != NULL; i++)
        im.env[i] = arena_strdup(a, im.env[i]);
    im.working_dir = arena_strdup(a, json_get_str(j, "workingDir", "/"));
    im.home = arena_strdup(a, json_get_str(j, "home", "/"));
    im.uid = (uint32_t)json_get_int(j, "uid", 0);
    im.gid = (uint32_t)json_get_int(j, "gid", 0);
    groups = json_object_get(j, "groups");
    for (size_t i = 0; i < json_array_size(groups) && i < IMAGE_GROUPS_MAX; i++)
        im.groups[im.group_count++] = (uint32_t)json_integer_value(json_array_get(groups, i));
    *out = im;
    return SBX_OK;
}

static void touch(struct image_store *s, struct image_entry *e)
{
    char folder[IMAGE_DIGEST_SIZE + 8];

    e->used_ms = time_unix_ms();
    image_folder_name(e->digest, folder);
    (void)utimensat(s->dir_fd, folder, NULL, 0);
}

enum sbx_code image_acquire(struct image_store *s, const char *reference,
                            const struct image_registry *registry, struct arena *a,
                            struct image *out, struct sbx_err *err)
{
    char digest[IMAGE_DIGEST_SIZE];
    struct image_entry *e;
    enum sbx_code code = image_reference_check(reference, digest, err);

    if (code != SBX_OK)
        return code;
    if (registry != NULL && registry->password == NULL)
        registry = NULL;
    pthread_mutex_lock(&s->lock);
    e = image_entry_claim(s, digest);
    pthread_mutex_unlock(&s->lock);
    if (e->present) {
        code = authorize(s, e, reference, registry, err);
    } else {
        code = pull(s, e, reference, registry, err);
        if (code == SBX_OK) {
            pthread_mutex_lock(&s->lock);
            e->present = true;
            e->name_count = 0;
            e->names[e->name_count++] = (struct image_name){
                .reference = mem_strdup(reference),
                .origin = registry != NULL ? IMAGE_PRIVATE : IMAGE_PUBLIC,
            };
            pthread_mutex_unlock(&s->lock);
        }
    }
    if (code == SBX_OK)
        proved(s, e, reference, registry, err);
    if (code == SBX_OK)
        code = load(s, digest, a, out, err);
    pthread_mutex_lock(&s->lock);
    if (code == SBX_OK) {
        e->held++;
        touch(s, e);
    }
    image_entry_unclaim(s, e);
    pthread_mutex_unlock(&s->lock);
    if (code == SBX_OK) {
        struct sbx_err full = { 0 };

        /* The image is held: only others can go.  That it does not fit is no reason to fail now. */
        (void)!image_make_room(s, 0, &full);
    }
    return code;
}
