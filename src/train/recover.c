/* SPDX-License-Identifier: Apache-2.0 */
/* recover.c - see recover.h. */
#include "train/recover.h"

#include "base/clock.h"
#include "base/err.h"
#include "base/log.h"
#include "base/mem.h"
#include "train/collect.h"
#include "train/kept_state.h"
#include "crew/members_text.h"
#include "crew/resumed.h"
#include "train/sample_now.h"
#include "train/speeds.h"
#include "train/start.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* Attempts without a step in between; and within one recovery, in which others may be lost. */
enum { FRUITLESS = 5, ATTEMPTS = 64 };

/* What one recovery does and says. */
struct recovery {
	int64_t began;
	uint64_t reached;      /* steps that were done */
	double was;            /* seconds a step, predicted with the old plan; NaN */
	struct holders before; /* who held which layer */
	struct buf who;        /* "'box3' is gone (...)" */
	const char *event;
	struct err cause;
	struct job_plan *with; /* MAY be NULL: of a move; taken by the first attempt */
	bool shares;           /* it changes only shares */
	bool strange;          /* somebody is back */
};

/* ---- the state to which the run goes back ---- */

/* From disk, or from the beginning. */
static int read_set(struct trainer *t, struct err *e)
{
	const char *newest = t->saver.newest;
	const bool with = job_begins_with(t->cfg);
	struct train_state st = t->first;
	if (newest)
		TRY(resumed_read(t->job, newest, t->o->allow_changes, &st, e));
	else if (with)
		TRY(job_begin(t->job, e));
	if (newest && st.step == t->set.st.step)
		st = t->set.st; /* an evaluation may have followed its checkpoint */
	log_info("no snapshot is whole: going back to %s", newest ? newest : "the beginning");
	st.origin = session_epoch(t->ses);
	t->set.st = st;
	t->set.start = !newest && !with;
	t->set.whole = true;
	return 0;
}

static int go_back(struct trainer *t, struct err *e)
{
	if (!t->set.whole)
		TRY(read_set(t, e));
	t->st = t->set.st;
	t->snapshots.at = t->st.step;
	t->snapshots.last = clock_now();
	if (!t->set.start) {
		TRY(session_push_state(t->ses, ++t->rounds.number, e));
		TRY(kept_state_sent(t, e));
	}
	sample_go_back(t);
	return 0;
}

/* The run ends: the newest snapshot becomes a checkpoint, unless there is one of its step. */
static void keep_set(struct trainer *t)
{
	struct err e = { 0 };
	if (!t->set.whole || t->set.start || (t->set.st.step == t->saved && !t->saver.failed))
		return;
	t->st = t->set.st;
	if (saver_save(&t->saver, &t->set.st, SAVE_STEP, clock_now(), &e) < 0)
		log_warn("%s", e.msg);
}

/* ---- with other members ---- */

/* Whoever comes or goes: what was known of its speed is not of the one that comes. */
static bool name_members(struct trainer *t, struct recovery *r)
{
	struct err why = { 0 };
	bool any = false;
	for (int i; (i = session_loss(t->ses, &why)) >= 0; any = true) {
		buf_addf(&r->who, "%s'%s' is gone (%.300s)", r->who.n ? ". " : "",
			 session_spec(t->ses, i)->id, why.msg);
		drift_forget(&t->drift, i);
	}
	for (int i; (i = session_back(t->ses)) >= 0; any = r->strange = true)
		buf_addf(&r->who, "%s'%s' %s", r->who.n ? ". " : "", session_spec(t->ses, i)->id,
			 session_spec(t->ses, i)->late ? "has come" : "is back");
	return any;
}

void recover_after_step(struct trainer *t, double seconds)
{
	double longest = 0;
	t->recent[t->st.step % RECENT] = seconds;
	for (int i = 0; i < RECENT; i++)
		longest = fmax(longest, t->recent[i]);
	if (t->fresh)
		t->first_step = fmax(t->first_step, seconds);
	t->fresh = false;
	const struct patience p = patience_of(t->cfg->stall_timeout, longest, false);
	session_set_patience(t->ses, &p);
}

/* Until the first step with the new plan is done. */
static void set_patience(struct trainer *t, bool strange)
{
	double longest = t->planned ? t->job_plan.plan.simulated_ms / 1e3 : 0;
	for (int i = 0; i < RECENT; i++)
		longest = fmax(longest, t->recent[i]);
	const struct patience p =
		patience_changed(t->cfg->stall_timeout, longest, t->first_step, strange);
	session_set_patience(t->ses, &p);
	t->fresh = true;
}

static int try_again(struct trainer *t, struct recovery *r, struct err *e)
{
	TRY(session_regroup(t->ses, e));
	struct job_plan *with = name_members(t, r) ? NULL : r->with;
	r->with = NULL;
	TRY(start_measure_new(t, e));
	TRY(start_place_again(t, with, e));
	set_patience(t, r->strange);
	TRY(session_begin(t->ses, t->place, t->o->trace, e));
	return go_back(t, e);
}

static int tell(struct trainer *t, const struct recovery *r, struct err *e)
{
	struct train_info info;
	struct buf b = BUF_INIT;
	TRY(start_info(t, NULL, &info, e));
	if (r->who.n)
		buf_addf(&b, "%s. ", r->who.p);
	else
		buf_addf(&b, "Two workers lost each other (%.300s). ", r->cause.msg);
	if (r->shares && !strcmp(r->event, "moved"))
		shares_text(&t->job_plan.profile, &t->job_plan.plan, &b);
	else
		holders_text(&r->before, t->place, t->rounds.n, &b);
	if (t->planned && r->was > 0)
		buf_addf(&b, " (%.3g s a step instead of %.3g)",
			 t->job_plan.plan.simulated_ms / 1e3, r->was);
	again_text(t->st.step, r->reached, &b);
	int rc = buf_ok(&b, e);
	const struct train_change c = { .event = r->event,
					.text = b.p,
					.step = t->st.step,
					.reached = r->reached,
					.seconds = clock_seconds(clock_now() - r->began),
					.info = &info };
	if (rc >= 0 && t->sink->change)
		rc = t->sink->change(t->sink->ctx, &c, e);
	buf_release(&b);
	return rc;
}

/* Who is left cannot go on: waits for one that is gone. With its own error when none comes back. */
static int wait_for_more(struct trainer *t, const struct recovery *r, struct err *e)
{
	const struct err why = *e;
	const int64_t until = net_in(t->cfg->rejoin_timeout);
	if (clock_now() >= until)
		return e->code;
	log_warn("%s: %s; waiting up to %g s (rejoin_timeout) for a worker to come back",
		 r->who.n ? r->who.p : r->cause.msg, why.msg, t->cfg->rejoin_timeout);
	err_clear(e);
	while (clock_now() < until) {
		const int before = session_there(t->ses);
		TRY(session_idle(t->ses, clock_seconds(until - clock_now()), e));
		if (session_there(t->ses) > before)
			return 0;
	}
	*e = why;
	return e->code;
}

static int attempts(struct trainer *t, struct recovery *r, struct err *e)
{
	for (int k = 0;; k++) {
		err_clear(e);
		int rc = try_again(t, r, e);
		if (rc >= 0)
			return 0;
		if (rc == ERR_USAGE)
			TRY(wait_for_more(t, r, e));
		else if (k >= ATTEMPTS || !session_can_regroup(t->ses, e))
			return rc;
	}
}

/* The members have changed, or are to: everything up to the next step. */
static int change(struct trainer *t, struct recovery *r, struct err *e)
{
	int rc = holders_of(t->place, t->job->model.layers, &r->before, e);
	if (rc >= 0) {
		session_until(t->ses, t->o->stop, "the members of the job changed");
		rc = attempts(t, r, e);
		session_until(t->ses, NULL, NULL);
	}
	if (rc >= 0)
		rc = tell(t, r, e);
	else
		keep_set(t);
	if (rc == ERR_USAGE) { /* of the plan: no fault of the command line */
		rc = e->code = ERR_NET;
		err_prefix(e, "%.400s, and the job cannot go on with the others",
			   r->who.n ? r->who.p : r->cause.msg);
	}
	holders_release(&r->before);
	buf_release(&r->who);
	return rc;
}

static struct recovery begin(const struct trainer *t, const char *event)
{
	return (struct recovery){ .event = event,
				  .began = clock_now(),
				  .reached = t->st.step,
				  .was = t->planned ? t->job_plan.plan.simulated_ms / 1e3 : 0,
				  .who = BUF_INIT };
}

int recover(struct trainer *t, struct err *e)
{
	struct recovery r = begin(t, "lost");
	r.cause = *e;
	if (!t->stays)
		return e->code;
	if (!session_can_regroup(t->ses, e)) {
		keep_set(t);
		return e->code;
	}
	if (++t->fruitless > FRUITLESS) {
		keep_set(t);
		return err_prefix(e, "%d times in a row without a step in between", FRUITLESS);
	}
	log_info("%s: the job goes on without it", r.cause.msg);
	return change(t, &r, e);
}

/* One that wants to leave. The others get what it holds. */
static int let_go(struct trainer *t, int member, struct err *e)
{
	double seconds = 0;
	struct err why = { 0 };
	const char *id = session_spec(t->ses, member)->id;
	session_set_leaving(t->ses, member, true);
	int rc = start_would_do(t, &seconds, &why);
	if (rc < 0) {
		session_set_leaving(t->ses, member, false);
		log_warn("'%s' wants to leave, but the others cannot go on without it (%s): it "
			 "stays; a second Ctrl-C there ends it at once",
			 id, why.msg);
		return 0;
	}
	struct recovery r = begin(t, "left");
	buf_addf(&r.who, "'%s' has left", id);
	rc = train_collect(t, e);
	if (rc < 0) { /* another one is lost: this one is asked again when that is made good */
		session_leave_later(t->ses, member);
		buf_release(&r.who);
		return rc;
	}
	session_let_go(t->ses, member);
	return change(t, &r, e);
}

static int ask_who_leaves(struct trainer *t, struct err *e)
{
	char id[200];
	while (t->sink->leave && t->sink->leave(t->sink->ctx, id, sizeof id))
		if (session_ask_out(t->ses, id, e) < 0) {
			log_warn("%s", e->msg);
			err_clear(e);
		}
	for (int i; (i = session_out(t->ses)) >= 0;)
		TRY(let_go(t, i, e));
	return 0;
}

/* Work moves from a worker that became slow, or back to it. */
static int rebalance(struct trainer *t, struct err *e)
{
	struct speeds_move m;
	int rc = speeds_look(t, &m, e);
	if (rc <= 0)
		return rc;
	struct recovery r = begin(t, "moved");
	r.with = &m.plan;
	r.shares = m.shares;
	r.was = m.now_s;
	buf_adds(&r.who, m.why);
	rc = train_collect(t, e);
	if (rc < 0) {
		buf_release(&r.who);
	} else {
		drift_moved(&t->drift);
		rc = change(t, &r, e);
		const double took = clock_seconds(clock_now() - r.began) / m.estimate;
		t->moving = took < 0.2 ? 0.2 : took > 20 ? 20 : took;
	}
	job_plan_release(&m.plan);
	return rc;
}

int recover_members(struct trainer *t, struct err *e)
{
	double seconds = 0;
	if (!t->stays || t->st.step >= t->job->total_steps)
		return 0;
	struct recovery r = begin(t, "joined");
	TRY(ask_who_leaves(t, e));
	session_look_for_lost(t->ses);
	for (int a, b; session_pair_again(t->ses, &a, &b);)
		buf_addf(&r.who, "%s'%s' and '%s' may reach each other again", r.who.n ? ". " : "",
			 session_spec(t->ses, a)->id, session_spec(t->ses, b)->id);
	if (!session_somebody_back(t->ses) && !r.who.n)
		return rebalance(t, e);
	/* of one that was never here nothing is known: it is measured, then planned with */
	const bool unknown = start_somebody_new(t);
	int rc = unknown ? 0 : start_would_help(t, &seconds, e);
	const double was = t->job_plan.plan.simulated_ms / 1e3;
	if (rc >= 0 && !unknown && t->planned && !(seconds < was * (1 - t->cfg->rebalance_gain))) {
		for (int i; (i = session_back(t->ses)) >= 0;)
			log_info("'%s' is back, and would not help (%.3g s a step, %.3g without "
				 "it): it waits until it is needed",
				 session_spec(t->ses, i)->id, seconds, was);
		buf_release(&r.who);
		return 0;
	}
	rc = rc < 0 ? rc : train_collect(t, e);
	if (rc < 0) {
		buf_release(&r.who);
		return rc;
	}
	return change(t, &r, e);
}
