/* SPDX-License-Identifier: Apache-2.0 */
/* tls_head.c - see tls_head.h. */
#include "net/tls_head.h"

#include "base/le.h"
#include "net/net_priv.h"

#include <stddef.h>

void head_write(unsigned char out[HEAD_BYTES], enum head_type type, uint64_t a, uint64_t b)
{
	le_put(out, HEAD_MAGIC, 4);
	le_put(out + 4, type, 4);
	le_put(out + 8, a, 8);
	le_put(out + 16, b, 8);
}

bool head_begins(const unsigned char *p) { return le_get(p, 4) == HEAD_MAGIC; }

const char *head_read(const unsigned char in[HEAD_BYTES], struct head *h_p)
{
	uint64_t type = le_get(in + 4, 4), a = le_get(in + 8, 8), b = le_get(in + 16, 8);
	if (!head_begins(in))
		return "what it sent is no head of a message: it is another program, or another "
		       "version of heteroshard";
	if (type < HEAD_HELLO || type > HEAD_PIECE)
		return "a head of an unknown type";
	if ((b && type != HEAD_HELLO && type < HEAD_MEMORY) ||
	    (a &&
	     (type == HEAD_PING || type == HEAD_ALIVE || type == HEAD_BYE || type == HEAD_DROP)))
		return "bytes that must be zero are not";
	if (type == HEAD_REFUSE && a != REFUSE_KEYS)
		return "unknown reason of a refusal";
	*h_p = (struct head){ .type = (enum head_type)type, .a = a, .b = b };
	return NULL;
}

const char *head_count(struct head_count *c, const struct head *h)
{
	uint64_t untold = c->arrived - c->told, unpaid = c->sent - c->credited;
	switch (h->type) {
	case HEAD_PIECE:
		if (!h->a || h->b != c->pieces)
			return "a message in pieces that is empty or out of its turn";
		c->pieces++;
		__attribute__((fallthrough));
	case HEAD_MESSAGE:
	case HEAD_SHARED:
		if (h->a > c->max_message)
			return "a message larger than this side accepts";
		if (untold + net_cost(h->a) > c->window && untold > c->slack)
			return "the peer sends more than its window";
		c->arrived += net_cost(h->a);
		return NULL;
	case HEAD_CREDIT:
		if (h->a > unpaid)
			return "the peer says that it took more than it was sent";
		c->credited += h->a;
		return NULL;
	case HEAD_PING:
	case HEAD_ALIVE:
	case HEAD_BYE:
	case HEAD_MEMORY:
	case HEAD_DROP:
	case HEAD_PARALLEL:
		return NULL;
	case HEAD_HELLO:
	case HEAD_HELLO_MESH:
	case HEAD_JOIN:
		return "HELLO for a second time";
	case HEAD_REFUSE:
		break;
	}
	return "REFUSE on a link that is up";
}
