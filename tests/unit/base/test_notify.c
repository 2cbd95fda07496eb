#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/notify.h"

static void the_manager_gets_the_words(void **state)
{
    struct sockaddr_un at = { .sun_family = AF_UNIX };
    char name[64], got[64] = "";
    socklen_t len;
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);

    (void)state;
    (void)snprintf(name, sizeof(name), "@sandboxd-test-%d", (int)getpid());
    memcpy(at.sun_path + 1, name + 1, strlen(name) - 1);
    len = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + strlen(name));
    assert_int_equal(bind(fd, (struct sockaddr *)&at, len), 0);
    assert_int_equal(setenv("NOTIFY_SOCKET", name, 1), 0);
    process_notify("READY=1");
    assert_int_equal(recv(fd, got, sizeof(got) - 1, MSG_DONTWAIT), 7);
    assert_string_equal(got, "READY=1");
    (void)close(fd);
}

static void nobody_listens_and_nothing_happens(void **state)
{
    static const char *const PLACES[] = { "", "/", "relative", "/nonexistent/socket",
                                          "@sandboxd-none" };

    (void)state;
    assert_int_equal(unsetenv("NOTIFY_SOCKET"), 0);
    process_notify("READY=1");
    for (size_t i = 0; i < sizeof(PLACES) / sizeof(PLACES[0]); i++) {
        assert_int_equal(setenv("NOTIFY_SOCKET", PLACES[i], 1), 0);
        process_notify("READY=1");
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_manager_gets_the_words),
        cmocka_unit_test(nobody_listens_and_nothing_happens),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
