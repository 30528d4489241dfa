/* SPDX-License-Identifier: Apache-2.0 */
/* routing.c - see routing.h. */
#include "survey/routing.h"

#include "base/err.h"
#include "base/log.h"
#include "base/mem.h"
#include "runtime/measure_routing.h"

enum { TOKENS = 2048, SECONDS = 30 };

static int measure(const struct job *j, struct profile *p, double *picks, struct err *e)
{
	struct routing_ask ask = {
		.file = j->file, .cfg = &j->model, .opt = &j->opt, .seconds = SECONDS
	};
	size_t all;
	uint32_t tokens = 0;
	TRY(batches_get(j->batches, 0, 0, &ask.mb, &all, e));
	while (ask.n < all && tokens < TOKENS)
		tokens += ask.mb[ask.n++].n;
	TRY(measure_routing(&ask, picks, e));
	log_info("how %u tokens spread over experts was measured", tokens);
	return profile_set_routing(p, picks, e);
}

void routing_measure(const struct job *j, struct profile *p)
{
	struct err e = { 0 };
	double *picks = mem_array((size_t)p->layers * (size_t)p->experts + 1, sizeof *picks);
	if (p->devices < 2 || !p->experts || !j->file || !j->batches)
		goto out;
	if (!picks)
		err_nomem(&e, (size_t)p->layers * (size_t)p->experts * sizeof *picks, "routing");
	if (!picks || measure(j, p, picks, &e) < 0)
		log_warn("routing was not measured and is taken for even: %s", e.msg);
out:
	mem_free(picks);
}
