#include "base/id.h"

#include <pthread.h>
#include <stdint.h>
#include <string.h>

#include "base/hash.h"
#include "base/time.h"

static const char ALPHABET[] = "0123456789abcdefghjkmnpqrstvwxyz";

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static uint64_t last_ms;
static uint16_t last_seq;

/* From a stock of this thread: each request has an id, and ids are no secrets. */
static void some_random(void *out, size_t len)
{
    static _Thread_local unsigned char stock[256];
    static _Thread_local size_t left;

    if (left < len) {
        random_bytes(stock, sizeof(stock));
        left = sizeof(stock);
    }
    left -= len;
    memcpy(out, stock + left, len);
}

/* The 12 bits after the time count up within a millisecond, so that ids of one process keep their
 * order. */
static uint64_t stamp(uint16_t *seq)
{
    uint64_t ms = (uint64_t)time_unix_ms();
    uint16_t fresh;

    some_random(&fresh, sizeof(fresh));
    (void)pthread_mutex_lock(&lock);
    if (ms > last_ms) {
        last_ms = ms;
        last_seq = fresh & 0x7ff;
    } else if (last_seq < 0xfff) {
        last_seq++;
    } else {
        last_ms++;
        last_seq = fresh & 0x7ff;
    }
    ms = last_ms;
    *seq = last_seq;
    (void)pthread_mutex_unlock(&lock);
    return ms;
}

void id_new(char out[ID_SIZE])
{
    uint16_t seq;
    uint64_t ms = stamp(&seq);
    uint64_t hi = ms << 16 | 0x7000U | seq;
    uint64_t lo;

    some_random(&lo, sizeof(lo));
    lo = (lo & 0x3fffffffffffffffULL) | 0x8000000000000000ULL;

    for (int i = SBX_ID_LEN - 1; i >= 0; i--) {
        out[i] = ALPHABET[lo & 31];
        lo = lo >> 5 | hi << 59;
        hi >>= 5;
    }
    out[SBX_ID_LEN] = 0;
}

bool id_valid(const char *text)
{
    if (strnlen(text, ID_SIZE) != SBX_ID_LEN || text[0] > '7')
        return false;
    for (int i = 0; i < SBX_ID_LEN; i++) {
        if (strchr(ALPHABET, text[i]) == NULL)
            return false;
    }
    return true;
}
