/* SPDX-License-Identifier: Apache-2.0 */
/* protocol.c - see protocol.h. */
#include "proto/protocol.h"

#include "base/buf.h"
#include "base/err.h"
#include "base/json.h"
#include "base/mem.h"
#include "optim/loss_scale.h"
#include "proto/deal_wire.h"
#include "proto/pairs_wire.h"
#include "sched/reduce.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

/* ---- PLAN ---- */

static void put_member(struct wire_writer *w, const struct member *m)
{
	wire_put_str(w, m->id);
	wire_put_str(w, m->device);
	wire_put_str(w, m->machine);
	wire_put_str(w, m->name);
	wire_put_str(w, m->address);
	wire_put_str(w, m->best);
	wire_put_str(w, m->key);
	wire_put_u32(w, (uint32_t)(m->stage + 1));
	wire_put_u32(w, (uint32_t)(m->place + 1));
	wire_put_u32(w, (uint32_t)m->share);
	wire_put_u32(w, (uint32_t)m->state_share);
	wire_put_u8(w, m->gone);
	wire_put_u8(w, m->only_experts);
}

static void put_plan(struct wire_writer *w, const struct plan_message *p, const char *config_json)
{
	const struct crew *c = &p->crew;
	wire_put_u32(w, (uint32_t)c->stages);
	wire_put_u32(w, (uint32_t)c->chunks);
	wire_put_u8(w, (uint8_t)c->parts);
	wire_put_u8(w, c->tied);
	wire_put_u32(w, (uint32_t)c->n);
	for (int i = 0; i < c->n; i++)
		put_member(w, &c->member[i]);
	wire_put_u32(w, (uint32_t)p->self);
	for (int i = 0; i <= c->stages * c->chunks; i++)
		wire_put_u32(w, (uint32_t)p->first[i]);
	wire_put_str(w, p->schedule);
	wire_put_u8(w, (uint8_t)p->wire);
	wire_put_str(w, config_json);
	work_put(w, &p->opt, p->optimizer, &p->optim);
	wire_put_u8(w, (uint8_t)p->reduce_order);
	wire_put_u8(w, (uint8_t)p->reduce_dtype);
	wire_put_str(w, p->reducer);
	wire_put_u8(w, (uint8_t)p->sharding);
	wire_put_u8(w, (uint8_t)p->offload);
	wire_put_u64(w, p->expert_cache);
	wire_put_u8(w, p->trace);
	wire_put_u8(w, p->offered);
	wire_put_f64(w, p->progress);
	wire_put_str(w, p->model);
	deal_put(w, &p->deal);
}

int plan_message_write(const struct plan_message *p, const char *config_json, struct buf *out,
		       struct err *e)
{
	struct wire_writer count = wire_write(NULL, 0);
	put_plan(&count, p, config_json);
	buf_reset(out);
	buf_reserve(out, count.n);
	TRY(buf_ok(out, e));
	struct wire_writer w = wire_write(out->p, count.n);
	put_plan(&w, p, config_json);
	return wire_write_end(&w, &out->n, e);
}

int plan_stage(const struct plan_message *p) { return crew_stage_of(&p->crew, p->self); }
int plan_place(const struct plan_message *p) { return p->crew.member[p->self].place; }
bool plan_is_front(const struct plan_message *p) { return crew_is_front(&p->crew, p->self); }
bool plan_is_end(const struct plan_message *p) { return crew_is_end(&p->crew, p->self); }

bool plan_needs(const struct plan_message *p, const char *name)
{
	const struct crew *c = &p->crew;
	if (model_knows_tensor(&p->cfg, name) != 1)
		return false;
	if (p->cfg.tied && plan_is_end(p) && !c->member[p->self].only_experts &&
	    !strncmp(name, "model.embed_tokens.", 19))
		return true;
	if (chunk_stage_of_param(c->stages, c->chunks, p->first, name) != plan_stage(p))
		return false;
	const int at = deal_place_of(&p->deal, name);
	return at == DEAL_HOME ? !c->member[p->self].only_experts : at == plan_place(p);
}

void plan_message_release(struct plan_message *p)
{
	crew_release(&p->crew);
	mem_free(p->dealt);
	p->dealt = NULL;
}

/* Each stage has a group whose places are 0, 1, ..., each once. */
static int check_crew(const struct crew *c, struct err *e)
{
	int held = 0, placed = 0;
	for (int i = 0; i < c->n; i++)
		held += c->member[i].stage >= 0;
	for (int s = 0; s < c->stages; s++) {
		int n = crew_group_size(c, s);
		if (!n)
			return err_set(e, ERR_PROTOCOL, "PLAN: stage %d has no member", s);
		for (int k = 0; k < n; k++)
			placed += crew_at(c, s, k) >= 0;
	}
	if (placed != held)
		return err_set(e, ERR_PROTOCOL,
			       "PLAN: members whose places in their groups are "
			       "not 0, 1, ...");
	return crew_check(c, e) < 0 ? (e->code = ERR_PROTOCOL) : 0;
}

/* Schedule and way of adding up are rows of this program. */
static int check_rows(const struct plan_message *p, struct err *e)
{
	if (!sched_find(p->schedule))
		return err_set(e, ERR_PROTOCOL, "PLAN: there is no schedule '%s'", p->schedule);
	const struct reducer *how = reducer_find(p->reducer);
	if (!how)
		return err_set(e, ERR_PROTOCOL, "PLAN: there is no way '%s' of adding up gradients",
			       p->reducer);
	if (p->reduce_order == SUM_EXACT && !how->exact)
		return err_set(e, ERR_PROTOCOL,
			       "PLAN: '%s' cannot add gradients in the order 'exact'", how->name);
	if (p->reduce_dtype != DT_F32 && how->collective)
		return err_set(e, ERR_PROTOCOL, "PLAN: '%s' adds gradients in float32 only",
			       how->name);
	return 0;
}

/* The shares of a group's state are the whole; and the optimizer can update a part. */
static int check_sharding(const struct plan_message *p, struct err *e)
{
	const struct optimizer *o = p->optimizer[0] ? optimizer_find(p->optimizer) : NULL;
	const struct sched *s = sched_find(p->schedule);
	if (p->sharding > SHARD_PARAMETERS)
		return err_set(e, ERR_PROTOCOL, "PLAN: sharding %d", p->sharding);
	if (p->sharding == SHARD_PARAMETERS && !(s && s->gathers))
		return err_set(e, ERR_PROTOCOL, "PLAN: '%s' cannot gather values", p->schedule);
	if (p->offload > OFFLOAD_ALL || ((p->offload & OFFLOAD_PARAMETERS) && !(s && s->gathers)))
		return err_set(e, ERR_PROTOCOL, "PLAN: offload %u with '%s'", p->offload,
			       p->schedule);
	if (p->sharding && o && o->cut == CUT_NONE)
		return err_set(e, ERR_PROTOCOL, "PLAN: the state of '%s' cannot be shared",
			       o->name);
	for (int i = 0; p->sharding && i < p->crew.stages; i++) {
		int64_t sum = 0;
		for (int k = 0, m; (m = crew_at(&p->crew, i, k)) >= 0; k++)
			sum += p->crew.member[m].state_share;
		if (sum != STATE_WHOLE)
			return err_set(e, ERR_PROTOCOL,
				       "PLAN: the shares of the state of stage %d are %lld "
				       "millionths",
				       i, (long long)sum);
	}
	return 0;
}

static int check_plan(const struct plan_message *p, struct err *e)
{
	int all = p->crew.stages * p->crew.chunks;
	TRY(check_crew(&p->crew, e));
	if (!(p->progress == 0 || (p->progress >= 0.01 && p->progress <= 1e6)))
		return err_set(e, ERR_PROTOCOL, "PLAN: PROGRESS every %g s", p->progress);
	if (p->reduce_order != SUM_FAST && p->reduce_order != SUM_EXACT)
		return err_set(e, ERR_PROTOCOL, "PLAN: gradients in order %d", p->reduce_order);
	if (p->reduce_dtype != DT_F32 && p->reduce_dtype != DT_BF16)
		return err_set(e, ERR_PROTOCOL, "PLAN: sums of gradients in dtype %d",
			       p->reduce_dtype);
	if (p->crew.parts < 1 || p->crew.parts > SCHED_MAX_PARTS)
		return err_set(e, ERR_PROTOCOL, "PLAN: gradients in %d parts", p->crew.parts);
	TRY(check_rows(p, e));
	TRY(check_sharding(p, e));
	if (p->crew.tied != (p->cfg.tied && p->opt.train_all))
		return err_set(e, ERR_PROTOCOL, "PLAN: front and end %s one embedding",
			       p->crew.tied ? "do not train" : "train");
	if (plan_stage(p) < 0)
		return err_set(e, ERR_PROTOCOL, "PLAN: for member %d, which holds no stage",
			       p->self);
	if (p->first[0] != 0 || p->first[all] != p->cfg.layers)
		return err_set(e, ERR_PROTOCOL,
			       "PLAN: the stages hold layers [%lld, %lld) of a model with %lld",
			       (long long)p->first[0], (long long)p->first[all],
			       (long long)p->cfg.layers);
	for (int i = 0; i < all; i++)
		if (p->first[i] >= p->first[i + 1])
			return err_set(e, ERR_PROTOCOL, "PLAN: stage %d would hold no layer", i);
	TRY(deal_check(p, e));
	return work_check("PLAN", p->wire, &p->opt, p->optimizer, e);
}

static int get_member(struct wire_reader *r, struct crew *c, struct err *e)
{
	struct member m = { 0 };
	wire_get_str(r, m.id, sizeof m.id);
	wire_get_str(r, m.device, sizeof m.device);
	wire_get_str(r, m.machine, sizeof m.machine);
	wire_get_str(r, m.name, sizeof m.name);
	wire_get_str(r, m.address, sizeof m.address);
	wire_get_str(r, m.best, sizeof m.best);
	wire_get_str(r, m.key, sizeof m.key);
	uint32_t stage = wire_get_u32(r), place = wire_get_u32(r), share = wire_get_u32(r),
		 state = wire_get_u32(r), gone = wire_get_u8(r), only = wire_get_u8(r);
	if (stage > (uint32_t)c->stages || place > SCHED_MAX_GROUP || gone > 1 || only > 1 ||
	    !stage != !place || (gone && stage))
		return err_set(e, ERR_PROTOCOL, "PLAN: member %d has place %lld of stage %lld",
			       c->n, (long long)place - 1, (long long)stage - 1);
	if (share > SCHED_MAX_SHARE || (share && !stage))
		return err_set(e, ERR_PROTOCOL, "PLAN: member %d has a share of %u of stage %lld",
			       c->n, share, (long long)stage - 1);
	if (state > STATE_WHOLE || (state && !stage))
		return err_set(e, ERR_PROTOCOL,
			       "PLAN: member %d has %u millionths of the state of stage %lld", c->n,
			       state, (long long)stage - 1);
	TRY(crew_add(c, &m, e));
	c->member[c->n - 1].state_share = (int)state;
	c->member[c->n - 1].stage = (int)stage - 1;
	c->member[c->n - 1].place = (int)place - 1;
	c->member[c->n - 1].share = (int)share;
	c->member[c->n - 1].gone = gone;
	c->member[c->n - 1].only_experts = only;
	return 0;
}

static int get_plan(struct wire_reader *r, struct plan_message *p, struct err *e)
{
	uint32_t stages = wire_get_u32(r), chunks = wire_get_u32(r);
	if (r->failed || !stages || !chunks || stages > CHUNKS_MOST || chunks > CHUNKS_MOST ||
	    stages * chunks > CHUNKS_MOST)
		return err_set(e, ERR_PROTOCOL, "PLAN: %u stages with %u chunks", stages, chunks);
	p->crew.stages = (int)stages;
	p->crew.chunks = (int)chunks;
	p->crew.parts = wire_get_u8(r);
	p->crew.tied = wire_get_u8(r);
	uint32_t members = wire_get_count(r, 46, CREW_MOST);
	for (uint32_t i = 0; i < members && !r->failed; i++)
		TRY(get_member(r, &p->crew, e));
	uint32_t self = wire_get_u32(r);
	if (!r->failed && self >= members)
		return err_set(e, ERR_PROTOCOL, "PLAN: for member %u of %u", self, members);
	p->self = (int)self;
	for (uint32_t i = 0; i <= stages * chunks; i++)
		p->first[i] = wire_get_u32(r);
	wire_get_str(r, p->schedule, sizeof p->schedule);
	p->wire = wire_get_u8(r);
	size_t len = 0;
	const char *text = wire_get_text(r, &len);
	work_get(r, &p->opt, p->optimizer, &p->optim);
	p->reduce_order = wire_get_u8(r);
	p->reduce_dtype = wire_get_u8(r);
	wire_get_str(r, p->reducer, sizeof p->reducer);
	p->sharding = wire_get_u8(r);
	p->offload = wire_get_u8(r);
	p->expert_cache = wire_get_u64(r);
	p->trace = wire_get_u8(r);
	p->offered = wire_get_u8(r);
	p->progress = wire_get_f64(r);
	wire_get_str(r, p->model, sizeof p->model);
	TRY(deal_get(r, p, e));
	TRY(wire_read_end(r, "PLAN", e));
	json_t *doc;
	TRY(json_parse_text_in(text, len, "PLAN: the model's configuration", JSON_MEMORY_CONFIG,
			       &doc, e));
	int rc = model_config_read(doc, "PLAN: the model's configuration", &p->cfg, e);
	json_decref(doc);
	return rc < 0 ? rc : check_plan(p, e);
}

int plan_message_read(const void *payload, size_t n, struct plan_message *p, struct err *e)
{
	struct wire_reader r = wire_read(payload, n);
	memset(p, 0, sizeof *p);
	int rc = get_plan(&r, p, e);
	if (rc < 0)
		plan_message_release(p);
	return rc;
}

/* ---- BATCH ---- */

static void put_batch(struct wire_writer *w, const struct microbatch *mb, enum round round,
		      uint64_t step, uint32_t microbatches, float scale, const struct draw *draw,
		      bool ids, bool labels)
{
	wire_put_u8(w, (uint8_t)round);
	wire_put_u64(w, step);
	wire_put_u32(w, microbatches);
	wire_put_f64(w, (double)scale);
	if (round == ROUND_SAMPLE) {
		wire_put_f64(w, draw->temperature);
		wire_put_f64(w, draw->top_p);
		wire_put_u64(w, draw->seed);
	}
	wire_put_u32(w, mb->n);
	const int32_t one[2] = { 0, (int32_t)mb->n };
	const uint32_t nrows = mb->row ? mb->nrows : 1;
	wire_put_u32(w, mb->nseq);
	wire_put_u32(w, mb->first_row);
	wire_put_u32(w, nrows);
	wire_put_bytes(w, mb->row ? mb->row : one, ((size_t)nrows + 1) * 4);
	wire_put_bytes(w, mb->start, ((size_t)mb->nseq + 1) * 4);
	const size_t id = mb->id_words ? mb->id_words : 1,
		     label = mb->label_words ? mb->label_words : 1;
	wire_put_bytes(w, mb->id, ids ? mb->n * id * 4 : 0);
	wire_put_bytes(w, mb->label, labels ? mb->n * label * 4 : 0);
	pairs_put(w, labels ? mb->pairs : NULL, mb->nseq, mb->nrows);
}

size_t batch_size(const struct microbatch *mb, bool ids, bool labels)
{
	struct wire_writer w = wire_write(NULL, 0);
	put_batch(&w, mb, ROUND_SAMPLE, 1, 1, 1, &(struct draw){ 0 }, ids, labels);
	return w.n;
}

int batch_write(const struct microbatch *mb, enum round round, uint64_t step, uint32_t microbatches,
		float scale, const struct draw *draw, bool ids, bool labels, void *out, size_t cap,
		size_t *n_p, struct err *e)
{
	struct wire_writer w = wire_write(out, cap);
	put_batch(&w, mb, round, step, microbatches, scale, draw, ids, labels);
	return wire_write_end(&w, n_p, e);
}

int batch_read(const void *payload, size_t size, size_t ids, size_t labels, struct batch_store *b,
	       struct err *e)
{
	struct wire_reader r = wire_read(payload, size);
	struct batch_head h = { 0 };
	h.round = wire_get_u8(&r);
	h.step = wire_get_u64(&r);
	h.microbatches = wire_get_u32(&r);
	double scale = wire_get_f64(&r);
	if (h.round == ROUND_SAMPLE) {
		h.draw.temperature = wire_get_f64(&r);
		h.draw.top_p = wire_get_f64(&r);
		h.draw.seed = wire_get_u64(&r);
	}
	h.n = wire_get_u32(&r);
	h.nseq = wire_get_u32(&r);
	h.first_row = wire_get_u32(&r);
	h.nrows = wire_get_u32(&r);
	size_t nrow, nstart, nid, nlabel;
	const void *row = wire_get_bytes(&r, &nrow);
	const void *start = wire_get_bytes(&r, &nstart), *id = wire_get_bytes(&r, &nid),
		   *label = wire_get_bytes(&r, &nlabel);
	struct pairs_fields pairs;
	pairs_get(&r, &pairs);
	TRY(wire_read_end(&r, "BATCH", e));
	size_t n = h.n;
	if (h.round > ROUND_REFER)
		return err_set(e, ERR_PROTOCOL, "BATCH: a round of kind %d", h.round);
	if (!(scale > 0 && scale <= LOSS_SCALE_MOST))
		return err_set(e, ERR_PROTOCOL, "BATCH: a loss scale of %g", scale);
	h.scale = (float)scale;
	if (!(h.draw.temperature >= 0 && h.draw.temperature <= 100) ||
	    !(h.draw.top_p >= 0 && h.draw.top_p <= 1))
		return err_set(e, ERR_PROTOCOL, "BATCH: a temperature of %g with top_p %g",
			       h.draw.temperature, h.draw.top_p);
	if (!h.microbatches || h.microbatches > 1u << 20 || !n || n > 1u << 26 || !h.nseq ||
	    h.nseq > h.n || nstart != ((size_t)h.nseq + 1) * 4 || nid != n * ids * 4 ||
	    nlabel != n * labels * 4)
		return err_set(e, ERR_PROTOCOL,
			       "BATCH: %u tokens in %u sequences with %zu, %zu and %zu bytes of "
			       "places, ids and labels",
			       h.n, h.nseq, nstart, nid, nlabel);
	if (!h.nrows || h.nrows > h.nseq || nrow != ((size_t)h.nrows + 1) * 4 ||
	    h.first_row > 1u << 30)
		return err_set(e, ERR_PROTOCOL,
			       "BATCH: %u rows from row %u on with %zu bytes of places", h.nrows,
			       h.first_row, nrow);
	const size_t id_words = ids ? ids : 1, label_words = labels ? labels : 1;
	if (!mem_grow(&b->mem, &b->cap, (1 + id_words + label_words) * n + h.nseq + h.nrows + 2,
		      sizeof *b->mem))
		return err_nomem(e, nid + nlabel, "a microbatch");
	b->head = h;
	b->id = b->mem;
	b->pos = b->id + n * id_words;
	b->label = b->pos + n;
	b->start = b->label + n * label_words;
	b->row = b->start + h.nseq + 1;
	memcpy(b->row, row, nrow);
	memcpy(b->start, start, nstart);
	if (nid)
		memcpy(b->id, id, nid);
	if (nlabel)
		memcpy(b->label, label, nlabel);
	if (b->start[0] != 0 || b->start[h.nseq] != (int32_t)h.n)
		return err_set(e, ERR_PROTOCOL, "BATCH: the sequences do not cover the tokens");
	for (uint32_t i = 0; i < h.nrows; i++)
		if (b->row[i] < 0 || b->row[i + 1] <= b->row[i])
			return err_set(e, ERR_PROTOCOL, "BATCH: row %u is from %d to %d", i,
				       b->row[i], b->row[i + 1]);
	if (b->row[0] != 0 || b->row[h.nrows] != (int32_t)h.n)
		return err_set(e, ERR_PROTOCOL, "BATCH: the rows do not cover the tokens");
	for (uint32_t s = 0; s < h.nseq; s++) {
		if (b->start[s + 1] <= b->start[s] || b->start[s + 1] > (int32_t)h.n)
			return err_set(e, ERR_PROTOCOL, "BATCH: sequence %u is from %d to %d", s,
				       b->start[s], b->start[s + 1]);
		for (int32_t i = b->start[s]; i < b->start[s + 1]; i++)
			b->pos[i] = i - b->start[s];
	}
	return pairs_take(&pairs, labels > 0, b, e);
}

/* ---- the small ones ---- */

int loss_write(const struct loss_message *m, void *out, size_t cap, size_t *n_p, struct err *e)
{
	struct wire_writer w = wire_write(out, cap);
	wire_put_f64(&w, m->sum);
	wire_put_u64(&w, m->trained);
	wire_put_u64(&w, m->hits);
	for (int i = 0; i < 2; i++) {
		wire_put_f64(&w, m->score.reward[i]);
		wire_put_u64(&w, m->score.rewarded[i]);
	}
	return wire_write_end(&w, n_p, e);
}

int loss_read(const void *p, size_t n, struct loss_message *m_p, struct err *e)
{
	struct wire_reader r = wire_read(p, n);
	m_p->sum = wire_get_f64(&r);
	m_p->trained = wire_get_u64(&r);
	m_p->hits = wire_get_u64(&r);
	for (int i = 0; i < 2; i++) {
		m_p->score.reward[i] = wire_get_f64(&r);
		m_p->score.rewarded[i] = wire_get_u64(&r);
	}
	return wire_read_end(&r, "LOSS", e);
}

int token_write(int32_t id, void *out, size_t cap, size_t *n_p, struct err *e)
{
	struct wire_writer w = wire_write(out, cap);
	wire_put_u32(&w, (uint32_t)id);
	return wire_write_end(&w, n_p, e);
}

int token_read(const void *p, size_t n, int32_t *id_p, struct err *e)
{
	struct wire_reader r = wire_read(p, n);
	uint32_t id = wire_get_u32(&r);
	TRY(wire_read_end(&r, "TOKEN", e));
	if (id > INT32_MAX)
		return err_set(e, ERR_PROTOCOL, "TOKEN: %u", id);
	*id_p = (int32_t)id;
	return 0;
}

int norm_write(const struct norm_entry *v, size_t count, void *out, size_t cap, size_t *n_p,
	       struct err *e)
{
	struct wire_writer w = wire_write(out, cap);
	wire_put_u32(&w, (uint32_t)count);
	for (size_t i = 0; i < count; i++) {
		wire_put_u32(&w, (uint32_t)v[i].layer);
		wire_put_f64(&w, v[i].sqnorm);
	}
	return wire_write_end(&w, n_p, e);
}

int norm_read(const void *p, size_t n, struct norm_entry *v, size_t most, size_t *count_p,
	      struct err *e)
{
	struct wire_reader r = wire_read(p, n);
	size_t count = wire_get_count(&r, 12, (uint32_t)most);
	for (size_t i = 0; i < count; i++) {
		v[i].layer = (int)wire_get_u32(&r);
		v[i].sqnorm = wire_get_f64(&r);
	}
	*count_p = count;
	return wire_read_end(&r, "NORM", e);
}

int step_write(const struct step_message *m, void *out, size_t cap, size_t *n_p, struct err *e)
{
	struct wire_writer w = wire_write(out, cap);
	wire_put_u8(&w, m->apply);
	wire_put_u64(&w, m->s.step);
	wire_put_f64(&w, m->lr);
	wire_put_f64(&w, (double)m->s.scale);
	wire_put_bytes(&w, m->record, m->nrecord);
	return wire_write_end(&w, n_p, e);
}

int step_read(const void *p, size_t n, struct step_message *m_p, struct err *e)
{
	struct wire_reader r = wire_read(p, n);
	m_p->apply = wire_get_u8(&r);
	m_p->s.step = wire_get_u64(&r);
	m_p->lr = wire_get_f64(&r);
	m_p->s.lr = (float)m_p->lr;
	m_p->s.scale = (float)wire_get_f64(&r);
	m_p->record = wire_get_bytes(&r, &m_p->nrecord);
	return wire_read_end(&r, "STEP", e);
}

/* ---- ends and states ---- */

int abort_write(const struct err *why, void *out, size_t cap, size_t *n_p)
{
	struct wire_writer w = wire_write(out, cap);
	struct err ignored = { 0 };
	wire_put_str(&w, why->msg);
	wire_put_u32(&w, (uint32_t)-why->code);
	return wire_write_end(&w, n_p, &ignored);
}

static void get_reason(struct wire_reader *r, struct err *why)
{
	char text[sizeof why->msg];
	wire_get_str(r, text, sizeof text);
	uint32_t code = wire_get_u32(r);
	bool known = !r->failed && code >= 1 && code <= (uint32_t)-ERR_INTERNAL;
	err_set(why, known ? -(int)code : ERR_PROTOCOL, "%s",
		r->failed || !text[0] ? "it stopped and gave no reason" : text);
}

void abort_read(const void *p, size_t n, struct err *why)
{
	struct wire_reader r = wire_read(p, n);
	get_reason(&r, why);
}

int broken_write(const struct err *why, int lost, void *out, size_t cap, size_t *n_p)
{
	struct wire_writer w = wire_write(out, cap);
	struct err ignored = { 0 };
	wire_put_str(&w, why->msg);
	wire_put_u32(&w, (uint32_t)-why->code);
	wire_put_u32(&w, (uint32_t)(lost + 1));
	return wire_write_end(&w, n_p, &ignored);
}

void broken_read(const void *p, size_t n, struct err *why, int *lost_p)
{
	struct wire_reader r = wire_read(p, n);
	get_reason(&r, why);
	const uint32_t lost = wire_get_u32(&r);
	*lost_p = r.failed || lost > INT32_MAX ? -1 : (int)lost - 1;
}

int progress_write(const struct progress *m, void *out, size_t cap, size_t *n_p, struct err *e)
{
	struct wire_writer w = wire_write(out, cap);
	wire_put_u32(&w, m->state);
	wire_put_u32(&w, m->instruction);
	wire_put_u64(&w, m->step);
	wire_put_u64(&w, m->bytes);
	return wire_write_end(&w, n_p, e);
}

int progress_read(const void *p, size_t n, struct progress *m, struct err *e)
{
	struct wire_reader r = wire_read(p, n);
	*m = (struct progress){ .state = wire_get_u32(&r) };
	m->instruction = wire_get_u32(&r);
	m->step = wire_get_u64(&r);
	m->bytes = wire_get_u64(&r);
	TRY(wire_read_end(&r, "PROGRESS", e));
	return m->state <= PROGRESS_WAITING
		       ? 0
		       : err_set(e, ERR_PROTOCOL, "PROGRESS: state %u", m->state);
}

int state_write(const struct state_message *m, void *out, size_t cap, size_t *n_p, struct err *e)
{
	struct wire_writer w = wire_write(out, cap);
	wire_put_str(&w, m->name);
	wire_put_str(&w, m->what);
	wire_put_u64(&w, m->first);
	wire_put_bytes(&w, m->data, m->bytes);
	return wire_write_end(&w, n_p, e);
}

int state_read(const void *p, size_t n, struct state_message *m_p, struct err *e)
{
	struct wire_reader r = wire_read(p, n);
	wire_get_str(&r, m_p->name, sizeof m_p->name);
	wire_get_str(&r, m_p->what, sizeof m_p->what);
	m_p->first = wire_get_u64(&r);
	size_t bytes = 0;
	m_p->data = wire_get_bytes(&r, &bytes);
	m_p->bytes = bytes;
	return wire_read_end(&r, "STATE", e);
}
