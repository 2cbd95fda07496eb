#ifndef AGENT_RAW_H
#define AGENT_RAW_H

/* System calls without the C library (syscall(2), "Architecture calling conventions").
 *
 * The inits share the warden's memory (launch.c), errno and all: what runs in them calls these,
 * which touch no memory but that of their arguments.  The answer is the kernel's: -errno after a
 * failure. */

#include <sys/syscall.h>

#if defined(__x86_64__)
static inline long agent_raw(long number, long a, long b, long c, long d, long e)
{
    register long r10 __asm__("r10") = d;
    register long r8 __asm__("r8") = e;
    long out;

    __asm__ volatile("syscall"
                     : "=a"(out)
                     : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8)
                     : "rcx", "r11", "memory");
    return out;
}
#elif defined(__aarch64__)
static inline long agent_raw(long number, long a, long b, long c, long d, long e)
{
    register long x8 __asm__("x8") = number;
    register long x0 __asm__("x0") = a;
    register long x1 __asm__("x1") = b;
    register long x2 __asm__("x2") = c;
    register long x3 __asm__("x3") = d;
    register long x4 __asm__("x4") = e;

    __asm__ volatile("svc #0" : "+r"(x0) : "r"(x8), "r"(x1), "r"(x2), "r"(x3), "r"(x4) : "memory");
    return x0;
}
#else
#error "how does this architecture call its kernel?"
#endif

#define AGENT_RAW_1(n, a)          agent_raw(n, (long)(a), 0, 0, 0, 0)
#define AGENT_RAW_2(n, a, b)       agent_raw(n, (long)(a), (long)(b), 0, 0, 0)
#define AGENT_RAW_3(n, a, b, c)    agent_raw(n, (long)(a), (long)(b), (long)(c), 0, 0)
#define AGENT_RAW_4(n, a, b, c, d) agent_raw(n, (long)(a), (long)(b), (long)(c), (long)(d), 0)
#define AGENT_RAW_5(n, a, b, c, d, e)                                                              \
    agent_raw(n, (long)(a), (long)(b), (long)(c), (long)(d), (long)(e))

#endif
