/* SPDX-License-Identifier: Apache-2.0 */
/* protocol.c - see protocol.h. */
#include "proto/protocol.h"

#include "base/buf.h"
#include "base/err.h"
#include "base/json.h"
#include "base/mem.h"
#include "job/loss_scale.h"

#include <limits.h>
#include <string.h>

/* ---- what is computed: in PLAN and in PROFILE ---- */

void work_put(struct wire_writer *w, const struct stage_options *o, const char *optimizer,
	      const struct optim_config *c)
{
	wire_put_u8(w, (uint8_t)o->act);
	wire_put_u8(w, o->quantize);
	wire_put_u8(w, o->double_quant);
	wire_put_u8(w, o->train_all);
	wire_put_u8(w, o->recompute);
	wire_put_u64(w, o->seed);
	wire_put_u32(w, (uint32_t)o->lora.r);
	wire_put_f64(w, (double)o->lora.scale);
	wire_put_f64(w, (double)o->lora.dropout);
	wire_put_u64(w, o->lora.seed);
	for (int i = 0; i < LIN_COUNT; i++)
		wire_put_u8(w, o->lora.target[i]);
	wire_put_str(w, optimizer);
	wire_put_f64(w, c->beta1);
	wire_put_f64(w, c->beta2);
	wire_put_f64(w, c->epsilon);
	wire_put_f64(w, c->momentum);
	wire_put_f64(w, c->weight_decay);
}

void work_get(struct wire_reader *r, struct stage_options *o, char optimizer[OPTIM_NAME],
	      struct optim_config *c)
{
	o->act = wire_get_u8(r);
	o->quantize = wire_get_u8(r);
	o->double_quant = wire_get_u8(r);
	o->train_all = wire_get_u8(r);
	o->recompute = wire_get_u8(r);
	o->seed = wire_get_u64(r);
	o->lora.r = wire_get_u32(r);
	o->lora.scale = (float)wire_get_f64(r);
	o->lora.dropout = (float)wire_get_f64(r);
	o->lora.seed = wire_get_u64(r);
	for (int i = 0; i < LIN_COUNT; i++)
		o->lora.target[i] = wire_get_u8(r);
	wire_get_str(r, optimizer, OPTIM_NAME);
	c->beta1 = wire_get_f64(r);
	c->beta2 = wire_get_f64(r);
	c->epsilon = wire_get_f64(r);
	c->momentum = wire_get_f64(r);
	c->weight_decay = wire_get_f64(r);
}

int work_check(const char *what, enum dtype wire, const struct stage_options *o,
	       const char *optimizer, struct err *e)
{
	if (wire > DT_F16 || o->act > DT_F16)
		return err_set(e, ERR_PROTOCOL,
			       "%s: dtype %d on the wire, %d for activations: not a float format",
			       what, wire, o->act);
	if (o->lora.r < 0 || o->lora.r > 65536 || !(o->lora.dropout >= 0 && o->lora.dropout < 1))
		return err_set(e, ERR_PROTOCOL, "%s: adapter rank %lld, dropout %g", what,
			       (long long)o->lora.r, (double)o->lora.dropout);
	if (optimizer[0] && !optimizer_find(optimizer))
		return err_set(e, ERR_PROTOCOL, "%s: there is no optimizer '%s'", what, optimizer);
	return 0;
}

/* ---- PLAN ---- */

static void put_plan(struct wire_writer *w, const struct plan_message *p, const char *config_json)
{
	wire_put_u32(w, (uint32_t)p->stages);
	wire_put_u32(w, (uint32_t)p->chunks);
	wire_put_u32(w, (uint32_t)p->stage);
	for (int i = 0; i <= p->stages * p->chunks; i++)
		wire_put_u32(w, (uint32_t)p->first[i]);
	wire_put_str(w, p->schedule);
	wire_put_u8(w, (uint8_t)p->wire);
	wire_put_str(w, config_json);
	work_put(w, &p->opt, p->optimizer, &p->optim);
	wire_put_u8(w, p->trace);
	wire_put_u8(w, p->offered);
	wire_put_str(w, p->next_best);
	wire_put_str(w, p->next_address);
	wire_put_str(w, p->next_id);
	wire_put_str(w, p->next_key);
	wire_put_str(w, p->prev_key);
	wire_put_str(w, p->next_name);
	wire_put_str(w, p->prev_name);
	wire_put_str(w, p->model);
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

static int check_plan(const struct plan_message *p, struct err *e)
{
	int all = p->stages * p->chunks;
	if (p->first[0] != 0 || p->first[all] != p->cfg.layers)
		return err_set(e, ERR_PROTOCOL,
			       "PLAN: the stages hold layers [%lld, %lld) of a model with %lld",
			       (long long)p->first[0], (long long)p->first[all],
			       (long long)p->cfg.layers);
	for (int i = 0; i < all; i++)
		if (p->first[i] >= p->first[i + 1])
			return err_set(e, ERR_PROTOCOL, "PLAN: stage %d would hold no layer", i);
	return work_check("PLAN", p->wire, &p->opt, p->optimizer, e);
}

int plan_message_read(const void *payload, size_t n, struct plan_message *p, struct err *e)
{
	memset(p, 0, sizeof *p);
	struct wire_reader r = wire_read(payload, n);
	uint32_t stages = wire_get_u32(&r), chunks = wire_get_u32(&r), stage = wire_get_u32(&r);
	if (r.failed || !stages || !chunks || stages > CHUNKS_MOST || chunks > CHUNKS_MOST ||
	    stages * chunks > CHUNKS_MOST || stage >= stages)
		return err_set(e, ERR_PROTOCOL, "PLAN: stage %u of %u with %u chunks", stage,
			       stages, chunks);
	p->stages = (int)stages;
	p->chunks = (int)chunks;
	p->stage = (int)stage;
	for (uint32_t i = 0; i <= stages * chunks; i++)
		p->first[i] = wire_get_u32(&r);
	wire_get_str(&r, p->schedule, sizeof p->schedule);
	p->wire = wire_get_u8(&r);
	size_t len = 0;
	const char *text = wire_get_text(&r, &len);
	work_get(&r, &p->opt, p->optimizer, &p->optim);
	p->trace = wire_get_u8(&r);
	p->offered = wire_get_u8(&r);
	wire_get_str(&r, p->next_best, sizeof p->next_best);
	wire_get_str(&r, p->next_address, sizeof p->next_address);
	wire_get_str(&r, p->next_id, sizeof p->next_id);
	wire_get_str(&r, p->next_key, sizeof p->next_key);
	wire_get_str(&r, p->prev_key, sizeof p->prev_key);
	wire_get_str(&r, p->next_name, sizeof p->next_name);
	wire_get_str(&r, p->prev_name, sizeof p->prev_name);
	wire_get_str(&r, p->model, sizeof p->model);
	TRY(wire_read_end(&r, "PLAN", e));
	json_t *doc;
	TRY(json_parse_text(text, len, "PLAN: the model's configuration", &doc, e));
	int rc = model_config_read(doc, "PLAN: the model's configuration", &p->cfg, e);
	json_decref(doc);
	return rc < 0 ? rc : check_plan(p, e);
}

/* ---- BATCH ---- */

static void put_batch(struct wire_writer *w, const struct microbatch *mb, enum round round,
		      uint64_t step, uint32_t microbatches, float scale, bool ids, bool labels)
{
	wire_put_u8(w, (uint8_t)round);
	wire_put_u64(w, step);
	wire_put_u32(w, microbatches);
	wire_put_f64(w, (double)scale);
	wire_put_u32(w, mb->n);
	wire_put_u32(w, mb->nseq);
	wire_put_bytes(w, mb->start, ((size_t)mb->nseq + 1) * 4);
	wire_put_bytes(w, mb->id, ids ? (size_t)mb->n * 4 : 0);
	wire_put_bytes(w, mb->label, labels ? (size_t)mb->n * 4 : 0);
}

size_t batch_size(const struct microbatch *mb, bool ids, bool labels)
{
	struct wire_writer w = wire_write(NULL, 0);
	put_batch(&w, mb, ROUND_TRAIN, 1, 1, 1, ids, labels);
	return w.n;
}

int batch_write(const struct microbatch *mb, enum round round, uint64_t step, uint32_t microbatches,
		float scale, bool ids, bool labels, void *out, size_t cap, size_t *n_p,
		struct err *e)
{
	struct wire_writer w = wire_write(out, cap);
	put_batch(&w, mb, round, step, microbatches, scale, ids, labels);
	return wire_write_end(&w, n_p, e);
}

int batch_read(const void *payload, size_t size, bool ids, bool labels, struct batch_store *b,
	       struct err *e)
{
	struct wire_reader r = wire_read(payload, size);
	struct batch_head h;
	h.round = wire_get_u8(&r);
	h.step = wire_get_u64(&r);
	h.microbatches = wire_get_u32(&r);
	double scale = wire_get_f64(&r);
	h.n = wire_get_u32(&r);
	h.nseq = wire_get_u32(&r);
	size_t nstart, nid, nlabel;
	const void *start = wire_get_bytes(&r, &nstart), *id = wire_get_bytes(&r, &nid),
		   *label = wire_get_bytes(&r, &nlabel);
	TRY(wire_read_end(&r, "BATCH", e));
	size_t n = h.n;
	if (h.round > ROUND_SAMPLE)
		return err_set(e, ERR_PROTOCOL, "BATCH: a round of kind %d", h.round);
	if (!(scale > 0 && scale <= LOSS_SCALE_MOST))
		return err_set(e, ERR_PROTOCOL, "BATCH: a loss scale of %g", scale);
	h.scale = (float)scale;
	if (!h.microbatches || h.microbatches > 1u << 20 || !n || n > 1u << 26 || !h.nseq ||
	    h.nseq > h.n || nstart != ((size_t)h.nseq + 1) * 4 || nid != (ids ? n * 4 : 0) ||
	    nlabel != (labels ? n * 4 : 0))
		return err_set(e, ERR_PROTOCOL,
			       "BATCH: %u tokens in %u sequences with %zu, %zu and %zu bytes of "
			       "places, ids and labels",
			       h.n, h.nseq, nstart, nid, nlabel);
	if (!mem_grow(&b->mem, &b->cap, 3 * n + h.nseq + 1, sizeof *b->mem))
		return err_nomem(e, n * 16, "a microbatch");
	b->head = h;
	b->id = b->mem;
	b->pos = b->id + n;
	b->label = b->pos + n;
	b->start = b->label + n;
	memcpy(b->start, start, nstart);
	if (nid)
		memcpy(b->id, id, nid);
	if (nlabel)
		memcpy(b->label, label, nlabel);
	if (b->start[0] != 0 || b->start[h.nseq] != (int32_t)h.n)
		return err_set(e, ERR_PROTOCOL, "BATCH: the sequences do not cover the tokens");
	for (uint32_t s = 0; s < h.nseq; s++) {
		if (b->start[s + 1] <= b->start[s] || b->start[s + 1] > (int32_t)h.n)
			return err_set(e, ERR_PROTOCOL, "BATCH: sequence %u is from %d to %d", s,
				       b->start[s], b->start[s + 1]);
		for (int32_t i = b->start[s]; i < b->start[s + 1]; i++)
			b->pos[i] = i - b->start[s];
	}
	return 0;
}

/* ---- the small ones ---- */

int loss_write(const struct loss_message *m, void *out, size_t cap, size_t *n_p, struct err *e)
{
	struct wire_writer w = wire_write(out, cap);
	wire_put_f64(&w, m->sum);
	wire_put_u64(&w, m->trained);
	return wire_write_end(&w, n_p, e);
}

int loss_read(const void *p, size_t n, struct loss_message *m_p, struct err *e)
{
	struct wire_reader r = wire_read(p, n);
	m_p->sum = wire_get_f64(&r);
	m_p->trained = wire_get_u64(&r);
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
	return wire_read_end(&r, "STEP", e);
}

/* ---- STEPPED, CLOCK ---- */

enum { SPAN_BYTES = 30 };
/* so that sums and differences of times do not overflow */
static const int64_t time_most = INT64_MAX / 4;

static void put_stepped(struct wire_writer *w, const struct stepped_message *m)
{
	wire_put_u64(w, (uint64_t)m->busy);
	wire_put_u64(w, (uint64_t)m->copy);
	wire_put_u64(w, (uint64_t)m->wait);
	wire_put_u64(w, m->mem_peak);
	wire_put_u64(w, (uint64_t)m->heard);
	wire_put_u64(w, (uint64_t)m->said);
	for (int k = 0; k < FLOWS; k++) {
		wire_put_u64(w, m->flow[k].bytes);
		wire_put_u64(w, m->flow[k].messages);
		wire_put_u32(w, m->flow[k].times);
		for (uint32_t i = 0; i < m->flow[k].times; i++)
			wire_put_u64(w, (uint64_t)m->flow[k].at[i]);
	}
}

size_t stepped_size(const struct stepped_message *m, size_t spans)
{
	struct wire_writer w = wire_write(NULL, 0);
	put_stepped(&w, m);
	return w.n + 4 + spans * SPAN_BYTES;
}

int stepped_write(const struct stepped_message *m, const struct span *v, size_t count, void *out,
		  size_t cap, size_t *n_p, struct err *e)
{
	struct wire_writer w = wire_write(out, cap);
	put_stepped(&w, m);
	wire_put_u32(&w, (uint32_t)count);
	for (size_t i = 0; i < count; i++) {
		wire_put_u64(&w, (uint64_t)v[i].begin);
		wire_put_u64(&w, (uint64_t)v[i].ready);
		wire_put_u64(&w, (uint64_t)v[i].end);
		wire_put_u32(&w, v[i].microbatch);
		wire_put_u8(&w, v[i].kind);
		wire_put_u8(&w, v[i].chunk);
	}
	return wire_write_end(&w, n_p, e);
}

static int64_t get_time(struct wire_reader *r, bool *odd)
{
	uint64_t t = wire_get_u64(r);
	*odd |= t > (uint64_t)time_most;
	return t > (uint64_t)time_most ? 0 : (int64_t)t;
}

static void get_flow(struct wire_reader *r, struct flow *f, bool *odd)
{
	f->bytes = wire_get_u64(r);
	f->messages = wire_get_u64(r);
	f->times = (uint32_t)wire_get_count(r, 8, FLOW_TIMES);
	*odd |= f->times > f->messages || f->bytes > (uint64_t)time_most;
	for (uint32_t i = 0; i < f->times; i++)
		f->at[i] = get_time(r, odd);
}

int stepped_read(const void *p, size_t n, struct stepped_message *m, struct span *v, size_t most,
		 size_t *count_p, struct err *e)
{
	struct wire_reader r = wire_read(p, n);
	bool odd = false;
	m->busy = get_time(&r, &odd);
	m->copy = get_time(&r, &odd);
	m->wait = get_time(&r, &odd);
	m->mem_peak = wire_get_u64(&r);
	m->heard = get_time(&r, &odd);
	m->said = get_time(&r, &odd);
	for (int k = 0; k < FLOWS; k++)
		get_flow(&r, &m->flow[k], &odd);
	size_t count = wire_get_count(&r, SPAN_BYTES, 1u << 16), kept = 0;
	for (size_t i = 0; i < count; i++) {
		struct span s;
		s.begin = get_time(&r, &odd);
		s.ready = get_time(&r, &odd);
		s.end = get_time(&r, &odd);
		s.microbatch = wire_get_u32(&r);
		s.kind = wire_get_u8(&r);
		s.chunk = wire_get_u8(&r);
		odd |= s.ready < s.begin || s.end < s.ready;
		if (kept < most)
			v[kept++] = s;
	}
	TRY(wire_read_end(&r, "STEPPED", e));
	if (odd)
		return err_set(e, ERR_PROTOCOL, "STEPPED: times or counts that cannot be");
	*count_p = kept;
	return 0;
}

int clock_write(const struct clock_message *m, void *out, size_t cap, size_t *n_p, struct err *e)
{
	struct wire_writer w = wire_write(out, cap);
	wire_put_u64(&w, (uint64_t)m->heard);
	wire_put_u64(&w, (uint64_t)m->said);
	return wire_write_end(&w, n_p, e);
}

int clock_read(const void *p, size_t n, struct clock_message *m, struct err *e)
{
	struct wire_reader r = wire_read(p, n);
	bool odd = false;
	m->heard = get_time(&r, &odd);
	m->said = get_time(&r, &odd);
	TRY(wire_read_end(&r, "CLOCK", e));
	return odd ? err_set(e, ERR_PROTOCOL, "CLOCK: a time that cannot be") : 0;
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

void abort_read(const void *p, size_t n, struct err *why)
{
	struct wire_reader r = wire_read(p, n);
	char text[sizeof why->msg];
	wire_get_str(&r, text, sizeof text);
	uint32_t code = wire_get_u32(&r);
	bool known = !r.failed && code >= 1 && code <= (uint32_t)-ERR_INTERNAL;
	err_set(why, known ? -(int)code : ERR_PROTOCOL, "%s",
		r.failed || !text[0] ? "it stopped and gave no reason" : text);
}

int state_write(const struct state_message *m, void *out, size_t cap, size_t *n_p, struct err *e)
{
	struct wire_writer w = wire_write(out, cap);
	wire_put_str(&w, m->name);
	wire_put_str(&w, m->what);
	wire_put_u64(&w, m->first);
	wire_put_bytes(&w, m->data, m->count * 4);
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
	TRY(wire_read_end(&r, "STATE", e));
	if (bytes % 4)
		return err_set(e, ERR_PROTOCOL, "STATE: %zu bytes of %s are no float32 numbers",
			       bytes, m_p->name);
	m_p->count = bytes / 4;
	return 0;
}
