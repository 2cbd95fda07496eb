#ifndef GATEWAY_OPTIONS_H
#define GATEWAY_OPTIONS_H

/* Every option of sandbox-region: config/region.conf and --print-config come from these rows. */

#include <stddef.h>

#include "base/config.h"

#define GATEWAY_ENV_PREFIX "SANDBOX_REGION"

const struct config_option *gateway_options(size_t *count);

#endif
