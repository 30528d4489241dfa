/* SPDX-License-Identifier: Apache-2.0 */
/* worker_model.c - see worker_model.h. */
#include "engine/worker_model.h"

#include "base/err.h"
#include "base/mem.h"
#include "base/os.h"

#include <limits.h>
#include <string.h>

enum { STATE_PART = 4 << 20 /* numbers */ };

static void share_state(struct worker_model *m, const struct plan_message *p)
{
	const int n = crew_group_size(&p->crew, plan_stage(p));
	const bool streams = m->host && (p->offload & OFFLOAD_PARAMETERS) &&
			     (n == 1 || p->sharding == SHARD_PARAMETERS);
	if (!p->optimizer[0] || (!streams && (!p->sharding || n < 2)))
		return;
	for (int k = 0; k < n; k++)
		m->cut_share[k] = p->crew.member[crew_at(&p->crew, plan_stage(p), k)].state_share;
	if (n == 1)
		m->cut_share[0] = STATE_WHOLE;
	m->cut = (struct state_cut){ .n = n,
				     .place = plan_place(p),
				     .share = m->cut_share,
				     .values = streams || p->sharding == SHARD_PARAMETERS,
				     .whole = optimizer_find(p->optimizer)->cut == CUT_MATRIX };
}

static int check_host(const struct worker_model *m, const struct plan_message *p, struct err *e)
{
	uint64_t all, left;
	const double part = m->cut.n ? (double)m->cut.share[m->cut.place] / STATE_WHOLE : 1,
		     need = m->host ? plan_host_bytes(p, part) : 0;
	os_memory("", &all, &left);
	if (!all || need <= (double)left)
		return 0;
	return err_set(e, ERR_NOMEM,
		       "offload: what this worker's layers keep in the memory of the host needs "
		       "%.2f GiB, and %.2f are free there: give the worker fewer layers, or leave "
		       "'%s' out of 'offload'",
		       need / 1073741824.0, (double)left / 1073741824.0,
		       p->offload & OFFLOAD_PARAMETERS ? "parameters" : "optimizer");
}

/* The memory of the host is a device of its own; what has that memory already needs no other. */
static int open_host(struct worker_model *m, const struct dev *dev, const struct plan_message *p,
		     struct err *e)
{
	if (!p->offload || !strcmp(dev->be->name, "cpu"))
		return 0;
	TRY(dev_open("cpu", &m->host, e));
	dmem_init(&m->host_scratch, m->host, 4 << 20);
	return 0;
}

/* New values of an offloaded optimizer come to the device in the next forward pass, where nothing
 * else reads them: no other member, and not the other end of the model. */
static void make_lazy(struct stage *s, const struct plan_message *p)
{
	if (crew_group_size(&p->crew, plan_stage(p)) > 1)
		return;
	for (size_t i = 0; i < s->nparam; i++) {
		struct param *v = &s->param[i];
		const bool table = v->layer < 0 || v->layer == INT_MAX;
		v->lazy = v->hosted && v->trainable && !v->gathered && !(s->cfg.tied && table);
	}
}

/* Of a stage of one chunk: whether its experts are dealt. */
static void find_deal(struct worker_model *m, const struct plan_message *p)
{
	const int s = plan_stage(p);
	for (int64_t l = p->first[s]; l < p->first[s + 1] && p->crew.chunks == 1; l++)
		if (deal_has_layer(&p->deal, l))
			m->deal = &p->deal;
	m->group = crew_group_size(&p->crew, s);
	m->place = plan_place(p);
}

int worker_model_build(struct worker_model *m, struct dev *dev, const struct plan_message *plan,
		       const struct weight_source *src, struct err *e)
{
	const struct crew *c = &plan->crew;
	find_deal(m, plan);
	TRY(open_host(m, dev, plan, e));
	share_state(m, plan);
	TRY(check_host(m, plan, e));
	if (m->host && (plan->offload & OFFLOAD_EXPERTS)) /* of two layers: three matrices each */
		TRY(expert_cache_new(dev, m->host, plan->expert_cache,
				     2 * 3 * (size_t)plan->cfg.experts, &m->experts, e));
	m->config = &plan->optim;
	if (plan->optimizer[0])
		m->optim = optimizer_find(plan->optimizer);
	m->chunk = mem_array((size_t)c->chunks, sizeof *m->chunk);
	if (!m->chunk)
		return err_nomem(e, (size_t)c->chunks * sizeof *m->chunk, "stages");
	m->chunks = c->chunks;
	dmem_init(&m->scratch, dev, 64 << 10);
	for (int k = 0; k < m->chunks; k++) {
		struct stage_options o = plan->opt;
		int v = chunk_number(c->stages, plan_stage(plan), k);
		o.first = plan->first[v];
		o.last = plan->first[v + 1];
		o.cut = m->cut.n ? &m->cut : NULL;
		o.scratch = &m->scratch;
		o.embed = k > 0 ? m->chunk[0].embed : NULL;
		o.host = m->host;
		o.host_values = m->host && m->cut.values && (plan->offload & OFFLOAD_PARAMETERS);
		o.host_state = m->host && (plan->offload & OFFLOAD_OPTIMIZER);
		o.deal = m->deal;
		o.place = m->place;
		o.only_experts = c->member[plan->self].only_experts;
		o.experts = m->experts;
		if (m->host &&
		    (plan->offload & OFFLOAD_ACTIVATIONS)) /* chunks are repeated whole */
			o.recompute =
				o.last == plan->cfg.layers || (o.recompute && o.last - o.first > 1);
		TRY(stage_build(&m->chunk[k], dev, &plan->cfg, &o, src, e));
		make_lazy(&m->chunk[k], plan);
		for (size_t i = 0; m->optim && i < m->chunk[k].nparam; i++)
			if (param_is_trained(&m->chunk[k].param[i]))
				TRY(optim_init(m->optim, &m->chunk[k].param[i], m->config, e));
	}
	return 0;
}

void worker_model_between(struct worker_model *m,
			  int (*between)(void *ctx, bool last, struct err *e),
			  int (*before)(void *ctx, int layer, struct err *e), void *ctx)
{
	for (int k = 0; k < m->chunks; k++) {
		m->chunk[k].between = between;
		m->chunk[k].before = before;
		m->chunk[k].between_ctx = ctx;
	}
}

struct param *worker_model_replica(const struct worker_model *m)
{
	struct param *head = m->chunk[m->chunks - 1].head;
	return head && head->replica ? head : NULL;
}

int worker_model_tie(struct worker_model *m, struct err *e)
{
	return stage_tie(&m->chunk[0], &m->chunk[m->chunks - 1], e);
}

static struct dmem *scratch_of(struct worker_model *m, const struct param *p, struct stage *s)
{
	return p->hosted ? &m->host_scratch : s->scratch;
}

/* The member of the group that has a parameter's norm: of experts who has them, else the first. */
static int owner_of(const struct param *p) { return p->holder == DEAL_HOME ? 0 : p->holder; }

int worker_model_blocks(struct worker_model *m, struct err *e)
{
	m->nblocks = 0;
	for (int k = 0; k < m->chunks; k++) {
		struct stage *s = &m->chunk[k];
		for (size_t i = 0; i < s->nparam; i++) {
			int64_t blocks;
			if (!param_is_trained(&s->param[i]) ||
			    (m->deal && owner_of(&s->param[i]) != m->place))
				continue;
			TRY(grad_blocks(&s->param[i], scratch_of(m, &s->param[i], s), &m->norms,
					&blocks, e));
			const size_t all = m->nblocks + (size_t)blocks;
			if (!mem_grow(&m->blocks, &m->blocks_cap, all + 1, sizeof *m->blocks))
				return err_nomem(e, all * sizeof *m->blocks, "gradient norms");
			if (blocks)
				memcpy(m->blocks + m->nblocks, m->norms.sum,
				       (size_t)blocks * sizeof *m->blocks);
			m->nblocks = all;
		}
	}
	return 0;
}

static int members(const struct worker_model *m)
{
	return m->deal ? m->group : m->cut.n ? m->cut.n : 1;
}

/* Blocks of a parameter that member k owns. */
static size_t blocks_of(const struct worker_model *m, const struct param *p, int k)
{
	const int64_t n = p->cut ? p->cut[k + 1] - p->cut[k] : param_count(p);
	if (m->deal && owner_of(p) != k)
		return 0;
	return (size_t)((n + STATE_BLOCK - 1) / STATE_BLOCK);
}

/* Trained here or by another member of the group. */
static bool is_counted(const struct param *p) { return p->trainable && !p->replica; }

void worker_model_block_counts(const struct worker_model *m, size_t *count)
{
	for (int j = 0; j < members(m); j++) {
		count[j] = 0;
		for (int k = 0; k < m->chunks; k++)
			for (size_t i = 0; i < m->chunk[k].nparam; i++)
				if (is_counted(&m->chunk[k].param[i]))
					count[j] += blocks_of(m, &m->chunk[k].param[i], j);
	}
}

/* Adds the blocks of a parameter, in their order; at[j]: where those of member j are. */
static double sum_blocks(const struct worker_model *m, const struct param *p, const float *blocks,
			 size_t *at)
{
	double sum = 0;
	for (int j = 0; j < members(m); j++)
		for (size_t n = blocks_of(m, p, j); n > 0; n--)
			sum += blocks[at[j]++];
	return sum;
}

int worker_model_norms(struct worker_model *m, const float *blocks, struct err *e)
{
	size_t at[STATE_MEMBERS] = { 0 }, count[STATE_MEMBERS];
	worker_model_block_counts(m, count);
	for (int j = 1; j < members(m); j++)
		at[j] = at[j - 1] + count[j - 1];
	m->nentry = 0;
	for (int k = 0; k < m->chunks; k++) {
		struct stage *s = &m->chunk[k];
		for (size_t i = 0; i < s->nparam; i++) {
			struct param *p = &s->param[i];
			if (!is_counted(p))
				continue;
			if (!m->nentry || m->entry[m->nentry - 1].layer != p->layer) {
				if (!mem_grow(&m->entry, &m->entry_cap, m->nentry + 1,
					      sizeof *m->entry))
					return err_nomem(e, (m->nentry + 1) * sizeof *m->entry,
							 "gradient norms");
				m->entry[m->nentry++] = (struct norm_entry){ p->layer, 0 };
			}
			m->entry[m->nentry - 1].sqnorm += sum_blocks(m, p, blocks, at);
		}
	}
	return 0;
}

int worker_model_step(struct worker_model *m, const struct step_message *s, struct err *e)
{
	for (int k = 0; k < m->chunks; k++) {
		for (size_t i = 0; i < m->chunk[k].nparam; i++) {
			struct param *p = &m->chunk[k].param[i];
			const struct optim_work w = { scratch_of(m, p, &m->chunk[k]), &m->norms };
			if (param_is_trained(p))
				TRY(s->apply ? optim_update(m->optim, p, m->config, &s->s, &w, e)
					     : optim_zero_grad(p, e));
		}
	}
	return 0;
}

int worker_model_tie_value(struct worker_model *m, struct err *e)
{
	return stage_tie_value(&m->chunk[0], &m->chunk[m->chunks - 1], e);
}

/* ---- state ---- */

static struct param *find_param(struct worker_model *m, const char *name)
{
	for (int k = 0; k < m->chunks; k++) {
		struct param *p = stage_param(&m->chunk[k], name);
		if (p)
			return p; /* the front comes first: an owner before its replica */
	}
	return NULL;
}

static const char value_name[] = "value";

/* What a parameter has under the name of a state: its kind, and where the owned numbers
 * [*first_p, *first_p + *own_p) are. False: nothing of that name. */
static bool find_state(const struct worker_model *m, const struct param *p, const char *what,
		       struct optim_state *kind_p, struct dev_ref *at_p, uint64_t *first_p,
		       uint64_t *own_p)
{
	struct optim_state s[PARAM_STATES];
	*kind_p = optim_state_f32(value_name, (uint64_t)param_count(p));
	*own_p = optim_owned(p, kind_p, first_p);
	*at_p = param_value(p);
	if (!strcmp(what, value_name))
		return true;
	const int n = m->optim && !p->replica
			      ? m->optim->states(m->optim, p->name, p->ndim, p->dim, s)
			      : 0;
	for (int i = 0; i < n; i++)
		if (!strcmp(what, s[i].name)) {
			*kind_p = s[i];
			*own_p = optim_owned(p, &s[i], first_p);
			*at_p = DEV_REF(p->state[i], 0);
			return true;
		}
	return false;
}

/* All members of a group get all numbers; of states each keeps what it owns. */
int worker_model_load(struct worker_model *m, const struct frame *f, struct err *e)
{
	struct state_message s;
	TRY(state_read(f->payload, f->size, &s, e));
	struct param *p = find_param(m, s.name);
	struct optim_state kind = { .dtype = DT_F32 };
	struct dev_ref to = DEV_NONE;
	uint64_t first = 0, own = 0, end = 0;
	const bool known =
		p && p->trainable && !p->away && find_state(m, p, s.what, &kind, &to, &first, &own);
	const size_t size = dtype_size(kind.dtype);
	if (!known || s.bytes % size || !add_ok(s.first, s.bytes / size, &end) || end > kind.count)
		return err_set(e, ERR_PROTOCOL,
			       "STATE: '%s' of '%s', from number %llu on %llu bytes, do not belong "
			       "to this stage",
			       s.what, s.name, (unsigned long long)s.first,
			       (unsigned long long)s.bytes);
	if (!mem_grow(&m->number, &m->cap, s.bytes + 1, 1))
		return err_nomem(e, s.bytes, p->name);
	memcpy(m->number, s.data, s.bytes); /* aligned */
	if (strcmp(s.what, value_name)) {
		const uint64_t from = s.first > first ? s.first : first,
			       to_end = end < first + own ? end : first + own;
		if (from >= to_end)
			return 0;
		to.off += (from - first) * size;
		return dev_upload(to, m->number + (from - s.first) * size, (to_end - from) * size,
				  e);
	}
	TRY(param_upload_f32(p, (int64_t)s.first, (int64_t)(end - s.first),
			     (const float *)(const void *)m->number, e));
	if (end < kind.count)
		return 0;
	TRY(p->hosted ? param_refresh(p, e) : 0);
	return worker_model_tie_value(m, e);
}

static int give_state(struct worker_model *m, const struct param *p, const char *what,
		      worker_model_take take, void *ctx, struct err *e)
{
	struct optim_state kind;
	struct dev_ref from;
	uint64_t first, own;
	find_state(m, p, what, &kind, &from, &first, &own);
	const size_t size = dtype_size(kind.dtype);
	for (uint64_t at = 0; at < own; at += STATE_PART) {
		uint64_t some = own - at < STATE_PART ? own - at : STATE_PART;
		struct state_message s = { .first = first + at, .bytes = some * size };
		memcpy(s.what, what, strlen(what) + 1);
		if (strlen(p->name) >= sizeof s.name)
			return err_set(e, ERR_INTERNAL, "the name '%s' is too long", p->name);
		memcpy(s.name, p->name, strlen(p->name) + 1);
		if (!mem_grow(&m->number, &m->cap, s.bytes + 1024, 1))
			return err_nomem(e, s.bytes, p->name);
		TRY(dev_download(m->number, DEV_REF(from.buf, from.off + at * size), s.bytes, e));
		s.data = m->number;
		TRY(take(ctx, &s, e));
	}
	return 0;
}

uint64_t worker_model_state_bytes(const struct worker_model *m)
{
	uint64_t sum = 0;
	for (int k = 0; k < m->chunks; k++)
		for (size_t i = 0; i < m->chunk[k].nparam; i++) {
			const struct param *p = &m->chunk[k].param[i];
			struct optim_state kind[PARAM_STATES], s;
			struct dev_ref at;
			uint64_t first, own;
			if (!m->optim || !param_is_trained(p))
				continue;
			int n = m->optim->states(m->optim, p->name, p->ndim, p->dim, kind);
			for (int j = -1; j < n; j++) {
				find_state(m, p, j < 0 ? value_name : kind[j].name, &s, &at, &first,
					   &own);
				sum += own * dtype_size(s.dtype);
			}
		}
	return sum;
}

int worker_model_give(struct worker_model *m, bool all, worker_model_take take, void *ctx,
		      struct err *e)
{
	for (int k = 0; k < m->chunks; k++)
		for (size_t i = 0; i < m->chunk[k].nparam; i++) {
			const struct param *p = &m->chunk[k].param[i];
			if (!param_is_trained(p) || (!all && m->deal && owner_of(p) != m->place))
				continue;
			struct optim_state kind[PARAM_STATES];
			int n = m->optim->states(m->optim, p->name, p->ndim, p->dim, kind);
			TRY(give_state(m, p, "value", take, ctx, e));
			for (int j = 0; j < n; j++)
				TRY(give_state(m, p, kind[j].name, take, ctx, e));
		}
	return 0;
}

struct sending {
	const struct orders *o;
	struct net *net;
};

static int send_part(void *ctx, const struct state_message *s, struct err *e)
{
	const struct sending *to = ctx;
	return orders_state(to->o, to->net, s, e);
}

int worker_model_send(struct worker_model *m, const struct orders *o, struct net *net,
		      struct err *e)
{
	struct sending to = { o, net };
	return worker_model_give(m, false, send_part, &to, e);
}

void worker_model_release(struct worker_model *m)
{
	for (int k = 0; k < m->chunks; k++)
		stage_release(&m->chunk[k]);
	expert_cache_free(m->experts);
	if (m->scratch.dev)
		dmem_release(&m->scratch);
	if (m->host)
		dmem_release(&m->host_scratch);
	dev_close(m->host);
	mem_free(m->blocks);
	mem_free(m->chunk);
	mem_free(m->norms.sum);
	mem_free(m->entry);
	mem_free(m->number);
	*m = (struct worker_model){ 0 };
}
