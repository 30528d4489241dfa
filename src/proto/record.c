/* SPDX-License-Identifier: Apache-2.0 */
/* record.c - see record.h. */
#include "proto/record.h"

#include "base/err.h"
#include "base/le.h"
#include "base/mem.h"
#include "config/config.h"
#include "net/wire.h"

int record_write(const struct run_record *r, void *out, size_t cap, size_t *n_p, struct err *e)
{
	const struct train_state *s = &r->st;
	const struct record_line *l = &r->line;
	struct wire_writer w = wire_write(out, cap);
	const uint64_t count[] = { r->run,        s->step,      s->origin,           s->updates,
				   s->epoch,      s->batch,     s->tokens,           s->skipped,
				   s->scale.good, s->best_step, s->evals_since_best, s->nonfinite,
				   l->tokens,     l->trained };
	const double real[] = { s->scale.scale, s->best_loss, l->loss,    l->learning_rate,
				l->grad_norm,   l->accuracy,  l->seconds, l->loss_scale,
				l->chosen,      l->rejected,  l->margin,  l->right };
	for (size_t i = 0; i < ARRAY_LEN(count); i++)
		wire_put_u64(&w, count[i]);
	for (size_t i = 0; i < ARRAY_LEN(real); i++)
		wire_put_f64(&w, real[i]);
	wire_put_u8(&w, (uint8_t)s->rules.dropout);
	wire_put_u8(&w, (uint8_t)s->rules.reduce);
	wire_put_u8(&w, (uint8_t)s->rules.lr);
	wire_put_u8(&w, (uint8_t)r->act);
	wire_put_u8(&w, (uint8_t)(r->owed | l->skipped << 1 | l->rewarded << 2));
	wire_put_str(&w, r->job);
	wire_put_u32(&w, r->npass);
	for (uint32_t i = 0; i < r->npass; i++)
		wire_put_u32(&w, (uint32_t)r->pass[i]);
	return wire_write_end(&w, n_p, e);
}

int record_pass(const struct run_record *r, uint32_t i)
{
	const uint32_t v = (uint32_t)le_get(r->passes + (size_t)i * 4, 4);
	return v > PASS_ROWS_MOST ? -1 : (int)v;
}

static int check(const struct run_record *r, uint8_t flags, struct err *e)
{
	const struct rules *now = &RULES_NOW, *is = &r->st.rules;
	const bool rules = is->dropout >= 1 && is->dropout <= now->dropout && is->reduce >= 1 &&
			   is->reduce <= now->reduce && is->lr >= 1 && is->lr <= now->lr;
	const struct loss_scale *s = &r->st.scale;
	const bool scale = s->scale >= 0 && s->scale <= LOSS_SCALE_MOST;
	if (!rules || !scale || flags > 7 || r->act > DT_F16 || !r->st.step ||
	    r->st.updates > r->st.step || r->st.best_step > r->st.step)
		return err_set(e, ERR_PROTOCOL, "RECORD: step %llu with impossible values",
			       (unsigned long long)r->st.step);
	for (uint32_t i = 0; i < r->npass; i++) {
		const int rows = record_pass(r, i);
		if (rows < 1 || rows > PASS_ROWS_MOST)
			return err_set(e, ERR_PROTOCOL, "RECORD: a pass of %d rows", rows);
	}
	return 0;
}

int record_read(const void *p, size_t n, struct run_record *r, struct err *e)
{
	struct wire_reader w = wire_read(p, n);
	struct train_state *s = &r->st;
	struct record_line *l = &r->line;
	uint64_t *const count[] = {
		&r->run,        &s->step,      &s->origin,           &s->updates,
		&s->epoch,      &s->batch,     &s->tokens,           &s->skipped,
		&s->scale.good, &s->best_step, &s->evals_since_best, &s->nonfinite,
		&l->tokens,     &l->trained
	};
	double *const real[] = { &s->scale.scale, &s->best_loss, &l->loss,    &l->learning_rate,
				 &l->grad_norm,   &l->accuracy,  &l->seconds, &l->loss_scale,
				 &l->chosen,      &l->rejected,  &l->margin,  &l->right };
	*r = (struct run_record){ 0 };
	for (size_t i = 0; i < ARRAY_LEN(count); i++)
		*count[i] = wire_get_u64(&w);
	for (size_t i = 0; i < ARRAY_LEN(real); i++)
		*real[i] = wire_get_f64(&w);
	s->rules.dropout = wire_get_u8(&w);
	s->rules.reduce = wire_get_u8(&w);
	s->rules.lr = wire_get_u8(&w);
	r->act = (enum dtype)wire_get_u8(&w);
	const uint8_t flags = wire_get_u8(&w);
	r->owed = flags & 1;
	l->skipped = flags & 2;
	l->rewarded = flags & 4;
	wire_get_str(&w, r->job, sizeof r->job);
	r->npass = wire_get_count(&w, 4, PASSES_MOST);
	r->passes = w.p + w.at;
	for (uint32_t i = 0; i < r->npass; i++)
		wire_get_u32(&w);
	TRY(wire_read_end(&w, "RECORD", e));
	return check(r, flags, e);
}

int record_name(const void *p, size_t n, struct state_name *name_p, struct err *e)
{
	struct run_record r;
	TRY(record_read(p, n, &r, e));
	*name_p = (struct state_name){ r.run, r.st.step, r.st.origin };
	return 0;
}
