/* SPDX-License-Identifier: Apache-2.0 */
/* reception.c - see reception.h. */
#include "peers/reception.h"

#include "base/clock.h"
#include "base/err.h"
#include "base/log.h"
#include "base/mem.h"
#include "peers/guests.h"
#include "peers/join.h"
#include "peers/relay.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

static const double look_every = 1;  /* seconds between looks at invitations and peers */
static const double other_side = 60; /* seconds in which both sides of a pair come */

enum { TWINS = 3 }; /* times in a minute */

/* A worker, by its key. */
struct waiting {
	struct link *link; /* that waits; NULL: none */
	bool taken;        /* the session has had one */
	bool removed;      /* its key is no peer's any more */
	bool twins;        /* the user knows that two machines have it */
	unsigned replaced; /* how often a link that was up gave way to another one, */
	int64_t since;     /* from then on */
	char key[KEY_TEXT];
};

struct reception {
	struct net *net;
	pthread_t thread;
	atomic_bool quit;
	/* the thread's */
	struct guests guests;
	struct askers askers;
	char key[KEY_TEXT];
	int64_t look_at;
	int64_t until; /* invitations_until() then */
	struct net_poll *poll;
	/* under the lock */
	pthread_mutex_t lock;
	struct waiting worker[RECEPTION_WORKERS];
	int n;
	struct relays relays;
	uint64_t job;
	const struct reception_member *member;
	int members;
};

/* ---- workers that wait ----------------------------------------------------------------------- */

static struct waiting *worker_of(struct reception *r, const char *key)
{
	for (int k = 0; k < r->n; k++)
		if (key_equal(r->worker[k].key, key))
			return &r->worker[k];
	return NULL;
}

static void drop_lost(struct reception *r)
{
	for (int k = 0; k < r->n;) {
		struct waiting *w = &r->worker[k];
		if (w->link && link_state(w->link) == LINK_LOST) {
			link_close(w->link);
			w->link = NULL;
		}
		if (w->link || w->taken)
			k++;
		else
			*w = r->worker[--r->n];
	}
}

/* A machine that moves leaves a link behind that still looks well. One that is there twice, such as
 * a copy of a disk, does so all the time: each ends the other one's link, and connects again. */
static void look_for_twins(struct waiting *w, const struct link *fresh)
{
	struct peer_list l = { 0 };
	struct err ignored = { 0 };
	if (!w->link || link_state(w->link) != LINK_UP)
		return;
	if (clock_now() - w->since > (int64_t)60 * 1000000000) {
		w->since = clock_now();
		w->replaced = 0;
	}
	if (++w->replaced != TWINS || w->twins || peer_list_read(&l, &ignored) < 0)
		return;
	w->twins = true;
	const struct peer *p = peer_list_by_key(&l, w->key);
	log_warn("two workers have the key of '%s' and take each other's place (%s, %s): on one of "
		 "them move ~/.config/heteroshard/key away and join with an invitation of its own",
		 p ? p->name : w->key, link_address(w->link), link_address(fresh));
	peer_list_release(&l);
}

/* A worker that connects again takes the place of its old link. */
static void add_worker(struct reception *r, struct link *l)
{
	struct waiting *w = worker_of(r, link_peer_key(l));
	if (!w && r->n == RECEPTION_WORKERS) {
		hello_refuse(l, "too many workers wait here");
		link_close(l);
		return;
	}
	if (!w) {
		w = &r->worker[r->n++];
		*w = (struct waiting){ 0 };
		snprintf(w->key, KEY_TEXT, "%s", link_peer_key(l));
	}
	look_for_twins(w, l);
	if (w->link)
		link_close(w->link);
	w->link = l;
	w->removed = false;
}

struct link *reception_take(struct reception *r, const char *key)
{
	pthread_mutex_lock(&r->lock);
	drop_lost(r);
	struct waiting *w = worker_of(r, key);
	struct link *l = w ? w->link : NULL;
	if (l) {
		link_take(l);
		w->link = NULL;
		w->taken = true;
	}
	pthread_mutex_unlock(&r->lock);
	return l;
}

bool reception_has(struct reception *r, const char *key)
{
	pthread_mutex_lock(&r->lock);
	drop_lost(r);
	bool has = worker_of(r, key) != NULL;
	pthread_mutex_unlock(&r->lock);
	return has;
}

/* ---- relayed links --------------------------------------------------------------------------- */

static int member_by_id(const struct reception *r, const char *id)
{
	for (int i = 0; i < r->members; i++)
		if (!strcmp(r->member[i].id, id))
			return i;
	return -1;
}

/* Says to both sides that the other one is there. */
static void introduce(struct relay_pair *p)
{
	for (int i = 0; i < 2; i++) {
		struct welcome w = { 0 };
		struct err ignored = { 0 };
		link_take(p->side[i].link);
		snprintf(w.id, sizeof w.id, "%s", p->side[!i].id);
		welcome_send(p->side[i].link, &w, NET_NOW, &ignored);
	}
	log_info("workers '%s' and '%s' do not reach each other: what they say goes through this "
		 "machine",
		 p->side[0].id, p->side[1].id);
}

static void add_relay(struct reception *r, struct link *l, const struct hello *h)
{
	struct relay_pair *pair;
	struct err e = { 0 };
	int self = h->member < (uint32_t)r->members ? (int)h->member : -1,
	    other = member_by_id(r, h->to);
	if (!r->members || h->job != r->job)
		err_set(&e, ERR_PROTOCOL, "no job of this number runs here");
	else if (self < 0 || !key_equal(r->member[self].key, link_peer_key(l)))
		err_set(&e, ERR_PROTOCOL, "this key is not that of member %u", h->member);
	else if (other < 0 || other == self)
		err_set(&e, ERR_PROTOCOL, "there is no worker '%.60s' to relay to", h->to);
	else if (h->front != h->member && h->front != (uint32_t)other && h->front != UINT32_MAX)
		err_set(&e, ERR_PROTOCOL, "member %u is in front, which is neither of the two",
			h->front);
	else
		relays_add(&r->relays, l, FRAME_MEMBER(self), r->member[self].id,
			   FRAME_MEMBER(other), r->member[other].id, h->front, other_side, &pair,
			   &e);
	if (e.code) {
		hello_refuse(l, e.msg);
		link_close(l);
	} else if (pair) {
		introduce(pair);
	}
}

void reception_job(struct reception *r, uint64_t job, const struct reception_member *v, int n)
{
	pthread_mutex_lock(&r->lock);
	r->job = job;
	r->member = v;
	r->members = n;
	pthread_mutex_unlock(&r->lock);
}

int reception_pairs(struct reception *r)
{
	pthread_mutex_lock(&r->lock);
	int n = (int)r->relays.n;
	pthread_mutex_unlock(&r->lock);
	return n;
}

/* ---- the thread ------------------------------------------------------------------------------ */

static void anybody(const void *who, const struct guest *g, const void *ctx, char *why, size_t cap)
{
	(void)who;
	(void)g;
	(void)ctx;
	(void)why;
	(void)cap;
}

/* What the guests that have said HELLO are here for. */
static void sort_guests(struct reception *r)
{
	struct hello h;
	struct link *l;
	pthread_mutex_lock(&r->lock);
	while ((l = guests_take(&r->guests, HELLO_WORKER, anybody, NULL, NULL, &h)))
		add_worker(r, l);
	while ((l = guests_take(&r->guests, HELLO_RELAY, anybody, NULL, NULL, &h)))
		add_relay(r, l, &h);
	pthread_mutex_unlock(&r->lock);
	guests_refuse(&r->guests, GUESTS_ALL,
		      "this is the coordinator: workers connect here, and nobody else");
}

/* Who was removed from the list loses its links, also in the middle of a job. */
static void throw_out(struct reception *r, const struct peer_list *l)
{
	pthread_mutex_lock(&r->lock);
	for (int k = 0; k < r->n; k++) {
		struct waiting *w = &r->worker[k];
		if (w->removed || peer_list_by_key(l, w->key))
			continue;
		w->removed = true;
		net_forbid(r->net, w->key);
	}
	pthread_mutex_unlock(&r->lock);
}

/* Also peers that the job has no work for: they wait here for the next one. */
static int allow_peers(struct reception *r, struct err *e)
{
	struct peer_list l;
	TRY(peer_list_read(&l, e));
	int rc = 0;
	for (size_t i = 0; i < l.n && rc >= 0; i++)
		rc = net_allow(r->net, l.peer[i].key, e);
	peer_list_release(&l);
	return rc;
}

static void look_at_list(struct reception *r)
{
	struct peer_list l;
	struct err ignored = { 0 };
	if (clock_now() < r->look_at)
		return;
	if (r->n && peer_list_read(&l, &ignored) >= 0) {
		throw_out(r, &l);
		peer_list_release(&l);
	}
	r->look_at = net_in(look_every);
	const int64_t until = invitations_until();
	if (until != r->until) /* who tried an old token too often can use a new one */
		r->askers.nwrong = 0;
	r->until = until;
	net_admit(r->net, until != 0);
	if (r->askers.joined[0] && allow_peers(r, &ignored) >= 0) { /* there may be several */
		log_info("'%s' has joined by invitation; jobs that begin from now on can use it",
			 r->askers.joined);
		r->askers.joined[0] = 0;
	}
}

static void unproven(void *ctx, struct link *l)
{
	askers_add(&((struct reception *)ctx)->askers, l);
}

static void *run(void *ctx)
{
	struct reception *r = ctx;
	while (!r->quit) {
		bool soon;
		guests_let_in(&r->guests);
		askers_hear(&r->askers);
		if (r->askers.joined[0]) /* it connects again at once */
			r->look_at = 0;
		look_at_list(r);
		sort_guests(r);
		pthread_mutex_lock(&r->lock);
		bool moved = relays_work(&r->relays);
		size_t n = relays_poll(&r->relays, r->poll, &soon);
		pthread_mutex_unlock(&r->lock);
		n += guests_poll(&r->guests, r->poll + n);
		n += askers_poll(&r->askers, r->poll + n);
		net_poll(r->net, r->poll, n, moved ? NET_NOW : net_in(soon ? 0.005 : 0.2));
	}
	return NULL;
}

static void release(struct reception *r)
{
	guests_close(&r->guests);
	askers_close(&r->askers);
	relays_close(&r->relays);
	for (int k = 0; k < r->n; k++)
		if (r->worker[k].link)
			link_close(r->worker[k].link);
	pthread_mutex_destroy(&r->lock);
	mem_free(r->poll);
	mem_free(r);
}

int reception_open(struct net *n, const char *key, struct reception **r_p, struct err *e)
{
	enum { ITEMS = 2 * RECEPTION_PAIRS + GUESTS_POLLS + ASKERS_MOST };
	struct reception *r = mem_zalloc(sizeof *r);
	struct net_poll *poll = mem_array(ITEMS, sizeof *poll);
	if (!r || !poll) {
		mem_free(r);
		mem_free(poll);
		return err_nomem(e, ITEMS * sizeof *poll, "the coordinator's port");
	}
	r->net = n;
	r->poll = poll;
	snprintf(r->key, sizeof r->key, "%s", key);
	r->guests = (struct guests){ .net = n, .unproven = unproven, .ctx = r, .hold = true };
	r->askers.coordinator = r->key;
	r->relays = (struct relays){ .net = n, .most = RECEPTION_PAIRS };
	pthread_mutex_init(&r->lock, NULL);
	int rc = allow_peers(r, e);
	if (rc < 0) {
		release(r);
		return rc;
	}
	rc = pthread_create(&r->thread, NULL, run, r);
	if (rc) {
		release(r);
		return err_sys(e, rc, "starting the thread of the coordinator's port");
	}
	*r_p = r;
	return 0;
}

void reception_close(struct reception *r)
{
	if (!r)
		return;
	r->quit = true;
	net_wake(r->net);
	pthread_join(r->thread, NULL);
	release(r);
}
