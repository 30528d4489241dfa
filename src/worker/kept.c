/* SPDX-License-Identifier: Apache-2.0 */
/* kept.c - see kept.h. */
#include "worker/kept.h"

#include "base/err.h"
#include "base/mem.h"
#include "base/os.h"

#include <stdio.h>

void kept_refuse(const struct kept *k, uint64_t run, uint64_t epoch, uint64_t job, char *why,
		 size_t cap)
{
	const uint32_t term = (uint32_t)(epoch >> 32);
	why[0] = 0;
	if (k && run && run == k->run && (term < k->term || (term == k->term && job != k->job)))
		snprintf(why, cap,
			 "it follows a later coordinator of this run (term %u, the one that "
			 "connects has %u): does the job run twice? If not, start this worker "
			 "again",
			 k->term, term);
}

bool kept_precedes(const struct kept *k, uint64_t run, uint64_t epoch)
{
	return k && run && run == k->run && k->term < (uint32_t)(epoch >> 32);
}

void kept_obey(struct kept *k, uint64_t run, uint64_t epoch, uint64_t job)
{
	if (k)
		k->other = !run;
	if (!k || !run)
		return;
	if (run != k->run)
		kept_drop(k);
	k->owed = k->whole;
	k->run = run;
	k->term = (uint32_t)(epoch >> 32);
	k->job = job;
}

void kept_drop(struct kept *k)
{
	for (size_t i = 0; i < k->n; i++)
		mem_free(k->item[i].payload);
	mem_free(k->item);
	buf_release(&k->record);
	k->item = NULL;
	k->n = k->cap = 0;
	k->bytes = 0;
	k->whole = k->owed = false;
}

void kept_release(struct kept *k)
{
	kept_drop(k);
	*k = (struct kept){ 0 };
}

static int take_part(void *ctx, const struct state_message *s, struct err *e)
{
	struct kept *k = ctx;
	size_t n, cap = s->bytes + 512;
	if (!mem_grow(&k->item, &k->cap, k->n + 1, sizeof *k->item))
		return err_nomem(e, (k->n + 1) * sizeof *k->item, "a state that is kept");
	void *p = mem_alloc(cap);
	if (!p)
		return err_nomem(e, cap, "a state that is kept");
	k->item[k->n++] = (struct kept_part){ p, 0 };
	TRY(state_write(s, p, cap, &n, e));
	k->item[k->n - 1].n = n;
	k->bytes += n;
	return 0;
}

/* Whether the new state fits beside the one that will be built. */
static int check_room(const struct worker_model *m, struct err *e)
{
	uint64_t all = 0, left = 0, need = worker_model_state_bytes(m);
	os_memory("", &all, &left);
	if (!all || need <= left / 2)
		return 0;
	return err_set(e, ERR_NOMEM, "the state (%llu bytes) is not kept: %llu bytes are free",
		       (unsigned long long)need, (unsigned long long)left);
}

int kept_take(struct kept *k, struct worker_model *m, const struct buf *record,
	      const struct plan_message *p, uint64_t epoch, struct err *e)
{
	struct kept next = { .run = k->run, .job = k->job, .term = k->term, .record = BUF_INIT };
	int rc = record_name(record->p, record->n, &next.name, e);
	if (rc >= 0 && next.name.run != k->run)
		rc = err_set(e, ERR_PROTOCOL, "RECORD of another run");
	if (rc >= 0)
		rc = check_room(m, e);
	if (rc == ERR_NOMEM)
		kept_drop(k);
	if (rc >= 0)
		rc = worker_model_give(m, true, take_part, &next, e);
	buf_add(&next.record, record->p, record->n);
	rc = rc < 0 ? rc : buf_ok(&next.record, e);
	if (rc < 0) {
		kept_drop(&next);
		return rc;
	}
	next.whole = true;
	next.plan = epoch;
	next.stage = plan_stage(p);
	next.part = m->cut.n > 1 || m->deal;
	kept_drop(k);
	*k = next;
	return 0;
}

void kept_tell(const struct kept *k, uint64_t run, struct welcome *w)
{
	if (!k || !k->whole || k->run != run)
		return;
	w->keeps = 1;
	w->kept_part = k->part;
	w->kept_stage = (uint32_t)k->stage;
	w->kept_step = k->name.step;
	w->kept_origin = k->name.origin;
	w->kept_plan = k->plan;
}

int kept_send(struct kept *k, struct orders *o, struct net *net, struct err *e)
{
	if (!k || !k->whole)
		return 0;
	TRY(orders_say(o, FRAME_RECORD, 0, k->record.p, k->record.n, e));
	for (size_t i = 0; i < k->n; i++) {
		struct state_message s;
		TRY(state_read(k->item[i].payload, k->item[i].n, &s, e));
		TRY(orders_state(o, net, &s, e));
	}
	k->owed = false;
	return 0;
}
