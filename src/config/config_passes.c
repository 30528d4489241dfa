/* SPDX-License-Identifier: Apache-2.0 */
/* config_passes.c - the row counts of a step's passes, where they differ: `passes`, or the
 * `micro_batch_size` of a group's members in the order in which sched_deal() deals passes
 * to them. */
#include "config/config_parts.h"

#include "base/err.h"
#include "base/mem.h"
#include "sched/sched.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int read_passes(struct config *c, const char *where, struct err *e)
{
	const size_t n = c->passes.n;
	int *v = arena_alloc(&c->arena, (n + 1) * sizeof *v);
	if (!v)
		return err_nomem(e, n * sizeof *v, "'passes'");
	for (size_t i = 0; i < n; i++) {
		char *end;
		const char *text = c->passes.item[i];
		long rows = strtol(text, &end, 10);
		if (!text[0] || *end || rows < 1 || rows > PASS_ROWS_MOST)
			return err_set(e, ERR_USAGE,
				       "%s: number %zu of 'passes' is '%.40s': a whole number "
				       "from 1 to %d was expected",
				       where, i + 1, text, PASS_ROWS_MOST);
		v[i] = (int)rows;
	}
	c->pass = v;
	c->npass = n;
	return 0;
}

/* The passes of a group whose members have sizes of their own: as many as the sum of the shares. */
static int group_passes(struct config *c, struct config_shard *s, const char *where, int **v_p,
			size_t *n_p, struct err *e)
{
	const int n = (int)s->id.n;
	int64_t count = 0;
	if (c->nshards > 1)
		return err_set(e, ERR_USAGE,
			       "%s: 'micro_batch_size' in 'shard_plan' needs a plan of one stage, "
			       "and this one has %zu: leave it out there",
			       where, c->nshards);
	if (!s->share) { /* one pass each */
		int *one = arena_alloc(&c->arena, s->id.n * sizeof *one);
		if (!one)
			return err_nomem(e, s->id.n * sizeof *one, "the shard plan");
		for (int k = 0; k < n; k++)
			one[k] = 1;
		s->share = one;
	}
	for (int k = 0; k < n; k++)
		count += s->share[k];
	if (count > PASSES_MOST)
		return err_set(
			e, ERR_USAGE,
			"%s: with 'micro_batch_size' in 'shard_plan', 'share' counts passes: "
			"%lld of them, %d are allowed",
			where, (long long)count, PASSES_MOST);
	int *v = arena_alloc(&c->arena, (size_t)count * sizeof *v);
	if (!v)
		return err_nomem(e, (size_t)count * sizeof *v, "passes");
	sched_deal(s->share, n, (int)count, v);
	for (int64_t i = 0; i < count; i++)
		v[i] = s->size[v[i]];
	*v_p = v;
	*n_p = (size_t)count;
	return 0;
}

static int take_group(struct config *c, struct config_shard *s, const char *where, struct err *e)
{
	int *v = NULL;
	size_t n = 0;
	TRY(group_passes(c, s, where, &v, &n, e));
	if (c->pass && (n != c->npass || memcmp(v, c->pass, n * sizeof *v) != 0)) {
		char given[160], dealt[160];
		sched_passes_text(c->pass, c->npass, given, sizeof given);
		sched_passes_text(v, n, dealt, sizeof dealt);
		return err_set(
			e, ERR_USAGE,
			"%s: 'passes' is %s, but 'shard_plan' deals the passes %s: leave one "
			"of the two out",
			where, given, dealt);
	}
	c->pass = v;
	c->npass = n;
	return 0;
}

int config_passes_settle(struct config *c, const char *where, struct err *e)
{
	const int64_t batch = c->micro_batch_size * c->gradient_accumulation_steps;
	int64_t rows = 0;
	bool own = false;
	c->pass = NULL;
	c->npass = 0;
	if (c->passes.n > PASSES_MOST)
		return err_set(e, ERR_USAGE, "%s: 'passes' lists %zu, %d are allowed", where,
			       c->passes.n, PASSES_MOST);
	if (c->passes.n)
		TRY(read_passes(c, where, e));
	for (size_t i = 0; i < c->nshards; i++)
		if (c->shard_plan[i].size)
			TRY(take_group(c, &c->shard_plan[i], where, e));
	for (size_t i = 0; i < c->npass; i++) {
		rows += c->pass[i];
		own = own || c->pass[i] != c->micro_batch_size;
	}
	if (c->pass && rows != batch)
		return err_set(
			e, ERR_USAGE,
			"%s: the passes of a step have %lld rows in all, but "
			"micro_batch_size x gradient_accumulation_steps is %lld x %lld: "
			"write 'micro_batch_size: 1' and 'gradient_accumulation_steps: %lld'",
			where, (long long)rows, (long long)c->micro_batch_size,
			(long long)c->gradient_accumulation_steps, (long long)rows);
	if (own && c->nshards > 1)
		return err_set(e, ERR_USAGE,
			       "%s: 'passes' of sizes of their own need one stage, and "
			       "'shard_plan' has %zu: leave 'passes' out",
			       where, c->nshards);
	if (!own) {
		c->pass = NULL;
		c->npass = 0;
	}
	return 0;
}
