#ifndef API_WORKERS_H
#define API_WORKERS_H

/* The worker check-in, live.agent_sandbox.register (contract 7). Internal to api. */

#include "api/call.h"
#include "domain/worker_checkin.h"

/* Judges a request on a worker route: service token, capability, subject and stream, in that order,
 * or the stream's owner on the reading route. */
enum http_auth api_worker_auth(struct api *api, struct request *req, const struct route *route,
                               struct sbx_err *err);

enum { API_WORKER_ROUTE_COUNT = 3, API_WORKER_ADMIN_ROUTE_COUNT = 3 };
extern const struct route API_WORKER_ROUTES[API_WORKER_ROUTE_COUNT];
extern const struct route API_WORKER_ADMIN_ROUTES[API_WORKER_ADMIN_ROUTE_COUNT];

/* The operator's. */
api_handler_fn api_stream_create, api_stream_remove, api_stream_list;

/* --- the body ----------------------------------------------------------- */

enum { API_WORKER_ERRORS_MAX = 1000 };

#define API_WORKER_PROBLEM_TYPE    "application/problem+json"
#define API_WORKER_SUBJECT_PATTERN "^usr_[0-7][0-9A-HJKMNP-TV-Z]{25}$"

/* The report is judged by its table; the others print openapi.json and hold the tests' answers. */
extern const struct api_schema API_WORKER_REPORT, API_WORKER_CHECKED_IN, API_WORKERS_ANSWER,
    API_WORKER_MANIFEST, API_WORKER_PROBLEM;

struct api_worker_report {
    const char *worker_id; /* borrowed from the body */
    const char *version;   /* NULL: none */
    struct worker_isolation isolation;
};

/* SBX_E_REQUEST_INVALID with every fault in `errors` ([{path, message}]), else
 * SBX_E_ISOLATION_REFUSED with every key in it. body NULL: none was sent. */
MUST_USE enum sbx_code api_worker_report_read(const json_t *body, struct api_worker_report *out,
                                              json_t *errors, struct sbx_err *err);

/* The code as a problem names it: "token.expired". */
const char *api_worker_problem_name(enum sbx_code code);
/* application/problem+json; `errors` of response_error_data, when it is there. */
void api_worker_problem(struct request *req, struct response *res, const struct sbx_err *err);

#endif
