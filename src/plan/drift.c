/* SPDX-License-Identifier: Apache-2.0 */
/* drift.c - see drift.h. */
#include "plan/drift.h"

#include "base/err.h"
#include "base/mem.h"
#include "base/stat.h"

#include <math.h>
#include <string.h>

/* What counts as a change, against what the plan was made for; what counts as slow, of a link; and
 * the part of the step that it must cost. */
static const double change = 1.15, slow_link = 2, fast_link = 1.3, link_share = 0.1;
/* Quartiles of a window that agree differ by less than this share. */
static const double agree = 0.35;
enum { QUIET = 8, MOVES_MOST = 6 };

int drift_init(struct drift *d, int members, struct err *e)
{
	*d = (struct drift){ .worker = mem_array((size_t)members, sizeof *d->worker),
			     .scratch = mem_array((size_t)members, sizeof *d->scratch) };
	if (!d->worker || !d->scratch)
		return err_nomem(e, (uint64_t)members * sizeof *d->worker, "workers");
	d->n = members;
	for (int i = 0; i < members; i++)
		drift_forget(d, i);
	return 0;
}

void drift_release(struct drift *d)
{
	mem_free(d->worker);
	mem_free(d->scratch);
	*d = (struct drift){ 0 };
}

/* Nothing is known of it, but what was said of it before is not said again at once. */
static struct drift_link another_link(const struct drift_link *l, int next)
{
	struct drift_link fresh = { .next = next, .told = l->told };
	fresh.told.slow = false;
	return fresh;
}

void drift_forget(struct drift *d, int member)
{
	struct drift_worker *w = &d->worker[member], fresh = { .factor = 1, .asked = 1 };
	for (int k = 0; k < DRIFT_WAYS; k++)
		fresh.link[k] = another_link(&w->link[k], -1);
	*w = fresh;
}

/* ---- series ---- */

/* What the last steps agree about; 0: they do not, or there are too few. */
static double steady(const struct drift_series *s)
{
	double v[DRIFT_STEADY];
	if (s->n < DRIFT_STEADY)
		return 0;
	for (uint64_t i = 0; i < DRIFT_STEADY; i++)
		v[i] = s->v[(s->n - 1 - i) % DRIFT_LONG];
	const double middle = stat_median(v, DRIFT_STEADY);
	const double apart = v[DRIFT_STEADY * 3 / 4 - 1] - v[DRIFT_STEADY / 4];
	return apart <= agree * middle ? middle : 0;
}

static double mean(const struct drift_series *s)
{
	double sum = 0;
	for (int i = 0; i < DRIFT_LONG; i++)
		sum += s->v[i];
	return sum / DRIFT_LONG;
}

static void add(struct drift_series *s, double v)
{
	s->v[s->n++ % DRIFT_LONG] = v;
	const double level = steady(s);
	s->unsteady = level > 0 ? 0 : s->unsteady + 1;
	if (level > 0)
		s->level = level;
	else if (s->unsteady >= DRIFT_LONG)
		s->level = mean(s);
}

/* ---- steps ---- */

static double ratio_of(const struct drift_worker *w)
{
	return w->ratio.level > 0 ? w->ratio.level : 1;
}

double drift_level(const struct drift *d, int member)
{
	const struct drift_worker *w = &d->worker[member];
	return w->factor * ratio_of(w);
}

static void follow_link(struct drift_link *l, int next, double flight, double bytes, double seconds)
{
	if (l->next != next)
		*l = another_link(l, next);
	if (!(flight > 0 && bytes > 0 && seconds > 0))
		return;
	add(&l->pace, flight / bytes);
	add(&l->share, bytes / seconds);
	const double pace = l->pace.level;
	if (pace > 0 && (!(l->best > 0) || pace < l->best))
		l->best = pace;
}

void drift_step(struct drift *d, double seconds, const struct drift_sample *v, int n)
{
	d->step++;
	for (int i = 0; i < d->n; i++)
		d->worker[i].idle++;
	for (int i = 0; i < n; i++) {
		struct drift_worker *w = &d->worker[v[i].member];
		if (v[i].expected > 0 && v[i].measured > 0) {
			w->idle = 0;
			add(&w->ratio, v[i].measured / v[i].expected);
		}
		for (int k = 0; k < DRIFT_WAYS; k++)
			follow_link(&w->link[k], v[i].next, v[i].flight[k], v[i].bytes[k], seconds);
	}
}

void drift_plan(struct drift *d)
{
	for (int i = 0; i < d->n; i++) {
		struct drift_worker *w = &d->worker[i];
		w->asked = w->factor = drift_level(d, i);
		w->ratio = (struct drift_series){ 0 };
		for (int k = 0; k < DRIFT_WAYS; k++) {
			w->link[k].pace = (struct drift_series){ 0 };
			w->link[k].share = (struct drift_series){ 0 };
		}
	}
}

/* Steps without a move after the last one. */
static uint64_t quiet(const struct drift *d) { return (uint64_t)QUIET << (d->moves - 1); }

void drift_moved(struct drift *d)
{
	const bool close = d->moved && d->step - d->moved < DRIFT_CALM + quiet(d);
	d->moves = !close ? 1 : d->moves < MOVES_MOST ? d->moves + 1 : d->moves;
	d->moved = d->step;
}

/* ---- what follows ---- */

static bool differs(double a, double b) { return a > change * b || b > change * a; }

/* One that has had no work for long may be as fast as ever: it is tried again, after a longer time
 * each time. */
static void try_idle(struct drift *d)
{
	for (int i = 0; i < d->n; i++) {
		struct drift_worker *w = &d->worker[i];
		if (w->factor > change && w->idle >= (uint64_t)DRIFT_CALM << d->retries) {
			w->factor = 1;
			w->idle = 0;
			d->retries += d->retries < MOVES_MOST;
		}
	}
}

bool drift_due(struct drift *d)
{
	bool due = false;
	try_idle(d);
	if (d->moved && d->step - d->moved < quiet(d))
		return false;
	for (int i = 0; i < d->n; i++) {
		const double level = drift_level(d, i);
		if (!differs(level, d->worker[i].asked))
			continue;
		due = true;
		d->worker[i].asked = level;
	}
	return due;
}

int drift_most(const struct drift *d)
{
	int most = -1;
	double far = 1;
	for (int i = 0; i < d->n; i++) {
		const double r = ratio_of(&d->worker[i]), away = r > 1 ? r : 1 / r;
		if (away > far) {
			far = away;
			most = i;
		}
	}
	return most;
}

double drift_middle(struct drift *d)
{
	size_t n = 0;
	for (int i = 0; i < d->n; i++)
		if (d->worker[i].ratio.level > 0)
			d->scratch[n++] = d->worker[i].ratio.level;
	const double middle = n ? stat_median(d->scratch, n) : 1;
	return middle > 1 ? middle : 1;
}

double drift_link_level(const struct drift *d, int member, enum drift_way way)
{
	const struct drift_link *l = &d->worker[member].link[way];
	const double pace = l->pace.level;
	return l->slow && pace > l->best ? pace / l->best : 1;
}

/* Whether one end of a link computes slowly, or nobody knows yet. */
static bool end_is_slow(const struct drift *d, int member)
{
	const double r = d->worker[member].ratio.level;
	return !(r > 0) || r > fast_link;
}

static bool is_slow(const struct drift *d, int member, const struct drift_link *l)
{
	const double pace = l->pace.level, bytes = l->share.level;
	if (l->slow)
		return pace >= fast_link * l->best;
	return pace >= slow_link * l->best && (pace - l->best) * bytes >= link_share &&
	       !end_is_slow(d, member) && !end_is_slow(d, l->next);
}

static int news_of(const struct drift *d, int member, struct drift_link *l)
{
	struct drift_told *t = &l->told;
	if (l->next < 0 || !(l->pace.level > 0) || !(l->best > 0))
		return 0;
	l->slow = is_slow(d, member, l);
	if (t->next != l->next)
		*t = (struct drift_told){ .next = l->next };
	if (t->slow == l->slow || (t->changes && d->step - t->step < (uint64_t)QUIET << t->changes))
		return 0;
	t->slow = l->slow;
	t->step = d->step;
	t->changes += t->changes < MOVES_MOST;
	return l->slow ? 1 : -1;
}

int drift_link_news(struct drift *d, int *member_p, enum drift_way *way_p)
{
	for (int i = 0; i < d->n; i++)
		for (int k = 0; k < DRIFT_WAYS; k++) {
			const int news = news_of(d, i, &d->worker[i].link[k]);
			if (!news)
				continue;
			*member_p = i;
			*way_p = (enum drift_way)k;
			return news;
		}
	return 0;
}
