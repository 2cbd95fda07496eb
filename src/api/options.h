#ifndef API_OPTIONS_H
#define API_OPTIONS_H

/* The options of sandboxd's server, as rows: config/sandboxd.conf and docs/config.md
 * are printed from them. */

#include "api/schema.h"
#include "base/config.h"

extern const struct config_option API_OPTIONS[];
extern const size_t API_OPTION_COUNT;

/* The bounds that requests are held to; without a configuration the defaults. */
void api_bounds_from(const struct config *c, struct api_bounds *out);
void api_bounds_default(struct api_bounds *out);

#endif
