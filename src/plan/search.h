/* SPDX-License-Identifier: Apache-2.0 */
/* search.h - what the planners that search pipelines share: a candidate, its evaluation, and the
 * best one so far.
 *
 * A candidate is a pipeline of single devices: their order, how many layers each has, schedule,
 * chunks and microbatch size. The rest of a plan follows from that (recomputation: cost.h; layers
 * of the chunks: cost_cut). */
#ifndef HS_PLAN_SEARCH_H
#define HS_PLAN_SEARCH_H

#include "plan/cost.h"

struct candidate {
	const struct sched *sched;
	int stages, chunks, m;
	int *device, *layers; /* [devices] */
	double step_s;        /* INFINITY: none yet */
};

struct search_kind {
	const struct sched *sched;
	int chunks;
};

enum { SEARCH_MAX_SIZES = 256, SEARCH_MAX_KINDS = 64 };

struct search {
	struct cost c;
	const struct profile *p;
	const struct plan_options *o;
	int size[SEARCH_MAX_SIZES]; /* microbatch sizes */
	int sizes;
	struct search_kind kind[SEARCH_MAX_KINDS];
	int kinds;
	struct candidate best;
	struct pipe_stage *stage; /* scratch */
	int *first;
	int64_t examined;
};

int search_init(struct search *s, const struct profile *p, const struct plan_options *o,
		struct err *e);
void search_release(struct search *s);
/* in the search's arena */
int candidate_init(struct search *s, struct candidate *k, struct err *e);
void candidate_copy(struct candidate *to, const struct candidate *from);

/* Step time in seconds, INFINITY when it does not fit, is not possible (more chunks than layers, a
 * required device missing) or is known to be `cutoff` or more. */
int search_eval(struct search *s, const struct candidate *k, double cutoff, double *step_s_p,
		struct err *e);
/* The same against the best so far, which it replaces when it is faster. */
int search_offer(struct search *s, struct candidate *k, struct err *e);
/* Writes a candidate as a plan. */
int search_plan(struct search *s, const struct candidate *k, struct plan *out, struct err *e);
/* When nothing fits: the pipeline over all devices that exceeds its limits least, as an
 * error message. */
int search_nothing_fits(struct search *s, struct err *e);

/* Heuristics (best_local.c): good pipelines for any number of devices, offered to `s`. `effort` is
 * the number of instructions to simulate at most. */
int search_heuristic(struct search *s, int64_t effort, struct err *e);
/* Branch and bound (best_exact.c): true in *complete_p when every pipeline was covered within
 * `nodes` nodes. */
int search_exact(struct search *s, int64_t nodes, bool *complete_p, struct err *e);

/* Groups (best_groups.c), for clusters of at most SEARCH_GROUPED devices: 1: *out is the fastest
 * plan found whose stages several devices may share; 0: none fits. `known` (MAY be NULL) is a
 * pipeline to begin with. */
enum { SEARCH_GROUPED = 64 };
int search_groups(const struct profile *p, const struct plan_options *o, const struct plan *known,
		  int64_t effort, struct plan *out, struct err *e);
/* The same for larger clusters (best_many.c): sets of neighbours, without improving them. */
int search_many(const struct profile *p, const struct plan_options *o, int64_t effort,
		struct plan *out, struct err *e);
/* The same by judging all groupings, with one chunk a stage; SEARCH_TOO_MANY: none was judged. */
enum { SEARCH_TOO_MANY = 2 };
int search_groups_all(const struct profile *p, const struct plan_options *o, struct plan *out,
		      struct err *e);
/* How many groupings with their layers there are. */
double search_groupings(const struct profile *p);
/* Of a plan whose groups are decided (best_polish.c): moves microbatches, rows and training state
 * between the members of a group as long as that is faster. */
int search_polish(const struct profile *p, const struct plan_options *o, int64_t effort,
		  struct plan *plan, struct err *e);
/* The training state of a group for speed: who updates fast stores much. */
void search_share(const struct profile *p, const struct plan_options *o, struct plan_stage *s);
/* Of a plan that was simulated and does not fit: where members together have room for the state
 * that they share, each stores as much as it has room for. The plan is simulated. */
int search_room(const struct profile *p, const struct plan_options *o, struct plan *plan,
		struct err *e);
/* Of a plan that was simulated: the stages that do not fit recompute. */
void search_recompute_over(struct plan *plan);
/* Keeps the faster of two plans in `out`; *found: there is one. */
int search_faster(const struct profile *p, const struct plan_options *o, struct plan *other,
		  struct plan *out, bool *found, struct err *e);

#endif
