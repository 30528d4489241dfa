/* SPDX-License-Identifier: Apache-2.0 */
/* tls_life.c - see tls_life.h. */
#include "net/tls_life.h"

#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/mem.h"
#include "net/shm_memory.h"
#include "net/tls_out.h"
#include "net/watch.h"

struct conn *conn_new(struct net *n, struct crypt_ctx *keys, struct log_limit *log)
{
	struct conn *c = mem_zalloc(sizeof *c);
	if (!c)
		return NULL;
	c->net = n;
	c->keys = keys;
	c->log = log;
	c->io.fd = -1;
	c->stage = c->first;
	c->stage_cap = sizeof c->first;
	c->out_end = &c->out;
	c->fresh_end = &c->fresh;
	c->stage_fd = -1;
	/* work on a connection can lead back to the same connection */
	pthread_mutexattr_t a;
	pthread_mutexattr_init(&a);
	pthread_mutexattr_settype(&a, PTHREAD_MUTEX_RECURSIVE);
	pthread_mutex_init(&c->own, &a);
	pthread_mutexattr_destroy(&a);
	return c;
}

static void close_fds(struct conn *c)
{
	while (c->nfds)
		close(c->fd[--c->nfds]);
	if (c->stage_fd >= 0)
		close(c->stage_fd);
	c->stage_fd = -1;
}

void conn_reset(struct conn *c)
{
	crypt_free(c->crypt);
	c->crypt = NULL;
	/* A child process that is just being started has the socket too, so closing it is not
	 * enough. */
	if (c->watched)
		watch_drop(c->watcher, c->io.fd);
	c->watched = 0;
	if (c->io.fd >= 0)
		close(c->io.fd);
	c->io = (struct crypt_io){ .fd = -1 };
	close_fds(c);
	if (c->in && !c->in->whole) /* others are parallel's */
		net_node_done(c->in);
	c->in = NULL;
	c->head_n = c->in_n = c->ahead_at = c->ahead_n = c->stage_at = c->stage_n = 0;
	c->skip = 0;
	c->hello_due = c->alive_due = c->ping_due = c->refusal_due = false;
	c->blocked = c->more_in = c->more_out = c->mute = false;
	c->near = c->waits = c->held = c->inside = c->agreed = false;
}

void conn_gone(struct conn *c)
{
	c->state = CONN_GONE;
	conn_reset(c);
	out_drop(c);
	if (c->mem_out)
		shm_out_end(c->mem_out);
	if (c->mem_in)
		shm_in_end(c->mem_in);
	c->mem_in = NULL;
}

void conn_free(struct conn *c)
{
	conn_gone(c);
	if (c->stage != c->first)
		mem_free(c->stage);
	mem_free(c->ahead);
	if (c->mem_out)
		shm_out_free(c->mem_out);
	pthread_mutex_destroy(&c->own);
	mem_free(c);
}

void conn_break(struct conn *c, int code, const char *what)
{
	if (c->link && !c->apart)
		net_link_lost(c->link, code, "%s: %s", c->link->address, what);
	else if (c->link && c->state < CONN_UP)
		log_warn("%s: one more connection did not come up (links_per_peer): %s; the first "
			 "one carries the link",
			 c->link->address, what);
	conn_gone(c);
}

void conn_wrong(struct conn *c, const char *what)
{
	char text[240];
	snprintf(text, sizeof text, "the peer does not follow the protocol of links (%s)", what);
	conn_break(c, ERR_PROTOCOL, text);
}

void conn_fails(struct conn *c, enum conn_end end)
{
	c->end = end;
	if (!c->accepted || end == END_RESET || end == END_MEMORY) {
		c->state = CONN_GONE;
		return;
	}
	c->state = CONN_DRAINING;
	crypt_free(c->crypt);
	c->crypt = NULL;
	shutdown(c->io.fd, SHUT_WR);
}

bool conn_buffers(struct conn *c)
{
	if (c->crypt && !c->agreed)
		return crypt_known(c->crypt);
	c->ahead = mem_alloc(CONN_AHEAD);
	return c->ahead != NULL;
}

bool conn_large_stage(struct conn *c)
{
	unsigned char *stage = mem_alloc(OUT_STAGE);
	if (!stage)
		return false;
	/* what is still in the small stage goes first */
	memcpy(stage, c->stage + c->stage_at, c->stage_n - c->stage_at);
	c->stage_n -= c->stage_at;
	c->stage_at = 0;
	c->stage = stage;
	c->stage_cap = OUT_STAGE;
	return true;
}

struct net_node *conn_room(struct conn *c, uint64_t n)
{
	struct net_node *node = net_node_new(c->net->pool);
	void *data = node ? net_pool_buffer(c->net->pool, n) : NULL;
	if (!data) {
		if (node)
			net_node_free(node);
		conn_break(c, ERR_NOMEM, "out of memory while receiving");
		return NULL;
	}
	node->data = data;
	node->size = n;
	node->release = net_buffer_release;
	return node;
}
