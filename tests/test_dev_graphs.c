/* SPDX-License-Identifier: Apache-2.0 */
/* test_dev_graphs.c - work that repeats is replayed as a graph (dev/rt_graph.h), on the stand-in
 * for a card: the numbers are those of work given one by one, whatever changes between two passes,
 * and when the driver makes no graph. It says nothing about real cards. */
#include "support/fake_rt.h"

#include "dev/rt.h"
#include "runtime/step_bench.h"

#include <dlfcn.h>

enum { COUNT = 40, SIDE = 8 };

static long counter(const char *name)
{
	void *h = dlopen(getenv("HS_CUDA_LIBRARY"), RTLD_NOW | RTLD_NOLOAD);
	const long *n = h ? dlsym(h, name) : NULL;
	assert_non_null(n);
	return *n;
}

struct work {
	struct dev *d;
	struct dev_buf *x, *y, *z, *m;
	float in[COUNT], square[SIDE * SIDE];
};

static void begin(struct work *w, const char *spec)
{
	struct err e = { 0 };
	w->d = open_card(spec);
	w->x = take(w->d, sizeof w->in);
	w->y = take(w->d, sizeof w->in);
	w->z = take(w->d, sizeof w->in);
	w->m = take(w->d, 3 * sizeof w->square);
	for (int i = 0; i < COUNT; i++)
		w->in[i] = (float)(i % 7 - 3);
	for (int i = 0; i < SIDE * SIDE; i++)
		w->square[i] = (float)(i % 5 - 2);
	assert_int_equal(dev_upload(DEV_REF(w->m, 0), w->square, sizeof w->square, &e), 0);
}

static void end(struct work *w)
{
	dev_free(w->x);
	dev_free(w->y);
	dev_free(w->z);
	dev_free(w->m);
	dev_close(w->d);
}

static int add(struct dev *d, struct dev_buf *y, struct dev_buf *x, int64_t n, float alpha,
	       struct err *e)
{
	const union dev_arg a[] = { { .b = DEV_REF(y, 0) },
				    { .b = DEV_REF(x, 0) },
				    { .i = n },
				    { .f = alpha },
				    { .f = 1 } };
	return dev_launch(d, K_axpby, DT_F32, a, e);
}

/* m[1] = m[0] m[0] + m[0], m[2] = m[1] m[0]^T */
static int products(struct work *w, struct err *e)
{
	const size_t one = sizeof w->square;
	struct dev_gemm g = { .m = SIDE,
			      .n = SIDE,
			      .k = SIDE,
			      .a = { w->m, 0 },
			      .b = { w->m, 0 },
			      .c = { w->m, one },
			      .d = { w->m, 0 },
			      .lda = SIDE,
			      .ldb = SIDE,
			      .ldc = SIDE,
			      .alpha = 1,
			      .beta = 1 };
	TRY(dev_gemm(w->d, &g, e));
	g.a.off = one;
	g.c.off = 2 * one;
	g.tb = true;
	g.beta = 0;
	return dev_gemm(w->d, &g, e);
}

struct pass {
	float factor;      /* another one each time */
	int64_t n;         /* numbers of the first launch */
	bool more, upload; /* a launch more; an upload in the middle */
	bool runs;         /* nobody waits for it */
};

/* z = factor (2 in) + 3 (in + (2 in)), of the first n numbers in the first term; and products. */
static void once(struct work *w, const struct pass *p)
{
	struct err e = { 0 };
	float got[COUNT], m[3][SIDE][SIDE];
	assert_int_equal(dev_upload(DEV_REF(w->x, 0), w->in, sizeof w->in, &e), 0);
	assert_int_equal(dev_repeat_begin(w->d, 42, &e), 0);
	int rc = dev_zero(DEV_REF(w->y, 0), sizeof w->in, &e);
	rc |= add(w->d, w->y, w->x, p->n, 2, &e);
	rc |= scale(w->d, w->z, w->y, COUNT, p->factor, &e);
	if (p->upload) /* the same numbers again */
		rc |= dev_upload(DEV_REF(w->x, 0), w->in, sizeof w->in, &e);
	rc |= add(w->d, w->y, w->x, COUNT, 1, &e);
	rc |= add(w->d, w->z, w->y, COUNT, 3, &e);
	if (p->more)
		rc |= scale(w->d, w->y, w->z, COUNT, 1, &e);
	rc |= dev_copy(DEV_REF(w->x, 0), DEV_REF(w->z, 0), sizeof w->in, &e);
	rc |= products(w, &e);
	if (rc)
		fail_msg("%s", e.msg);
	assert_int_equal(dev_repeat_end(w->d, &e), 0);
	if (p->runs)
		return;
	assert_int_equal(dev_download(got, DEV_REF(w->x, 0), sizeof got, &e), 0);
	assert_int_equal(dev_download(m, DEV_REF(w->m, 0), sizeof m, &e), 0);
	for (int i = 0; i < COUNT; i++) {
		const float twice = i < p->n ? 2 * w->in[i] : 0;
		assert_true(got[i] == p->factor * twice + 3 * (w->in[i] + twice));
	}
	for (int i = 0; i < SIDE; i++)
		for (int j = 0; j < SIDE; j++) {
			float one = m[0][i][j], two = 0;
			for (int k = 0; k < SIDE; k++) {
				one += m[0][i][k] * m[0][k][j];
				two += m[1][i][k] * m[0][j][k];
			}
			assert_true(m[1][i][j] == one && m[2][i][j] == two);
		}
}

static uint64_t replayed(const struct work *w) { return ((struct rt *)w->d->priv)->replayed; }

static void what_repeats_is_replayed(void **state)
{
	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(specs); i++) {
		struct work w;
		begin(&w, specs[i]);
		const long before = counter("fake_graphs"), works = counter("fake_replayed");
		for (int k = 0; k < 6; k++) {
			once(&w, &(struct pass){ .factor = (float)k, .n = COUNT });
			/* noted, compared, then replayed: all but the launch with a factor */
			assert_int_equal(replayed(&w), k < 2 ? 0 : 7 * (k - 1));
		}
		assert_int_equal(counter("fake_graphs") - before, 2 * 4);
		assert_int_equal(counter("fake_replayed") - works, 7 * 4);
		if (i) /* nor does rocBLAS take memory of its own while a graph is captured */
			assert_int_equal(counter("fake_workspace"), 32 * MIB);
		end(&w);
	}
}

static void what_changes_is_not(void **state)
{
	(void)state;
	static const struct pass change[] = {
		{ .factor = 9, .n = COUNT - 3 },                       /* another size */
		{ .factor = 9, .n = COUNT, .more = true },             /* another launch */
		{ .factor = 9, .n = COUNT, .upload = true },           /* the host in between */
		{ .factor = 9, .n = 1, .more = true, .upload = true }, /* all of these */
	};
	for (size_t i = 0; i < ARRAY_LEN(specs); i++) {
		struct work w;
		begin(&w, specs[i]);
		for (size_t c = 0; c < ARRAY_LEN(change); c++) {
			for (int k = 0; k < 4; k++)
				once(&w, &(struct pass){ .factor = (float)k, .n = COUNT });
			const uint64_t usual = replayed(&w);
			once(&w, &change[c]);
			assert_true(replayed(&w) < usual + 7);
			/* and when that is what repeats, it is replayed */
			struct pass p = change[c];
			for (int k = 0; k < 4; k++) {
				p.factor += 1;
				once(&w, &p);
			}
			assert_true(replayed(&w) >= usual + 7);
		}
		/* other buffers: the graph names those of before */
		dev_free(w.z);
		struct dev_buf *gap = take(w.d, sizeof w.in);
		w.z = take(w.d, sizeof w.in);
		for (int k = 0; k < 4; k++)
			once(&w, &(struct pass){ .factor = (float)k, .n = COUNT });
		dev_free(gap);
		end(&w);
	}
}

/* Without graphs, and where the driver makes none or has no memory for one, all is given at
 * once. */
static void where_there_are_none(void **state)
{
	static const char *const words[] = { "", "nograph", "graphfull", "noblas",
					     "memory=64 noblas" };
	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(specs); i++)
		for (size_t f = 0; f < ARRAY_LEN(words); f++) {
			struct work w;
			faults(words[f]);
			setenv("HS_GRAPHS", f ? "1" : "0", 1);
			begin(&w, specs[i]);
			for (int k = 0; k < 6; k++)
				once(&w, &(struct pass){ .factor = (float)k, .n = COUNT });
			printf("%s %s: %llu works by graphs\n", specs[i], words[f],
			       (unsigned long long)replayed(&w));
			assert_true(f < 2 ? !replayed(&w) : replayed(&w) > 0);
			end(&w);
			faults("");
			setenv("HS_GRAPHS", "1", 1);
		}
}

/* What changes while the graph of before still runs: HIP may free it only behind that. */
static void a_graph_that_still_runs(void **state)
{
	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(specs); i++) {
		struct work w;
		begin(&w, specs[i]);
		for (int k = 0; k < 4; k++)
			once(&w, &(struct pass){ .factor = (float)k, .n = COUNT });
		const uint64_t before = replayed(&w);
		once(&w, &(struct pass){ .factor = 4, .n = COUNT, .runs = true });
		assert_int_equal(replayed(&w) - before, 7);
		once(&w, &(struct pass){ .factor = 5, .n = COUNT - 3 });
		end(&w);
	}
}

/* A graph that cannot be made is one less: others are made afterwards, with the same streams or
 * not. */
static void a_capture_that_fails(void **state)
{
	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(specs); i++) {
		struct work w;
		begin(&w, specs[i]);
		for (int k = 0; k < 6; k++) {
			faults(k == 2 ? "full" : "");
			once(&w, &(struct pass){ .factor = (float)k, .n = COUNT });
			/* five of the seven works are in another graph */
			assert_int_equal(replayed(&w), k < 2 ? 0 : 5 * (k - 1));
		}
		end(&w);
	}
}

/* More forms of products than the library's choices are kept for: a choice that is not known any
 * more cannot be made while a graph is captured, so there is no graph; and the library still does
 * the product. */
static void more_products_than_are_kept(void **state)
{
	enum { FORMS = 4500 };
	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(specs); i++) {
		struct err e = { 0 };
		struct dev *d = open_card(specs[i]);
		struct dev_buf *a = take(d, FORMS * 4), *c = take(d, FORMS * 4);
		float *v = mem_alloc(FORMS * 4), *got = mem_alloc(FORMS * 4);
		for (int k = 0; k < FORMS; k++)
			v[k] = (float)(k % 3 - 1);
		assert_int_equal(dev_upload(DEV_REF(a, 0), v, FORMS * 4, &e), 0);
		for (int pass = 0; pass < 4; pass++) {
			const long before = counter("fake_products");
			assert_int_equal(dev_repeat_begin(d, 42, &e), 0);
			for (int k = 0; k < FORMS; k++) {
				const struct dev_gemm g = { .m = 1,
							    .n = 1,
							    .k = k + 1,
							    .tb = true,
							    .a = { a, 0 },
							    .b = { a, 0 },
							    .c = { c, (size_t)k * 4 },
							    .lda = k + 1,
							    .ldb = k + 1,
							    .ldc = 1,
							    .alpha = 1 };
				if (dev_gemm(d, &g, &e) < 0)
					fail_msg("%s: %s", specs[i], e.msg);
			}
			assert_int_equal(dev_repeat_end(d, &e), 0);
			assert_int_equal(dev_download(got, DEV_REF(c, 0), FORMS * 4, &e), 0);
			float sum = 0;
			for (int k = 0; k < FORMS; k++) {
				sum += v[k] * v[k];
				assert_true(got[k] == sum);
			}
			/* none by the portable kernel; a graph's were asked for when it was made */
			if (!i)
				assert_true(counter("fake_products") - before >= FORMS);
		}
		mem_free(v);
		mem_free(got);
		dev_free(a);
		dev_free(c);
		dev_close(d);
	}
}

/* Free memory goes back to the driver between two passes; so does a device that is closed early. */
static void memory_comes_and_goes(void **state)
{
	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(specs); i++) {
		struct work w;
		struct err e = { 0 };
		faults("memory=64 noblas");
		begin(&w, specs[i]);
		for (int k = 0; k < 8; k++) {
			once(&w, &(struct pass){ .factor = (float)k, .n = COUNT });
			if (k == 4) {
				struct dev_buf *large = take(w.d, 30 * MIB);
				dev_free(large);
				dev_free(w.y);
				large = take(w.d, 50 * MIB); /* y's block is gone with it */
				w.y = take(w.d, sizeof w.in);
				dev_free(large);
			}
		}
		/* what is held back when nobody ends the stretch is not lost */
		float got[COUNT];
		assert_int_equal(dev_repeat_begin(w.d, 42, &e), 0);
		assert_int_equal(dev_zero(DEV_REF(w.y, 0), sizeof w.in, &e), 0);
		assert_int_equal(dev_download(got, DEV_REF(w.y, 0), sizeof got, &e), 0);
		for (int k = 0; k < COUNT; k++)
			assert_true(got[k] == 0);
		end(&w);
		faults("");
	}
}

/* A whole training step, with every kind of weights: the same loss, bit for bit. */
static void a_step_is_the_same(void **state)
{
	static const struct step_bench_options kinds[] = {
		{ .act = DT_F32 },
		{ .act = DT_BF16, .nf4 = true, .double_quant = true, .recompute = true },
	};
	(void)state;
	struct model_config c;
	struct err e = { 0 };
	assert_int_equal(step_bench_shape("smollm2-135m", 2, &c, &e), 0);
	c.vocab = 67;
	c.hidden = 64;
	c.intermediate = 96;
	c.heads = 4;
	c.kv_heads = 2;
	c.head_dim = c.rot = 16;
	for (size_t k = 0; k < ARRAY_LEN(kinds); k++)
		for (size_t i = 0; i < ARRAY_LEN(specs); i++) {
			struct step_bench_options o = kinds[k];
			struct step_bench_result r[2];
			o.rows = 2;
			o.length = 9;
			o.lora_r = 4;
			o.repeat = 4;
			long graphs[2];
			for (int on = 0; on < 2; on++) {
				setenv("HS_GRAPHS", on ? "1" : "0", 1);
				struct dev *d = open_card(specs[i]);
				graphs[on] = counter("fake_graphs");
				if (step_bench(d, &c, &o, &r[on], &e) < 0)
					fail_msg("%s", e.msg);
				graphs[on] = counter("fake_graphs") - graphs[on];
				dev_close(d);
			}
			printf("%s: loss %.9g and %.9g, %ld graphs\n", specs[i], r[0].loss,
			       r[1].loss, graphs[1]);
			assert_true(r[0].loss == r[1].loss);
			assert_int_equal(graphs[0], 0);
			assert_true(graphs[1] >= 4);
		}
}

static int with_graphs(void **state)
{
	setenv("HS_GRAPHS", "1", 1);
	return prepare(state);
}
#define prepare with_graphs

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(what_repeats_is_replayed), cmocka_unit_test(what_changes_is_not),
	cmocka_unit_test(where_there_are_none),     cmocka_unit_test(memory_comes_and_goes),
	cmocka_unit_test(a_step_is_the_same),       cmocka_unit_test(a_capture_that_fails),
	cmocka_unit_test(a_graph_that_still_runs),  cmocka_unit_test(more_products_than_are_kept),
};

FAKE_RT_MAIN(tests)
