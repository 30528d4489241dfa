/* SPDX-License-Identifier: Apache-2.0 */
/* sched.c - the registry of schedules, and what all of them have in common: messages between stages
 * and the end of the step. The orders of computing are in sched_<name>.c. */
#include "sched/sched.h"

#include <ctype.h>
#include <string.h>

#include "base/err.h"
#include "base/mem.h"

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
		"forward",        "backward",       "send_act",        "recv_act",
		"send_grad",      "recv_grad",      "reduce",          "step",
		"send_tied_grad", "recv_tied_grad", "send_tied_value", "recv_tied_value"
	};
	return (unsigned)k < INSTR_COUNT ? name[k] : "?";
}

bool instr_sends(enum instr_kind k)
{
	return k == INSTR_SEND_ACT || k == INSTR_SEND_GRAD || k == INSTR_SEND_TIED_GRAD ||
	       k == INSTR_SEND_TIED_VALUE;
}

bool instr_receives(enum instr_kind k)
{
	return k == INSTR_RECV_ACT || k == INSTR_RECV_GRAD || k == INSTR_RECV_TIED_GRAD ||
	       k == INSTR_RECV_TIED_VALUE;
}

bool sched_target(int stages, int chunks, int stage, int chunk, bool forward, int *stage_p,
		  int *chunk_p)
{
	int s = stage, c = chunk;

	if (stages == 1)
		return false;
	if (forward) {
		if (++s == stages) {
			s = 0;
			c++;
		}
	} else if (--s < 0) {
		s = stages - 1;
		c--;
	}
	if (c < 0 || c >= chunks)
		return false;
	*stage_p = s;
	*chunk_p = c;
	return true;
}

void instr_list_release(struct instr_list *l)
{
	mem_free(l->item);
	*l = (struct instr_list)INSTR_LIST_INIT;
}

static int check_counts(const struct sched *s, int stages, int chunks, int microbatches, int stage,
			struct err *e)
{
	if (stages < 1 || stages > SCHED_MAX_STAGES)
		return err_set(e, ERR_USAGE, "schedule %s: %d stages, must be 1 to %d", s->name,
			       stages, SCHED_MAX_STAGES);
	if (chunks < 1 || chunks > SCHED_MAX_CHUNKS)
		return err_set(e, ERR_USAGE, "schedule %s: %d chunks, must be 1 to %d", s->name,
			       chunks, SCHED_MAX_CHUNKS);
	if (chunks > 1 && !s->chunked)
		return err_set(e, ERR_USAGE, "schedule %s: %d chunks, but it takes one", s->name,
			       chunks);
	if (microbatches < 1 || microbatches > SCHED_MAX_MICROBATCHES / chunks)
		return err_set(e, ERR_USAGE, "schedule %s: %d microbatches, must be 1 to %d",
			       s->name, microbatches, SCHED_MAX_MICROBATCHES / chunks);
	if (stage < 0 || stage >= stages)
		return err_set(e, ERR_INTERNAL, "schedule %s: stage %d of %d", s->name, stage,
			       stages);
	return 0;
}

int sched_build(const struct sched *s, int stages, int chunks, int microbatches, int stage,
		struct instr_list *out, struct err *e)
{
	size_t work, most, from, peer_n = 0;

	out->n = 0;
	TRY(check_counts(s, stages, chunks, microbatches, stage, e));
	/* Each computation has at most one message before and one after it. The order is written
	 * into the tail of the same array and read from there: its entry i is at index 3 * i or
	 * later, so it is read before it is overwritten. */
	work = 2 * (size_t)chunks * (size_t)microbatches;
	most = 3 * work + 2;
	if (!mem_grow(&out->item, &out->cap, most, sizeof *out->item))
		return err_nomem(e, most * sizeof *out->item, "an instruction list");
	from = most - work;
	s->order(stages, chunks, microbatches, stage, out->item + from);
	for (size_t i = 0; i < work; i++) {
		struct instr in = out->item[from + i];
		bool forward = in.kind == INSTR_FORWARD;
		int peer, chunk;

		in.peer = -1;
		if (sched_target(stages, chunks, stage, in.chunk, !forward, &peer, &chunk))
			out->item[peer_n++] =
				(struct instr){ forward ? INSTR_RECV_ACT : INSTR_RECV_GRAD,
						in.microbatch, in.chunk, peer };
		out->item[peer_n++] = in;
		if (sched_target(stages, chunks, stage, in.chunk, forward, &peer, &chunk))
			out->item[peer_n++] =
				(struct instr){ forward ? INSTR_SEND_ACT : INSTR_SEND_GRAD,
						in.microbatch, in.chunk, peer };
	}
	out->item[peer_n++] = (struct instr){ INSTR_REDUCE, -1, -1, -1 };
	out->item[peer_n++] = (struct instr){ INSTR_STEP, -1, -1, -1 };
	out->n = peer_n;
	return 0;
}

int sched_add_tied(int stages, int stage, struct instr_list *l, struct err *e)
{
	const bool front = stage == 0, end = stage == stages - 1;
	const int peer = front ? stages - 1 : 0;

	if (stages == 1 || (!front && !end))
		return 0;
	if (l->n < 2 || l->item[l->n - 2].kind != INSTR_REDUCE ||
	    l->item[l->n - 1].kind != INSTR_STEP)
		return err_set(e, ERR_INTERNAL, "a list that does not end with REDUCE and STEP");
	if (!mem_grow(&l->item, &l->cap, l->n + 2, sizeof *l->item))
		return err_nomem(e, (l->n + 2) * sizeof *l->item, "an instruction list");
	struct instr *last = l->item + l->n - 2;
	last[3] = (struct instr){ front ? INSTR_SEND_TIED_VALUE : INSTR_RECV_TIED_VALUE, -1, -1,
				  peer };
	last[2] = last[1];
	last[1] = last[0];
	last[0] =
		(struct instr){ front ? INSTR_RECV_TIED_GRAD : INSTR_SEND_TIED_GRAD, -1, -1, peer };
	l->n += 2;
	return 0;
}

int sched_in_flight(const struct sched *s, int stages, int chunks, int microbatches, int stage)
{
	return s->in_flight(stages, chunks, microbatches, stage);
}

int sched_build_forward(int stages, int chunks, int microbatches, int stage, struct instr_list *out,
			struct err *e)
{
	out->n = 0;
	if (stages < 1 || stages > SCHED_MAX_STAGES || chunks < 1 || chunks > SCHED_MAX_CHUNKS ||
	    stage < 0 || stage >= stages || microbatches < 1 ||
	    microbatches > SCHED_MAX_MICROBATCHES / chunks)
		return err_set(e, ERR_USAGE,
			       "evaluation: stage %d of %d with %d chunks, %d microbatches", stage,
			       stages, chunks, microbatches);
	if (!mem_grow(&out->item, &out->cap, (size_t)microbatches * (size_t)chunks * 3,
		      sizeof *out->item))
		return err_nomem(e, (size_t)microbatches * (size_t)chunks * 3 * sizeof *out->item,
				 "instructions");
	for (int m = 0; m < microbatches; m++)
		for (int c = 0; c < chunks; c++) {
			int to, chunk, before = (stage + stages - 1) % stages;
			if (stages > 1 && (stage > 0 || c > 0))
				out->item[out->n++] =
					(struct instr){ INSTR_RECV_ACT, m, c, before };
			out->item[out->n++] = (struct instr){ INSTR_FORWARD, m, c, -1 };
			if (sched_target(stages, chunks, stage, c, true, &to, &chunk))
				out->item[out->n++] = (struct instr){ INSTR_SEND_ACT, m, c, to };
		}
	return 0;
}
