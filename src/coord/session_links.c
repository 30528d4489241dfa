/* SPDX-License-Identifier: Apache-2.0 */
/* session_links.c - see session_links.h; what is kept on disk is in links_cache.c. */
#include "coord/session_links.h"

#include "base/log.h"
#include "base/mem.h"
#include "net/address.h"
#include "coord/links_cache.h"
#include "coord/session_priv.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* ---- figures ---- */

static uint64_t usual(const struct links_options *o) { return o->message ? o->message : 1 << 20; }

double link_rate(const struct link_row *r, bool back, uint64_t message)
{
	const struct probe_rate *v = back ? r->way.in : r->way.out;
	double best = INFINITY, rate = 0;
	for (int i = 0; i < PROBE_SIZES && v[i].rounds; i++) {
		double d =
			fabs(log2((double)(message ? message : 1)) - log2((double)probe_size[i]));
		if (d < best) {
			best = d;
			rate = v[i].rate;
		}
	}
	return rate;
}

/* What one message there and one back take. */
static double cost(const struct link_row *r, uint64_t message)
{
	if (!r->way.reached)
		return INFINITY;
	return 2 * r->way.latency + (double)message / link_rate(r, false, message) +
	       (double)message / link_rate(r, true, message);
}

static const struct link_row *best_of(const struct link_table *t, int a, int b, bool *turned_p)
{
	for (size_t i = 0; i < t->n; i++) {
		const struct link_row *r = &t->row[i];
		bool straight = r->from_machine == a && r->to_machine == b,
		     turned = r->from_machine == b && r->to_machine == a;
		if (r->best && (straight || turned)) {
			*turned_p = !straight;
			return r;
		}
	}
	return NULL;
}

const struct link_row *link_best(const struct link_table *t, int a, int b, bool *turned_p)
{
	return best_of(t, t->machine[a], t->machine[b], turned_p);
}

void link_table_free(struct link_table *t)
{
	if (!t)
		return;
	mem_free((void *)(uintptr_t)t->machine);
	mem_free(t->name);
	mem_free(t->row);
	mem_free(t);
}

/* ---- what there is to measure ---- */

static int table_new(struct session *s, struct link_table **t_p, struct err *e)
{
	struct link_table *t = mem_zalloc(sizeof *t);
	int *machine = mem_array((size_t)s->n, sizeof *machine);
	char(*name)[MACHINE_TEXT] = mem_array((size_t)s->n, sizeof *name);
	if (!t || !machine || !name) {
		mem_free(t);
		mem_free(machine);
		mem_free(name);
		return err_nomem(e, sizeof *t, "links");
	}
	for (int i = 0; i < s->n; i++) {
		machine[i] = t->machines;
		for (int k = 0; k < i && machine[i] == t->machines; k++)
			if (!strcmp(s->caps[i].machine, s->caps[k].machine))
				machine[i] = machine[k];
		if (machine[i] == t->machines)
			memcpy(name[t->machines++], s->caps[i].machine, sizeof *name);
	}
	t->machine = machine;
	t->name = name;
	*t_p = t;
	return 0;
}

static int add_row(struct link_table *t, const struct link_row *r, struct err *e)
{
	if (!mem_grow(&t->row, &t->cap, t->n + 1, sizeof *t->row))
		return err_nomem(e, (t->n + 1) * sizeof *t->row, "links");
	t->row[t->n] = *r;
	t->row[t->n].from_machine = t->machine[r->from];
	t->row[t->n++].to_machine = t->machine[r->to];
	return 0;
}

/* The number that the configuration's address of a worker stands for; "" where it has none (mpi,
 * loop) or the name is not known here. */
static void configured(const struct session *s, int i, char host[NET_ADDRESS])
{
	char number[NET_ADDRESS];
	bool loopback;
	unsigned port;
	struct err ignored = { 0 };
	host[0] = 0;
	if (s->caps[i].port &&
	    address_resolve(s->seat[i].seat.spec->address, false, number, &loopback, &ignored) >= 0)
		address_parts(number, host, &port);
}

static const struct interface *find(const struct welcome *w, const char *address)
{
	for (uint32_t i = 0; i < w->naddress; i++)
		if (!strcmp(w->address[i].address, address))
			return &w->address[i];
	return NULL;
}

/* How likely two addresses share a wire: equal characters at the front, nothing
 * between families. */
static int likeness(const char *a, const char *b)
{
	int n = 0;
	if (!a[0])
		return 0;
	if (!strchr(a, ':') != !strchr(b, ':'))
		return -1;
	while (a[n] && a[n] == b[n])
		n++;
	return n;
}

static bool before(const struct link_row *a, const struct link_row *b)
{
	if (a->configured != b->configured)
		return a->configured;
	return likeness(a->from_address, a->to_address) > likeness(b->from_address, b->to_address);
}

static int add_way(struct link_table *t, size_t first, const struct link_row *r, struct err *e)
{
	TRY(add_row(t, r, e));
	for (size_t i = t->n - 1; i > first && before(&t->row[i], &t->row[i - 1]); i--) {
		struct link_row swap = t->row[i];
		t->row[i] = t->row[i - 1];
		t->row[i - 1] = swap;
	}
	if (t->n - first > PROBE_WAYS_MOST)
		t->n--;
	return 0;
}

/* Every way from worker a to worker b, the likeliest first. */
static int ways(struct session *s, struct link_table *t, int a, int b, struct err *e)
{
	const struct welcome *wa = &s->caps[a], *wb = &s->caps[b];
	size_t first = t->n;
	char host[NET_ADDRESS];
	configured(s, b, host);
	bool same = t->machine[a] == t->machine[b];
	for (uint32_t k = 0; !same && k < wb->naddress; k++) {
		const struct interface *to = &wb->address[k];
		/* the same private network on both, a container bridge: dialling it stays
		 * at home */
		if (find(wa, to->address))
			continue;
		for (uint32_t i = 0; i < wa->naddress; i++) {
			struct link_row r = { .from = a,
					      .to = b,
					      .configured = !strcmp(to->address, host) };
			if (likeness(wa->address[i].address, to->address) < 0)
				continue;
			memcpy(r.from_address, wa->address[i].address, sizeof r.from_address);
			memcpy(r.from_interface, wa->address[i].name, sizeof r.from_interface);
			memcpy(r.to_address, to->address, sizeof r.to_address);
			memcpy(r.to_interface, to->name, sizeof r.to_interface);
			TRY(add_way(t, first, &r, e));
		}
	}
	bool listed = false;
	for (size_t i = first; i < t->n; i++)
		listed |= t->row[i].configured;
	if (listed)
		return 0;
	/* An address that the machine does not know of (a router's, a tunnel's), or one without
	 * numbers (mpi, loop). */
	struct link_row r = { .from = a, .to = b, .configured = true };
	snprintf(r.to_address, sizeof r.to_address, "%.63s", host);
	return add_way(t, first, &r, e);
}

static void dial_text(const struct session *s, const struct link_row *r, char out[NET_ADDRESS])
{
	char to[NET_ADDRESS];
	if (!r->from_address[0]) {
		snprintf(out, NET_ADDRESS, "%s", s->seat[r->to].seat.spec->address);
		return;
	}
	address_join(r->to_address, s->caps[r->to].port, to);
	snprintf(out, NET_ADDRESS, "%.63s;%.230s", r->from_address, to);
}

/* ---- asking the workers ---- */

static int order(struct session *s, int worker, const struct probe_order *o, struct err *e)
{
	TRY(probe_order_write(o, &s->out, e));
	return session_send(s, worker, FRAME_PROBE, 0, 0, s->out.p, s->out.n, e);
}

static int confirmed(struct session *s, int worker, struct err *e)
{
	struct net_msg msg;
	struct frame f;
	TRY(session_recv(s, worker, FRAME_PROBED, 0, &msg, &f, e));
	net_msg_release(&msg);
	return 0;
}

static void other_side(const struct session *s, int i, struct probe_order *o)
{
	const struct seat_spec *p = s->seat[i].seat.spec;
	snprintf(o->id, sizeof o->id, "%s", p->id);
	snprintf(o->key, sizeof o->key, "%s", p->key ? p->key : "");
}

/* Rows [first, n) of the table, all between the same two workers. */
static int measure(struct session *s, struct link_table *t, size_t first, double seconds,
		   struct err *e)
{
	int a = t->row[first].from, b = t->row[first].to;
	uint32_t n = (uint32_t)(t->n - first);
	struct probe_order *o = mem_zalloc(sizeof *o);
	struct probe_way *v = mem_array(n, sizeof *v);
	struct net_msg msg;
	struct frame f;
	int rc = o && v ? 0 : err_nomem(e, n * sizeof *v, "links");
	if (rc < 0)
		goto out;
	o->mode = PROBE_ANSWER;
	o->seconds = seconds;
	other_side(s, a, o);
	TRYOUT(order(s, b, o, e));
	TRYOUT(confirmed(s, b, e));
	o->mode = PROBE_MEASURE;
	other_side(s, b, o);
	for (o->n = 0; o->n < n; o->n++)
		dial_text(s, &t->row[first + o->n], o->address[o->n]);
	TRYOUT(order(s, a, o, e));
	TRYOUT(session_recv(s, a, FRAME_PROBED, 0, &msg, &f, e));
	rc = probe_ways_read(&f, n, v, e);
	net_msg_release(&msg);
	TRYOUT(rc);
	*o = (struct probe_order){ .mode = PROBE_STOP, .seconds = seconds };
	TRYOUT(order(s, b, o, e));
	TRYOUT(confirmed(s, b, e));
	for (uint32_t i = 0; i < n; i++)
		t->row[first + i].way = v[i];
out:
	mem_free(o);
	mem_free(v);
	return rc;
}

/* ---- the best one ---- */

static const char *shown(const struct link_row *r)
{
	return r->to_address[0] ? r->to_address : "the configured address";
}

/* Returns whether any was reached. */
static bool choose(const struct session *s, struct link_table *t, size_t first, uint64_t message)
{
	struct link_row *best = NULL, *usual_one = NULL;
	for (size_t i = first; i < t->n; i++) {
		struct link_row *r = &t->row[i];
		r->best = false;
		if (r->way.reached && r->configured &&
		    (!usual_one || cost(r, message) < cost(usual_one, message)))
			usual_one = r;
		if (r->way.reached && (!best || cost(r, message) < cost(best, message)))
			best = r;
	}
	if (!best)
		return false;
	/* A few per cent are noise: what the user wrote stays. */
	if (usual_one && cost(usual_one, message) < 1.03 * cost(best, message))
		best = usual_one;
	best->best = true;
	if (best->configured)
		return true;
	const char *id = s->seat[best->to].seat.spec->id;
	double mb = link_rate(best, false, message) * 1e-6;
	if (usual_one)
		log_info("worker '%s': %s gives %.3g MB/s, %s gives %.3g MB/s: using %s", id,
			 shown(usual_one), link_rate(usual_one, false, message) * 1e-6, shown(best),
			 mb, shown(best));
	else
		log_info("worker '%s': its configured address cannot be reached from worker '%s', "
			 "%s gives %.3g MB/s: using %s",
			 id, s->seat[best->from].seat.spec->id, shown(best), mb, shown(best));
	return true;
}

static int one_pair(struct session *s, struct link_table *t, int a, int b,
		    const struct links_options *o, struct err *e)
{
	size_t first = t->n;
	for (int turn = 0; turn < 2; turn++) {
		t->n = first;
		TRY(ways(s, t, turn ? b : a, turn ? a : b, e));
		if (!o->refresh && links_cache_read(s, t, first)) {
			if (choose(s, t, first, usual(o)))
				return 0;
			continue;
		}
		double seconds = o->seconds > 0 ? o->seconds : 1, n = (double)(t->n - first);
		/* Machines with many addresses get less time for each. */
		TRY(measure(s, t, first, n > 4 ? fmax(seconds * 4 / n, 0.2 * seconds) : seconds,
			    e));
		links_cache_write(s, t, first);
		if (choose(s, t, first, usual(o)))
			return 0;
	}
	log_warn("%s and %s cannot reach each other (%s): the plan makes no neighbours of them; "
		 "when the way is open, 'heteroshard profile --refresh CONFIG' sees it at once, "
		 "any other command after %d minutes",
		 s->seat[a].name, s->seat[b].name, t->row[first].way.why,
		 LINKS_UNREACHABLE_MINUTES);
	return 0;
}

/* The first worker of machine `m` that is not `not_this`; -1: none. */
static int spokesman(const struct session *s, const struct link_table *t, int m, int not_this)
{
	for (int i = 0; i < s->n; i++)
		if (t->machine[i] == m && i != not_this)
			return i;
	return -1;
}

int session_measure_links(struct session *s, const struct links_options *o,
			  const struct link_table **t_p, struct err *e)
{
	struct link_table *t = NULL;
	TRY(table_new(s, &t, e));
	uint64_t all = (uint64_t)t->machines * (uint64_t)(t->machines + 1) / 2, done = 0;
	int rc = 0;
	for (int x = 0; x < t->machines && rc >= 0; x++)
		for (int y = x; y < t->machines && rc >= 0; y++) {
			int a = spokesman(s, t, x, -1), b = spokesman(s, t, y, x == y ? a : -1);
			if (o->part)
				o->part(o->ctx, "measuring links", done++, all);
			if (o->stop && *o->stop)
				rc = err_set(e, ERR_CANCELLED,
					     "interrupted while links were measured");
			else if (b >= 0)
				rc = one_pair(s, t, a, b, o, e);
		}
	if (rc < 0) {
		link_table_free(t);
		return rc;
	}
	if (o->part)
		o->part(o->ctx, "measuring links", all, all);
	link_table_free(s->links);
	s->links = t;
	*t_p = t;
	return 0;
}

/* ---- what a plan then says ---- */

void session_recall_links(struct session *s)
{
	struct link_table *t;
	struct err ignored = { 0 };
	if (s->links || table_new(s, &t, &ignored) < 0)
		return;
	for (int x = 0; x < t->machines; x++)
		for (int y = x + 1; y < t->machines; y++) {
			int a = spokesman(s, t, x, -1), b = spokesman(s, t, y, -1);
			size_t first = t->n;
			bool known = false;
			for (int turn = 0; turn < 2 && !known; turn++) {
				t->n = first;
				known = ways(s, t, turn ? b : a, turn ? a : b, &ignored) >= 0 &&
					links_cache_read(s, t, first) &&
					choose(s, t, first, 1 << 20);
			}
			if (!known)
				t->n = first;
		}
	s->links = t;
}

static int machine_of(const struct session *s, int worker)
{
	for (int m = 0; s->links && m < s->links->machines; m++)
		if (!strcmp(s->links->name[m], s->caps[worker].machine))
			return m;
	return -1;
}

bool session_best_address(const struct session *s, int from, int to, char address[NET_ADDRESS])
{
	int a = machine_of(s, from), b = machine_of(s, to);
	bool turned = false;
	const struct link_row *r =
		a >= 0 && b >= 0 && a != b ? best_of(s->links, a, b, &turned) : NULL;
	char host[NET_ADDRESS];
	if (!r || !r->from_address[0])
		return false;
	const char *own = turned ? r->to_address : r->from_address,
		   *there = turned ? r->from_address : r->to_address;
	/* Another worker of the machine may listen at fewer addresses. */
	if (!find(&s->caps[from], own) || !find(&s->caps[to], there))
		return false;
	address_join(there, s->caps[to].port, host);
	snprintf(address, NET_ADDRESS, "%.63s;%.230s", own, host);
	return true;
}
