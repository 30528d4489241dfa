/* SPDX-License-Identifier: Apache-2.0 */
/* guests.c - see guests.h. */
#include "peers/guests.h"

#include "base/clock.h"
#include "base/err.h"
#include "base/log.h"

#include <stdio.h>
#include <string.h>

bool guest_has_key(const struct link *l, const char *key)
{
	return !key || !key[0] || key_equal(link_peer_key(l), key);
}

/* With keys. Without, nobody can be told from the coordinator. */
static bool is_coordinator(const struct guests *g, const struct link *l)
{
	return g->coordinator_key && g->coordinator_key[0] && guest_has_key(l, g->coordinator_key);
}

static void take_out(struct guests *g, int k)
{
	g->n--;
	memmove(&g->list[k], &g->list[k + 1], (size_t)(g->n - k) * sizeof *g->list);
	g->list[g->n] = (struct guest){ 0 };
}

/* Others can cause these lines at will. */
static void warn(struct guests *g, const struct link *l, const char *what, const char *why)
{
	if (log_limit_allows(&g->log, clock_now()))
		log_warn("a connection from %s is %s: %s", link_address(l), what, why);
}

static void dismiss(struct guests *g, int k, const char *why)
{
	struct link *l = g->list[k].link;
	if (why) {
		warn(g, l, "refused", why);
		hello_refuse(l, why);
	}
	link_close(l);
	take_out(g, k);
}

/* The guest that gives its place to a new connection; -1: none does. */
static int least_wanted(const struct guests *g, const struct link *fresh)
{
	bool keys = g->coordinator_key && g->coordinator_key[0];
	for (int k = 0; k < g->n; k++)
		if (!g->list[k].known && !is_coordinator(g, g->list[k].link))
			return k;
	if (keys && !is_coordinator(g, fresh))
		return -1;
	for (int k = 0; k < g->n; k++)
		if (!is_coordinator(g, g->list[k].link))
			return k;
	return 0;
}

/* Reads a guest's HELLO, when it has come. false: the guest is gone. */
static bool hear(struct guests *g, int k)
{
	struct guest *v = &g->list[k];
	struct net_msg msg;
	struct frame f;
	struct err e = { 0 };
	char why[64];
	if (v->known && (v->h.role == HELLO_COORDINATOR || link_state(v->link) != LINK_LOST))
		return true; /* a coordinator that has left may have said why */
	if (v->known) {
		dismiss(g, k, NULL);
		return false;
	}
	int rc = link_recv_frame(v->link, NET_NOW, &msg, &f, &e);
	if (rc < 0) {
		/* not only closed: another program, or another version of this one */
		if (e.code == ERR_PROTOCOL)
			warn(g, v->link, "cut off", e.msg);
		dismiss(g, k, NULL);
		return false;
	}
	if (rc == 0 && clock_now() > v->hello_by) {
		snprintf(why, sizeof why, "it did not say HELLO within %g s", GUESTS_PATIENCE);
		warn(g, v->link, "closed", why);
		dismiss(g, k, NULL);
		return false;
	}
	if (rc == 0)
		return true;
	g->called_off |= f.kind == FRAME_ABORT && guest_has_key(v->link, g->coordinator_key);
	rc = hello_read(&f, &v->h, &e);
	net_msg_release(&msg);
	v->known = rc >= 0;
	if (rc < 0)
		dismiss(g, k, e.msg);
	return rc >= 0;
}

static void report_left_out(struct guests *g, int64_t now)
{
	unsigned n = log_limit_left_out(&g->log, now);
	if (n)
		log_warn("%u more connections were refused, cut off or closed; at most %d a minute "
			 "get a line of their own",
			 n, LOG_LIMIT);
}

void guests_let_in(struct guests *g)
{
	struct link *l;
	struct err ignored = { 0 };
	report_left_out(g, clock_now());
	for (int k = 0; k < g->n;)
		k += hear(g, k);
	while (net_accept(g->net, NET_NOW, &l, &ignored) > 0) {
		if (link_is_unproven(l)) {
			if (g->unproven)
				g->unproven(g->ctx, l);
			else
				link_close(l);
			continue;
		}
		int gives = g->n < GUESTS_MOST ? -1 : least_wanted(g, l);
		if (gives >= 0)
			dismiss(g, gives, NULL);
		if (g->n == GUESTS_MOST) {
			link_close(l);
			continue;
		}
		g->list[g->n++] = (struct guest){ .link = l, .hello_by = net_in(GUESTS_PATIENCE) };
		hear(g, g->n - 1);
	}
}

struct link *guests_take(struct guests *g, enum hello_role role, guest_check_fn check,
			 const void *who, const void *ctx, struct hello *h_p)
{
	for (int k = 0; k < g->n;) {
		const struct guest *v = &g->list[k];
		char why[600] = "";
		if (!v->known || v->h.role != role) {
			k++;
			continue;
		}
		check(who, v, ctx, why, sizeof why);
		if (why[0]) {
			dismiss(g, k, why);
			continue;
		}
		struct link *l = v->link;
		if (!g->hold)
			link_take(l);
		*h_p = v->h;
		take_out(g, k);
		return l;
	}
	return NULL;
}

void guests_refuse(struct guests *g, int role, const char *why)
{
	for (int k = 0; k < g->n;)
		if (g->list[k].known && (role == GUESTS_ALL || g->list[k].h.role == role))
			dismiss(g, k, why);
		else
			k++;
}

size_t guests_poll(const struct guests *g, struct net_poll p[GUESTS_POLLS])
{
	size_t n = 0;
	p[n++] = (struct net_poll){ NULL, NET_RECV, 0 };
	for (int k = 0; k < g->n; k++)
		if (!g->list[k].known)
			p[n++] = (struct net_poll){ g->list[k].link, NET_RECV, 0 };
	return n;
}

void guests_close(struct guests *g)
{
	while (g->n)
		dismiss(g, g->n - 1, NULL);
	report_left_out(g, NET_FOREVER);
}
