#ifndef SBX_LIMITS_H
#define SBX_LIMITS_H

/* Every bound that more than one of our programs must agree on.  A bound of one
 * module lives in that module's limits; a bound that the operator sets is a row
 * of the configuration (base/config.h) and this is its default. */

#define SBX_KIB(n) ((size_t)(n)*1024)
#define SBX_MIB(n) ((size_t)(n)*1024 * 1024)

enum {
    SBX_ID_LEN = 26, /* Crockford base32 of a UUIDv7's bits */

    SBX_BODY_MAX = 1024 * 1024, /* a public request body (contract 1) */
    SBX_BODY_DROP_MAX =
        16 * 1024 * 1024, /* read and dropped past the limit, then the connection closes */
    SBX_JSON_DEPTH_MAX = 32,

    SBX_ARG_MAX = 131071,      /* one argument or variable: the kernel's MAX_ARG_STRLEN - 1 */
    SBX_COMMAND_MAX = 256,     /* strings in a revision's command */
    SBX_EXEC_ARGS_MAX = 65536, /* strings in an execute command */
    SBX_EXEC_TIMEOUT_DEFAULT_S = 120,
    SBX_EXEC_TIMEOUT_MAX_S = 900,
    SBX_OUTPUT_MAX = 4 * 1024 * 1024, /* default cap of one output stream */
};

#endif
