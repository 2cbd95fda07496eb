#include <assert.h>
#include <gnutls/abstract.h>
#include <gnutls/gnutls.h>
#include <stdlib.h>
#include <string.h>

#include <netinet/in.h>
#include <sys/socket.h>

#include "base/mem.h"
#include "http/internal.h"

/* Certificates that can change while the server runs.  GnuTLS asks for one at each
 * handshake through a callback without a closure, so the listeners with TLS are found
 * by the local port of the session's socket: one list for the process. */

enum {
    CHAIN_MAX = 16,
    RETIRED_MAX = 16, /* certificates that a handshake may still be using */
    PEM_MAX = 256 * 1024,
};

struct cert {
    gnutls_pcert_st chain[CHAIN_MAX];
    unsigned count;
    gnutls_privkey_t key;
};

struct http_tls {
    struct http_tls *next;
    char *cert_file;
    char *key_file;
    uint16_t port;
    struct cert *now;
    struct cert *retired[RETIRED_MAX]; /* a ring: the oldest is freed */
    size_t retired_count;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* the list and what is in it */
static struct http_tls *listeners;

static void cert_free(struct cert *c)
{
    if (c == NULL)
        return;
    for (unsigned i = 0; i < c->count; i++)
        gnutls_pcert_deinit(&c->chain[i]);
    if (c->key != NULL)
        gnutls_privkey_deinit(c->key);
    free(c);
}

static int load_key(struct cert *c, const char *key_file)
{
    gnutls_datum_t pem = { 0 };
    int rc = gnutls_load_file(key_file, &pem);

    if (rc == 0)
        rc = gnutls_privkey_init(&c->key);
    if (rc == 0)
        rc = gnutls_privkey_import_x509_raw(c->key, &pem, GNUTLS_X509_FMT_PEM, NULL, 0);
    if (pem.data != NULL)
        gnutls_memset(pem.data, 0, pem.size);
    gnutls_free(pem.data);
    return rc;
}

static int load_chain(struct cert *c, const char *cert_file)
{
    gnutls_datum_t pem = { 0 };
    unsigned count = CHAIN_MAX;
    int rc = gnutls_load_file(cert_file, &pem);

    if (rc == 0)
        rc = gnutls_pcert_list_import_x509_raw(c->chain, &count, &pem, GNUTLS_X509_FMT_PEM, 0);
    if (rc == 0)
        c->count = count;
    gnutls_free(pem.data);
    return rc;
}

/* A key that does not belong to the certificate would fail every handshake. */
static int check_pair(struct cert *c)
{
    unsigned char a[64], b[64];
    size_t alen = sizeof(a), blen = sizeof(b);
    gnutls_pubkey_t pub = NULL;
    int rc = gnutls_pubkey_init(&pub);

    if (rc == 0)
        rc = gnutls_pubkey_import_privkey(pub, c->key, 0, 0);
    if (rc == 0)
        rc = gnutls_pubkey_get_key_id(pub, GNUTLS_KEYID_USE_SHA256, a, &alen);
    if (rc == 0)
        rc = gnutls_pubkey_get_key_id(c->chain[0].pubkey, GNUTLS_KEYID_USE_SHA256, b, &blen);
    if (rc == 0 && (alen != blen || memcmp(a, b, alen) != 0))
        rc = GNUTLS_E_CERTIFICATE_KEY_MISMATCH;
    if (pub != NULL)
        gnutls_pubkey_deinit(pub);
    return rc;
}

static enum sbx_code cert_load(const char *cert_file, const char *key_file, struct cert **out,
                               struct sbx_err *err)
{
    struct cert *c = mem_zalloc(sizeof(*c));
    const char *what = "certificate";
    int rc = load_chain(c, cert_file);

    if (rc == 0) {
        what = "key";
        rc = load_key(c, key_file);
    }
    if (rc == 0)
        rc = check_pair(c);
    if (rc != 0) {
        cert_free(c);
        return err_set(err, SBX_E_INVALID, "TLS %s of the listener: %s", what, gnutls_strerror(rc));
    }
    *out = c;
    return SBX_OK;
}

enum sbx_code http_tls_open(const char *cert_file, const char *key_file, uint16_t port,
                            struct http_tls **out, struct sbx_err *err)
{
    struct cert *c = NULL;
    struct http_tls *t;

    if (key_file == NULL)
        return err_set(err, SBX_E_INVALID, "a TLS listener needs a key file");
    if (cert_load(cert_file, key_file, &c, err) != SBX_OK)
        return err->code;
    t = mem_zalloc(sizeof(*t));
    t->cert_file = mem_strdup(cert_file);
    t->key_file = mem_strdup(key_file);
    t->port = port;
    t->now = c;
    (void)pthread_mutex_lock(&lock);
    t->next = listeners;
    listeners = t;
    (void)pthread_mutex_unlock(&lock);
    *out = t;
    return SBX_OK;
}

enum sbx_code http_tls_reload(struct http_tls *t, struct sbx_err *err)
{
    struct cert *fresh = NULL;
    struct cert **slot;

    if (cert_load(t->cert_file, t->key_file, &fresh, err) != SBX_OK)
        return err->code;
    (void)pthread_mutex_lock(&lock);
    slot = &t->retired[t->retired_count++ % RETIRED_MAX];
    cert_free(*slot);
    *slot = t->now;
    t->now = fresh;
    (void)pthread_mutex_unlock(&lock);
    return SBX_OK;
}

void http_tls_close(struct http_tls *t)
{
    if (t == NULL)
        return;
    (void)pthread_mutex_lock(&lock);
    for (struct http_tls **at = &listeners; *at != NULL; at = &(*at)->next) {
        if (*at == t) {
            *at = t->next;
            break;
        }
    }
    (void)pthread_mutex_unlock(&lock);
    cert_free(t->now);
    for (size_t i = 0; i < RETIRED_MAX; i++)
        cert_free(t->retired[i]);
    free(t->cert_file);
    free(t->key_file);
    free(t);
}

static uint16_t local_port(int fd)
{
    struct sockaddr_storage ss = { 0 };
    socklen_t len = sizeof(ss);
    struct sockaddr_in in;
    struct sockaddr_in6 in6;

    if (getsockname(fd, (struct sockaddr *)&ss, &len) != 0)
        return 0;
    memcpy(&in, &ss, sizeof(in));
    memcpy(&in6, &ss, sizeof(in6));
    return ntohs(ss.ss_family == AF_INET6 ? in6.sin6_port : in.sin_port);
}

static int give(gnutls_session_t session, const gnutls_datum_t *names, int name_count,
                const gnutls_pk_algorithm_t *algos, int algo_count, gnutls_pcert_st **chain,
                unsigned *count, gnutls_privkey_t *key)
{
    uint16_t port = local_port(gnutls_transport_get_int(session));
    int rc = -1;

    (void)names, (void)name_count, (void)algos, (void)algo_count;
    (void)pthread_mutex_lock(&lock);
    for (struct http_tls *t = listeners; t != NULL; t = t->next) {
        if (t->port != port)
            continue;
        *chain = t->now->chain;
        *count = t->now->count;
        *key = t->now->key;
        rc = 0;
        break;
    }
    (void)pthread_mutex_unlock(&lock);
    return rc;
}

void *http_tls_callback(void)
{
    union {
        gnutls_certificate_retrieve_function2 *fn;
        void *p;
    } u = { .fn = give };

    return u.p;
}
