#include "gateway/options.h"

static const struct config_option OPTIONS[] = {
    /* Where the control plane reaches us */
    { "listen", "address", CONFIG_STR, "127.0.0.1", 0, 0, false,
      "Address of the TCP listener; needs a secret" },
    { "listen", "port", CONFIG_INT, "0", 0, 65535, false,
      "Port of the TCP listener; 0 switches it off unless a port file is set" },
    { "listen", "port_file", CONFIG_STR, "", 0, 0, false,
      "A file that receives the port once we listen; with port 0 any free port is taken" },
    { "listen", "secret_file", CONFIG_SECRET_FILE, "", 0, 0, false,
      "The region's bearer secret, shared with the control plane" },
    { "listen", "process_secret_file", CONFIG_SECRET_FILE, "", 0, 0, false,
      "The credential of the owner-only process path; without it that path is refused" },
    { "listen", "tls_cert_file", CONFIG_STR, "", 0, 0, false,
      "PEM certificate chain; empty: no TLS" },
    { "listen", "tls_key_file", CONFIG_SECRET_FILE, "", 0, 0, false, "PEM key of the certificate" },
    { "listen", "socket", CONFIG_STR, "", 0, 0, false, "Unix socket listener; empty: none" },
    { "listen", "socket_uids", CONFIG_LIST, "0", 0, 0, false,
      "Peers that the unix socket serves, by uid" },
    { "state", "dir", CONFIG_STR, "/var/lib/sandboxd/region", 0, 0, false,
      "Journal, images, sandboxes; keep it short: unix sockets live below it" },
    { "log", "level", CONFIG_STR, "info", 0, 0, true, "debug, info, warn or error" },

    /* The runtime */
    { "driver", "kind", CONFIG_STR, "runsc", 0, 0, false, "runsc, or fake for faults and load" },
    { "runsc", "path", CONFIG_STR, "runsc", 0, 0, false, "The runsc program" },
    { "runsc", "platform", CONFIG_STR, "auto", 0, 0, false,
      "auto (probed), systrap, ptrace or kvm" },
    { "runsc", "cgroup_parent", CONFIG_STR, "sandboxd", 0, 0, false,
      "Control group below which each sandbox has its own" },
    { "runsc", "pids_max", CONFIG_INT, "8192", 512, 1000000, false,
      "Host tasks of one sandbox; reaching it ends the sandbox, so keep it far above nproc_max" },
    { "runsc", "nproc_max", CONFIG_INT, "512", 16, 100000, false,
      "Processes of one user inside a sandbox (RLIMIT_NPROC)" },
    { "runsc", "probe_timeout_s", CONFIG_INT, "20", 1, 300, false,
      "Deadline of each probe at start" },
    { "runsc", "start_timeout_s", CONFIG_INT, "60", 1, 600, false,
      "Deadline for the runtime to take a sandbox" },
    { "agent", "path", CONFIG_STR, "/usr/lib/sandboxd/sandbox-agent", 0, 0, false,
      "The static agent program" },
    { "agent", "ready_timeout_s", CONFIG_INT, "120", 1, 600, false,
      "From the start of a sandbox until its agent says READY" },
    { "agent", "redial_timeout_s", CONFIG_INT, "10", 1, 300, false,
      "How long an agent may take to dial again before its sandbox counts as unreachable" },
    { "agent", "ping_interval_s", CONFIG_INT, "5", 1, 300, false,
      "Between pings of an agent that has work under way" },
    { "agent", "silence_timeout_s", CONFIG_INT, "10", 2, 600, false,
      "Silence after which an agent counts as lost and its executions answer AGENT_UNREACHABLE" },

    /* Bounds */
    { "limits", "deploy_workers", CONFIG_INT, "8", 1, 256, false, "Deploys and deletes at once" },
    { "limits", "deploy_queue", CONFIG_INT, "4096", 1, 1000000, false,
      "Deploys and deletes waiting; more answer 503" },
    { "limits", "sandboxes", CONFIG_INT, "10000", 1, 1000000, false,
      "Sandboxes at once; more answer 503" },
    { "limits", "executions", CONFIG_INT, "20000", 1, 1000000, false,
      "Executions under way at once; more answer 503" },
    { "limits", "executions_per_sandbox", CONFIG_INT, "256", 1, 65536, false,
      "Executions under way in one sandbox; more answer 503" },
    { "limits", "output_budget_mb", CONFIG_INT, "512", 1, 1048576, false,
      "Bytes of output held in memory at once; a command that may pass it answers 503" },
    { "limits", "output_max_mb", CONFIG_INT, "64", 1, 1024, false,
      "Highest cap of one output stream that a caller may ask for" },
    { "limits", "request_max_kb", CONFIG_INT, "4096", 64, 1048576, false,
      "Body of one request, image uploads apart" },
    { "limits", "image_upload_mb", CONFIG_INT, "20480", 1, 10485760, false,
      "Body of one image upload" },

    /* The fake driver */
    { "fake", "deploy_delay_ms", CONFIG_INT, "0", 0, 600000, false,
      "From start to the fake agent's READY" },
    { "fake", "prepare_delay_ms", CONFIG_INT, "0", 0, 600000, false,
      "Time a deploy blocks before it starts" },
    { "fake", "fail_every", CONFIG_INT, "0", 0, 1000000000, false,
      "Every n-th deploy fails; 0: none" },
    { "fake", "lose_every", CONFIG_INT, "0", 0, 1000000000, false,
      "Every n-th sandbox dies right after READY; 0: none" },
    { "fake", "execute_delay_ms", CONFIG_INT, "0", 0, 900000, false,
      "Time a fake execution takes" },
};

const struct config_option *gateway_options(size_t *count)
{
    *count = COUNT_OF(OPTIONS);
    return OPTIONS;
}
