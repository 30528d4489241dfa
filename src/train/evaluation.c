/* SPDX-License-Identifier: Apache-2.0 */
/* evaluation.c - see evaluation.h. */
#include "train/evaluation.h"

#include "base/err.h"
#include "job/checkpoint_list.h"

#include <math.h>

enum { EVAL_ROUND = 16 };

int evaluation_run(const struct evaluation *v, uint64_t step, double *loss_p, struct err *e)
{
	size_t all = batches_val_count(v->batches);
	double sum = 0;
	uint64_t trained = 0, hits = 0;
	for (size_t i = 0; i < all; i += EVAL_ROUND) {
		uint32_t n = (uint32_t)(all - i < EVAL_ROUND ? all - i : EVAL_ROUND);
		double part;
		uint64_t some;
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
		if (v->sink->part)
			v->sink->part(v->sink->ctx, "evaluating", i + n, all);
	}
	const double count = (double)trained;
	const struct train_eval r = { .step = step,
				      .loss = trained ? sum / count : NAN,
				      .accuracy = trained ? (double)hits / count : NAN,
				      .tokens = trained };
	*loss_p = r.loss;
	return v->sink->eval ? v->sink->eval(v->sink->ctx, &r, e) : 0;
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
	TRY(checkpoint_path(s->dir, st->best_step, path, sizeof path, e));
	TRY(checkpoint_read(s->job, path, true, &then, e));
	TRY(session_push_state(p->ses, ++p->number, e));
	TRY(saver_finish(s, st, false, e));
	*loss_p = st->best_loss;
	return 0;
}
