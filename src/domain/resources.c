#include "domain/resources.h"

enum { ZCLOUD_CPU_MILLIS = 500, ZCLOUD_MEMORY_MB = 512 };

struct resources resources_of(int zclouds)
{
    return (struct resources){
        .zclouds = zclouds,
        .cpu_request_millis = zclouds * ZCLOUD_CPU_MILLIS / 2,
        .cpu_limit_millis = zclouds * ZCLOUD_CPU_MILLIS,
        .memory_request_mb = zclouds * ZCLOUD_MEMORY_MB / 2,
        .memory_limit_mb = zclouds * ZCLOUD_MEMORY_MB,
    };
}
