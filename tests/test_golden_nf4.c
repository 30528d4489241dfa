/* SPDX-License-Identifier: Apache-2.0 */
/* test_golden_nf4.c - 4-bit weights against what bitsandbytes makes of them (tests/golden/nf4, made
 * by scripts/golden/nf4.py).
 *
 * Nibbles, block scales, code tables and dequantised values are compared bit for bit. The offset of
 * double quantisation is a mean whose last bit depends on the order of the sum, which differs
 * between builds of torch. Where the offset differs by that bit, the scales made with it may differ
 * by one bit and one step. */
#include "base/mem.h"
#include "file/safetensors.h"
#include "support/golden.h"
#include "tensor/quant.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define FILE_NF4 "tests/golden/nf4/nf4.safetensors"

static struct dev *device;

struct golden_case {
	char name[64];
	const float *weight;
	int64_t dim[2];
	uint64_t n, blocks, blocks2;
};

/* A tensor of this case, or of all cases. */
static const void *fetch(struct golden *g, const struct golden_case *c, const char *suffix,
			 enum dtype dtype, uint64_t count)
{
	uint64_t n;
	const void *p = golden_get(g, golden_name(g, "%s%s", c ? c->name : "", suffix), dtype, &n);
	assert_true(n == count);
	return p;
}

static uint64_t count_different(const void *a, const void *b, size_t item, uint64_t n)
{
	uint64_t bad = 0;
	for (uint64_t i = 0; i < n; i++)
		bad += memcmp((const char *)a + i * item, (const char *)b + i * item, item) != 0;
	return bad;
}

static void same(const struct golden_case *c, const char *what, const void *got, const void *want,
		 size_t item, uint64_t n)
{
	uint64_t bad = count_different(got, want, item, n);
	if (bad)
		fail_msg("%s: %llu of %llu %s differ", c->name, (unsigned long long)bad,
			 (unsigned long long)n, what);
}

/* Calls `fn` for each weight of the file. */
static void each(struct golden *g, void (*fn)(struct golden *, const struct golden_case *))
{
	int seen = 0;
	for (size_t i = 0; i < st_count(g->file); i++) {
		const struct st_tensor *t = st_get(g->file, i);
		const char *end = strstr(t->name, ".weight");
		if (!end || end[7])
			continue;
		struct golden_case c = { .dim = { t->shape[0], t->shape[1] }, .n = t->count };
		snprintf(c.name, sizeof c.name, "%.*s", (int)(end - t->name), t->name);
		c.blocks = (c.n + NF4_BLOCK - 1) / NF4_BLOCK;
		c.blocks2 = (c.blocks + NF4_BLOCK2 - 1) / NF4_BLOCK2;
		c.weight = fetch(g, &c, ".weight", DT_F32, c.n);
		fn(g, &c);
		seen++;
	}
	assert_true(seen >= 10);
	printf("%d weights\n", seen);
}

static void test_tables(void **state)
{
	struct golden *g = *state;
	struct golden_case c = { .name = "tables" };
	same(&c, "code values", nf4_code, fetch(g, NULL, "code", DT_F32, 16), 4, 16);
	same(&c, "values of the dynamic map", nf4_code2(),
	     fetch(g, NULL, "nested_quant_map", DT_F32, 256), 4, 256);
}

static void quantise_one(struct golden *g, const struct golden_case *c)
{
	uint8_t *packed = arena_alloc(&g->mem, (c->n + 1) / 2),
		*u8 = arena_alloc(&g->mem, c->blocks);
	float *absmax = arena_alloc(&g->mem, c->blocks * 4),
	      *absmax2 = arena_alloc(&g->mem, c->blocks2 * 4), offset;
	assert_true(packed && u8 && absmax && absmax2);
	nf4_quantize(c->weight, c->n, packed, absmax);
	same(c, "packed bytes", packed, fetch(g, c, ".packed", DT_U8, (c->n + 1) / 2), 1,
	     (c->n + 1) / 2);
	same(c, "block scales", absmax, fetch(g, c, ".absmax", DT_F32, c->blocks), 4, c->blocks);

	const uint8_t *want8 = fetch(g, c, ".dq.absmax", DT_U8, c->blocks);
	const float *want2 = fetch(g, c, ".dq.nested_absmax", DT_F32, c->blocks2),
		    *want_offset = fetch(g, c, ".dq.offset", DT_F32, 1);
	nf4_quantize_absmax(absmax, c->blocks, u8, absmax2, &offset);
	if (offset == *want_offset) {
		same(c, "second-level bytes", u8, want8, 1, c->blocks);
		same(c, "second-level scales", absmax2, want2, 4, c->blocks2);
		return;
	}
	float bit = nextafterf(fabsf(offset), INFINITY) - fabsf(offset);
	uint64_t bad = count_different(u8, want8, 1, c->blocks);
	printf("%s: the offset differs in its last bit, %llu of %llu second-level bytes differ\n",
	       c->name, (unsigned long long)bad, (unsigned long long)c->blocks);
	assert_true(fabsf(offset - *want_offset) <= bit);
	for (uint64_t i = 0; i < c->blocks2; i++)
		assert_true(fabsf(absmax2[i] - want2[i]) <= 2 * bit);
	for (uint64_t i = 0; i < c->blocks; i++)
		assert_true(abs(u8[i] - want8[i]) <= 1);
	assert_true(bad <= c->blocks / 100);
}

static void test_quantise(void **state) { each(*state, quantise_one); }

/* Reads all rows of a parameter, and once more one row at a time. */
static void expand(struct golden *g, const struct golden_case *c, const struct param *p,
		   const char *suffix)
{
	struct err e;
	float *got = arena_alloc(&g->mem, c->n * 4);
	const float *want = fetch(g, c, suffix, DT_F32, c->n);
	assert_non_null(got);
	must(nf4_expand_host(p, 0, c->dim[0], got, &e), &e);
	same(c, suffix, got, want, 4, c->n);
	memset(got, 0xff, c->n * 4);
	for (int64_t r = 0; r < c->dim[0]; r++)
		must(nf4_expand_host(p, r, 1, got + r * c->dim[1], &e), &e);
	same(c, suffix, got, want, 4, c->n);
}

/* The device's own expansion, seen through a product with the identity: y(in,out) = I W^T is exact.
 * With double quantisation a device may compute the block scale in one rounding instead of two. */
static void multiply(struct golden *g, const struct golden_case *c, const struct param *p,
		     const char *suffix, float most)
{
	struct err e;
	int64_t out = c->dim[0], in = c->dim[1];
	float *eye = arena_alloc(&g->mem, (size_t)(in * in) * 4),
	      *y = arena_alloc(&g->mem, c->n * 4);
	const float *want = fetch(g, c, suffix, DT_F32, c->n);
	struct dev_buf *dx, *dy;
	struct dmem scratch;
	uint64_t bad = 0;
	float largest = 0;
	assert_true(eye && y);
	for (int64_t i = 0; i < in; i++)
		eye[i * in + i] = 1;
	dmem_init(&scratch, device, 1 << 20);
	must(dev_alloc(device, (size_t)(in * in) * 4, &dx, &e), &e);
	must(dev_alloc(device, c->n * 4, &dy, &e), &e);
	must(dev_upload(DEV_REF(dx, 0), eye, (size_t)(in * in) * 4, &e), &e);
	must(weight_matmul(&p->w, &scratch, DT_F32, false, DEV_REF(dy, 0), DEV_REF(dx, 0), in, 0,
			   DEV_NONE, &e),
	     &e);
	must(dev_download(y, DEV_REF(dy, 0), c->n * 4, &e), &e);
	for (uint64_t i = 0; i < c->n; i++)
		largest = fmaxf(largest, fabsf(want[i]));
	for (int64_t o = 0; o < out; o++)
		for (int64_t i = 0; i < in; i++)
			bad += !(fabsf(y[i * out + o] - want[o * in + i]) <= most * largest);
	if (bad)
		fail_msg("%s%s: %llu of %llu numbers differ on the device", c->name, suffix,
			 (unsigned long long)bad, (unsigned long long)c->n);
	dmem_release(&scratch);
	dev_free(dx);
	dev_free(dy);
}

static void dequantise_one(struct golden *g, const struct golden_case *c)
{
	struct err e;
	struct param p;
	struct nf4_parts plain = { .packed = fetch(g, c, ".packed", DT_U8, (c->n + 1) / 2),
				   .code = nf4_code,
				   .block = NF4_BLOCK },
			 twice = plain;
	plain.absmax = fetch(g, c, ".absmax", DT_F32, c->blocks);
	twice.absmax8 = fetch(g, c, ".dq.absmax", DT_U8, c->blocks);
	twice.code2 = fetch(g, NULL, "nested_quant_map", DT_F32, 256);
	twice.absmax2 = fetch(g, c, ".dq.nested_absmax", DT_F32, c->blocks2);
	twice.offset = *(const float *)fetch(g, c, ".dq.offset", DT_F32, 1);
	must(param_init_nf4(&p, device, c->name, c->dim, &plain, &e), &e);
	expand(g, c, &p, ".f32");
	multiply(g, c, &p, ".f32", 0);
	param_release(&p);
	must(param_init_nf4(&p, device, c->name, c->dim, &twice, &e), &e);
	expand(g, c, &p, ".dq.f32");
	multiply(g, c, &p, ".dq.f32", 0x1p-22f);
	param_release(&p);
}

static void test_dequantise(void **state) { each(*state, dequantise_one); }

static int rows_of(void *ctx, int64_t row0, int64_t rows, float *dst, struct err *e)
{
	const struct golden_case *c = ctx;
	(void)e;
	memcpy(dst, c->weight + row0 * c->dim[1], (size_t)(rows * c->dim[1]) * 4);
	return 0;
}

/* Quantised on loading and read back: the same values as bitsandbytes quantised and dequantised. */
static void load_one(struct golden *g, const struct golden_case *c)
{
	struct err e;
	struct param p;
	must(param_quantize_nf4(&p, device, c->name, c->dim, false, rows_of, (void *)c, &e), &e);
	expand(g, c, &p, ".f32");
	param_release(&p);
	must(param_quantize_nf4(&p, device, c->name, c->dim, true, rows_of, (void *)c, &e), &e);
	if (p.w.offset == *(const float *)fetch(g, c, ".dq.offset", DT_F32, 1))
		expand(g, c, &p, ".dq.f32");
	param_release(&p);
}

static void test_load(void **state) { each(*state, load_one); }

static int setup(void **state)
{
	static struct golden g;
	struct err e;
	golden_open(&g, FILE_NF4);
	must(dev_open("cpu", &device, &e), &e);
	*state = &g;
	return 0;
}

static int teardown(void **state)
{
	golden_close(*state);
	dev_close(device);
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_tables),
		cmocka_unit_test(test_quantise),
		cmocka_unit_test(test_dequantise),
		cmocka_unit_test(test_load),
	};
	return cmocka_run_group_tests(tests, setup, teardown);
}
