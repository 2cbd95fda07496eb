#ifndef SBX_GATEWAY_H
#define SBX_GATEWAY_H

/* clang-format off: the table below is laid out by hand */
/* The control plane - region gateway protocol: HTTP/1.1 with JSON bodies, over TCP with a shared
 * bearer secret of the region (`Authorization: Bearer SECRET`), or over a unix socket where the
 * peer's uid decides.
 *
 * Idempotent and fenced.  Every mutating call carries `generation` (the sandbox row's, an integer
 * that only grows) and `operationId` (26 characters).  The gateway refuses an older generation than
 * it has seen for that id (409 STALE), and answers a repeated operationId with its first result,
 * also after its own restart (journal).  `execute` and `process` are exempt: a repeated id answers
 * 409 OPERATION_KNOWN, and no output is ever journaled.  After a DELETE, (id, generation) stays as a
 * tombstone for 7 days: a late deploy of that or an older generation answers 409 STALE.
 *
 * Errors: {"error": "<sentence>", "code": "<wire name of sbx/error.def>", "retryable": bool,
 * "retryAfterSeconds"?: n, "field"?: "<request field>"} with that code's HTTP status.
 *
 * PUT /v1/sandboxes/{id}
 *     Deploys or adopts; answers when the agent is ready or the deploy failed (the caller waits
 *     SBX_GATEWAY_DEPLOY_TIMEOUT_S); a failed deploy leaves nothing.
 *     { operationId, generation, accountId, image: "repository@sha256:hex",
 *       registry?: {host, username, password},
 *       command?: [..], workingDir?: "/x", env?: {..},
 *       resources: {cpuMillis, memoryMb, diskMb},
 *       network?: {enabled: bool, addressAllowlist: [..], domainAllowlist: [..]},
 *       persistence?: {mode: "DIRECTORY"|"SNAPSHOT"|"BOTH", volumeName, mountPath, sizeMb,
 *                      restore: bool, snapshotMaxMb, backend: BACKEND},
 *       personal?: bool,      holder of a personal run
 *       agent?: bool,         default true; false deploys without the agent
 *       warmId?: "<id>" }     claim this warm sandbox under the new id, cold start if it is gone
 *     BACKEND = {kind: "dir", path}
 *             | {kind: "s3", endpoint, bucket, prefix, accessKey, secretKey, region}
 *     200 SANDBOX
 * SANDBOX = { sandboxId, generation, phase: "starting"|"running"|"stopped"|"failed", agent: bool,
 *             reason?: "<sentence>", oomKilled?: bool, warm?: bool (a pool
 *             member), claimed?: bool (it was one, see warmId), executions: ["<id>", ..],
 *             persistence?: {mountPath, lastSnapshotAt, lastSnapshotBytes, lastSnapshotError,
 *                            restoreFailed: bool},
 *             deniedEgress?: n }
 * GET  /v1/sandboxes/{id}
 *     200 SANDBOX; 404 when the region has nothing of it
 * GET  /v1/sandboxes?after=ID&limit=N
 *     {sandboxes: [SANDBOX..], next?: "ID"} in id order
 * DELETE /v1/sandboxes/{id}      {operationId, generation}
 *     200 {sandboxId, gone: true} when nothing is left; never 404: deleting what is not there is 200
 *     and leaves the tombstone
 * POST /v1/sandboxes/{id}/execute
 *     { executionId, generation, command: [..], cwd?, env?: {..}, timeoutSeconds, outputMax }
 *     200 {exitCode, stdout, stderr, durationMs, timedOut?, signal?, stdoutTruncated?,
 *          stderrTruncated?, stdoutBytes, stderrBytes, stdoutEncoding?, stderrEncoding?}
 *     stdout and stderr are valid UTF-8 as it is (a NUL byte is the JSON escape of U+0000), or
 *     base64.  argv and environment values are UTF-8 strings without NUL, as JSON is.
 *     400 INVALID_REQUEST (cwd missing; `field` names it) or PATH_ESCAPE, 409 SANDBOX_NOT_FOUND |
 *     AGENT_MISSING | SANDBOX_SUSPENDED | SANDBOX_NOT_READY, 502 AGENT_UNREACHABLE, 503 BUSY
 * POST /v1/sandboxes/{id}/snapshot
 *     { operationId, generation, exclude: [..], maxMb, force: bool, backend: BACKEND }
 *     Freezes, archives, and on success releases the compute; 200 {bytes, archivedBytes, takenAt};
 *     502 SNAPSHOT_FAILED: thawed and running as before; 503 UNAVAILABLE: no agent reachable;
 *     409 SNAPSHOT_WOULD_OVERWRITE
 * POST /v1/sandboxes/{id}/stop   {operationId, generation}
 *     Releases compute, keeps the volume; 200 SANDBOX
 * POST /v1/sandboxes/{id}/process
 *     The owner-only path of personal runs, on holders only (personal: true).  Its bearer is the
 *     process secret, a credential of its own on every listener; 401 otherwise; 409
 *     SANDBOX_NOT_FOUND when there is no such holder.
 *     { action: "check", command: [path] }
 *         200 {}; 409 ENTRYPOINT_MISSING: absent or not executable; 409 SANDBOX_NOT_READY: the agent
 *         is not connected; nothing starts
 *     { action: "start", executionId, command: [path], stdin: "text", files: [{path, content, mode}] }
 *         Writes the files (tmpfs, owner the workload), starts the command as the workload, under
 *         another uid than the agent, with a minimal environment; stdin, then end of file; its output
 *         is dropped.  200 {started: true}; 409 ENTRYPOINT_MISSING, SANDBOX_NOT_READY: nothing was
 *         started; 409 OPERATION_KNOWN for any
 *         executionId but the first.  Nothing is journaled but the id, the exit and their times.
 *     { action: "status", executionId }
 *         200 {known, running, exitCode?, signal?}; the exit is journaled before it is told, and
 *         known after a gateway restart, also when it happened meanwhile
 *     { action: "read", path, maxBytes }
 *         200 {content: base64}; 404 NOT_FOUND, 413 REQUEST_TOO_LARGE
 *     { action: "kill", executionId }
 *         200 {}
 * POST /v1/warm                  {warmId, generation, image, command, .. as a deploy without persistence}
 *     200 SANDBOX; DELETE goes by /v1/sandboxes/{warmId}; GET lists warm ones with warm: true
 * PUT, DELETE /v1/volumes/{name} {operationId, accountId, backend: BACKEND}
 *     Makes it; purges every object of it.  PUT also hands the backend's credentials over when the
 *     volume's live directory is mounted: they are held in memory as long as it is, and tried when
 *     a mount is made again, not by this call.  Repeat it freely.
 * GET  /v1/volumes               {volumes: [{accountId, volumeName}..]}
 *     Mounted live directories whose credentials the gateway does not have: since its start, or since
 *     those that it had did not work (for 5 s, doubled up to 60, it does not ask again).  It makes a
 *     mount that died again as soon as it has them.  At most SBX_GATEWAY_LIST_MAX; the control plane
 *     looks here every few seconds and answers each with a PUT.
 * POST /v1/images?name=NAME&kind=layout|rootfs
 *     Body: a tar stream of an OCI layout or of a root file system; 200 {reference: "NAME@sha256:hex", bytes}
 * GET  /v1/images                {images: [{reference, bytes, unpacked}]}
 * DELETE /v1/images?reference=R  409 CONFLICT while a sandbox runs it
 * GET  /v1/health                200 {status: "ok"}, or 503 with what is wrong
 * GET  /healthz, /readyz         the same for probes, without a credential: it lives; it can take one more sandbox
 * GET  /v1/capacity              {sandboxes, warm, memoryMb, memoryFreeMb, diskFreeMb, driver, features: {..}}
 * GET  /v1/egress/denied?sandboxId=ID
 *     {events: [{destination, port?, protocol, count}]}: what its network refused since its create;
 *     pauses are survived, and a restart of the gateway loses what came before a pause
 * GET  /metrics                  Prometheus text */
/* clang-format on */

enum {
    SBX_GATEWAY_DEPLOY_TIMEOUT_S = 300,
    SBX_GATEWAY_DELETE_TIMEOUT_S = 60,
    SBX_GATEWAY_SNAPSHOT_TIMEOUT_S = 900,
    SBX_GATEWAY_CALL_TIMEOUT_S = 30,
    SBX_GATEWAY_TOMBSTONE_S = 7 * 24 * 3600,
    SBX_GATEWAY_TOMBSTONE_MIN_S = 3600, /* of a region that has too many; past every deadline */
    SBX_GATEWAY_EXECUTE_GRACE_S = 30, /* past the command's own deadline */
    SBX_GATEWAY_LIST_MAX = 500,
};

#endif
