/* SPDX-License-Identifier: Apache-2.0 */
/* test_api_files.c - data in files through the public interface: a table, images, mistakes; 20 GB
 * in blocks within 500 MB of memory, and a run over blocks that was stopped and resumed. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <heteroshard.h>

#include "support/scratch.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define COUNT(a) (sizeof(a) / sizeof(a)[0])
#define MUST(call)                                                                                 \
	do {                                                                                       \
		if ((call) < 0)                                                                    \
			fail_msg("%s: %s", #call, e.text);                                         \
	} while (0)

static void expect(int rc, const hs_error *e, const char *says)
{
	if (rc >= 0 || !strstr(e->text, says) || strchr(e->text, '\n') || e->code != rc)
		fail_msg("'%s' was expected, not %d '%s'", says, rc, rc < 0 ? e->text : "");
}

static hs_model *model_of(const char *text)
{
	hs_error e;
	hs_model *m = NULL;
	MUST(hs_model_new(text, 3, &m, &e));
	return m;
}

static void a_table_and_images(void **state)
{
	static const char *const set[] = { "max_steps=30", "learning_rate=0.05",
					   "micro_batch_size=16" };
	hs_error e;
	hs_data d;
	hs_result r;
	hs_options o = hs_options_init();
	hs_files f = hs_files_init();
	(void)state;
	o.set = set;
	o.sets = COUNT(set);
	FILE *t = fopen(scratch("points.csv"), "w");
	assert_non_null(t);
	fprintf(t, "a,b,kind\n");
	for (int i = 0; i < 64; i++)
		fprintf(t, "%g,%g,%d\n", i % 8 / 8.0, i / 8 / 8.0, i % 8 + i / 8 > 7);
	fclose(t);
	f.x = scratch("points.csv");
	f.y_columns = "kind";
	hs_model *m = model_of("input 2; linear 8; tanh; linear 2; cross_entropy");
	MUST(hs_data_files(m, &f, &d, &e));
	assert_true(d.count == 64 && d.length == 1);
	MUST(hs_train(m, &d, &o, &r, &e));
	assert_true(r.last_loss < 0.5 * r.first_loss);
	hs_result_release(&r);
	hs_data_release(&d);
	MUST(hs_model_free(m, &e));

	/* the same with words for classes: the same numbers, and the same losses */
	static const char *const word[] = { "above", "\"be,low\"" };
	double loss[2][30];
	for (int how = 0; how < 2; how++) {
		t = fopen(scratch("words.csv"), "w");
		assert_non_null(t);
		fprintf(t, "a,b,kind\n");
		for (int i = 0; i < 64; i++)
			fprintf(t, how ? "%g,%g,%s\n" : "%g,%g,%.1s\n", i % 8 / 8.0, i / 8 / 8.0,
				how ? word[i % 8 + i / 8 > 7] : &"01"[i % 8 + i / 8 > 7]);
		fclose(t);
		f.x = scratch("words.csv");
		m = model_of("input 2; linear 8; tanh; linear 2; cross_entropy");
		MUST(hs_data_files(m, &f, &d, &e));
		MUST(hs_train(m, &d, &o, &r, &e));
		memcpy(loss[how], r.loss, sizeof loss[how]);
		hs_result_release(&r);
		hs_data_release(&d);
		MUST(hs_model_free(m, &e));
	}
	assert_memory_equal(loss[0], loss[1], sizeof loss[0]);
	m = model_of("input 2; linear 8; tanh; linear 2; cross_entropy");
	scratch_text(scratch("lines.jsonl"), "{\"x\": [1, 2], \"y\": \"cat\"}\n"
					     "{\"x\": [3, 2], \"y\": \"ant\"}\n");
	f.x = scratch("lines.jsonl");
	f.x_columns = "x";
	f.y_columns = "y";
	MUST(hs_data_files(m, &f, &d, &e));
	float xy[2];
	int32_t label;
	assert_int_equal(d.get(d.ctx, 0, xy, &label), 0);
	assert_int_equal(label, 1);
	assert_int_equal(d.get(d.ctx, 1, xy, &label), 0);
	assert_true(label == 0 && xy[0] == 3);
	hs_data_release(&d);
	scratch_text(scratch("mixed.csv"), "a,b,kind\n1,2,3\n1,2,cat\n");
	f = hs_files_init();
	f.x = scratch("mixed.csv");
	f.y_columns = "kind";
	expect(hs_data_files(m, &f, &d, &e), &e, "row 2: column 'kind': 'cat' is not a number");
	scratch_text(scratch("mixed.csv"), "a,b,kind\n1,2,cat\n1,2,3\n");
	expect(hs_data_files(m, &f, &d, &e), &e,
	       "row 2: column 'kind': '3' is a number, and other rows have words (as 'cat')");
	MUST(hs_model_free(m, &e));

	f = hs_files_init();
	f.x = repository("tests/golden/arrays/images");
	m = model_of("input 3 6 8; conv2d 4 3; relu; flatten; linear 2; cross_entropy");
	MUST(hs_data_files(m, &f, &d, &e));
	assert_int_equal(d.count, 4);
	MUST(hs_train(m, &d, &o, &r, &e));
	assert_true(r.last_loss < 0.5 * r.first_loss);
	hs_result_release(&r);
	hs_data_release(&d);
	MUST(hs_model_free(m, &e));
}

static void mistakes_are_values(void **state)
{
	hs_error e;
	hs_data d;
	hs_files f = hs_files_init();
	(void)state;
	hs_model *m = model_of("input 2; linear 2; cross_entropy");
	expect(hs_data_files(m, &f, &d, &e), &e, "`x` is NULL");
	f.x = "/nowhere.npy";
	expect(hs_data_files(m, &f, &d, &e), &e, "/nowhere.npy");
	f.x = repository("tests/golden/arrays/table.csv");
	f.x_columns = "a,c,class";
	f.y_columns = "class";
	expect(hs_data_files(m, &f, &d, &e), &e, "its rows have 3 numbers; the model reads 2");
	scratch_text(scratch("bad.csv"), "a,b,kind\n1,2,0\n1,x,0\n");
	f.x = scratch("bad.csv");
	f.x_columns = NULL;
	f.y_columns = "kind";
	MUST(hs_data_files(m, &f, &d, &e));
	expect(hs_train(m, &d, NULL, NULL, &e), &e, "row 2: column 'b': 'x' is not a number");
	hs_data_release(&d);
	f.size = 8;
	expect(hs_data_files(m, &f, &d, &e), &e, "sizeof(hs_files)");
	MUST(hs_model_free(m, &e));
}

/* ---- blocks ---- */

static void write_npy(const char *path, const char *type, uint64_t rows, unsigned each, size_t size)
{
	char head[128] = "\x93NUMPY\1\0";
	const int n = snprintf(head + 10, sizeof head - 10,
			       "{'descr': '%s', 'fortran_order': False, 'shape': (%llu, %u)}", type,
			       (unsigned long long)rows, each);
	memset(head + 10 + n, ' ', sizeof head - 10 - (size_t)n);
	head[127] = '\n';
	head[8] = 118;
	scratch_write(path, head, sizeof head);
	assert_int_equal(truncate(path, (off_t)(sizeof head + rows * each * size)), 0); /* sparse */
}

/* A file that becomes shorter while it is used. */
static void a_file_that_ends_early(void **state)
{
	enum { ROWS = 200000, EACH = 64 };
	static const char *const set[] = { "max_steps=200", "micro_batch_size=64" };
	const char *x = scratch("early.npy"), *y = scratch("early-y.npy");
	hs_error e;
	hs_data d;
	hs_options o = hs_options_init();
	hs_files f = hs_files_init();
	(void)state;
	write_npy(x, "<f4", ROWS, EACH, 4);
	write_npy(y, "<f4", ROWS, 1, 4);
	o.set = set;
	o.sets = COUNT(set);
	f.x = x;
	f.y = y;
	hs_model *m = model_of("input 64; linear 1; mse");
	MUST(hs_data_files(m, &f, &d, &e));
	assert_int_equal(truncate(x, 4096), 0);
	expect(hs_train(m, &d, &o, NULL, &e), &e, "early.npy");
	printf("%s\n", e.text);
	hs_data_release(&d);
	MUST(hs_model_free(m, &e));
}

static double resident_mib(const char *what)
{
	char line[256];
	double v = 0;
	FILE *f = fopen("/proc/self/status", "r");
	while (f && fgets(line, sizeof line, f))
		if (!strncmp(line, what, strlen(what)))
			v = strtod(line + strlen(what), NULL) / 1024;
	if (f)
		fclose(f);
	return v;
}

static void twenty_gigabytes(void **state)
{
	static const char *const set[] = { "max_steps=200", "micro_batch_size=256" };
	const uint64_t rows = 20000000000 / 64;
	hs_error e;
	hs_data d;
	hs_options o = hs_options_init();
	hs_files f = hs_files_init();
	(void)state;
	write_npy(scratch("x.npy"), "<f4", rows, 16, 4);
	write_npy(scratch("y.npy"), "|u1", rows, 1, 1);
	f.x = scratch("x.npy");
	f.y = scratch("y.npy");
	o.set = set;
	o.sets = COUNT(set);
	hs_model *m = model_of("input 16; linear 8; relu; linear 2; cross_entropy");
	const double before = resident_mib("VmRSS:");
	MUST(hs_data_files(m, &f, &d, &e));
	assert_true(d.count == rows && d.block > 0);
	MUST(hs_train(m, &d, &o, NULL, &e));
	const double most = resident_mib("VmHWM:");
	printf("20 GB in %llu samples, blocks of %llu, %llu mixed: resident %.0f MiB before, %.0f "
	       "at most\n",
	       (unsigned long long)rows, (unsigned long long)d.block, (unsigned long long)d.mixed,
	       before, most);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__) /* which need memory too */
	assert_true(most < 500);
#endif
	hs_data_release(&d);
	MUST(hs_model_free(m, &e));
}

static int stop_at(void *ctx, const hs_step *s, double *rate)
{
	(void)rate;
	return s->step == *(const uint64_t *)ctx ? HS_STOP : HS_GO_ON;
}

static void a_stopped_run_over_blocks_goes_on(void **state)
{
	char output[4200];
	uint64_t stop = 0;
	hs_error e;
	hs_data d;
	hs_result whole, part;
	hs_options o = hs_options_init();
	hs_files f = hs_files_init();
	(void)state;
	snprintf(output, sizeof output, "output_dir=%s", scratch("blocks-run"));
	const char *set[] = { "num_epochs=2",
			      "micro_batch_size=8",
			      "learning_rate=0.01",
			      "val_set_size=32",
			      output,
			      "resume_from_checkpoint=latest" };
	f.x = repository("tests/golden/arrays/table.csv");
	f.y_columns = "c";
	f.x_columns = "a,class";
	f.block = 16;
	f.mixed = 4;
	o.set = set;
	o.on.ctx = &stop;
	o.on.step = stop_at;
	hs_model *m = model_of("input 2; linear 8; relu; linear 1; mse");
	hs_model *n = model_of("input 2; linear 8; relu; linear 1; mse");
	MUST(hs_data_files(m, &f, &d, &e));
	assert_true(d.block == 16 && d.mixed == 4);
	o.sets = 4;
	MUST(hs_train(m, &d, &o, &whole, &e));
	assert_int_equal(whole.steps, 2 * 71);
	o.sets = 5;
	stop = 90; /* in the second epoch, inside of a window */
	MUST(hs_train(n, &d, &o, &part, &e));
	assert_true(part.stopped && part.step == 90);
	hs_result_release(&part);
	o.sets = 6;
	stop = 0;
	MUST(hs_train(n, &d, &o, &part, &e));
	assert_int_equal(part.first_step, 91);
	assert_memory_equal(whole.loss + 90, part.loss, part.steps * sizeof *part.loss);
	assert_true(whole.held_after == part.held_after);
	printf("stopped after step 90 of 142 and resumed: the same bits\n");
	hs_result_release(&part);
	hs_result_release(&whole);
	hs_data_release(&d);
	MUST(hs_model_free(m, &e));
	MUST(hs_model_free(n, &e));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(twenty_gigabytes),
		cmocka_unit_test(a_table_and_images),
		cmocka_unit_test(mistakes_are_values),
		cmocka_unit_test(a_file_that_ends_early),
		cmocka_unit_test(a_stopped_run_over_blocks_goes_on),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
