/* SPDX-License-Identifier: Apache-2.0 */
/* together.c - see together.h. */
#include "trial/together.h"

#include "base/buf.h"
#include "base/err.h"
#include "base/mem.h"
#include "coord/join.h"
#include "file/atomic.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const useconds_t again_after = 1500000;

/* One run: its rates, and in the first one the profile and the plan. */
struct trial {
	struct together *t;
	bool whole;
	double *rate, *seconds; /* [steps - 1] */
	size_t n;
	struct buf *profile; /* of the first run; NULL: another one */
	struct plan_alone *alone;
};

static int take_devices(struct trial *x, const struct job_plan *p, struct err *e)
{
	struct together *t = x->t;
	t->devices = p->profile.devices;
	t->device = arena_alloc(&t->mem, (size_t)t->devices * sizeof *t->device);
	x->alone = arena_alloc(&t->mem, (size_t)t->devices * sizeof *x->alone);
	if (!t->device || !x->alone)
		return err_nomem(e, (size_t)t->devices * sizeof *t->device, "devices");
	TRY(plan_alone(&p->profile, &p->options, x->alone, e));
	for (int i = 0; i < t->devices; i++) {
		struct together_device *d = &t->device[i];
		*d = (struct together_device){ .row = -1,
					       .stage = -1,
					       .fits = x->alone[i].fits,
					       .tokens_per_s = NAN,
					       .step_s = NAN };
		d->id = arena_strdup(&t->mem, p->profile.device[i].id);
		d->kind = arena_strdup(&t->mem, p->profile.device[i].kind);
		if (!d->id || !d->kind)
			return err_nomem(e, 64, "devices");
		memcpy(d->why, x->alone[i].why, sizeof d->why);
	}
	return 0;
}

static int begins(void *ctx, const struct train_info *i, struct err *e)
{
	struct trial *x = ctx;
	struct together *t = x->t;
	if (!x->profile)
		return 0;
	if (!i->job_plan)
		return err_set(e, ERR_INTERNAL, "a run without a plan");
	const struct job_plan *p = i->job_plan;
	profile_write(&p->profile, x->profile);
	TRY(buf_ok(x->profile, e));
	TRY(take_devices(x, p, e));
	t->rows = p->profile.global_batch;
	t->predicted_s = p->plan.simulated_ms / 1e3;
	for (int k = 0; k < p->plan.stages; k++)
		for (int m = 0; m < p->plan.stage[k].members; m++) {
			const struct plan_member *v = &p->plan.stage[k].member[m];
			struct together_device *d = &t->device[v->device];
			d->stage = k;
			d->first = p->plan.first[k];
			d->last = p->plan.first[k] + plan_layers(&p->plan, k);
			d->rows = (double)v->samples / (double)p->profile.global_batch;
			d->row = t->used++;
		}
	return 0;
}

static void add_use(struct together *t, const struct train_step *s)
{
	for (int i = 0; i < t->devices; i++) {
		struct together_device *d = &t->device[i];
		if (d->row < 0 || d->row >= s->stages)
			continue;
		d->busy += s->stage[d->row].busy / s->seconds;
		d->copy += s->stage[d->row].copy / s->seconds;
		d->wait += s->stage[d->row].wait / s->seconds;
	}
}

static int steps(void *ctx, const struct train_step *s, struct err *e)
{
	struct trial *x = ctx;
	(void)e;
	if (s->step < 2 || x->n + 1 >= (size_t)x->t->steps)
		return 0;
	x->rate[x->n] = (double)s->tokens / s->seconds;
	x->seconds[x->n++] = s->seconds;
	if (x->whole)
		add_use(x->t, s);
	return 0;
}

static int by_size(const void *a, const void *b)
{
	const double x = *(const double *)a, y = *(const double *)b;
	return (x > y) - (x < y);
}

static double median(double *v, size_t n)
{
	if (!n)
		return NAN;
	qsort(v, n, sizeof *v, by_size);
	return n % 2 ? v[n / 2] : (v[n / 2 - 1] + v[n / 2]) / 2;
}

/* The same job, short, with nothing beside it. */
static struct config short_job(const struct config *c, int64_t n, const char *dir)
{
	struct config s = *c;
	s.output_dir = dir;
	s.max_steps = n;
	s.max_minutes = 0;
	s.overwrite_output_dir = false;
	s.resume_from_checkpoint = NULL;
	s.auto_resume = AUTO_RESUME_OFF;
	s.save_steps = s.saves_per_epoch = 0;
	s.save_minutes = "0";
	s.val_set_size = 0;
	s.eval_steps = s.evals_per_epoch = s.early_stopping_patience = 0;
	s.ndatasets -= s.ntest;
	s.ntest = 0;
	s.load_best_model_at_end = s.tensorboard = s.trace = s.visualize = false;
	s.sample_prompts.n = 0;
	s.sample_steps = 0;
	s.notify = s.wandb_project = s.mlflow_experiment_name = NULL;
	s.rebalance = REBALANCE_OFF;
	s.snapshot_to = SNAPSHOT_OFF;
	s.snapshot_steps = 0;
	return s;
}

static int one_run(const struct config *s, const struct together_options *o, struct trial *x,
		   const char *what, struct err *e)
{
	const struct train_sink sink = { .ctx = x, .begin = begins, .step = steps };
	const struct train_options to = { .stop = o->stop,
					  .program = o->program,
					  .ranks = o->ranks };
	struct train_result r;
	x->n = 0;
	/* a worker that the user started listens again, so that none is started in its place */
	if (!x->profile)
		usleep(again_after);
	if (o->begins)
		o->begins(o->ctx, what);
	TRY(train_run(s, &to, &sink, &r, e));
	if (r.interrupted || x->n + 1 < (size_t)x->t->steps)
		return err_set(e, ERR_CANCELLED, "%s: ended after %llu of %lld steps", what,
			       (unsigned long long)r.step, (long long)x->t->steps);
	return 0;
}

/* All layers on one device. */
static int run_alone(const struct config *c, const struct together_options *o, struct trial *x,
		     int64_t layers, struct together_device *d, struct err *e)
{
	struct config s = *c;
	struct config_shard all = { .start = 0, .end = layers, .is_last = true, .homes = 1 };
	const char *id = d->id;
	all.id.item = &id;
	all.id.n = 1;
	s.shard_plan = &all;
	s.nshards = 1;
	s.plan = NULL;
	s.shard = SHARD_AUTO;
	int rc = one_run(&s, o, x, d->id, e);
	if (rc < 0)
		return err_prefix(e, "'%s' alone", d->id);
	d->tokens_per_s = median(x->rate, x->n);
	d->step_s = median(x->seconds, x->n);
	return 0;
}

static void add_up(struct together *t, struct plan_alone *alone)
{
	t->tokens_per_s = (t->first_run + t->second_run) / 2;
	for (int i = 0; i < t->devices; i++) {
		struct together_device *d = &t->device[i];
		alone[i].tokens_per_s = d->tokens_per_s;
		if (d->stage < 0)
			continue;
		const double n = 2 * (double)(t->steps - 1);
		d->busy /= n;
		d->copy /= n;
		d->wait /= n;
		t->lost.busy += d->busy / t->used;
		t->lost.copy += d->copy / t->used;
		t->lost.wait += d->wait / t->used;
	}
	t->lost.idle = fmax(0, 1 - t->lost.busy - t->lost.copy - t->lost.wait);
	t->sum = plan_sum(alone, t->devices);
}

static int all_runs(const struct config *c, const struct together_options *o, const char *dir,
		    struct together *t, struct err *e)
{
	struct buf profile = BUF_INIT;
	char out[1100], path[1100];
	const size_t n = (size_t)t->steps;
	struct trial x = { .t = t, .whole = true, .profile = &profile };
	int rc = 0;
	x.rate = arena_alloc(&t->mem, n * sizeof *x.rate);
	x.seconds = arena_alloc(&t->mem, n * sizeof *x.seconds);
	if (!x.rate || !x.seconds)
		return err_nomem(e, n * sizeof *x.rate, "the times of steps");
	snprintf(path, sizeof path, "%.1000s/profile.json", dir);
	snprintf(out, sizeof out, "%.1000s/whole", dir);
	struct config s = short_job(c, t->steps, out);
	if (!s.profile || !strcmp(s.profile, "none"))
		s.profile = "auto";
	TRYOUT(one_run(&s, o, &x, "together", e));
	t->first_run = median(x.rate, x.n);
	t->step_s = median(x.seconds, x.n) / 2;
	TRYOUT(atomic_write_file(path, profile.p, profile.n, e));
	x.profile = NULL;
	s.profile = path;
	struct profile p;
	TRYOUT(profile_read_text(&p, profile.p, profile.n, path, e));
	const int64_t layers = p.layers;
	profile_release(&p);
	x.whole = false;
	for (int i = 0; i < t->devices; i++) {
		snprintf(out, sizeof out, "%.1000s/alone-%d", dir, i);
		if (t->device[i].fits)
			TRYOUT(run_alone(&s, o, &x, layers, &t->device[i], e));
	}
	x.whole = true;
	snprintf(out, sizeof out, "%.1000s/again", dir);
	TRYOUT(one_run(&s, o, &x, "together", e));
	t->second_run = median(x.rate, x.n);
	t->step_s += median(x.seconds, x.n) / 2;
	add_up(t, x.alone);
out:
	buf_release(&profile);
	return rc;
}

int together_run(const struct config *c, const struct together_options *o, struct together *t,
		 struct err *e)
{
	const char *tmp = getenv("TMPDIR");
	char dir[1000];
	struct err ignored;
	*t = (struct together){ .mem = ARENA_INIT, .steps = o->steps };
	if (!o->ranks && !join_is_cluster(c))
		return err_set(e, ERR_USAGE,
			       "%s: there is one device, so there is nothing to compare: "
			       "'coordinator' and 'workers' name the others",
			       c->path);
	snprintf(dir, sizeof dir, "%.900s/heteroshard-together-XXXXXX", tmp && *tmp ? tmp : "/tmp");
	if (!mkdtemp(dir))
		return err_sys(e, errno, "%s", dir);
	int rc = all_runs(c, o, dir, t, e);
	dir_remove(dir, &ignored);
	if (rc < 0)
		together_release(t);
	return rc;
}

void together_release(struct together *t) { arena_release(&t->mem); }
