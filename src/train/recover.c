/* SPDX-License-Identifier: Apache-2.0 */
/* recover.c - see recover.h. */
#include "train/recover.h"

#include "base/clock.h"
#include "base/err.h"
#include "base/log.h"
#include "base/mem.h"
#include "train/members_text.h"
#include "train/start.h"

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
	struct buf lost;       /* "box3 is gone (...)" */
	struct err cause;
};

/* ---- the state to which the run goes back ---- */

/* From disk, or from the beginning. */
static int read_set(struct trainer *t, struct err *e)
{
	const char *newest = t->saver.newest, *with = t->cfg->lora_model_dir;
	struct train_state st = t->first;
	if (newest)
		TRY(checkpoint_read(t->job, newest, t->o->allow_changes, &st, e));
	else if (with)
		TRY(job_begin_with(t->job, with, e));
	log_info("no snapshot is whole: going back to %s", newest ? newest : "the beginning");
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
	t->nonfinite_run = 0;
	snapshots_init(&t->snapshots, t->cfg, t->snapshots.bytes, t->st.step);
	return t->set.start ? 0 : session_push_state(t->ses, ++t->rounds.number, e);
}

/* The run ends: the newest snapshot becomes a checkpoint, unless there is one of its step. */
static void keep_set(struct trainer *t)
{
	struct err e = { 0 };
	if (!t->set.whole || t->set.start || t->set.st.step == t->saved)
		return;
	t->st = t->set.st;
	if (saver_save(&t->saver, &t->set.st, SAVE_STEP, clock_now(), &e) < 0)
		log_warn("%s", e.msg);
}

/* ---- with other members ---- */

static void name_lost(struct trainer *t, struct recovery *r)
{
	struct err why = { 0 };
	for (int i; (i = session_loss(t->ses, &why)) >= 0;)
		buf_addf(&r->lost, "%s'%s' is gone (%.300s)", r->lost.n ? ". " : "",
			 session_spec(t->ses, i)->id, why.msg);
}

static int try_again(struct trainer *t, struct recovery *r, struct err *e)
{
	TRY(session_regroup(t->ses, e));
	name_lost(t, r);
	TRY(start_place_again(t, e));
	const struct patience first = patience_of(
		t->cfg->stall_timeout, t->planned ? t->job_plan.plan.simulated_ms / 1e3 : 0, true);
	session_set_patience(t->ses, &first);
	TRY(session_begin(t->ses, t->place, t->o->trace, e));
	return go_back(t, e);
}

static int tell(struct trainer *t, const struct recovery *r, struct err *e)
{
	struct train_info info;
	struct buf b = BUF_INIT;
	TRY(start_info(t, NULL, &info, e));
	if (r->lost.n)
		buf_addf(&b, "%s. ", r->lost.p);
	else
		buf_addf(&b, "Two workers lost each other (%.300s). ", r->cause.msg);
	holders_text(&r->before, t->place, t->rounds.n, &b);
	if (t->planned && r->was > 0)
		buf_addf(&b, " (%.3g s a step instead of %.3g)",
			 t->job_plan.plan.simulated_ms / 1e3, r->was);
	again_text(t->st.step, r->reached, &b);
	int rc = buf_ok(&b, e);
	const struct train_change c = { .event = "lost",
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

static int attempts(struct trainer *t, struct recovery *r, struct err *e)
{
	for (int k = 0;; k++) {
		err_clear(e);
		int rc = try_again(t, r, e);
		if (rc >= 0)
			return 0;
		if (k >= ATTEMPTS || !session_can_regroup(t->ses, e))
			return rc;
	}
}

int recover(struct trainer *t, struct err *e)
{
	struct recovery r = { .began = clock_now(),
			      .reached = t->st.step,
			      .was = t->planned ? t->job_plan.plan.simulated_ms / 1e3 : 0,
			      .lost = BUF_INIT,
			      .cause = *e };
	if (!t->stays || !session_can_regroup(t->ses, e))
		return e->code;
	if (++t->fruitless > FRUITLESS) {
		keep_set(t);
		return err_prefix(e, "%d times in a row without a step in between", FRUITLESS);
	}
	int rc = holders_of(t->place, t->job->model.layers, &r.before, e);
	if (rc >= 0) {
		session_until(t->ses, t->o->stop, "the job went on without a lost worker");
		log_info("%s: the job goes on without it", r.cause.msg);
		rc = attempts(t, &r, e);
		session_until(t->ses, NULL, NULL);
	}
	if (rc >= 0)
		rc = tell(t, &r, e);
	else
		keep_set(t);
	if (rc == ERR_USAGE) { /* of the plan: no fault of the command line */
		rc = e->code = ERR_NET;
		err_prefix(e, "%.400s, and the job cannot go on with the others",
			   r.lost.n ? r.lost.p : r.cause.msg);
	}
	holders_release(&r.before);
	buf_release(&r.lost);
	return rc;
}
