/* SPDX-License-Identifier: Apache-2.0 */
/* token.h - an invitation as text, and the proof that somebody has it.
 *
 * A token is "hsi1-" and base32 (base/base32.h) of: the port (2 bytes, big-endian), the
 * coordinator's public key (32), a secret of 128 random bits (16), the number of addresses (1; its
 * highest bit: the invitation carries a mesh), each with its length (1) and its text, and 3 bytes
 * of check, the first ones of SHA-256 over "hsi1-", a NUL and the rest. So a token that was cut
 * short or mistyped is noticed before anybody is asked.
 *
 * The proof is HMAC-SHA-256 with the secret over a label, the binding of the connection
 * (link_binding), both public keys and the name that is asked for: it is worth nothing on another
 * connection, for another key, or for another name. Pure. */
#ifndef HS_PEERS_TOKEN_H
#define HS_PEERS_TOKEN_H

#include "net/net.h"

struct err;

enum {
	TOKEN_SECRET = 16,
	TOKEN_PROOF = 32,
	TOKEN_ADDRESSES = 8,
	TOKEN_ADDRESS = 64,
	TOKEN_TEXT = 1100, /* holds any token and a NUL */
	PEER_NAME = 64,    /* holds the name of a peer and a NUL */
	WG_KEY = 45,       /* holds a key of WireGuard and a NUL */
};

struct invite_token {
	unsigned port;
	char key[KEY_TEXT]; /* the coordinator's, public */
	uint8_t secret[TOKEN_SECRET];
	bool mesh; /* the machine gets a place in the coordinator's mesh (mesh/mesh_part.h) */
	int naddress;
	char address[TOKEN_ADDRESSES][TOKEN_ADDRESS]; /* numbers or names, without a port */
};

int invite_write(const struct invite_token *t, char out[TOKEN_TEXT], struct err *e);
/* ERR_USAGE says what is wrong with the text; nothing of it is repeated. */
int invite_read(const char *text, struct invite_token *t_p, struct err *e);

/* A new one. */
int invite_secret(uint8_t secret_p[TOKEN_SECRET], struct err *e);
/* `own`: the key of the machine that joins. `name`: less than PEER_NAME characters. */
int invite_prove(const uint8_t secret[TOKEN_SECRET], const uint8_t binding[LINK_BINDING],
		 const char *own, const char *coordinator, const char *name,
		 uint8_t proof_p[TOKEN_PROOF], struct err *e);
/* In constant time. */
bool invite_proves(const uint8_t secret[TOKEN_SECRET], const uint8_t binding[LINK_BINDING],
		   const char *own, const char *coordinator, const char *name,
		   const uint8_t proof[TOKEN_PROOF]);

/* Letters, digits, '.', '-' and '_', beginning with a letter or a digit; not "local" or "all". */
bool peer_name_ok(const char *name);
/* A key as wg(8) writes it: 32 bytes in base64. */
bool wg_key_ok(const char *key);

#endif
