/* SPDX-License-Identifier: Apache-2.0 */
/* tls_hub.c - see tls_hub.h. */
#include "net/tls_hub.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/os_calls.h"
#include "net/address.h"
#include "net/inside.h"
#include "net/shm_meet.h"
#include "net/tls_dial.h"
#include "net/tls_hub_priv.h"
#include "net/watch.h"

#define MS ((int64_t)1000000)
#define SECOND (1000 * MS)
#define FAREWELL (10 * SECOND)   /* from our BYE to the end of the connection */
#define OTHERS_DUE (10 * SECOND) /* time for more connections of a link to come up */
#define GUESTS_SHARE 10          /* strangers get one part in so many of the thread's time, */
#define GUESTS_MOST (100 * MS)   /* saved up to this, */
#define GUESTS_TURN (MS / 5)     /* and after this links are looked at in between */
enum { EVENTS = 64, ACCEPT_TURN = 16 };

/* ---- watching ------------------------------------------------------------------------------- */

static bool is_stranger(const struct conn *c)
{
	return c->accepted && (!c->link || c->unproven) && c->state != CONN_GONE;
}

/* Watches a connection for what it waits for now. */
static void watch(struct hub *h, struct conn *c)
{
	bool stranger = is_stranger(c);
	unsigned want = c->blocked || c->state == CONN_CONNECTING ? WATCH_OUT : 0;
	want |= c->held ? WATCH_END : c->state != CONN_CONNECTING ? WATCH_IN : 0;
	if (c->io.fd < 0 || (want == c->watched && c->guest == stranger))
		return;
	if (c->watched && c->guest != stranger)
		watch_drop(c->watcher, c->io.fd);
	c->guest = stranger;
	c->watcher = stranger ? h->guests : h->all;
	watch_set(c->watcher, c->io.fd, want, c);
	c->watched = want;
}

static int64_t sooner(int64_t a, int64_t b) { return a < b ? a : b; }

/* The moment at which something is due for a connection. */
static int64_t due(const struct hub *h, const struct conn *c)
{
	double every = h->net->o.peer_timeout / 8;
	if (is_stranger(c))
		return c->began + (int64_t)(HUB_PATIENCE * 1e9) + MS;
	if (c->state == CONN_UP || c->state == CONN_LEAVING)
		return h->now + (int64_t)((every < 0.01 ? 0.01 : every > 1 ? 1 : every) * 1e9);
	if (c->state == CONN_GONE)
		return NET_FOREVER;
	return sooner(c->dial_deadline,
		      c->state == CONN_WAITING ? c->retry_at : c->began + dial_attempt(c) + MS);
}

/* ---- several connections of one link -------------------------------------------------------- */

static struct hub *hub_make(struct net *n, struct hub *first, struct err *e);

/* By the first thread: the one for connections at this place, or this one where no other can be
 * made. */
static struct hub *hub_at(struct hub *h, unsigned place)
{
	struct err e;
	if (!h->other[place])
		h->other[place] = hub_make(h->net, h, &e);
	return h->other[place] ? h->other[place] : h;
}

/* From now on the thread of `to` has the connection. */
static void hand_over(struct hub *to, struct conn *c)
{
	pthread_mutex_lock(&to->lock);
	c->hub = to;
	c->next = to->fresh;
	to->fresh = c;
	hub_wake(to);
	pthread_mutex_unlock(&to->lock);
}

static void dial_others(struct hub *h, struct conn *c)
{
	c->dial_others = false;
	for (unsigned i = 1; i < c->parallel->n; i++) {
		struct conn *k = conn_new(h->net, h->keys, &h->log);
		if (!k)
			return;
		k->parallel = c->parallel;
		k->place = i;
		k->apart = true;
		k->to = c->to;
		k->to_n = c->to_n;
		k->source = c->source;
		k->source_n = c->source_n;
		k->dial_deadline = h->now + OTHERS_DUE;
		if (!parallel_join(c->parallel, i, k)) {
			conn_free(k);
			return;
		}
		k->link = c->link;
		net_link_ref(c->link);
		hand_over(hub_at(h, i), k);
	}
}

/* Tells the others that there is more to read, or that the link is at its end. */
static void tell_others(struct parallel *p, bool shut)
{
	for (unsigned i = 1; i < p->n; i++) {
		struct conn *k = p->conn[i];
		if (!k)
			continue;
		pthread_mutex_lock(&k->hub->lock);
		if (!k->closed) {
			k->shut |= shut;
			hub_tell(k);
		}
		pthread_mutex_unlock(&k->hub->lock);
	}
}

/* A connection that is not the first of its link has come up: it goes to the thread of its place.
 * true: this thread has it no longer. */
static bool takes_its_place(struct hub *h, struct conn *c)
{
	struct hub *to = h->first ? h : hub_at(h, c->place);
	struct parallel *p = c->parallel;
	struct link *l = c->link;
	pthread_mutex_lock(&h->lock);
	bool told = c->told;
	pthread_mutex_unlock(&h->lock);
	if (to != h && told)
		return false; /* in the next turn */
	c->counted = true;
	net_link_ref(l);
	if (to != h) {
		watch_drop(c->watcher, c->io.fd);
		c->watched = 0;
		c->more_in = true; /* what was read ahead raises no event */
		hand_over(to, c);
	}
	/* users' threads may send over it now */
	if (parallel_up(p)) {
		net_link_connections(l, p->n);
		log_info("%s: %u connections carry this link", l->address, p->n);
	}
	net_link_unref(l);
	return to != h;
}

/* The end of one connection is that of the link and of all others. */
static void end_others(struct conn *c)
{
	if (c->place && c->state == CONN_GONE && !c->apart)
		hub_shut(c->link);
	else if (!c->place && (c->state == CONN_LEAVING || c->state == CONN_GONE) &&
		 parallel_shut(c->parallel))
		tell_others(c->parallel, true);
}

/* The link that a connection which was accepted wants to join. */
static struct parallel *find_parallel(struct conn *c, uint64_t id)
{
	for (const struct conn *o = c->hub->conns; o; o = o->next)
		if (o->parallel && !o->place && o->accepted && o->state == CONN_UP &&
		    o->parallel->id == id && !strcmp(o->link->peer, c->peer))
			return o->parallel;
	return NULL;
}

/* ---- accepting ------------------------------------------------------------------------------ */

static unsigned same_address(const struct hub *h, const char *from)
{
	unsigned count = 0;
	for (const struct conn *c = h->conns; c; c = c->next)
		count += is_stranger(c) && !strcmp(c->from, from);
	return count;
}

/* Closes the oldest stranger of the address that has most of them, without a word. */
static void drop_stranger(struct hub *h)
{
	struct conn *worst = NULL;
	unsigned most = 0;
	for (struct conn *c = h->conns; c; c = c->next) {
		unsigned count = is_stranger(c) ? same_address(h, c->from) : 0;
		if (count > most || (count && count == most && c->began <= worst->began)) {
			most = count;
			worst = c;
		}
	}
	if (!worst)
		return;
	struct linger now = { .l_onoff = 1 };
	setsockopt(worst->io.fd, SOL_SOCKET, SO_LINGER, &now, sizeof now);
	conn_break(worst, ERR_NET, "");
	h->strangers--;
}

/* `from` NULL: a process of this machine. */
static void take_in(struct hub *h, int fd, const struct sockaddr_storage *from)
{
	pid_t peer = 0;
	if (!from && !meet_peer(fd, &peer)) {
		close(fd);
		return;
	}
	struct conn *c = conn_new(h->net, h->keys, &h->log);
	if (!c) {
		close(fd);
		return;
	}
	if (h->strangers >= HUB_STRANGERS)
		drop_stranger(h);
	if (from) {
		dial_options(fd, h->net->o.peer_timeout);
		address_text(from, false, c->from);
		c->inside = h->keys && h->net->o.mesh && inside_bind(fd, from);
	} else {
		snprintf(c->from, sizeof c->from, "process %d of this machine", (int)peer);
	}
	c->hub = h;
	c->find = find_parallel;
	c->accepted = true;
	c->next = h->conns;
	h->conns = c;
	h->strangers++;
	if (from)
		conn_begin(c, fd, h->now);
	else
		conn_begin_near(c, fd, peer, h->now);
	h->next_timer = sooner(h->next_timer, due(h, c));
	watch(h, c);
}

static bool turn_is_over(const struct hub *h) { return clock_now() - h->now > GUESTS_TURN; }

static void on_listener(struct hub *h, int listener)
{
	for (int i = 0; i < ACCEPT_TURN && !turn_is_over(h); i++) {
		struct sockaddr_storage from = { 0 };
		socklen_t n = sizeof from;
		int fd = os_accept(listener, (struct sockaddr *)&from, &n, OS_NEVER_WAITS);
		if (fd < 0 &&
		    (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM)) {
			drop_stranger(h);
			return;
		}
		if (fd < 0)
			return;
		take_in(h, fd, listener == h->listeners.near ? NULL : &from);
	}
}

/* ---- events --------------------------------------------------------------------------------- */

/* After anything was done to a connection. */
static void settle(struct hub *h, struct conn *c, bool was_stranger)
{
	if (was_stranger && !is_stranger(c))
		h->strangers--;
	if (c->state == CONN_GONE && !c->accepted && c->end != END_NONE)
		dial_failed(c, h->now);
	if (c->dial_others && c->state == CONN_UP)
		dial_others(h, c);
	if (c->announced)
		tell_others(c->parallel, false);
	c->announced = false;
	h->more |= c->more_in || c->more_out;
	h->next_timer = sooner(h->next_timer, due(h, c));
	if (h->log.left_out)
		h->next_timer = sooner(h->next_timer, h->log.since + 61 * SECOND);
	watch(h, c);
}

/* `events` 0: there may be something to send. */
static void on_event(struct hub *h, struct conn *c, unsigned events)
{
	pthread_mutex_lock(&c->own);
	bool stranger = is_stranger(c);
	if (c->state != CONN_GONE && c->state != CONN_WAITING) {
		if (c->held && events & WATCH_END)
			conn_break(c, ERR_NET,
				   c->place ? "the connection broke"
					    : "closed by the peer before it was used");
		else if (c->state != CONN_CONNECTING)
			conn_work(c, events & (WATCH_IN | WATCH_END), h->now);
		else if (events)
			dial_answered(c, h->now);
		settle(h, c, stranger);
	}
	pthread_mutex_unlock(&c->own);
}

static void wait_guests(struct hub *h, bool wait)
{
	if (wait != h->guests_wait)
		watch_inside(h->all, h->guests, !wait);
	h->guests_wait = wait;
}

/* One turn of what strangers want: as much as does not hold up links. What is left over is there in
 * the next turn. */
static void on_guests(struct hub *h)
{
	struct watch_event ev[ACCEPT_TURN];
	h->now = clock_now(); /* links had their turn since it was set */
	int n = watch_wait(h->guests, ev, ACCEPT_TURN, 0);
	for (int i = 0; i < n && !turn_is_over(h); i++)
		if (ev[i].of == &h->listeners.tcp)
			on_listener(h, h->listeners.tcp);
		else if (ev[i].of == &h->listeners.near)
			on_listener(h, h->listeners.near);
		else
			on_event(h, ev[i].of, ev[i].what);
	int64_t now = clock_now();
	h->guests_time -= now - h->now;
	h->now = now;
	wait_guests(h, h->guests_time < 0);
}

static void pay_guests(struct hub *h)
{
	h->guests_time += (h->now - h->guests_at) / GUESTS_SHARE;
	h->guests_at = h->now;
	if (h->guests_time > GUESTS_MOST)
		h->guests_time = GUESTS_MOST;
	if (h->guests_wait && h->guests_time > MS)
		wait_guests(h, false);
}

/* ---- timers --------------------------------------------------------------------------------- */

static void check_up(struct hub *h, struct conn *c)
{
	double limit = h->net->o.peer_timeout;
	int64_t silent = c->held ? 0 : h->now - c->last_in, ping = (int64_t)(limit * 0.25e9);
	if (ping > 5 * SECOND)
		ping = 5 * SECOND;
	if ((double)silent > limit * 1e9) {
		char text[64];
		snprintf(text, sizeof text, "said nothing for %.1f s", clock_seconds(silent));
		conn_break(c, ERR_NET, text);
	} else if (c->state == CONN_LEAVING && c->left_at && h->now - c->left_at > FAREWELL) {
		conn_break(c, ERR_NET, "closed");
	} else if (silent > ping && h->now - c->last_ping > ping) {
		c->last_ping = h->now;
		c->ping_due = true;
		on_event(h, c, 0);
	}
}

static void check(struct hub *h, struct conn *c)
{
	if (is_stranger(c) && h->now - c->began > (int64_t)(HUB_PATIENCE * 1e9)) {
		conn_break(c, ERR_NET, "");
		h->strangers--;
	} else if (c->state == CONN_UP || c->state == CONN_LEAVING) {
		check_up(h, c);
	} else if (!c->accepted && c->state != CONN_GONE) {
		if (h->now >= c->dial_deadline) {
			conn_break(c, ERR_NET,
				   "no answer in time; is heteroshard running there, and does a "
				   "firewall let the port through?");
		} else if (c->state == CONN_WAITING && h->now >= c->retry_at) {
			dial_begin(c, h->now);
			settle(h, c, false);
		} else if (dial_late(c, h->now)) {
			watch(h, c);
		}
	}
}

/* Logs how many lines about strangers the limit left out. */
static void report_left_out(struct hub *h, int64_t now)
{
	unsigned n = log_limit_left_out(&h->log, now);
	if (n)
		log_warn("%u more connections were refused, each because its public key is not on "
			 "this machine's list",
			 n);
}

static void timers(struct hub *h)
{
	if (h->now < h->next_timer)
		return;
	report_left_out(h, h->now);
	h->next_timer = h->log.left_out ? h->log.since + 61 * SECOND : NET_FOREVER;
	for (struct conn *c = h->conns; c; c = c->next) {
		pthread_mutex_lock(&c->own);
		check(h, c);
		pthread_mutex_unlock(&c->own);
		h->next_timer = sooner(h->next_timer, due(h, c));
	}
}

/* ---- the loop ------------------------------------------------------------------------------- */

static void take_listeners(struct hub *h, const struct listeners *l)
{
	h->listeners = *l;
	if (l->tcp >= 0)
		watch_set(h->guests, l->tcp, WATCH_IN, &h->listeners.tcp);
	if (l->near >= 0)
		watch_set(h->guests, l->near, WATCH_IN, &h->listeners.near);
}

static void close_listeners(struct listeners *l)
{
	if (l->tcp >= 0)
		close(l->tcp);
	meet_leave(l->near, l->path);
	l->tcp = l->near = -1;
}

/* What a user asked of one connection; under the lock. */
static void take_order(struct conn *c, bool *shut_p, bool *taken_p)
{
	if (c->fresh) {
		*c->out_end = c->fresh;
		c->out_end = c->fresh_end;
		c->fresh = NULL;
		c->fresh_end = &c->fresh;
	}
	struct net_node *credit =
		c->untold > (c->tell_all ? 0 : c->slack) ? net_node_new(c->net->pool) : NULL;
	if (credit) { /* when memory is out, the next time */
		credit->at = CONN_CREDIT;
		credit->size = c->untold;
		*c->out_end = credit;
		c->out_end = &credit->next;
		c->untold = 0;
		c->tell_all = false;
	}
	*shut_p = c->shut;
	*taken_p = c->taken;
	c->told = false;
}

/* What users asked for since the last time. */
static void take_orders(struct hub *h)
{
	pthread_mutex_lock(&h->lock);
	h->busy = false;
	h->quitting = h->quit;
	struct listeners listeners = h->fresh_listeners;
	h->fresh_listeners.tcp = h->fresh_listeners.near = -1;
	struct conn *told = h->told;
	h->told = NULL;
	while (h->fresh) {
		struct conn *c = h->fresh;
		h->fresh = c->next;
		c->next = h->conns;
		h->conns = c;
		h->next_timer = 0;
		h->more |= c->more_in;
	}
	while (told) {
		struct conn *c = told;
		bool shut = false, taken = false;
		told = c->next_told;
		pthread_mutex_unlock(&h->lock);
		pthread_mutex_lock(&c->own);
		pthread_mutex_lock(&h->lock);
		take_order(c, &shut, &taken);
		pthread_mutex_unlock(&h->lock);
		if (shut && c->state != CONN_GONE)
			conn_leave(c, h->now);
		if (taken)
			conn_take(c, h->now);
		if (c->held)
			conn_go_on(c, h->now);
		if (c->state == CONN_UP || c->state == CONN_LEAVING)
			on_event(h, c, 0);
		pthread_mutex_unlock(&c->own);
		pthread_mutex_lock(&h->lock);
	}
	pthread_mutex_unlock(&h->lock);
	if (listeners.tcp >= 0 || listeners.near >= 0)
		take_listeners(h, &listeners);
}

/* Gives up a connection and releases what users sent meanwhile. true: nobody uses it any more. */
static bool let_go(struct hub *h, struct conn *c)
{
	pthread_mutex_lock(&h->lock);
	c->closed = true;
	bool free_now = !c->told;
	struct net_node *list = c->fresh;
	c->fresh = NULL;
	c->fresh_end = &c->fresh;
	pthread_mutex_unlock(&h->lock);
	net_nodes_done(list);
	return free_now;
}

static void sweep(struct hub *h)
{
	for (struct conn **p = &h->conns; *p;) {
		struct conn *c = *p;
		pthread_mutex_lock(&c->own);
		if (c->state == CONN_GONE && !c->apart)
			conn_break(c, ERR_NET, "closed");
		pthread_mutex_unlock(&c->own);
		if (c->parallel)
			end_others(c);
		struct conn *after = c->next;
		if (c->place && !c->counted && conn_is_up(c) && takes_its_place(h, c)) {
			*p = after;
			continue;
		}
		if (c->state != CONN_GONE || !let_go(h, c)) {
			p = &c->next;
			continue;
		}
		*p = c->next;
		if (!c->link) {
			conn_free(c);
			continue;
		}
		net_link_unref(c->link);
	}
}

static void quit(struct hub *h)
{
	close_listeners(&h->listeners);
	for (struct conn *c = h->conns; c; c = c->next) {
		pthread_mutex_lock(&c->own);
		if (is_stranger(c) || h->now >= h->quit_by)
			conn_break(c, ERR_NET, "closed");
		pthread_mutex_unlock(&c->own);
	}
	h->strangers = 0;
}

static void wait_for_events(struct hub *h)
{
	struct watch_event ev[EVENTS];
	int64_t until = h->quitting ? sooner(h->next_timer, h->quit_by) : h->next_timer;
	if (h->guests_wait)
		until = sooner(until, h->now + (MS * 2 - h->guests_time) * GUESTS_SHARE);
	pthread_mutex_lock(&h->lock);
	h->asleep = !h->busy;
	bool sleep = h->asleep && !h->more;
	pthread_mutex_unlock(&h->lock);
	int64_t ns = until - h->now;
	int ms = !sleep || ns <= 0      ? 0
		 : until == NET_FOREVER ? -1
		 : ns > 3600 * SECOND   ? 3600000
					: (int)((ns + MS - 1) / MS);
	int n = watch_wait(h->all, ev, EVENTS, ms);
	pthread_mutex_lock(&h->lock);
	h->asleep = false;
	pthread_mutex_unlock(&h->lock);
	h->now = clock_now();
	/* Time in which this thread did not run does not count as silence of a peer. */
	int64_t late = ms >= 0 ? h->now - until - 50 * MS : 0;
	if (sleep && ms >= 0 && late > 0)
		for (struct conn *c = h->conns; c; c = c->next)
			c->last_in = sooner(c->last_in + late, h->now);
	pay_guests(h);
	bool more = h->more;
	h->more = false;
	for (int i = 0; i < n; i++) {
		if (ev[i].of == h->guests)
			on_guests(h);
		else
			on_event(h, ev[i].of, ev[i].what);
	}
	for (struct conn *c = more ? h->conns : NULL; c; c = c->next)
		if (c->more_in || c->more_out)
			on_event(h, c, c->more_in ? WATCH_IN : 0);
}

static void *hub_main(void *hub)
{
	struct hub *h = hub;
	os_name_thread("hs-net");
	h->now = h->guests_at = clock_now();
	h->guests_time = GUESTS_MOST;
	for (;;) {
		take_orders(h);
		timers(h);
		if (h->quitting)
			quit(h);
		sweep(h);
		if (h->quitting && !h->conns)
			break;
		wait_for_events(h);
	}
	report_left_out(h, NET_FOREVER);
	return NULL;
}

/* ---- beginning and end ---------------------------------------------------------------------- */

static void hub_free(struct hub *h)
{
	if (!h->first)
		crypt_ctx_free(h->keys);
	watch_free(h->all);
	watch_free(h->guests);
	pthread_mutex_destroy(&h->lock);
	mem_free(h);
}

/* NULL: `e` says why. */
static struct hub *hub_make(struct net *n, struct hub *first, struct err *e)
{
	struct hub *h = mem_zalloc(sizeof *h);
	int rc = 0;
	if (!h) {
		err_nomem(e, sizeof *h, "a link end");
		return NULL;
	}
	h->net = n;
	h->first = first;
	h->listeners.tcp = h->listeners.near = -1;
	h->fresh_listeners = h->listeners;
	pthread_mutex_init(&h->lock, NULL);
	h->all = watch_new();
	h->guests = h->all ? watch_new() : NULL;
	if (h->guests)
		watch_inside(h->all, h->guests, true);
	else
		rc = err_sys(e, errno, "tls: cannot begin");
	if (first)
		h->keys = first->keys;
	else if (rc >= 0 && n->o.key)
		rc = crypt_ctx_new(n->o.key, &h->keys, e);
	if (rc >= 0) {
		/* Signals are for the program's own threads. */
		sigset_t all, old;
		sigfillset(&all);
		pthread_sigmask(SIG_SETMASK, &all, &old);
		int errnum = pthread_create(&h->thread, NULL, hub_main, h);
		pthread_sigmask(SIG_SETMASK, &old, NULL);
		rc = errnum ? err_sys(e, errnum, "tls: cannot start a thread") : 0;
	}
	if (rc >= 0)
		return h;
	hub_free(h);
	return NULL;
}

int hub_open(struct net *n, struct err *e)
{
	n->priv = hub_make(n, NULL, e);
	return n->priv ? 0 : e->code;
}

static void end_thread(struct hub *h, int64_t by)
{
	pthread_mutex_lock(&h->lock);
	h->quit = true;
	h->quit_by = by;
	hub_wake(h);
	pthread_mutex_unlock(&h->lock);
	pthread_join(h->thread, NULL);
}

void hub_close(struct net *n, double linger)
{
	struct hub *h = n->priv;
	const int64_t by = net_in(linger);
	end_thread(h, by);
	for (unsigned i = 0; i < PARALLEL_MOST; i++)
		if (h->other[i]) { /* the first thread gives them nothing more to do */
			end_thread(h->other[i], by);
			hub_free(h->other[i]);
		}
	hub_free(h);
}
