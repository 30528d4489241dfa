/* SPDX-License-Identifier: Apache-2.0 */
/* members_text.c - see members_text.h. */
#include "crew/members_text.h"

#include "base/buf.h"
#include "base/err.h"
#include "base/mem.h"

#include <stdio.h>
#include <string.h>

/* The workers of a stage, each between bars, so that one name is not found in another: "|a|b|". */
static char *workers_of(const struct placement *p, int stage)
{
	struct buf b = BUF_INIT;
	buf_adds(&b, "|");
	for (int k = placement_row(p, stage); k < placement_row(p, stage + 1); k++)
		buf_addf(&b, "%s|", p->id ? p->id[k] : p->device[k]);
	return buf_detach(&b);
}

int holders_of(const struct placement *p, int64_t layers, struct holders *h_p, struct err *e)
{
	struct holders h = { .of = mem_array((size_t)layers + 1, sizeof *h.of), .layers = layers };
	bool failed = !h.of;
	for (int64_t i = 0; i < layers && !failed; i++) {
		h.of[i] = workers_of(p, chunk_stage_of_layer(p->stages, p->chunks, p->first, i));
		failed = !h.of[i];
	}
	if (failed) {
		holders_release(&h);
		return err_nomem(e, (uint64_t)layers * sizeof *h.of, "the members of a job");
	}
	*h_p = h;
	return 0;
}

void holders_release(struct holders *h)
{
	for (int64_t i = 0; h->of && i < h->layers; i++)
		mem_free(h->of[i]);
	mem_free(h->of);
	*h = (struct holders){ 0 };
}

static bool held(const struct holders *h, int64_t layer, const char *id)
{
	char key[160];
	snprintf(key, sizeof key, "|%.150s|", id);
	return strstr(h->of[layer], key) != NULL;
}

/* Whether a worker of this layer's stage did not hold it before. */
static bool moved(const struct holders *h, const struct placement *p, int64_t layer)
{
	const int s = chunk_stage_of_layer(p->stages, p->chunks, p->first, layer);
	for (int k = placement_row(p, s); k < placement_row(p, s + 1); k++)
		if (!held(h, layer, p->id[k]))
			return true;
	return false;
}

static bool takes_some(const struct holders *h, const struct placement *p, int row)
{
	const int stage = placement_stage_of(p, row);
	for (int64_t i = 0; i < h->layers; i++)
		if (chunk_stage_of_layer(p->stages, p->chunks, p->first, i) == stage &&
		    !held(h, i, p->id[row]))
			return true;
	return false;
}

void holders_text(const struct holders *h, const struct placement *p, int rows, struct buf *out)
{
	int ranges = 0, takers = 0, told = 0;
	int64_t many = 0;
	struct buf list = BUF_INIT;
	for (int64_t i = 0, k; p->id && i < h->layers; i = k + 1) {
		for (k = i; k < h->layers && moved(h, p, k); k++)
			;
		if (k == i)
			continue;
		many += k - i;
		buf_adds(&list, ranges++ ? ", " : "");
		buf_addf(&list, k == i + 1 ? "%lld" : "%lld-%lld", (long long)i, (long long)k - 1);
	}
	for (int k = 0; p->id && k < rows; k++)
		takers += takes_some(h, p, k);
	if (takers)
		buf_addf(out, "Layer%s %s %s to ", many > 1 ? "s" : "", list.p,
			 many > 1 ? "go" : "goes");
	else
		buf_adds(out, "The others go on with the layers that they have");
	buf_release(&list);
	for (int k = 0; takers && k < rows; k++)
		if (takes_some(h, p, k)) {
			told++;
			buf_addf(out, "%s'%s'",
				 told == 1        ? ""
				 : told == takers ? " and "
						  : ", ",
				 p->id[k]);
		}
}

void shares_text(const struct profile *p, const struct plan *plan, struct buf *out)
{
	for (int k = 0, told = 0; k < plan->stages; k++) {
		const struct plan_stage *s = &plan->stage[k];
		for (int i = 0; i < s->members && s->members > 1; i++) {
			buf_addf(out, "%s'%s' ", told++ ? ", " : "",
				 p->device[s->member[i].device].id);
			if (!i)
				buf_addf(out, "computes %d of %d microbatches",
					 s->member[i].microbatches, plan->microbatches);
			else
				buf_addf(out, "%d", s->member[i].microbatches);
		}
	}
}

void again_text(uint64_t step, uint64_t reached, struct buf *out)
{
	buf_addf(out, ". Going on after step %llu", (unsigned long long)step);
	if (reached == step + 1)
		buf_addf(out, "; step %llu is computed again", (unsigned long long)reached);
	else if (reached > step)
		buf_addf(out, "; steps %llu%s%llu are computed again", (unsigned long long)step + 1,
			 reached == step + 2 ? " and " : " to ", (unsigned long long)reached);
}
