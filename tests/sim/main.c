#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/log.h"
#include "base/mem.h"
#include "base/str.h"
#include "base/time.h"
#include "sim/sim.h"

/*	sim [--seed N] [--histories N] [--jobs N] [--mutation NAME] [--verbose]
 *
 * Plays histories from --seed on.  A broken one prints its seed; `sim --seed N
 * --histories 1 --verbose` plays it again, step by step.  With --mutation the exit
 * status says whether the mutated rule was found out. */

enum { JOBS_MAX = 64 };

static const char *const MUTATIONS[SIM_MUTATION_COUNT] = {
    [SIM_MUTATION_NONE] = "none",        [SIM_NO_GENERATION_GUARD] = "no-generation-guard",
    [SIM_NO_UNDO] = "no-undo",           [SIM_QUOTA_OUTSIDE] = "quota-outside-transaction",
    [SIM_LATEST_FIRST] = "latest-first", [SIM_WARM_TWICE] = "warm-twice",
    [SIM_START_AGAIN] = "start-again",   [SIM_EXIT_INVENTED] = "exit-invented",
    [SIM_FENCE_BY_AGE] = "fence-by-age", [SIM_HOLDER_LATE] = "holder-late",
};

struct options {
    int64_t seed, histories, jobs;
    enum sim_mutation mutation;
    bool verbose;
};

static int usage(void)
{
    fprintf(stderr, "usage: sim [--seed N] [--histories N] [--jobs N] [--mutation NAME] "
                    "[--verbose]\n");
    return 2;
}

static bool parse(int argc, char **argv, struct options *o)
{
    for (int i = 1; i < argc; i++) {
        const char *value = i + 1 < argc ? argv[i + 1] : "";
        bool known = false;

        if (strcmp(argv[i], "--verbose") == 0) {
            o->verbose = true;
            continue;
        }
        if (strcmp(argv[i], "--seed") == 0)
            known = str_parse_int(value, 0, INT64_MAX, &o->seed);
        else if (strcmp(argv[i], "--histories") == 0)
            known = str_parse_int(value, 1, INT64_MAX, &o->histories);
        else if (strcmp(argv[i], "--jobs") == 0)
            known = str_parse_int(value, 1, JOBS_MAX, &o->jobs);
        else if (strcmp(argv[i], "--mutation") == 0)
            for (int m = 0; m < SIM_MUTATION_COUNT; m++) {
                if (strcmp(value, MUTATIONS[m]) == 0) {
                    o->mutation = (enum sim_mutation)m;
                    known = true;
                }
            }
        if (!known)
            return false;
        i++;
    }
    return true;
}

/* Every jobs-th history. 0: none broke; 1: one did. */
static int run(const struct options *o, int64_t job)
{
    struct sim *s = mem_zalloc(sizeof(*s));
    int broken = 0;

    for (int64_t i = job; i < o->histories && !broken; i += o->jobs) {
        const char *why = sim_play(s, (uint64_t)(o->seed + i), o->mutation, o->verbose);

        if (!why)
            continue;
        broken = 1;
        printf("seed %lld: %s\n  play it again: sim --seed %lld --histories 1%s%s --verbose\n",
               (long long)(o->seed + i), why, (long long)(o->seed + i),
               o->mutation ? " --mutation " : "", o->mutation ? MUTATIONS[o->mutation] : "");
    }
    printf("job %lld: %ld calls of store and region\n", (long long)job, s->steps);
    free(s->events);
    free(s->heap);
    free(s->free_events);
    free(s);
    return broken;
}

int main(int argc, char **argv)
{
    struct options o = { .seed = 1, .histories = 10000, .jobs = 1 };
    int64_t started = time_mono_ms();
    pid_t pids[JOBS_MAX];
    int broken = 0;

    if (!parse(argc, argv, &o))
        return usage();
    log_open("sim", LOG_ERROR);
    setvbuf(stdout, NULL, _IOLBF, 0);
    for (int64_t job = 0; job < o.jobs; job++) {
        pid_t pid = o.jobs == 1 ? 0 : fork();

        if (pid < 0) {
            perror("fork");
            return 2;
        }
        if (pid == 0 && o.jobs > 1)
            exit(run(&o, job));
        if (pid == 0)
            broken = run(&o, 0);
        pids[job] = pid;
    }
    for (int64_t job = 0; o.jobs > 1 && job < o.jobs; job++) {
        int status;
        pid_t ended;

        while ((ended = wait(&status)) < 0 && errno == EINTR)
            continue;
        for (int64_t other = 0; other < o.jobs; other++) {
            if (pids[other] == ended)
                pids[other] = 0;
            else if (status != 0 && pids[other] > 0)
                (void)kill(pids[other], SIGTERM); /* one broken history is enough */
        }
        broken = broken || status != 0;
    }
    printf("%lld histories from seed %lld, mutation %s: %s in %lld ms\n", (long long)o.histories,
           (long long)o.seed, MUTATIONS[o.mutation], broken ? "BROKEN" : "all hold",
           (long long)(time_mono_ms() - started));
    if (o.mutation != SIM_MUTATION_NONE)
        return broken ? 0 : 1; /* a mutation that is not found is the failure */
    return broken;
}
