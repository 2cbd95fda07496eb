#ifndef AGENT_IGNORE_H
#define AGENT_IGNORE_H

/* Exclude patterns with gitignore's meaning (gitignore(5), section PATTERN FORMAT): the last
 * pattern that matches decides, `!` takes back, a slash within anchors at the root, a slash at the
 * end means folders only.  The walker does not enter an excluded folder, so nothing below one comes
 * back.
 *
 * Matching takes time proportional to pattern times path at most, whatever the pattern. */

#include "agent/frame.h"
#include <sbx/attr.h>
#include <stdbool.h>
#include <stddef.h>

struct agent_ignore;

/* NULL when memory is short.  Patterns are copied. */
struct agent_ignore *agent_ignore_new(const struct agent_list *patterns) MUST_USE;
void agent_ignore_free(struct agent_ignore *ig);

/* path: relative to the root, no slash at either end, no empty part, not "." */
bool agent_ignore_excludes(const struct agent_ignore *ig, const char *path, bool folder);

#endif
