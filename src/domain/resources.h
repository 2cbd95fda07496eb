#ifndef DOMAIN_RESOURCES_H
#define DOMAIN_RESOURCES_H

/* zClouds to CPU and memory (contract 2): one is 500 millicores and 512 MiB as
 * limits, half of each as requests. Pure. */

enum { RESOURCES_ZCLOUDS_MIN = 1, RESOURCES_ZCLOUDS_MAX = 16 };

struct resources {
    int zclouds;
    int cpu_request_millis;
    int cpu_limit_millis;
    int memory_request_mb;
    int memory_limit_mb;
};

struct resources resources_of(int zclouds);

#endif
