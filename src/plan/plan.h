/* SPDX-License-Identifier: Apache-2.0 */
/* plan.h - a plan: which layers on which device, in what schedule, and what to expect of it; and
 * the planners that make one.
 *
 * A plan has `stages` stages; a stage is held by one device, or by a group of devices that share
 * its microbatches. Each stage has `chunks` chunks (1 unless the schedule is interleaved): chunk c
 * of stage k has the number v = c * stages + k and the layers [first[v], first[v + 1]). Stage 0 has
 * the embedding, the last stage norm, head and loss.
 *
 * plan.json (version 1), a file people can edit and give back (planner `manual`):
 *
 *   { "version": 1, "planner", "model", "layers", "sequence_len", "global_batch", "dtype",
 *     "schedule", "chunks", "microbatch", "microbatches",
 *     "reduce",              how groups add up (sched/reduce.def), where not as usual
 *     "passes",              rows of each microbatch, where they differ; one stage only
 *     "predicted_ms",        what the planner says (its own formula for the published ones)
 *     "simulated_ms",        one optimizer step by our simulator: what all planners are compared by
 *     "objective_ms",        what a published planner minimised, where that is something else
 *     "tokens_per_second", "fits", "executable", "why_not",
 *     "estimated",           true where a device of the profile was not measured
 *     "watts", "tokens_per_watt_hour", "devices_without_watts",    worth.h
 *     "stages": [{"layers": [first, last), "recompute", "sharded",
 *                 "homes", "experts": [place, ...]   where experts are on other devices: which one
 *                   has each, an index of `devices`, or a list of these for each layer; the first
 *                   `homes` devices run microbatches
 *                 "devices": [{"id", "host", "microbatch", "microbatches", "share", "samples",
 *                              "state_share", "memory_gib", "memory_limit_gib", "host_gib",
 *                              "links_gib", "busy", "copy", "wait", "bubble"}, ...]}, ...],
 *     "left_out": [ids], "search_ms" }
 *
 * `stages` lists the chunks in the order of the layers: with chunks = c, entry i belongs to the
 * same devices as entry i % (entries / c). One entry with all layers, and chunks = c: one stage,
 * cut into c chunks as even as possible. busy, copy, wait and bubble are shares of the step time
 * (sched/play.h says what counts where). state_share is the part of the stage's training state the
 * device stores. When it is read, only planner, schedule, chunks, microbatch, passes, layers,
 * recompute, sharded, ids, and microbatch, microbatches, share and state_share of groups are used;
 * the rest is simulated anew. A group needs either the microbatches or the share of each device.
 * In one stage each device of a group may have a microbatch of its own, with the number of its
 * microbatches: the passes follow from the order in which they are dealt (sched_deal).
 *
 * Executable: groups whose microbatches have one size (in one stage: any), sharded ones with a
 * schedule that works on one chunk at a time. */
#ifndef HS_PLAN_PLAN_H
#define HS_PLAN_PLAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "plan/profile.h"
#include "sched/play.h"
#include "sched/reduce.h"
#include "sched/sched.h"

struct err;
struct buf;
struct plan;

enum plan_recompute { PLAN_RECOMPUTE_AUTO, PLAN_RECOMPUTE_NEVER, PLAN_RECOMPUTE_ALWAYS };

struct plan_options {
	int microbatch; /* 0: the planner chooses */
	/* [passes] rows of each microbatch, where they differ: the job's. NULL: microbatch each. A
	 * planner other than `manual` then plans for one device only */
	const int *pass;
	int passes;
	/* the rows of microbatches are decided, since the run has begun: planners that choose them
	 * whatever `microbatch` says (cephalo, zorse) do not */
	bool keep_passes;
	const struct sched *sched; /* NULL: the planner chooses */
	int max_chunks;            /* for interleaving; at least 1 */
	double reserve_gib;        /* per device; < 0: the profile's */
	/* auto: a stage recomputes where it would not fit otherwise */
	enum plan_recompute recompute;
	/* `best` may choose groups */
	bool groups;
	int must_use; /* a device `best` has to use, or -1 */
	/* of `best`: instructions to simulate, about; 0: 20 million (about a second at most) */
	int64_t effort;
	const struct plan *manual; /* for the row `manual` */
	/* groups of `manual` share their training state, by memory, where it would not fit; and if
	 * that is not enough, in one stage their values too */
	bool share_auto;
	/* bits of enum offload: what devices have in the memory of their hosts. `auto`: the first
	 * of plan_offload_at() with which a plan fits, where none does without */
	unsigned offload;
	bool offload_auto;
	double expert_cache_gib; /* of a device, for experts that are offloaded; 0: of two layers */
	enum sum_order order;    /* of gradients; 0: fast */
	/* forward passes of layers, and of the head, for each that is trained; 0: 1 */
	double forwards, head_forwards;
	/* instead: exact where its memory fits and its step takes at most 5 % longer, else fast */
	bool order_auto;
	int reduce_parts; /* of a chunk's gradients; 0: as reduce_parts() says */
	bool reduce_half; /* their sums travel in two bytes a number, not four */
	/* how groups add them up; NULL: reducer_default(), `collective` for it */
	const struct reducer *reducer;
	bool collective;
};

#define PLAN_OPTIONS_DEFAULT                                                                       \
	{                                                                                          \
		.max_chunks = 3, .reserve_gib = -1, .must_use = -1                                 \
	}

struct plan_member {
	int device;
	/* samples = microbatch * microbatches; with plan.pass microbatch is the largest one */
	int microbatch, microbatches, samples;
	/* of the group's microbatches, beside the others' shares (sched_deal); 0 where all are 0:
	 * the numbers of microbatches */
	int share;
	double state_share;              /* of the stage's training state; not shared: 1 */
	double memory_gib, limit_gib;    /* needed, allowed */
	double host_gib;                 /* of the host's memory: what is offloaded */
	double links_gib;                /* and at most: messages on its links to other workers */
	double busy, copy, wait, bubble; /* shares of the step time */
};

struct plan_stage {
	struct plan_member *member;
	int members;
	bool recompute; /* layers run forward once more in backward; only their inputs are kept */
	/* weights and state are spread over the group, gathered chunk by chunk (FSDP); run by
	 * schedules that work on one chunk at a time, else by the formulas of cost.h alone */
	bool sharded;
	/* Where experts are on members of the group: [layers of the stage * experts] the place of
	 * each; and how many members, the first ones, run microbatches. NULL: they are where the
	 * rest of the layer is */
	const uint8_t *deal;
	int experts, homes;
};

struct plan {
	struct arena mem; /* owns everything below */
	const char *planner;
	const struct sched *sched;
	enum sum_order order;          /* of gradients, with which it was simulated */
	unsigned offload;              /* bits of enum offload */
	const struct reducer *reducer; /* how groups add up; NULL: as the options say */
	int chunks, microbatch, microbatches;
	const int *pass; /* [microbatches] rows, where they differ; NULL: microbatch each */
	int stages;
	struct plan_stage *stage;
	int *first; /* [stages * chunks + 1] */
	int *left_out;
	int left_outs;
	/* objective: NaN when it is the step time */
	double predicted_ms, simulated_ms, objective_ms;
	double tokens_per_s;
	bool fits;       /* every device within its limit, and what is offloaded in its hosts */
	int over_device; /* the one furthest above it, and by how much */
	double over_gib;
	bool over_host; /* it is the memory of its host that is short, not its own */
	bool executable;
	char why_not[160]; /* executable today? else why not */
	bool proven;       /* the search covered every pipeline: none is faster */
	int64_t examined;  /* plans looked at */
	double search_ms;
};

/* A planner: pure, from (profile, options) to a plan. `out` comes in empty with its arena; the
 * planner fills sched, chunks, microbatch, stages (members with device, microbatch, microbatches,
 * state_share), first, and optionally predicted_ms, objective_ms, proven, examined. planner_run()
 * does the rest. */
struct planner {
	const char *name, *help;
	bool needs_plan; /* it takes plan_options.manual and makes none of its own */
	/* it plans for passes of several sizes too, on any number of devices */
	bool takes_passes;
	/* it chooses the rows of microbatches, whatever the configuration says of them */
	bool chooses_sizes;
	/* beside its plan it is looked for how groups add up, and what to offload */
	bool chooses_rest;
	int (*plan)(const struct profile *p, const struct plan_options *o, struct plan *out,
		    struct err *e);
};

#define PLANNER(id) extern const struct planner planner_##id;
#include "plan/planner.def"
#undef PLANNER

const struct planner *planner_at(size_t i); /* the list: planners.c */
const struct planner *planner_find(const char *name);
const struct planner *planner_default(void);

/* Runs a planner, checks the plan and simulates it. Some planners (manual, even, ...) return a plan
 * that does not fit, with `fits` false; `best` and `exhaustive` return ERR_USAGE with a message
 * that says by how much and what would make it fit. */
int planner_run(const struct planner *pl, const struct profile *p, const struct plan_options *o,
		struct plan *out, struct err *e);
void plan_release(struct plan *plan);

/* Layers covered once and in order, devices that exist and are used once, microbatches that add up
 * to the global batch. */
int plan_check(const struct profile *p, const struct plan *plan, struct err *e);
/* Fills what follows from the choice: times, shares, memory, fits, executable, left_out. */
int plan_simulate(const struct profile *p, const struct plan_options *o, struct plan *plan,
		  struct err *e);
/* The same, calling `fn` with every span of the simulated step (sched/play.h), in no
 * particular order. */
typedef void (*plan_span_fn)(void *ctx, const struct play_span *s);
int plan_timeline(const struct profile *p, const struct plan_options *o, struct plan *plan,
		  plan_span_fn fn, void *ctx, struct err *e);
/* Space for `stages` stages of one device each, in the plan's arena. */
int plan_alloc(struct plan *plan, int stages, int chunks, struct err *e);
int plan_stage_members(struct plan *plan, int stage, int members, struct err *e);
/* The experts of a stage, whose layers are known, as in `from`, whose list is copied; NULL there:
 * nothing. */
int plan_deal_experts(struct plan *plan, int stage, const struct plan_stage *from, struct err *e);

/* The n microbatches of the plan's only stage have pass[i] rows (copied), and are dealt to its
 * members by their shares, or where these are 0 by their numbers of microbatches. Lists in which
 * all have `microbatch` rows leave the plan as it is. */
int plan_set_passes(struct plan *plan, const int *pass, int n, struct err *e);

int plan_layers(const struct plan *plan, int stage); /* of all its chunks */
/* Whether the members of a stage are simulated each with the list that it runs; else the stage is
 * one member of the play (a device alone, or a group by the formulas of cost.h). */
bool plan_plays_members(const struct plan *plan, int stage);
bool plan_uses(const struct plan *plan, int device);
/* Whether a stage has its experts on members of a group; whether any has. */
static inline bool plan_deals_experts(const struct plan *plan)
{
	for (int k = 0; k < plan->stages; k++)
		if (plan->stage[k].deal)
			return true;
	return false;
}
/* Gives the members of a group parts of its training state, by their memory. */
void plan_share_state(const struct profile *p, const struct plan_options *o, struct plan_stage *s);
/* The layers of each stage are cut into `chunks` chunks, as even as possible, and dealt to the
 * stages in turns; the schedule becomes one that works on one chunk at a time. With `shard` groups
 * store their values in pieces (`sharded`). */
int plan_cut_layers(struct plan *plan, int chunks, bool shard, struct err *e);
static inline int plan_shard_values(struct plan *plan, int chunks, struct err *e)
{
	return plan_cut_layers(plan, chunks, true, e);
}
/* The most chunks that its stages can be cut into. */
int plan_most_chunks(const struct plan *plan);
/* Whether the members of a stage share its optimizer state and float32 copies, by state_share. */
static inline bool plan_shares_state(const struct plan_stage *s)
{
	double sum = 0;
	for (int i = 0; i < s->members; i++)
		sum += s->member[i].state_share;
	return !s->sharded && s->members > 1 && sum < s->members - 1e-6;
}

void plan_to_json(const struct profile *p, const struct plan *plan, struct buf *out);
/* ERR_INPUT for a plan of another number of layers, an unknown device, ... `out` is simulated. */
int plan_read_text(const struct profile *p, const struct plan_options *o, const char *text,
		   size_t n, const char *where, struct plan *out, struct err *e);
int plan_read_file(const struct profile *p, const struct plan_options *o, const char *path,
		   struct plan *out, struct err *e);

#endif
