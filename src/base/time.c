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

/* n / by, towards minus infinity; *n becomes the rest, 0 to by - 1. */
static int64_t split(int64_t *n, int64_t by)
{
    int64_t rest = ((*n % by) + by) % by;
    int64_t q = (*n - rest) / by;

    *n = rest;
    return q;
}

static void digits(char *to, int64_t n, int count)
{
    while (count > 0) {
        to[--count] = (char)('0' + n % 10);
        n /= 10;
    }
}

/* By hand: an answer has up to nine times a row, and gmtime_r with snprintf was half of its cost.
 * Years are counted from March, so that a leap day is the last of its year. */
void time_iso(int64_t unix_ms, char out[TIME_ISO_SIZE])
{
    const int64_t DAYS_TO_1970 = 719468; /* from 0000-03-01 */
    int64_t ms = unix_ms;
    int64_t s = split(&ms, 1000);
    int64_t day = split(&s, 86400) + DAYS_TO_1970;
    int64_t era = split(&day, 146097); /* of 400 years */
    int64_t year = (day - day / 1460 + day / 36524 - day / 146096) / 365;
    int64_t of_year = day - (365 * year + year / 4 - year / 100);
    int64_t month = (5 * of_year + 2) / 153; /* 0: March */
    int64_t of_month = of_year - (153 * month + 2) / 5 + 1;

    memcpy(out, "0000-00-00T00:00:00.000Z", TIME_ISO_SIZE);
    digits(out, era * 400 + year + (month >= 10), 4);
    digits(out + 5, month < 10 ? month + 3 : month - 9, 2);
    digits(out + 8, of_month, 2);
    digits(out + 11, s / 3600, 2);
    digits(out + 14, s / 60 % 60, 2);
    digits(out + 17, s % 60, 2);
    digits(out + 20, ms, 3);
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
