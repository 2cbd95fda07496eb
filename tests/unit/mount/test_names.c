#include "mount/names.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* What XML 1.0 and S3 cannot carry is escaped, the rest stays, and everything comes back. */
static const struct {
    const char *name, *key;
} NAMES[] = {
    { "plain.txt", "plain.txt" },
    { "a b 'c' \"d\" <&> ?#+*:\\", "a b 'c' \"d\" <&> ?#+*:\\" },
    { "u\303\251 \342\230\205 \360\237\230\200 e\314\201",
      "u\303\251 \342\230\205 \360\237\230\200 e\314\201" },
    { "100%", "100%" },
    { "a%20b", "a%20b" },
    { "caf%C3%A9", "caf%C3%A9" }, /* what others escape needs no second escape */
    { "per%cent %0a %zz %", "per%cent %0a %zz %" },
    { "new\nline", "new%0Aline" },
    { "\r\t\001\037\177", "%0D%09%01%1F%7F" },
    { "\377\376bytes", "%FF%FEbytes" },
    { "\200", "%80" },
    { "\303", "%C3" },                 /* cut short */
    { "\303\251\303", "\303\251%C3" }, /* only what is wrong */
    { "\300\257", "%C0%AF" },          /* longer than it need be */
    { "\355\240\200", "%ED%A0%80" },   /* half of a pair */
    { "\364\220\200\200", "%F4%90%80%80" },
    { "\357\277\276", "%EF%BF%BE" },    /* U+FFFE */
    { "\357\277\275", "\357\277\275" }, /* U+FFFD */
    { "new%0Aline", "new%250Aline" },   /* else it would be the one above */
    { "new%250Aline", "new%25250Aline" },
    { "%25", "%25" },
    { "%0A\n", "%250A%0A" },
    { "%\n", "%%0A" },
    { "%2\n", "%2%0A" },
    { "x_$folder$", "x_%24folder$" },
    { "_$folder$", "_%24folder$" },
    { "$folder$", "$folder$" },
    { "x_%24folder$", "x_%2524folder$" },
};

static void names_have_keys(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(NAMES) / sizeof(NAMES[0]); i++) {
        char key[NAMES_KEY_MAX + 1], name[NAMES_KEY_MAX + 1];

        assert_true(names_encode(NAMES[i].name, NAMES_KEY_MAX, key));
        assert_string_equal(key, NAMES[i].key);
        assert_true(names_decode(key, name));
        assert_string_equal(name, NAMES[i].name);
    }
}

static void paths_are_encoded_by_component(void **state)
{
    char key[NAMES_KEY_MAX + 1];

    (void)state;
    assert_true(names_encode("/", NAMES_KEY_MAX, key));
    assert_string_equal(key, "/");
    assert_true(names_encode("/a\n/b%0A/caf%C3%A9/", NAMES_KEY_MAX, key));
    assert_string_equal(key, "/a%0A/b%250A/caf%C3%A9/");
}

static void keys_of_others_stay(void **state)
{
    static const char *const KEYS[] = { "a%0a", "%41%42", "caf%C3%A9", "100%25", "%24" };

    (void)state;
    for (size_t i = 0; i < sizeof(KEYS) / sizeof(KEYS[0]); i++) {
        char key[NAMES_KEY_MAX + 1], name[NAMES_KEY_MAX + 1];

        assert_true(names_decode(KEYS[i], name));
        assert_string_equal(name, KEYS[i]);
        assert_true(names_encode(name, NAMES_KEY_MAX, key));
        assert_string_equal(key, KEYS[i]);
    }
}

static void long_names_are_refused(void **state)
{
    char path[3 * NAMES_KEY_MAX], key[NAMES_KEY_MAX + 1];

    (void)state;
    memset(path, 'x', sizeof(path));
    path[sizeof(path) - 1] = 0;
    assert_false(names_encode(path, NAMES_KEY_MAX, key));
    assert_false(names_decode(path, key));
    path[NAMES_KEY_MAX] = 0;
    assert_true(names_encode(path, NAMES_KEY_MAX, key));
    assert_true(names_decode(key, path));
    assert_false(names_encode(path, NAMES_KEY_MAX - 1, key));
    assert_false(names_encode("/", 0, key));
    memset(path, 1, NAMES_KEY_MAX);
    path[NAMES_KEY_MAX / 3] = 0;
    assert_true(names_encode(path, NAMES_KEY_MAX, key));
    path[NAMES_KEY_MAX / 3] = 1;
    path[NAMES_KEY_MAX / 3 + 1] = 0;
    assert_false(names_encode(path, NAMES_KEY_MAX, key));
}

/* Of many short names of what is awkward: each comes back, and no two have one key. */
static void names_come_back(void **state)
{
    static const char *const PIECES[] = { "%",         "2",   "5",    "0",      "A",
                                          "C3",        "\n",  "\303", "\251",   "$",
                                          "_$folder$", "_",   "\377", "25",     "24",
                                          "%25",       "%0A", "a",    "%C3%A9", "%24" };
    uint32_t seed = 1;

    (void)state;
    for (int round = 0; round < 200000; round++) {
        char name[128] = "", key[NAMES_KEY_MAX + 1], again[NAMES_KEY_MAX + 1];

        for (int i = 0; i < 6; i++) {
            seed = seed * 1664525u + 1013904223u;
            (void)strncat(name, PIECES[(seed >> 16) % (sizeof(PIECES) / sizeof(PIECES[0]))],
                          sizeof(name) - strlen(name) - 1);
        }
        assert_true(names_encode(name, NAMES_KEY_MAX, key));
        assert_true(names_decode(key, again)); /* so no two names have this key */
        assert_string_equal(again, name);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_have_keys),     cmocka_unit_test(paths_are_encoded_by_component),
        cmocka_unit_test(keys_of_others_stay), cmocka_unit_test(long_names_are_refused),
        cmocka_unit_test(names_come_back),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
