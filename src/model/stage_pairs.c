/* SPDX-License-Identifier: Apache-2.0 */
/* stage_pairs.c - the end of a microbatch of preferences. The loss depends on whole answers, so the
 * head computes its tokens twice: first their log-probabilities, from which the row of prefer.def
 * makes the loss and a weight for each token, and then, in training, the gradient with these
 * weights (stage.c). */
#include "model/stage_pairs.h"

#include "base/err.h"
#include "base/mem.h"
#include "data/batch.h"

#include <string.h>

/* What is kept of S sequences, in one array. */
struct parts {
	double *logp, *dlogp, *reward;
	int64_t *count;
};

static int take_parts(struct slot *sl, struct parts *p, struct err *e)
{
	const size_t s = (size_t)sl->b.nseq;
	if (!mem_grow(&sl->pair, &sl->pair_cap, 4 * s, sizeof *sl->pair))
		return err_nomem(e, s * 32, "answers");
	memset(sl->pair, 0, 4 * s * sizeof *sl->pair);
	p->logp = sl->pair;
	p->dlogp = p->logp + s;
	p->reward = p->dlogp + s;
	p->count = (int64_t *)(void *)(p->reward + s);
	return 0;
}

/* The sequence of trained row k, from that of the row before it. */
static int64_t sequence_of(const struct slot *sl, int64_t k, int64_t s)
{
	while (s + 1 < sl->b.nseq && sl->rows[k] >= sl->b.start[s + 1])
		s++;
	return s;
}

static bool in_answer(const struct slot *sl, int64_t k, int64_t s)
{
	return sl->rows[k] >= sl->b.pairs->answer[s];
}

/* Sums of log-probabilities from the losses of the tokens; of those of chosen sequences nll. */
static void add_up(const struct slot *sl, struct parts *p, double *nll_p, int64_t *nll_count_p)
{
	*nll_p = 0;
	*nll_count_p = 0;
	for (int64_t k = 0, s = 0; k < sl->trained; k++) {
		s = sequence_of(sl, k, s);
		if (in_answer(sl, k, s)) {
			p->logp[s] -= (double)sl->losses[k];
			p->count[s]++;
		}
		if (s % 2 == 0) {
			*nll_p += (double)sl->losses[k];
			++*nll_count_p;
		}
	}
}

/* Adds the rewards of a row, and whether its order, or sign, is right. */
static void judge(struct slot *sl, const struct parts *p, const struct prefer *row)
{
	for (int64_t r = 0; r < sl->b.nrows; r++) {
		const double a = p->reward[2 * r], b = p->reward[2 * r + 1];
		const bool good = sl->b.pairs->good[r];
		if (row->data == PREFER_PAIRS) {
			sl->score.reward[0] += a;
			sl->score.reward[1] += b;
			sl->score.rewarded[0]++;
			sl->score.rewarded[1]++;
			sl->hits += a > b;
		} else {
			sl->score.reward[good ? 0 : 1] += a;
			sl->score.rewarded[good ? 0 : 1]++;
			sl->hits += good ? a > 0 : a < 0;
		}
	}
}

/* The weight of each trained row's gradient, to the device. */
static int upload_weights(struct slot *sl, const struct parts *p, double dnll,
			  struct dev_ref *weight_p, struct err *e)
{
	float *w = sl->losses; /* they have been added up */
	for (int64_t k = 0, s = 0; k < sl->trained; k++) {
		double x = 0;
		s = sequence_of(sl, k, s);
		if (in_answer(sl, k, s))
			x -= p->dlogp[s];
		if (s % 2 == 0)
			x += dnll;
		w[k] = (float)x;
	}
	TRY(dmem_take(&sl->mem, (size_t)sl->trained * 4, weight_p, e));
	return dev_upload(*weight_p, w, (size_t)sl->trained * 4, e);
}

int stage_pairs_weigh(struct slot *sl, const struct tape *t, struct tensor *x,
		      struct dev_ref *weight_p, struct err *e)
{
	struct stage *s = sl->stage;
	const struct prefer *row = prefer_find(s->opt.prefer.name);
	struct tape plain = *t;
	struct tensor *loss;
	struct parts p = { 0 };
	*weight_p = DEV_NONE;
	if (!row)
		return err_set(e, ERR_INTERNAL, "a microbatch of preferences without a loss");
	plain.record = false;
	TRY(op_loss_apply(&plain, x, s->head, sl->trows, sl->tlabels, DEV_NONE, DEV_NONE,
			  sl->trained, model_factor(s->cfg.logit_scale), (float)s->cfg.logit_cap, 1,
			  &loss, e));
	TRY(dev_download(sl->losses, loss->at, (size_t)sl->trained * 4, e));
	TRY(take_parts(sl, &p, e));
	struct prefer_pass pass = { .rows = sl->b.nrows,
				    .logp = p.logp,
				    .ref = sl->b.pairs->ref,
				    .count = p.count,
				    .good = sl->b.pairs->good };
	add_up(sl, &p, &pass.nll, &pass.nll_count);
	if (sl->b.base)
		return 0; /* the reference's log-probabilities are asked for */
	struct prefer_sums sums = { .dlogp = p.dlogp, .reward = p.reward };
	row->sums(&s->opt.prefer, &pass, &sums);
	sl->loss = sums.loss;
	judge(sl, &p, row);
	return sl->b.train ? upload_weights(sl, &p, sums.dnll, weight_p, e) : 0;
}
