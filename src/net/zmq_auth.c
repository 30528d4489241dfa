/* SPDX-License-Identifier: Apache-2.0 */
/* zmq_auth.c - who comes in: answers libzmq's authentication requests (ZAP, ZeroMQ RFC 27) from the
 * net's list of keys.
 *
 * A peer has proven by then that it holds the secret of the key it shows. Its public key, in the
 * form of keys.h, becomes the "User-Id" of every message of the connection, which is where a link
 * takes the peer's identity from. Anything malformed is refused. */
#include <sodium.h>
#include <string.h>
#include <zmq.h>

#include "base/log.h"
#include "net/zmq_hub.h"

#define PARTS 7    /* version, request id, domain, address, routing id, mechanism, public key */
#define REPORTS 20 /* so that somebody who knocks all day does not fill the log */

static void part(void *s, const void *p, size_t n, bool more)
{
	zmq_send(s, p, n, ZMQ_DONTWAIT | (more ? ZMQ_SNDMORE : 0));
}

bool hub_curve_public(const char *pub, char out[CURVE_TEXT])
{
	uint8_t ed[KEY_BYTES], curve[KEY_BYTES];
	return key_public_bytes(pub, ed) && crypto_sign_ed25519_pk_to_curve25519(curve, ed) == 0 &&
	       zmq_z85_encode(out, curve, KEY_BYTES);
}

bool hub_curve_secret(const char *sec, char out[CURVE_TEXT])
{
	uint8_t seed[KEY_BYTES], pk[crypto_sign_PUBLICKEYBYTES], sk[crypto_sign_SECRETKEYBYTES],
		curve[KEY_BYTES];
	bool ok = key_secret_bytes(sec, seed) && crypto_sign_seed_keypair(pk, sk, seed) == 0 &&
		  crypto_sign_ed25519_sk_to_curve25519(curve, sk) == 0 &&
		  zmq_z85_encode(out, curve, KEY_BYTES);
	sodium_memzero(seed, sizeof seed);
	sodium_memzero(sk, sizeof sk);
	sodium_memzero(curve, sizeof curve);
	return ok;
}

/* The listed key whose CURVE form this is; false when there is none. */
static bool listed(struct net *n, const unsigned char curve[KEY_BYTES], char out[KEY_TEXT])
{
	char shown[CURVE_TEXT], one[CURVE_TEXT];
	bool found = false;
	if (!zmq_z85_encode(shown, curve, KEY_BYTES))
		return false;
	pthread_mutex_lock(&n->lock);
	for (size_t i = 0; i < n->nallowed && !found; i++) {
		found = hub_curve_public(n->allowed[i], one) && !strcmp(one, shown);
		if (found)
			memcpy(out, n->allowed[i], KEY_TEXT);
	}
	pthread_mutex_unlock(&n->lock);
	return found;
}

void zmq_auth_answer(struct hub *h)
{
	unsigned char got[PARTS][256];
	size_t size[PARTS] = { 0 };
	int count = 0, more = 1;
	while (more) {
		zmq_msg_t m;
		zmq_msg_init(&m);
		if (zmq_msg_recv(&m, h->zap, ZMQ_DONTWAIT) < 0) {
			zmq_msg_close(&m);
			return;
		}
		more = zmq_msg_more(&m);
		if (count < PARTS) {
			size[count] =
				zmq_msg_size(&m) < sizeof got[0] ? zmq_msg_size(&m) : sizeof got[0];
			memcpy(got[count], zmq_msg_data(&m), size[count]);
		}
		count++;
		zmq_msg_close(&m);
	}
	char key[KEY_TEXT] = "";
	bool ok = count == PARTS && size[0] == 3 && memcmp(got[0], "1.0", 3) == 0 && size[5] == 5 &&
		  memcmp(got[5], "CURVE", 5) == 0 && size[6] == 32 && listed(h->net, got[6], key);
	if (!ok && h->refused++ < REPORTS)
		log_warn("refused a connection from %.*s: its public key is not on this machine's "
			 "list",
			 (int)size[3], (const char *)got[3]);
	part(h->zap, "1.0", 3, true);
	part(h->zap, got[1], size[1], true);
	part(h->zap, ok ? "200" : "400", 3, true);
	part(h->zap, ok ? "OK" : "unknown key", ok ? 2 : 11, true);
	part(h->zap, key, strlen(key), true);
	part(h->zap, "", 0, false);
}
