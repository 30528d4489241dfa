/* SPDX-License-Identifier: Apache-2.0 */
/* beforehand.c - see beforehand.h. */
#include "train/beforehand.h"

#include "base/err.h"
#include "base/log.h"
#include "train/evaluation.h"
#include "train/refer.h"

static int tell(struct trainer *t, uint64_t done, uint64_t all, struct err *e)
{
	TRY(prior_add(&t->prior, &t->rounds.ref, e));
	if (t->sink->part)
		t->sink->part(t->sink->ctx, "computing the reference", done, all);
	return 0;
}

int beforehand(struct trainer *t, struct err *e)
{
	struct prior *p = &t->prior;
	struct batches *b = t->job->batches;
	const uint64_t all = t->job->total_steps, done = t->st.step,
		       steps = all > done ? all - done : 0;
	uint64_t epoch = t->st.epoch, batch = t->st.batch;
	const struct prefer *loss = prefer_find(t->cfg->rl);
	if (loss && loss->reference && t->cfg->lora_model_dir && !p->whole)
		log_warn("the reference is the model without the adapter of lora_model_dir; where "
			 "that adapter is to be the reference, merge it into the model first");
	if (!config_refers_first(t->cfg) || p->whole)
		return 0;
	prior_release(p);
	p->first = t->st.step;
	p->evals = evaluation_rounds(b);
	if (steps)
		log_info("the reference of %llu steps is computed first: more is trained than "
			 "adapters",
			 (unsigned long long)steps);
	for (size_t i = 0; i < p->evals; i++) {
		TRY(evaluation_refer(b, &t->rounds, i, e));
		TRY(tell(t, i + 1, p->evals + steps, e));
	}
	for (uint64_t s = 1; s <= steps; s++) {
		const struct microbatch *mb;
		size_t n;
		TRY(batches_get(b, epoch, batch, &mb, &n, e));
		TRY(refer_all(&t->rounds, mb, n, p->first + s, e));
		TRY(tell(t, p->evals + s, p->evals + steps, e));
		if (++batch >= batches_per_epoch(b, epoch)) {
			batch = 0;
			epoch++;
		}
	}
	p->whole = true;
	return 0;
}
