/* SPDX-License-Identifier: Apache-2.0 */
/* links.c - see links.h. */
#include "coord/links.h"

#include "base/err.h"
#include "base/log.h"
#include "base/mem.h"
#include "net/address.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* ---- figures ---- */

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

/* The seconds of one message there and one back. */
static double round_trip_of(const struct link_row *r, uint64_t message)
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

void links_free(struct link_table *t)
{
	if (!t)
		return;
	mem_free((void *)(uintptr_t)t->machine);
	mem_free(t->name);
	mem_free(t->row);
	mem_free(t);
}

/* ---- ways ---- */

int links_new(const struct link_ends *s, struct link_table **t_p, struct err *e)
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
		machine[i] = -1;
		if (s->there && !s->there(s->ctx, i))
			continue;
		machine[i] = t->machines;
		for (int k = 0; k < i && machine[i] == t->machines; k++)
			if (machine[k] >= 0 && !strcmp(s->caps[i].machine, s->caps[k].machine))
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

/* The IP address of a worker's configured address; "" where it has none (mpi, loop) or the name
 * cannot be resolved here. */
static void resolve_configured(const struct link_ends *s, int i, char host[NET_ADDRESS])
{
	char number[NET_ADDRESS];
	bool loopback;
	unsigned port;
	struct err ignored = { 0 };
	host[0] = 0;
	if (s->caps[i].port &&
	    address_resolve(s->spec[i].address, false, number, &loopback, &ignored) >= 0)
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
	return a->configured != b->configured ? a->configured
					      : likeness(a->from_address, a->to_address) >
							likeness(b->from_address, b->to_address);
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

int links_relay(struct link_table *t, int a, int b, struct err *e)
{
	struct link_row r = { .from = a, .to = b, .configured = true };
	snprintf(r.to_address, sizeof r.to_address, "%s", MEMBER_RELAY);
	return add_row(t, &r, e);
}

static bool in_mesh(const struct link_ends *s, const struct interface *a)
{
	return net_range_has(s->mesh, s->nmesh, a->address);
}

static const struct interface *mesh_address(const struct link_ends *s, const struct welcome *w)
{
	for (uint32_t i = 0; i < w->naddress; i++)
		if (in_mesh(s, &w->address[i]))
			return &w->address[i];
	return NULL;
}

/* Between two machines of a mesh what is not private is between sites, where the mesh is used; and
 * the mesh is reached from the mesh. */
static bool may_go(const struct link_ends *s, bool both, const struct interface *from,
		   const struct interface *to)
{
	return in_mesh(s, from) == in_mesh(s, to) &&
	       (!both || in_mesh(s, to) || net_range_private(to->address));
}

int links_ways(const struct link_ends *s, struct link_table *t, int a, int b, struct err *e)
{
	const struct welcome *wa = &s->caps[a], *wb = &s->caps[b];
	size_t first = t->n;
	char host[NET_ADDRESS];
	resolve_configured(s, b, host);
	const bool both = mesh_address(s, wa) && mesh_address(s, wb);
	for (uint32_t k = 0; t->machine[a] != t->machine[b] && k < wb->naddress; k++) {
		const struct interface *to = &wb->address[k];
		/* Both machines have this address (a container bridge): a connection to it reaches
		 * worker a itself. */
		if (find(wa, to->address))
			continue;
		for (uint32_t i = 0; i < wa->naddress; i++) {
			struct link_row r = { .from = a,
					      .to = b,
					      .configured = !strcmp(to->address, host) };
			if (likeness(wa->address[i].address, to->address) < 0 ||
			    !may_go(s, both, &wa->address[i], to))
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
	/* an invited worker, on either side, knows only what is signed */
	const bool invited = s->spec[a].kind == SEAT_INVITED || s->spec[b].kind == SEAT_INVITED;
	if (listed || (invited && t->n > first))
		return 0;
	/* An address that the machine does not list (a router's, a tunnel's), or one that is not an
	 * IP address (mpi, loop). */
	struct link_row r = { .from = a, .to = b, .configured = true };
	snprintf(r.to_address, sizeof r.to_address, "%.63s", host);
	return add_way(t, first, &r, e);
}

/* ---- the best one ---- */

static const char *shown(const struct link_row *r)
{
	return r->to_address[0] ? r->to_address : "the configured address";
}

bool links_choose(const struct link_ends *s, struct link_table *t, size_t first, uint64_t message)
{
	struct link_row *best = NULL, *usual_one = NULL;
	bool is_configured = false; /* not so between invited workers */
	for (size_t i = first; i < t->n; i++) {
		struct link_row *r = &t->row[i];
		r->best = false;
		is_configured |= r->configured;
		if (r->way.reached && r->configured &&
		    (!usual_one || round_trip_of(r, message) < round_trip_of(usual_one, message)))
			usual_one = r;
		if (r->way.reached &&
		    (!best || round_trip_of(r, message) < round_trip_of(best, message)))
			best = r;
	}
	if (!best)
		return false;
	/* A few per cent are noise: then the configured address is kept. */
	if (usual_one && round_trip_of(usual_one, message) < 1.03 * round_trip_of(best, message))
		best = usual_one;
	best->best = true;
	if (best->configured || !is_configured)
		return true;
	const char *id = s->spec[best->to].id;
	double mb = link_rate(best, false, message) * 1e-6;
	if (usual_one)
		log_info("worker '%s': %s gives %.3g MB/s, %s gives %.3g MB/s: using %s", id,
			 shown(usual_one), link_rate(usual_one, false, message) * 1e-6, shown(best),
			 mb, shown(best));
	else
		log_info("worker '%s': its configured address cannot be reached from worker '%s', "
			 "%s gives %.3g MB/s: using %s",
			 id, s->spec[best->from].id, shown(best), mb, shown(best));
	return true;
}

int links_speaker(const struct link_ends *s, const struct link_table *t, int m, int not_this)
{
	for (int i = 0; i < s->n; i++)
		if (t->machine[i] == m && i != not_this)
			return i;
	return -1;
}

/* "OWN;HOST:PORT#SIGNATURE" (proto/ways.h): from one address of a machine to one that worker `to`
 * listed in its WELCOME. */
static void dial_text(const struct welcome *to, const char *own, const char *there,
		      char out[NET_ADDRESS])
{
	char host[NET_ADDRESS];
	const struct interface *at = find(to, there);
	const char *proof = at ? to->proof[at - to->address] : "";
	address_join(there, to->port, host);
	snprintf(out, NET_ADDRESS, "%.63s;%.100s%s%s", own, host, proof[0] ? "#" : "", proof);
}

void links_dial_text(const struct link_ends *s, const struct link_row *r, char out[NET_ADDRESS])
{
	if (!strcmp(r->to_address, MEMBER_RELAY))
		snprintf(out, NET_ADDRESS, "%s", MEMBER_RELAY);
	else if (r->from_address[0])
		dial_text(&s->caps[r->to], r->from_address, r->to_address, out);
	else if (s->spec[r->from].kind == SEAT_INVITED || s->spec[r->to].kind == SEAT_INVITED)
		links_own_address(s, &s->caps[r->to], "", out); /* of one machine: what is signed */
	else
		snprintf(out, NET_ADDRESS, "%s", s->spec[r->to].address);
}

/* ---- addresses for PLAN ---- */

void links_own_address(const struct link_ends *s, const struct welcome *w, const char *from,
		       char out[NET_ADDRESS])
{
	char host[NET_ADDRESS], at[NET_ADDRESS];
	unsigned port;
	out[0] = 0;
	address_parts(from, host, &port);
	const struct interface *a = mesh_address(s, w);
	a = a ? a : find(w, address_is_number(from) ? from : host);
	a = a || !w->naddress ? a : &w->address[0];
	if (!a)
		return;
	address_join(a->address, w->port, at);
	snprintf(out, NET_ADDRESS, "%.120s#%s", at, w->proof[a - w->address]);
}

static int machine_of(const struct link_ends *s, const struct link_table *t, int worker)
{
	for (int m = 0; t && m < t->machines; m++)
		if (!strcmp(t->name[m], s->caps[worker].machine))
			return m;
	return -1;
}

void links_address(const struct link_ends *s, const struct link_table *t, int self, int other,
		   bool front, char address[NET_ADDRESS])
{
	int a = machine_of(s, t, self), b = machine_of(s, t, other);
	bool turned = false;
	const struct link_row *r = a >= 0 && b >= 0 && a != b ? best_of(t, a, b, &turned) : NULL;
	if (r && !strcmp(r->to_address, MEMBER_RELAY)) {
		snprintf(address, NET_ADDRESS, "%s", MEMBER_RELAY);
		return;
	}
	if (!r || !r->from_address[0])
		return;
	/* only invited workers may be behind a router, where but one direction works */
	bool one_way = s->spec[self].kind == SEAT_INVITED || s->spec[other].kind == SEAT_INVITED;
	bool dials = one_way ? !turned : front;
	if (!dials) {
		if (front)
			snprintf(address, NET_ADDRESS, "%s", MEMBER_WAIT);
		return;
	}
	const char *own = turned ? r->to_address : r->from_address,
		   *there = turned ? r->from_address : r->to_address;
	/* Another worker of the machine may listen at fewer addresses. */
	if (find(&s->caps[self], own) && find(&s->caps[other], there))
		dial_text(&s->caps[other], own, there, address);
}
