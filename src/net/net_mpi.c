/* SPDX-License-Identifier: Apache-2.0 */
/* net_mpi.c - links over MPI, for clusters where it is how programs are started: `mpirun -n 3
 * heteroshard train job.yaml`.
 *
 * Addresses are "rank:N". MPI decides who takes part: there are no keys, identity is the rank. One
 * end per process, since MPI can be started only once; its own thread makes every MPI call. MPI has
 * no wait that ends at a time or by a signal, so that thread polls, at intervals that grow while
 * nothing arrives; a send of this process wakes it.
 *
 * A link is a pair of ranks and a number that the dialling side chose; both stand in the tag:
 * number << 2 | dialled by the lower rank << 1 | control. Control messages are 24 bytes: type, a, b
 * as u64 in this machine's order (one MPI job has one). HELLO, with window and largest message, is
 * the first thing from either side; CREDIT says how many bytes were taken; BYE is the last thing
 * and answered with one; ALIVE goes out every quarter of peer_timeout. MPI keeps messages of one
 * pair in order. */
#include "net/net_priv.h"

#ifdef HAVE_MPI

#include <mpi.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/os_calls.h"
#include "net/mpi_group.h"

enum { CTL_HELLO = 1, CTL_CREDIT, CTL_BYE, CTL_ALIVE };
/* A collective goes on only while MPI is called. */
enum { MOST_LINKS = 8000, IDLE_LOOKS = 200, LONGEST_NAP = 400 /* us */, SUM_NAP = 20 };

struct ctl {
	uint64_t type, a, b;
};

enum mstate {
	M_DIALING,
	M_WAITING /* a HELLO has come, nobody listens yet */,
	M_UP,
	M_LEAVING,
	M_GONE
};

struct mlink {
	struct mlink *next;
	struct hub *hub;
	struct link *link;
	int rank, tag;
	enum mstate state;
	bool orphan;           /* ended before it was given to the user */
	bool shut, shut_now;   /* under the hub's lock; what the thread has seen */
	uint64_t untold, tell; /* likewise */
	uint64_t window, most; /* of the peer's hello, while waiting */
	int64_t dial_deadline, heard, next_alive;
	struct net_node *pending, **pending_end;
};

/* A message on its way out or in, with its request. */
struct transfer {
	MPI_Request request;
	struct net_node *node;
	struct mlink *ml; /* in: whose it is; holds a reference */
	struct transfer *next;
	struct ctl ctl;
	bool is_ctl;
};

struct hub {
	struct net *net;
	pthread_t thread;
	pthread_mutex_t lock;
	pthread_cond_t started, wake;
	/* under the lock: */
	int begun;                  /* 0 not yet, 1 yes, -1 failed */
	bool quit, listening, busy; /* busy: something for the thread to look at */
	int64_t quit_by;
	struct net_node *out, **out_end;
	struct mlink *fresh;
	int number;
	/* set once by the thread */
	int rank, size, local;
	/* the thread's own */
	MPI_Comm comm;
	struct mlink *links;
	struct transfer *sends, *in, **in_end, *spare;
	bool quitting, heard_something, may_accept;
	struct mpi_groups groups;
};

static pthread_mutex_t once = PTHREAD_MUTEX_INITIALIZER;
static bool used;

/* ---- the thread ----------------------------------------------------------------------------- */

static struct transfer *transfer_new(struct hub *h)
{
	struct transfer *t = h->spare;
	if (t)
		h->spare = t->next;
	else
		t = mem_alloc(sizeof *t);
	if (t)
		memset(t, 0, sizeof *t);
	return t;
}

static void transfer_free(struct hub *h, struct transfer *t)
{
	t->next = h->spare;
	h->spare = t;
}

static void lost(struct mlink *ml, int code, const char *what)
{
	net_link_lost(ml->link, code, "%s: %s", ml->link->address, what);
	ml->state = M_GONE;
}

static void send_ctl(struct mlink *ml, uint64_t type, uint64_t a, uint64_t b)
{
	struct hub *h = ml->hub;
	struct transfer *t = transfer_new(h);
	if (!t) {
		lost(ml, ERR_NOMEM, "out of memory");
		return;
	}
	t->ctl = (struct ctl){ type, a, b };
	if (MPI_Isend(&t->ctl, sizeof t->ctl, MPI_BYTE, ml->rank, ml->tag | 1, h->comm,
		      &t->request) != MPI_SUCCESS) {
		transfer_free(h, t);
		lost(ml, ERR_NET, "MPI cannot send");
		return;
	}
	t->next = h->sends;
	h->sends = t;
}

static void send_node(struct mlink *ml, struct net_node *node)
{
	struct hub *h = ml->hub;
	struct transfer *t = ml->state == M_UP ? transfer_new(h) : NULL;
	if (!t || MPI_Isend(node->data, (int)node->size, MPI_BYTE, ml->rank, ml->tag, h->comm,
			    &t->request) != MPI_SUCCESS) {
		if (ml->state == M_UP)
			lost(ml, t ? ERR_NET : ERR_NOMEM, t ? "MPI cannot send" : "out of memory");
		if (t)
			transfer_free(h, t);
		net_node_done(node);
		return;
	}
	t->node = node;
	t->next = h->sends;
	h->sends = t;
}

static void go_up(struct mlink *ml, uint64_t window, uint64_t most, bool accept)
{
	ml->state = M_UP;
	net_link_up(ml->link, window, net_slack(window), most, accept);
	struct net_node *n = ml->pending;
	ml->pending = NULL;
	ml->pending_end = &ml->pending;
	for (struct net_node *next; n; n = next) {
		next = n->next;
		send_node(ml, n);
	}
}

static void accept_waiting(struct mlink *ml)
{
	go_up(ml, ml->window, ml->most, true);
	send_ctl(ml, CTL_HELLO, ml->hub->net->o.window, ml->hub->net->o.max_message);
}

static struct mlink *mlink_new(struct hub *h, struct link *l, int rank, int number)
{
	struct mlink *ml = mem_zalloc(sizeof *ml);
	if (!ml)
		return NULL;
	ml->hub = h;
	ml->link = l;
	ml->rank = rank;
	ml->tag = number << 2;
	ml->pending_end = &ml->pending;
	ml->heard = clock_now();
	l->priv = ml;
	return ml;
}

static struct mlink *stranger(struct hub *h, int rank, int tag)
{
	char address[32];
	snprintf(address, sizeof address, "rank:%d", rank);
	struct link *l = net_link_new(h->net, address, NULL);
	struct mlink *ml = l ? mlink_new(h, l, rank, 0) : NULL;
	if (!ml) {
		if (l) {
			net_link_unref(l);
			link_close(l);
		}
		return NULL;
	}
	ml->tag = tag;
	ml->state = M_WAITING;
	ml->next = h->links;
	h->links = ml;
	return ml;
}

static void on_ctl(struct hub *h, struct mlink *ml, int rank, int tag, const struct ctl *c)
{
	/* Only a hello of the side that dialled begins a link; the answer to one that was given up
	 * does not. */
	bool dialled = (tag >> 1 & 1) == (rank < h->rank);
	if (!ml && c->type == CTL_HELLO && dialled && !h->quitting &&
	    (ml = stranger(h, rank, tag)) != NULL) {
		ml->window = c->a;
		ml->most = c->b;
		if (h->may_accept)
			accept_waiting(ml);
	} else if (!ml) {
		return;
	} else if (c->type == CTL_HELLO && ml->state == M_DIALING) {
		go_up(ml, c->a, c->b, false);
	} else if (c->type == CTL_CREDIT) {
		net_link_credit(ml->link, c->a);
	} else if (c->type == CTL_BYE) {
		if (ml->state != M_LEAVING) {
			net_link_lost(ml->link, ERR_NET, "%s: closed by the peer",
				      ml->link->address);
			send_ctl(ml, CTL_BYE, 0, 0);
		}
		ml->orphan = ml->state == M_WAITING;
		ml->state = M_GONE;
	} else if (c->type != CTL_ALIVE) {
		lost(ml, ERR_PROTOCOL, "the peer does not follow the protocol of links");
	}
}

static struct mlink *find(struct hub *h, int rank, int tag)
{
	for (struct mlink *ml = h->links; ml; ml = ml->next)
		if (ml->rank == rank && ml->tag == tag && ml->state != M_GONE)
			return ml;
	return NULL;
}

/* Begins to take every message that MPI has for us. */
static void begin_receives(struct hub *h)
{
	int there = 1;
	for (int i = 0; i < 64 && there; i++) {
		MPI_Message message;
		MPI_Status status;
		int n;
		if (MPI_Improbe(MPI_ANY_SOURCE, MPI_ANY_TAG, h->comm, &there, &message, &status) !=
			    MPI_SUCCESS ||
		    !there)
			return;
		h->heard_something = true;
		MPI_Get_count(&status, MPI_BYTE, &n);
		struct mlink *ml = find(h, status.MPI_SOURCE, status.MPI_TAG & ~1);
		struct transfer *t = transfer_new(h);
		struct net_node *node = net_node_new(h->net->pool);
		void *data = node ? net_pool_buffer(h->net->pool, (size_t)n) : NULL;
		if (!t || !data || (ml && (uint64_t)n > h->net->o.max_message)) {
			/* It must be received: MPI delivers nothing behind it before. */
			if (ml)
				lost(ml, data ? ERR_PROTOCOL : ERR_NOMEM,
				     data ? "message over the limit"
					  : "out of memory while receiving");
			void *bin = data ? data : mem_alloc((size_t)n + 1);
			if (bin)
				MPI_Mrecv(bin, n, MPI_BYTE, &message, &status);
			if (data)
				net_buffer_release(NULL, data);
			else
				mem_free(bin);
			if (node)
				net_node_free(node);
			if (t)
				transfer_free(h, t);
			continue;
		}
		node->data = data;
		node->size = (size_t)n;
		node->release = net_buffer_release;
		t->node = node;
		t->ml = ml;
		t->is_ctl = status.MPI_TAG & 1;
		t->ctl.a = (uint64_t)status.MPI_SOURCE;
		t->ctl.b = (uint64_t)(status.MPI_TAG & ~1);
		if (ml)
			net_link_ref(ml->link);
		MPI_Imrecv(data, n, MPI_BYTE, &message, &t->request);
		*h->in_end = t;
		h->in_end = &t->next;
	}
}

/* Hands out what is complete, in the order of arrival. */
static void finish_receives(struct hub *h)
{
	while (h->in) {
		struct transfer *t = h->in;
		int done = 0;
		if (MPI_Test(&t->request, &done, MPI_STATUS_IGNORE) != MPI_SUCCESS || !done)
			return;
		h->in = t->next;
		if (!h->in)
			h->in_end = &h->in;
		h->heard_something = true;
		struct link *l = t->ml ? t->ml->link : NULL;
		/* A hello may have made the link since. */
		struct mlink *ml = t->ml ? t->ml : find(h, (int)t->ctl.a, (int)t->ctl.b);
		if (ml)
			ml->heard = clock_now();
		struct ctl c;
		if (t->is_ctl && t->node->size == sizeof c) {
			memcpy(&c, t->node->data, sizeof c);
			on_ctl(h, ml && ml->state != M_GONE ? ml : NULL, (int)t->ctl.a,
			       (int)t->ctl.b, &c);
		}
		if (t->is_ctl || !ml || ml->state != M_UP || !net_link_deliver(ml->link, t->node))
			net_node_done(t->node);
		transfer_free(h, t);
		if (l)
			net_link_unref(l);
	}
}

static void finish_sends(struct hub *h)
{
	for (struct transfer **p = &h->sends; *p;) {
		struct transfer *t = *p;
		int done = 0;
		if (MPI_Test(&t->request, &done, MPI_STATUS_IGNORE) == MPI_SUCCESS && !done) {
			p = &t->next;
			continue;
		}
		*p = t->next;
		if (t->node)
			net_node_done(t->node);
		transfer_free(h, t);
		h->heard_something = true;
	}
}

static void take_orders(struct hub *h)
{
	pthread_mutex_lock(&h->lock);
	struct net_node *out = h->out;
	h->busy = false;
	h->out = NULL;
	h->out_end = &h->out;
	h->quitting = h->quit;
	h->may_accept = h->listening;
	struct mlink *fresh = h->fresh;
	h->fresh = NULL;
	for (struct mlink *next; fresh; fresh = next) {
		next = fresh->next;
		fresh->next = h->links;
		h->links = fresh;
		send_ctl(fresh, CTL_HELLO, h->net->o.window, h->net->o.max_message);
	}
	for (struct mlink *ml = h->links; ml; ml = ml->next) {
		ml->shut_now = ml->shut;
		ml->tell = ml->untold > net_slack(h->net->o.window) ? ml->untold : 0;
		ml->untold -= ml->tell;
	}
	pthread_mutex_unlock(&h->lock);
	if (out)
		h->heard_something = true;
	for (struct net_node *next; out; out = next) {
		next = out->next;
		struct mlink *ml;
		ml = out->room;
		struct link *l = ml->link;
		if (ml->state == M_DIALING) {
			out->next = NULL;
			*ml->pending_end = out;
			ml->pending_end = &out->next;
		} else {
			send_node(ml, out);
		}
		net_link_unref(l);
	}
}

static void look_after(struct hub *h, struct mlink *ml, int64_t now)
{
	double limit = h->net->o.peer_timeout;
	if (ml->state == M_WAITING && h->may_accept)
		accept_waiting(ml);
	if (ml->tell && ml->state == M_UP)
		send_ctl(ml, CTL_CREDIT, ml->tell, 0);
	if (ml->state == M_DIALING && now >= ml->dial_deadline)
		ml->shut_now = true; /* the core tells the user */
	if (ml->shut_now &&
	    (ml->state == M_UP || ml->state == M_WAITING || ml->state == M_DIALING)) {
		bool was_up = ml->state == M_UP;
		ml->state = was_up ? M_LEAVING : M_GONE;
		send_ctl(ml, CTL_BYE, 0, 0);
	}
	if ((ml->state == M_UP || ml->state == M_LEAVING) &&
	    (double)(now - ml->heard) > limit * 1e9)
		lost(ml, ERR_NET, "said nothing for too long");
	if (ml->state != M_GONE && now >= ml->next_alive) {
		ml->next_alive = now + (int64_t)(limit * 0.25e9);
		send_ctl(ml, CTL_ALIVE, 0, 0);
	}
}

static void sweep(struct hub *h)
{
	for (struct mlink **p = &h->links; *p;) {
		struct mlink *ml = *p;
		if (ml->state != M_GONE) {
			p = &ml->next;
			continue;
		}
		*p = ml->next;
		for (struct net_node *n = ml->pending, *next; n; n = next) {
			next = n->next;
			net_node_done(n);
		}
		net_link_lost(ml->link, ERR_NET, "%s: closed", ml->link->address);
		if (ml->orphan)
			link_close(ml->link);
		net_link_unref(ml->link);
	}
}

/* Lower ranks on this machine, without rank 0. */
static int lower_neighbours(struct hub *h)
{
	MPI_Comm here;
	int local = 0, lowest = h->rank;
	if (MPI_Comm_split_type(h->comm, MPI_COMM_TYPE_SHARED, h->rank, MPI_INFO_NULL, &here) !=
	    MPI_SUCCESS)
		return 0;
	MPI_Comm_rank(here, &local);
	MPI_Bcast(&lowest, 1, MPI_INT, 0, here);
	MPI_Comm_free(&here);
	return lowest == 0 && local > 0 ? local - 1 : local;
}

static bool begin(struct hub *h)
{
	int level, running = 0;
	MPI_Initialized(&running);
	bool ok = !running &&
		  MPI_Init_thread(NULL, NULL, MPI_THREAD_FUNNELED, &level) == MPI_SUCCESS &&
		  level >= MPI_THREAD_FUNNELED;
	ok = ok && MPI_Comm_dup(MPI_COMM_WORLD, &h->comm) == MPI_SUCCESS;
	if (ok) {
		MPI_Comm_set_errhandler(h->comm, MPI_ERRORS_RETURN);
		MPI_Comm_rank(h->comm, &h->rank);
		MPI_Comm_size(h->comm, &h->size);
		h->local = lower_neighbours(h);
		ok = mpi_groups_begin(&h->groups, h->comm);
	}
	pthread_mutex_lock(&h->lock);
	h->begun = ok ? 1 : -1;
	pthread_cond_broadcast(&h->started);
	pthread_mutex_unlock(&h->lock);
	return ok;
}

static void nap(struct hub *h, int us)
{
	const int64_t until = clock_now() + us * (int64_t)1000;
	pthread_mutex_lock(&h->lock);
	if (!h->busy)
		os_cond_wait(&h->wake, &h->lock, until);
	pthread_mutex_unlock(&h->lock);
}

/* Under the lock. */
static void rouse(struct hub *h)
{
	h->busy = true;
	pthread_cond_signal(&h->wake);
}

static void *hub_main(void *arg)
{
	struct hub *h = arg;
	int idle = 0;
	bool clean;
	if (!begin(h))
		return NULL;
	for (;;) {
		h->heard_something = false;
		take_orders(h);
		begin_receives(h);
		finish_receives(h);
		finish_sends(h);
		h->heard_something |= mpi_groups_work(&h->groups);
		int64_t now = clock_now();
		for (struct mlink *ml = h->links; ml; ml = ml->next)
			look_after(h, ml, now);
		sweep(h);
		clean = !h->links && !h->sends && !h->in && !mpi_groups_open(&h->groups);
		if (h->quitting && (clean || now >= h->quit_by))
			break;
		idle = h->heard_something ? 0 : idle + 1;
		const int most = mpi_groups_run(&h->groups) ? SUM_NAP : LONGEST_NAP;
		if (idle > IDLE_LOOKS)
			nap(h, idle - IDLE_LOOKS < most ? idle - IDLE_LOOKS : most);
	}
	for (struct mlink *ml = h->links; ml; ml = ml->next)
		ml->state = M_GONE;
	sweep(h);
	/* Finishing waits for every rank; after a loss that would be for ever, and leaving without
	 * it makes mpirun end the others. */
	if (clean)
		MPI_Finalize();
	return NULL;
}

/* ---- what users call ------------------------------------------------------------------------ */

static int mpi_open(struct net *n, struct err *e)
{
	if (n->o.key)
		return err_set(e, ERR_USAGE,
			       "mpi: has no keys: MPI decides who takes part; use tls between "
			       "machines that need them");
	pthread_mutex_lock(&once);
	bool first = !used;
	used = true;
	pthread_mutex_unlock(&once);
	if (!first)
		return err_set(e, ERR_UNSUPPORTED, "mpi: a process can begin MPI only once");
	struct hub *h = mem_zalloc(sizeof *h);
	if (!h)
		return err_nomem(e, sizeof *h, "a link end");
	if (n->o.max_message > INT32_MAX)
		n->o.max_message = INT32_MAX; /* MPI counts in int */
	h->net = n;
	h->out_end = &h->out;
	h->in_end = &h->in;
	mpi_groups_init(&h->groups, n);
	pthread_mutex_init(&h->lock, NULL);
	pthread_cond_init(&h->started, NULL);
	os_cond_init(&h->wake);
	sigset_t all, old;
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	int errnum = pthread_create(&h->thread, NULL, hub_main, h);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	int rc = errnum ? err_sys(e, errnum, "mpi: cannot start a thread") : 0;
	if (rc == 0) {
		pthread_mutex_lock(&h->lock);
		while (!h->begun)
			pthread_cond_wait(&h->started, &h->lock);
		pthread_mutex_unlock(&h->lock);
		if (h->begun < 0) {
			pthread_join(h->thread, NULL);
			rc = err_set(
				e, ERR_NET,
				"mpi: MPI does not start; run the program with mpirun or srun");
		}
	}
	if (rc < 0) {
		pthread_cond_destroy(&h->started);
		pthread_cond_destroy(&h->wake);
		pthread_mutex_destroy(&h->lock);
		mpi_groups_release(&h->groups);
		mem_free(h);
		return rc;
	}
	n->priv = h;
	return 0;
}

static void mpi_close(struct net *n, double linger)
{
	struct hub *h = n->priv;
	pthread_mutex_lock(&h->lock);
	h->quit = true;
	h->quit_by = net_in(linger);
	rouse(h);
	pthread_mutex_unlock(&h->lock);
	pthread_join(h->thread, NULL);
	bool under_way = h->sends || h->in || mpi_groups_open(&h->groups);
	for (struct transfer *t = h->spare, *next; t; t = next) {
		next = t->next;
		mem_free(t);
	}
	/* What MPI still reads or writes stays: the process is about to end without finishing
	 * MPI. */
	if (under_way)
		return;
	pthread_cond_destroy(&h->started);
	pthread_cond_destroy(&h->wake);
	pthread_mutex_destroy(&h->lock);
	mpi_groups_release(&h->groups);
	mem_free(h);
}

static int mpi_listen(struct net *n, const char *address, char bound_p[NET_ADDRESS], struct err *e)
{
	struct hub *h = n->priv;
	char own[32];
	snprintf(own, sizeof own, "rank:%d", h->rank);
	if (strcmp(address, "rank:*") != 0 && strcmp(address, own) != 0)
		return err_set(e, ERR_USAGE, "mpi: address '%s': this process is %s", address, own);
	snprintf(bound_p, NET_ADDRESS, "%s", own);
	pthread_mutex_lock(&h->lock);
	h->listening = true;
	pthread_mutex_unlock(&h->lock);
	return 0;
}

/* -1: it is none. */
static int rank_of(const struct hub *h, const char *address)
{
	char *end;
	long rank = strncmp(address, "rank:", 5) == 0 ? strtol(address + 5, &end, 10) : -1;
	return rank < 0 || *end || end == address + 5 || rank >= h->size ? -1 : (int)rank;
}

static int mpi_dial(struct link *l, const char *address, const char *peer_key, struct err *e)
{
	(void)peer_key;
	struct hub *h = l->net->priv;
	const int rank = rank_of(h, address);
	if (rank < 0 || rank == h->rank)
		return err_set(
			e, ERR_USAGE,
			"mpi: address '%s': expected rank:N, another of the %d ranks (this is %d)",
			address, h->size, h->rank);
	int rc = 0;
	struct mlink *ml = mlink_new(h, l, rank, 0);
	if (!ml)
		return err_nomem(e, sizeof *ml, "a link");
	ml->dial_deadline = l->dial_deadline;
	pthread_mutex_lock(&h->lock);
	if (h->number < MOST_LINKS) {
		ml->tag = h->number++ << 2 | (h->rank < rank) << 1;
		ml->next = h->fresh;
		h->fresh = ml;
		rouse(h);
	} else {
		rc = err_set(e, ERR_UNSUPPORTED, "mpi: more than %d links were made", MOST_LINKS);
	}
	pthread_mutex_unlock(&h->lock);
	return rc;
}

static void mpi_send(struct link *l, struct net_node *node)
{
	struct mlink *ml = l->priv;
	struct hub *h = ml->hub;
	node->room = ml;
	node->next = NULL;
	net_link_ref(l);
	pthread_mutex_lock(&h->lock);
	*h->out_end = node;
	h->out_end = &node->next;
	rouse(h);
	pthread_mutex_unlock(&h->lock);
}

static void mpi_taken(struct link *l, uint64_t cost)
{
	struct mlink *ml = l->priv;
	pthread_mutex_lock(&ml->hub->lock);
	ml->untold += cost;
	if (ml->untold > net_slack(l->net->o.window))
		rouse(ml->hub);
	pthread_mutex_unlock(&ml->hub->lock);
}

static void mpi_shut(struct link *l)
{
	struct mlink *ml = l->priv;
	pthread_mutex_lock(&ml->hub->lock);
	ml->shut = true;
	rouse(ml->hub);
	pthread_mutex_unlock(&ml->hub->lock);
}

static void mpi_freed(struct link *l) { mem_free(l->priv); }

static void mpi_world(struct net *n, struct net_ranks *r_p)
{
	const struct hub *h = n->priv;
	*r_p = (struct net_ranks){ h->rank, h->size, h->local };
}

static int mpi_make(struct net *n, const char *const *address, int members, struct net_group **g_p,
		    struct err *e)
{
	struct hub *h = n->priv;
	int *rank = mem_array((size_t)members, sizeof *rank), me = 0, rc = 0;
	if (!rank)
		return err_nomem(e, (size_t)members * sizeof *rank, "a group");
	for (int i = 0; i < members && rc >= 0; i++) {
		rank[i] = rank_of(h, address[i]);
		me += rank[i] == h->rank;
		if (rank[i] < 0)
			rc = err_set(e, ERR_USAGE, "mpi: a group has '%.100s': expected rank:N",
				     address[i]);
		for (int k = 0; k < i && rc >= 0; k++)
			if (rank[k] == rank[i])
				rc = err_set(e, ERR_USAGE, "mpi: a group has rank %d twice",
					     rank[i]);
	}
	if (rc >= 0 && me != 1)
		rc = err_set(e, ERR_USAGE, "mpi: rank %d is not in the group", h->rank);
	if (rc >= 0)
		rc = mpi_group_make(&h->groups, rank, members, g_p, e);
	if (rc < 0)
		mem_free(rank);
	return rc;
}

static int mpi_sum(struct net_group *g, size_t count, struct err *e)
{
	TRY(mpi_group_begin(g, count, e));
	struct hub *h = net_group_net(g)->priv;
	pthread_mutex_lock(&h->lock);
	rouse(h);
	pthread_mutex_unlock(&h->lock);
	return 0;
}

const struct net_transport net_mpi = {
	.name = "mpi",
	.way = "MPI",
	.open = mpi_open,
	.close = mpi_close,
	.listen = mpi_listen,
	.dial = mpi_dial,
	.send = mpi_send,
	.taken = mpi_taken,
	.shut = mpi_shut,
	.freed = mpi_freed,
	.world = mpi_world,
	.group = mpi_make,
	.room = mpi_group_room,
	.sum = mpi_sum,
	.summed = mpi_group_done,
};

#endif
