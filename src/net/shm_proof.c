/* SPDX-License-Identifier: Apache-2.0 */
/* shm_proof.c - see shm_proof.h. */
#include "net/shm_proof.h"

#include "base/le.h"
#include <sodium.h>
#include <string.h>
#include <unistd.h>

#define MAGIC "HSP1"
enum { SAYS = 4, NONCE = 8, KEY = 40 };
enum { LISTENER_READS, DIALLER_READS, LISTENER_CHECKS, DONE };
_Static_assert(KEY + KEY_BYTES == PROOF_FIRST, "the layout of the first bytes");
_Static_assert(PROOF_SIGNATURE == KEY_SIGNATURE, "Ed25519");

/* What one side signs: the same bytes for both ends. */
struct text {
	char word[32];
	unsigned char dialler[PROOF_FIRST], listener[PROOF_FIRST], pid[8];
};

static void text_make(const struct proof *p, bool by_listener, struct text *t)
{
	memset(t, 0, sizeof *t);
	memcpy(t->word, by_listener ? "heteroshard shm 1 listener" : "heteroshard shm 1 dialler",
	       by_listener ? 26 : 25);
	memcpy(t->dialler, p->listens ? p->theirs : p->mine, PROOF_FIRST);
	memcpy(t->listener, p->listens ? p->mine : p->theirs, PROOF_FIRST);
	le_put(t->pid, (uint32_t)(p->listens ? p->peer : getpid()), 4);
	le_put(t->pid + 4, (uint32_t)(p->listens ? getpid() : p->peer), 4);
}

static void sign(struct proof *p, unsigned char out[PROOF_SIGNATURE])
{
	struct text t;
	text_make(p, p->listens, &t);
	if (!key_sign(p->key, &t, sizeof t, out))
		p->end = PROOF_NO_SIGNATURE;
}

static bool signed_by_peer(const struct proof *p, const unsigned char signature[PROOF_SIGNATURE])
{
	struct text t;
	text_make(p, !p->listens, &t);
	return key_signed(p->theirs + KEY, &t, sizeof t, signature);
}

void proof_begin(struct proof *p, bool listens, const struct key_pair *key, pid_t peer)
{
	*p = (struct proof){ .listens = listens, .key = key, .peer = peer };
	memcpy(p->mine, MAGIC, 4);
	le_put(p->mine + SAYS, key != NULL, 4);
	randombytes_buf(p->mine + NONCE, KEY - NONCE);
	if (key)
		key_public_bytes(key->pub, p->mine + KEY);
	p->turn = listens ? LISTENER_READS : DIALLER_READS;
	if (!listens) {
		memcpy(p->out, p->mine, PROOF_FIRST);
		p->out_n = PROOF_FIRST;
	}
}

/* The dialler's first bytes are here: the answer to them. */
static void listener_answers(struct proof *p, crypt_accept_fn accept, void *ctx)
{
	uint32_t says = (uint32_t)le_get(p->theirs + SAYS, 4);
	if (memcmp(p->theirs, MAGIC, 4) || says > 1) {
		p->end = PROOF_STRANGE;
		return;
	}
	if (says)
		key_public_text(p->theirs + KEY, p->peer_key);
	if (says != (p->key != NULL))
		p->end = PROOF_KEYS;
	else if (p->key && !accept(ctx, p->peer_key))
		p->end = PROOF_REFUSED;
	if (p->end)
		le_put(p->mine + SAYS, p->end, 4);
	memcpy(p->out, p->mine, PROOF_FIRST);
	memset(p->out + PROOF_FIRST, 0, PROOF_SIGNATURE);
	if (p->key && !p->end)
		sign(p, p->out + PROOF_FIRST);
	p->out_n = PROOF_FIRST + PROOF_SIGNATURE;
	p->turn = p->key ? LISTENER_CHECKS : DONE;
	p->in_n = 0;
}

/* The listener's answer is here. */
static void dialler_answers(struct proof *p, crypt_accept_fn accept, void *ctx)
{
	uint32_t says = (uint32_t)le_get(p->theirs + SAYS, 4);
	p->turn = DONE;
	if (memcmp(p->theirs, MAGIC, 4) || says > PROOF_REFUSED)
		p->end = PROOF_STRANGE;
	else if (says > 1)
		p->end = (enum proof_end)says;
	else if (says != (p->key != NULL))
		p->end = PROOF_KEYS;
	if (p->end || !p->key)
		return;
	key_public_text(p->theirs + KEY, p->peer_key);
	if (!accept(ctx, p->peer_key))
		p->end = PROOF_WRONG_KEY;
	else if (!signed_by_peer(p, p->theirs + PROOF_FIRST))
		p->end = PROOF_STRANGE;
	if (p->end)
		return;
	sign(p, p->out);
	p->out_at = 0;
	p->out_n = PROOF_SIGNATURE;
}

static int write_out(struct proof *p, struct crypt_io *io)
{
	while (p->out_at < p->out_n) {
		int64_t k = crypt_plain_write(io, p->out + p->out_at, p->out_n - p->out_at);
		if (k <= 0)
			return (int)k;
		p->out_at += (size_t)k;
	}
	return 1;
}

static int read_in(struct proof *p, struct crypt_io *io, unsigned char *to, size_t n)
{
	while (p->in_n < n) {
		int64_t k = crypt_plain_read(io, to + p->in_n, n - p->in_n);
		if (k <= 0)
			return (int)k;
		p->in_n += (size_t)k;
	}
	return 1;
}

int proof_work(struct proof *p, struct crypt_io *io, crypt_accept_fn accept, void *ctx)
{
	for (;;) {
		int rc = write_out(p, io);
		if (rc != 1)
			return rc;
		if (p->end)
			return IO_BROKEN;
		switch (p->turn) {
		case LISTENER_READS:
			rc = read_in(p, io, p->theirs, PROOF_FIRST);
			if (rc == 1)
				listener_answers(p, accept, ctx);
			break;
		case DIALLER_READS:
			rc = read_in(p, io, p->theirs, sizeof p->theirs);
			if (rc == 1)
				dialler_answers(p, accept, ctx);
			break;
		case LISTENER_CHECKS:
			rc = read_in(p, io, p->theirs + PROOF_FIRST, PROOF_SIGNATURE);
			if (rc == 1 && !signed_by_peer(p, p->theirs + PROOF_FIRST))
				p->end = PROOF_STRANGE;
			p->turn = rc == 1 ? DONE : p->turn;
			break;
		default:
			return 1;
		}
		if (rc != 1)
			return rc;
	}
}

bool proof_wants_write(const struct proof *p) { return p->out_at < p->out_n; }
