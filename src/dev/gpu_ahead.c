/* SPDX-License-Identifier: Apache-2.0 */
/* gpu_ahead.c - see gpu_ahead.h. */
#include "dev/gpu_ahead.h"

/* NULL: argument i names no buffer */
static struct gpu_named *named(const char *sig, const union dev_arg *a, int i)
{
	return sig[i] == 'b' && a[i].b.buf ? gpu_named_of(a[i].b.buf) : NULL;
}

/* Nothing behind the fork names it, but for kernels that ran ahead as this one would. */
static bool before_fork(const struct gpu_ahead *h, const struct gpu_named *b)
{
	return h->forked && b->copy <= h->copies && (b->work <= h->works || b->work == b->ahead);
}

bool gpu_may_run_ahead(const struct gpu_ahead *h, const char *sig, const union dev_arg *a)
{
	bool may = true;
	for (int i = 0; sig[i] && may; i++) {
		const struct gpu_named *b = named(sig, a, i);
		may = !b || before_fork(h, b);
	}
	return may;
}

void gpu_ran_ahead(struct gpu_ahead *h, const char *sig, const union dev_arg *a)
{
	h->count++;
	for (int i = 0; sig[i]; i++) {
		struct gpu_named *b = named(sig, a, i);
		if (b)
			b->ahead = b->work;
	}
}

bool gpu_reads_panel(const char *sig, const union dev_arg *a)
{
	for (int i = 0; sig[i]; i++) {
		const struct gpu_named *b = named(sig, a, i);
		if (b && b->panel)
			return true;
	}
	return false;
}
