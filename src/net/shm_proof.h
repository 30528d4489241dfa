/* SPDX-License-Identifier: Apache-2.0 */
/* shm_proof.h - the handshake over a Unix socket, in which each end checks who the other is.
 *
 *     dialler    "HSP1", u32 says, 32 random bytes, 32 bytes public key
 *     listener   the same, then 64 bytes: its signature
 *     dialler    64 bytes: its signature, where both have keys
 *
 * Numbers are little-endian. `says` is 0 without a key (then the key's bytes are zero), 1 with one;
 * a listener that refuses says why (enum proof_end). Signed (Ed25519) are a word for the role, the
 * first 72 bytes of either side, and the process ids of both ends as the kernel gives them: so no
 * third process can relay the handshake of two others (man in the middle). Ends that do not see
 * each other's process ids (containers) cannot connect. */
#ifndef HS_NET_SHM_PROOF_H
#define HS_NET_SHM_PROOF_H

#include <sys/types.h>

#include "net/keys.h"
#include "net/tls_crypt.h"

enum { PROOF_FIRST = 72, PROOF_SIGNATURE = 64 };

enum proof_end {
	PROOF_GOES_ON,
	PROOF_KEYS = 2,     /* one side has a key, the other none */
	PROOF_REFUSED = 3,  /* the listener does not know the dialler's key */
	PROOF_STRANGE,      /* the peer is not heteroshard, or its signature is wrong */
	PROOF_WRONG_KEY,    /* the key is not the expected one */
	PROOF_NO_SIGNATURE, /* this side cannot sign */
};

struct proof {
	bool listens;
	const struct key_pair *key; /* NULL: without keys */
	pid_t peer;
	enum proof_end end;
	char peer_key[KEY_TEXT]; /* once it is done; "" without keys */
	/* private */
	unsigned char mine[PROOF_FIRST], theirs[PROOF_FIRST + PROOF_SIGNATURE];
	unsigned char out[PROOF_FIRST + PROOF_SIGNATURE];
	size_t out_n, out_at, in_n;
	int turn;
};

/* `key` outlives it. */
void proof_begin(struct proof *p, bool listens, const struct key_pair *key, pid_t peer);
/* Reads and writes what the socket allows. 1: done, and the kernel has taken all bytes; IO_LATER,
 * IO_ENDED, IO_BROKEN, IO_LIMIT. IO_BROKEN with an `end`: the handshake failed; a peer that is to
 * be told why has been told. `accept` is asked once whether the peer's key is right. */
int proof_work(struct proof *p, struct crypt_io *io, crypt_accept_fn accept, void *ctx);
/* There is more to write than the socket took. */
bool proof_wants_write(const struct proof *p);

#endif
