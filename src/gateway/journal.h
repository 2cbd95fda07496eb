#ifndef GATEWAY_JOURNAL_H
#define GATEWAY_JOURNAL_H

/* What the gateway must know again after any death: one text for each id, the last one
 * counts.  One log file; a line is "<crc32 hex> <id> <text>", and a text of "-" takes the
 * id out.  Writers of the same moment share one fdatasync.  A torn tail is dropped at open:
 * nobody was told that it is there.  A damaged line is left out, and its id has the text
 * that it had before.  When the log has grown past what lives in it, it is written anew
 * beside itself (temp file, fsync, rename, fsync of the folder).  Some room behind the log is kept for it, so that on a full disk an end can still be
 * written down.
 *
 * Any thread.  Bounds: JOURNAL_TEXT_MAX a text, count_max ids; a full journal takes no new
 * id, but new texts of those that it has, and their end. */

#include <stddef.h>
#include <stdint.h>

#include "base/id.h"
#include "sbx/error.h"

enum {
    JOURNAL_TEXT_MAX = 64 * 1024,
    JOURNAL_SLACK = 8 * 1024 * 1024, /* bytes of log beyond twice its live part */
};

struct journal;

struct journal_entry {
    const char *id;
    const char *text; /* no newline; NULL: take it out */
};

/* SBX_E_INTERNAL: the file cannot be used.  *dropped: bytes of torn and damaged lines. */
MUST_USE enum sbx_code journal_open(const char *path, size_t count_max, struct journal **out,
                                    size_t *dropped, struct sbx_err *err);
void journal_close(struct journal *j); /* NULL is allowed */

/* Durable when this returns; all entries or none.  SBX_E_UNAVAILABLE: no room, or too many; the
 * entries may still come to be written with a later one. */
MUST_USE enum sbx_code journal_put(struct journal *j, const struct journal_entry *entries,
                                   size_t count, struct sbx_err *err);

/* Every id and its text; fn must not call the journal. */
void journal_each(struct journal *j, void (*fn)(void *arg, const char *id, const char *text),
                  void *arg);

struct journal_stats {
    size_t count;
    uint64_t bytes, live_bytes, syncs, puts;
};
void journal_stats(struct journal *j, struct journal_stats *out);

#endif
