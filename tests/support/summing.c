/* SPDX-License-Identifier: Apache-2.0 */
/* summing.c - see summing.h. */
#include "support/summing.h"

#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"
#include "net/frame.h"

struct err err;

/* ---- what is summed ---- */

enum { JOB = 9, NUMBERS = 300007 /* of a sum at most */ };
static float *gradients; /* [PASSES][NUMBERS] */

/* Numbers of very different size, so that another order gives another sum; and -0, which is +0 only
 * when zeros were added to it. */
int sums_gradients(void **state)
{
	const struct rng_key key = { { 3, 5 } };
	(void)state;
	gradients = mem_array((size_t)PASSES * NUMBERS, sizeof *gradients);
	for (size_t i = 0; gradients && i < (size_t)PASSES * NUMBERS; i++)
		gradients[i] = i % NUMBERS % 5 == 4
				       ? -0.0f
				       : rng_uniform(key, i, -1, 1) * ldexpf(1, (int)(i % 13));
	return gradients ? 0 : -1;
}

int sums_drop(void **state)
{
	(void)state;
	mem_free(gradients);
	return 0;
}

static float gradient(int microbatch, size_t i)
{
	return gradients[(size_t)microbatch * NUMBERS + i];
}

/* node(0, i) is a gradient; node(k, j) the sum of its two children, or the left one alone. */
static float node(int microbatches, int k, int j, size_t i)
{
	if (!k)
		return gradient(j, i);
	const float left = node(microbatches, k - 1, 2 * j, i);
	const int right = 2 * j + 1;
	return right << (k - 1) < microbatches ? left + node(microbatches, k - 1, right, i) : left;
}

float sums_tree(int microbatches, size_t i)
{
	int k = 0;
	while (1 << k < microbatches)
		k++;
	return node(microbatches, k, 0, i);
}

/* One term: a node of the tree, or all microbatches of a place one after the other. */
static float term_value(const struct sums *s, const struct sum_term *t, size_t i)
{
	if (s->order == SUM_EXACT) {
		int k = 0;
		while ((t->first >> k) << k == t->first && 1 << k < t->last - t->first)
			k++;
		return node(s->microbatches, k, t->first >> k, i);
	}
	float v = 0;
	bool any = false;
	for (int m = 0; m < s->microbatches; m++)
		if (s->place[m] == t->place) {
			v = any ? v + gradient(m, i) : gradient(m, i);
			any = true;
		}
	return v;
}

/* ---- members ---- */

struct early {
	struct net_msg msg;
	struct frame f;
	int place;
};

static void forget(struct member *m)
{
	for (size_t k = 0; k < m->n; k++)
		net_msg_release(&m->early[k].msg);
	m->n = 0;
}

void member_leave(struct member *m)
{
	forget(m);
	mem_free(m->early);
	m->early = NULL;
	m->cap = 0;
	if (m->net)
		net_close(m->net, 0);
	m->net = NULL;
}

/* Now and then a member is late. */
static void dawdle(struct member *m)
{
	if (!m->delayed)
		return;
	const uint64_t us = rng_below(m->delays, m->delay_at++, 6);
	if (us)
		usleep((useconds_t)(us * 40));
}

/* The moment at which this member is to die; a rank does so by itself. */
static int next_message(struct member *m, struct err *e)
{
	dawdle(m);
	if (m->all && m->ops == m->dies_at)
		raise(SIGKILL);
	return m->ops++ == m->dies_at ? err_set(e, ERR_CANCELLED, "this member dies") : 0;
}

static int take(struct member *m, int place, struct err *e)
{
	for (;;) {
		struct early x = { .place = place };
		int rc = link_recv_frame(m->link[place], NET_NOW, &x.msg, &x.f, e);
		if (rc <= 0)
			return rc;
		if (!mem_grow(&m->early, &m->cap, m->n + 1, sizeof *m->early)) {
			net_msg_release(&x.msg);
			return err_nomem(e, sizeof x, "messages");
		}
		m->early[m->n++] = x;
	}
}

static int send_numbers(void *ctx, int place, uint32_t number, const float *v, size_t count,
			struct err *e)
{
	struct member *m = ctx;
	const size_t bytes = count * sizeof *v;
	size_t n;
	TRY(next_message(m, e));
	unsigned char *p = net_buffer(m->net, FRAME_HEADER + bytes);
	if (!p)
		return err_nomem(e, bytes, "a message");
	memcpy(p + FRAME_HEADER, v, bytes);
	const struct frame f = { .kind = FRAME_SUM,
				 .dtype = DT_F32,
				 .job = JOB,
				 .step = m->step,
				 .from = FRAME_MEMBER(m->me),
				 .to = FRAME_MEMBER(place),
				 .microbatch = number,
				 .ndim = 1,
				 .dim = { count },
				 .payload = p + FRAME_HEADER };
	int rc = frame_encode(&f, p, FRAME_HEADER + bytes, &n, e);
	const int64_t deadline = net_in(patience);
	while (rc >= 0 &&
	       (rc = link_send(m->link[place], p, n, net_buffer_release, m->net, e)) == LINK_FULL) {
		struct net_poll poll[GROUP + 1] = { { m->link[place], NET_SEND, 0 } };
		size_t k = 1;
		for (int i = 0; i < GROUP; i++)
			if (m->link[i])
				poll[k++] = (struct net_poll){ m->link[i], NET_RECV, 0 };
		rc = net_poll(m->net, poll, k, deadline) || clock_now() < deadline
			     ? 0
			     : err_set(e, ERR_INTERNAL, "a hang: no room to send");
		for (int i = 0; i < GROUP && rc >= 0; i++)
			rc = m->link[i] ? take(m, i, e) : 0;
	}
	if (rc < 0)
		net_buffer_release(m->net, p);
	return rc;
}

static int receive_numbers(void *ctx, int place, uint32_t number, float *v, size_t count,
			   struct err *e)
{
	struct member *m = ctx;
	const int64_t deadline = net_in(patience);
	TRY(next_message(m, e));
	for (;;) {
		for (size_t k = 0; k < m->n; k++) {
			struct early *x = &m->early[k];
			if (x->place != place || x->f.microbatch != number)
				continue;
			int rc = x->f.kind == FRAME_SUM && x->f.step == m->step &&
						 x->f.from == FRAME_MEMBER(place) &&
						 x->f.to == FRAME_MEMBER(m->me) && x->f.ndim == 1 &&
						 x->f.dim[0] == count
					 ? 0
					 : err_set(e, ERR_INTERNAL, "message %u of place %d",
						   number, place);
			if (rc >= 0)
				memcpy(v, x->f.payload, count * sizeof *v);
			net_msg_release(&x->msg);
			*x = m->early[--m->n];
			return rc;
		}
		const size_t before = m->n;
		TRY(take(m, place, e));
		if (m->n > before)
			continue;
		if (!net_poll(m->net, &(struct net_poll){ m->link[place], NET_RECV, 0 }, 1,
			      deadline) &&
		    clock_now() > deadline)
			return err_set(e, ERR_INTERNAL, "a hang: no message %u of place %d", number,
				       place);
	}
}

static int has_numbers(void *ctx, int place, uint32_t number, struct err *e)
{
	struct member *m = ctx;
	TRY(take(m, place, e));
	for (size_t k = 0; k < m->n; k++)
		if (m->early[k].place == place && m->early[k].f.microbatch == number)
			return 1;
	return 0;
}

/* ---- the sum of the network itself (MPI) ---- */

static int send_all(void *ctx, const float *v, size_t count, struct err *e)
{
	struct member *m = ctx;
	float *to = net_group_room(m->all, count);
	if (!to)
		return err_nomem(e, count * sizeof *v, "a sum");
	memcpy(to, v, count * sizeof *v);
	TRY(net_group_sum(m->all, count, e));
	return next_message(m, e);
}

static int has_all(void *ctx, struct err *e)
{
	const struct member *m = ctx;
	return net_group_done(m->all, e);
}

static int receive_all(void *ctx, float *v, size_t count, struct err *e)
{
	struct member *m = ctx;
	const int64_t deadline = net_in(patience);
	int rc;
	TRY(next_message(m, e));
	while (!(rc = net_group_done(m->all, e))) {
		net_poll(m->net, NULL, 0, deadline);
		if (clock_now() > deadline)
			return err_set(e, ERR_INTERNAL, "a hang: no sum");
	}
	if (rc > 0)
		memcpy(v, net_group_room(m->all, count), count * sizeof *v);
	return rc < 0 ? rc : 0;
}

static int own_numbers(void *ctx, size_t k, size_t first, size_t count, float *v, struct err *e)
{
	struct member *m = ctx;
	const struct sum_terms *t = &m->terms;
	(void)e;
	for (int i = 0; i < t->n; i++) {
		if (t->term[i].place != m->me || k--)
			continue;
		for (size_t j = 0; j < count; j++)
			v[j] = term_value(m->sums, &t->term[i], first + j);
		return 0;
	}
	return err_set(e, ERR_INTERNAL, "a term that is not there");
}

/* Each number comes once. */
static int take_result(void *ctx, size_t first, size_t count, const float *v, struct err *e)
{
	struct member *m = ctx;
	for (size_t i = 0; i < count; i++) {
		if (first + i >= m->sums->count || !isnan(m->result[first + i]))
			return err_set(e, ERR_INTERNAL, "number %zu comes twice, or is none",
				       first + i);
		m->result[first + i] = v[i];
	}
	m->results += count;
	return 0;
}

/* ---- in rooms ---- */

/* Always a new one, of NaN: who counts on what was in it, or makes it for less, is noticed. */
static int make_room(void *ctx, int k, size_t count, struct err *e)
{
	struct member *m = ctx;
	assert_true(k >= 0 && k < PASSES);
	mem_free(m->room[k]);
	m->room[k] = mem_array(count, sizeof(float));
	m->made[k] = m->room[k] ? count : 0;
	for (size_t i = 0; i < m->made[k]; i++)
		m->room[k][i] = NAN;
	return m->room[k] ? 0 : err_nomem(e, count * sizeof(float), "a room");
}

static float *in_room(const struct member *m, struct reduce_at v, size_t count)
{
	assert_true(v.at + count <= m->made[v.room]);
	return m->room[v.room] + v.at;
}

static int own_there(void *ctx, size_t k, size_t first, size_t count, struct reduce_at to,
		     struct err *e)
{
	return own_numbers(ctx, k, first, count, in_room(ctx, to, count), e);
}

static int result_there(void *ctx, size_t first, size_t count, struct reduce_at from, struct err *e)
{
	return take_result(ctx, first, count, in_room(ctx, from, count), e);
}

static int send_there(void *ctx, int place, uint32_t number, struct reduce_at from, size_t count,
		      struct err *e)
{
	return send_numbers(ctx, place, number, in_room(ctx, from, count), count, e);
}

static int receive_there(void *ctx, int place, uint32_t number, struct reduce_at to, size_t count,
			 struct err *e)
{
	return receive_numbers(ctx, place, number, in_room(ctx, to, count), count, e);
}

static int add_there(void *ctx, struct reduce_at to, struct reduce_at from, size_t count,
		     struct err *e)
{
	float *sum = in_room(ctx, to, count);
	const float *other = in_room(ctx, from, count);
	(void)e;
	for (size_t i = 0; i < count; i++)
		sum[i] += other[i];
	return 0;
}

static int clear_there(void *ctx, struct reduce_at to, size_t count, struct err *e)
{
	(void)e;
	memset(in_room(ctx, to, count), 0, count * sizeof(float));
	return 0;
}

static const struct reduce_there there = { make_room,     own_there, result_there, send_there,
					   receive_there, add_there, clear_there };

/* The first time nobody adds so, then every second member, then all, then every third. */
static bool adds_there(const struct member *m)
{
	const uint64_t how = m->turn % 4;
	return how == 2 || (how == 1 && m->me % 2) || (how == 3 && m->me % 3 == 0);
}

void *member_run(void *ctx)
{
	struct member *m = ctx;
	const struct sums *s = m->sums;
	struct reduction r = { .how = m->how,
			       .io = { own_numbers, take_result, send_numbers, receive_numbers,
				       NULL, has_numbers, m, send_all, has_all, receive_all,
				       adds_there(m) ? &there : NULL },
			       .terms = &m->terms,
			       .me = m->me,
			       .n = s->n,
			       .count = s->count,
			       .cut = s->shared ? s->cut : NULL,
			       .largest = s->largest };
	bool computes = false;
	m->rc = sum_terms_find(&m->terms, s->order, s->place, s->microbatches, &m->e);
	for (int i = 0; i < s->microbatches; i++)
		computes |= s->place[i] == m->me;
	if (m->rc >= 0 && computes)
		m->rc = reduce_begin(&r, &m->e);
	for (int k = 0; k < m->advances && m->rc >= 0 && computes; k++) {
		dawdle(m);
		m->rc = reduce_advance(&r, &m->e);
	}
	if (m->rc >= 0)
		m->rc = reduce_finish(&r, &m->e);
	reduce_release(&r);
	for (int k = 0; k < PASSES; k++) {
		mem_free(m->room[k]);
		m->room[k] = NULL;
	}
	sum_terms_release(&m->terms);
	if (m->rc < 0)
		member_leave(m); /* as a worker does: those that wait for it notice */
	return NULL;
}

void group_make(struct group *g, const char *transport, int n, uint64_t window)
{
	static int number;
	memset(g, 0, sizeof *g);
	g->transport = transport;
	g->n = n;
	OK(key_pair_generate(&g->key, &err));
	for (int i = 0; i < n; i++) {
		struct member *m = &g->m[i];
		char word[32];
		m->me = i;
		m->dies_at = NEVER;
		OK(net_open(transport, &(struct net_options){ .key = &g->key, .window = window },
			    &m->net, &err));
		OK(net_allow(m->net, g->key.pub, &err));
		snprintf(word, sizeof word, "member-%d", number++);
		OK(net_listen(m->net, strcmp(transport, "loop") ? "127.0.0.1:0" : word, m->at,
			      &err));
	}
	for (int i = 0; i < n; i++)
		for (int j = i + 1; j < n; j++) {
			OK(net_connect(g->m[i].net, g->m[j].at, g->key.pub, net_in(patience),
				       &g->m[i].link[j], &err));
			assert_int_equal(
				net_accept(g->m[j].net, net_in(patience), &g->m[j].link[i], &err),
				1);
		}
}

void group_end(struct group *g)
{
	for (int i = 0; i < g->n; i++)
		member_leave(&g->m[i]);
}

/* All members at once. */
void group_sum_once(struct group *g, const struct sums *s, const struct reducer *how,
		    uint64_t delays)
{
	static uint64_t step;
	pthread_t thread[GROUP];
	step++;
	for (int i = 0; i < g->n; i++) {
		struct member *m = &g->m[i];
		m->sums = s;
		m->how = how;
		m->step = step;
		m->delayed = delays;
		m->turn = delays;
		m->advances = (int)(delays % 5) * 3;
		m->delays = rng_key(delays * 100 + (uint64_t)i);
		m->delay_at = 0;
		m->ops = 0;
		m->results = 0;
		m->e = (struct err){ 0 };
		m->result = mem_array(s->count + 1, sizeof *m->result);
		assert_non_null(m->result);
		for (size_t k = 0; k < s->count; k++)
			m->result[k] = NAN;
		assert_int_equal(pthread_create(&thread[i], NULL, member_run, m), 0);
	}
	for (int i = 0; i < g->n; i++)
		pthread_join(thread[i], NULL);
}

void group_drop(struct group *g)
{
	for (int i = 0; i < g->n; i++) {
		mem_free(g->m[i].result);
		g->m[i].result = NULL;
	}
}

/* The result of a member that ended well, which may be later than another's death. */
double member_check(const struct member *m)
{
	const struct sums *s = m->sums;
	double worst = 0;
	const size_t from = s->shared ? s->cut[m->me] : 0,
		     to = s->shared ? s->cut[m->me + 1] : s->count;
	assert_int_equal(m->results, to - from);
	for (size_t i = from; i < to; i++) {
		const float got = m->result[i];
		if (s->order == SUM_EXACT) {
			const float want = sums_tree(s->microbatches, i);
			if (memcmp(&got, &want, sizeof got))
				fail_msg("%s, %s: number %zu of place %d: %a, in the tree %a",
					 m->how->name, s->name, i, m->me, (double)got,
					 (double)want);
			continue;
		}
		double sum = 0, size = 0;
		for (int k = 0; k < s->microbatches; k++) {
			sum += (double)gradient(k, i);
			size += fabs((double)gradient(k, i));
		}
		const double d = fabs((double)got - sum) / (size + 1e-30);
		if (!(d <= s->microbatches * 0x1p-24))
			fail_msg("%s, %s: number %zu of place %d: %.9g, in float64 %.17g",
				 m->how->name, s->name, i, m->me, (double)got, sum);
		worst = fmax(worst, d);
	}
	return worst;
}
