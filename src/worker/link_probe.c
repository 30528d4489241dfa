/* SPDX-License-Identifier: Apache-2.0 */
/* link_probe.c - see link_probe.h.
 *
 * On a probing link the measuring side sends a request (PROBE: kind, size, count): PING is answered
 * by an empty PROBED, TAKE by one when `count` ACTIVATION frames of `size` bytes have arrived, GIVE
 * by `count` GRADIENT frames. */
#include "worker/link_probe.h"

#include "base/buf.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/stat.h"
#include "net/wire.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PING, TAKE, GIVE };
enum { PINGS = 31, ROUNDS = 15, COUNT_MOST = 1024 };
static const double reach = 1.5;    /* seconds in which an address must answer */
static const double answer_in = 10; /* seconds in which one round must end */

/* ---- sending the same bytes many times ---- */

struct parcel {
	int refs;
	size_t n;
	_Alignas(64) unsigned char bytes[];
};

static void parcel_done(void *ctx, void *data)
{
	struct parcel *p = ctx;
	(void)data;
	if (!__atomic_sub_fetch(&p->refs, 1, __ATOMIC_ACQ_REL))
		mem_free(p);
}

static int parcel_new(enum frame_kind kind, uint64_t size, struct parcel **p_p, struct err *e)
{
	struct parcel *p = mem_aligned(64, sizeof *p + FRAME_HEADER + size);
	if (!p)
		return err_nomem(e, size, "measuring a link");
	p->refs = 1;
	memset(p->bytes, 0, FRAME_HEADER + size);
	const struct frame f = { .kind = kind,
				 .dtype = DT_BF16,
				 .ndim = 1,
				 .dim = { size / 2 },
				 .size = size,
				 .payload = p->bytes + FRAME_HEADER };
	int rc = frame_encode(&f, p->bytes, FRAME_HEADER + size, &p->n, e);
	if (rc < 0)
		mem_free(p);
	else
		*p_p = p;
	return rc;
}

static int send_many(struct link *l, enum frame_kind kind, uint64_t size, uint32_t count,
		     struct err *e)
{
	struct parcel *p = NULL;
	int rc = 0;
	TRY(parcel_new(kind, size, &p, e));
	for (uint32_t i = 0; i < count && rc >= 0; i++) {
		__atomic_add_fetch(&p->refs, 1, __ATOMIC_RELAXED);
		rc = link_send_wait(l, p->bytes, p->n, parcel_done, p, net_in(answer_in), e);
		if (rc < 0)
			parcel_done(p, NULL);
	}
	parcel_done(p, NULL);
	return rc < 0 ? rc : 0;
}

/* ---- the measuring side ---- */

static int ask(struct link *l, unsigned what, uint64_t size, uint32_t count, struct err *e)
{
	unsigned char out[16];
	struct wire_writer w = wire_write(out, sizeof out);
	size_t n;
	wire_put_u8(&w, (uint8_t)what);
	wire_put_u64(&w, size);
	wire_put_u32(&w, count);
	TRY(wire_write_end(&w, &n, e));
	return link_send_frame(l, &(struct frame){ .kind = FRAME_PROBE, .size = n, .payload = out },
			       net_in(answer_in), e);
}

static int receive_kind(struct link *l, enum frame_kind kind, uint64_t size, struct err *e)
{
	struct net_msg m;
	struct frame f;
	int rc = link_recv_frame(l, net_in(answer_in), &m, &f, e);
	if (rc == 0)
		return err_set(e, ERR_NET, "%s: no message for %g s", link_address(l), answer_in);
	if (rc < 0)
		return rc;
	rc = f.kind == kind && f.size == size ? 0
					      : err_set(e, ERR_PROTOCOL, "%s where %s was due",
							frame_name(f.kind), frame_name(kind));
	net_msg_release(&m);
	return rc;
}

static int ping(struct link *l, double seconds, double *latency_p, struct err *e)
{
	double took[PINGS];
	int n = -1; /* the first is not counted */
	for (int64_t end = net_in(seconds / 3); n < PINGS && (n < 3 || clock_now() < end); n++) {
		int64_t began = clock_now();
		TRY(ask(l, PING, 0, 0, e));
		TRY(receive_kind(l, FRAME_PROBED, 0, e));
		if (n >= 0)
			took[n] = clock_seconds(clock_now() - began);
	}
	stat_sort(took, (size_t)n);
	*latency_p = took[n / 2] / 2;
	return 0;
}

/* Seconds from the first of `count` messages in one direction until the last has arrived. */
static int one_round(struct link *l, bool out, uint64_t size, uint32_t count, double *took_p,
		     struct err *e)
{
	int64_t began = clock_now();
	TRY(ask(l, out ? TAKE : GIVE, size, count, e));
	if (out)
		TRY(send_many(l, FRAME_ACTIVATION, size, count, e));
	for (uint32_t i = 0; !out && i < count; i++)
		TRY(receive_kind(l, FRAME_GRADIENT, size, e));
	if (out)
		TRY(receive_kind(l, FRAME_PROBED, 0, e));
	*took_p = clock_seconds(clock_now() - began);
	return 0;
}

struct asker {
	double seconds;
	bool (*stop)(void *ctx);
	void *ctx;
};

static bool stopped(const struct asker *a) { return a->stop && a->stop(a->ctx); }

/* One size in one direction. The number of messages of a round doubles until a round is long
 * enough. So a slow link takes no longer than necessary, and the initial burst of a token bucket is
 * a small part of a round. */
static int rate_of(struct link *l, const struct asker *a, bool out, uint64_t size, double latency,
		   struct probe_rate *r, struct err *e)
{
	double rate[ROUNDS], took, target = a->seconds / 12;
	uint32_t count = 1, most = (uint32_t)(((uint64_t)32 << 20) / size), n = 0;
	bool growing = true;
	for (int64_t begin = clock_now(); n < ROUNDS && !stopped(a);) {
		double so_far = clock_seconds(clock_now() - begin);
		if ((n >= 3 && so_far > a->seconds / 3) || (n >= 1 && so_far > 2 * a->seconds))
			break;
		TRY(one_round(l, out, size, count, &took, e));
		if (growing && took < target / 2 && count < most) {
			count *= 2;
			continue;
		}
		growing = false;
		/* The request, or its answer, takes one latency besides the data. */
		double net = took - 2 * latency;
		rate[n++] = (double)size * count / (net > took / 2 ? net : took / 2);
	}
	if (!n)
		return err_set(e, ERR_CANCELLED, "stopped while a link was measured");
	stat_sort(rate, n);
	/* Inside a machine what slows a round down is that a processor with a quota pauses, and
	 * that time is counted with its messages (plan/cost_talk.c): the faster rounds are the
	 * memory's. */
	const uint32_t at = strcmp(link_way(l), "shared memory") ? n / 2 : n * 3 / 4;
	*r = (struct probe_rate){ n, rate[at], (rate[n * 3 / 4] - rate[n / 4]) / rate[n / 2] };
	return 0;
}

static int measure_way(struct link *l, const struct asker *a, const struct hello *h,
		       struct probe_way *v, struct err *e)
{
	struct net_msg m;
	struct frame f;
	struct welcome w;
	TRY(hello_send(l, h, net_in(answer_in), e));
	int rc = link_recv_frame(l, net_in(answer_in), &m, &f, e);
	if (rc == 0)
		return err_set(e, ERR_NET, "%s: no WELCOME within %g s", link_address(l),
			       answer_in);
	if (rc < 0)
		return rc;
	rc = welcome_read(&f, &w, e);
	net_msg_release(&m);
	if (rc < 0)
		return rc;
	TRY(ping(l, a->seconds, &v->latency, e));
	for (int out = 1; out >= 0; out--) {
		struct probe_rate *r = out ? v->out : v->in;
		for (int i = 0; i < PROBE_SIZES; i++) {
			if (i && (double)probe_size[i] / r[i - 1].rate > 0.6 * a->seconds)
				break;
			TRY(rate_of(l, a, out, probe_size[i], v->latency, &r[i], e));
		}
	}
	v->reached = true;
	return 0;
}

int probe_measure(struct net *n, const struct probe_order *o, const struct hello *hello,
		  bool (*stop)(void *ctx), void *ctx, struct probe_way *v, struct err *e)
{
	enum { AT_ONCE = 12 }; /* the other side accepts few connections at a time */
	const struct asker a = { o->seconds, stop, ctx };
	const char *key = o->key[0] ? o->key : NULL;
	struct err why = { 0 };
	int rc = 0;
	for (uint32_t from = 0; from < o->n && rc >= 0; from += AT_ONCE) {
		uint32_t count = o->n - from < AT_ONCE ? o->n - from : AT_ONCE;
		struct link *l[AT_ONCE] = { NULL };
		int64_t deadline = net_in(reach);
		for (uint32_t i = 0; i < count; i++) {
			v[from + i] = (struct probe_way){ .reached = false };
			if (net_dial(n, o->address[from + i], key, deadline, &l[i], &why) < 0)
				snprintf(v[from + i].why, sizeof v->why, "%.199s", why.msg);
		}
		for (uint32_t i = 0; i < count; i++) {
			struct probe_way *w = &v[from + i];
			if (!l[i])
				continue;
			/* the connection attempt has a deadline */
			int got = link_wait_up(l[i], NET_FOREVER, &why);
			if (got >= 0 && rc >= 0)
				got = measure_way(l[i], &a, hello, w, &why);
			if (got < 0) {
				*w = (struct probe_way){ .reached = false };
				snprintf(w->why, sizeof w->why, "%.199s", why.msg);
			}
			link_close(l[i]);
			if (stopped(&a))
				rc = err_set(e, ERR_CANCELLED, "stopped while links were measured");
		}
	}
	return rc < 0 ? rc : 0;
}

/* ---- the answering side ---- */

int probe_answer(struct link *l, const struct frame *f, uint32_t *left_p, struct err *e)
{
	const struct frame done = { .kind = FRAME_PROBED };
	if (f->kind == FRAME_ACTIVATION && *left_p)
		return --*left_p ? 0 : link_send_frame(l, &done, net_in(answer_in), e);
	if (f->kind != FRAME_PROBE || *left_p)
		return err_set(e, ERR_PROTOCOL, "%s on a link that is measured",
			       frame_name(f->kind));
	struct wire_reader r = wire_read(f->payload, f->size);
	unsigned what = wire_get_u8(&r);
	uint64_t size = wire_get_u64(&r);
	uint32_t count = wire_get_u32(&r);
	TRY(wire_read_end(&r, "PROBE", e));
	if (what == PING)
		return link_send_frame(l, &done, net_in(answer_in), e);
	if (what > GIVE || !size || size % 2 || size > probe_size[PROBE_SIZES - 1] || !count ||
	    count > COUNT_MOST)
		return err_set(e, ERR_PROTOCOL, "PROBE: %u of %u messages of %llu bytes", what,
			       count, (unsigned long long)size);
	if (what == GIVE)
		return send_many(l, FRAME_GRADIENT, size, count, e);
	*left_p = count;
	return 0;
}

bool probe_answer_all(struct link *l, uint32_t *left_p)
{
	struct net_msg msg;
	struct frame f;
	struct err why = { 0 };
	int rc;
	while ((rc = link_recv_frame(l, NET_NOW, &msg, &f, &why)) > 0) {
		struct welcome w;
		rc = link_user(l) ? welcome_read(&f, &w, &why) : probe_answer(l, &f, left_p, &why);
		link_set_user(l, NULL);
		net_msg_release(&msg);
		if (rc < 0)
			break;
	}
	if (rc == ERR_PROTOCOL)
		log_warn("%s: %s", link_address(l), why.msg);
	return rc >= 0;
}
