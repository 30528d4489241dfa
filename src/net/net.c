/* SPDX-License-Identifier: Apache-2.0 */
/* net.c - one end: opening, listening, accepting, waiting for several links. Links are in
 * link.c. */
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/os_calls.h"
#include "net/net_priv.h"
#include "net/pins.h"
#include "net/wait.h"

#define TRANSPORT(name) extern const struct net_transport net_##name;
#include "net/transport.def"
#undef TRANSPORT

const struct net_transport *const net_transports[] = {
#define TRANSPORT(name) &net_##name,
#include "net/transport.def"
#undef TRANSPORT
	NULL,
};

const char *net_names(void)
{
#define TRANSPORT(name) ", " #name
	static const char names[] =
#include "net/transport.def"
		;
#undef TRANSPORT
	return names + 2;
}

int net_open(const char *transport, const struct net_options *o, struct net **net_p, struct err *e)
{
	const struct net_transport *t = NULL;
	for (size_t i = 0; net_transports[i]; i++)
		if (strcmp(net_transports[i]->name, transport) == 0)
			t = net_transports[i];
	if (!t && !strcmp(transport, "mpi"))
		return err_set(e, ERR_USAGE,
			       "this program was built without MPI: build it where pkg-config "
			       "finds one (mpi-c, ompi-c or mpich)");
	if (!t)
		return err_set(e, ERR_USAGE, "no transport is called '%s'; there are: %s",
			       transport, net_names());
	struct net *n = mem_zalloc(sizeof *n);
	if (!n)
		return err_nomem(e, sizeof *n, "a link end");
	n->t = t;
	if (o)
		n->o = *o;
	if (!(n->o.peer_timeout > 0))
		n->o.peer_timeout = 20;
	if (!n->o.window)
		n->o.window = 64 << 20;
	if (!n->o.max_message)
		n->o.max_message = (256 << 20) + (64 << 10);
	if (n->o.key) {
		n->key = *n->o.key;
		n->o.key = &n->key;
	}
	n->accepted_end = &n->accepted;
	n->pool = net_pool_new(n->o.window);
	n->pins = n->pool ? pins_new() : NULL;
	if (!n->pins) {
		if (n->pool)
			net_pool_close(n->pool);
		mem_free(n);
		return err_nomem(e, 0, "a link end");
	}
	pthread_mutex_init(&n->lock, NULL);
	os_cond_init(&n->cond);
	net_want_connections(n, n->o.connections);
	int rc = t->open(n, e);
	if (rc < 0) {
		pthread_cond_destroy(&n->cond);
		pthread_mutex_destroy(&n->lock);
		net_pool_close(n->pool);
		pins_unref(n->pins);
		key_pair_wipe(&n->key);
		mem_free(n);
		return rc;
	}
	*net_p = n;
	return 0;
}

void net_close(struct net *n, double linger)
{
	if (!n)
		return;
	pthread_mutex_lock(&n->lock);
	n->closing = true;
	while (n->links) {
		struct link *l = n->links;
		pthread_mutex_unlock(&n->lock);
		link_close(l);
		pthread_mutex_lock(&n->lock);
	}
	pthread_mutex_unlock(&n->lock);
	n->t->close(n, linger);
	pthread_cond_destroy(&n->cond);
	pthread_mutex_destroy(&n->lock);
	net_pool_close(n->pool);
	pins_set(n->pins, NULL);
	pins_unref(n->pins);
	mem_free(n->allowed);
	key_pair_wipe(&n->key);
	mem_free(n);
}

int net_world(struct net *n, struct net_ranks *r_p, struct err *e)
{
	if (!n->t->world)
		return err_set(e, ERR_UNSUPPORTED, "%s does not number the processes of a job",
			       n->t->name);
	n->t->world(n, r_p);
	return 0;
}

int net_group_make(struct net *n, const char *const *address, int members, struct net_group **g_p,
		   struct err *e)
{
	if (!n->t->group)
		return err_set(e, ERR_UNSUPPORTED, "%s has no sums of its own", n->t->name);
	return n->t->group(n, address, members, g_p, e);
}

float *net_group_room(struct net_group *g, size_t count)
{
	return net_group_net(g)->t->room(g, count);
}

int net_group_sum(struct net_group *g, size_t count, struct err *e)
{
	return net_group_net(g)->t->sum(g, count, e);
}

int net_group_done(struct net_group *g, struct err *e) { return net_group_net(g)->t->summed(g, e); }

int net_allow(struct net *n, const char *public_key, struct err *e)
{
	char key[KEY_TEXT];
	TRY(key_parse(public_key, "list of peers", key, e));
	pthread_mutex_lock(&n->lock);
	bool listed = false;
	for (size_t i = 0; i < n->nallowed && !listed; i++)
		listed = key_equal(n->allowed[i], key);
	bool ok = listed || mem_grow(&n->allowed, &n->allowed_cap, n->nallowed + 1, KEY_TEXT);
	if (ok && !listed)
		memcpy(n->allowed[n->nallowed++], key, KEY_TEXT);
	pthread_mutex_unlock(&n->lock);
	return ok ? 0 : err_nomem(e, KEY_TEXT, "the list of peers");
}

void net_forbid(struct net *n, const char *public_key)
{
	struct link *l;
	do {
		pthread_mutex_lock(&n->lock);
		for (size_t i = 0; i < n->nallowed;)
			if (key_equal(n->allowed[i], public_key))
				memmove(n->allowed[i], n->allowed[--n->nallowed], KEY_TEXT);
			else
				i++;
		for (l = n->links; l; l = l->next)
			if (l->state != LINK_LOST && l->peer[0] && key_equal(l->peer, public_key))
				break;
		if (l)
			net_link_ref(l);
		pthread_mutex_unlock(&n->lock);
		if (l) {
			link_fail(l, ERR_NET, "its machine was removed from the peers here");
			net_link_unref(l);
		}
	} while (l);
}

void net_admit(struct net *n, bool unknown)
{
	pthread_mutex_lock(&n->lock);
	n->admits = unknown;
	pthread_mutex_unlock(&n->lock);
}

int net_prove(struct net *n, const char *subject, const char *text, char proof_p[KEY_PROOF],
	      struct err *e)
{
	proof_p[0] = 0;
	return n->o.key ? key_prove(n->o.key, subject, text, proof_p, e) : 0;
}

int net_listen(struct net *n, const char *address, char bound_p[NET_ADDRESS], struct err *e)
{
	pthread_mutex_lock(&n->lock);
	bool already = n->listening;
	n->listening = true;
	pthread_mutex_unlock(&n->lock);
	if (already)
		return err_set(e, ERR_INTERNAL, "listening already");
	char bound[NET_ADDRESS];
	int rc = n->t->listen(n, address, bound, e);
	if (rc < 0) {
		pthread_mutex_lock(&n->lock);
		n->listening = false;
		pthread_mutex_unlock(&n->lock);
		return rc;
	}
	if (bound_p)
		memcpy(bound_p, bound, NET_ADDRESS);
	return 0;
}

int net_accept(struct net *n, int64_t deadline, struct link **link_p, struct err *e)
{
	(void)e;
	pthread_mutex_lock(&n->lock);
	while (!n->accepted)
		if (!net_wait(n, deadline, NET_FOREVER))
			break;
	struct link *l = n->accepted;
	if (l) {
		n->accepted = l->next_accepted;
		if (!n->accepted)
			n->accepted_end = &n->accepted;
	}
	pthread_mutex_unlock(&n->lock);
	if (!l)
		return 0;
	*link_p = l;
	return 1;
}

int net_poll(struct net *n, struct net_poll *items, size_t count, int64_t deadline)
{
	int ready;
	pthread_mutex_lock(&n->lock);
	for (;;) {
		int64_t next = NET_FOREVER;
		ready = 0;
		for (size_t i = 0; i < count; i++) {
			unsigned is = items[i].link ? net_link_ready(items[i].link, &next)
				      : n->accepted ? NET_RECV
						    : 0;
			items[i].ready = is & (items[i].want | NET_LOST);
			ready += items[i].ready != 0;
		}
		if (ready || n->wake || !net_wait(n, deadline, next))
			break;
	}
	n->wake = false;
	pthread_mutex_unlock(&n->lock);
	return ready;
}

void net_pin(struct net *n, const struct net_pinner *who) { pins_set(n->pins, who); }

void *net_buffer(struct net *n, size_t bytes) { return net_pool_buffer(n->pool, bytes); }
