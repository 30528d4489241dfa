/* SPDX-License-Identifier: Apache-2.0 */
/* Arrays in files as NumPy and Pillow read them (tests/golden/arrays, made by
 * scripts/golden/arrays.py), files that are cut off or of another kind, and the order of samples
 * that are read in blocks. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
// clang-format off
#include <cmocka.h>
// clang-format on

#include "base/buf.h"
#include "base/err.h"
#include "base/mem.h"
#include "data/array.h"
#include "data/batch.h"
#include "data/block_order.h"
#include "data/sample_files.h"
#include "support/scratch.h"

#include <math.h>

#define COUNT(a) (sizeof(a) / sizeof(a)[0])
#define DIR "tests/golden/arrays/"

static void must(int rc, const struct err *e)
{
	if (rc < 0)
		fail_msg("%s", e->msg);
}

static void expect(int rc, const struct err *e, const char *says)
{
	if (rc >= 0 || !strstr(e->msg, says) || strchr(e->msg, '\n'))
		fail_msg("'%s' was expected, not %d '%s'", says, rc, rc < 0 ? e->msg : "");
}

static const struct file {
	const char *name, *want, *columns;
	int32_t channels, height, width;
	double tolerance;
} files[] = {
	{ "f4.npy", NULL, NULL, 0, 0, 0, 0 },
	{ "f8.npy", NULL, NULL, 0, 0, 0, 0 },
	{ "f2.npy", NULL, NULL, 0, 0, 0, 0 },
	{ "big.npy", NULL, NULL, 0, 0, 0, 0 },
	{ "i2.npy", NULL, NULL, 0, 0, 0, 0 },
	{ "u1.npy", NULL, NULL, 0, 0, 0, 0 },
	{ "i8.npy", NULL, NULL, 0, 0, 0, 0 },
	{ "bool.npy", NULL, NULL, 0, 0, 0, 0 },
	{ "flat.npy", NULL, NULL, 0, 0, 0, 0 },
	{ "stored.npz", NULL, "x", 0, 0, 0, 0 },
	{ "packed.npz", NULL, "x", 0, 0, 0, 0 },
	{ "images-idx3-ubyte", NULL, NULL, 0, 0, 0, 0 },
	{ "images-idx3-ubyte.gz", NULL, NULL, 0, 0, 0, 0 },
	{ "labels-idx1-ubyte", NULL, NULL, 0, 0, 0, 0 },
	{ "floats.idx", NULL, NULL, 0, 0, 0, 0 },
	{ "table.csv", NULL, "a,b \"q\",c", 0, 0, 0, 0 },
	{ "table.csv", NULL, "!class", 0, 0, 0, 0 },
	{ "lines.jsonl", NULL, "v,w", 0, 0, 0, 0 },
	{ "images", NULL, NULL, 3, 6, 8, 0 },
	{ "images", "grey", NULL, 1, 6, 8, 0 },
	{ "images", "half", NULL, 3, 3, 4, 1e-4 },
};

static struct array *open_one(const char *name, const struct array_wish *w)
{
	struct array *a;
	struct err e;
	must(array_open(repository(DIR "%s", name), w, &a, &e), &e);
	return a;
}

static void as_numpy_reads_them(void **state)
{
	(void)state;
	for (size_t k = 0; k < COUNT(files); k++) {
		const struct file *f = &files[k];
		const struct array_wish w = { .columns = f->columns,
					      .channels = f->channels,
					      .height = f->height,
					      .width = f->width };
		struct array *a = open_one(f->name, &w);
		struct buf want = BUF_INIT;
		struct err e;
		must(buf_read_file(&want, repository(DIR "%s.want", f->want ? f->want : f->name), 0,
				   &e),
		     &e);
		if (want.n != a->rows * a->each * 4)
			fail_msg("%s: %llu rows of %llu", f->name, (unsigned long long)a->rows,
				 (unsigned long long)a->each);
		float *got = mem_array(a->rows * a->each, sizeof *got);
		double worst = 0;
		must(array_read(a, 0, a->rows, got, &e), &e);
		for (uint64_t i = 0; i < a->rows; i++) /* backwards: every row by itself */
			must(array_read(a, a->rows - 1 - i, 1, got + (a->rows - 1 - i) * a->each,
					&e),
			     &e);
		for (size_t i = 0; i < want.n / 4; i++) {
			const double off =
				fabs((double)((const float *)(void *)want.p)[i] - got[i]);
			worst = off <= worst ? worst : off;
		}
		if (!(worst <= f->tolerance))
			fail_msg("%s: differs by %g", f->name, worst);
		expect(array_read(a, a->rows, 1, got, &e), &e, "rows");
		mem_free(got);
		buf_release(&want);
		array_close(a);
	}
}

static void classes_and_whole_numbers(void **state)
{
	const struct array_wish w = { .columns = "class", .whole = true };
	static const char *const names[] = { "table.csv", "lines.jsonl", "images" };
	int32_t v[600];
	struct err e;
	(void)state;
	for (size_t k = 0; k < COUNT(names); k++) {
		struct array *a = open_one(names[k], &w);
		must(array_read(a, 0, a->rows, v, &e), &e);
		for (uint64_t i = 0; i < a->rows; i++)
			assert_int_equal(v[i], k < 2 ? i % 3 : i / 2);
		array_close(a);
	}
	const struct array_wish floats = { .columns = "a", .whole = true };
	struct array *a = open_one("table.csv", &floats);
	expect(array_read(a, 0, 1, v, &e), &e, "where a whole number of 32 bits is needed");
	array_close(a);
}

static void refused(const char *path, const char *columns, int32_t channels, const char *says)
{
	const struct array_wish w = {
		.columns = columns, .channels = channels, .height = 4, .width = 4
	};
	struct array *a;
	struct err e;
	float v[600];
	int rc = array_open(path, &w, &a, &e);
	if (rc >= 0) {
		rc = array_read(a, 0, a->rows < 100 ? a->rows : 100, v, &e);
		array_close(a);
	}
	expect(rc, &e, says);
}

static const char *cut(const char *name, size_t n)
{
	const char *path = scratch("cut-%zu-%s", n, name);
	struct buf b = BUF_INIT;
	struct err e;
	must(buf_read_file(&b, repository(DIR "%s", name), 0, &e), &e);
	scratch_write(path, b.p, n);
	buf_release(&b);
	return path;
}

static void files_that_are_not_as_they_must_be(void **state)
{
	(void)state;
	refused("/nowhere.npy", NULL, 0, "/nowhere.npy");
	refused(repository(DIR "fortran.npy"), NULL, 0, "lies column by column");
	refused(repository(DIR "complex.npy"), NULL, 0, "of the type '<c16'");
	refused(repository(DIR "stored.npz"), NULL, 0, "which of its arrays is meant: x, y");
	refused(repository(DIR "stored.npz"), "z", 0, "has no array 'z'; it has: x, y");
	refused(repository(DIR "table.csv"), "a,d", 0, "has no column 'd'");
	refused(repository(DIR "lines.jsonl"), "v,d", 0, "column 'd': is not there");
	refused(repository(DIR "lines.jsonl"), "name", 0, "neither a number nor a list");
	refused(repository(DIR "lines.jsonl"), NULL, 0, "say which columns");
	refused(repository(DIR "images"), NULL, -1, "images are read by models whose rows are");
	refused(repository("scripts/golden/arrays.py"), NULL, 0, "is neither .npy, .npz, IDX");
	refused(cut("f4.npy", 60), NULL, 0, "ends early");
	refused(cut("f4.npy", 140), NULL, 0, "its 7 rows need 168 bytes, and 12 are there");
	refused(cut("images-idx3-ubyte", 40), NULL, 0, "ends early");
	refused(cut("images-idx3-ubyte.gz", 40), NULL, 0, "cut");
	refused(cut("stored.npz", 300), "x", 0, "is it cut off?");
	scratch_text(scratch("short.csv"), "a,b\n1,2\n3\n");
	refused(scratch("short.csv"), NULL, 0, "row 2: has 1 fields, the table has 2 columns");
	scratch_text(scratch("words.csv"), "a,b\n1,2\n3,four\n");
	refused(scratch("words.csv"), NULL, 0, "row 2: column 'b': 'four' is not a number");
	scratch_text(scratch("twice.csv"), "a,a\n1,2\n");
	refused(scratch("twice.csv"), "a", 0, "twice");
	scratch_text(scratch("open.csv"), "a,b\n1,\"2\n");
	refused(scratch("open.csv"), NULL, 0, "a quoted field does not end");
	scratch_text(scratch("uneven.jsonl"), "{\"a\":[1,2]}\n{\"a\":[1]}\n");
	refused(scratch("uneven.jsonl"), "a", 0, "row 2: column 'a': has another count");
	scratch_text(scratch("pics/a/x.png"), "no picture");
	refused(scratch("pics"), NULL, 3, "x.png: is neither PNG nor JPEG");
	scratch_text(scratch("none/a/x.txt"), "no picture");
	refused(scratch("none"), NULL, 3, "holds no folder with images");
}

/* ---- order ---- */

static void every_sample_once(uint64_t all, uint64_t train, uint64_t block, uint64_t mixed,
			      bool drawn)
{
	const struct block_shape s = { all, train, block, mixed, drawn };
	struct block_order *o, *again;
	struct err e;
	uint8_t seen[2][1000] = { { 0 } };
	uint64_t moved = 0, other = 0, jumps = 0;
	must(block_order_new(&s, 5, &o, &e), &e);
	must(block_order_new(&s, 5, &again, &e), &e);
	for (uint64_t k = 0; k < train; k++) {
		const uint32_t v = block_order_train(o, 0, k);
		seen[0][v]++;
		moved += v != k;
		/* what comes next depends on (epoch, place) alone */
		other += block_order_train(again, 3, train - 1 - k) !=
			 block_order_train(o, 0, train - 1 - k);
		seen[1][block_order_train(o, 3, k)]++;
		jumps += v / block != block_order_train(o, 0, k ? k - 1 : 0) / block;
	}
	for (uint64_t k = 0; k < all - train; k++) {
		seen[0][block_order_held(o, k)]++;
		seen[1][block_order_held(o, k)]++;
	}
	for (uint64_t i = 0; i < all; i++)
		assert_true(seen[0][i] == 1 && seen[1][i] == 1);
	if (train > 2 * block)
		assert_true(moved > train / 2 && other > train / 2);
	if (mixed == 1) /* block after block is read once */
		assert_true(jumps <= train / block + 1);
	for (uint64_t k = train; k-- > 0;) {
		const uint32_t v = block_order_train(o, 7, k);
		assert_int_equal(v, block_order_train(again, 7, k));
	}
	block_order_free(o);
	block_order_free(again);
}

static void blocks_have_an_order(void **state)
{
	(void)state;
	every_sample_once(1000, 1000, 10, 4, true);
	every_sample_once(997, 900, 10, 3, true);
	every_sample_once(997, 900, 13, 1, false);
	every_sample_once(100, 93, 1, 8, true);
	every_sample_once(100, 90, 1000, 8, true);
	every_sample_once(5, 1, 2, 2, false);
}

/* ---- samples ---- */

static void samples_of_two_files(void **state)
{
	struct sample_files_options o = { .x = repository(DIR "images-idx3-ubyte.gz"),
					  .y = repository(DIR "labels-idx1-ubyte"),
					  .y_wish = { .whole = true },
					  .in_words = 12,
					  .out_words = 1,
					  .held = 1,
					  .block = 2 };
	struct sample_files *f;
	struct err e;
	(void)state;
	for (int mixed = 1; mixed < 3; mixed++) {
		o.mixed = (uint64_t)mixed;
		must(sample_files_open(&o, &f, &e), &e);
		const struct sample_set *s = sample_files_set(f);
		const struct batch_options b = {
			.seed = 3, .micro_batch_size = 1, .accumulation = 3, .val_set_size = 1
		};
		struct batches *all;
		const struct microbatch *mb;
		struct microbatch val;
		size_t n, seen = 0;
		assert_true(s->count == 4 && s->held == 1 && s->length == 1 && s->block == 2);
		must(batches_of_samples(s, &b, &all, &e), &e);
		assert_int_equal(batches_per_epoch(all, 0), 2);
		assert_true(batches_shape(all).tokens == 1);
		for (uint64_t k = 0; k < 2; k++) {
			must(batches_get(all, 0, k, &mb, &n, &e), &e);
			for (size_t i = 0; i < n; i++)
				seen |= (size_t)1 << mb[i].label[0];
		}
		must(batches_val(all, 0, &val, &e), &e);
		assert_true(seen == 15 && val.label[0] == 4 && batches_val_count(all) == 1);
		batches_free(all);
		sample_files_close(f);
	}
	o.in_words = 5;
	expect(sample_files_open(&o, &f, &e), &e, "its rows have 12 numbers; the model reads 5");
	o.in_words = 12;
	o.out_words = 2;
	expect(sample_files_open(&o, &f, &e), &e, "its rows have 1 numbers; the model compares");
	o.out_words = 1;
	o.held = 5;
	expect(sample_files_open(&o, &f, &e), &e, "nothing to train on");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(as_numpy_reads_them),
		cmocka_unit_test(classes_and_whole_numbers),
		cmocka_unit_test(files_that_are_not_as_they_must_be),
		cmocka_unit_test(blocks_have_an_order),
		cmocka_unit_test(samples_of_two_files),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
