/* SPDX-License-Identifier: Apache-2.0 */
/* evaluation.c - see evaluation.h. */
#include "train/evaluation.h"

#include "base/err.h"
#include "base/mem.h"
#include "job/checkpoint_list.h"
#include "train/refer.h"

#include <math.h>
#include <string.h>

enum { EVAL_ROUND = 16 };

struct train_rewards evaluation_rewards(const struct prefer_score *s, double accuracy)
{
	const double chosen = s->reward[0] / (double)s->rewarded[0],
		     rejected = s->reward[1] / (double)s->rewarded[1];
	return (struct train_rewards){ .given = s->rewarded[0] || s->rewarded[1],
				       .chosen = chosen,
				       .rejected = rejected,
				       .margin = chosen - rejected,
				       .accuracy = accuracy };
}

/* The i-th microbatch from the place where the round begins. */
struct place {
	struct batches *b;
	size_t from;
};

static int microbatch_at(void *ctx, uint32_t i, struct microbatch *mb_p, struct err *e)
{
	const struct place *p = ctx;
	return batches_val(p->b, p->from + i, mb_p, e);
}

size_t evaluation_rounds(const struct batches *b)
{
	return (batches_val_count(b) + EVAL_ROUND - 1) / EVAL_ROUND;
}

static uint32_t round_size(const struct batches *b, size_t i)
{
	const size_t left = batches_val_count(b) - i * EVAL_ROUND;
	return (uint32_t)(left < EVAL_ROUND ? left : EVAL_ROUND);
}

int evaluation_refer(struct batches *b, struct rounds *p, size_t i, struct err *e)
{
	struct place from = { b, i * EVAL_ROUND };
	return refer_each(p, round_size(b, i), 0, i, microbatch_at, &from, e);
}

static void add_parts(const struct evaluation *v, size_t from, uint32_t n, struct train_part *part)
{
	for (uint32_t m = 0; v->sources && m < n; m++) {
		const struct loss_message *l = &v->rounds->loss[m];
		struct train_part *p = &part[batches_val_source(v->batches, from + m)];
		p->loss += l->sum;
		p->tokens += l->trained;
	}
}

/* Sums become means; datasets of which nothing is held out go. */
static size_t finish_parts(const struct evaluation *v, struct train_part *part)
{
	size_t n = 0;
	for (size_t i = 0; i < v->sources; i++) {
		if (!part[i].tokens)
			continue;
		const char *path = v->source[i].path, *slash = strrchr(path, '/');
		part[n] = part[i];
		part[n].name = slash && slash[1] ? slash + 1 : path;
		part[n].loss /= (double)part[n].tokens;
		n++;
	}
	return n;
}

static int run_all(const struct evaluation *v, uint64_t step, struct train_part *parts,
		   double *loss_p, struct err *e)
{
	size_t all = batches_val_count(v->batches);
	double sum = 0;
	uint64_t trained = 0, hits = 0;
	struct prefer_score score = { 0 };
	for (size_t i = 0; i < all; i += EVAL_ROUND) {
		const uint32_t n = round_size(v->batches, i / EVAL_ROUND);
		double part;
		uint64_t some;
		TRY(evaluation_refer(v->batches, v->rounds, i / EVAL_ROUND, e));
		round_begin(v->rounds, ROUND_EVAL, n, 0, 1);
		for (uint32_t m = 0; m < n; m++) {
			struct microbatch mb;
			TRY(batches_val(v->batches, i + m, &mb, e));
			TRY(round_send(v->rounds, m, &mb, e));
		}
		TRY(round_losses(v->rounds, &part, &some, e));
		TRY(round_end(v->rounds, e));
		sum += part;
		trained += some;
		hits += v->rounds->hits;
		add_parts(v, i, n, parts);
		for (int k = 0; k < 2; k++) {
			score.reward[k] += v->rounds->score.reward[k];
			score.rewarded[k] += v->rounds->score.rewarded[k];
		}
		if (v->sink->part)
			v->sink->part(v->sink->ctx, "evaluating", i + n, all);
	}
	const double count = (double)trained;
	const double accuracy = trained ? (double)hits / count : NAN;
	const size_t several = finish_parts(v, parts);
	const struct train_eval r = { .step = step,
				      .loss = trained ? sum / count : NAN,
				      .accuracy = accuracy,
				      .rewards = evaluation_rewards(&score, accuracy),
				      .tokens = trained,
				      .part = parts,
				      .parts = several > 1 ? several : 0 };
	*loss_p = r.loss;
	return v->sink->eval ? v->sink->eval(v->sink->ctx, &r, e) : 0;
}

int evaluation_run(const struct evaluation *v, uint64_t step, double *loss_p, struct err *e)
{
	struct train_part *parts = mem_array(v->sources + 1, sizeof *parts);
	if (!parts)
		return err_nomem(e, v->sources * sizeof *parts, "an evaluation");
	memset(parts, 0, v->sources * sizeof *parts);
	const int rc = run_all(v, step, parts, loss_p, e);
	mem_free(parts);
	return rc;
}

bool evaluation_note(struct train_state *st, double loss)
{
	if (!isfinite(loss) || (st->best_step && !(loss < st->best_loss))) {
		st->evals_since_best++;
		return false;
	}
	st->best_loss = loss;
	st->best_step = st->step;
	st->evals_since_best = 0;
	return true;
}

bool evaluation_stops(const struct train_state *st, int64_t patience)
{
	return patience > 0 && st->evals_since_best >= (uint64_t)patience;
}

int evaluation_take_best(struct saver *s, struct rounds *p, const struct train_state *st,
			 double *loss_p, struct err *e)
{
	char path[2304];
	struct train_state then;
	TRY(checkpoint_path(s->job->cfg->output_dir, st->best_step, path, sizeof path, e));
	TRY(checkpoint_read(s->job, path, true, &then, e));
	TRY(session_push_state(p->ses, ++p->number, e));
	TRY(saver_finish(s, st, false, e));
	*loss_p = st->best_loss;
	return 0;
}
