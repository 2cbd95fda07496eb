/* A preload library that cures one fault of old runsc (20221219; fixed long before
 * 20240729): statx with AT_NO_AUTOMOUNT answers EINVAL, and coreutils of Debian 12 sets it
 * in every ls and stat.  Automounts do not exist inside a sandbox, so the flag is dropped.
 * Without a C library: it is loaded into programs of any image, beside any glibc. */

#include <stddef.h>

enum { SYS_STATX = 332, NO_AUTOMOUNT = 0x800 };

extern int *__errno_location(void) __attribute__((weak));
int statx(int dir, const char *path, int flags, unsigned mask, void *out);

static long call(long dir, long path, long flags, long mask, long out)
{
    long result;
    register long r10 __asm__("r10") = mask;
    register long r8 __asm__("r8") = out;

    __asm__ volatile("syscall"
                     : "=a"(result)
                     : "a"((long)SYS_STATX), "D"(dir), "S"(path), "d"(flags), "r"(r10), "r"(r8)
                     : "rcx", "r11", "memory");
    return result;
}

int statx(int dir, const char *path, int flags, unsigned mask, void *out)
{
    long result = call(dir, (long)path, flags & ~NO_AUTOMOUNT, (long)mask, (long)out);

    if (result >= 0)
        return 0;
    if (__errno_location != NULL)
        *__errno_location() = (int)-result;
    return -1;
}
