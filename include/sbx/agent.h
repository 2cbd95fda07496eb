#ifndef SBX_AGENT_H
#define SBX_AGENT_H

/* The channel between the region gateway and the agent inside a sandbox.
 *
 * The agent dials SBX_AGENT_SOCKET, a unix socket that the gateway listens on and
 * whose folder is bound read-only into the sandbox.  Each connection carries frames:
 *
 *	u8 version | u8 type | u16 zero | u32 stream | u32 length | length bytes
 *
 * all little-endian.  The receiver checks version, then length against
 * SBX_AGENT_FRAME_MAX, before it reads the payload; a frame that fails either
 * ends the connection.  A payload is a list of fields (below) or, for data
 * frames, bare bytes.
 *
 * The first frame of a connection is HELLO.  The first connection of a sandbox,
 * made before any image code runs, carries no key and is answered by WELCOME with
 * one; every later connection must carry that key (any process inside could dial
 * too).  The socket ends at the gateway, so nobody inside can listen in.
 *
 * One CONTROL connection multiplexes executions by stream number.  Bulk work uses
 * connections of its own, so that flow control is the socket's: the agent dials a
 * BULK connection when the gateway asks for it on CONTROL (DIAL), and a RELAY
 * connection for each TCP connection that a process makes to the egress proxy's
 * address inside.
 *
 * The conversation
 *
 * CONTROL.  HELLO, WELCOME, then READY or FAILED; the same three again after each
 * redial (the agent repeats how the command's start went, so that a restarted
 * gateway learns it; ENDED follows READY at once when the command has ended since).
 * A second WELCOME needs no KEY, and its workload settings are ignored.  A HELLO
 * with a missing or wrong key is answered by closing.  The agent redials for ever:
 * 20 ms, doubling to 1 s.
 *
 * Executions.  The gateway chooses stream numbers (not 0, not one that lives); each
 * EXEC is answered by REFUSED, or by STARTED, STDOUT and STDERR frames, and one EXIT,
 * which is the stream's last frame.  EXIT means that the whole tree is gone, detached
 * processes too: an execution ends with its direct child, and what that left behind
 * is killed.  (If one hangs in a file system that does not answer, EXIT comes 10 s after
 * the kill; it runs no more, and its place stays taken until it is gone.)  When a CONTROL
 *connection is lost its executions go on; their output is dropped from then on, LIST names them,
 *and their EXIT comes on the next connection on stream 0 with EXEC_ID.  KILL on stream 0 with
 *EXEC_ID ends one of those.
 *
 * A slow gateway: past SBX_AGENT_BACKLOG_MAX unsent bytes the agent stops reading
 * output that it would have to send (commands then wait on their pipes); deadlines
 * and KILL act all the same.  Output over a cap is always read and dropped.
 *
 * BULK.  DIAL on CONTROL (any stream number) makes the agent connect; its HELLO has
 * KIND=BULK, KEY and the DIAL_ID, and is not answered: the gateway sends its one job
 * at once, on stream 0.  A DIAL that cannot be served is answered by DONE on DIAL's
 * stream with a REASON (LIMIT: more than SBX_AGENT_BULK_MAX at once); else nothing is
 * sent on CONTROL.  The agent closes after DONE.  A failed UNPACK sends DONE early and
 * then reads and drops up to DATA_END or the end of the connection, so the gateway may
 * write all and then read.  Closing the connection cancels the job.
 *
 * HOLD: the command waits for START, however the UNPACK went (the gateway decides).
 *
 * FREEZE lasts until THAW, STOP, or the loss of the CONTROL connection that asked for
 * it: nobody stays frozen because a gateway died.  Bulk jobs run while frozen.
 *
 * Environment of a process: PATH, HOME and the like by default, over these WELCOME's
 * ENV, over these EXEC's ENV, by name.  HOME comes from the image's /etc/passwd.
 *
 * What the gateway sets up (OCI configuration)
 *
 * process: args {SBX_AGENT_BINARY}, cwd "/", user 0:0, no terminal, noNewPrivileges,
 *   no rlimits that are tighter than the workload's.  capabilities: bounding, effective
 *   and permitted of SBX_AGENT_CAPABILITIES; inheritable and ambient empty.  The agent
 *   takes SBX_AGENT_UID for itself at once; the workload gets, when it is root, those of
 *   an OCI runtime's default set that are among them, else none.
 * standard input, output and error: /dev/null, or a pipe; the agent writes one line to
 *   standard error when it gives up, and exits.  Image code never has them.
 * mounts: proc on /proc; the socket's folder read-only on SBX_AGENT_DIR; the workspace.
 *   No mount below SBX_AGENT_PRIVATE_DIR: the agent mounts a tmpfs there when PERSONAL.
 * SBX_AGENT_DIR on the host: 0755 or 0711, agent.sock 0666 or owned by SBX_AGENT_UID, the
 *   binary 0755.  No other user of the host needs to pass the folders above it.  The
 *   agent hides the folder from image code and reaches it by its working directory. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define SBX_AGENT_DIR        "/run/sandboxd" /* bound read-only */
#define SBX_AGENT_SOCKET     "/run/sandboxd/agent.sock"
#define SBX_AGENT_BINARY     "/run/sandboxd/agent" /* the program, in the same folder */
#define SBX_AGENT_PROXY_PORT 3128                  /* 127.0.0.1 inside, relayed out */

/* PUT_FILE and GET_FILE name files below it and nothing else; 0700, the workload's. */
#define SBX_AGENT_PRIVATE_DIR "/run/warren"
/* The one command that a holder of a personal run executes, without arguments. */
#define SBX_AGENT_ENTRYPOINT "/opt/warren/run"

/* The agent's own uid and gid inside, and those of its archive workers: no image has them. */
#define SBX_AGENT_UID        2147480001
#define SBX_AGENT_WORKER_UID 2147480002

#define SBX_AGENT_CAPABILITIES                                                                     \
    "CAP_CHOWN", "CAP_DAC_OVERRIDE", "CAP_FOWNER", "CAP_FSETID", "CAP_KILL", "CAP_SETGID",         \
        "CAP_SETUID", "CAP_SETPCAP", "CAP_SETFCAP", "CAP_NET_BIND_SERVICE", "CAP_SYS_CHROOT",      \
        "CAP_SYS_ADMIN", "CAP_SYS_RESOURCE"

enum {
    SBX_AGENT_VERSION = 1,
    SBX_AGENT_HEADER_LEN = 12,
    SBX_AGENT_FRAME_MAX = 2 * 1024 * 1024 + 64 * 1024,
    SBX_AGENT_DATA_MAX = 64 * 1024, /* what a sender puts into one data frame */
    SBX_AGENT_KEY_LEN = 32,

    SBX_AGENT_EXECS_MAX = 128,               /* executions at once; one more: REASON_LIMIT */
    SBX_AGENT_BULK_MAX = 4,                  /* bulk jobs at once */
    SBX_AGENT_RELAYS_MAX = 128,              /* relayed connections at once; more wait in accept */
    SBX_AGENT_PRIVATE_KIB = 8192,            /* the private tmpfs */
    SBX_AGENT_FILE_MAX = 1024 * 1024,        /* a private file that PUT_FILE or GET_FILE moves */
    SBX_AGENT_BACKLOG_MAX = 4 * 1024 * 1024, /* unsent bytes on CONTROL (see above) */
};

/* Who says it: A agent, G gateway. */
enum sbx_agent_type {
    SBX_AGENT_HELLO = 1,   /* A: KIND, KEY?, DIAL_ID? (BULK), AGENT_VERSION */
    SBX_AGENT_WELCOME = 2, /* G: KEY on the first connection, WORKLOAD settings (below) */
    SBX_AGENT_READY = 3,   /* A: the template's command was started (or there is none) */
    SBX_AGENT_FAILED = 4,  /* A: MESSAGE: why the command could not be started or ended at once;
                              EXIT_CODE, and SIGNAL when one ended it (EXIT_CODE is 128+n then).
                              A command that ends with 0 at once has failed too. */
    SBX_AGENT_START = 5,   /* G: start the command that HOLD kept back; READY or FAILED follows */
    SBX_AGENT_ENDED = 6, /* A: the command ended later: EXIT_CODE, SIGNAL?; the sandbox lives on */
    SBX_AGENT_EXEC =
        10, /* G: stream, ARG+, ENV*, CWD, TIMEOUT_MS, CAP_STDOUT, CAP_STDERR, STDIN?, EXEC_ID */
    SBX_AGENT_STARTED = 11, /* A: stream */
    SBX_AGENT_STDOUT = 12,  /* A: stream, bytes */
    SBX_AGENT_STDERR = 13,  /* A: stream, bytes */
    SBX_AGENT_EXIT =
        14, /* A: stream, EXIT_CODE, SIGNAL?, TIMED_OUT?, STDOUT_BYTES, STDERR_BYTES, DURATION_MS,
               EXEC_ID.  EXIT_CODE is 128+n beside SIGNAL n, 124 beside TIMED_OUT, 127 or 126 when
               the program is not there or cannot be executed */
    SBX_AGENT_REFUSED =
        15, /* A: stream, REASON (enum sbx_agent_reason), MESSAGE: nothing was started */
    SBX_AGENT_KILL = 16,   /* G: stream (or 0 and EXEC_ID): end the whole tree now; EXIT follows,
                              with SIGNAL 9.  One that is not there is no error: nothing follows */
    SBX_AGENT_LIST = 17,   /* G: which executions live? */
    SBX_AGENT_LISTED = 18, /* A: stream echoes the request's, EXEC_ID* */
    SBX_AGENT_PING = 20,   /* either, answered by PONG with the same stream and payload */
    SBX_AGENT_PONG = 21,
    SBX_AGENT_FREEZE = 30, /* G: stop every process but the agent; answered by DONE */
    SBX_AGENT_THAW = 31,   /* G: answered by DONE */
    SBX_AGENT_DIAL = 32,   /* G: DIAL_ID: open a BULK connection for the job that follows on it */
    SBX_AGENT_DONE = 33,   /* A: stream echoes the request's; REASON and MESSAGE when it failed */
    SBX_AGENT_PACK = 40,   /* G on BULK: EXCLUDE*, MAX_BYTES, PATH: A answers DATA* then DONE with
                              BYTES, MEMBERS.  PATH is a folder (absent: the workspace); what is
                              packed is its content, as tar (pax) under zstd */
    SBX_AGENT_UNPACK = 41, /* G on BULK: PATH, MAX_BYTES, then DATA*, DATA_END: A answers DONE with
                              BYTES, MEMBERS.  After a failure the folder is emptied */
    SBX_AGENT_DATA = 42,   /* bytes */
    SBX_AGENT_DATA_END = 43,
    SBX_AGENT_PUT_FILE = 44, /* G on CONTROL: PATH, MODE, STDIN (content): write on the private
                                tmpfs, owned by the workload; DONE */
    SBX_AGENT_GET_FILE = 45, /* G on CONTROL: PATH, MAX_BYTES: DATA*, DONE with BYTES */
    SBX_AGENT_RELAY = 50,    /* A on RELAY: PORT; after it the connection is bare bytes both ways */
    SBX_AGENT_STOP = 60,     /* G: end everything and exit */
};

enum sbx_agent_kind { SBX_AGENT_CONTROL = 1, SBX_AGENT_BULK = 2, SBX_AGENT_RELAY_KIND = 3 };

enum sbx_agent_reason {
    SBX_AGENT_REASON_NONE = 0,
    SBX_AGENT_REASON_CWD_MISSING = 1, /* 400: the working directory is not there */
    SBX_AGENT_REASON_CWD_ESCAPE = 2,  /* 400 PATH_ESCAPE: relative and left /workspace */
    SBX_AGENT_REASON_LIMIT = 3,       /* too many executions or processes */
    SBX_AGENT_REASON_TOO_LARGE = 4,   /* over MAX_BYTES */
    SBX_AGENT_REASON_PATH_ESCAPE = 5, /* an archive member that would leave the workspace */
    SBX_AGENT_REASON_CORRUPT = 6,     /* an archive that cannot be read to its end */
    SBX_AGENT_REASON_IO = 7,          /* MESSAGE says which step failed */
    SBX_AGENT_REASON_MISSING = 8,     /* no such file */
    SBX_AGENT_REASON_FROZEN = 9,      /* an EXEC while frozen */
    SBX_AGENT_REASON_FORBIDDEN = 10,  /* not in a holder of a personal run, or only there */
    SBX_AGENT_REASON_PROTOCOL = 11,   /* the request lacks a field or has a bad one */
    SBX_AGENT_REASON_NOT_READY = 12,  /* an EXEC before READY */
};

/* A field: u16 tag, u32 length, bytes.  Numbers are u64.  An unknown tag is skipped,
 * a number of another length than 8 ends the connection. */
enum sbx_agent_tag {
    SBX_TAG_KIND = 1,          /* u64, enum sbx_agent_kind */
    SBX_TAG_KEY = 2,           /* SBX_AGENT_KEY_LEN bytes */
    SBX_TAG_DIAL_ID = 3,       /* u64 */
    SBX_TAG_AGENT_VERSION = 4, /* text */
    SBX_TAG_ARG = 10,          /* bytes without NUL, in order */
    SBX_TAG_ENV = 11,          /* NAME=value */
    SBX_TAG_CWD = 12,          /* absent: the workload's */
    SBX_TAG_TIMEOUT_MS = 13,   /* u64 */
    SBX_TAG_CAP_STDOUT = 14,   /* u64: bytes sent at most; what is over is counted and dropped */
    SBX_TAG_CAP_STDERR = 15,
    SBX_TAG_EXEC_ID = 16, /* text, SBX_ID_LEN */
    SBX_TAG_STDIN = 17,   /* bytes given on standard input, then end of file; absent: /dev/null */
    SBX_TAG_UID = 18,     /* u64: absent: the workload's */
    SBX_TAG_GID = 19,
    SBX_TAG_EXIT_CODE = 20,    /* u64 */
    SBX_TAG_SIGNAL = 21,       /* u64 */
    SBX_TAG_TIMED_OUT = 22,    /* u64 1 */
    SBX_TAG_STDOUT_BYTES = 23, /* u64: all that was written, sent or not */
    SBX_TAG_STDERR_BYTES = 24,
    SBX_TAG_DURATION_MS = 25,
    SBX_TAG_REASON = 26,  /* u64, enum sbx_agent_reason */
    SBX_TAG_MESSAGE = 27, /* text for a person, no host path */
    SBX_TAG_PATH = 30,
    SBX_TAG_MODE = 31,
    SBX_TAG_EXCLUDE = 32,   /* gitignore pattern, in order */
    SBX_TAG_MAX_BYTES = 33, /* u64 */
    SBX_TAG_BYTES = 34,     /* u64 */
    SBX_TAG_MEMBERS = 35,   /* u64 */
    SBX_TAG_PORT = 36,
    /* Workload settings, in WELCOME: the template's command (ARG, ENV, CWD, UID, GID) and */
    SBX_TAG_NPROC = 40,     /* u64: RLIMIT_NPROC of the workload, 0: none */
    SBX_TAG_PROXY = 41,     /* u64 1: listen on 127.0.0.1:SBX_AGENT_PROXY_PORT and relay */
    SBX_TAG_WORKSPACE = 42, /* path, "/workspace" */
    SBX_TAG_PERSONAL = 43,  /* u64 1: a holder of a personal run: only SBX_AGENT_ENTRYPOINT runs */
    SBX_TAG_HOLD = 44,      /* u64 1: the command waits for START */
    SBX_TAG_GROUPS = 45,    /* u64, repeated: supplementary groups of the workload */
};

struct sbx_agent_header {
    uint8_t type;
    uint32_t stream;
    uint32_t length;
};

static inline void sbx_agent_put_u16(unsigned char *p, uint16_t v)
{
    p[0] = (unsigned char)(v & 0xff);
    p[1] = (unsigned char)(v >> 8);
}

static inline void sbx_agent_put_u32(unsigned char *p, uint32_t v)
{
    for (int i = 0; i < 4; i++)
        p[i] = (unsigned char)((v >> (8 * i)) & 0xff);
}

static inline void sbx_agent_put_u64(unsigned char *p, uint64_t v)
{
    for (int i = 0; i < 8; i++)
        p[i] = (unsigned char)((v >> (8 * i)) & 0xff);
}

static inline uint32_t sbx_agent_get_u32(const unsigned char *p)
{
    return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

static inline uint64_t sbx_agent_get_u64(const unsigned char *p)
{
    return (uint64_t)sbx_agent_get_u32(p) | (uint64_t)sbx_agent_get_u32(p + 4) << 32;
}

static inline void sbx_agent_header_pack(unsigned char out[SBX_AGENT_HEADER_LEN], uint8_t type,
                                         uint32_t stream, uint32_t length)
{
    out[0] = SBX_AGENT_VERSION;
    out[1] = type;
    out[2] = out[3] = 0;
    sbx_agent_put_u32(out + 4, stream);
    sbx_agent_put_u32(out + 8, length);
}

/* False: the peer does not speak this protocol, close the connection. */
static inline bool sbx_agent_header_parse(const unsigned char in[SBX_AGENT_HEADER_LEN],
                                          struct sbx_agent_header *out)
{
    out->type = in[1];
    out->stream = sbx_agent_get_u32(in + 4);
    out->length = sbx_agent_get_u32(in + 8);
    return in[0] == SBX_AGENT_VERSION && in[2] == 0 && in[3] == 0 &&
           out->length <= (uint32_t)SBX_AGENT_FRAME_MAX;
}

struct sbx_agent_field {
    uint16_t tag;
    uint32_t len;
    const unsigned char *data;
};

/* Walks a payload: true gives the next field and moves *at.  False at the end, or with *bad set
 * when the payload is not a list of fields. */
static inline bool sbx_agent_field_next(const unsigned char *payload, size_t len, size_t *at,
                                        struct sbx_agent_field *out, bool *bad)
{
    if (*at == len)
        return false;
    if (len - *at < 6) {
        *bad = true;
        return false;
    }
    out->tag = (uint16_t)(payload[*at] | payload[*at + 1] << 8);
    out->len = sbx_agent_get_u32(payload + *at + 2);
    if (out->len > len - *at - 6) {
        *bad = true;
        return false;
    }
    out->data = payload + *at + 6;
    *at += 6 + (size_t)out->len;
    return true;
}

#endif
