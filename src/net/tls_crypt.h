/* SPDX-License-Identifier: Apache-2.0 */
/* tls_crypt.h - TLS 1.3 (OpenSSL 3) over a connected socket that does not block.
 *
 * Both sides show a certificate that is made in memory from the machine's Ed25519 key and says
 * nothing else; what counts is the key in it, which the handshake proves and the caller accepts or
 * not. No certificate authority, no names, no dates, no resumption, no early data; X25519,
 * AES-128-GCM, or ChaCha20-Poly1305 where one of the processors has no instructions for AES. */
#ifndef HS_NET_TLS_CRYPT_H
#define HS_NET_TLS_CRYPT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "net/keys.h"

struct err;
struct crypt_ctx; /* of one net: its certificate and settings */
struct crypt;     /* of one connection */

/* Bytes of a connection, and the most that it may send before it is known. */
struct crypt_io {
	int fd;
	bool known;         /* the limit no longer holds */
	uint64_t in, limit; /* bytes read; at most so many while not known */
	uint64_t out;       /* bytes that the kernel took */
	bool plain;         /* what came first is a head in the clear (tls_head.h) */
	int errnum;         /* of the last socket call that failed */
};

/* What a transfer came to beside a count of bytes above 0. */
enum {
	IO_LATER = 0,   /* the socket has to become readable or writable (crypt_wants_write) */
	IO_ENDED = -1,  /* closed by the other side */
	IO_BROKEN = -2, /* the connection or the encryption failed */
	IO_LIMIT = -3,  /* more bytes than an unknown peer may send */
};

/* Whether the key that the peer shows is accepted; called once, while the handshake runs. */
typedef bool (*crypt_accept_fn)(void *ctx, const char *public_key);

int crypt_ctx_new(const struct key_pair *key, struct crypt_ctx **c_p, struct err *e);
void crypt_ctx_free(struct crypt_ctx *c); /* NULL is allowed */

/* `io` and `ctx` outlive it. NULL: memory is out. */
struct crypt *crypt_new(struct crypt_ctx *c, bool server, struct crypt_io *io,
			crypt_accept_fn accept, void *ctx);
void crypt_free(struct crypt *s); /* NULL is allowed */

/* 1 done; IO_LATER, IO_ENDED, IO_BROKEN, IO_LIMIT. */
int crypt_handshake(struct crypt *s);
/* The peer's key, once the handshake is done. */
bool crypt_peer(struct crypt *s, char out[KEY_TEXT]);
/* What only the two ends of the connection know (RFC 9266). false: the library refuses. */
bool crypt_binding(struct crypt *s, uint8_t out[32]);
/* The peer did not accept this machine's key. */
bool crypt_refused(const struct crypt *s);
bool crypt_wants_write(const struct crypt *s);
/* The connection is known: larger buffers from now on. false: memory is out. */
bool crypt_known(struct crypt *s);

/* Some of the bytes, at most one record (16 KiB) each. After IO_LATER a write is repeated with the
 * same bytes. What was written may wait for crypt_flush. */
int64_t crypt_read(struct crypt *s, void *p, size_t n);
int64_t crypt_write(struct crypt *s, const void *p, size_t n);
/* 1: the kernel has taken all of it; IO_LATER, IO_BROKEN. */
int crypt_flush(struct crypt *s);

/* The same for connections without keys. */
int64_t crypt_plain_read(struct crypt_io *io, void *p, size_t n);
int64_t crypt_plain_write(struct crypt_io *io, const void *p, size_t n);

/* Records after which a connection takes new keys: RFC 8446 section 5.5 allows AES-GCM 2^24.5.
 * Tests lower it. */
extern uint64_t crypt_rekey_after;

#endif
