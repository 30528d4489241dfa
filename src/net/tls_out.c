/* SPDX-License-Identifier: Apache-2.0 */
/* tls_out.c - see tls_out.h. */
#include "net/tls_out.h"

#include <string.h>

#include "net/shm_memory.h"
#include "net/shm_pass.h"

enum { PLAIN_MOST = 1 << 18 /* bytes of one plain write */ };

void out_drop(struct conn *c)
{
	struct net_node *list = c->out;
	c->out = NULL;
	c->out_end = &c->out;
	c->direct = false;
	net_nodes_done(list);
}

static int64_t put(struct conn *c, const void *p, size_t n)
{
	if (c->stage_fd >= 0)
		return pass_write(&c->io, p, n, &c->stage_fd);
	return c->crypt ? crypt_write(c->crypt, p, n)
			: crypt_plain_write(&c->io, p, n < PLAIN_MOST ? n : PLAIN_MOST);
}

static bool stage_head(struct conn *c, enum head_type type, uint64_t a, uint64_t b)
{
	if (c->stage_cap - c->stage_n < HEAD_BYTES)
		return false;
	head_write(c->stage + c->stage_n, type, a, b);
	c->stage_n += HEAD_BYTES;
	return true;
}

static void next_out(struct conn *c)
{
	struct net_node *node = c->out;
	c->out = node->next;
	if (!c->out)
		c->out_end = &c->out;
	net_node_done(node);
}

/* Stages the head of a message in shared memory, behind the heads that the peer needs first. false:
 * there is no room for that now. */
static bool stage_shared(struct conn *c, struct net_node *node)
{
	int64_t number;
	int fd;
	uint64_t size;
	if (c->stage_fd >= 0 || c->stage_cap - c->stage_n < 4 * HEAD_BYTES)
		return false;
	while (c->stage_cap - c->stage_n >= 4 * HEAD_BYTES &&
	       (number = shm_out_given_up(c->mem_out)) >= 0)
		stage_head(c, HEAD_DROP, 0, (uint64_t)number);
	if (c->stage_cap - c->stage_n < 4 * HEAD_BYTES)
		return false;
	number = shm_out_send(node->room, &fd, &size);
	if (fd >= 0)
		stage_head(c, HEAD_MEMORY, size, (uint64_t)number);
	c->stage_fd = fd;
	stage_head(c, HEAD_SHARED, node->size, (uint64_t)number);
	c->count.sent += net_cost(node->size);
	c->out = node->next;
	if (!c->out)
		c->out_end = &c->out;
	net_node_free(node); /* the bytes are the receiver's */
	return true;
}

/* Heads and whole small messages, until a message begins that does not fit. */
static void stage_messages(struct conn *c)
{
	while (c->out) {
		struct net_node *node = c->out;
		const bool credit = node->at == CONN_CREDIT;
		if (node->room) {
			if (!stage_shared(c, node))
				return;
			continue;
		}
		if (!stage_head(c,
				credit        ? HEAD_CREDIT
				: node->whole ? HEAD_PIECE
					      : HEAD_MESSAGE,
				node->whole ? node->whole : node->size, node->number))
			return;
		if (credit) {
			c->count.told += node->size;
			next_out(c);
			continue;
		}
		size_t room = c->stage_cap - c->stage_n, k = node->size < room ? node->size : room;
		if (k)
			memcpy(c->stage + c->stage_n, node->data, k);
		c->stage_n += k;
		if (!c->place)
			c->count.sent += net_cost(node->whole ? node->whole : node->size);
		c->sent = k;
		if (k < node->size) {
			c->direct = true;
			return;
		}
		next_out(c);
	}
	if (c->bye_due && stage_head(c, HEAD_BYE, 0, 0)) {
		c->bye_due = false;
		c->left_at = c->now;
	}
}

/* Whether the rest of the message that is under way goes by itself: encrypted, less than a record
 * is staged, so that the next message fills the record up. */
static bool goes_direct(const struct conn *c)
{
	return c->direct && !(c->crypt && c->out->size - c->sent < OUT_STAGE);
}

static void stage_rest(struct conn *c)
{
	struct net_node *node = c->out;
	size_t k = node->size - c->sent;
	memcpy(c->stage + c->stage_n, (char *)node->data + c->sent, k);
	c->stage_n += k;
	c->direct = false;
	next_out(c);
}

void out_go_plain(struct conn *c)
{
	crypt_free(c->crypt);
	c->crypt = NULL;
}

/* What goes next, into the empty stage; false when there is nothing. */
static bool fill_stage(struct conn *c)
{
	const struct net_options *o = &c->net->o;
	c->stage_n = c->stage_at = 0;
	if (c->direct)
		stage_rest(c);
	if (c->hello_due && c->place && !c->accepted)
		c->hello_due = !stage_head(c, HEAD_JOIN, c->parallel->id, c->place);
	else if (c->hello_due)
		c->hello_due = !stage_head(
			c, (c->accepted ? c->agreed : c->inside) ? HEAD_HELLO_MESH : HEAD_HELLO,
			o->window, o->max_message);
	if (c->agreed && c->crypt && c->stage_n)
		return true; /* HELLO alone: it is the last that is encrypted */
	if (!conn_is_up(c) || c->stage_cap < OUT_STAGE)
		return c->stage_n > 0;
	if (c->alive_due)
		c->alive_due = !stage_head(c, HEAD_ALIVE, 0, 0);
	if (c->ping_due)
		c->ping_due = !stage_head(c, HEAD_PING, 0, 0);
	if (c->offer_due)
		c->offer_due =
			!stage_head(c, HEAD_PARALLEL, c->accepted ? c->parallel->n : c->asked,
				    c->accepted ? c->parallel->id : 0);
	stage_messages(c);
	return c->stage_n > 0;
}

/* A connection that takes no more bytes is still read to its end: the peer's last heads, which may
 * say why, are still to come. */
void out_write(struct conn *c)
{
	size_t done = 0;
	c->blocked = c->more_out = false;
	while (done < OUT_TURN && !c->mute) {
		int64_t k;
		if (c->stage_at < c->stage_n) {
			k = put(c, c->stage + c->stage_at, c->stage_n - c->stage_at);
			c->stage_at += k > 0 ? (size_t)k : 0;
		} else if (c->agreed && c->crypt && !c->hello_due) {
			out_go_plain(c);
			continue;
		} else if (goes_direct(c)) {
			struct net_node *node = c->out;
			k = put(c, (char *)node->data + c->sent, node->size - c->sent);
			c->sent += k > 0 ? (size_t)k : 0;
			if (c->sent == node->size) {
				c->direct = false;
				next_out(c);
			}
		} else if (fill_stage(c)) {
			continue;
		} else {
			k = c->crypt ? crypt_flush(c->crypt) : 1;
			c->blocked = k == IO_LATER;
			c->mute = k < 0;
			return;
		}
		if (k == IO_LATER) {
			c->blocked = true;
			return;
		}
		c->mute = k < 0;
		done += k > 0 ? (size_t)k : 0;
	}
	c->more_out = !c->mute;
}
