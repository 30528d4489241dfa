/* SPDX-License-Identifier: Apache-2.0 */
/* test_worker_pairs.c - BATCH with pairs on its way and back; a worker whose coordinator sends none
 * where PLAN has a loss of preferences, or pairs that are none, refuses them in one line; and
 * REFERENCE. */
#include "base/err.h"
#include "base/mem.h"
#include "engine/orders.h"
#include "proto/pairs_wire.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { ROWS = 2, SEQS = 4, TOKENS = 14 };

/* Two rows; the answers of the four sequences have 2, 1, 1 and 2 tokens. */
struct made {
	int32_t id[TOKENS], label[TOKENS], start[SEQS + 1], row[ROWS + 1];
	int32_t answer[SEQS], good[ROWS];
	double ref[SEQS];
	struct pairs pairs;
	struct microbatch mb;
	bool none; /* no pairs */
};

static void make(struct made *m)
{
	static const int32_t start[] = { 0, 4, 7, 10, 14 }, answer[] = { 1, 5, 8, 11 };
	*m = (struct made){ .good = { 1, 1 }, .ref = { -1, -2, -3, -4 }, .row = { 0, 7, 14 } };
	memcpy(m->start, start, sizeof start);
	memcpy(m->answer, answer, sizeof answer);
	for (int i = 0, s = 0; i < TOKENS; i++) {
		s += i == start[s + 1];
		m->id[i] = i + 1;
		m->label[i] = i >= answer[s] && i + 1 < start[s + 1] ? i + 2 : -100;
	}
}

static int carry(struct made *m, enum round round, const struct prefer_options *o,
		 struct batch_store *b, struct err *e)
{
	unsigned char out[2048];
	size_t n;
	const struct draw draw = { 0 };
	m->pairs = (struct pairs){ m->answer, m->good, m->ref };
	m->mb = (struct microbatch){ .n = TOKENS,
				     .nseq = SEQS,
				     .id = m->id,
				     .label = m->label,
				     .start = m->start,
				     .nrows = ROWS,
				     .row = m->row,
				     .pairs = m->none ? NULL : &m->pairs };
	*e = (struct err){ 0 };
	if (batch_write(&m->mb, round, 1, 1, 1, &draw, true, true, out, sizeof out, &n, e) < 0)
		fail_msg("%s", e->msg);
	/* as a worker takes it */
	struct orders w = { .ids = 1, .labels = 1, .prefer = o };
	const struct frame f = { .kind = FRAME_BATCH, .size = n, .payload = out };
	const int rc = orders_take_batch(&w, &f, e);
	if (rc >= 0)
		*b = w.batch[0];
	else
		orders_release(&w);
	if (rc >= 0) {
		w.batch[0] = (struct batch_store){ 0 };
		mem_free(w.batch);
		mem_free(w.have);
	}
	return rc;
}

static const struct prefer_options dpo = { .name = "dpo", .beta = 0.1 }, none = { .name = "" };

static void there_and_back(void **state)
{
	(void)state;
	static const enum round round[] = { ROUND_TRAIN, ROUND_EVAL, ROUND_REFER };
	for (size_t i = 0; i < ARRAY_LEN(round); i++) {
		struct made m;
		struct batch_store b;
		struct err e;
		make(&m);
		if (carry(&m, round[i], &dpo, &b, &e) < 0)
			fail_msg("%s", e.msg);
		assert_true(b.head.pairs && b.head.round == round[i]);
		assert_memory_equal(b.pairs.answer, m.answer, sizeof m.answer);
		assert_memory_equal(b.pairs.good, m.good, sizeof m.good);
		assert_memory_equal(b.pairs.ref, m.ref, sizeof m.ref);
		mem_free(b.mem);
		mem_free(b.pair);
	}
}

static void no_pairs(struct made *m) { m->none = true; }
static void no_trained_label(struct made *m)
{
	for (int i = 0; i < TOKENS; i++)
		m->label[i] = -100;
}
static void a_hole_in_an_answer(struct made *m) { m->label[12] = -100; }
static void an_answer_before(struct made *m) { m->answer[1] = 3; }
static void an_answer_behind(struct made *m) { m->answer[1] = 7; }
static void an_answer_far_away(struct made *m) { m->answer[3] = INT32_MAX; }
static void an_answer_below_0(struct made *m) { m->answer[0] = -5; }
static void an_answer_of_nothing(struct made *m) { m->answer[0] = 3; }
static void a_wish_that_is_none(struct made *m) { m->good[1] = 2; }
static void a_reference_nan(struct made *m) { m->ref[2] = NAN; }
static void rows_of_other_places(struct made *m) { m->row[1] = 4; }

static const struct {
	void (*spoil)(struct made *m);
	const char *says;
} bad[] = {
	{ no_pairs, "BATCH: without pairs, but PLAN has the loss dpo" },
	{ no_trained_label, "BATCH: sequence 0 has no trained answer" },
	{ a_hole_in_an_answer, "BATCH: sequence 3 has no trained answer" },
	{ an_answer_before, "BATCH: sequence 1 has no trained answer" },
	{ an_answer_behind, "BATCH: sequence 1 has no trained answer" },
	{ an_answer_far_away, "BATCH: sequence 3 has no trained answer" },
	{ an_answer_below_0, "BATCH: sequence 0 has no trained answer" },
	{ an_answer_of_nothing, "BATCH: sequence 0 has no trained answer" },
	{ a_wish_that_is_none, "BATCH: row 1 is no pair of sequences" },
	{ a_reference_nan, "BATCH: a reference of nan in sequence 2" },
	{ rows_of_other_places, "BATCH: row 1 is no pair of sequences" },
};

static void hostile(void **state)
{
	(void)state;
	struct made m;
	struct batch_store b;
	struct err e;
	for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
		make(&m);
		bad[i].spoil(&m);
		assert_int_equal(carry(&m, ROUND_TRAIN, &dpo, &b, &e), ERR_PROTOCOL);
		assert_string_equal(e.msg, bad[i].says);
	}
	make(&m);
	assert_int_equal(carry(&m, ROUND_TRAIN, &none, &b, &e), ERR_PROTOCOL);
	assert_string_equal(e.msg, "BATCH: with pairs, but PLAN has no loss for them");
}

/* Arrays of other sizes. */
static void sizes(void **state)
{
	(void)state;
	struct made m;
	make(&m);
	struct pairs_fields f = { m.answer,        m.good,        m.ref,
				  sizeof m.answer, sizeof m.good, sizeof m.ref };
	struct batch_store b = {
		.head = { .n = TOKENS, .nseq = SEQS, .nrows = ROWS },
		.label = m.label,
		.start = m.start,
		.row = m.row,
	};
	struct err e = { 0 };
	assert_int_equal(pairs_take(&f, true, &b, &e), 0);
	assert_int_equal(pairs_take(&f, false, &b, &e), ERR_PROTOCOL);
	f.nref -= 8;
	assert_int_equal(pairs_take(&f, true, &b, &e), ERR_PROTOCOL);
	assert_string_equal(e.msg, "BATCH: 4 sequences in 2 rows with 16, 8 and 24 bytes of pairs");
	f.nref += 8;
	b.head.nseq = 3;
	assert_int_equal(pairs_take(&f, true, &b, &e), ERR_PROTOCOL);
	b.head.nseq = 2 * (PAIRS_MOST + 1);
	b.head.nrows = PAIRS_MOST + 1;
	assert_int_equal(pairs_take(&f, true, &b, &e), ERR_PROTOCOL);
	mem_free(b.pair);
}

static void references(void **state)
{
	(void)state;
	static double v[2 * PAIRS_MOST], back[2 * PAIRS_MOST];
	static unsigned char out[ORDERS_PAYLOAD];
	struct err e = { 0 };
	size_t n;
	for (int i = 0; i < 2 * PAIRS_MOST; i++)
		v[i] = -i;
	/* the largest one fits */
	assert_int_equal(reference_write(v, ARRAY_LEN(v), out, sizeof out, &n, &e), 0);
	assert_int_equal(reference_read(out, n, back, ARRAY_LEN(v), &e), 0);
	assert_memory_equal(v, back, sizeof v);
	assert_int_equal(reference_read(out, n, back, 3, &e), ERR_PROTOCOL);
	assert_string_equal(e.msg, "REFERENCE: 64000 bytes for 3 sequences");
	assert_int_equal(reference_read(out, 20, back, 1, &e), ERR_PROTOCOL);
}

static void losses(void **state)
{
	(void)state;
	struct prefer_options o = dpo;
	struct err e = { 0 };
	assert_int_equal(prefer_check("PLAN", &o, &e), 0);
	assert_int_equal(prefer_check("PLAN", &none, &e), 0);
	o.beta = 0;
	assert_int_equal(prefer_check("PLAN", &o, &e), ERR_PROTOCOL);
	o.beta = NAN;
	assert_int_equal(prefer_check("PLAN", &o, &e), ERR_PROTOCOL);
	o = (struct prefer_options){ .name = "ppo", .beta = 1 };
	assert_int_equal(prefer_check("PLAN", &o, &e), ERR_PROTOCOL);
	assert_string_equal(e.msg, "PLAN: there is no loss 'ppo' of preferences");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(there_and_back), cmocka_unit_test(hostile),
		cmocka_unit_test(sizes),          cmocka_unit_test(references),
		cmocka_unit_test(losses),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
