/* SPDX-License-Identifier: Apache-2.0 */
/* speeds.c - see speeds.h. */
#include "train/speeds.h"

#include "base/err.h"
#include "base/log.h"
#include "base/mem.h"
#include "plan/rebalance.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* Without a plan's prediction a worker is named when it differs from what it needed in its first
 * steps by more than this, and by that much more than half of the workers do. */
static const double named = 2;
static const double least_moving = 1; /* seconds */

static enum config_rebalance mode(const struct trainer *t)
{
	const struct config *c = t->cfg;
	if (!t->stays)
		return REBALANCE_OFF;
	if (c->rebalance != REBALANCE_AUTO)
		return (enum config_rebalance)c->rebalance;
	return c->nshards || c->plan ? REBALANCE_SUGGEST : REBALANCE_ON;
}

int speeds_begin(struct trainer *t, struct err *e)
{
	const int n = session_members(t->ses);
	TRY(drift_init(&t->drift, n, e));
	t->moving = 1;
	t->usual = mem_array((size_t)n, sizeof *t->usual);
	t->sample = mem_array((size_t)n, sizeof *t->sample);
	if (!t->usual || !t->sample)
		return err_nomem(e, (uint64_t)n * sizeof *t->sample, "workers");
	memset(t->usual, 0, (size_t)n * sizeof *t->usual);
	return 0;
}

void speeds_end(struct trainer *t)
{
	drift_release(&t->drift);
	mem_free(t->usual);
	mem_free(t->sample);
}

void speeds_plan(struct trainer *t)
{
	drift_plan(&t->drift);
	for (int i = 0; i < t->drift.n && !t->planned; i++) {
		drift_forget(&t->drift, i);
		t->usual[i] = 0;
	}
}

/* ---- a step ---- */

/* What the plan expects of a row in this step. Where nothing was measured: what its first steps
 * took, so the first ones expect what they are. */
static double expected(struct trainer *t, int row, uint64_t tokens)
{
	const double busy = t->rounds.stages[row].busy;
	double *usual = &t->usual[t->rounds.member[row]];
	if (t->planned)
		return t->judge.member[row].planned->busy * judge_predict(&t->judge, tokens);
	const uint64_t n = t->drift.worker[t->rounds.member[row]].ratio.n;
	if (n < DRIFT_STEADY)
		*usual += (busy / (double)tokens - *usual) / (double)(n + 1);
	return *usual * (double)tokens;
}

void speeds_step(struct trainer *t, uint64_t tokens, double seconds)
{
	if (mode(t) == REBALANCE_OFF || !tokens || (t->planned && !t->judge.warm))
		return;
	for (int k = 0; k < t->rounds.n; k++) {
		const struct train_stage *s = &t->rounds.stages[k];
		const int next = t->rounds.next[k];
		t->sample[k] =
			(struct drift_sample){ .member = t->rounds.member[k],
					       .next = next >= 0 ? t->rounds.member[next] : -1,
					       .expected = expected(t, k, tokens),
					       .measured = s->busy,
					       .flight = { s->next_flight, s->prev_flight },
					       .bytes = { s->next_bytes, s->prev_bytes } };
	}
	drift_step(&t->drift, seconds, t->sample, t->rounds.n);
}

/* ---- between two steps ---- */

static const char *id_of(const struct trainer *t, int member)
{
	return session_spec(t->ses, member)->id;
}

static void say_links(struct trainer *t)
{
	int from, news;
	enum drift_way way;
	while ((news = drift_link_news(&t->drift, &from, &way))) {
		const struct drift_link *l = &t->drift.worker[from].link[way];
		const int a = way == DRIFT_TO_NEXT ? from : l->next,
			  b = way == DRIFT_TO_NEXT ? l->next : from;
		if (news > 0)
			log_warn("the link from '%s' to '%s' needs %.2g times as long for a byte "
				 "as before (%.3g MB/s); the workers compute as fast as before",
				 id_of(t, a), id_of(t, b), l->pace.level / l->best,
				 1 / l->pace.level / 1e6);
		else
			log_info("the link from '%s' to '%s' is as fast as before again",
				 id_of(t, a), id_of(t, b));
	}
}

/* How a member differs, in words; -1: none does. */
static void say_why(const struct trainer *t, int i, char *why, size_t cap)
{
	const double r = i < 0 ? 1 : t->drift.worker[i].ratio.level;
	if (i < 0)
		snprintf(why, cap, "links changed their speed");
	else if (r >= 1)
		snprintf(why, cap, "'%.100s' computes %.2g times as long as %s", id_of(t, i), r,
			 t->planned ? "the plan expects" : "in its first steps");
	else
		snprintf(why, cap, "'%.100s' computes %.2g times as fast as the plan expects",
			 id_of(t, i), 1 / r);
}

/* Nothing was measured: the slowest worker is named, but not for each of its changes. */
static void name_slowest(struct trainer *t, struct speeds_move *m)
{
	int slowest = 0;
	for (int i = 1; i < t->drift.n; i++)
		if (t->drift.worker[i].ratio.level > t->drift.worker[slowest].ratio.level)
			slowest = i;
	if (!(t->drift.worker[slowest].ratio.level > named * drift_middle(&t->drift)))
		return;
	say_why(t, slowest, m->why, sizeof m->why);
	log_warn("%s", m->why);
	drift_moved(&t->drift);
}

/* The running plan's profile with the speeds of now. Devices keep their numbers. */
static int profile_of_now(const struct trainer *t, struct profile *p, struct err *e)
{
	struct buf text = BUF_INIT;
	const struct profile *of = &t->job_plan.profile;
	profile_write(of, &text);
	int rc = buf_ok(&text, e);
	if (rc >= 0)
		rc = profile_read_text(p, text.p, text.n, "the measured profile", e);
	buf_release(&text);
	TRY(rc);
	for (int i = 0; i < t->drift.n; i++) {
		const int device = profile_find(p, id_of(t, i));
		const struct drift_worker *w = &t->drift.worker[i];
		const double slower = drift_level(&t->drift, i) / w->factor;
		if (device >= 0 &&
		    !session_has(t->ses, i)) /* left out at the start: it has ended */
			p->device[device].used_gib = p->device[device].memory_gib;
		if (device >= 0 && slower != 1)
			TRY(profile_slow_device(p, device, slower, e));
		for (int k = 0; k < DRIFT_WAYS && device >= 0; k++) {
			const int next = w->link[k].next;
			const int to = next >= 0 ? profile_find(p, id_of(t, next)) : -1;
			const double f = drift_link_level(&t->drift, i, (enum drift_way)k);
			if (to >= 0 && f > 1)
				profile_slow_link(p, k == DRIFT_TO_NEXT ? device : to,
						  k == DRIFT_TO_NEXT ? to : device, f);
		}
	}
	return 0;
}

/* Only said. */
static void suggest(const struct speeds_move *m, const struct rebalance_answer *a)
{
	log_warn("%s: with other %s a step would take %.3g s instead of %.3g (rebalance: on moves "
		 "work)",
		 m->why, a->shares ? "shares" : "layers", a->next_s, a->now_s);
}

/* 1: there is a plan that pays. */
static int choose(struct trainer *t, struct profile *p, struct speeds_move *m, struct err *e)
{
	struct rebalance_answer a;
	const struct job_plan *now = &t->job_plan;
	const struct rebalance r = { .p = p,
				     .o = &now->options,
				     .now = &now->plan,
				     .planner =
					     t->cfg->nshards || t->cfg->plan ? NULL : now->planner,
				     .gain = t->cfg->rebalance_gain,
				     .left = t->job->total_steps - t->st.step,
				     .moving = t->moving };
	TRY(rebalance_choose(&r, &a, e));
	log_debug("%s: a step %.3g s, with another plan %.3g s, moving %.3g s", m->why, a.now_s,
		  a.moves ? a.next_s : a.now_s, a.moves ? a.moving_s : 0);
	if (!a.moves)
		return 0;
	if (mode(t) == REBALANCE_SUGGEST) {
		suggest(m, &a);
		drift_moved(&t->drift); /* as rarely as it would move */
		plan_release(&a.plan);
		return 0;
	}
	m->shares = a.shares;
	m->now_s = a.now_s;
	m->estimate = a.moving_s / t->moving;
	m->plan = (struct job_plan){
		.profile = *p, .plan = a.plan, .options = now->options, .planner = now->planner
	};
	m->plan.options.manual = NULL;
	*p = (struct profile){ 0 };
	return 1;
}

int speeds_look(struct trainer *t, struct speeds_move *m, struct err *e)
{
	struct profile p = { 0 };
	*m = (struct speeds_move){ 0 };
	if (mode(t) == REBALANCE_OFF)
		return 0;
	say_links(t);
	if (!drift_due(&t->drift))
		return 0;
	if (!t->planned) {
		name_slowest(t, m);
		return 0;
	}
	say_why(t, drift_most(&t->drift), m->why, sizeof m->why);
	const double step = t->recent[(t->st.step + RECENT - 1) % RECENT];
	if (!rebalance_may_pay(step, t->cfg->rebalance_gain, t->job->total_steps - t->st.step,
			       t->moving * least_moving))
		return 0;
	int rc = profile_of_now(t, &p, e);
	if (rc >= 0)
		rc = choose(t, &p, m, e);
	profile_release(&p);
	return rc;
}
