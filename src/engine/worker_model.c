/* SPDX-License-Identifier: Apache-2.0 */
/* worker_model.c - see worker_model.h. */
#include "engine/worker_model.h"

#include "base/err.h"
#include "base/mem.h"

#include <string.h>

enum { STATE_PART = 4 << 20 /* numbers */ };

int worker_model_build(struct worker_model *m, struct dev *dev, const struct plan_message *plan,
		       const struct weight_source *src, struct err *e)
{
	const struct crew *c = &plan->crew;
	m->config = &plan->optim;
	if (plan->optimizer[0])
		m->optim = optimizer_find(plan->optimizer);
	m->chunk = mem_array((size_t)c->chunks, sizeof *m->chunk);
	if (!m->chunk)
		return err_nomem(e, (size_t)c->chunks * sizeof *m->chunk, "stages");
	m->chunks = c->chunks;
	for (int k = 0; k < m->chunks; k++) {
		struct stage_options o = plan->opt;
		int v = chunk_number(c->stages, plan_stage(plan), k);
		o.first = plan->first[v];
		o.last = plan->first[v + 1];
		TRY(stage_build(&m->chunk[k], dev, &plan->cfg, &o, src, e));
		for (size_t i = 0; m->optim && i < m->chunk[k].nparam; i++)
			if (param_is_trained(&m->chunk[k].param[i]))
				TRY(optim_init(m->optim, &m->chunk[k].param[i], m->config, e));
	}
	return 0;
}

void worker_model_between(struct worker_model *m,
			  int (*between)(void *ctx, bool last, struct err *e), void *ctx)
{
	for (int k = 0; k < m->chunks; k++) {
		m->chunk[k].between = between;
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

int worker_model_norms(struct worker_model *m, struct err *e)
{
	m->nentry = 0;
	for (int k = 0; k < m->chunks; k++) {
		struct stage *s = &m->chunk[k];
		for (size_t i = 0; i < s->nparam; i++) {
			struct param *p = &s->param[i];
			double sum;
			if (!param_is_trained(p))
				continue;
			TRY(grad_sqnorm(p, &s->scratch, &m->norms, &sum, e));
			if (!m->nentry || m->entry[m->nentry - 1].layer != p->layer) {
				if (!mem_grow(&m->entry, &m->entry_cap, m->nentry + 1,
					      sizeof *m->entry))
					return err_nomem(e, (m->nentry + 1) * sizeof *m->entry,
							 "gradient norms");
				m->entry[m->nentry++] = (struct norm_entry){ p->layer, 0 };
			}
			m->entry[m->nentry - 1].sqnorm += sum;
		}
	}
	return 0;
}

int worker_model_step(struct worker_model *m, const struct step_message *s, struct err *e)
{
	for (int k = 0; k < m->chunks; k++) {
		const struct optim_work w = { &m->chunk[k].scratch, &m->norms };
		for (size_t i = 0; i < m->chunk[k].nparam; i++) {
			struct param *p = &m->chunk[k].param[i];
			if (param_is_trained(p))
				TRY(s->apply ? optim_update(m->optim, p, m->config, &s->s, &w, e)
					     : optim_zero_grad(p, e));
		}
	}
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

static struct dev_buf *state_buffer(const struct worker_model *m, const struct param *p,
				    const char *what, struct optim_state *kind_p)
{
	struct optim_state s[PARAM_STATES];
	*kind_p = optim_state_f32("value", (uint64_t)param_count(p));
	if (!strcmp(what, kind_p->name))
		return p->value;
	int n = m->optim ? m->optim->states(p->name, p->ndim, p->dim, s) : 0;
	for (int i = 0; i < n; i++)
		if (!strcmp(what, s[i].name)) {
			*kind_p = s[i];
			return p->state[i];
		}
	return NULL;
}

int worker_model_load(struct worker_model *m, const struct frame *f, struct err *e)
{
	struct state_message s;
	TRY(state_read(f->payload, f->size, &s, e));
	struct param *p = find_param(m, s.name);
	struct optim_state kind = { .dtype = DT_F32 };
	struct dev_buf *b = p && p->trainable ? state_buffer(m, p, s.what, &kind) : NULL;
	const size_t size = dtype_size(kind.dtype);
	uint64_t end;
	if (!b || s.bytes % size || !add_ok(s.first, s.bytes / size, &end) || end > kind.count)
		return err_set(e, ERR_PROTOCOL,
			       "STATE: '%s' of '%s', from number %llu on %llu bytes, do not belong "
			       "to this stage",
			       s.what, s.name, (unsigned long long)s.first,
			       (unsigned long long)s.bytes);
	TRY(dev_upload(DEV_REF(b, s.first * size), s.data, s.bytes, e));
	if (b != p->value || end != kind.count)
		return 0;
	TRY(param_refresh(p, e));
	return stage_tie_value(&m->chunk[0], &m->chunk[m->chunks - 1], e);
}

/* One part of a parameter, whose numbers are in m->number. */
static int send_part(struct worker_model *m, const struct orders *o, struct net *net,
		     struct state_message *s, struct err *e)
{
	size_t n, cap = s->bytes + 512;
	unsigned char *out = link_buffer(o->link, FRAME_HEADER + cap);
	if (!out)
		return err_nomem(e, cap, s->name);
	s->data = m->number;
	int rc = state_write(s, out + FRAME_HEADER, cap, &n, e);
	struct frame f = { .kind = FRAME_STATE,
			   .job = o->job,
			   .step = o->step,
			   .from = o->member,
			   .to = FRAME_COORDINATOR,
			   .size = n,
			   .payload = out + FRAME_HEADER };
	if (rc >= 0)
		rc = frame_encode(&f, out, FRAME_HEADER + cap, &n, e);
	if (rc >= 0)
		rc = link_send_wait(o->link, out, n, net_buffer_release, net, orders_patience(o),
				    e);
	if (rc != 0)
		net_buffer_release(net, out);
	return rc < 0 ? rc : 0;
}

static int send_state(struct worker_model *m, const struct orders *o, struct net *net,
		      const struct param *p, const char *what, struct err *e)
{
	struct optim_state kind;
	struct dev_buf *b = state_buffer(m, p, what, &kind);
	const size_t size = dtype_size(kind.dtype);
	for (uint64_t at = 0; at < kind.count; at += STATE_PART) {
		uint64_t some = kind.count - at < STATE_PART ? kind.count - at : STATE_PART;
		struct state_message s = { .first = at, .bytes = some * size };
		memcpy(s.what, what, strlen(what) + 1);
		if (strlen(p->name) >= sizeof s.name)
			return err_set(e, ERR_INTERNAL, "the name '%s' is too long", p->name);
		memcpy(s.name, p->name, strlen(p->name) + 1);
		if (!mem_grow(&m->number, &m->cap, s.bytes + 1024, 1))
			return err_nomem(e, s.bytes, p->name);
		TRY(dev_download(m->number, DEV_REF(b, at * size), s.bytes, e));
		TRY(send_part(m, o, net, &s, e));
	}
	return 0;
}

int worker_model_send(struct worker_model *m, const struct orders *o, struct net *net,
		      struct err *e)
{
	for (int k = 0; k < m->chunks; k++)
		for (size_t i = 0; i < m->chunk[k].nparam; i++) {
			const struct param *p = &m->chunk[k].param[i];
			if (!param_is_trained(p))
				continue;
			struct optim_state kind[PARAM_STATES];
			int n = m->optim->states(p->name, p->ndim, p->dim, kind);
			TRY(send_state(m, o, net, p, "value", e));
			for (int j = 0; j < n; j++)
				TRY(send_state(m, o, net, p, kind[j].name, e));
		}
	return 0;
}

void worker_model_release(struct worker_model *m)
{
	for (int k = 0; k < m->chunks; k++)
		stage_release(&m->chunk[k]);
	mem_free(m->chunk);
	mem_free(m->norms.sum);
	mem_free(m->entry);
	mem_free(m->number);
	*m = (struct worker_model){ 0 };
}
