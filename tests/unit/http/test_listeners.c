#include "unit/http/fixture.h"

#include <gnutls/gnutls.h>
#include <gnutls/x509.h>

#include "base/process.h"

/* Unix sockets with peer credentials, TLS with reload, and addresses that cannot be had. */

static char dir[64];

static int make_dir(void **state)
{
    (void)state;
    (void)snprintf(dir, sizeof(dir), "/tmp/test_listeners_XXXXXX");
    return mkdtemp(dir) == NULL ? -1 : 0;
}

static char *in_dir(const char *name)
{
    static char path[4][128];
    static int at;

    at = (at + 1) % 4;
    (void)snprintf(path[at], sizeof(path[at]), "%s/%s", dir, name);
    return path[at];
}

static void make_cert(const char *name)
{
    char subject[64];
    struct sbx_err err = { 0 };
    char *cert = in_dir("cert.pem"), *key = in_dir("key.pem");
    const char *const argv[] = {
        "openssl", "req",   "-x509", "-newkey", "ec",    "-pkeyopt", "ec_paramgen_curve:prime256v1",
        "-nodes",  "-days", "1",     "-subj",   subject, "-keyout",  key,
        "-out",    cert,    NULL
    };

    (void)snprintf(subject, sizeof(subject), "/CN=%s", name);
    assert_int_equal(process_run(argv, NULL, 0, NULL, 30000, &err), SBX_OK);
}

static struct fixture *begin(struct http_listener *l, struct http_config *c)
{
    struct fixture *f = mem_zalloc(sizeof(*f));

    fixture_config(f, c, l);
    return f;
}

static void end(struct fixture *f)
{
    if (f->server != NULL)
        fixture_stop(f);
    free(f);
}

static void a_unix_socket_tells_who_calls(void **state)
{
    char address[160], *path = in_dir("admin.sock");
    struct http_listener l[2];
    struct http_config c;
    struct fixture *f = begin(&l[0], &c);
    struct wire_answer a;
    struct stat st;
    char want[128];

    (void)state;
    (void)snprintf(address, sizeof(address), "unix:%s", path);
    l[1] = l[0];
    l[1].name = "admin";
    l[1].address = address;
    l[1].mode = 0660;
    c.listener_count = 2;
    fixture_start(f, &c);
    assert_int_equal(http_server_port(f->server, 1), 0);
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0660);
    a = wire_once(wire_unix(path), "GET /peer HTTP/1.1\r\n" HOST END, 34);
    (void)snprintf(want, sizeof(want),
                   "{\"success\":true,\"address\":\"\",\"local\":true,\"uid\":%d,\"tls\":false,"
                   "\"listener\":\"admin\"}",
                   (int)getuid());
    assert_string_equal(a.body, want);
    wire_free(&a);
    a = fixture_ask(f, "GET /peer HTTP/1.1\r\n" HOST END);
    assert_non_null(strstr(a.body, "\"address\":\"127.0.0.1\",\"local\":false"));
    assert_non_null(strstr(a.body, "\"listener\":\"public\""));
    wire_free(&a);
    fixture_stop(f);
    assert_int_equal(access(path, F_OK), -1); /* the socket file is gone */
    end(f);
}

static void a_left_over_socket_is_replaced_a_live_one_is_not(void **state)
{
    char address[160], *path = in_dir("left.sock");
    struct sockaddr_un un = { .sun_family = AF_UNIX };
    int left = socket(AF_UNIX, SOCK_STREAM, 0);
    struct http_listener l;
    struct http_config c;
    struct fixture *f = begin(&l, &c);
    struct http_server *second = NULL;
    struct sbx_err err = { 0 };
    struct wire_answer a;

    (void)state;
    (void)snprintf(un.sun_path, sizeof(un.sun_path), "%s", path);
    assert_int_equal(bind(left, (struct sockaddr *)&un, sizeof(un)), 0);
    (void)close(left); /* as after a kill -9 */
    (void)snprintf(address, sizeof(address), "unix:%s", path);
    l.address = address;
    fixture_start(f, &c);
    a = wire_once(wire_unix(path), "GET /hello HTTP/1.1\r\n" HOST END, 35);
    assert_int_equal(a.status, 200);
    wire_free(&a);
    assert_int_equal(http_server_start(&c, &second, &err), SBX_E_INVALID);
    a = wire_once(wire_unix(path), "GET /hello HTTP/1.1\r\n" HOST END, 35);
    assert_int_equal(a.status, 200); /* the first one still has it */
    wire_free(&a);
    end(f);
}

static void bad_addresses_are_refused(void **state)
{
    static const char *const BAD[] = { "",
                                       "nonsense",
                                       "127.0.0.1",
                                       "127.0.0.1:x",
                                       "127.0.0.1:70000",
                                       "1:2:3",
                                       "no-such-host.invalid:1",
                                       "unix:relative",
                                       "unix:/nonexistent/dir/sock",
                                       "192.0.2.1:1" };
    struct http_listener l;
    struct http_config c;
    struct fixture *f = begin(&l, &c);

    (void)state;
    for (size_t i = 0; i < COUNT_OF(BAD); i++) {
        struct sbx_err err = { 0 };

        l.address = BAD[i];
        if (http_server_start(&c, &f->server, &err) != SBX_E_INVALID)
            print_error("%s\n", BAD[i]);
        assert_int_equal(err.code, SBX_E_INVALID);
    }
    end(f);
}

static void all_addresses_and_ipv6(void **state)
{
    static const char *const GOOD[] = { ":0", "0.0.0.0:0", "localhost:0" };
    struct http_listener l;
    struct http_config c;

    (void)state;
    for (size_t i = 0; i < COUNT_OF(GOOD); i++) {
        struct fixture *f = begin(&l, &c);

        l.address = GOOD[i];
        fixture_start(f, &c);
        if (i < 2)
            expect_answer(fixture_ask(f, "GET /hello HTTP/1.1\r\n" HOST END), 200, NULL);
        end(f);
    }
}

/* A GnuTLS client: the certificate's common name, and the answer's status. */
static int tls_ask(uint16_t port, char *name, size_t size)
{
    gnutls_certificate_credentials_t cred;
    gnutls_session_t s;
    int fd = wire_tcp(port), status = -1, rc;
    char buf[4096] = "";
    size_t used = 0;
    ssize_t n;

    assert_int_equal(gnutls_certificate_allocate_credentials(&cred), 0);
    assert_int_equal(gnutls_init(&s, GNUTLS_CLIENT), 0);
    (void)gnutls_set_default_priority(s);
    (void)gnutls_credentials_set(s, GNUTLS_CRD_CERTIFICATE, cred);
    gnutls_transport_set_int(s, fd);
    gnutls_handshake_set_timeout(s, WIRE_WAIT_MS);
    do {
        rc = gnutls_handshake(s);
    } while (rc < 0 && !gnutls_error_is_fatal(rc));
    if (rc == 0) {
        unsigned count = 0;
        const gnutls_datum_t *certs = gnutls_certificate_get_peers(s, &count);
        const char *const ask = "GET /peer HTTP/1.1\r\n" HOST END;
        gnutls_x509_crt_t crt;

        assert_int_equal(count, 1);
        (void)gnutls_x509_crt_init(&crt);
        (void)gnutls_x509_crt_import(crt, &certs[0], GNUTLS_X509_FMT_DER);
        (void)gnutls_x509_crt_get_dn_by_oid(crt, GNUTLS_OID_X520_COMMON_NAME, 0, 0, name, &size);
        gnutls_x509_crt_deinit(crt);
        assert_int_equal(gnutls_record_send(s, ask, strlen(ask)), strlen(ask));
        do { /* the head and the body are two records */
            n = gnutls_record_recv(s, buf + used, sizeof(buf) - 1 - used);
            used += n > 0 ? (size_t)n : 0;
        } while (n == GNUTLS_E_AGAIN || n == GNUTLS_E_INTERRUPTED ||
                 (n > 0 && strstr(buf, "listener") == NULL));
        if (used > 12)
            status = atoi(buf + 9);
        if (status == 200)
            assert_non_null(strstr(buf, "\"tls\":true"));
        (void)gnutls_bye(s, GNUTLS_SHUT_WR);
    }
    gnutls_deinit(s);
    gnutls_certificate_free_credentials(cred);
    (void)close(fd);
    return status;
}

static void tls_serves_and_reloads_its_certificate(void **state)
{
    char cert[128], key[128], name[64] = "";
    struct http_listener l;
    struct http_config c;
    struct fixture *f = begin(&l, &c);
    struct sbx_err err = { 0 };
    struct wire_answer a;
    FILE *bad;

    (void)state;
    make_cert("first.example");
    (void)snprintf(cert, sizeof(cert), "%s", in_dir("cert.pem"));
    (void)snprintf(key, sizeof(key), "%s", in_dir("key.pem"));
    l.cert_file = cert;
    l.key_file = key;
    fixture_start(f, &c);
    assert_int_equal(tls_ask(f->port, name, sizeof(name)), 200);
    assert_string_equal(name, "first.example");
    make_cert("second.example");
    for (int i = 0; i < 40; i++) /* more often than old certificates are kept */
        assert_int_equal(http_server_reload_tls(f->server, &err), SBX_OK);
    assert_int_equal(tls_ask(f->port, name, sizeof(name)), 200);
    assert_string_equal(name, "second.example");
    /* a bad file changes nothing */
    bad = fopen(cert, "w");
    (void)fputs("nonsense", bad);
    (void)fclose(bad);
    assert_int_equal(http_server_reload_tls(f->server, &err), SBX_E_INVALID);
    assert_int_equal(tls_ask(f->port, name, sizeof(name)), 200);
    assert_string_equal(name, "second.example");
    /* plain HTTP on the TLS port gets nothing */
    a = fixture_ask(f, "GET /hello HTTP/1.1\r\n" HOST END);
    assert_int_equal(a.status, 0);
    wire_free(&a);
    end(f);
}

static void a_key_of_another_certificate_is_refused(void **state)
{
    char cert[128], key[128], kept[128];
    struct http_listener l;
    struct http_config c;
    struct fixture *f = begin(&l, &c);
    struct sbx_err err = { 0 };

    (void)state;
    make_cert("one.example");
    (void)snprintf(cert, sizeof(cert), "%s", in_dir("cert.pem"));
    (void)snprintf(key, sizeof(key), "%s", in_dir("key.pem"));
    (void)snprintf(kept, sizeof(kept), "%s", in_dir("kept.pem"));
    assert_int_equal(rename(key, kept), 0);
    make_cert("two.example");
    l.cert_file = cert;
    l.key_file = kept;
    assert_int_equal(http_server_start(&c, &f->server, &err), SBX_E_INVALID);
    l.key_file = in_dir("absent.pem");
    err = (struct sbx_err){ 0 };
    assert_int_equal(http_server_start(&c, &f->server, &err), SBX_E_INVALID);
    end(f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_unix_socket_tells_who_calls),
        cmocka_unit_test(a_left_over_socket_is_replaced_a_live_one_is_not),
        cmocka_unit_test(bad_addresses_are_refused),
        cmocka_unit_test(all_addresses_and_ipv6),
        cmocka_unit_test(tls_serves_and_reloads_its_certificate),
        cmocka_unit_test(a_key_of_another_certificate_is_refused),
    };

    static const char *const FILES[] = { "cert.pem", "key.pem", "kept.pem" };
    int failed;

    if (make_dir(NULL) != 0)
        return 1;
    failed = fixture_group(tests, COUNT_OF(tests));
    for (size_t i = 0; i < COUNT_OF(FILES); i++)
        (void)unlink(in_dir(FILES[i]));
    (void)rmdir(dir);
    return failed;
}
