/* SPDX-License-Identifier: Apache-2.0 */
/* What the eye would see in the pictures of 1, 2, 3, 8 and 32 devices: no text over another, a
 * colour for each device; and where the smoothed curve of loss.png ends. */
#include "base/buf.h"
#include "base/err.h"
#include "file/atomic.h"
#include "plan/profile.h"
#include "report/canvas.h"
#include "report/dashboard.h"
#include "report/plot_axis.h"
#include "report/topology.h"
#include "support/scratch.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const int numbers[] = { 1, 2, 3, 8, 32 };

static void profile(struct profile *p, const char *text)
{
	struct err e = { 0 };
	if (profile_read_text(p, text, strlen(text), "a test", &e) < 0)
		fail_msg("%s", e.msg);
}

static struct buf page(const struct profile *p)
{
	struct buf b = BUF_INIT;
	struct err e = { 0 };
	dashboard_html(p, &b);
	assert_int_equal(buf_ok(&b, &e), 0);
	return b;
}

static int count(const char *s, const char *what)
{
	int n = 0;
	for (; (s = strstr(s, what)); s += strlen(what))
		n++;
	return n;
}

/* ---- where the texts of a picture stand ---- */

struct place {
	double left, right, top, bottom;
	char text[256];
};

/* The number behind ` name="`. */
static double attribute(const char *head, const char *name)
{
	char key[32];
	snprintf(key, sizeof key, " %s=\"", name);
	const char *at = strstr(head, key);
	assert_non_null(at);
	return strtod(at + strlen(key), NULL);
}

/* The next text of a picture; false: there is none before its end. */
static bool next_text(const char **at, const char *end, struct place *t)
{
	const char *s = strstr(*at, "<text ");
	if (!s || s > end)
		return false;
	const char *open = strchr(s, '>') + 1, *close = strstr(s, "</text>");
	char head[256];
	size_t n = 0;
	snprintf(head, sizeof head, "%.*s", (int)(open - s), s);
	for (const char *p = open; p < close && n + 1 < sizeof t->text; p++) {
		t->text[n++] = *p == '&' ? '-' : *p;
		p = *p == '&' ? strchr(p, ';') : p;
	}
	t->text[n] = 0;
	struct canvas_text how = { .size = attribute(head, "font-size"),
				   .bold = strstr(head, "font-weight") != NULL };
	double width = canvas_width(t->text, how), y = attribute(head, "y");
	t->left = attribute(head, "x") - (strstr(head, "\"end\"")      ? 1
					  : strstr(head, "\"middle\"") ? 0.5
								       : 0) *
						 width;
	t->right = t->left + width;
	t->top = y - 0.72 * how.size; /* capital letters */
	t->bottom = y;
	*at = close;
	return true;
}

/* Blanks, and the blocks of bars and legends, which are shapes. */
static bool blank(const char *s) { return s[strspn(s, " -■█")] == 0; }

/* Each picture on a page: no text over another. With `inside` none leaves it. */
static void no_text_over_text(const char *page, bool inside, int devices)
{
	static struct place t[1024];
	for (const char *at = page; (at = strstr(at, "<svg"));) {
		const char *end = strstr(at, "</svg>");
		double width, height;
		int n = 0;
		assert_int_equal(
			sscanf(strstr(at, "viewBox"), "viewBox=\"%*f %*f %lf %lf", &width, &height),
			2);
		while (next_text(&at, end, &t[n]))
			assert_true((n += !blank(t[n].text)) < 1024);
		assert_true(n > 2);
		for (int i = 0; i < n; i++) {
			if (inside && (t[i].left < 0 || t[i].right > width || t[i].bottom > height))
				fail_msg("%d devices: '%s' leaves its card", devices, t[i].text);
			for (int k = 0; k < i; k++)
				if (t[i].left < t[k].right - 0.5 && t[k].left < t[i].right - 0.5 &&
				    t[i].top < t[k].bottom && t[k].top < t[i].bottom)
					fail_msg("%d devices: '%s' is over '%s'", devices,
						 t[i].text, t[k].text);
		}
		at = end;
	}
}

/* Whatever the number of devices and the length of their names: no text is over another, and each
 * device that is shown has a colour of its own. What a link inside a host would do is not shown as
 * if it had been measured. */
static void profile_cards(void **state)
{
	(void)state;
	for (int k = 0; k < 10; k++) {
		struct profile p;
		struct buf text = BUF_INIT;
		int n = numbers[k / 2];
		buf_addf(&text,
			 "{\"version\": 1, \"sequence_len\": 512, \"dtype\": \"bfloat16\", "
			 "\"global_batch\": 8, \"model\": {\"name\": \"m\", \"layers\": 12, "
			 "\"hidden\": 64, \"parameters\": 1e8, \"parameters_per_layer\": 4e6}, "
			 "\"devices\": [");
		for (int i = 0; i < n; i++)
			buf_addf(&text,
				 "%s{\"id\": \"workstation-of-the-lab-%d\", \"kind\": \"AMD EPYC "
				 "7763 64-Core Processor\", \"host\": \"machine-number-%d\", "
				 "\"memory_gib\": %g, \"used_gib\": 5.5, \"forward_ms\": "
				 "{\"table\": "
				 "[%d, %d]}, \"backward_ms\": {\"table\": [1, 2]}}",
				 i ? ", " : "", i, k % 2 ? i : i / 4, 5.6 + i, 1 + i * 9 % 40,
				 2 + i * 9 % 40);
		buf_addf(&text, "], \"links\": [{\"hosts\": [\"*\", \"*\"], "
				"\"bandwidth_gbytes_per_s\": 0.1175, \"latency_ms\": 0.25}]}");
		profile(&p, text.p);
		struct buf b = page(&p);
		no_text_over_text(b.p, true, n);
		for (int i = 0; i < n && i < 16; i++) {
			char bar[64];
			snprintf(bar, sizeof bar, "<circle class=\"k%d\"", CANVAS_FIRST_SERIES + i);
			if (!strstr(b.p, bar))
				fail_msg("%d devices: device %d has no colour of its own", n, i);
		}
		int hosts = p.hosts < 10 ? p.hosts : 10;
		assert_int_equal(count(b.p, ">one host<"), hosts);
		assert_int_equal(count(b.p, ">118 MB/s<"), hosts * (hosts - 1));
		assert_int_equal(count(b.p, ">log. ms<") + count(b.p, ">ms<"), 1);
		buf_release(&b);
		buf_release(&text);
		profile_release(&p);
	}
}

/* Machines with four devices each, and with one each. */
static void architecture(void **state)
{
	(void)state;
	enum { MOST = 32 };
	static const char *const kind[] = { "cuda:0", "cpu", "hip:1" };
	static const char *const name[] = { "NVIDIA GeForce RTX 3090",
					    "AMD EPYC 7763 64-Core Processor", "Tesla P40" };
	static struct topology_machine m[MOST];
	static struct topology_device d[MOST];
	static struct topology_link l[MOST];
	static char host[MOST][24], address[MOST][24], id[MOST][24];
	for (int k = 0; k < 10; k++) {
		int n = numbers[k / 2], each = k % 2 ? 1 : 4;
		struct topology t = { .title = "SmolLM2-135M-Instruct, LoRA",
				      .subtitle = "30 layers, 1f1b, 8 microbatches of 1",
				      .machine = m,
				      .nmachine = (size_t)((n + each - 1) / each),
				      .device = d,
				      .ndevice = (size_t)n,
				      .link = l };
		for (int i = 0; i < n; i++) {
			snprintf(host[i], sizeof host[i], "box%d", i);
			snprintf(address[i], sizeof address[i], "192.168.1.%d", 10 + i);
			snprintf(id[i], sizeof id[i], "w%d", i);
			m[i] = (struct topology_machine){ host[i], address[i], i == 0 };
			d[i] = (struct topology_device){ .id = id[i],
							 .machine = (size_t)(i / each),
							 .backend = kind[i % 3],
							 .name = name[i % 3],
							 .stage = i < 30 ? i : -1,
							 .first = i,
							 .last = i + 1,
							 .share = NAN,
							 .mem_need = 1u << 30,
							 .mem_total = 24ull << 30,
							 .busy = 0.5 };
			if (i > 0 && i < 30)
				l[t.nlink++] = (struct topology_link){ .from = (size_t)i - 1,
								       .to = (size_t)i,
								       .bandwidth = 1.17e8,
								       .latency = 2e-4,
								       .transport = "tls",
								       .encrypted = true };
		}
		struct err e = { 0 };
		struct buf b = BUF_INIT;
		if (dir_make(scratch("a"), &e) < 0 ||
		    topology_write(&t, scratch("a"), NULL, &e) < 0 ||
		    buf_read_file(&b, scratch("a/architecture.svg"), 0, &e) < 0)
			fail_msg("%s", e.msg);
		no_text_over_text(b.p, false, n);
		int width = 0, height = 0;
		assert_int_equal(sscanf(strstr(b.p, "width="), "width=\"%dpt\" height=\"%dpt",
					&width, &height),
				 2);
		if (n > 4 && width > 6 * height) /* a strip that no screen shows as a whole */
			fail_msg("%d devices: %d x %d", n, width, height);
		buf_release(&b);
	}
}

/* The last value is far from the others: the curve ends in a mean, and that is the number at its
 * end (plot.c writes the last value of the curve that it draws). */
static void smoothed_loss(void **state)
{
	(void)state;
	enum { N = 40 };
	double y[N], out[2 * N];
	for (int n = PLOT_SMOOTH_FROM; n <= N; n++) {
		for (int i = 0; i < n; i++)
			y[i] = i == n - 1 ? 0.346 : 0.6;
		plot_smooth(y, (size_t)n, out);
		assert_true(out[n - 1] > 0.45 && out[n - 1] < 0.6);
		assert_true(out[0] > 0.59 && out[0] <= 0.6 + 1e-12);
		y[n - 1] = NAN; /* a skipped step */
		plot_smooth(y, (size_t)n, out);
		assert_true(fabs(out[n - 1] - 0.6) < 1e-12);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(profile_cards),
		cmocka_unit_test(architecture),
		cmocka_unit_test(smoothed_loss),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
