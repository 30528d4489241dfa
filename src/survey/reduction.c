/* SPDX-License-Identifier: Apache-2.0 */
/* reduction.c - see reduction.h. */
#include "survey/reduction.h"

#include "base/err.h"
#include "base/log.h"
#include "sched/reduce.h"

#include <string.h>

static int largest_group(const struct placement *p)
{
	int most = 1;
	for (int k = 0; k < p->stages; k++) {
		int n = placement_row(p, k + 1) - placement_row(p, k);
		most = n > most ? n : most;
	}
	return most;
}

/* Of the groups; 0: there are none. */
static int64_t largest_chunk(const struct placement *p)
{
	int64_t most = 0;
	for (int v = 0; v < p->stages * p->chunks; v++) {
		const int k = v % p->stages;
		const int64_t n = p->first[v + 1] - p->first[v];
		if (placement_row(p, k + 1) - placement_row(p, k) > 1 && n > most)
			most = n;
	}
	return most;
}

/* Of gradients. */
static double layer_bytes(const struct job *j)
{
	double numbers = 0;
	for (size_t i = 0; i < j->nparam; i++)
		if (strstr(j->param[i].name, "layers.0."))
			numbers += (double)j->param[i].count;
	return numbers * 4;
}

enum sum_order reduction_order(const struct config *c)
{
	if (c->reduce_order == ORDER_AUTO)
		return c->adapter == ADAPTER_NONE ? SUM_FAST : SUM_EXACT;
	return c->reduce_order == ORDER_EXACT ? SUM_EXACT : SUM_FAST;
}

static int choose_order(const struct job *j, enum sum_order auto_order, bool resume,
			struct rules *rules, struct err *e)
{
	const struct config *c = j->cfg;
	const enum sum_order asked =
		c->reduce_order == ORDER_AUTO ? auto_order : reduction_order(c);
	if (c->reduce_order == ORDER_AUTO && resume)
		return 0;
	if (resume && rules->reduce != (int)asked)
		return err_set(
			e, ERR_USAGE,
			"%s: 'reduce_order' is %s, but the run that is resumed began with %s: "
			"leave the key out",
			c->path, sum_order_name(asked), sum_order_name(rules->reduce));
	rules->reduce = asked;
	return 0;
}

/* `planned`: what the plan says; NULL: nothing. */
static int choose_reducer(const struct config *c, enum sum_order order, int most, bool collective,
			  const struct reducer *planned, const struct reducer **how_p,
			  struct err *e)
{
	const bool half = c->reduce_dtype == REDUCE_BFLOAT16;
	const struct reducer *how = reducer_find(c->reduce);
	if (!how && planned && order == SUM_FAST && !collective) /* auto */
		how = planned;
	if (!how)
		how = reducer_default(order, most, collective && !half);
	if (order == SUM_EXACT && !how->exact)
		return err_set(
			e, ERR_USAGE,
			"%s: 'reduce: %s' cannot keep the order 'exact': write 'reduce_order: "
			"fast', or leave out 'reduce'",
			c->path, how->name);
	if (how->collective && !collective)
		return err_set(
			e, ERR_USAGE,
			"%s: 'reduce: %s' needs links over MPI: start the program with mpirun or "
			"srun, or leave out 'reduce'",
			c->path, how->name);
	if (how->collective && half)
		return err_set(
			e, ERR_USAGE,
			"%s: 'reduce: %s' adds in float32: leave out 'reduce_dtype: bfloat16', or "
			"write 'reduce: ring'",
			c->path, how->name);
	if (order == SUM_EXACT && half)
		return err_set(
			e, ERR_USAGE,
			"%s: 'reduce_dtype: bfloat16' rounds what a group sends, which the order "
			"'exact' does not allow: write 'reduce_order: fast', or leave out "
			"'reduce_dtype'",
			c->path);
	*how_p = how;
	return 0;
}

int reduction_choose(const struct job *j, enum sum_order auto_order, bool resume, bool collective,
		     struct rules *rules, struct placement *p, struct err *e)
{
	const int most = largest_group(p);
	const struct reducer *how = NULL;
	TRY(choose_order(j, auto_order, resume, rules, e));
	TRY(choose_reducer(j->cfg, rules->reduce, most, collective,
			   p->reducer ? reducer_find(p->reducer) : NULL, &how, e));
	if (p->state_share && j->optimizer->cut == CUT_NONE)
		return err_set(
			e, ERR_USAGE,
			"%s: sharing training state needs an optimizer whose state can be divided, "
			"and that of '%s' cannot: write 'shard: none'",
			j->cfg->path, j->optimizer->name);
	p->reduce_order = rules->reduce;
	p->reduce_dtype = j->cfg->reduce_dtype == REDUCE_BFLOAT16 ? DT_BF16 : DT_F32;
	p->reducer = how->name;
	p->parts = j->cfg->reduce_parts ? (int)j->cfg->reduce_parts
					: reduce_parts(layer_bytes(j), largest_chunk(p));
	if (most > 1)
		log_info("groups add up their gradients by '%s', in the order '%s'", how->name,
			 sum_order_name(rules->reduce));
	if (p->sharding)
		log_info("groups share %s", p->sharding == SHARD_PARAMETERS
						    ? "parameters and training state (shard: "
						      "parameters)"
						    : "the state of the optimizer (shard: "
						      "optimizer)");
	return 0;
}

int reduction_resumes(const struct config *c, const struct rules *rules, const struct placement *p,
		      bool allow_changes, struct err *e)
{
	if (rules->dropout > 1 || largest_group(p) < 2)
		return 0;
	if (!allow_changes)
		return err_set(e, ERR_USAGE,
			       "%s: the run that is resumed began with a version of this program "
			       "that had no groups: give each stage one worker, or resume with "
			       "--allow-changes",
			       c->path);
	log_warn("%s: the run that is resumed began without groups: its results are those of one "
		 "worker a stage within rounding",
		 c->path);
	return 0;
}
