/* SPDX-License-Identifier: Apache-2.0 */
/* inviter.c - see inviter.h. */
#include "peers/inviter.h"

#include "base/err.h"
#include "base/mem.h"
#include "net/address.h"
#include "net/interfaces.h"
#include "peers/reception.h"

#include <openssl/crypto.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

struct inviter {
	struct invite_token token; /* its secret is another one each time */
	struct key_pair key;
	struct net *net;
	struct reception *reception;
};

static int addresses(const char *const *address, size_t n, struct invite_token *t, struct err *e)
{
	struct interface here[INTERFACES_MOST];
	for (size_t i = 0; i < n; i++) {
		if (t->naddress == TOKEN_ADDRESSES || strlen(address[i]) >= TOKEN_ADDRESS)
			return err_set(e, ERR_USAGE,
				       "--address: at most %d, of at most %d characters each",
				       TOKEN_ADDRESSES, TOKEN_ADDRESS - 1);
		snprintf(t->address[t->naddress++], TOKEN_ADDRESS, "%s", address[i]);
	}
	int found = n ? 0 : interfaces_list(here, INTERFACES_MOST);
	for (int i = 0; i < found && t->naddress < TOKEN_ADDRESSES; i++)
		snprintf(t->address[t->naddress++], TOKEN_ADDRESS, "%.63s", here[i].address);
	if (!t->naddress)
		snprintf(t->address[t->naddress++], TOKEN_ADDRESS, "127.0.0.1");
	return 0;
}

int inviter_open(unsigned port, const char *const *address, size_t n, struct inviter **i_p,
		 struct err *e)
{
	struct inviter *i = mem_zalloc(sizeof *i);
	if (!i)
		return err_nomem(e, sizeof *i, "an invitation");
	i->token.port = port;
	int rc = addresses(address, n, &i->token, e);
	if (rc >= 0)
		rc = key_own(true, &i->key, e);
	memcpy(i->token.key, i->key.pub, sizeof i->token.key);
	if (rc < 0) {
		inviter_close(i);
		return rc;
	}
	*i_p = i;
	return 0;
}

int inviter_token(struct inviter *i, const char *name, bool mesh, int64_t minutes,
		  struct invitation *v_p, char text_p[TOKEN_TEXT], struct err *e)
{
	struct invitation v = { .until = (int64_t)time(NULL) + minutes * 60, .mesh = mesh };
	if (snprintf(v.name, sizeof v.name, "%s", name) >= PEER_NAME)
		return err_set(e, ERR_USAGE, "--name: at most %d characters", PEER_NAME - 1);
	i->token.mesh = mesh;
	TRY(invite_secret(i->token.secret, e));
	memcpy(v.secret, i->token.secret, sizeof v.secret);
	TRY(invite_write(&i->token, text_p, e));
	TRY(invitation_open(&v, e));
	*v_p = v;
	return 0;
}

int inviter_listen(struct inviter *i, char busy_p[256], struct err *e)
{
	char at[NET_ADDRESS];
	struct err busy = { 0 };
	busy_p[0] = 0;
	TRY(net_open(NET_DEFAULT, &(struct net_options){ .key = &i->key }, &i->net, e));
	address_join("*", i->token.port, at);
	if (net_listen(i->net, at, NULL, &busy) < 0) {
		snprintf(busy_p, 256, "%.255s", busy.msg);
		usleep(1200000);
		return 0;
	}
	return reception_open(i->net, i->key.pub, &i->reception, e);
}

int inviter_again(struct inviter *i, struct err *e)
{
	char at[NET_ADDRESS];
	struct err busy = { 0 };
	address_join("*", i->token.port, at);
	if (i->reception || net_listen(i->net, at, NULL, &busy) < 0)
		return 0;
	return reception_open(i->net, i->key.pub, &i->reception, e);
}

void inviter_close(struct inviter *i)
{
	if (!i)
		return;
	reception_close(i->reception);
	if (i->net)
		net_close(i->net, 1);
	OPENSSL_cleanse(i, sizeof *i);
	mem_free(i);
}
