/* SPDX-License-Identifier: Apache-2.0 */
/* remaining.c - see remaining.h. */
#include "train/remaining.h"

#include "base/arena.h"
#include "base/err.h"
#include "base/mem.h"
#include "crew/run_passes.h"
#include "train/trainer.h"

#include <string.h>

static bool is_here(const struct remaining *r, const char *id)
{
	for (int i = 0; i < r->n; i++)
		if (r->here[i] && !strcmp(r->seat[i].id, id))
			return true;
	return false;
}

static int count(const struct remaining *r)
{
	int n = 0;
	for (int i = 0; i < r->n; i++)
		n += r->here[i];
	return n;
}

static int slow_down(const struct remaining *r, struct profile *p, struct err *e)
{
	for (int i = 0; r->slow && i < r->n; i++) {
		const int device = profile_find(p, r->seat[i].id);
		if (device >= 0 && r->slow[i] != 1)
			TRY(profile_slow_device(p, device, r->slow[i], e));
	}
	return 0;
}

static int read_profile(const struct remaining *r, struct job_plan *p, struct err *e)
{
	if (r->profile) {
		TRY(profile_read_text(&p->profile, r->profile, strlen(r->profile),
				      "the measured profile", e));
		for (int i = p->profile.devices - 1; i >= 0; i--)
			if (!is_here(r, p->profile.device[i].id))
				TRY(profile_remove(&p->profile, p->profile.device[i].id, e));
		beside_cut(r->beside, &p->profile);
		return slow_down(r, &p->profile, e);
	}
	struct seat_spec *seat = mem_array((size_t)r->n, sizeof *seat);
	int n = 0;
	if (!seat)
		return err_nomem(e, (size_t)r->n * sizeof *seat, "workers");
	for (int i = 0; i < r->n; i++)
		if (r->here[i])
			seat[n++] = r->seat[i];
	int rc = job_plan_assume(p, r->job, seat, n, e);
	mem_free(seat);
	return rc;
}

/* The rest of one entry of shard_plan; without ids when nobody of it is there. */
static int keep_rest(const struct remaining *r, const struct config_shard *from,
		     struct config_shard *to, struct arena *a, struct err *e)
{
	const char **id = arena_alloc(a, from->id.n * sizeof *id);
	int *share = arena_alloc(a, from->id.n * sizeof *share);
	double *state = arena_alloc(a, from->id.n * sizeof *state), sum = 0;
	const char **own = arena_alloc(a, from->id.n * sizeof *own);
	size_t n = 0, homes = 0, experts = 0;
	int64_t shares = 0;
	if (!id || !share || !state || !own)
		return err_nomem(e, from->id.n * sizeof *id, "a plan");
	for (size_t k = 0; k < from->id.n; k++) {
		if (!is_here(r, from->id.item[k]))
			continue;
		id[n] = from->id.item[k];
		homes += k < from->homes;
		/* those of who is lost are dealt anew, by speed */
		own[n] = from->own && from->own[k] ? "" : NULL;
		experts += own[n] != NULL;
		share[n] = from->share ? from->share[k] : 1;
		state[n] = from->state ? from->state[k] : 1;
		shares += share[n];
		sum += state[n++];
	}
	for (size_t k = 0; k < n; k++) {
		share[k] = shares ? share[k] : 1;
		state[k] = sum > 0 ? state[k] / sum : 1.0 / (double)n;
	}
	*to = *from;
	to->id.item = id;
	to->id.n = n;
	to->share = from->share ? share : NULL;
	to->state = from->state ? state : NULL;
	to->size = NULL;
	if (from->own && n == from->id.n)
		return 0;
	to->own = homes && experts ? own : NULL; /* else who is left has whole layers */
	to->homes = to->own ? homes : n;
	if (from->own && !to->own)
		to->share = NULL;
	return 0;
}

/* Entries i to k - 1 have lost everybody: halves to the one before and the one behind. */
static void give_away(struct config_shard *v, size_t n, size_t i, size_t k)
{
	const int64_t first = v[i].start, last = v[k - 1].end;
	const int64_t cut = !i ? first : k == n ? last : first + (last - first + 1) / 2;
	if (i)
		v[i - 1].end = cut;
	if (k < n)
		v[k].start = cut;
}

/* A spare worker that is there, in the place of an entry that has lost everybody. */
static void give_to_spare(const struct remaining *r, struct config_shard *v, size_t n, size_t i)
{
	for (int k = 0; k < r->n && !v[i].id.n; k++) {
		bool used = !r->here[k] || !r->seat[k].spare;
		for (size_t j = 0; j < n && !used; j++)
			used = v[j].id.n && !strcmp(v[j].id.item[0], r->seat[k].id);
		if (used)
			continue;
		v[i].id.item[0] = r->seat[k].id;
		v[i].id.n = 1;
		v[i].share = NULL;
		v[i].state = NULL;
		v[i].own = NULL;
		v[i].homes = 1;
	}
}

/* The user's shard_plan for who is there. */
static int shards_of_rest(const struct remaining *r, struct config *one, struct arena *a,
			  struct err *e)
{
	const struct config *c = r->job->cfg;
	struct config_shard *v = arena_alloc(a, c->nshards * sizeof *v);
	size_t n = 0, groups = 0;
	if (!v)
		return err_nomem(e, c->nshards * sizeof *v, "a plan");
	for (size_t i = 0; i < c->nshards; i++)
		TRY(keep_rest(r, &c->shard_plan[i], &v[i], a, e));
	for (size_t i = 0; i < c->nshards; i++)
		if (!v[i].id.n)
			give_to_spare(r, v, c->nshards, i);
	for (size_t i = 0, k; i < c->nshards; i = k) {
		for (k = i; k < c->nshards && !v[k].id.n; k++)
			;
		if (k > i && !(i == 0 && k == c->nshards))
			give_away(v, c->nshards, i, k);
		k += k == i;
	}
	for (size_t i = 0; i < c->nshards; i++)
		if (v[i].id.n) {
			groups += v[i].id.n > 1;
			v[n++] = v[i];
		}
	beside_order(r->beside, v, n);
	one->shard_plan = v;
	one->nshards = n;
	one->plan = NULL;
	if (!groups)
		one->shard = SHARD_AUTO;
	return n ? 0 : err_set(e, ERR_USAGE, "no worker of 'shard_plan' is left");
}

static void set_options(const struct remaining *r, const struct config *c, struct job_plan *p)
{
	job_plan_options(p, c, false);
	run_passes_options(r->job, true, &p->options);
	p->options.order = r->order;
	p->options.order_auto = false;
	if (!r->profile)
		p->planner = &planner_even;
}

/* Like the user's plan; 1: there is none, or it does not fit. */
static int like_the_users(const struct remaining *r, struct job_plan *p, struct err *e)
{
	struct config one = *r->job->cfg;
	struct arena a = ARENA_INIT;
	if (!one.nshards)
		return 1;
	int rc = shards_of_rest(r, &one, &a, e);
	if (rc >= 0)
		rc = read_profile(r, p, e);
	if (rc >= 0) {
		set_options(r, &one, p);
		rc = job_plan_given(p, &one, NULL, e);
	}
	if (rc >= 0)
		rc = job_plan_make(p, true, e);
	arena_release(&a);
	if (rc >= 0)
		return 0;
	job_plan_release(p);
	return rc == ERR_NOMEM ? rc : 1;
}

/* For who is there: `r` without spare workers that are not needed. */
static int plan_for_all(const struct remaining *r, struct job_plan *p, struct err *e)
{
	int rc = like_the_users(r, p, e);
	if (rc <= 0)
		return rc;
	struct config one = *r->job->cfg;
	one.shard_plan = NULL;
	one.nshards = 0;
	one.plan = NULL;
	err_clear(e);
	rc = read_profile(r, p, e);
	if (rc >= 0) {
		set_options(r, &one, p);
		rc = job_plan_given(p, &one, NULL, e);
	}
	if (rc >= 0)
		rc = job_plan_make(p, true, e);
	if (rc < 0)
		job_plan_release(p);
	return rc < 0 ? rc : 0;
}

static int plan_for(const struct remaining *r, struct job_plan *p, struct err *e);

/* Without one of the pair: the faster one. */
static int plan_without(const struct remaining *r, const int pair[2], struct job_plan *p,
			struct err *e)
{
	bool *here = mem_array((size_t)r->n, sizeof *here);
	struct remaining less = *r;
	int found = 0;
	if (!here)
		return err_nomem(e, (size_t)r->n, "workers");
	memcpy(here, r->here, (size_t)r->n * sizeof *here);
	less.here = here;
	for (int k = 0; k < 2; k++) {
		struct job_plan other = { 0 };
		here[pair[k]] = false;
		int rc = plan_for(&less, &other, e);
		here[pair[k]] = true;
		if (rc >= 0 && found && other.plan.simulated_ms >= p->plan.simulated_ms) {
			job_plan_release(&other);
		} else if (rc >= 0) {
			if (found)
				job_plan_release(p);
			*p = other;
			if (other.options.manual)
				p->options.manual = &p->manual;
			found = 1;
		}
	}
	mem_free(here);
	if (found)
		err_clear(e);
	return found ? 0 : e->code;
}

static int plan_for(const struct remaining *r, struct job_plan *p, struct err *e)
{
	int pair[2];
	TRY(plan_for_all(r, p, e));
	const bool tied = r->job->model.tied && r->job->opt.train_all;
	if (!beside_is(r->beside, &p->profile, &p->plan, tied, pair))
		return 0;
	job_plan_release(p);
	*p = (struct job_plan){ 0 };
	return plan_without(r, pair, p, e);
}

int remaining_plan(const struct remaining *all, struct job_plan *p, struct err *e)
{
	struct remaining r = *all;
	bool *here = mem_array((size_t)all->n, sizeof *here);
	int missing = 0;
	if (!here)
		return err_nomem(e, (size_t)all->n, "workers");
	r.here = here;
	for (int i = 0; i < all->n; i++)
		missing += !all->here[i] && !all->seat[i].spare;
	for (int i = 0; i < all->n; i++)
		here[i] = all->here[i] && (!all->seat[i].spare || missing-- > 0);
	int rc = count(&r) ? plan_for(&r, p, e) : err_set(e, ERR_USAGE, "no worker is left");
	mem_free(here);
	return rc;
}

/* Who does not reach whom; false: everybody reaches everybody. */
static bool find_apart(const struct session *s, const char **id, bool *apart)
{
	const int n = session_members(s);
	bool any = false;
	for (int i = 0; i < n; i++) {
		id[i] = session_spec(s, i)->id;
		for (int k = i + 1; k < n; k++)
			any |= apart[i * n + k] = session_apart(s, i, k);
	}
	return any;
}

int remaining_plan_now(const struct trainer *t, struct job_plan *p, struct err *e)
{
	const size_t n = (size_t)session_members(t->ses);
	int left = 0, rc = 0;
	bool *here = mem_array(n, sizeof *here), *apart = mem_array(n * n, sizeof *apart);
	double *slow = mem_array(n, sizeof *slow);
	const char **id = mem_array(n, sizeof *id);
	if (!here || !slow || !apart || !id) {
		rc = err_nomem(e, n * n, "workers");
		goto out;
	}
	const struct beside beside = { id, apart, (int)n };
	for (int i = 0; i < beside.n; i++) {
		left += here[i] = session_has(t->ses, i);
		slow[i] = drift_level(&t->drift, i);
	}
	const struct remaining r = { .job = t->job,
				     .seat = t->seat,
				     .here = here,
				     .n = beside.n,
				     .profile = t->profile.n ? t->profile.p : NULL,
				     .slow = slow,
				     .beside = find_apart(t->ses, id, apart) ? &beside : NULL,
				     .order = t->st.rules.reduce };
	rc = left < t->cfg->min_workers
		     ? err_set(e, ERR_USAGE, "%d worker%s left, min_workers is %lld", left,
			       left == 1 ? " is" : "s are", (long long)t->cfg->min_workers)
		     : remaining_plan(&r, p, e);
out:
	mem_free(here);
	mem_free(apart);
	mem_free(slow);
	mem_free(id);
	return rc;
}
