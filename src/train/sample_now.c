/* SPDX-License-Identifier: Apache-2.0 */
/* sample_now.c - see sample_now.h. */
#include "train/sample_now.h"

#include "base/err.h"
#include "base/mem.h"
#include "train/samples.h"

/* Runs the sequence so far through all stages; they keep nothing of it. */
static int next_token(void *ctx, const int32_t *id, size_t n, int32_t *next_p, struct err *e)
{
	struct trainer *t = ctx;
	int32_t start[2] = { 0, (int32_t)n }, *label = mem_array(n, sizeof *label);
	if (!label)
		return err_nomem(e, n * 4, "a sample");
	for (size_t i = 0; i < n; i++)
		label[i] = -1;
	const struct microbatch mb = {
		.n = (uint32_t)n, .nseq = 1, .id = id, .label = label, .start = start
	};
	round_begin(&t->rounds, ROUND_SAMPLE, 1, 0, 1);
	int rc = round_send(&t->rounds, 0, &mb, e);
	mem_free(label);
	if (rc >= 0)
		rc = round_token(&t->rounds, next_p, e);
	return rc < 0 ? rc : round_end(&t->rounds, e);
}

void sample_go_back(struct trainer *t)
{
	const uint64_t back = t->st.step - (t->owed && t->owed == t->st.step) + 1;
	t->back = !t->back || back < t->back ? back : t->back;
}

void sample_cut(struct trainer *t)
{
	if (t->back)
		samples_go_back(t->cfg->output_dir, t->back - 1);
	t->back = 0;
}

int sample_now(struct trainer *t, struct err *e)
{
	sample_cut(t);
	const struct samples s = { .job = t->job,
				   .step = t->st.step,
				   .next = next_token,
				   .stop = t->o->stop,
				   .ctx = t,
				   .told = t->sink->sample,
				   .sink = t->sink->ctx };
	return samples_make(&s, e);
}
