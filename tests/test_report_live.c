/* SPDX-License-Identifier: Apache-2.0 */
/* The table of the stages as text, and what stands on a small terminal while lines, table and bar
 * come and go. */
#include "base/buf.h"
#include "base/err.h"
#include "base/mem.h"
#include "report/live.h"
#include "report/progress.h"
#include "report/text.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const struct live_stage three[] = {
	{ "local", "box1", "AMD EPYC 7763 64-Core Processor", "0-14", 0.713, 0.1, 700ull << 20,
	  16ull << 30, 113.2e6, 0, NULL },
	{ "box2", "box2", "NVIDIA GeForce RTX 3060", "15-24", 0.402, 0.55, 3ull << 30, 12ull << 30,
	  9.41e6, 0, NULL },
	{ "old", "attic", "cpu", "25-29", NAN, NAN, 0, 0, NAN, 0, NULL },
};

static struct buf table(const struct live_stage *v, int n, struct live_look look)
{
	struct buf b = BUF_INIT;
	live_table(v, n, &look, &b);
	return b;
}

static void as_text(void **state)
{
	(void)state;
	struct buf b =
		table(three, 3, (struct live_look){ .columns = 120, .rows = 20, .utf8 = true });
	assert_string_equal(b.p, "stage  worker  host   device                      layers  busy   "
				 "         waiting           memory   to next\n"
				 "    0  local   box1   AMD EPYC 7763 64-Core Pro…  0-14    "
				 "██████░░  71 %     10 %  0.68 / 16.0 GiB  113 MB/s\n"
				 "    1  box2    box2   NVIDIA GeForce RTX 3060     15-24   "
				 "███░░░░░  40 %     55 %  3.00 / 12.0 GiB  9.4 MB/s\n"
				 "    2  old     attic  cpu                         25-29   "
				 "░░░░░░░░     -        -                -\n");
	buf_release(&b);
	b = table(three, 2, (struct live_look){ .columns = 60, .rows = 20 });
	assert_string_equal(b.p, "stage  worker  layers  busy            waiting   to next\n"
				 "    0  local   0-14    ######..  71 %     10 %  113 MB/s\n"
				 "    1  box2    15-24   ###.....  40 %     55 %  9.4 MB/s\n");
	buf_release(&b);
	live_line(three, 2, &b);
	assert_string_equal(b.p, "0 local busy 71 % waiting 10 %, to next 113 MB/s; 1 box2 busy 40 "
				 "% waiting 55 %, to next 9.4 MB/s");
	buf_release(&b);
	struct live_stage slow = three[1];
	slow.rate = 58.9e3;
	live_line(&slow, 1, &b);
	assert_non_null(strstr(b.p, "to next 59 kB/s"));
	buf_release(&b);
	/* a machine says its device is an escape sequence */
	struct live_stage bad = three[0];
	bad.device = "\033[2J\033]0;x\007\u202e";
	bad.worker = "two\nlines";
	b = table(&bad, 1, (struct live_look){ .columns = 200, .rows = 20, .utf8 = true });
	assert_null(strchr(b.p, 27));
	assert_null(strchr(b.p, 7));
	assert_non_null(strstr(b.p, "two?lines"));
	buf_release(&b);
}

static int lines_of(const char *s, int *widest)
{
	char line[1024];
	int n = 0;
	*widest = 0;
	for (const char *end; *s; s = end + 1, n++) {
		end = strchr(s, '\n');
		assert_non_null(end);
		snprintf(line, sizeof line, "%.*s", (int)(end - s), s);
		int w = text_width(line);
		*widest = w > *widest ? w : *widest;
	}
	return n;
}

/* Whatever the terminal: no line too long, no line too many, the first and the busiest stage are
 * there. */
static void on_any_terminal(void **state)
{
	(void)state;
	struct live_stage v[40];
	char name[40][16];
	for (int i = 0; i < 40; i++) {
		snprintf(name[i], sizeof name[i], "w%d", i);
		v[i] = three[i % 2];
		v[i].worker = name[i];
		v[i].busy = i == 33 ? 0.99 : 0.3 + 0.01 * (i * 7 % 40);
	}
	for (int n = 1; n <= 40; n += 3)
		for (int columns = 20; columns <= 160; columns += 7)
			for (int rows = 4; rows <= 30; rows += 5) {
				int widest;
				struct buf b = table(
					v, n,
					(struct live_look){ columns, rows, .colour = columns % 2,
							    .utf8 = columns % 3 != 0 });
				int got = lines_of(b.p, &widest);
				if (widest >= columns || got > rows)
					fail_msg("%d stages, %d x %d: %d columns, %d lines\n%s", n,
						 columns, rows, widest, got, b.p);
				if (n <= 12 && rows > n + 1)
					assert_int_equal(got, n + 1);
				buf_release(&b);
			}
	struct buf b = table(v, 40, (struct live_look){ 100, 40, .utf8 = false });
	assert_non_null(strstr(b.p, "    0  w0"));
	assert_non_null(strstr(b.p, "   33  w33"));
	assert_non_null(strstr(b.p, "\n... and 29 more\n"));
	buf_release(&b);
}

/* ---- a terminal ---- */

enum { ROWS = 200, WIDE = 200 };
struct screen {
	char cell[ROWS][WIDE]; /* '#' for whatever is not ASCII */
	int row, column, columns;
	bool wraps;
};

static void type(void *ctx, const char *s, size_t n)
{
	struct screen *t = ctx;
	for (const char *end = s + n; s < end; s++) {
		if (*s == 27 && s[2] == '?') { /* wrapping: "\033[?7l", "\033[?7h" */
			assert_int_equal(s[3], '7');
			t->wraps = s[4] == 'h';
			s += 4;
		} else if (*s == 27) {
			int k = (int)strtol(s + 2, (char **)&s, 10);
			if (*s == 'A')
				t->row -= k;
			else if (*s == 'J') {
				memset(&t->cell[t->row][t->column], 0, (size_t)(WIDE - t->column));
				memset(t->cell[t->row + 1], 0,
				       sizeof t->cell[0] * (size_t)(ROWS - t->row - 1));
			} else
				assert_int_equal(*s, 'm');
			assert_true(t->row >= 0);
		} else if (*s == '\r') {
			t->column = 0;
		} else if (*s == '\n') {
			t->row++;
			t->column = 0;
		} else if (((unsigned char)*s & 0xc0) != 0x80) {
			if (t->column == t->columns && !t->wraps)
				t->column--;
			if (t->column == t->columns) {
				t->row++;
				t->column = 0;
			}
			t->cell[t->row][t->column++] = (unsigned char)*s < 128 ? *s : '#';
		}
		assert_true(t->row < ROWS);
	}
}

static void shows(const struct screen *t, int row, const char *begin)
{
	if (strncmp(t->cell[row], begin, strlen(begin)))
		fail_msg("line %d is '%.80s', wanted '%s...'", row, t->cell[row], begin);
}

static void text_table(void *ctx, int columns, int rows, struct buf *out)
{
	(void)columns, (void)rows;
	buf_adds(out, ctx);
}

static void narrow(void *ctx, int *columns_p, int *rows_p)
{
	struct screen *t = ctx;
	*columns_p = t->columns;
	*rows_p = 24;
}

static void on_screen(void **state)
{
	(void)state;
	struct screen *t = mem_zalloc(sizeof *t);
	struct progress *p;
	struct err e = { 0 };
	t->columns = 100;
	assert_int_equal(
		progress_new(type, t,
			     (struct progress_look){
				     .columns = 100, .rows = 24, .utf8 = true, .size = narrow },
			     &p, &e),
		0);
	struct progress_step s = { .steps = 10,
				   .loss = 2,
				   .grad_norm = NAN,
				   .eta = 5,
				   .val_loss = NAN,
				   .tokens_per_second = 100 };
	progress_line(p, "hello");
	for (s.step = 1; s.step <= 3; s.step++) {
		progress_table(p, text_table, "stage\n    0\n    1\n");
		progress_step(p, &s, s.step == 2);
	}
	shows(t, 0, "hello");
	shows(t, 1, "step  2/10");
	shows(t, 2, "stage");
	shows(t, 4, "    1");
	shows(t, 5, "3/10 #");
	assert_string_equal(t->cell[6], "");
	progress_table(p, text_table, "stage\n");
	progress_line(p, "a message");
	shows(t, 2, "a message");
	shows(t, 3, "stage");
	shows(t, 4, "3/10 #");
	assert_string_equal(t->cell[5], "");
	progress_part(p, "evaluating", 1, 2);
	shows(t, 4, "evaluating #");
	/* half as wide: table and bar are cut to what fits */
	t->columns = 25;
	progress_refresh(p);
	shows(t, 2, "a message");
	shows(t, 3, "stage");
	shows(t, 4, "evaluating");
	assert_int_equal(t->row, 3);
	assert_string_equal(t->cell[5], "");
	s.step = 10;
	progress_step(p, &s, true); /* the last step: neither bar nor table */
	shows(t, 3, "step 10/10");
	progress_free(p);
	assert_string_equal(t->cell[t->row], "");
	assert_int_equal(t->column, 0);
	mem_free(t);
}

/* With an interval a change waits until it is due; a refresh brings it. */
static void not_too_often(void **state)
{
	(void)state;
	struct screen *t = mem_zalloc(sizeof *t);
	struct progress *p;
	struct err e = { 0 };
	t->columns = 60;
	assert_int_equal(progress_new(type, t,
				      (struct progress_look){ .columns = 60,
							      .rows = 24,
							      .interval = INT64_MAX / 4,
							      .size = narrow },
				      &p, &e),
			 0);
	struct progress_step s = { .step = 1,
				   .steps = 10,
				   .loss = 2,
				   .grad_norm = NAN,
				   .eta = NAN,
				   .val_loss = NAN,
				   .tokens_per_second = 1 };
	progress_step(p, &s, true); /* a line of its own draws at once */
	shows(t, 1, "1/10 ");
	s.step = 2;
	progress_step(p, &s, false);
	progress_refresh(p);
	shows(t, 1, "1/10 ");
	t->columns = 59;
	progress_refresh(p);
	shows(t, 1, "2/10 ");
	progress_free(p);
	assert_string_equal(t->cell[1], "");
	mem_free(t);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(as_text),
		cmocka_unit_test(on_any_terminal),
		cmocka_unit_test(on_screen),
		cmocka_unit_test(not_too_often),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
