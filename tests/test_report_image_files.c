/* SPDX-License-Identifier: Apache-2.0 */
/* test_report_image_files.c - picture files of a run: loss.png and its axes, architecture.*. What
 * the eye would see in them: test_report_pictures.c. */
#include "base/buf.h"
#include "base/err.h"
#include "base/mem.h"
#include "report/plot.h"
#include "report/plot_axis.h"
#include "report/topology.h"
#include "support/ok.h"
#include "support/scratch.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

static void ticks(void **state)
{
	(void)state;
	char s[32];
	struct plot_ticks t = plot_ticks(0.93, 2.9, 8, 0);
	assert_true(fabs(t.first - 1.0) < 1e-12 && t.step == 0.5 && t.count == 4 && t.digits == 1);
	t = plot_ticks(0, 3000, 12, 1);
	assert_true(t.step == 500 && t.count == 7);
	plot_tick_text(3000, &t, s, sizeof s);
	assert_string_equal(s, "3,000");
	t = plot_ticks(0, 2.2e-4, 3, 0);
	plot_tick_text(t.first + t.step, &t, s, sizeof s);
	assert_string_equal(s, "1e-4");
	t = plot_ticks(0, 3, 12, 1);
	assert_true(t.step == 1 && t.count == 4);
	t = plot_ticks(5, 5, 8, 0);
	assert_int_equal(t.count, 1);
	/* Never more than asked for, never outside. */
	for (double lo = -3; lo < 3; lo += 0.37) {
		for (double span = 1e-7; span < 1e7; span *= 3.1) {
			t = plot_ticks(lo, lo + span, 8, 0);
			assert_true(t.count >= 1 && t.count <= 9);
			assert_true(t.first >= lo - 1e-6 * span &&
				    t.first + (t.count - 1) * t.step <= lo + span * (1 + 1e-6));
		}
	}
}

static void png_size(const char *path, uint32_t *w, uint32_t *h)
{
	struct buf b = scratch_read(path);
	assert_true(b.n > 1000);
	assert_memory_equal(b.p, "\x89PNG\r\n\x1a\n", 8);
	*w = (uint32_t)(unsigned char)b.p[18] << 8 | (unsigned char)b.p[19];
	*h = (uint32_t)(unsigned char)b.p[22] << 8 | (unsigned char)b.p[23];
	buf_release(&b);
}

static void loss_plot(void **state)
{
	(void)state;
	struct err err = { 0 };
	double x[200], y[200], r[200], vx[3] = { 0, 100, 200 }, vy[3] = { 3, 2, NAN };
	for (int i = 0; i < 200; i++) {
		x[i] = i + 1;
		y[i] = i % 50 == 7 ? NAN : 3 * exp(-i / 50.0);
		r[i] = 1e-4;
	}
	size_t n[] = { 200, 30, 1, 8 }; /* smoothed, plain, one point, and one that ends in a gap */
	for (size_t i = 0; i < ARRAY_LEN(n); i++) {
		struct plot_loss p = { "a run",
				       i ? NULL : "with facts",
				       { x, y, r, n[i], vx, vy, i ? 0 : 3 } };
		uint32_t w, h;
		OK(plot_loss(scratch("loss.png"), &p, &err));
		png_size(scratch("loss.png"), &w, &h);
		assert_int_equal(w, 1600);
		assert_int_equal(h, 900);
	}
	struct plot_loss none = { "nothing", NULL, { x, y, r, 0, vx, vy, 0 } };
	assert_int_equal(plot_loss(scratch("none.png"), &none, &err), ERR_INPUT);
	none.curve.nstep = 1;
	y[0] = NAN;
	assert_int_equal(plot_loss(scratch("none.png"), &none, &err), ERR_INPUT);
	assert_int_not_equal(access(scratch("none.png"), F_OK), 0);
	y[0] = 1;
	assert_int_equal(plot_loss("/nowhere/loss.png", &none, &err), ERR_IO);
}

static const struct topology_machine machine[] = { { "desk <1> & \"more\"", "10.0.0.1", true },
						   { "old-box", NULL, false },
						   { "quiet", NULL, true } };
static const struct topology_device device[] = {
	{ "local", 0, "cuda:0", "RTX 3060", 0, 0, 20, true, false, 1, 6ull << 30, 12ull << 30,
	  0.934, NULL },
	{ "1", 1, "opencl:0", "", 1, 20, 30, false, true, 0.5, 0, 4ull << 30, 0.5, "20-24, 28-29" },
	{ "2", 1, "cpu:0", "Old CPU", -1, 0, 0, false, false, 0, 0, 0, 0, NULL },
	{ "3", 1, "cpu:1", "Old CPU", -1, 0, 0, false, false, 0, 0, 0, 0, NULL },
};
static const struct topology_link link_row[] = { { 0, 1, 117.5e6, 0.00021, "tls", true } };
static const struct topology job = {
	"SmolLM2 on 2 devices", "30 layers", machine, 3, device, 4, link_row, 1
};

static void golden(const char *path, const struct buf *b)
{
	const char *const full = repository("tests/golden/report/%s", path);
	struct buf want = scratch_read(full);
	if (want.n != b->n || memcmp(want.p, b->p, b->n))
		fail_msg("not as in %s:\n%s", full, b->p);
	buf_release(&want);
}

static void topology_texts(void **state)
{
	(void)state;
	struct buf b = BUF_INIT;
	topology_dot(&job, &b);
	golden("architecture.dot", &b);
	buf_reset(&b);
	topology_mermaid(&job, &b);
	golden("architecture.mmd", &b);
	buf_release(&b);
}

static void topology_pictures(void **state)
{
	(void)state;
	struct err err = { 0 };
	uint32_t w, h;
	OK(topology_write(&job, scratch("."), "pdf", &err));
	png_size(scratch("architecture.png"), &w, &h);
	assert_true(w > 600 && h > 200);
	struct buf b = scratch_read(scratch("architecture.svg"));
	assert_non_null(strstr(b.p, "<svg"));
	assert_non_null(strstr(b.p, "RTX 3060"));
	assert_non_null(strstr(b.p, "desk &lt;1&gt; &amp; &quot;more&quot;"));
	buf_release(&b);
	b = scratch_read(scratch("architecture.pdf"));
	assert_memory_equal(b.p, "%PDF", 4);
	buf_release(&b);
	assert_int_equal(topology_write(&job, "/nowhere", NULL, &err), ERR_IO);
}

/* Many devices: rows that wind where machines stand in the order of the pipeline; else links all
 * over, which must not break the library that draws. */
static void topology_of_many(void **state)
{
	(void)state;
	enum { N = 20, LEFT_OUT = 2 };
	struct err err = { 0 };
	struct topology_machine m[5];
	struct topology_device d[N];
	struct topology_link l[N];
	static const char *const name[] = { "box0", "box1", "box2", "box3", "box4" };
	struct topology t = {
		.title = "many", .machine = m, .nmachine = 5, .device = d, .ndevice = N, .link = l
	};
	for (size_t i = 0; i < 5; i++)
		m[i] = (struct topology_machine){ .name = name[i], .coordinator = i == 0 };
	for (int scattered = 0; scattered < 2; scattered++) {
		struct buf b = BUF_INIT;
		t.nlink = 0;
		for (size_t i = 0; i < N; i++) {
			int stage = i < N - LEFT_OUT ? (int)i : -1;
			d[i] = (struct topology_device){ .id = "w",
							 .machine = scattered ? i * 7 % 5 : i / 4,
							 .backend = i % 2 ? "cuda:0" : "cpu",
							 .stage = stage,
							 .first = (int64_t)i,
							 .last = (int64_t)i + 1,
							 .share = NAN,
							 .busy = 0.5 };
			if (i && stage >= 0)
				l[t.nlink++] = (struct topology_link){
					.from = i - 1, .to = i, .bandwidth = 1e8, .latency = NAN
				};
		}
		topology_dot(&t, &b);
		assert_int_equal(strstr(b.p, "constraint=false") != NULL, !scattered);
		assert_int_equal(strstr(b.p, "xlabel=") != NULL, scattered);
		buf_release(&b);
		uint32_t w, h;
		OK(topology_write(&t, scratch("."), NULL, &err));
		png_size(scratch("architecture.png"), &w, &h);
		assert_true(scattered || (w > h && w < 6 * h));
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(ticks),
		cmocka_unit_test(loss_plot),
		cmocka_unit_test(topology_texts),
		cmocka_unit_test(topology_pictures),
		cmocka_unit_test(topology_of_many),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
