/* SPDX-License-Identifier: Apache-2.0 */
/* sched.c - the registry of schedules, and what all of them have in common: messages between stages
 * and the end of the step. The orders of computing are in sched_<name>.c. */
#include "sched/sched.h"

#include <ctype.h>
#include <string.h>

#include "base/err.h"
#include "base/mem.h"
#include "sched/list.h"

static const struct sched *const rows[] = {
#define SCHED(id) &sched_##id,
#include "sched/sched.def"
#undef SCHED
};

const struct sched *sched_at(size_t i) { return i < ARRAY_LEN(rows) ? rows[i] : NULL; }

const struct sched *sched_find(const char *name)
{
	for (size_t i = 0; i < ARRAY_LEN(rows); i++)
		if (!strcmp(rows[i]->name, name))
			return rows[i];
	return NULL;
}

const struct sched *sched_default(void) { return &sched_1f1b; }

const char *instr_name(enum instr_kind k)
{
	static const char *const name[INSTR_COUNT] = {
		"forward",        "backward",        "send_act",
		"recv_act",       "send_grad",       "recv_grad",
		"send_sums",      "reduce",          "norm",
		"step",           "send_values",     "gather",
		"release",        "route",           "experts",
		"combine",        "send_rows",       "recv_rows",
		"back_route",     "back_experts",    "back_combine",
		"send_row_grads", "recv_row_grads",  "send_tied_grad",
		"recv_tied_grad", "send_tied_value", "recv_tied_value"
	};
	return (unsigned)k < INSTR_COUNT ? name[k] : "?";
}

bool instr_sends(enum instr_kind k)
{
	return k == INSTR_SEND_ACT || k == INSTR_SEND_GRAD || k == INSTR_SEND_TIED_GRAD ||
	       k == INSTR_SEND_TIED_VALUE || k == INSTR_SEND_ROWS || k == INSTR_SEND_ROW_GRADS;
}

bool instr_is_of_group(enum instr_kind k)
{
	return k == INSTR_SEND_SUMS || k == INSTR_REDUCE || k == INSTR_SEND_VALUES ||
	       k == INSTR_GATHER || k == INSTR_RELEASE;
}

bool instr_receives(enum instr_kind k)
{
	return k == INSTR_RECV_ACT || k == INSTR_RECV_GRAD || k == INSTR_RECV_TIED_GRAD ||
	       k == INSTR_RECV_TIED_VALUE || k == INSTR_RECV_ROWS || k == INSTR_RECV_ROW_GRADS;
}

void instr_list_release(struct instr_list *l)
{
	mem_free(l->item);
	mem_free(l->deal);
	*l = (struct instr_list){ 0 };
}

/* ---- the shape ---- */

static int group_size(const struct sched_shape *h, int stage)
{
	return h->members ? h->members[stage] : 1;
}

static bool deals_experts(const struct sched_shape *h, int stage)
{
	return h->experts && h->experts[stage].layers;
}

/* With the members that have experts alone. */
static int places(const struct sched_shape *h, int stage)
{
	return deals_experts(h, stage) ? h->experts[stage].places : group_size(h, stage);
}

/* The shares of a stage's group; NULL: equal. */
static const int *group_share(const struct sched_shape *h, int stage)
{
	const int *share = h->share;
	for (int s = 0; share && s < stage; s++)
		share += group_size(h, s);
	return share;
}

static int check_group(const char *name, const struct sched_shape *h, int stage, struct err *e)
{
	const int n = group_size(h, stage), *share = group_share(h, stage);
	int64_t sum = 0;
	if (n < 1 || n > SCHED_MAX_GROUP)
		return err_set(e, ERR_USAGE,
			       "schedule %s: stage %d has %d members, must be 1 to %d", name, stage,
			       n, SCHED_MAX_GROUP);
	for (int k = 0; k < n; k++) {
		int v = share ? share[k] : 1;
		if (v < 0 || v > SCHED_MAX_SHARE)
			return err_set(
				e, ERR_USAGE,
				"schedule %s: stage %d: the share of member %d is %d, must be 0 "
				"to %d",
				name, stage, k, v, SCHED_MAX_SHARE);
		sum += v;
	}
	return sum > 0 ? 0
		       : err_set(e, ERR_USAGE,
				 "schedule %s: the shares of stage %d are all 0: nobody would "
				 "compute",
				 name, stage);
}

static int check_shape(const char *name, const struct sched_shape *h, int stage, int place,
		       struct err *e)
{
	if (h->stages < 1 || h->stages > SCHED_MAX_STAGES)
		return err_set(e, ERR_USAGE, "schedule %s: %d stages, must be 1 to %d", name,
			       h->stages, SCHED_MAX_STAGES);
	if (h->chunks < 1 || h->chunks > SCHED_MAX_CHUNKS)
		return err_set(e, ERR_USAGE, "schedule %s: %d chunks, must be 1 to %d", name,
			       h->chunks, SCHED_MAX_CHUNKS);
	if (h->microbatches < 1 || h->microbatches > SCHED_MAX_MICROBATCHES / h->chunks)
		return err_set(e, ERR_USAGE, "schedule %s: %d microbatches, must be 1 to %d", name,
			       h->microbatches, SCHED_MAX_MICROBATCHES / h->chunks);
	if (h->parts < 0 || h->parts > SCHED_MAX_PARTS)
		return err_set(e, ERR_USAGE, "schedule %s: gradients in %d parts, must be 1 to %d",
			       name, h->parts, SCHED_MAX_PARTS);
	for (int s = 0; h->members && s < h->stages; s++)
		TRY(check_group(name, h, s, e));
	if (stage < 0 || stage >= h->stages || place < 0 || place >= places(h, stage))
		return err_set(e, ERR_INTERNAL, "schedule %s: stage %d of %d, place %d", name,
			       stage, h->stages, place);
	return 0;
}

/* A pipeline in which a group has as many places as it works on microbatches: its length, and where
 * the stage is. The last stage of one chunk begins each backward as soon as its forward has ended,
 * so it needs no room for several. */
static void virtual_pipeline(const struct sched_shape *h, int stage, int *length_p, int *at_p)
{
	int length = 0;
	for (int s = 0; s < h->stages; s++) {
		if (s == stage)
			*at_p = length;
		length += h->members ? sched_depth(group_share(h, s), group_size(h, s)) : 1;
	}
	*length_p = length;
	if (stage == h->stages - 1 && h->chunks == 1)
		*at_p = length - 1;
}

static int deal_out(const struct sched_shape *h, int stage, int place, struct instr_list *l,
		    struct list_deal *d_p, struct err *e)
{
	const size_t m = (size_t)h->microbatches;
	const int S = h->stages, of[3] = { stage, (stage + S - 1) % S, (stage + 1) % S };
	*d_p = (struct list_deal){ .place = place };
	if (!h->members)
		return 0;
	if (!mem_grow(&l->deal, &l->deal_cap, 3 * m, sizeof *l->deal))
		return err_nomem(e, 3 * m * sizeof *l->deal, "an instruction list");
	for (int k = 0; k < 3; k++)
		sched_deal(group_share(h, of[k]), group_size(h, of[k]), h->microbatches,
			   l->deal + (size_t)k * m);
	d_p->here = l->deal;
	d_p->before = l->deal + m;
	d_p->behind = l->deal + 2 * m;
	return 0;
}

/* ---- the lists ---- */

/* The last backward of a chunk: its gradients are sent part by part. */
static void put_last_backward(struct instr_list *l, const struct sched_shape *h,
			      const struct list_deal *d, int stage, const struct instr *in)
{
	const int parts = h->parts ? h->parts : 1;
	for (int p = 0; p < parts; p++) {
		list_put_part(l, INSTR_BACKWARD, in->microbatch, in->chunk, p,
			      parts > 1 ? parts : 0);
		if (p + 1 == parts)
			list_put_message(l, h, d, stage, in, true);
		list_put_part(l, INSTR_SEND_SUMS, -1, in->chunk, p, 0);
	}
}

/* With the messages before it and behind it. */
static void put_computation(struct instr_list *l, const struct sched_shape *h,
			    const struct list_deal *d, int stage, const struct instr *in, bool last)
{
	list_put_message(l, h, d, stage, in, false);
	if (last && in->kind == INSTR_BACKWARD) {
		put_last_backward(l, h, d, stage, in);
		return;
	}
	list_put(l, in->kind, in->microbatch, in->chunk, -1, -1);
	list_put_message(l, h, d, stage, in, true);
}

static int last_own(const struct list_deal *d, int microbatches)
{
	int m = microbatches - 1;
	while (m >= 0 && !list_is_ours(d, m))
		m--;
	return m;
}

static void put_reduces(struct instr_list *l, int chunk, int parts)
{
	for (int p = 0; p < parts; p++)
		list_put_part(l, INSTR_REDUCE, -1, chunk, p, 0);
}

/* A phase is the forwards of a chunk or its backwards; phase `chunks` begins with the chunk with
 * which the one before ends. */
static int phase_chunk(int chunks, int phase)
{
	return phase < chunks ? phase : 2 * chunks - 1 - phase;
}

static bool phase_gathers(int chunks, int phases, int phase)
{
	return phase < phases && phase != chunks;
}

static void put_phase(struct instr_list *l, enum instr_kind kind, int chunks, int phase)
{
	list_put_part(l, kind, -1, phase_chunk(chunks, phase), phase >= chunks, 0);
}

/* The values of this phase's chunk must be here; those of the next are asked for. */
static void begin_phase(struct instr_list *l, int chunks, int phases, int phase)
{
	if (phase == 0)
		put_phase(l, INSTR_SEND_VALUES, chunks, 0);
	if (phase_gathers(chunks, phases, phase))
		put_phase(l, INSTR_GATHER, chunks, phase);
	if (phase_gathers(chunks, phases, phase + 1))
		put_phase(l, INSTR_SEND_VALUES, chunks, phase + 1);
}

static void end_phase(struct instr_list *l, int chunks, int phases, int phase, int parts)
{
	if (phase + 1 == phases || phase_gathers(chunks, phases, phase + 1))
		put_phase(l, INSTR_RELEASE, chunks, phase);
	if (phase > chunks)
		put_reduces(l, phase_chunk(chunks, phase) + 1, parts);
}

/* The list of a stage whose experts are elsewhere. */
static int build_experts(const struct sched *s, const struct sched_shape *h, int stage, int place,
			 int length, int at, struct instr_list *out, struct err *e)
{
	struct list_deal d;
	const size_t work = 2 * (size_t)h->microbatches;
	if (h->chunks > 1 || h->gather)
		return err_set(e, ERR_USAGE,
			       "schedule %s: a stage whose experts are on other members has one "
			       "chunk, whose values are not gathered",
			       s->name);
	struct instr *order = mem_array(work, sizeof *order);
	int rc = order ? deal_out(h, stage, place, out, &d, e)
		       : err_nomem(e, work * sizeof *order, "an instruction list");
	const bool sums = group_size(h, stage) > 1 && place < group_size(h, stage);
	if (rc >= 0) {
		s->order(length, 1, h->microbatches, at, order);
		rc = list_put_experts(out, h, &d, stage, order, work, 0, sums,
				      last_own(&d, h->microbatches), e);
	}
	mem_free(order);
	if (rc < 0)
		return rc;
	if (sums)
		put_reduces(out, 0, h->experts[stage].layers);
	list_put(out, INSTR_NORM, -1, -1, -1, -1);
	list_put(out, INSTR_STEP, -1, -1, -1, -1);
	return 0;
}

int sched_build(const struct sched *s, const struct sched_shape *h, int stage, int place,
		struct instr_list *out, struct err *e)
{
	struct list_deal d;
	int length = h->stages, at = stage;
	out->n = 0;
	TRY(check_shape(s->name, h, stage, place, e));
	if (h->chunks > 1 && !s->chunked)
		return err_set(e, ERR_USAGE, "schedule %s: %d chunks, but it takes one", s->name,
			       h->chunks);
	if (h->gather && !s->gathers)
		return err_set(e, ERR_USAGE,
			       "schedule %s does not work on one chunk at a time, so no values can "
			       "be gathered",
			       s->name);
	virtual_pipeline(h, stage, &length, &at);
	if (length > SCHED_MAX_STAGES)
		return err_set(e, ERR_USAGE, "schedule %s: more than %d stages and members",
			       s->name, SCHED_MAX_STAGES);
	if (deals_experts(h, stage))
		return build_experts(s, h, stage, place, length, at, out, e);
	TRY(deal_out(h, stage, place, out, &d, e));
	const bool group = group_size(h, stage) > 1, gather = h->gather && (group || h->alone);
	const int parts = h->parts ? h->parts : 1;
	/* Each computation has at most one message before and one after it, and what the parts
	 * need. The order is written into the tail of the same array and read from there: its
	 * entry i is behind all that the entries before it become, so it is read before it is
	 * overwritten. */
	const size_t chunks = (size_t)h->chunks, work = 2 * chunks * (size_t)h->microbatches,
		     most = 3 * work + 3 * chunks * (size_t)parts + 6 * chunks + 2,
		     from = most - work;
	if (!mem_grow(&out->item, &out->cap, most, sizeof *out->item))
		return err_nomem(e, most * sizeof *out->item, "an instruction list");
	s->order(length, h->chunks, h->microbatches, at, out->item + from);
	const int last = last_own(&d, h->microbatches), phases = 2 * h->chunks;
	for (size_t i = 0; i < work; i++) {
		const struct instr in = out->item[from + i];
		const int phase = (int)i / h->microbatches;
		if (gather && in.microbatch == 0)
			begin_phase(out, h->chunks, phases, phase);
		if (list_is_ours(&d, in.microbatch))
			put_computation(out, h, &d, stage, &in, group && in.microbatch == last);
		if (gather && in.microbatch + 1 == h->microbatches)
			end_phase(out, h->chunks, phases, phase, group ? parts : 0);
	}
	for (int c = gather ? 0 : h->chunks - 1; group && c >= 0; c--)
		put_reduces(out, c, parts);
	list_put(out, INSTR_NORM, -1, -1, -1, -1);
	list_put(out, INSTR_STEP, -1, -1, -1, -1);
	return 0;
}

/* Of an evaluation: as many microbatches in turns as keep both sides busy, and no more, since each
 * takes memory. */
static int build_experts_forward(const struct sched_shape *h, const struct list_deal *d, int stage,
				 struct instr_list *out, struct err *e)
{
	const size_t n = (size_t)h->microbatches;
	struct instr *order = mem_array(n, sizeof *order);
	if (!order)
		return err_nomem(e, n * sizeof *order, "an instruction list");
	for (size_t m = 0; m < n; m++)
		order[m] = instr_compute(INSTR_FORWARD, (int)m, 0);
	int rc = list_put_experts(out, h, d, stage, order, n, 2 * group_size(h, stage), false, -1,
				  e);
	mem_free(order);
	return rc;
}

int sched_build_forward(const struct sched_shape *h, int stage, int place, struct instr_list *out,
			struct err *e)
{
	struct list_deal d;
	out->n = 0;
	TRY(check_shape("evaluation", h, stage, place, e));
	TRY(deal_out(h, stage, place, out, &d, e));
	if (deals_experts(h, stage))
		return build_experts_forward(h, &d, stage, out, e);
	const bool gather = h->gather && (h->alone || group_size(h, stage) > 1);
	const size_t M = (size_t)h->microbatches, C = (size_t)h->chunks, most = 3 * M * C + 3 * C;
	if (!mem_grow(&out->item, &out->cap, most, sizeof *out->item))
		return err_nomem(e, most * sizeof *out->item, "instructions");
	for (size_t i = 0; i < M * C; i++) {
		const int m = (int)(h->gather ? i % M : i / C),
			  c = (int)(h->gather ? i / M : i % C);
		const struct instr in = instr_compute(INSTR_FORWARD, m, c);
		if (gather && m == 0)
			begin_phase(out, h->chunks, h->chunks, c);
		if (list_is_ours(&d, m))
			put_computation(out, h, &d, stage, &in, false);
		if (gather && m + 1 == h->microbatches)
			end_phase(out, h->chunks, h->chunks, c, 0);
	}
	return 0;
}

/* Member `place` of one group exchanges with member place % n of the other group of n; who has
 * several partners exchanges with each of them. */
static void put_tied(struct instr_list *l, enum instr_kind kind, int peer, int mine, int place,
		     int theirs, bool once)
{
	if (once) {
		list_put(l, kind, -1, -1, peer, place % theirs);
		return;
	}
	for (int k = place; k < theirs; k += mine)
		list_put(l, kind, -1, -1, peer, k);
}

int sched_add_tied(const struct sched_shape *h, int stage, int place, struct instr_list *l,
		   struct err *e)
{
	const bool front = stage == 0, end = stage == h->stages - 1;
	const int peer = front ? h->stages - 1 : 0;
	if (h->stages == 1 || (!front && !end) || place >= group_size(h, stage))
		return 0;
	if (l->n < 2 || l->item[l->n - 2].kind != INSTR_NORM ||
	    l->item[l->n - 1].kind != INSTR_STEP)
		return err_set(e, ERR_INTERNAL, "a list that does not end with NORM and STEP");
	const int mine = group_size(h, stage), theirs = group_size(h, peer);
	if (!mem_grow(&l->item, &l->cap, l->n + 2 * (size_t)theirs + 2, sizeof *l->item))
		return err_nomem(e, (l->n + 2) * sizeof *l->item, "an instruction list");
	l->n -= 2;
	/* a member of the front gets one gradient; a member of the end gets one value */
	put_tied(l, front ? INSTR_RECV_TIED_GRAD : INSTR_SEND_TIED_GRAD, peer, mine, place, theirs,
		 front);
	list_put(l, INSTR_NORM, -1, -1, -1, -1);
	list_put(l, INSTR_STEP, -1, -1, -1, -1);
	put_tied(l, front ? INSTR_SEND_TIED_VALUE : INSTR_RECV_TIED_VALUE, peer, mine, place,
		 theirs, !front);
	return 0;
}

/* ---- activations in flight ---- */

int sched_in_flight_alone(const struct sched *s, int stages, int chunks, int microbatches,
			  int stage)
{
	return s->in_flight(stages, chunks, microbatches, stage);
}

int sched_at_end(const struct sched *s, int stages, int chunks, int microbatches)
{
	if (chunks > 1)
		return s->gathers ? microbatches : 1;
	return s->in_flight(stages, 1, microbatches, stages - 1);
}

int sched_in_flight(const struct sched *s, const struct sched_shape *h, int stage, int place)
{
	struct instr_list l = { 0 };
	struct err ignored = { 0 };
	int length = h->stages, at = stage, kept = 0, most = 0;
	if (!h->members)
		return s->in_flight(h->stages, h->chunks, h->microbatches, stage);
	virtual_pipeline(h, stage, &length, &at);
	if (sched_build(s, h, stage, place, &l, &ignored) < 0) /* memory: of the whole group */
		most = s->in_flight(length, h->chunks, h->microbatches, at);
	for (size_t i = 0; i < l.n; i++) {
		kept += l.item[i].kind == INSTR_FORWARD;
		kept -= l.item[i].kind == INSTR_BACKWARD && l.item[i].part + 1 >= l.item[i].parts;
		most = kept > most ? kept : most;
	}
	instr_list_release(&l);
	return most;
}
