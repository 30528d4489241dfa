/* SPDX-License-Identifier: Apache-2.0 */
/* The display on a pseudo-terminal whose size changes thousands of times: no line above the table
 * is lost, and at the end table and bar are there once. The terminal at the other end is modelled
 * here, in both kinds: one that wraps its lines anew when its width changes, one that cuts them. */
#include "base/buf.h"
#include "base/err.h"
#include "base/mem.h"
#include "base/rng.h"
#include "report/live.h"
#include "report/progress.h"

#include <math.h>
#include <pty.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#include <cmocka.h>

enum { LINES = 40000, WIDE = 256, OPS = 6000, STAGES = 3 };

/* A line is what was written up to a newline. Where lines are wrapped, it takes several rows. */
struct terminal {
	char (*line)[WIDE]; /* '#' for whatever is not ASCII */
	int length[LINES];
	int n, at, offset; /* lines; the cursor's line and place in it */
	int columns, rows;
	bool cuts, wraps; /* cuts: lines, when the width changes; wraps: text, at the last column */
	int master, slave;
	size_t sent, read;
};

static int rows_of(const struct terminal *t, int i)
{
	return t->cuts || !t->length[i] ? 1 : (t->length[i] + t->columns - 1) / t->columns;
}

/* The cursor's row in its line. Behind the last column it is still in that row. */
static int row_of_cursor(const struct terminal *t)
{
	if (t->cuts)
		return 0;
	return t->offset && t->offset == t->length[t->at] && t->offset % t->columns == 0
		       ? t->offset / t->columns - 1
		       : t->offset / t->columns;
}

static void down(struct terminal *t)
{
	int row = row_of_cursor(t);
	if (row + 1 < rows_of(t, t->at)) {
		t->offset = (row + 1) * t->columns;
		return;
	}
	t->at++;
	t->offset = 0;
	assert_true(t->at < LINES);
	if (t->at == t->n)
		t->length[t->n++] = 0;
}

/* Not above the first row of the screen. */
static void up(struct terminal *t, int k)
{
	int row = row_of_cursor(t), below = rows_of(t, t->at) - row;
	assert_true(t->offset == (t->cuts ? 0 : row * t->columns));
	for (int i = t->at + 1; i < t->n; i++)
		below += rows_of(t, i);
	for (; k > 0 && below < t->rows && (row > 0 || t->at > 0); k--, below++) {
		if (row == 0)
			row = rows_of(t, --t->at);
		row--;
	}
	t->offset = t->cuts ? 0 : row * t->columns;
}

static void put(struct terminal *t, char c)
{
	int row = row_of_cursor(t), column = t->offset - row * t->columns;
	if (column == t->columns && !t->wraps)
		t->offset--;
	else if (column == t->columns && t->cuts)
		down(t);
	assert_true(t->offset < WIDE);
	t->line[t->at][t->offset++] = c;
	if (t->offset > t->length[t->at])
		t->length[t->at] = t->offset;
}

static void type(struct terminal *t, const char *s, size_t n)
{
	for (const char *end = s + n; s < end; s++) {
		if (*s == 27 && s[2] == '?') {
			assert_int_equal(s[3], '7');
			t->wraps = s[4] == 'h';
			s += 4;
		} else if (*s == 27) {
			int k = (int)strtol(s + 2, (char **)&s, 10);
			if (*s == 'A') {
				up(t, k);
			} else if (*s == 'J') {
				t->length[t->at] = t->offset;
				t->n = t->at + 1;
			} else {
				assert_int_equal(*s, 'm');
			}
		} else if (*s == '\r') {
			t->offset = t->cuts ? 0 : row_of_cursor(t) * t->columns;
		} else if (*s == '\n') {
			down(t);
		} else if (((unsigned char)*s & 0xc0) != 0x80) {
			put(t, (unsigned char)*s < 128 ? *s : '#');
		}
	}
}

/* What was written and is on its way: the terminal reads it now. */
static void receive(struct terminal *t)
{
	static char b[1 << 16];
	size_t n = 0;
	while (t->read + n < t->sent) {
		ssize_t got = read(t->master, b + n, sizeof b - n);
		assert_true(got > 0);
		n += (size_t)got;
	}
	t->read += n;
	type(t, b, n);
}

static void resize(struct terminal *t, int columns, int rows)
{
	struct winsize w = { .ws_col = (unsigned short)columns, .ws_row = (unsigned short)rows };
	assert_int_equal(ioctl(t->master, TIOCSWINSZ, &w), 0);
	t->columns = columns;
	t->rows = rows;
	for (int i = 0; t->cuts && i < t->n; i++)
		t->length[i] = t->length[i] < columns ? t->length[i] : columns;
	if (t->cuts && t->offset > columns)
		t->offset = columns;
}

static void write_pty(void *ctx, const char *text, size_t n)
{
	struct terminal *t = ctx;
	assert_true(n < 4000); /* what a pseudo-terminal takes without a reader */
	assert_int_equal(write(t->slave, text, n), (ssize_t)n);
	t->sent += n;
}

static void size_pty(void *ctx, int *columns_p, int *rows_p)
{
	struct terminal *t = ctx;
	struct winsize w;
	assert_int_equal(ioctl(t->slave, TIOCGWINSZ, &w), 0);
	*columns_p = w.ws_col;
	*rows_p = w.ws_row;
}

static void stages(void *ctx, int columns, int rows, struct buf *out)
{
	static const struct live_stage v[STAGES] = {
		{ "local", "box1", "AMD EPYC 7763 64-Core", "0 to 14", 0.7, 0.1, 1 << 30,
		  1ull << 34, 1e8, 0, NULL },
		{ "box2", "box2", "NVIDIA GeForce RTX 3060", "15 to 24", 0.4, 0.5, 1 << 30,
		  1ull << 34, 9e6, 0, NULL },
		{ "old", "attic", "cpu", "25 to 29", NAN, NAN, 0, 0, NAN, 0, NULL },
	};
	(void)ctx;
	live_table(v, STAGES,
		   &(struct live_look){ .columns = columns, .rows = rows - 2, .utf8 = true }, out);
}

static int random_below(uint64_t *seed, int n) { return (int)(rng_mix64((*seed)++) % (uint64_t)n); }

static int count(const struct terminal *t, const char *begin)
{
	int n = 0;
	for (int i = 0; i < t->n; i++)
		n += t->length[i] >= (int)strlen(begin) &&
		     !strncmp(t->line[i], begin, strlen(begin));
	return n;
}

static void begin_terminal(struct terminal *t, bool cuts)
{
	struct termios raw;
	*t = (struct terminal){
		.line = mem_array(LINES, WIDE), .n = 1, .cuts = cuts, .wraps = true
	};
	assert_non_null(t->line);
	assert_int_equal(openpty(&t->master, &t->slave, NULL, NULL, NULL), 0);
	assert_int_equal(tcgetattr(t->slave, &raw), 0);
	cfmakeraw(&raw);
	assert_int_equal(tcsetattr(t->slave, TCSANOW, &raw), 0);
	resize(t, 100, 30);
}

/* Every second time the size changes while text is on its way to the terminal, so that the program
 * could not know it. */
static void many_sizes(bool cuts, uint64_t seed)
{
	struct terminal *t = mem_zalloc(sizeof *t);
	struct progress *p;
	struct err e = { 0 };
	int lines = 0, sizes = 0;
	begin_terminal(t, cuts);
	struct progress_look look = { .columns = 100, .rows = 30, .utf8 = true, .size = size_pty };
	if (progress_new(write_pty, t, look, &p, &e) < 0)
		fail_msg("%s", e.msg);
	struct progress_step s = { .steps = 100000,
				   .loss = 2,
				   .grad_norm = NAN,
				   .eta = 5,
				   .val_loss = NAN,
				   .tokens_per_second = 100 };
	progress_table(p, stages, NULL);
	for (int i = 0; i < OPS; i++) {
		int what = random_below(&seed, 10);
		if (what < 3) {
			char text[64];
			snprintf(text, sizeof text, "line %d.", lines++);
			progress_line(p, text);
		} else if (what < 5) {
			s.step++;
			progress_step(p, &s, false);
		} else if (what < 8) {
			progress_refresh(p);
		}
		if (what >= 8 || random_below(&seed, 2))
			receive(t);
		if (what >= 8 || random_below(&seed, 3) == 0) {
			resize(t, 30 + random_below(&seed, 120), 24 + random_below(&seed, 20));
			sizes++;
		}
		receive(t);
	}
	progress_refresh(p);
	receive(t);
	for (int k = 0, at = 0; k < lines; k++) {
		char text[64];
		int n = snprintf(text, sizeof text, "line %d.", k);
		while (at < t->n && (t->length[at] != n || strncmp(t->line[at], text, (size_t)n)))
			at++;
		if (at == t->n)
			fail_msg("%s terminal: '%s' of %d lines is lost or not in its place",
				 cuts ? "cutting" : "wrapping", text, lines);
	}
	const char *const table[] = { "stage ", "    0 ", "    1 ", "    2 " };
	for (int k = 0; k <= STAGES; k++) {
		int n = count(t, table[k]);
		if (n != 1)
			fail_msg("%s terminal: '%s' is there %d times",
				 cuts ? "cutting" : "wrapping", table[k], n);
		assert_memory_equal(t->line[t->n - 2 - STAGES + k], table[k], 6);
	}
	progress_free(p);
	receive(t);
	assert_int_equal(t->n, lines + 1);
	assert_true(sizes > OPS / 10);
	close(t->master);
	close(t->slave);
	mem_free(t->line);
	mem_free(t);
}

static void lines_are_wrapped(void **state)
{
	(void)state;
	many_sizes(false, 1);
}

static void lines_are_cut(void **state)
{
	(void)state;
	many_sizes(true, 2);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(lines_are_wrapped),
		cmocka_unit_test(lines_are_cut),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
