/* SPDX-License-Identifier: Apache-2.0 */
/* round.c - see round.h. */
#include "train/round.h"

#include "base/err.h"
#include "base/mem.h"

#include <string.h>

enum { SPANS_MOST = 4096 /* of a worker and round */ };

int rounds_init(struct rounds *p, struct session *s, const struct round_options *o, struct arena *a,
		struct err *e)
{
	const struct crew *c = session_crew(s);
	size_t most = (size_t)(c->n ? c->n : 1);
	*p = (struct rounds){ .ses = s, .o = *o, .layers = session_job(s)->model.layers };
	buf_init(&p->out);
	p->member = arena_alloc(a, most * sizeof *p->member);
	p->row = arena_alloc(a, most * sizeof *p->row);
	p->next = arena_alloc(a, most * sizeof *p->next);
	p->have_norm = arena_alloc(a, most * sizeof *p->have_norm);
	p->have_done = arena_alloc(a, most * sizeof *p->have_done);
	p->stepped = arena_alloc(a, most * sizeof *p->stepped);
	p->clock = arena_alloc(a, most * sizeof *p->clock);
	p->rates = arena_alloc(a, most * sizeof *p->rates);
	p->stages = arena_alloc(a, most * sizeof *p->stages);
	if (!p->member || !p->row || !p->next || !p->have_norm || !p->have_done || !p->stepped ||
	    !p->clock || !p->rates || !p->stages)
		return err_nomem(e, most * sizeof *p->stepped, "workers");
	if (o->trace && !(p->span = mem_array(SPANS_MOST, sizeof *p->span)))
		return err_nomem(e, SPANS_MOST * sizeof *p->span, "the trace");
	p->n = crew_order(c, p->member);
	for (int i = 0; i < c->n; i++)
		p->row[i] = -1;
	for (int k = 0; k < p->n; k++)
		p->row[p->member[k]] = k;
	for (int k = 0; k < p->n; k++) {
		int stage = crew_stage_of(c, p->member[k]), behind = crew_stage_behind(c, stage);
		int m = crew_at(c, behind, 0);
		/* between groups the messages of a link do not follow each other in one order */
		bool one = crew_group_size(c, stage) == 1 && crew_group_size(c, behind) == 1;
		p->next[k] = m >= 0 && one ? p->row[m] : -1;
	}
	return 0;
}

void rounds_release(struct rounds *p)
{
	mem_free(p->loss);
	mem_free(p->have_loss);
	references_release(&p->ref);
	buf_release(&p->out);
	mem_free(p->span);
}

void round_begin(struct rounds *p, enum round kind, uint32_t n, uint64_t step, float scale)
{
	memset(p->have_norm, 0, (size_t)p->n * sizeof *p->have_norm);
	memset(p->have_done, 0, (size_t)p->n * sizeof *p->have_done);
	memset(p->norm, 0, sizeof p->norm);
	p->kind = kind;
	p->step = step;
	p->scale = scale;
	p->microbatches = n;
	p->losses = 0;
	p->trained = p->hits = 0;
	p->score = (struct prefer_score){ 0 };
	p->norms = p->done = 0;
	p->have_token = false;
	p->busy = p->wait = 0;
	p->number++;
}

int round_send(struct rounds *p, uint32_t m, const struct microbatch *mb, struct err *e)
{
	if (!mem_grow(&p->loss, &p->loss_cap, p->microbatches, sizeof *p->loss) ||
	    !mem_grow(&p->have_loss, &p->have_cap, p->microbatches, sizeof *p->have_loss))
		return err_nomem(e, p->microbatches * sizeof *p->loss, "losses");
	p->have_loss[m] = false;
	TRY(references_place(&p->ref, p->kind == ROUND_REFER, m, mb, e));
	return session_send_batch(p->ses, mb, p->kind, p->number, p->step, m, p->microbatches,
				  p->scale, &p->o.draw, e);
}

/* ---- messages ---- */

static int twice(const struct rounds *p, const struct session_event *ev, struct err *e)
{
	return err_set(e, ERR_PROTOCOL, "%s sent %s of microbatch %u twice in one round",
		       session_name(p->ses, ev->member), frame_name(ev->f.kind), ev->f.microbatch);
}

static int take_loss(struct rounds *p, const struct session_event *ev, struct err *e)
{
	const struct frame *f = &ev->f;
	struct loss_message m = { 0 };
	const bool refer = f->kind == FRAME_REFERENCE;
	if (!refer)
		TRY(loss_read(f->payload, f->size, &m, e));
	if (refer != (p->kind == ROUND_REFER))
		return err_set(e, ERR_PROTOCOL, "%s in a round of kind %d", frame_name(f->kind),
			       p->kind);
	if (p->kind == ROUND_SAMPLE || f->microbatch >= p->microbatches)
		return err_set(e, ERR_PROTOCOL, "LOSS of microbatch %u of %u", f->microbatch,
			       p->microbatches);
	if (p->have_loss[f->microbatch])
		return twice(p, ev, e);
	if (refer)
		TRY(references_take(&p->ref, f->microbatch, f->payload, f->size, e));
	p->have_loss[f->microbatch] = true;
	p->loss[f->microbatch] = m;
	p->losses++;
	return 0;
}

static int take_norm(struct rounds *p, const struct session_event *ev, int row, struct err *e)
{
	struct norm_entry v[NORMS_MOST];
	size_t n = 0;
	if (p->kind != ROUND_TRAIN)
		return err_set(e, ERR_PROTOCOL, "%s sent NORM in a round that does not train",
			       session_name(p->ses, ev->member));
	if (p->have_norm[row])
		return twice(p, ev, e);
	TRY(norm_read(ev->f.payload, ev->f.size, v, NORMS_MOST, &n, e));
	for (size_t i = 0; i < n; i++) {
		int64_t at = v[i].layer < 0            ? 0
			     : v[i].layer >= p->layers ? p->layers + 1
						       : v[i].layer + 1;
		p->norm[at] += v[i].sqnorm;
	}
	p->have_norm[row] = true;
	p->norms++;
	return 0;
}

/* Takes one worker's report; its spans are moved to our time axis. */
static int take_stepped(struct rounds *p, const struct session_event *ev, int row, struct err *e)
{
	struct stepped_message *m = &p->stepped[row];
	size_t n = 0;
	if (p->have_done[row])
		return twice(p, ev, e);
	TRY(stepped_read(ev->f.payload, ev->f.size, m, p->span, p->span ? SPANS_MOST : 0, &n, e));
	session_stepped(p->ses, ev->member, m->heard, m->said, ev->msg.arrived);
	int64_t clock = p->clock[row] = session_clock(p->ses, ev->member);
	for (size_t i = 0; i < n; i++) {
		p->span[i].begin += clock;
		p->span[i].ready += clock;
		p->span[i].end += clock;
	}
	if (n && p->o.spans)
		p->o.spans(p->o.ctx, row, p->span, n, session_clock_error(p->ses, ev->member));
	p->have_done[row] = true;
	p->done++;
	return 0;
}

static int take_token(struct rounds *p, const struct session_event *ev, struct err *e)
{
	int64_t vocab = session_job(p->ses)->model.vocab;
	if (p->have_token)
		return twice(p, ev, e);
	TRY(token_read(ev->f.payload, ev->f.size, &p->token, e));
	if (p->token >= vocab && p->token != TOKEN_NONE)
		return err_set(e, ERR_PROTOCOL, "TOKEN: %d of a vocabulary of %lld", p->token,
			       (long long)vocab);
	p->have_token = true;
	return 0;
}

static int take(struct rounds *p, const struct session_event *ev, struct err *e)
{
	const struct frame *f = &ev->f;
	int row = p->row[ev->member];
	bool end = crew_is_end(session_crew(p->ses), ev->member);
	if (row >= 0 && f->step == p->number) {
		if ((f->kind == FRAME_LOSS || f->kind == FRAME_REFERENCE) && end)
			return take_loss(p, ev, e);
		if (f->kind == FRAME_TOKEN && end && p->kind == ROUND_SAMPLE)
			return take_token(p, ev, e);
		if (f->kind == FRAME_NORM && crew_place_of(session_crew(p->ses), ev->member) == 0)
			return take_norm(p, ev, row, e);
		if (f->kind == FRAME_STEPPED)
			return take_stepped(p, ev, row, e);
	}
	return err_set(e, ERR_PROTOCOL, "%s sent %s of round %llu in round %llu",
		       session_name(p->ses, ev->member), frame_name(f->kind),
		       (unsigned long long)f->step, (unsigned long long)p->number);
}

static int collect(struct rounds *p, bool (*complete)(const struct rounds *p), struct err *e)
{
	while (!complete(p)) {
		struct session_event ev;
		TRY(session_hear(p->ses, &ev, e));
		int rc = take(p, &ev, e);
		net_msg_release(&ev.msg);
		if (rc < 0)
			return rc;
	}
	return 0;
}

static bool all_losses(const struct rounds *p) { return p->losses == p->microbatches; }
static bool all_norms(const struct rounds *p)
{
	return p->norms == session_crew(p->ses)->stages; /* the first of each group */
}
static bool all_done(const struct rounds *p) { return p->done == p->n; }
static bool has_token(const struct rounds *p) { return p->have_token; }

int round_losses(struct rounds *p, double *sum_p, uint64_t *trained_p, struct err *e)
{
	double sum = 0;
	TRY(collect(p, all_losses, e));
	for (uint32_t i = 0; i < p->microbatches; i++) {
		const struct loss_message *m = &p->loss[i];
		sum += m->sum;
		p->trained += m->trained;
		p->hits += m->hits;
		for (int k = 0; k < 2; k++) {
			p->score.reward[k] += m->score.reward[k];
			p->score.rewarded[k] += m->score.rewarded[k];
		}
	}
	*sum_p = sum;
	*trained_p = p->trained;
	return 0;
}

int round_norms(struct rounds *p, double *sqnorm_p, struct err *e)
{
	double sum = 0;
	TRY(collect(p, all_norms, e));
	for (int64_t i = 0; i < p->layers + 2; i++)
		sum += p->norm[i];
	*sqnorm_p = sum;
	return 0;
}

int round_step(struct rounds *p, const struct step_message *m, struct err *e)
{
	size_t size, most = 64 + m->nrecord;
	buf_reset(&p->out);
	buf_reserve(&p->out, most);
	TRY(buf_ok(&p->out, e));
	TRY(step_write(m, p->out.p, most, &size, e));
	return session_send_all(p->ses, FRAME_STEP, p->number, p->out.p, size, e);
}

int round_token(struct rounds *p, int32_t *token_p, struct err *e)
{
	TRY(collect(p, has_token, e));
	*token_p = p->token;
	return 0;
}

int round_end(struct rounds *p, struct err *e)
{
	TRY(collect(p, all_done, e));
	for (int k = 0; k < p->n; k++) {
		p->busy += p->stepped[k].busy;
		p->wait += p->stepped[k].wait;
		if (p->stepped[k].mem_peak > p->mem_peak)
			p->mem_peak = p->stepped[k].mem_peak;
	}
	flows_of_round(p->stepped, p->clock, p->next, p->n, p->o.in_memory, p->rates, p->stages);
	return 0;
}
