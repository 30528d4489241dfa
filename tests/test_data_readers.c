/* SPDX-License-Identifier: Apache-2.0 */
/* Parquet files of pyarrow, tables and packed JSONL, row for row as Python reads them
 * (tests/golden/readers, made by scripts/golden/readers.py); files that are cut off or damaged;
 * parts, several files, other names of keys, weights. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
// clang-format off
#include <cmocka.h>
// clang-format on

#include "base/buf.h"
#include "data/parquet_page.h"
#include "data/records.h"
#include "data/sources.h"
#include "support/fake_tokenizer.h"
#include "support/scratch.h"

#include <jansson.h>

#define DIR "tests/golden/readers/"

static const char *const files[] = {
	"plain.parquet",      "snappy.parquet",       "gzip-v2.parquet",
	"zstd.parquet",       "zstd-v2.parquet",      "delta.parquet",
	"nested.parquet",     "nested-v2.parquet",    "empty.parquet",
	"long.parquet",       "other.parquet",        "table.csv",
	"table.tsv",          "lines.jsonl.gz",       "lines.jsonl.zst",
	"tools-text.parquet", "tools-nested.parquet", "numbers.parquet",
};

/* Rows that are the same; -1 when one is not. */
static int compare(const char *name)
{
	char path[200], want[220], line[8192];
	struct err e = { 0 };
	struct records *r;
	struct record rec;
	int rc, rows = 0;
	snprintf(path, sizeof path, DIR "%s", name);
	snprintf(want, sizeof want, "%s.want", path);
	FILE *f = fopen(want, "r");
	assert_non_null(f);
	if (records_open(path, false, &r, &e) < 0)
		fail_msg("%s", e.msg);
	while ((rc = records_next(r, &rec, &e)) > 0) {
		assert_non_null(fgets(line, sizeof line, f));
		json_t *a = json_loadb(rec.text, rec.n, 0, NULL), *b = json_loads(line, 0, NULL);
		if (!a || !b || !json_equal(a, b))
			fail_msg("%s, row %d:\n  %.*s\n  %s", name, rows, (int)rec.n, rec.text,
				 line);
		json_decref(a);
		json_decref(b);
		rows++;
	}
	if (rc < 0)
		fail_msg("%s", e.msg);
	assert_null(fgets(line, sizeof line, f));
	fclose(f);
	records_close(r);
	return rows;
}

static void test_golden(void **state)
{
	(void)state;
	int rows = 0;
	for (size_t i = 0; i < ARRAY_LEN(files); i++)
		rows += compare(files[i]);
	printf("  %d rows of %zu files\n", rows, ARRAY_LEN(files));
	assert_true(rows > 4000);
}

static int read_all(const char *path, struct err *e)
{
	struct records *r;
	struct record rec;
	int rc = records_open(path, false, &r, e);
	if (rc < 0)
		return rc;
	while ((rc = records_next(r, &rec, e)) > 0)
		;
	records_close(r);
	return rc;
}

/* A file with one byte changed, or cut off, is read or refused with one line. */
static void test_damaged(void **state)
{
	(void)state;
	int refused = 0, tried = 0;
	for (size_t i = 0; i < ARRAY_LEN(files); i++) {
		struct buf b = BUF_INIT;
		struct err e = { 0 };
		char path[300];
		snprintf(path, sizeof path, DIR "%s", files[i]);
		assert_int_equal(buf_read_file(&b, path, 0, &e), 0);
		snprintf(path, sizeof path, "%s", scratch("%s", files[i]));
		for (size_t k = 0; k < 60; k++) {
			size_t at = (k * 7919 + 13 * k * k) % b.n, n = k % 3 ? b.n : at;
			char old = b.p[at];
			b.p[at] ^= (char)(1 << k % 8);
			FILE *f = fopen(path, "w");
			assert_int_equal(fwrite(b.p, 1, n, f), n);
			fclose(f);
			b.p[at] = old;
			err_clear(&e);
			int rc = read_all(path, &e);
			if (rc < 0 && (rc == ERR_INTERNAL || !e.msg[0] || strchr(e.msg, '\n') ||
				       !strstr(e.msg, files[i])))
				fail_msg("%s: %s", files[i], e.msg);
			refused += rc < 0;
			tried++;
		}
		buf_release(&b);
	}
	printf("  %d of %d damaged files are refused\n", refused, tried);
	assert_true(refused > tried / 4);
}

static void refuse(const char *name, const char *text, const char *why)
{
	char path[300];
	struct err e = { 0 };
	snprintf(path, sizeof path, "%s", scratch("%s", name));
	scratch_text(path, "%s", text);
	if (read_all(path, &e) >= 0 || !strstr(e.msg, why))
		fail_msg("%s: '%s' instead of '%s'", name, e.msg, why);
}

static void test_refused(void **state)
{
	(void)state;
	refuse("a.csv", "", "is empty");
	refuse("a.csv", "a,b\n1,2\n3\n", "a.csv:3: 1 fields in a table of 2 columns");
	refuse("a.csv", "a,b\n1,2,3\n", "at least 3 fields in a table of 2 columns");
	refuse("a.csv", "a,b\n1,\"2\n", "a.csv:2: a quoted field does not end");
	refuse("a.csv", "a,b\n1,\"2\"x\n", "text behind the closing quote");
	refuse("a.csv", "a,\"b\"x\n1,2\n", "a.csv:1: there is text behind the closing quote");
	refuse("a.csv", "\na,b,a\n1,2,3\n", "a.csv:2: two columns have the name \"a\"");
	refuse("a.csv", "a;b\n1;2\n", "a.csv:1: the columns are separated by semicolons");
	refuse("a.csv", "a,b\n1,2\ncaf\xe9,3\n",
	       "a.csv:3: not UTF-8: byte 0xe9 at byte 4 of the row");
	refuse("a.csv", "caf\xe9,b\n1,2\n", "a.csv:1: not UTF-8");
	refuse("a.parquet", "PAR1xxxxPAR1", "a.parquet");
	refuse("a.parquet", "PAR1", "too short");
	refuse("a.parquet", "PAR1\x15\x02\x19\x2cxxxxPAR1",
	       "its end is not that of a Parquet file");
	refuse("a.gz", "\x1f\x8b\x08", "does not end");
	refuse("a.gz", "\x1f\x8b\x07\x01\x01\x01\x01\x01\x01\x01\x01\x01", "damaged gzip data");
	refuse("a.zst", "\x28\xb5\x2f\xfd\x01", "a.zst");
	refuse("a.bz2", "BZh91AY", "bzip2");
	uint8_t out[8];
	assert_int_equal(pq_snappy((const uint8_t *)"\x03\x08"
						    "abc",
				   5, out, 3),
			 0);
	assert_int_equal(pq_snappy((const uint8_t *)"\x04\x08"
						    "abc",
				   5, out, 3),
			 -1);
	assert_int_equal(pq_snappy((const uint8_t *)"\x05\x00"
						    "a\x01\x02",
				   5, out, 5),
			 -1);
}

/* The rows of a table, each with its line. */
static void rows_are(const char *text, const char *want)
{
	struct err e = { 0 };
	struct records *r;
	struct record rec;
	char got[400] = "";
	int rc;
	scratch_text(scratch("q.csv"), "%s", text);
	if (records_open(scratch("q.csv"), false, &r, &e) < 0)
		fail_msg("%s", e.msg);
	while ((rc = records_next(r, &rec, &e)) > 0) {
		size_t n = strlen(got);
		snprintf(got + n, sizeof got - n, "%llu %.*s;", (unsigned long long)rec.line,
			 (int)rec.n, rec.text);
	}
	if (rc < 0)
		snprintf(got, sizeof got, "%.399s", e.msg);
	records_close(r);
	assert_string_equal(got, want);
}

/* A quote begins a quoted field only as its first character. */
static void test_quotes(void **state)
{
	(void)state;
	rows_are("a,b\n5\",1\n6,2\n7\",3\n",
		 "2 {\"a\":\"5\\\"\",\"b\":\"1\"};3 {\"a\":\"6\",\"b\":\"2\"};"
		 "4 {\"a\":\"7\\\"\",\"b\":\"3\"};");
	rows_are("a,b\n5\",\"1\n2\"\n6,2",
		 "2 {\"a\":\"5\\\"\",\"b\":\"1\\n2\"};4 {\"a\":\"6\",\"b\":\"2\"};");
	rows_are("a,b\n\"x\"\"\ny\",\"\"\n\"\",2\"\r\n",
		 "2 {\"a\":\"x\\\"\\ny\",\"b\":\"\"};4 {\"a\":\"\",\"b\":\"2\\\"\"};");
	refuse("q.csv", "a,b\n\"1\"2\"\n3\n", "q.csv:2: there is text behind the closing quote");
	refuse("q.csv", "a,b\n1,2\n\"\"\"\n3,4\n", "q.csv:3: a quoted field does not end");
}

/* ---- datasets ------------------------------------------------------------------------------- */

static const struct tokenizer tok = { 0 };
static const struct chat_template chat = { .name = "fake" };

/* The first letters of the examples' texts, or the error. */
static void check(struct dataset_source s, const char *want)
{
	struct dataset_options o = { .tok = &tok, .chat = &chat, .sequence_len = 512 };
	struct err e = { 0 };
	struct dataset *d;
	char got[400] = "";
	size_t n = 0;
	if (dataset_load(&s, 1, &o, &d, &e) < 0) {
		if (!strstr(e.msg, want))
			fail_msg("'%s' instead of '%s'", e.msg, want);
		return;
	}
	for (size_t i = 0; i < dataset_count(d); i++) {
		struct example x = dataset_get(d, i);
		for (uint32_t k = 0; k < x.n && n < sizeof got - 2; k++)
			if (x.id[k] < 128)
				got[n++] = (char)x.id[k];
		got[n++] = ' ';
	}
	got[n ? n - 1 : 0] = 0;
	if (strcmp(got, want))
		fail_msg("split %s, weight %g: '%s' instead of '%s'", s.split ? s.split : "-",
			 s.weight, got, want);
	dataset_free(d);
}

static const char *put(const char *name, const char *text)
{
	const char *path = scratch("%s", name);
	scratch_text(path, "%s", text);
	return path;
}

static void test_splits(void **state)
{
	(void)state;
	const char *p = put("s.jsonl", "{\"text\":\"0\"}\n{\"text\":\"1\"}\n{\"text\":\"2\"}\n"
				       "{\"text\":\"3\"}\n{\"text\":\"4\"}\n");
	static const struct {
		const char *split, *want;
	} row[] = {
		{ NULL, "0 1 2 3 4" },
		{ "train", "0 1 2 3 4" },
		{ "train[:2]", "0 1" },
		{ "train[1:3]", "1 2" },
		{ "[3:]", "3 4" },
		{ "train[-2:]", "3 4" },
		{ "train[:-1]", "0 1 2 3" },
		{ "train[:40%]", "0 1" },
		{ "train[10%:]", "0 1 2 3 4" }, /* 0.5 rounds to even */
		{ "train[30%:90%]", "2 3" },    /* 1.5 and 4.5 too */
		{ "train[:100]", "0 1 2 3 4" },
		{ "train[5:]", "has no records" },
		{ "train[3:2]", "has no records" },
		{ "train[1.5:]", "is not understood" },
		{ "train[:10", "is not understood" },
		{ "train+test", "is not understood" },
	};
	for (size_t i = 0; i < ARRAY_LEN(row); i++)
		check((struct dataset_source){ .path = p, .split = row[i].split }, row[i].want);
	check((struct dataset_source){ .path = p, .weight = 0.4 }, "2 4");
	check((struct dataset_source){ .path = p, .weight = 1.2, .split = "[:5]" }, "0 1 2 3 4 4");
	check((struct dataset_source){ .path = p, .weight = 2, .split = "[:2]" }, "0 1 0 1");
}

static void test_files(void **state)
{
	(void)state;
	char pattern[400];
	const char *dir = scratch("set");
	put("set/train-1.jsonl", "{\"text\":\"b\"}\n{\"text\":\"c\"}\n");
	put("set/train-0.jsonl", "{\"text\":\"a\"}\n");
	put("set/test.jsonl", "{\"text\":\"t\"}\n");
	put("set/notes.md", "nothing");
	put("set/dataset_infos.json", "{\"default\": {\"splits\": {}}}");
	check((struct dataset_source){ .path = dir, .split = "train" }, "a b c");
	check((struct dataset_source){ .path = dir, .split = "train[1:]" }, "b c");
	check((struct dataset_source){ .path = dir, .split = "test" }, "t");
	check((struct dataset_source){ .path = dir, .split = "validation" },
	      "no data files of the split validation");
	/* without a split as in axolotl: test.jsonl is no training data */
	check((struct dataset_source){ .path = dir }, "a b c");
	check((struct dataset_source){ .path = dir, .split = "[1:]" }, "b c");
	check((struct dataset_source){ .path = dir, .held_out = true }, "t a b c");
	const char *every[] = { "*.jsonl" };
	check((struct dataset_source){ .path = dir, .data_files = every, .ndata_files = 1 },
	      "t a b c");
	snprintf(pattern, sizeof pattern, "%s/train-*.jsonl", dir);
	check((struct dataset_source){ .path = pattern, .split = "[:2]" }, "a b");
	snprintf(pattern, sizeof pattern, "%s/none-*.jsonl", dir);
	check((struct dataset_source){ .path = pattern }, "no file matches");
	const char *one[] = { "test.jsonl", "train-0.jsonl" };
	check((struct dataset_source){ .path = dir, .data_files = one, .ndata_files = 2 }, "t a");
}

static void test_fields(void **state)
{
	(void)state;
	const char *p = put("f.jsonl", "{\"q\":\"Q\",\"ctx\":\"I\",\"a\":\"A\"}\n"
				       "{\"q\":\"R\",\"ctx\":\"\",\"a\":\"B\"}\n");
	struct dataset_source s = { .path = p, .type = "alpaca" };
	s.field[FIELD_INSTRUCTION] = "q";
	s.field[FIELD_INPUT] = "ctx";
	s.field[FIELD_OUTPUT] = "a";
	check(s, "Q\nIA RB");
	s.format = "[{instruction}|{input}]{x}";
	s.no_input_format = "<{instruction}>";
	check(s, "[Q|I]{x}A <R>B");
	s.system_prompt = "S";
	s.system_format = "{system}: ";
	check(s, "S: [Q|I]{x}A S: <R>B");
	s.field[FIELD_OUTPUT] = "answer";
	check(s, "f.jsonl:1: answer: is missing; the dataset's configuration calls 'output' so");
	p = put("g.jsonl", "{\"talk\":[{\"who\":\"user\",\"says\":\"x\"},{\"who\":\"assistant\","
			   "\"says\":\"y\"}]}\n");
	s = (struct dataset_source){ .path = p, .type = "chat_template" };
	s.field[FIELD_MESSAGES] = "talk";
	s.field[FIELD_ROLE] = "who";
	s.field[FIELD_CONTENT] = "says";
	check(s, "xy");
	s.field[FIELD_ROLE] = "whom";
	check(s, "whom: is missing");
	s = (struct dataset_source){ .path = DIR "nested.parquet", .type = "messages" };
	check(s, "nested.parquet: row 1: messages");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_golden),  cmocka_unit_test(test_damaged),
		cmocka_unit_test(test_refused), cmocka_unit_test(test_quotes),
		cmocka_unit_test(test_splits),  cmocka_unit_test(test_files),
		cmocka_unit_test(test_fields),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
