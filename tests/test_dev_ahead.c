/* SPDX-License-Identifier: Apache-2.0 */
/* test_dev_ahead.c - the weights of the next product are expanded while a card computes the one
 * before it (dev/gpu_ahead.h), on the stand-in for a card: each stream's work as late and as early
 * as the interface allows, one by one and as graphs, the numbers are those of the host. The same
 * for OpenCL's queues, on a driver for the processor behind a stand-in (tests/drivers/
 * fake_gates.h). It says nothing about real cards. */
#include "support/fake_rt.h"

#include "dev/opencl.h"
#include "dev/rt.h"
#include "tensor/param.h"
#include "tensor/quant.h"

#include <dlfcn.h>
#include <math.h>

enum { ROWS = 24, COLS = 64, WEIGHTS = 5, COUNT = 3, PASSES = 6 };

/* What the stand-in in the place of a driver's library has counted. */
static long counted(const char *library, const char *what)
{
	void *h = dlopen(getenv(library), RTLD_NOW | RTLD_NOLOAD);
	const long *n = h ? dlsym(h, what) : NULL;
	assert_non_null(n);
	return *n;
}

static long beside(void) { return counted("HS_CUDA_LIBRARY", "fake_beside"); }

struct model {
	struct dev *d;
	struct dmem scratch;
	struct param p[WEIGHTS];
	struct dev_buf *x, *y, *dx;
	float w[WEIGHTS][ROWS * COLS];
};

static int rows_of(void *ctx, int64_t row0, int64_t rows, float *dst, struct err *e)
{
	(void)e;
	for (int64_t i = 0; i < rows * COLS; i++)
		dst[i] = sinf((float)(*(int *)ctx * 1000 + row0 * COLS + i));
	return 0;
}

static void ok(int rc, const struct err *e)
{
	if (rc < 0)
		fail_msg("%s", e->msg);
}

static void begin(struct model *m, const char *spec)
{
	static const char *const name[WEIGHTS] = { "a", "b", "c", "d", "e" };
	static const int64_t dim[2] = { ROWS, COLS };
	struct err e = { 0 };
	memset(m, 0, sizeof *m);
	m->d = open_card(spec);
	dmem_init(&m->scratch, m->d, 64 << 10);
	m->x = take(m->d, sizeof(float) * COUNT * COLS);
	m->y = take(m->d, sizeof(float) * COUNT * ROWS * WEIGHTS);
	m->dx = take(m->d, sizeof(float) * COUNT * COLS * WEIGHTS);
	for (int i = 0; i < WEIGHTS; i++) {
		ok(param_quantize_nf4(&m->p[i], m->d, name[i], dim, i & 1, rows_of, &i, &e), &e);
		ok(nf4_expand_host(&m->p[i], 0, ROWS, m->w[i], &e), &e);
	}
}

static void end(struct model *m)
{
	for (int i = 0; i < WEIGHTS; i++)
		param_release(&m->p[i]);
	dev_free(m->x);
	dev_free(m->y);
	dev_free(m->dx);
	dmem_release(&m->scratch);
	dev_close(m->d);
}

/* y = x W^T and dx = y W for each weight, one behind the other, but for the last two, which are one
 * matrix to both products. */
static int products(struct model *m, struct err *e)
{
	TRY(dev_repeat_begin(m->d, 7, e));
	for (int back = 0; back < 2; back++)
		for (int i = 0; i < WEIGHTS - 1; i++) {
			const struct weight *w[] = { &m->p[i].w, &m->p[WEIGHTS - 1].w };
			const struct dev_ref y = { m->y, sizeof(float) * COUNT * ROWS * (size_t)i },
					     dx = { m->dx,
						    sizeof(float) * COUNT * COLS * (size_t)i };
			TRY(weights_matmul(w, i == WEIGHTS - 2 ? 2 : 1, &m->scratch, DT_F32, back,
					   back ? dx : y, back ? y : DEV_REF(m->x, 0), COUNT, 1, 0,
					   DEV_NONE, e));
		}
	return dev_repeat_end(m->d, e);
}

static void near(float got, float want, const char *what, int weight)
{
	if (!(fabsf(got - want) <= 1e-4f * (1 + fabsf(want))))
		fail_msg("%s of weight %d is %g, not %g", what, weight, (double)got, (double)want);
}

static void check(const struct model *m, const float *x, int i)
{
	float y[COUNT * ROWS * 2], dx[COUNT * COLS];
	struct err e = { 0 };
	const int two = i == WEIGHTS - 2, wide = two ? 2 * ROWS : ROWS;
	ok(dev_download(y, DEV_REF(m->y, sizeof(float) * COUNT * ROWS * (size_t)i),
			sizeof(float) * (size_t)(COUNT * wide), &e),
	   &e);
	ok(dev_download(dx, DEV_REF(m->dx, sizeof(float) * COUNT * COLS * (size_t)i), sizeof dx,
			&e),
	   &e);
	for (int t = 0; t < COUNT; t++)
		for (int r = 0; r < wide; r++) {
			const float *w = &m->w[r < ROWS ? i : i + 1][r % ROWS * COLS];
			float sum = 0;
			for (int c = 0; c < COLS; c++)
				sum += x[t * COLS + c] * w[c];
			near(y[t * wide + r], sum, "y", i);
		}
	for (int t = 0; t < COUNT; t++)
		for (int c = 0; c < COLS; c++) {
			float sum = 0;
			for (int r = 0; r < wide; r++)
				sum += y[t * wide + r] *
				       m->w[r < ROWS ? i : i + 1][r % ROWS * COLS + c];
			near(dx[t * COLS + c], sum, "dx", i);
		}
}

static void pass(struct model *m, int k)
{
	float x[COUNT * COLS];
	struct err e = { 0 };
	for (int i = 0; i < COUNT * COLS; i++)
		x[i] = (float)((i * 7 + k) % 11 - 5);
	ok(dev_upload(DEV_REF(m->x, 0), x, sizeof x, &e), &e);
	ok(products(m, &e), &e);
	for (int i = 0; i < WEIGHTS - 1; i++)
		check(m, x, i);
}

static void one(const char *spec, const char *words, const char *graphs)
{
	static struct model m;
	faults(words);
	setenv("HS_GRAPHS", graphs, 1);
	begin(&m, spec);
	const struct rt *c = m.d->priv;
	const long before = beside();
	for (int k = 0; k < PASSES; k++)
		pass(&m, k);
	printf("%s %s, graphs %s: %llu of %d expansions ahead, %ld beside a product, %llu works "
	       "by graphs\n",
	       spec, words, graphs, (unsigned long long)c->may.count, 2 * WEIGHTS * PASSES,
	       beside() - before, (unsigned long long)c->replayed);
	/* in the first pass the weights have just been uploaded, and nothing is in front of a
	 * pass's first product */
	assert_true(c->may.count >= (uint64_t)(2 * (WEIGHTS - 1) * (PASSES - 1)));
	assert_true(!strstr(words, "early") == !(beside() - before));
	if (strstr(words, "early"))
		assert_true(beside() - before >= 2 * (WEIGHTS - 2) * (PASSES - 1));
	const bool replays = graphs[0] == '1' && !strstr(words, "graphfull");
	assert_true(replays == (c->replayed > 0));
	end(&m);
	faults("");
}

static void weights_come_while_a_product_runs(void **state)
{
	static const char *const words[] = { "", "early", "early noblas", "nograph early",
					     "graphfull early" };
	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(specs); i++)
		for (size_t k = 0; k < ARRAY_LEN(words); k++) {
			one(specs[i], words[k], "0");
			if (!strstr(words[k], "nograph"))
				one(specs[i], words[k], "1");
		}
}

/* A weight that was uploaded a moment ago is waited for, and so is what still reads a panel. */
static void only_what_nobody_else_uses(void **state)
{
	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(specs); i++) {
		static struct model m;
		struct err e = { 0 };
		faults("early");
		setenv("HS_GRAPHS", "0", 1);
		begin(&m, specs[i]);
		struct rt *c = m.d->priv;
		pass(&m, 0);
		/* the same codes again: they come by the copy stream, behind the last fork */
		const uint64_t before = c->may.count;
		uint8_t codes[ROWS * COLS / 2];
		ok(dev_download(codes, m.p[0].w.data, sizeof codes, &e), &e);
		ok(dev_upload(m.p[0].w.data, codes, sizeof codes, &e), &e);
		const struct weight *w = &m.p[0].w;
		ok(weight_matmul(w, &m.scratch, DT_F32, false, DEV_REF(m.y, 0), DEV_REF(m.x, 0),
				 COUNT, 0, DEV_NONE, &e),
		   &e);
		assert_int_equal(c->may.count, before);
		/* the panel that the product before this one reads, and then the other one */
		for (int k = 0; k < 3; k++) {
			m.d->panel = k == 2;
			w = &m.p[1 + k].w;
			ok(weight_matmul(w, &m.scratch, DT_F32, false,
					 DEV_REF(m.y, sizeof(float) * COUNT * ROWS * (size_t)k),
					 DEV_REF(m.x, 0), COUNT, 0, DEV_NONE, &e),
			   &e);
			assert_int_equal(c->may.count, before + (k == 2));
		}
		end(&m);
		faults("");
	}
}

static char own_cache[4096]; /* where OpenCL's kernels may lie already; empty: not said */

static struct opencl *begin_opencl(struct model *m, const char *words, const char *ahead)
{
	setenv("FAKE_CL", words, 1);
	setenv("HS_OPENCL_AHEAD", ahead, 1);
	begin(m, "opencl:0");
	return m->d->priv;
}

static bool opencl_is_there(void)
{
	struct err ignored = { 0 };
	own_cache[0] ? setenv("XDG_CACHE_HOME", own_cache, 1) : unsetenv("XDG_CACHE_HOME");
	if (backend_find("opencl")->count(&ignored) > 0 && getenv("HS_OPENCL_LIBRARY"))
		return true;
	printf("opencl: there is no device, or no stand-in\n");
	return false;
}

static void opencl_expands_on_a_queue_of_its_own(void **state)
{
	static const char *const words[] = { "", "early", "late" };
	static struct model m;
	(void)state;
	if (!opencl_is_there())
		skip();
	for (size_t i = 0; i < ARRAY_LEN(words); i++)
		for (int on = 0; on < 2; on++) {
			const struct opencl *c = begin_opencl(&m, words[i], on ? "1" : "0");
			const long others = counted("HS_OPENCL_LIBRARY", "fake_others"),
				   ran = counted("HS_OPENCL_LIBRARY", "fake_beside");
			for (int k = 0; k < PASSES; k++)
				pass(&m, k);
			const long there = counted("HS_OPENCL_LIBRARY", "fake_others") - others,
				   by = counted("HS_OPENCL_LIBRARY", "fake_beside") - ran;
			printf("opencl:0 %s, HS_OPENCL_AHEAD=%d: %llu of %d expansions ahead, %ld "
			       "beside a product\n",
			       words[i], on, (unsigned long long)c->may.count, 2 * WEIGHTS * PASSES,
			       by);
			assert_true(on ? c->may.count >=
						    (uint64_t)(2 * (WEIGHTS - 1) * (PASSES - 1))
				       : c->may.count == 0);
			if (words[i][0])
				assert_int_equal(there, c->may.count);
			if (on && !strcmp(words[i], "early"))
				assert_true(by >= 2 * (WEIGHTS - 2) * (PASSES - 1));
			end(&m);
		}
	setenv("FAKE_CL", "", 1);
}

/* As for cards: what was uploaded a moment ago, or is still read, is waited for. */
static void opencl_takes_only_what_nobody_else_uses(void **state)
{
	static struct model m;
	struct err e = { 0 };
	uint8_t codes[ROWS * COLS / 2];
	(void)state;
	if (!opencl_is_there())
		skip();
	const struct opencl *c = begin_opencl(&m, "early", "1");
	pass(&m, 0);
	const uint64_t before = c->may.count;
	ok(dev_download(codes, m.p[0].w.data, sizeof codes, &e), &e);
	ok(dev_upload(m.p[0].w.data, codes, sizeof codes, &e), &e);
	for (int k = 0; k < 4; k++) { /* 1: the panel that the product before this one reads */
		if (k)
			m.d->panel = k == 3;
		ok(weight_matmul(&m.p[k].w, &m.scratch, DT_F32, false,
				 DEV_REF(m.y, sizeof(float) * COUNT * ROWS * (size_t)k),
				 DEV_REF(m.x, 0), COUNT, 0, DEV_NONE, &e),
		   &e);
		assert_int_equal(c->may.count, before + (k == 3));
	}
	end(&m);
	setenv("FAKE_CL", "", 1);
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(weights_come_while_a_product_runs),
	cmocka_unit_test(only_what_nobody_else_uses),
	cmocka_unit_test(opencl_expands_on_a_queue_of_its_own),
	cmocka_unit_test(opencl_takes_only_what_nobody_else_uses),
};

int main(void)
{
	const struct CMUnitTest none[] = { cmocka_unit_test(no_card) };
	const char *cache_of_all = getenv("XDG_CACHE_HOME");
	snprintf(own_cache, sizeof own_cache, "%s", cache_of_all ? cache_of_all : "");
	if (!fake_cards("fake_rt.so", true))
		return cmocka_run_group_tests(none, NULL, NULL);
	fake_opencl();
	return cmocka_run_group_tests(tests, prepare, tidy);
}
