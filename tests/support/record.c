/* SPDX-License-Identifier: Apache-2.0 */
/* record.c - see record.h. */
#include "support/record.h"

#include "base/mem.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <cmocka.h>

static int on_step(void *ctx, const struct train_step *s, struct err *e)
{
	struct record *r = ctx;
	(void)e;
	assert_true(r->n < RECORD_STEPS);
	r->loss[r->n] = s->loss;
	r->trained[r->n] = s->trained;
	r->norm[r->n++] = s->grad_norm;
	if (r->stop_after && s->step >= r->stop_after)
		r->stop = 1;
	return 0;
}

static int on_eval(void *ctx, const struct train_eval *v, struct err *e)
{
	struct record *r = ctx;
	(void)e;
	assert_true(v->tokens > 0 && r->neval < RECORD_STEPS);
	assert_true(v->accuracy >= 0 && v->accuracy <= 1);
	r->eval[r->neval++] = v->loss;
	return 0;
}

struct train_sink record_sink(struct record *r)
{
	return (struct train_sink){ .ctx = r, .step = on_step, .eval = on_eval };
}

void record_same(const struct record *a, const struct record *b, const char *what)
{
	assert_int_equal(a->n, b->n);
	for (size_t i = 0; i < a->n; i++)
		if (!(a->loss[i] == b->loss[i] && a->norm[i] == b->norm[i]))
			fail_msg(
				"%s: step %zu: loss %.17g, norm %.17g; in one process %.17g, %.17g",
				what, i + 1, b->loss[i], b->norm[i], a->loss[i], a->norm[i]);
	assert_int_equal(a->neval, b->neval);
	for (size_t i = 0; i < a->neval; i++)
		assert_true(a->eval[i] == b->eval[i]);
}

void record_same_file(const struct tiny *t, const char *a, const char *b)
{
	size_t na, nb;
	char *pa = tiny_read(t, a, &na), *pb = tiny_read(t, b, &nb);
	if (na != nb || memcmp(pa, pb, na))
		fail_msg("%s and %s differ", a, b);
	mem_free(pa);
	mem_free(pb);
}
