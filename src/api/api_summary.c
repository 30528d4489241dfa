/* SPDX-License-Identifier: Apache-2.0 */
/* api_summary.c - a model as a table for people. */
#include "api/api.h"

#include "base/buf.h"
#include "model/own.h"
#include "model/own_text.h"

#include <stdio.h>
#include <string.h>

static uint64_t numbers_of(const struct own_block *b)
{
	struct own_param p[OWN_PARAMS];
	uint64_t n = 0;
	const size_t count = b->kind->params ? b->kind->params(b, p) : 0;
	for (size_t i = 0; i < count; i++)
		n += (uint64_t)(p[i].dim[0] * (p[i].ndim == 2 ? p[i].dim[1] : 1));
	return n;
}

/* How many blocks block i is inside of. */
static int depth(const struct own_model *m, int i)
{
	int d = 0;
	for (int k = 0; k < i; k++)
		d += i <= k + m->block[k].inside;
	return d;
}

static void row(struct buf *b, int indent, const char *name, const struct own_shape *out,
		uint64_t numbers, double flops)
{
	char shape[64];
	own_shape_text(out, shape, sizeof shape);
	buf_addf(b, "%*s%-*s %-16s %12llu %14.0f\n", indent, "", 18 - indent, name, shape,
		 (unsigned long long)numbers, flops);
}

int hs_model_summary(const hs_model *model, char *out, size_t cap)
{
	const int rc = api_enter(model, NULL);
	if (rc < 0)
		return rc;
	const struct own_model *m = &model->cfg.own;
	struct buf b = BUF_INIT;
	uint64_t all = (uint64_t)(m->tokens * m->input.dim[0]);
	double flops = 0, kept = 4.0 * (double)own_input_words(m);
	buf_addf(&b, "%-18s %-16s %12s %14s\n", "block", "a row of it", "parameters", "FLOP a row");
	row(&b, 0, m->tokens ? "tokens" : "input", &m->input, all, 0);
	for (int i = 0; i < m->n; i++) {
		const struct own_block *k = &m->block[i];
		const uint64_t n = numbers_of(k);
		const double f = k->kind->flops ? k->kind->flops(k) : 0;
		row(&b, 2 * depth(m, i), k->kind->name, &k->out, n, f);
		all += n;
		flops += f;
		kept += 4.0 * (double)own_count(&k->out);
	}
	buf_addf(&b, "%-18s %-16s %12llu %14.0f\n", m->loss.kind->name, "", (unsigned long long)all,
		 flops);
	/* value, gradient and two moments of each parameter */
	buf_addf(&b,
		 "memory in float32 with adamw: %.2f MiB for parameters, %.2f KiB for a row of a "
		 "pass\n",
		 16.0 * (double)all / (1 << 20), 2 * kept / 1024);
	api_leave(model);
	const int n = b.failed ? ERR_NOMEM : snprintf(out, cap, "%.*s", (int)b.n, b.p);
	buf_release(&b);
	return n;
}
