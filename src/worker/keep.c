/* SPDX-License-Identifier: Apache-2.0 */
/* keep.c - see keep.h. */
#include "worker/keep.h"

#include "base/err.h"
#include "base/log.h"

int worker_note_record(struct worker *w, const void *p, size_t n, struct err *e)
{
	if (!w->env->kept)
		return 0;
	buf_reset(&w->record);
	buf_add(&w->record, p, n);
	TRY(buf_ok(&w->record, e));
	if (n)
		kept_drop(w->env->kept);
	return 0;
}

int worker_send_kept(struct worker *w, const struct frame *f, struct err *e)
{
	w->orders.step = f->step;
	TRY(kept_send(w->env->kept, &w->orders, w->env->net, e));
	return orders_say(&w->orders, FRAME_SAVED, 0, NULL, 0, e);
}

int worker_take_record(struct worker *w, const struct frame *f, struct err *e)
{
	struct state_name name;
	TRY(record_name(f->payload, f->size, &name, e));
	return worker_note_record(w, f->payload, f->size, e);
}

int worker_load_state(struct worker *w, const struct frame *f, struct err *e)
{
	buf_reset(&w->record);
	return worker_model_load(&w->model, f, e);
}

int worker_save_state(struct worker *w, const struct frame *f, struct err *e)
{
	w->orders.step = f->step;
	beat_round(&w->beat, f->step);
	/* else the others have the same */
	if (!plan_place(&w->plan) || w->sum.shared || w->model.deal)
		TRY(worker_model_send(&w->model, &w->orders, w->env->net, e));
	return orders_say(&w->orders, FRAME_SAVED, 0, NULL, 0, e);
}

void worker_keep_state(struct worker *w, bool gone)
{
	struct kept *k = w->env->kept;
	struct err why = { 0 };
	if (!k)
		return;
	if (w->record.n && kept_take(k, &w->model, &w->record, &w->plan, w->orders.epoch, &why) < 0)
		log_line(gone ? LOG_WARN : LOG_DEBUG, "the training state is not kept: %s",
			 why.msg);
	k->owed = gone && k->whole;
	buf_reset(&w->record);
}
