#include "base/time.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

static int64_t now_ms(clockid_t clock)
{
    struct timespec t;

    (void)clock_gettime(clock, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

int64_t time_mono_ms(void)
{
    return now_ms(CLOCK_MONOTONIC);
}

int64_t time_unix_ms(void)
{
    return now_ms(CLOCK_REALTIME);
}

void time_iso(int64_t unix_ms, char out[TIME_ISO_SIZE])
{
    int64_t ms = ((unix_ms % 1000) + 1000) % 1000;
    time_t s = (time_t)((unix_ms - ms) / 1000);
    struct tm tm;
    char text[64];

    (void)gmtime_r(&s, &tm);
    (void)snprintf(text, sizeof(text), "%04d-%02d-%02dT%02d:%02d:%02d.%03dZ", tm.tm_year + 1900,
                   tm.tm_mon + 1, tm.tm_mday, tm.tm_hour, tm.tm_min, tm.tm_sec, (int)ms);
    memcpy(out, text, TIME_ISO_SIZE - 1);
    out[TIME_ISO_SIZE - 1] = 0;
}

bool time_iso_parse(const char *text, int64_t *unix_ms)
{
    struct tm tm = { 0 };
    int ms;
    int used = 0;

    if (strlen(text) != TIME_ISO_SIZE - 1 ||
        sscanf(text, "%4d-%2d-%2dT%2d:%2d:%2d.%3dZ%n", &tm.tm_year, &tm.tm_mon, &tm.tm_mday,
               &tm.tm_hour, &tm.tm_min, &tm.tm_sec, &ms, &used) != 7 ||
        used != TIME_ISO_SIZE - 1)
        return false;
    tm.tm_year -= 1900;
    tm.tm_mon -= 1;
    *unix_ms = (int64_t)timegm(&tm) * 1000 + ms;
    return true;
}
