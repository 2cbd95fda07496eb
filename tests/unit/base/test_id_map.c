#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "base/id_map.h"

enum { MANY = 5000 };

static void test_puts_gets_removes_many(void **state)
{
    static char ids[MANY][ID_SIZE];
    struct id_map m = { 0 };
    size_t seen = 0;

    (void)state;
    assert_null(id_map_get(&m, "00000000000000000000000000"));
    for (int i = 0; i < MANY; i++) {
        id_new(ids[i]);
        id_map_put(&m, ids[i], ids[i]);
    }
    for (int i = 0; i < MANY; i += 2)
        assert_ptr_equal(id_map_remove(&m, ids[i]), ids[i]);
    for (int i = 0; i < MANY; i++)
        assert_ptr_equal(id_map_get(&m, ids[i]), i % 2 == 0 ? NULL : ids[i]);
    ID_MAP_EACH(&m, slot)
    {
        assert_string_equal(slot->id, slot->value);
        seen++;
    }
    assert_int_equal(seen, MANY / 2);
    assert_int_equal(m.count, MANY / 2);
    assert_null(id_map_remove(&m, ids[0]));
    id_map_fini(&m);
}

/* Put and removed again and again, it neither fills with dead slots nor loops. */
static void test_churn_stays_small(void **state)
{
    struct id_map m = { 0 };
    char id[ID_SIZE];

    (void)state;
    for (int i = 0; i < 20 * MANY; i++) {
        id_new(id);
        id_map_put(&m, id, id);
        assert_ptr_equal(id_map_remove(&m, id), id);
    }
    assert_true(m.size <= 256);
    id_map_fini(&m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_puts_gets_removes_many),
        cmocka_unit_test(test_churn_stays_small),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
