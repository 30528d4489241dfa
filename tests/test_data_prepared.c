/* SPDX-License-Identifier: Apache-2.0 */
/* test_data_prepared.c - tokens kept in a file (data/prepared.h): the same examples as in memory,
 * used again only when nothing that they follow from has changed, and never when they are damaged.
 */
#include "base/buf.h"
#include "base/err.h"
#include "base/mem.h"
#include "data/dataset.h"
#include "data/prepared.h"
#include "data/tokenizer.h"

#include <dirent.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
// clang-format off
#include <cmocka.h>
// clang-format on

static char dir[64], store[80], path[2][96];
static struct tokenizer *tok;
static struct dataset_source source[2];

static void put(const char *file, const char *text)
{
	FILE *f = fopen(file, "wb");
	assert_true(f && fputs(text, f) >= 0 && fclose(f) == 0);
}

static int setup(void **state)
{
	struct err e = { 0 };
	struct buf b = BUF_INIT;
	(void)state;
	snprintf(dir, sizeof dir, "/tmp/hs-prepared-%ld", (long)getpid());
	snprintf(store, sizeof store, "%s/store", dir);
	assert_true(mkdir(dir, 0700) == 0 && mkdir(store, 0700) == 0);
	for (int i = 0; i < 2; i++) {
		snprintf(path[i], sizeof path[i], "%s/%d.jsonl", dir, i);
		source[i] = (struct dataset_source){ .path = path[i], .type = "completion" };
	}
	source[1].weight = 1.5;
	for (int i = 0; i < 200; i++)
		buf_addf(&b, "{\"prompt\": \"What is %d?\", \"completion\": \" It is %d.\"}\n", i,
			 i * i);
	put(path[0], b.p);
	put(path[1], "{\"prompt\": \"a\", \"completion\": \" b\"}\n"
		     "{\"prompt\": \"c\", \"completion\": \"\"}\n"
		     "{\"prompt\": \"d\", \"completion\": \" e\"}\n");
	buf_release(&b);
	if (tokenizer_from_file("tests/golden/tokenizer/smollm2.json", NULL, &tok, &e) < 0)
		fail_msg("%s", e.msg);
	return 0;
}

static void empty_store(void)
{
	char one[400];
	DIR *d = opendir(store);
	for (const struct dirent *f; (f = readdir(d));)
		if (f->d_name[0] != '.') {
			snprintf(one, sizeof one, "%s/%s", store, f->d_name);
			unlink(one);
		}
	closedir(d);
}

static int teardown(void **state)
{
	(void)state;
	empty_store();
	unlink(path[0]);
	unlink(path[1]);
	tokenizer_free(tok);
	return rmdir(store) || rmdir(dir);
}

static struct dataset_options options(const char *where)
{
	return (struct dataset_options){ .tok = tok,
					 .sequence_len = 64,
					 .skip_bad_records = true,
					 .prepared = where,
					 .identity = "this tokenizer" };
}

static struct dataset *load(const struct dataset_options *o)
{
	struct dataset *d;
	struct err e = { 0 };
	if (dataset_load(source, 2, o, &d, &e) < 0)
		fail_msg("%s", e.msg);
	return d;
}

static void same(const struct dataset *a, const struct dataset *b)
{
	assert_int_equal(dataset_count(a), dataset_count(b));
	assert_true(dataset_digest(a) == dataset_digest(b));
	assert_memory_equal(dataset_stats(a), dataset_stats(b), sizeof *dataset_stats(a));
	assert_int_equal(dataset_sources(a), dataset_sources(b));
	for (size_t i = 0; i < dataset_count(a); i++) {
		const struct example x = dataset_get(a, i), y = dataset_get(b, i);
		assert_true(x.n == y.n && x.trained == y.trained && x.source == y.source);
		assert_memory_equal(x.id, y.id, x.n * sizeof *x.id);
		assert_memory_equal(x.train, y.train, x.n);
	}
}

/* The one file of the store. */
static const char *kept(void)
{
	static char one[400];
	int n = 0;
	DIR *d = opendir(store);
	for (const struct dirent *f; (f = readdir(d));)
		if (f->d_name[0] != '.') {
			snprintf(one, sizeof one, "%s/%s", store, f->d_name);
			n++;
		}
	closedir(d);
	assert_int_equal(n, 1);
	return one;
}

static void as_in_memory(void **state)
{
	(void)state;
	const struct dataset_options in_memory = options(NULL), in_file = options(store);
	struct dataset *want = load(&in_memory), *first = load(&in_file), *again = load(&in_file);
	assert_int_equal(dataset_count(want), 203);
	assert_int_equal(dataset_stats(want)->skipped, 1);
	assert_false(dataset_was_prepared(want) || dataset_was_prepared(first));
	assert_true(dataset_was_prepared(again));
	same(want, first);
	same(want, again);
	dataset_free(want);
	dataset_free(first);
	dataset_free(again);
	empty_store();
}

static bool is_again(const struct dataset_options *o)
{
	struct dataset *d = load(o);
	const bool again = dataset_was_prepared(d);
	dataset_free(d);
	return again;
}

/* Whatever the tokens follow from makes them anew. */
static void changed(void **state)
{
	(void)state;
	struct dataset_options o = options(store);
	assert_false(is_again(&o));
	o.sequence_len = 63;
	assert_false(is_again(&o));
	o.sequence_len = 64;
	o.identity = "another";
	assert_false(is_again(&o));
	o.identity = "this tokenizer";
	o.train_on_inputs = true;
	assert_false(is_again(&o));
	o.train_on_inputs = false;
	source[0].field[FIELD_PROMPT] = "prompt";
	assert_false(is_again(&o));
	source[0].field[FIELD_PROMPT] = NULL;
	source[1].weight = 2;
	assert_false(is_again(&o));
	source[1].weight = 1.5;
	assert_true(is_again(&o));
	const struct timespec later[2] = { { .tv_nsec = UTIME_OMIT }, { .tv_sec = 1e9 } };
	assert_int_equal(utimensat(AT_FDCWD, path[1], later, 0), 0);
	assert_false(is_again(&o));
	assert_true(is_again(&o));
	empty_store();
}

static void damaged(void **state)
{
	(void)state;
	const struct dataset_options o = options(store), in_memory = options(NULL);
	struct dataset *want = load(&in_memory);
	struct buf whole = BUF_INIT;
	struct err e = { 0 };
	assert_false(is_again(&o));
	assert_int_equal(buf_read_file(&whole, kept(), 0, &e), 0);
	/* each byte of the head that is used, and bytes of data and spans */
	const size_t used = sizeof(struct prepared_head) - sizeof(struct dataset_stats);
	int refused = 0;
	for (size_t at = 0, step = 1; at < whole.n; at += step) {
		step = at < used ? 1 : at < PREPARED_HEAD ? PREPARED_HEAD - at : 97;
		char file[400];
		snprintf(file, sizeof file, "%s", kept());
		const int fd = open(file, O_WRONLY);
		const char other = (char)(whole.p[at] ^ 0x85);
		assert_int_equal(pwrite(fd, &other, 1, (off_t)at), 1);
		close(fd);
		struct dataset *d = load(&o);
		refused += !dataset_was_prepared(d);
		same(want, d);
		dataset_free(d);
	}
	print_message("%d damaged files of %zu bytes\n", refused, whole.n);
	assert_true(refused > 300);
	for (size_t n = 0; n < whole.n; n += whole.n / 7) {
		assert_int_equal(truncate(kept(), (off_t)n), 0);
		assert_false(is_again(&o));
		assert_true(is_again(&o));
	}
	buf_release(&whole);
	dataset_free(want);
	empty_store();
}

/* Nothing is left behind where it fails, and a file that others may write is not used. */
static void failures(void **state)
{
	(void)state;
	const struct dataset_options o = options(store);
	struct dataset *d;
	struct err e = { 0 };
	for (uint64_t k = 1;; k++) {
		e = (struct err){ 0 };
		mem_fail_after(k);
		const int rc = dataset_load(source, 2, &o, &d, &e);
		mem_fail_after(0);
		if (rc >= 0)
			break;
		assert_int_equal(rc, ERR_NOMEM);
		DIR *all = opendir(store);
		int n = 0;
		while (readdir(all))
			n++;
		closedir(all);
		assert_int_equal(n, 2);
		k += k / 16;
	}
	dataset_free(d);
	assert_int_equal(chmod(kept(), 0666), 0);
	assert_false(is_again(&o));
	const struct dataset_options nowhere = options("/nonexistent/folder");
	assert_true(dataset_load(source, 2, &nowhere, &d, &e) < 0);
	assert_non_null(strstr(e.msg, "/nonexistent/folder"));
	empty_store();
}

/* A process that begins a file and waits; what it wrote is in `store`. */
static pid_t writer(char tmp[400])
{
	static const char key[] = "0123456789abcdef0123456789abcdef";
	int ready[2];
	char c;
	assert_int_equal(pipe(ready), 0);
	const pid_t child = fork();
	if (child == 0) {
		struct prepared p;
		struct err e = { 0 };
		const char done = prepared_begin(store, key, &p, &e) == 0 &&
				  prepared_put(&p, key, sizeof key, &e) == 0;
		if (write(ready[1], &done, 1) == 1)
			pause();
		_exit(1);
	}
	assert_true(child > 0 && read(ready[0], &c, 1) == 1 && c);
	close(ready[0]);
	close(ready[1]);
	snprintf(tmp, 400, "%s", kept());
	return child;
}

/* What a killed run left goes at the next one; not what still is written, and nothing of others. */
static void killed(void **state)
{
	(void)state;
	const struct dataset_options o = options(store);
	char tmp[400], own[400];
	const pid_t child = writer(tmp);
	snprintf(own, sizeof own, "%.*s77.0.tmp", (int)(strrchr(tmp, '/') + 34 - tmp), tmp);
	put(own, "a file of the user's with such a name");
	assert_false(is_again(&o));
	assert_int_equal(access(tmp, F_OK), 0);
	assert_true(kill(child, SIGKILL) == 0 && waitpid(child, NULL, 0) == child);
	assert_true(is_again(&o));
	assert_int_equal(access(tmp, F_OK), -1);
	assert_int_equal(access(own, F_OK), 0);
	empty_store();
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(as_in_memory),
					    cmocka_unit_test(changed), cmocka_unit_test(damaged),
					    cmocka_unit_test(failures), cmocka_unit_test(killed) };
	return cmocka_run_group_tests(tests, setup, teardown);
}
