#include "gateway/driver.h"

static enum sbx_code fake_open(const struct config *config, const struct driver_events *events,
                               struct driver **out, struct sbx_err *err)
{
    (void)config;
    (void)events;
    (void)out;
    return err_set(err, SBX_E_UNAVAILABLE, "the fake driver is not built in");
}

const struct driver_ops driver_fake = { .name = "fake", .open = fake_open };
