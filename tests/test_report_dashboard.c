/* SPDX-License-Identifier: Apache-2.0 */
/* The picture and the page of a profile: what they say, that text from the file stays text, and
 * that odd profiles are drawn too. */
#include "base/buf.h"
#include "base/err.h"
#include "base/json.h"
#include "file/atomic.h"
#include "plan/profile.h"
#include "report/dashboard.h"
#include "report/plan_trace.h"
#include "report/text.h"
#include "support/scratch.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

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

#define MODEL                                                                                      \
	"\"version\": 1, \"sequence_len\": 512, \"dtype\": \"bfloat16\", \"global_batch\": 8, "    \
	"\"model\": {\"name\": %s, "                                                               \
	"\"layers\": 12, \"hidden\": 64, \"parameters\": 1e8, \"parameters_per_layer\": 4e6}"

static size_t count(const char *s, const char *what)
{
	size_t n = 0;
	for (; (s = strstr(s, what)); s += strlen(what))
		n++;
	return n;
}

static void what_it_says(void **state)
{
	(void)state;
	struct profile p;
	char text[2048];
	snprintf(text, sizeof text,
		 "{" MODEL ", \"devices\": [{\"id\": \"fast\", \"kind\": \"k1\", \"host\": \"a\", "
		 "\"memory_gib\": 8, \"forward_ms\": "
		 "{\"table\": [1, 2]}, \"backward_ms\": {\"table\": [2, 4]}}, {\"id\": \"slow\", "
		 "\"kind\": \"k2\", \"host\": \"b\", "
		 "\"memory_gib\": 4, \"used_gib\": 1, \"forward_ms\": {\"table\": [30]}, "
		 "\"backward_ms\": {\"linear\": [60, 0]}}], "
		 "\"links\": [{\"hosts\": [\"a\", \"b\"], \"bandwidth_gbytes_per_s\": 0.118, "
		 "\"latency_ms\": 0.25}]}",
		 "\"tiny\"");
	profile(&p, text);
	struct buf b = page(&p);
	/* 512 tokens in 12 layers of 3 ms, and of 90 ms */
	assert_non_null(strstr(b.p, ">14.2k<"));
	assert_non_null(strstr(b.p, ">474<"));
	assert_non_null(strstr(b.p, ">118 MB/s<"));
	assert_non_null(strstr(b.p, ">0.25 ms<"));
	assert_non_null(strstr(
		b.p,
		"12 layers, width 64, sequences of 512 tokens, bfloat16; 2 devices on 2 hosts"));
	assert_non_null(strstr(b.p, "8 GiB: all 12 layers"));
	buf_release(&b);
	profile_release(&p);
}

/* Names that are markup, that are no text, and that are far too long. */
static void text_stays_text(void **state)
{
	(void)state;
	struct profile p;
	char text[8192], longest[1500];
	memset(longest, 'x', sizeof longest - 1);
	longest[sizeof longest - 1] = 0;
	snprintf(
		text, sizeof text,
		"{" MODEL
		", \"source\": \"--></style><img src=x onerror=alert(1)>\", \"devices\": [{\"id\": "
		"\"<script>alert(1)</script>\", \"kind\": \"\\\" onload='x' &amp;\", \"host\": "
		"\"</text></svg><b>\", "
		"\"memory_gib\": 8, "
		"\"forward_ms\": {\"table\": [1]}, \"backward_ms\": {\"table\": [2]}}, {\"id\": "
		"\"%s\", \"kind\": "
		"\"\\u202eevil\\u0007\", "
		"\"host\": \"</text></svg><b>\", \"memory_gib\": 8, \"forward_ms\": {\"table\": "
		"[1]}, \"backward_ms\": "
		"{\"table\": [2]}}]}",
		"\"</title><script src=//x>\"", longest);
	profile(&p, text);
	struct buf b = page(&p);
	assert_null(strstr(b.p, "<script"));
	assert_null(strstr(b.p, "<img"));
	assert_null(strstr(b.p, "<b>"));
	assert_null(strstr(b.p, "onload='"));
	assert_null(strstr(b.p, "\u202e"));
	assert_int_equal(count(b.p, "</style>"), 1);
	assert_int_equal(count(b.p, "</title>"), 1);
	assert_int_equal(count(b.p, "<svg"), 4);
	assert_int_equal(count(b.p, "</svg>"), 4);
	assert_null(strstr(b.p, "http"));
	assert_non_null(strstr(b.p, "&lt;/script&gt;"));
	assert_null(strstr(b.p, longest));
	assert_true(b.n < 40000);
	buf_release(&b);
	struct err e = { 0 };
	if (dir_make(scratch("d"), &e) < 0 || dashboard_write(&p, scratch("d"), &e) < 0)
		fail_msg("%s", e.msg);
	assert_int_equal(access(scratch("d/profile.png"), R_OK), 0);
	assert_int_equal(access(scratch("d/profile.html"), R_OK), 0);
	assert_int_equal(dashboard_write(&p, scratch("nowhere"), &e), ERR_IO);
	profile_release(&p);
}

static void many(void **state)
{
	(void)state;
	struct profile p;
	struct buf text = BUF_INIT;
	buf_addf(&text, "{" MODEL ", \"devices\": [", "\"m\"");
	for (int i = 0; i < 300; i++)
		buf_addf(&text,
			 "%s{\"id\": \"d%d\", \"kind\": \"k%d\", \"host\": \"h%d\", "
			 "\"memory_gib\": 8, \"forward_ms\": {\"linear\": "
			 "[%g, 0]}, \"backward_ms\": {\"linear\": [1, 0]}}",
			 i ? ", " : "", i, i % 20, i / 4, i % 7 ? 1.0 : 1e5);
	buf_adds(&text, "], \"links\": [{\"hosts\": [\"*\", \"*\"], \"bandwidth_gbytes_per_s\": 1, "
			"\"latency_ms\": 0.01}]}");
	profile(&p, text.p);
	struct buf b = page(&p);
	assert_non_null(strstr(b.p, "and 284 more devices"));
	assert_non_null(strstr(b.p, "and 65 more hosts"));
	assert_null(strstr(b.p, "nan"));
	assert_null(strstr(b.p, "inf"));
	buf_release(&b);
	buf_release(&text);
	profile_release(&p);
}

/* The simulated step as a trace: it ends when the plan says, and each stage computes what it has
 * to. */
static void timeline(void **state)
{
	(void)state;
	struct profile p;
	struct plan plan;
	struct plan_options o = PLAN_OPTIONS_DEFAULT;
	struct err e = { 0 };
	struct buf file = BUF_INIT;
	char text[2048];
	json_t *doc;
	snprintf(text, sizeof text,
		 "{" MODEL ", \"devices\": [{\"id\": \"one\", \"kind\": \"k\", \"host\": \"a\", "
		 "\"memory_gib\": 80, \"forward_ms\": "
		 "{\"table\": [1, 2]}, \"backward_ms\": {\"table\": [2, 4]}}, {\"id\": \"two\", "
		 "\"kind\": \"k\", \"host\": \"b\", "
		 "\"memory_gib\": 80, \"forward_ms\": {\"table\": [3]}, \"backward_ms\": "
		 "{\"linear\": [6, 0]}}], "
		 "\"links\": [{\"hosts\": [\"a\", \"b\"], \"bandwidth_gbytes_per_s\": 0.118, "
		 "\"latency_ms\": 0.25}]}",
		 "\"tiny\"");
	profile(&p, text);
	o.microbatch = 1;
	if (planner_run(planner_find("even"), &p, &o, &plan, &e) < 0 ||
	    plan_trace_write(&p, &o, &plan, scratch("simulated.json"), &e) < 0 ||
	    buf_read_file(&file, scratch("simulated.json"), 0, &e) < 0 ||
	    json_parse_text(file.p, file.n, "trace", &doc, &e) < 0)
		fail_msg("%s", e.msg);
	const json_t *events = json_object_get(doc, "traceEvents");
	double end = 0, forward[2] = { 0 };
	size_t sent = 0;
	for (size_t i = 0; i < json_array_size(events); i++) {
		const json_t *v = json_array_get(events, i);
		const char *name = json_string_value(json_object_get(v, "name"));
		double begin = json_number_value(json_object_get(v, "ts")),
		       lasts = json_number_value(json_object_get(v, "dur"));
		end = begin + lasts > end ? begin + lasts : end;
		sent += !strcmp(name, "send_act");
		if (!strcmp(name, "forward"))
			forward[json_integer_value(json_object_get(v, "pid"))] += lasts;
	}
	assert_int_equal(plan.stages, 2);
	assert_int_equal(sent, 8);
	assert_true(end / 1e3 > plan.simulated_ms * 0.999 && end / 1e3 < plan.simulated_ms * 1.001);
	assert_true(forward[0] > 0.999 * 8 * 6 * 1000 &&
		    forward[1] > 1.001 * 8 * 6 * 3000); /* the layers; at the end the head too */
	assert_non_null(strstr(file.p, "stage 1: two, simulated"));
	json_decref(doc);
	buf_release(&file);
	plan_release(&plan);
	profile_release(&p);
}

static void cleaned(const char *in, size_t most, const char *want)
{
	char out[64];
	text_clean(out, sizeof out, in, most);
	assert_string_equal(out, want);
}

static void characters(void **state)
{
	(void)state;
	cleaned("abc", 0, "abc");
	cleaned("abcdef", 4, "abc…");
	cleaned("äöüß", 4, "äöüß");
	cleaned("äöüßx", 4, "äöü…");
	cleaned("a\x80z", 0, "a?z");              /* not a beginning */
	cleaned("\xc0\xaf", 0, "??");             /* too long for its value */
	cleaned("\xed\xa0\x80", 0, "???");        /* half of a surrogate pair */
	cleaned("\xf4\x90\x80\x80", 0, "????");   /* beyond the last character */
	cleaned("\xe2\x82", 0, "??");             /* cut off */
	cleaned("a\nb\x7f\xc2\x85", 0, "a?b???"); /* controls */
	cleaned("\xf0\x9f\x98\x80", 0, "\xf0\x9f\x98\x80");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_it_says), cmocka_unit_test(text_stays_text),
		cmocka_unit_test(many),         cmocka_unit_test(timeline),
		cmocka_unit_test(characters),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
