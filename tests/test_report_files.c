/* SPDX-License-Identifier: Apache-2.0 */
/* What a run leaves behind for people: metrics.jsonl, TensorBoard events, trace.json; and the
 * progress lines. Its pictures: test_report_image_files.c. */
#include "base/buf.h"
#include "base/err.h"
#include "base/json.h"
#include "base/mem.h"
#include "file/atomic.h"
#include "report/metrics.h"
#include "report/mlflow.h"
#include "report/wandb.h"
#include "report/progress.h"
#include "report/tensorboard.h"
#include "report/trace.h"
#include "net/frame.h"
#include "support/scratch.h"

#include <dirent.h>
#include <math.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <sys/resource.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>
#include <cmocka.h>

static char dir[64];

static int make_dir(void **state)
{
	(void)state;
	snprintf(dir, sizeof dir, "/tmp/hs-report-XXXXXX");
	return mkdtemp(dir) ? 0 : -1;
}

static int remove_dir(void **state)
{
	(void)state;
	struct err e;
	return dir_remove(dir, &e);
}

static const char *in_dir(const char *name)
{
	static char path[2048];
	snprintf(path, sizeof path, "%s/%s", dir, name);
	return path;
}

static void must(int rc, const struct err *e)
{
	if (rc < 0)
		fail_msg("%s", e->msg);
}

static size_t lines(const struct buf *b)
{
	size_t n = 0;
	for (size_t i = 0; i < b->n; i++)
		n += b->p[i] == '\n';
	return n;
}

/* A full disk (here: a limit) costs no line and does not end the run; the file has whole lines at
 * every moment. */
static void metrics_of_a_full_disk(void **state)
{
	(void)state;
	struct err e = { 0 };
	struct metrics *m;
	struct rlimit was, tight;
	must(metrics_open(dir, -1, &m, &e), &e);
	assert_int_equal(getrlimit(RLIMIT_FSIZE, &was), 0);
	signal(SIGXFSZ, SIG_IGN);
	for (int i = 1; i <= 3; i++) {
		const struct metrics_step s = { .step = i, .loss = 1, .tokens = 5 };
		if (i == 2) {
			struct buf b = scratch_read(in_dir("metrics.jsonl"));
			tight = (struct rlimit){ b.n + 10, was.rlim_max };
			buf_release(&b);
			assert_int_equal(setrlimit(RLIMIT_FSIZE, &tight), 0);
		}
		must(metrics_add(m, &s, &e), &e);
		struct buf b = scratch_read(in_dir("metrics.jsonl"));
		assert_true(b.n && b.p[b.n - 1] == '\n');
		buf_release(&b);
	}
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &was), 0);
	metrics_close(m);
	struct buf b = scratch_read(in_dir("metrics.jsonl"));
	int lines = 0;
	for (size_t i = 0; i < b.n; i++)
		lines += b.p[i] == '\n';
	assert_int_equal(lines, 3);
	buf_release(&b);
}

/* Going back while the disk is full: of what waits, the lines of later steps go too, and the file
 * is cut where there is no room for another one. */
static void going_back_on_a_full_disk(void **state)
{
	(void)state;
	struct err e = { 0 };
	struct metrics *m;
	struct rlimit was;
	must(metrics_open(dir, -1, &m, &e), &e);
	assert_int_equal(getrlimit(RLIMIT_FSIZE, &was), 0);
	signal(SIGXFSZ, SIG_IGN);
	for (int i = 1; i <= 6; i++) {
		const struct metrics_step s = { .step = i, .loss = i, .tokens = 5 };
		if (i == 4) { /* less than an own copy of the file: it can only be shortened */
			struct buf b = scratch_read(in_dir("metrics.jsonl"));
			const struct rlimit tight = { b.n, was.rlim_max };
			buf_release(&b);
			assert_int_equal(setrlimit(RLIMIT_FSIZE, &tight), 0);
		}
		must(metrics_add(m, &s, &e), &e);
	}
	metrics_go_back(m, 5);
	assert_int_equal(metrics_curve(m).nstep, 5);
	metrics_go_back(m, 2);
	assert_int_equal(metrics_curve(m).nstep, 2);
	must(metrics_eval(m, 2, &(struct metrics_val){ .loss = 1.5 }, &e), &e);
	assert_int_equal(metrics_curve(m).nstep, 2);
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &was), 0);
	for (int i = 3; i <= 4; i++) {
		const struct metrics_step s = { .step = i, .loss = 10 * i, .tokens = 5 };
		must(metrics_add(m, &s, &e), &e);
	}
	metrics_close(m);
	struct buf b = scratch_read(in_dir("metrics.jsonl"));
	static const char *const loss[] = { "\"loss\": 1,", "\"loss\": 2,", "\"loss\": 30,",
					    "\"loss\": 40," };
	const char *at;
	buf_addc(&b, 0);
	at = b.p;
	for (size_t i = 0; i < ARRAY_LEN(loss); i++) {
		at = strstr(at, loss[i]);
		assert_non_null(at);
	}
	assert_int_equal(strcspn(at, "\n") + 1, strlen(at)); /* the last line */
	assert_null(strstr(b.p, "\"loss\": 3,"));
	buf_release(&b);
}

/* A coordinator that is killed after it went back, before a step is done again: the run may go on
 * from the later state, which workers still have, and then has all its lines. */
static void back_and_killed(void **state)
{
	(void)state;
	struct err e = { 0 };
	struct metrics *m, *killed;
	must(metrics_open(dir, -1, &killed, &e), &e);
	for (int i = 1; i <= 4; i++)
		must(metrics_add(killed, &(struct metrics_step){ .step = i, .loss = i }, &e), &e);
	metrics_go_back(killed, 2);
	assert_int_equal(metrics_curve(killed).nstep, 2);
	must(metrics_event(killed, 2, "lost", "x", &e), &e);
	must(metrics_open(dir, 4, &m, &e), &e);
	assert_int_equal(metrics_curve(m).nstep, 4);
	metrics_close(m);
	/* not killed: step 3 is done again */
	must(metrics_add(killed, &(struct metrics_step){ .step = 3, .loss = 30 }, &e), &e);
	assert_int_equal(metrics_curve(killed).nstep, 3);
	struct buf b = scratch_read(in_dir("metrics.jsonl"));
	buf_addc(&b, 0);
	assert_null(strstr(b.p, "\"loss\": 4"));
	assert_non_null(strstr(b.p, "\"loss\": 30"));
	assert_non_null(strstr(b.p, "\"event\": \"lost\""));
	buf_release(&b);
	metrics_close(killed);
}

static void metrics(void **state)
{
	(void)state;
	struct err e = { 0 };
	struct metrics *m;
	const struct metrics_part part[] = { { "a.jsonl", 0 }, { "b\"", 1 } };
	must(metrics_open(dir, -1, &m, &e), &e);
	must(metrics_eval(m, 0, &(struct metrics_val){ 3.5, 0.25, NULL, NULL, 0 }, &e), &e);
	for (int i = 1; i <= 10; i++) {
		struct metrics_step s = { .step = i,
					  .epoch = i / 10.0,
					  .loss = i == 4 ? NAN : 3.0 / i,
					  .learning_rate = 1e-4 * i,
					  .grad_norm = 0.5,
					  .token_accuracy = 0.25,
					  .tokens = 512,
					  .tokens_per_second = 1000,
					  .seconds = 0.512,
					  .predicted_seconds = NAN,
					  .memory_peak = NAN,
					  .expert_hits = NAN,
					  .skipped = i == 4 };
		must(metrics_add(m, &s, &e), &e);
	}
	must(metrics_eval(m, 10, &(struct metrics_val){ 0.25, 0.5, NULL, part, 2 }, &e), &e);
	metrics_close(m);
	struct buf b = scratch_read(in_dir("metrics.jsonl"));
	assert_int_equal(lines(&b), 12);
	size_t at = 0;
	for (const char *p = b.p, *nl; (nl = strchr(p, '\n')); p = nl + 1, at++) {
		json_t *o = json_loadb(p, (size_t)(nl - p), 0, NULL);
		assert_non_null(o);
		assert_null(json_object_get(o, "predicted_seconds"));
		if (at >= 1 && at <= 10) {
			assert_int_equal(json_integer_value(json_object_get(o, "step")), (int)at);
			assert_true(at == 4 ? json_is_null(json_object_get(o, "loss"))
					    : json_number_value(json_object_get(o, "loss")) ==
						      3.0 / (double)at);
			assert_true(json_is_true(json_object_get(o, "skipped")) == (at == 4));
		}
		const json_t *by = json_object_get(o, "val_datasets");
		assert_true((by != NULL) == (at == 11));
		if (by)
			assert_true(json_number_value(json_object_get(
					    json_object_get(by, "a.jsonl"), "perplexity")) == 1);
		json_decref(o);
	}
	/* A torn last line and what lies behind the checkpoint go away on resuming; the curve is
	 * read back. */
	buf_adds(&b, "{\"step\": 11, \"lo");
	must(atomic_write_file(in_dir("metrics.jsonl"), b.p, b.n, &e), &e);
	buf_release(&b);
	must(metrics_open(dir, 6, &m, &e), &e);
	struct metrics_curve c = metrics_curve(m);
	assert_int_equal(c.nstep, 6);
	assert_int_equal(c.nval, 1);
	assert_true(c.step[5] == 6 && c.loss[5] == 0.5 && c.learning_rate[5] == 1e-4 * 6 &&
		    isnan(c.loss[3]));
	struct metrics_step s = { .step = 7,
				  .loss = 9,
				  .epoch = NAN,
				  .learning_rate = NAN,
				  .grad_norm = NAN,
				  .token_accuracy = NAN,
				  .tokens_per_second = NAN,
				  .seconds = NAN,
				  .expert_hits = NAN,
				  .predicted_seconds = 2,
				  .memory_peak = 5 };
	must(metrics_add(m, &s, &e), &e);
	assert_int_equal(metrics_curve(m).nstep, 7);
	/* of preferences; there was no rejected answer */
	const struct metrics_rewards w = { 0.5, NAN, NAN, 0.75 };
	s.step = 8;
	s.rewards = &w;
	must(metrics_add(m, &s, &e), &e);
	must(metrics_eval(m, 8, &(struct metrics_val){ 0.5, 0.75, &w, NULL, 0 }, &e), &e);
	metrics_close(m);
	b = scratch_read(in_dir("metrics.jsonl"));
	buf_addc(&b, 0);
	assert_non_null(strstr(b.p, "\"rewards/chosen\": 0.5, \"rewards/accuracies\": 0.75"));
	assert_non_null(strstr(b.p, "{\"step\": 8, \"val_loss\": 0.5, \"val_rewards/chosen\": 0.5, "
				    "\"val_rewards/accuracies\": 0.75}"));
	buf_release(&b);
	b = scratch_read(in_dir("metrics.jsonl"));
	assert_int_equal(lines(&b), 10);
	assert_non_null(strstr(b.p, "{\"step\": 7, \"loss\": 9, \"tokens\": 0, "
				    "\"predicted_seconds\": 2, \"memory_peak\": 5}\n"));
	buf_release(&b);
	assert_int_equal(metrics_open("/nowhere/at/all", -1, &m, &e), ERR_IO);
}

static uint64_t le(const char *p, int n)
{
	uint64_t v = 0;
	for (int i = n - 1; i >= 0; i--)
		v = v << 8 | (unsigned char)p[i];
	return v;
}

static uint32_t unmask(uint32_t m)
{
	uint32_t r = m - 0xa282ead8u;
	return (r >> 17) | (r << 15);
}

static void tensorboard(void **state)
{
	(void)state;
	struct err e = { 0 };
	struct tensorboard *t;
	assert_int_equal(crc32c(0, "123456789", 9), 0xe3069283u); /* the check value of CRC-32C */
	assert_int_equal(crc32c(crc32c(0, "1234", 4), "56789", 5), 0xe3069283u);
	must(tensorboard_open(in_dir("tb/inner"), &t, &e), &e);
	struct rlimit was;
	must(tensorboard_scalar(t, "train/loss", 1, 2.5, &e), &e);
	/* a full disk: kept, and written later */
	assert_int_equal(getrlimit(RLIMIT_FSIZE, &was), 0);
	signal(SIGXFSZ, SIG_IGN);
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &(struct rlimit){ 100, was.rlim_max }), 0);
	must(tensorboard_scalar(t, "train/loss", 300, 1.25, &e), &e);
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &was), 0);
	tensorboard_close(t);
	DIR *d = opendir(in_dir("tb/inner"));
	char name[300] = "";
	for (struct dirent *ent; (ent = readdir(d));)
		if (strstr(ent->d_name, "events.out.tfevents."))
			snprintf(name, sizeof name, "tb/inner/%s", ent->d_name);
	closedir(d);
	assert_true(name[0]);
	struct buf b = scratch_read(in_dir(name));
	size_t at = 0, records = 0;
	for (; at < b.n; records++) {
		uint64_t n = le(b.p + at, 8);
		assert_true(at + n + 16 <= b.n);
		assert_int_equal(unmask((uint32_t)le(b.p + at + 8, 4)), crc32c(0, b.p + at, 8));
		assert_int_equal(unmask((uint32_t)le(b.p + at + 12 + n, 4)),
				 crc32c(0, b.p + at + 12, n));
		const char *data = b.p + at + 12;
		assert_int_equal(data[0], 9); /* wall_time, a double */
		if (records == 0) {
			assert_memory_equal(data + 9,
					    "\x1a\x0d"
					    "brain.Event:2",
					    15);
			assert_int_equal(n, 24);
		} else if (records == 2) {
			/* step 300 as a varint; a summary with one value: tag, float 1.25 */
			assert_memory_equal(data + 9,
					    "\x10\xac\x02\x2a\x13\x0a\x11\x0a\x0atrain/"
					    "loss\x15\x00\x00\xa0\x3f",
					    24);
		}
		at += n + 16;
	}
	assert_int_equal(at, b.n);
	assert_int_equal(records, 3);
	buf_release(&b);
}

/* The last event file in tb/inner by name: its records with a session log (START), and all. */
static void last_file(char name[300], size_t *starts_p, size_t *records_p)
{
	DIR *d = opendir(in_dir("tb/inner"));
	assert_non_null(d);
	name[0] = 0;
	for (struct dirent *ent; (ent = readdir(d));)
		if (strstr(ent->d_name, "events.out.tfevents.") && strcmp(ent->d_name, name) > 0)
			snprintf(name, 300, "%s", ent->d_name);
	closedir(d);
	char path[400];
	snprintf(path, sizeof path, "tb/inner/%s", name);
	struct buf b = scratch_read(in_dir(path));
	*starts_p = *records_p = 0;
	for (size_t at = 0; at < b.n; at += le(b.p + at, 8) + 16, ++*records_p)
		*starts_p += le(b.p + at, 8) == 15; /* time, step below 128, two bytes in field 7 */
	buf_release(&b);
}

/* Going back is written with the next value: a coordinator that is killed before may go on from
 * later steps. The next file follows by its name, also where the clock was set back. */
static void tensorboard_back_and_killed(void **state)
{
	(void)state;
	struct err e = { 0 };
	struct tensorboard *killed, *t;
	char first[300], name[300];
	size_t starts, records;
	must(tensorboard_open(in_dir("tb/inner"), &killed, &e), &e);
	must(tensorboard_scalar(killed, "train/loss", 4, 1, &e), &e);
	tensorboard_go_back(killed, 3);
	tensorboard_go_back(killed, 4);
	last_file(first, &starts, &records);
	assert_int_equal(starts, 0);
	assert_int_equal(records, 2);
	must(tensorboard_scalar(killed, "train/loss", 3, 1, &e), &e);
	last_file(name, &starts, &records);
	assert_string_equal(name, first);
	assert_int_equal(starts, 1);
	assert_int_equal(records, 4);
	must(atomic_write_file(in_dir("tb/inner/events.out.tfevents.99000000000.x.1.heteroshard"),
			       "", 0, &e),
	     &e);
	must(tensorboard_open(in_dir("tb/inner"), &t, &e), &e);
	tensorboard_go_back(t, 5);
	tensorboard_close(t);
	last_file(name, &starts, &records);
	assert_non_null(strstr(name, ".99000000001."));
	assert_int_equal(starts, 1);
	assert_int_equal(records, 2);
	tensorboard_close(killed);
}

static void *add_spans(void *arg)
{
	for (int i = 0; i < 1000; i++)
		trace_span(arg, 1, 0, "forward", 1000 * i, 1000 * i + 500, i, 0);
	return NULL;
}

static void trace(void **state)
{
	(void)state;
	struct err e = { 0 };
	struct trace *t;
	must(trace_new(100, &t, &e), &e);
	trace_name_worker(t, 1, "worker");
	trace_name_worker(t, 1, "worker \"one\"");
	trace_clock_error(t, 70);
	trace_clock_error(t, 12);
	uint64_t before = mem_count();
	pthread_t th[4];
	for (int i = 0; i < 4; i++)
		pthread_create(&th[i], NULL, add_spans, t);
	for (int i = 0; i < 4; i++)
		pthread_join(th[i], NULL);
	assert_int_equal(mem_count(), before);
	assert_int_equal(trace_dropped(t), 3900);
	trace_span(t, 2, 1, "a name that is far too long for its field", 7000, 9500, 3, -1);
	for (int i = 0; i < TRACE_MARKS + 2; i++)
		trace_mark(t, 900000 + 500 * i, i ? "lost" : "an event with a very long name",
			   "'b' is gone (\"x\")", 7 + i);
	must(trace_write(t, in_dir("trace.json"), &e), &e);
	json_t *doc;
	must(json_parse_file(in_dir("trace.json"), 0, &doc, &e), &e);
	const json_t *ev = json_object_get(doc, "traceEvents");
	assert_int_equal(json_array_size(ev), 110 + TRACE_MARKS);
	assert_string_equal(json_string_value(json_object_get(
				    json_object_get(json_array_get(ev, 0), "args"), "name")),
			    "worker \"one\"");
	assert_string_equal(json_string_value(json_object_get(
				    json_object_get(json_array_get(ev, 6), "args"), "name")),
			    "receive");
	assert_int_equal(json_integer_value(json_object_get(json_object_get(doc, "otherData"),
							    "clocks apart at most, ns")),
			 70);
	const json_t *mark = json_array_get(ev, 10); /* the third; spans begin at 7 us */
	assert_string_equal(json_string_value(json_object_get(mark, "ph")), "i");
	assert_string_equal(json_string_value(json_object_get(mark, "name")), "lost");
	assert_true(json_number_value(json_object_get(mark, "ts")) == 901 - 7);
	const json_t *args = json_object_get(mark, "args");
	assert_string_equal(json_string_value(json_object_get(args, "text")),
			    "'b' is gone (\"x\")");
	assert_int_equal(json_integer_value(json_object_get(args, "step")), 9);
	double last = -1;
	for (size_t i = 10 + TRACE_MARKS; i < json_array_size(ev); i++) {
		const json_t *o = json_array_get(ev, i);
		assert_string_equal(json_string_value(json_object_get(o, "ph")), "X");
		assert_true(json_number_value(json_object_get(o, "ts")) >= last);
		last = json_number_value(json_object_get(o, "ts"));
	}
	const json_t *first = json_array_get(ev, 10 + TRACE_MARKS);
	assert_true(json_number_value(json_object_get(first, "ts")) == 0);
	assert_true(json_number_value(json_object_get(first, "dur")) == 2.5);
	assert_int_equal(strlen(json_string_value(json_object_get(first, "name"))), 23);
	json_decref(doc);
	struct trace_event got[64];
	assert_int_equal(trace_take(t, got, 64), 64);
	assert_int_equal(trace_take(t, got, 64), 36);
	assert_string_equal(got[35].name, "a name that is far too ");
	assert_int_equal(trace_take(t, got, 64), 0);
	must(trace_write(t, in_dir("trace.json"), &e), &e); /* no spans: still a valid file */
	must(json_parse_file(in_dir("trace.json"), 0, &doc, &e), &e);
	json_decref(doc);
	trace_free(t);
}

static void collect(void *ctx, const char *text, size_t n) { buf_add(ctx, text, n); }

static void progress(void **state)
{
	(void)state;
	struct err e = { 0 };
	struct progress *p;
	struct buf b = BUF_INIT;
	struct progress_step s = { .step = 3,
				   .steps = 25,
				   .loss = 2.34567,
				   .learning_rate = 2e-4,
				   .grad_norm = 1.5,
				   .tokens_per_second = 1234.4,
				   .eta = 65,
				   .val_loss = NAN };
	must(progress_new(collect, &b, (struct progress_look){ 0 }, &p, &e), &e);
	progress_step(p, &s, true);
	progress_line(p, "a message");
	progress_part(p, "evaluating", 1, 4);
	s.skipped = true;
	s.experts = 0.83;
	s.val_loss = 2;
	progress_step(p, &s, true);
	progress_step(p, &s, false);
	progress_free(p);
	assert_string_equal(
		b.p,
		"step  3/25  loss  2.3457  lr 2.00e-04  norm   1.500    1234 tokens/s  ETA 1:05\n"
		"a message\n"
		"step  3/25  skipped: loss or gradient is not finite  lr 2.00e-04  experts "
		"there 83 %  norm   1.500    "
		"1234 tokens/s  ETA 1:05  "
		"validation loss 2.0000\n");
	buf_reset(&b);
	/* the bar never wraps: code points, colours not counted */
	for (int columns = 20; columns <= 200; columns += 15) {
		must(progress_new(collect, &b,
				  (struct progress_look){ .columns = columns,
							  .colour = columns % 2 == 0,
							  .utf8 = true },
				  &p, &e),
		     &e);
		for (s.step = 1; s.step < 25; s.step++) {
			buf_reset(&b);
			progress_step(p, &s, false);
			int width = 0;
			for (const char *c = b.p; *c; c++) {
				if (*c == 27) {
					while (!strchr("mJlh", *c))
						c++;
					continue;
				}
				width += *c != '\r' && ((unsigned char)*c & 0xc0) != 0x80;
			}
			assert_true(width > 0 && width < columns);
		}
		progress_free(p);
	}
	buf_release(&b);
	char d[32];
	progress_duration(59.6, d, sizeof d);
	assert_string_equal(d, "1:00");
	progress_duration(7384, d, sizeof d);
	assert_string_equal(d, "2:03:04");
	progress_duration(3 * 86400 + 4 * 3600, d, sizeof d);
	assert_string_equal(d, "3 days 4 h");
	progress_duration(NAN, d, sizeof d);
	assert_string_equal(d, "?");
}

/* What MLflow finds in the folder; resuming cuts off what follows the checkpoint. */
/* The bytes of a field of a protobuf message, of which a message has one or none; of a number its
 * value. */
static bool field(const char *p, size_t n, unsigned want, const char **at_p, uint64_t *n_p)
{
	const unsigned char *b = (const unsigned char *)p, *end = b + n;
	while (b < end) {
		uint64_t v[2] = { 0, 0 };
		for (int i = 0; i < 2; i++) {
			unsigned shift = 0;
			do {
				assert_true(b < end && shift < 64);
				v[i] |= (uint64_t)(*b & 127) << shift;
				shift += 7;
			} while (*b++ & 128);
		}
		assert_true((v[0] & 7) == 0 || (v[0] & 7) == 2);
		const size_t inside = (v[0] & 7) == 2 ? (size_t)v[1] : 0;
		assert_true(inside <= (size_t)(end - b));
		if (v[0] >> 3 == want) {
			*at_p = (const char *)b;
			*n_p = v[1];
			return true;
		}
		b += inside;
	}
	return false;
}

/* The next record of a log of W&B, put together from its parts, whose checksums are right. */
static bool next_record(const struct buf *file, size_t *at, struct buf *out, int *parts)
{
	buf_reset(out);
	for (;;) {
		const size_t left = 32768 - *at % 32768;
		if (left < 7)
			*at += left;
		if (*at + 7 > file->n)
			return false;
		const unsigned char *h = (const unsigned char *)file->p + *at;
		const size_t n = h[4] | (size_t)h[5] << 8;
		assert_true(*at + 7 + n <= file->n && *at % 32768 + 7 + n <= 32768);
		const uint32_t crc = (uint32_t)crc32(0, h + 6, 1);
		assert_int_equal((uint32_t)crc32(crc, h + 7, (uInt)n),
				 h[0] | (uint32_t)h[1] << 8 | (uint32_t)h[2] << 16 |
					 (uint32_t)h[3] << 24);
		assert_true(out->n ? h[6] == 3 || h[6] == 4 : h[6] == 1 || h[6] == 2);
		buf_add(out, (const char *)h + 7, n);
		*at += 7 + n;
		++*parts;
		if (h[6] == 1 || h[6] == 4)
			return true;
	}
}

/* An offline run of W&B: numbered records, a line of the history for each step, over the borders of
 * blocks. */
static void wandb_files(void **state)
{
	(void)state;
	enum { STEPS = 400 };
	struct err e = { 0 };
	struct wandb *w;
	char key[48], path[300];
	json_t *config = json_pack("{s:f, s:s}", "learning_rate", 0.5, "adapter", "lora");
	const struct wandb_run run = { "proj", NULL, "name", config };
	must(wandb_open(in_dir("wandb"), &run, &w, &e), &e);
	json_decref(config);
	for (int s = 1; s <= STEPS; s++)
		for (int k = 0; k < 9; k++) {
			snprintf(key, sizeof key, "train/number-%d", k);
			must(wandb_metric(w, key, s, k ? s * 0.5 : NAN, &e), &e);
		}
	must(wandb_metric(w, "train/late", 3, 1, &e), &e);
	snprintf(path, sizeof path, "%s", wandb_folder(w));
	const char *id = strrchr(path, '-') + 1;
	snprintf(key, sizeof key, "/run-%s.wandb", id);
	memcpy(path + strlen(path), key, strlen(key) + 1);
	wandb_close(w, 0);
	struct buf file = scratch_read(path), rec = BUF_INIT;
	assert_true(file.n > 3 * 32768 && !memcmp(file.p, ":W&B\xe1\xbe\0", 7));
	size_t at = 7;
	int count = 0, history = 0, parts = 0;
	uint64_t n, last = 0;
	const char *p;
	while (next_record(&file, &at, &rec, &parts)) {
		assert_true(field(rec.p, rec.n, 1, &p, &n) && n == (uint64_t)++count);
		if (count == 1)
			assert_true(field(rec.p, rec.n, 21, &p, &n));
		if (count == 2) {
			assert_true(field(rec.p, rec.n, 17, &p, &n));
			assert_non_null(memmem(p, n, "learning_rate", 13));
			const char *name;
			assert_true(field(p, n, 3, &name, &n) && !memcmp(name, "proj", n));
		}
		last = 0;
		if (field(rec.p, rec.n, 2, &p, &n)) {
			const char *step;
			assert_non_null(memmem(p, n, "\"NaN\"", 5));
			assert_null(memmem(p, n, "late", 4));
			assert_true(field(p, n, 2, &step, &n) && field(step, n, 1, &p, &n));
			assert_int_equal(n, ++history);
		} else if (field(rec.p, rec.n, 18, &p, &n)) {
			last = 1;
		}
	}
	assert_true(last && at == file.n && history == STEPS && count == 3 + 2 * STEPS);
	assert_true(parts > count);
	buf_release(&file);
	buf_release(&rec);
}

static void mlflow_files(void **state)
{
	(void)state;
	struct err e = { 0 };
	struct mlflow *m;
	char top[512] = "", path[1024];
	for (int run = 0; run < 2; run++) {
		must(mlflow_open(in_dir("mlruns"), "a \"b\"", "first", run ? 2 : -1, &m, &e), &e);
		must(mlflow_param(m, "optimizer", "lion", &e), &e);
		for (int i = run ? 3 : 1; i <= 4; i++)
			must(mlflow_metric(m, "loss", i, run ? 9 : i == 2 ? NAN : 0.5 * i, &e), &e);
		must(mlflow_metric(m, "eval_loss", 4, run, &e), &e);
		mlflow_close(m, !run);
	}
	DIR *d = opendir(in_dir("mlruns/0"));
	assert_non_null(d);
	for (struct dirent *f; (f = readdir(d));)
		if (strlen(f->d_name) == 32)
			snprintf(top, sizeof top, "mlruns/0/%s", f->d_name);
	closedir(d);
	assert_true(top[0]);
	snprintf(path, sizeof path, "%s/metrics/loss", top);
	struct buf b = scratch_read(in_dir(path));
	double v[4];
	long long step[4];
	char *p = b.p, first[16];
	assert_int_equal(lines(&b), 4);
	assert_int_equal(sscanf(p, "%*s %lf %lld\n%*s %15s %lld\n%*s %lf %lld\n%*s %lf %lld", &v[0],
				&step[0], first, &step[1], &v[2], &step[2], &v[3], &step[3]),
			 8);
	assert_true(v[0] == 0.5 && !strcmp(first, "nan") && v[2] == 9 && v[3] == 9 && step[3] == 4);
	buf_release(&b);
	/* of a long run, with lines that are none: each line is looked at once */
	enum { LINES = 300000 };
	FILE *f = fopen(in_dir(path), "w");
	assert_non_null(f);
	for (int i = 1; i <= LINES; i++)
		fprintf(f, "1700000000000 %d.5 %d\n%s", i, i,
			i % 100000 ? "" : "1 2\n3\n\n1 2 3x\n");
	fclose(f);
	must(mlflow_open(in_dir("mlruns"), "x", "y", LINES - 5, &m, &e), &e);
	mlflow_close(m, 0);
	b = scratch_read(in_dir(path));
	assert_int_equal(lines(&b), LINES - 5);
	buf_release(&b);
	snprintf(path, sizeof path, "%s/metrics/eval_loss", top);
	b = scratch_read(in_dir(path));
	assert_int_equal(lines(&b), 1);
	buf_release(&b);
	snprintf(path, sizeof path, "%s/meta.yaml", top);
	b = scratch_read(in_dir(path));
	assert_true(strstr(b.p, "status: 3\n") && strstr(b.p, "run_name: \"y\"\n"));
	buf_release(&b);
	snprintf(path, sizeof path, "%s/params/optimizer", top);
	b = scratch_read(in_dir(path));
	assert_true(b.n == 4 && !memcmp(b.p, "lion", 4));
	buf_release(&b);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(metrics_of_a_full_disk),
		cmocka_unit_test(going_back_on_a_full_disk),
		cmocka_unit_test(back_and_killed),
		cmocka_unit_test(metrics),
		cmocka_unit_test(mlflow_files),
		cmocka_unit_test(wandb_files),
		cmocka_unit_test(tensorboard),
		cmocka_unit_test(tensorboard_back_and_killed),
		cmocka_unit_test(trace),
		cmocka_unit_test(progress),
	};
	return cmocka_run_group_tests(tests, make_dir, remove_dir);
}
