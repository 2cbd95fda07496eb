#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/log.h"
#include "http/server.h"
#include "region/jwks.h"
#include "unit/region/jwt.h"

/* Key sources: rotation, outage, refetch limits; against a server that counts the fetches. */

struct fixture {
    struct http_server *server;
    struct net *net;
    char url[64];
    char *_Atomic text; /* what the server answers; NULL: 503 */
    atomic_int fetches;
};

static EVP_PKEY *one, *two;

static enum sbx_code h_keys(struct request *req, struct response *res, struct sbx_err *err)
{
    struct fixture *f = request_owner(req);
    const char *text = atomic_load(&f->text);

    (void)atomic_fetch_add(&f->fetches, 1);
    if (text == NULL)
        return err_set(err, SBX_E_UNAVAILABLE, "away");
    response_bytes(res, 200, "application/json", text, strlen(text));
    return SBX_OK;
}

static enum http_auth allow(void *owner, struct request *req, const struct route *route,
                            struct sbx_err *err)
{
    (void)owner, (void)req, (void)route, (void)err;
    return HTTP_AUTH_ALLOW;
}

static const struct route ROUTES[] = {
    { .method = HTTP_GET, .path = "/jwks", .name = "jwks", .auth = 1, .handler = h_keys },
};

static int start(void **state)
{
    struct fixture *f = mem_zalloc(sizeof(*f));
    static const struct route_table TABLE = { ROUTES, COUNT_OF(ROUTES) };
    struct http_listener l = {
        .name = "tcp", .address = "127.0.0.1:0", .tables = &TABLE, .table_count = 1
    };
    struct http_config c = { .owner = f, .listeners = &l, .listener_count = 1, .auth = allow };
    struct net_config nc = { 0 };
    struct sbx_err err = { 0 };

    assert_int_equal(http_server_start(&c, &f->server, &err), SBX_OK);
    assert_int_equal(net_start(&nc, &f->net, &err), SBX_OK);
    (void)snprintf(f->url, sizeof(f->url), "http://127.0.0.1:%u/jwks",
                   http_server_port(f->server, 0));
    atomic_store(&f->text, jwt_jwks(jwt_jwk(one, "one"), NULL));
    *state = f;
    return 0;
}

static int stop(void **state)
{
    struct fixture *f = *state;

    net_stop(f->net);
    http_server_stop(f->server);
    free(atomic_load(&f->text));
    free(f);
    return 0;
}

static int make_keys(void **state)
{
    (void)state;
    (void)signal(SIGPIPE, SIG_IGN);
    log_open("test", LOG_ERROR);
    one = jwt_ed25519();
    two = jwt_ed25519();
    return 0;
}

static int free_keys(void **state)
{
    (void)state;
    EVP_PKEY_free(one);
    EVP_PKEY_free(two);
    return 0;
}

static char *token_of(EVP_PKEY *key, const char *kid)
{
    char header[64];

    (void)snprintf(header, sizeof(header), "{\"alg\":\"EdDSA\",\"kid\":\"%s\"}", kid);
    return jwt_sign(key, header, "{}");
}

static enum jose_verdict ask(struct jwks *j, EVP_PKEY *key, const char *kid, bool may_block,
                             bool *again)
{
    char *token = token_of(key, kid);
    json_t *claims = NULL;
    enum jose_verdict v = jwks_verify(j, JOSE_EDDSA, token, may_block, &claims, again);

    assert_int_equal(v == JOSE_OK, claims != NULL);
    json_decref(claims);
    free(token);
    return v;
}

static struct jwks *open_url(struct fixture *f, int refetch_s)
{
    struct jwks_config c = { .url = f->url, .refetch_s = refetch_s, .timeout_ms = 3000 };
    struct sbx_err err = { 0 };
    struct jwks *j = NULL;

    assert_int_equal(jwks_open(&c, f->net, &j, &err), SBX_OK);
    return j;
}

static void a_url_is_fetched_once_when_it_may_block(void **state)
{
    struct fixture *f = *state;
    struct jwks *j = open_url(f, 30);
    bool again;

    assert_int_equal(ask(j, one, "one", false, &again), JOSE_NO_KEYS);
    assert_true(again);
    assert_int_equal(atomic_load(&f->fetches), 0);
    for (int i = 0; i < 5; i++) {
        assert_int_equal(ask(j, one, "one", true, &again), JOSE_OK);
        assert_int_equal(ask(j, one, "one", false, &again), JOSE_OK);
        assert_false(again);
    }
    assert_int_equal(atomic_load(&f->fetches), 1);
    jwks_close(j);
}

static void an_unknown_kid_fetches_at_most_every_refetch_s(void **state)
{
    struct fixture *f = *state;
    struct jwks *j = open_url(f, 1);
    bool again;

    assert_int_equal(ask(j, one, "one", true, &again), JOSE_OK);
    /* within the second: no further fetch, whoever asks */
    for (int i = 0; i < 20; i++)
        assert_int_equal(ask(j, two, "two", true, &again), JOSE_KID_UNKNOWN);
    assert_int_equal(ask(j, two, "two", false, &again), JOSE_KID_UNKNOWN);
    assert_false(again);
    assert_int_equal(atomic_load(&f->fetches), 1);
    /* rotation: the new key is there, and after the second it is found */
    free(atomic_exchange(&f->text, jwt_jwks(jwt_jwk(two, "two"), NULL)));
    (void)usleep(1050000);
    assert_int_equal(ask(j, two, "two", false, &again), JOSE_KID_UNKNOWN);
    assert_true(again);
    assert_int_equal(ask(j, two, "two", true, &again), JOSE_OK);
    assert_int_equal(atomic_load(&f->fetches), 2);
    assert_int_equal(ask(j, one, "one", true, &again), JOSE_KID_UNKNOWN); /* the old one is gone */
    jwks_close(j);
}

static void the_last_good_keys_go_on_in_an_outage(void **state)
{
    struct fixture *f = *state;
    struct jwks_config c = { .url = f->url, .refetch_s = 1, .refresh_s = 1, .timeout_ms = 3000 };
    struct sbx_err err = { 0 };
    struct jwks *j = NULL;
    bool again;

    assert_int_equal(jwks_open(&c, f->net, &j, &err), SBX_OK);
    assert_int_equal(ask(j, one, "one", true, &again), JOSE_OK);
    free(atomic_exchange(&f->text, NULL));
    (void)usleep(1050000);
    assert_int_equal(ask(j, one, "one", true, &again), JOSE_OK);
    assert_true(atomic_load(&f->fetches) >= 2);
    atomic_store(&f->text, mem_strdup("{\"keys\":[]}")); /* nonsense counts as an outage */
    (void)usleep(1050000);
    assert_int_equal(ask(j, one, "one", true, &again), JOSE_OK);
    jwks_close(j);
}

static void no_key_ever_is_no_keys(void **state)
{
    struct fixture *f = *state;
    struct jwks *j;
    bool again;

    free(atomic_exchange(&f->text, NULL));
    j = open_url(f, 30);
    assert_int_equal(ask(j, one, "one", true, &again), JOSE_NO_KEYS);
    assert_int_equal(ask(j, one, "one", true, &again), JOSE_NO_KEYS);
    assert_int_equal(atomic_load(&f->fetches), 1);
    jwks_close(j);
}

struct asker {
    struct jwks *j;
    enum jose_verdict v;
};

static void *ask_once(void *arg)
{
    struct asker *a = arg;
    bool again;

    a->v = ask(a->j, one, "one", true, &again);
    return NULL;
}

static void many_who_ask_at_once_share_one_fetch(void **state)
{
    struct fixture *f = *state;
    struct jwks *j = open_url(f, 30);
    pthread_t threads[8];
    struct asker askers[8];

    for (size_t i = 0; i < COUNT_OF(threads); i++) {
        askers[i] = (struct asker){ .j = j };
        assert_int_equal(pthread_create(&threads[i], NULL, ask_once, &askers[i]), 0);
    }
    for (size_t i = 0; i < COUNT_OF(threads); i++) {
        (void)pthread_join(threads[i], NULL);
        assert_int_equal(askers[i].v, JOSE_OK);
    }
    assert_int_equal(atomic_load(&f->fetches), 1);
    jwks_close(j);
}

static void write_text(const char *path, char *text)
{
    FILE *out = fopen(path, "w");

    assert_non_null(out);
    (void)fputs(text, out);
    (void)fclose(out);
    free(text);
}

static void a_file_is_read_at_the_start_and_again(void **state)
{
    char path[64];
    struct jwks_config c = { .file = path, .refetch_s = 1 };
    struct sbx_err err = { 0 };
    struct jwks *j = NULL;
    bool again;

    (void)state;
    (void)snprintf(path, sizeof(path), "/tmp/test_jwks_%d.pem", (int)getpid());
    (void)unlink(path);
    assert_int_not_equal(jwks_open(&c, NULL, &j, &err), SBX_OK);
    write_text(path, mem_strdup("nonsense"));
    err = (struct sbx_err){ 0 };
    assert_int_equal(jwks_open(&c, NULL, &j, &err), SBX_E_INVALID);
    write_text(path, jwt_jwks(jwt_jwk(one, "one"), NULL));
    err = (struct sbx_err){ 0 };
    assert_int_equal(jwks_open(&c, NULL, &j, &err), SBX_OK);
    assert_int_equal(ask(j, one, "one", false, &again), JOSE_OK);
    write_text(path, jwt_pem(two));
    (void)usleep(1050000);
    assert_int_equal(ask(j, two, "two", true, &again), JOSE_OK);
    (void)unlink(path);
    jwks_close(j);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define T(fn) cmocka_unit_test_setup_teardown(fn, start, stop)
        T(a_url_is_fetched_once_when_it_may_block),
        T(an_unknown_kid_fetches_at_most_every_refetch_s),
        T(the_last_good_keys_go_on_in_an_outage),
        T(no_key_ever_is_no_keys),
        T(many_who_ask_at_once_share_one_fetch),
        cmocka_unit_test(a_file_is_read_at_the_start_and_again),
    };

    return cmocka_run_group_tests(tests, make_keys, free_keys);
}
