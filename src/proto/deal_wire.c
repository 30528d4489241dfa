/* SPDX-License-Identifier: Apache-2.0 */
/* deal_wire.c - see deal_wire.h. */
#include "proto/deal_wire.h"

#include "base/err.h"
#include "base/mem.h"

#include <string.h>

void deal_put(struct wire_writer *w, const struct expert_deal *d)
{
	wire_put_u32(w, (uint32_t)d->experts);
	wire_put_bytes(w, d->place, d->place ? (size_t)(d->layers * d->experts) : 0);
}

int deal_get(struct wire_reader *r, struct plan_message *p, struct err *e)
{
	size_t n = 0;
	const uint32_t experts = wire_get_u32(r);
	const void *place = wire_get_bytes(r, &n);
	if (!n)
		return 0;
	if (experts < 1 || experts > EXPERTS_MOST || n % experts || n / experts > MODEL_LAYERS_MOST)
		return err_set(e, ERR_PROTOCOL, "PLAN: %zu places of %u experts a layer", n,
			       experts);
	p->dealt = mem_alloc(n);
	if (!p->dealt)
		return err_nomem(e, n, "the places of experts");
	memcpy(p->dealt, place, n);
	p->deal = (struct expert_deal){ (int64_t)(n / experts), experts, p->dealt };
	return 0;
}

/* A layer whose experts are dealt has each of them on a member of its group. */
static int check_layer(const struct plan_message *p, int stage, int64_t layer, struct err *e)
{
	const struct expert_deal *d = &p->deal;
	const int group = crew_group_size(&p->crew, stage);
	if (!layer_is_mixture(&p->cfg, layer))
		return err_set(e, ERR_UNSUPPORTED,
			       "'experts' in shard_plan: layer %lld of this model has an MLP and "
			       "no experts that other members could have",
			       (long long)layer);
	for (int64_t x = 0; x < d->experts; x++)
		if (deal_place(d, layer, x) >= group)
			return err_set(e, ERR_PROTOCOL,
				       "PLAN: expert %lld of layer %lld is on member %d of a group "
				       "of %d",
				       (long long)x, (long long)layer, deal_place(d, layer, x),
				       group);
	return 0;
}

/* Members that have experts alone come behind the others, in stages that deal some. */
static int check_members(const struct plan_message *p, int stage, bool deals, struct err *e)
{
	const int homes = crew_homes(&p->crew, stage);
	if (!deals && homes < crew_group_size(&p->crew, stage))
		return err_set(e, ERR_UNSUPPORTED,
			       "'experts' in shard_plan: none of the layers %lld to %lld has "
			       "experts that other members could have",
			       (long long)p->first[stage], (long long)p->first[stage + 1] - 1);
	for (int k = 0, m; (m = crew_at(&p->crew, stage, k)) >= 0; k++)
		if (p->crew.member[m].only_experts != (k >= homes) ||
		    (k >= homes && p->crew.member[m].share))
			return err_set(e, ERR_PROTOCOL,
				       "PLAN: member %d of stage %d has only experts", k, stage);
	return 0;
}

int deal_check(const struct plan_message *p, struct err *e)
{
	const struct crew *c = &p->crew;
	const struct expert_deal *d = &p->deal;
	bool any = false;
	if (d->place && (d->layers != p->cfg.layers || d->experts != p->cfg.experts))
		return err_set(e, ERR_PROTOCOL, "PLAN: places of %lld experts of %lld layers",
			       (long long)d->experts, (long long)d->layers);
	for (int s = 0; s < c->stages; s++) {
		bool deals = false;
		for (int64_t l = p->first[s]; l < p->first[s + 1] && c->chunks == 1; l++)
			if (deal_has_layer(d, l)) {
				deals = true;
				TRY(check_layer(p, s, l, e));
			}
		TRY(check_members(p, s, deals, e));
		any |= deals;
	}
	if (any && (p->sharding || p->offload || p->opt.recompute))
		return err_set(e, ERR_PROTOCOL,
			       "PLAN: experts on other members, and state that is shared or "
			       "offloaded or layers that are repeated");
	if (d->place && !any)
		return err_set(e, ERR_PROTOCOL, "PLAN: places of experts, but none is dealt");
	return 0;
}
