/* SPDX-License-Identifier: Apache-2.0 */
/* worker_state.c - see worker_state.h. */
#include "worker/worker_state.h"

#include "base/err.h"
#include "base/mem.h"
#include "proto/protocol.h"

#include <string.h>

enum { STATE_PART = 4 << 20 /* numbers */ };

static struct param *find_param(struct worker_state *s, const char *name)
{
	for (int c = 0; c < s->chunks; c++) {
		struct param *p = stage_param(&s->chunk[c], name);
		if (p)
			return p;
	}
	return NULL;
}

static struct dev_buf *state_buffer(const struct worker_state *s, const struct param *p,
				    const char *what)
{
	if (!strcmp(what, "value"))
		return p->value;
	for (int i = 0; s->optim && i < s->optim->states; i++)
		if (!strcmp(what, s->optim->state_names[i]))
			return p->state[i];
	return NULL;
}

int worker_state_load(struct worker_state *s, const struct frame *f, struct err *e)
{
	struct state_message m;
	TRY(state_read(f->payload, f->size, &m, e));
	struct param *p = find_param(s, m.name);
	struct dev_buf *b = p && p->trainable ? state_buffer(s, p, m.what) : NULL;
	uint64_t end;
	if (!b || !add_ok(m.first, m.count, &end) || end > (uint64_t)param_count(p))
		return err_set(e, ERR_PROTOCOL,
			       "STATE: '%s' of '%s', numbers %llu and %llu more, have no place in "
			       "this stage",
			       m.what, m.name, (unsigned long long)m.first,
			       (unsigned long long)m.count);
	TRY(dev_upload(DEV_REF(b, m.first * 4), m.data, m.count * 4, e));
	return b == p->value && end == (uint64_t)param_count(p) ? param_refresh(p, e) : 0;
}

static int send_state(struct worker_state *s, uint64_t job, uint64_t step, const struct param *p,
		      const char *what, struct err *e)
{
	struct dev_buf *b = state_buffer(s, p, what);
	uint64_t all = (uint64_t)param_count(p);
	for (uint64_t at = 0; at < all; at += STATE_PART) {
		struct state_message m = { .first = at,
					   .count = all - at < STATE_PART ? all - at : STATE_PART };
		size_t n;
		memcpy(m.what, what, strlen(what) + 1);
		if (strlen(p->name) >= sizeof m.name)
			return err_set(e, ERR_INTERNAL, "the name '%s' is too long", p->name);
		memcpy(m.name, p->name, strlen(p->name) + 1);
		if (!mem_grow(&s->number, &s->cap, m.count + 256, sizeof *s->number))
			return err_nomem(e, m.count * 4, p->name);
		TRY(dev_download(s->number, DEV_REF(b, at * 4), m.count * 4, e));
		m.data = s->number;
		size_t cap = m.count * 4 + 512;
		int64_t deadline = s->timeout > 0 ? net_in(s->timeout) : NET_FOREVER;
		unsigned char *out = net_buffer(s->net, FRAME_HEADER + cap);
		if (!out)
			return err_nomem(e, cap, p->name);
		int rc = state_write(&m, out + FRAME_HEADER, cap, &n, e);
		struct frame f = { .kind = FRAME_STATE,
				   .job = job,
				   .step = step,
				   .from = s->member,
				   .to = FRAME_COORDINATOR,
				   .size = n,
				   .payload = out + FRAME_HEADER };
		if (rc >= 0)
			rc = frame_encode(&f, out, FRAME_HEADER + cap, &n, e);
		if (rc >= 0)
			rc = link_send_wait(s->coordinator, out, n, net_buffer_release, s->net,
					    deadline, e);
		if (rc != 0)
			net_buffer_release(s->net, out);
		if (rc < 0)
			return rc;
	}
	return 0;
}

int worker_state_send(struct worker_state *s, uint64_t job, uint64_t step, struct err *e)
{
	for (int c = 0; c < s->chunks; c++)
		for (size_t k = 0; k < s->chunk[c].nparam; k++) {
			const struct param *p = &s->chunk[c].param[k];
			if (!p->trainable)
				continue;
			TRY(send_state(s, job, step, p, "value", e));
			for (int i = 0; i < s->optim->states; i++)
				TRY(send_state(s, job, step, p, s->optim->state_names[i], e));
		}
	return 0;
}
