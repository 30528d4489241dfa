/* SPDX-License-Identifier: Apache-2.0 */
/* tls_crypt.c - see tls_crypt.h.
 *
 * OpenSSL reads and writes through a BIO of ours, so that a peer's bytes are counted and limited
 * before OpenSSL sees them, and so that a closed connection raises no signal. What is read ahead
 * waits in a buffer of ours too: OpenSSL's own (SSL_set_read_ahead) moves all that is left in it to
 * the front for each record, so that every byte is moved three times. */
#include "net/tls_crypt.h"

#include <errno.h>
#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>
#include <string.h>
#include <sys/socket.h>

#include "base/err.h"
#include "base/mem.h"
#include "base/os_calls.h"
#include "net/tls_head.h"

uint64_t crypt_rekey_after = (uint64_t)1 << 23;

enum { READ_AHEAD = 128 << 10, WRITE_BEHIND = 128 << 10, RECORD = 16 << 10, SMALL = 4 << 10 };

struct crypt_ctx {
	SSL_CTX *ssl;
	BIO_METHOD *bio;
};

struct crypt {
	SSL *ssl;
	struct crypt_io *io;
	crypt_accept_fn accept;
	void *ctx;
	bool refused;
	bool unfinished;  /* a write is to be repeated */
	uint64_t records; /* written with the present keys */
	/* encrypted, not given to the kernel yet, and not given to OpenSSL yet: several records for
	 * each call; NULL while the peer is not known */
	unsigned char *behind, *ahead;
	size_t behind_at, behind_n, ahead_at, ahead_n;
};

/* ---- bytes ---------------------------------------------------------------------------------- */

/* How much of n bytes may be read now; 0: none, the limit is reached. */
static size_t allowed(const struct crypt_io *io, size_t n)
{
	if (io->known || io->limit - io->in >= n)
		return n;
	return (size_t)(io->limit - io->in);
}

int64_t crypt_plain_read(struct crypt_io *io, void *p, size_t n)
{
	size_t may = allowed(io, n);
	if (!may)
		return IO_LIMIT;
	ssize_t k;
	do
		k = recv(io->fd, p, may, 0);
	while (k < 0 && errno == EINTR);
	if (k > 0) {
		if (!io->in && k >= 4)
			io->plain = head_begins(p);
		io->in += (uint64_t)k;
		return k;
	}
	if (k == 0)
		return IO_ENDED;
	if (errno == EAGAIN || errno == EWOULDBLOCK)
		return IO_LATER;
	io->errnum = errno;
	return IO_BROKEN;
}

int64_t crypt_plain_write(struct crypt_io *io, const void *p, size_t n)
{
	ssize_t k;
	do
		k = send(io->fd, p, n, MSG_NOSIGNAL);
	while (k < 0 && errno == EINTR);
	if (k >= 0) {
		io->out += (uint64_t)k;
		return k;
	}
	if (errno == EAGAIN || errno == EWOULDBLOCK)
		return IO_LATER;
	io->errnum = errno;
	return IO_BROKEN;
}

static int64_t read_ahead(struct crypt *s, void *p, size_t n)
{
	if (s->ahead_at == s->ahead_n) {
		int64_t k = crypt_plain_read(s->io, s->ahead, READ_AHEAD);
		if (k <= 0)
			return k;
		s->ahead_at = 0;
		s->ahead_n = (size_t)k;
	}
	n = n < s->ahead_n - s->ahead_at ? n : s->ahead_n - s->ahead_at;
	memcpy(p, s->ahead + s->ahead_at, n);
	s->ahead_at += n;
	return (int64_t)n;
}

static int bio_read(BIO *b, char *p, size_t n, size_t *got_p)
{
	struct crypt *s = BIO_get_data(b);
	int64_t k = s->ahead ? read_ahead(s, p, n) : crypt_plain_read(s->io, p, n);
	BIO_clear_retry_flags(b);
	if (k == IO_LATER)
		BIO_set_retry_read(b);
	*got_p = k > 0 ? (size_t)k : 0;
	return k > 0;
}

int crypt_flush(struct crypt *s)
{
	while (s->behind_at < s->behind_n) {
		int64_t k = crypt_plain_write(s->io, s->behind + s->behind_at,
					      s->behind_n - s->behind_at);
		if (k <= 0)
			return (int)k;
		s->behind_at += (size_t)k;
	}
	s->behind_at = s->behind_n = 0;
	return 1;
}

static int64_t write_behind(struct crypt *s, const void *p, size_t n)
{
	if (s->behind_n + n > WRITE_BEHIND) {
		int rc = crypt_flush(s);
		if (rc != 1)
			return rc;
	}
	n = n < WRITE_BEHIND ? n : WRITE_BEHIND;
	memcpy(s->behind + s->behind_n, p, n);
	s->behind_n += n;
	return (int64_t)n;
}

static int bio_write(BIO *b, const char *p, size_t n, size_t *put_p)
{
	struct crypt *s = BIO_get_data(b);
	int64_t k = s->behind ? write_behind(s, p, n) : crypt_plain_write(s->io, p, n);
	BIO_clear_retry_flags(b);
	if (k == IO_LATER)
		BIO_set_retry_write(b);
	*put_p = k > 0 ? (size_t)k : 0;
	return k > 0;
}

static long bio_ctrl(BIO *b, int what, long n, void *p)
{
	(void)b;
	(void)n;
	(void)p;
	return what == BIO_CTRL_FLUSH;
}

/* ---- identity ------------------------------------------------------------------------------- */

/* A certificate has to say a name and two dates; nobody looks at them. */
static X509 *certificate(EVP_PKEY *key)
{
	X509 *x = X509_new();
	if (!x)
		return NULL;
	X509_NAME *name = X509_get_subject_name(x);
	if (X509_set_version(x, 2) == 1 && ASN1_INTEGER_set(X509_get_serialNumber(x), 1) == 1 &&
	    ASN1_TIME_set_string_X509(X509_getm_notBefore(x), "19700101000000Z") == 1 &&
	    ASN1_TIME_set_string_X509(X509_getm_notAfter(x), "99991231235959Z") == 1 &&
	    X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_ASC,
				       (const unsigned char *)"heteroshard", -1, -1, 0) == 1 &&
	    X509_set_issuer_name(x, name) == 1 && X509_set_pubkey(x, key) == 1 &&
	    X509_sign(x, key, NULL) > 0)
		return x;
	X509_free(x);
	return NULL;
}

static bool key_of(const X509 *x, char out[KEY_TEXT])
{
	uint8_t raw[KEY_BYTES];
	size_t n = sizeof raw;
	EVP_PKEY *k = x ? X509_get0_pubkey(x) : NULL;
	if (!k || EVP_PKEY_get_base_id(k) != EVP_PKEY_ED25519 ||
	    EVP_PKEY_get_raw_public_key(k, raw, &n) != 1 || n != sizeof raw)
		return false;
	key_public_text(raw, out);
	return true;
}

/* In place of OpenSSL's own checks of chain, names and dates: the key is the identity. */
static int verify(X509_STORE_CTX *store, void *unused)
{
	(void)unused;
	SSL *ssl = X509_STORE_CTX_get_ex_data(store, SSL_get_ex_data_X509_STORE_CTX_idx());
	struct crypt *s = SSL_get_app_data(ssl);
	char key[KEY_TEXT];
	if (key_of(X509_STORE_CTX_get0_cert(store), key) && s->accept(s->ctx, key)) {
		X509_STORE_CTX_set_error(store, X509_V_OK);
		return 1;
	}
	X509_STORE_CTX_set_error(store, X509_V_ERR_CERT_REJECTED); /* says "bad certificate" */
	return 0;
}

static bool has_aes(void)
{
#if defined(__x86_64__) || defined(__i386__)
	return __builtin_cpu_supports("aes") && __builtin_cpu_supports("pclmul");
#elif defined(__aarch64__)
	return os_arm_has_aes();
#else
	return false;
#endif
}

static int openssl_says(struct err *e, const char *what)
{
	char text[160];
	ERR_error_string_n(ERR_get_error(), text, sizeof text);
	return err_set(e, ERR_INTERNAL, "tls: %s: %s", what, text);
}

static bool set_up(SSL_CTX *c, EVP_PKEY *key, X509 *x)
{
	static const char *const suites[2] = {
		"TLS_CHACHA20_POLY1305_SHA256:TLS_AES_128_GCM_SHA256",
		"TLS_AES_128_GCM_SHA256:TLS_CHACHA20_POLY1305_SHA256"
	};
	bool aes = has_aes();
	SSL_CTX_set_options(c, SSL_OP_NO_TICKET | SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION |
				       (aes ? 0 : SSL_OP_CIPHER_SERVER_PREFERENCE));
	SSL_CTX_clear_options(c, SSL_OP_ENABLE_MIDDLEBOX_COMPAT);
	SSL_CTX_set_mode(c, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER |
				    SSL_MODE_RELEASE_BUFFERS);
	SSL_CTX_set_session_cache_mode(c, SSL_SESS_CACHE_OFF);
	SSL_CTX_set_max_cert_list(c, 4096);
	SSL_CTX_set_verify(c, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, NULL);
	SSL_CTX_set_cert_verify_callback(c, verify, NULL);
	return SSL_CTX_set_min_proto_version(c, TLS1_3_VERSION) == 1 &&
	       SSL_CTX_set_max_proto_version(c, TLS1_3_VERSION) == 1 &&
	       SSL_CTX_set_num_tickets(c, 0) == 1 &&
	       SSL_CTX_set_ciphersuites(c, suites[aes]) == 1 &&
	       SSL_CTX_set1_groups_list(c, "X25519") == 1 &&
	       SSL_CTX_set1_sigalgs_list(c, "ed25519") == 1 && x &&
	       SSL_CTX_use_certificate(c, x) == 1 && SSL_CTX_use_PrivateKey(c, key) == 1;
}

int crypt_ctx_new(const struct key_pair *key, struct crypt_ctx **c_p, struct err *e)
{
	uint8_t sec[KEY_BYTES];
	/* Nothing is read from the machine's openssl.cnf, and nothing torn down at exit while
	 * another thread is still here. */
	OPENSSL_init_ssl(OPENSSL_INIT_NO_LOAD_CONFIG | OPENSSL_INIT_NO_ATEXIT, NULL);
	ERR_clear_error();
	if (!key_secret_bytes(key->sec, sec))
		return err_set(e, ERR_INTERNAL, "tls: the private key is not valid");
	struct crypt_ctx *c = mem_zalloc(sizeof *c);
	if (!c) {
		OPENSSL_cleanse(sec, sizeof sec);
		return err_nomem(e, sizeof *c, "the encryption");
	}
	EVP_PKEY *k = EVP_PKEY_new_raw_private_key(EVP_PKEY_ED25519, NULL, sec, sizeof sec);
	OPENSSL_cleanse(sec, sizeof sec);
	X509 *x = k ? certificate(k) : NULL;
	int rc = 0, type = BIO_get_new_index();
	c->ssl = SSL_CTX_new(TLS_method());
	c->bio = type >= 0 ? BIO_meth_new(type | BIO_TYPE_SOURCE_SINK, "link") : NULL;
	if (!c->ssl || !c->bio || !set_up(c->ssl, k, x) ||
	    BIO_meth_set_read_ex(c->bio, bio_read) != 1 ||
	    BIO_meth_set_write_ex(c->bio, bio_write) != 1 ||
	    BIO_meth_set_ctrl(c->bio, bio_ctrl) != 1)
		rc = openssl_says(e, "cannot set up a connection");
	X509_free(x);
	EVP_PKEY_free(k);
	if (rc < 0)
		crypt_ctx_free(c);
	else
		*c_p = c;
	return rc;
}

void crypt_ctx_free(struct crypt_ctx *c)
{
	if (!c)
		return;
	SSL_CTX_free(c->ssl);
	BIO_meth_free(c->bio);
	mem_free(c);
}

/* ---- a connection --------------------------------------------------------------------------- */

struct crypt *crypt_new(struct crypt_ctx *c, bool server, struct crypt_io *io,
			crypt_accept_fn accept, void *ctx)
{
	struct crypt *s = mem_zalloc(sizeof *s);
	if (!s)
		return NULL;
	s->io = io;
	s->accept = accept;
	s->ctx = ctx;
	s->ssl = SSL_new(c->ssl);
	BIO *b = s->ssl ? BIO_new(c->bio) : NULL;
	if (!b) {
		crypt_free(s);
		ERR_clear_error();
		return NULL;
	}
	BIO_set_data(b, s);
	BIO_set_init(b, 1);
	SSL_set_bio(s->ssl, b, b);
	SSL_set_app_data(s->ssl, s);
	SSL_set_max_send_fragment(s->ssl, SMALL); /* a stranger gets no large buffer */
	if (server)
		SSL_set_accept_state(s->ssl);
	else
		SSL_set_connect_state(s->ssl);
	return s;
}

void crypt_free(struct crypt *s)
{
	if (!s)
		return;
	SSL_free(s->ssl);
	mem_free(s->behind);
	mem_free(s->ahead);
	mem_free(s);
}

/* Why a call did not do all that was asked. */
static int why(struct crypt *s, int rc)
{
	int kind = SSL_get_error(s->ssl, rc);
	if (kind == SSL_ERROR_WANT_READ || kind == SSL_ERROR_WANT_WRITE)
		return IO_LATER;
	unsigned long code = ERR_peek_error();
	int reason = ERR_GET_LIB(code) == ERR_LIB_SSL ? ERR_GET_REASON(code) : 0;
	ERR_clear_error();
	if (reason == SSL_R_SSLV3_ALERT_BAD_CERTIFICATE ||
	    reason == SSL_R_TLSV13_ALERT_CERTIFICATE_REQUIRED)
		s->refused = true;
	if (!s->io->known && !allowed(s->io, 1))
		return IO_LIMIT;
	if (kind == SSL_ERROR_ZERO_RETURN || reason == SSL_R_UNEXPECTED_EOF_WHILE_READING ||
	    (kind == SSL_ERROR_SYSCALL && !s->io->errnum))
		return IO_ENDED;
	return IO_BROKEN;
}

int crypt_handshake(struct crypt *s)
{
	ERR_clear_error();
	int rc = SSL_do_handshake(s->ssl);
	return rc == 1 ? 1 : why(s, rc);
}

bool crypt_peer(struct crypt *s, char out[KEY_TEXT])
{
	return key_of(SSL_get0_peer_certificate(s->ssl), out);
}

bool crypt_binding(struct crypt *s, uint8_t out[32])
{
	static const char label[] = "EXPORTER-Channel-Binding";
	return SSL_export_keying_material(s->ssl, out, 32, label, sizeof label - 1, NULL, 0, 1) ==
	       1;
}

bool crypt_refused(const struct crypt *s) { return s->refused; }
bool crypt_wants_write(const struct crypt *s) { return SSL_want_write(s->ssl); }

bool crypt_known(struct crypt *s)
{
	s->behind = mem_alloc(WRITE_BEHIND);
	s->ahead = mem_alloc(READ_AHEAD);
	SSL_free_buffers(s->ssl);
	SSL_clear_mode(s->ssl, SSL_MODE_RELEASE_BUFFERS);
	if (!s->unfinished) { /* OpenSSL still needs its buffer of that size */
		SSL_set_max_send_fragment(s->ssl, RECORD);
		SSL_set_split_send_fragment(s->ssl, RECORD);
	}
	return s->behind && s->ahead;
}

int64_t crypt_read(struct crypt *s, void *p, size_t n)
{
	size_t got;
	ERR_clear_error();
	int rc = SSL_read_ex(s->ssl, p, n, &got);
	return rc == 1 ? (int64_t)got : why(s, rc);
}

int64_t crypt_write(struct crypt *s, const void *p, size_t n)
{
	size_t put;
	ERR_clear_error();
	if (s->records >= crypt_rekey_after && !SSL_want_write(s->ssl)) {
		if (SSL_key_update(s->ssl, SSL_KEY_UPDATE_NOT_REQUESTED) != 1)
			return IO_BROKEN;
		s->records = 0;
	}
	int rc = SSL_write_ex(s->ssl, p, n < RECORD ? n : RECORD, &put);
	s->unfinished = rc != 1;
	if (rc != 1)
		return why(s, rc);
	s->records++;
	return (int64_t)put;
}
