/* SPDX-License-Identifier: Apache-2.0 */
/* test_plan_files.c - profile.json and plan.json: read, written, read back; every kind of bad input
 * ends in one line that names it. And the what-if library. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/mem.h"
#include "plan/cards.h"
#include "plan/worth.h"
#include "plan/explain.h"
#include "plan/plan.h"
#include "support/clusters.h"

static const char good[] = "{\"version\": 1, \"model\": {\"name\": \"m\", \"layers\": 6, "
			   "\"hidden\": 64, \"parameters_per_layer\": "
			   "1000000}, \"sequence_len\": 128, "
			   "\"dtype\": \"float16\", \"global_batch\": 8, \"devices\": ["
			   "{\"id\": \"a\", \"kind\": \"t4\", \"host\": \"x\", \"memory_gib\": 8, "
			   "\"forward_ms\": {\"linear\": [2, "
			   "0.5]}, \"backward_ms\": {\"table\": [4.5, 9]}},"
			   "{\"id\": \"b\", \"kind\": \"l4\", \"host\": \"y\", \"memory_gib\": 8, "
			   "\"forward_ms\": {\"linear\": [1, "
			   "0.5]}, \"backward_ms\": {\"linear\": [2, 1]}}],"
			   "\"links\": [{\"hosts\": [\"x\", \"y\"], \"bandwidth_gbytes_per_s\": "
			   "0.117, \"latency_ms\": 0.2}]}";

/* `good` with one text replaced. */
static char *changed(const char *from, const char *to)
{
	const char *at = strstr(good, from);
	size_t n = strlen(good) + strlen(to) + 1;
	char *s = malloc(n);

	assert_non_null(at);
	assert_non_null(s);
	snprintf(s, n, "%.*s%s%s", (int)(at - good), good, to, at + strlen(from));
	return s;
}

static void refused(const char *from, const char *to, const char *word)
{
	char *s = changed(from, to);
	struct profile p;
	struct err e = { 0 };

	if (profile_read_text(&p, s, strlen(s), "profile.json", &e) == 0)
		fail_msg("%s -> %s was accepted", from, to);
	assert_int_equal(e.code, ERR_INPUT);
	if (!strstr(e.msg, word) || strchr(e.msg, '\n'))
		fail_msg("%s -> %s: '%s' does not say '%s'", from, to, e.msg, word);
	free(s);
}

static void test_bad_profiles(void **state)
{
	(void)state;
	refused("\"version\": 1", "\"version\": 2", "version 2");
	refused("\"version\": 1,", "", "'version' is missing");
	refused("[2, 0.5]", "[-2, 0.5]", "forward_ms");
	refused("[2, 0.5]", "[2, \"x\"]", "not a number");
	refused("[2, 0.5]", "[0, -1]", "not above zero");
	refused("[2, 0.5]", "[1e300, 0]", "1e+300");
	refused("[2, 0.5]", "[NaN, 0]", "number 1 of 'linear' is not a number");
	refused("[4.5, 9]", "[4.5, -9]", "number 2");
	refused("[4.5, 9]", "[]", "neither");
	refused("\"memory_gib\": 8", "\"memory_gib\": 0", "memory_gib");
	refused("\"memory_gib\": 8", "\"memory_gib\": 8, \"used_gib\": 9",
		"in use by other programs");
	refused("\"bandwidth_gbytes_per_s\": 0.117", "\"bandwidth_gbytes_per_s\": -1", "bandwidth");
	refused("\"links\": [{\"hosts\": [\"x\", \"y\"]", "\"links\": [{\"hosts\": [\"x\", \"x\"]",
		"no link between the hosts 'x' and 'y'");
	refused("\"hosts\": [\"x\", \"y\"]", "\"hosts\": [\"x\"]", "two names");
	refused("\"hosts\": [\"x\", \"y\"]", "\"hosts\": [\"*\", \"y\"]", "'*'");
	refused("\"id\": \"b\"", "\"id\": \"a\"", "two devices are called 'a'");
	refused("\"dtype\": \"float16\"", "\"dtype\": \"int3\"", "int3");
	refused("\"layers\": 6", "\"layers\": 0", "layers");
	refused("\"layers\": 6", "\"layers\": 6, \"parameters\": 10", "more than the model's");
	refused("\"global_batch\": 8", "\"global_batch\": 99999999", "global_batch");
	refused("\"devices\": [", "\"gone\": [", "'devices' is missing");
	refused("\"devices\": [", "\"stages\": [", "is a plan or a prediction");
	refused("{\"version\"", "[{\"version\"", "not valid JSON");
}

/* What no plan could be tried on in reasonable time and memory. */
static void test_profiles_too_large(void **state)
{
	static const struct {
		int devices, layers, batch;
		const char *says;
	} row[] = {
		{ 64, 24, 65536, "at most 16384 together with so many devices" },
		{ 600, 2000, 8, "at most 1747 layers with so many devices" },
		{ 16, 24, 65536, NULL },
		{ 600, 1700, 8, NULL },
	};
	(void)state;
	for (size_t i = 0; i < ARRAY_LEN(row); i++) {
		struct buf b = BUF_INIT;
		struct profile p;
		struct err e = { 0 };
		buf_addf(&b,
			 "{\"version\": 1, \"dtype\": \"float16\", \"sequence_len\": 8, "
			 "\"global_batch\": %d, \"model\": {\"name\": \"m\", \"layers\": %d, "
			 "\"hidden\": 8, \"parameters_per_layer\": 8}, \"links\": [], "
			 "\"devices\": [",
			 row[i].batch, row[i].layers);
		for (int k = 0; k < row[i].devices; k++)
			buf_addf(&b,
				 "%s{\"id\": \"d%d\", \"kind\": \"cpu\", \"host\": \"x\", "
				 "\"memory_gib\": 8, \"forward_ms\": {\"table\": [1]}, "
				 "\"backward_ms\": {\"table\": [2]}}",
				 k ? ", " : "", k);
		buf_adds(&b, "]}");
		const int rc = profile_read_text(&p, b.p, b.n, "large", &e);
		if (!row[i].says && rc < 0)
			fail_msg("row %zu: %s", i, e.msg);
		if (row[i].says && (rc != ERR_INPUT || !strstr(e.msg, row[i].says)))
			fail_msg("row %zu: %s", i, rc < 0 ? e.msg : "was read");
		if (!rc)
			profile_release(&p);
		buf_release(&b);
	}
}

/* The ways between devices are read back as they were written; absurd figures are refused. */
static void test_ways(void **state)
{
	(void)state;
	static const char with[] = "\"latency_ms\": 0.2, \"ways\": [{\"addresses\": [\"10.0.0.1\", "
				   "\"10.0.0.2\"], \"used\": true, \"latency_ms\": "
				   "0.25, "
				   "\"samples\": [{\"bytes\": 65536, \"gbytes_per_s\": 0.5, "
				   "\"spread\": 0.01, \"reverse_gbytes_per_s\": 0.25, "
				   "\"reverse_spread\": 0.02}]}, {\"addresses\": [\"\", "
				   "\"10.0.0.3\"], \"unreachable\": \"no answer\"}]";
	char *s = changed("\"latency_ms\": 0.2", with);
	struct profile p, q;
	struct err e = { 0 };
	struct buf a = BUF_INIT;
	if (profile_read_text(&p, s, strlen(s), "ways", &e) < 0)
		fail_msg("%s", e.msg);
	profile_write(&p, &a);
	if (profile_read_text(&q, a.p, a.n, "again", &e) < 0)
		fail_msg("%s", e.msg);
	assert_int_equal(q.link[0].ways, 2);
	const struct profile_way *w = q.link[0].way;
	assert_true(w[0].used && !w[0].unreachable && w[0].samples == 1 && w[0].latency_ms == 0.25);
	assert_true(w[0].sample[0].bytes == 65536 && w[0].sample[0].rate == 0.5 &&
		    w[0].sample[0].reverse_spread == 0.02);
	assert_true(!w[1].used && !strcmp(w[1].unreachable, "no answer") &&
		    !strcmp(w[1].to, "10.0.0.3") && !w[1].from[0]);
	buf_release(&a);
	profile_release(&p);
	profile_release(&q);
	free(s);
	refused("\"latency_ms\": 0.2", "\"latency_ms\": 0.2, \"ways\": 3", "'ways' must be a list");
	refused("\"latency_ms\": 0.2", "\"latency_ms\": 0.2, \"ways\": [{\"addresses\": [\"x\"]}]",
		"two texts");
	refused("\"latency_ms\": 0.2",
		"\"latency_ms\": 0.2, \"ways\": [{\"addresses\": [\"x\", \"y\"], \"latency_ms\": "
		"-1}]",
		"latency_ms");
}

static void test_profile_round_trip(void **state)
{
	(void)state;
	for (uint64_t seed = 1; seed <= 40; seed++) {
		struct profile p, q;
		struct err e = { 0 };
		struct buf a = BUF_INIT, b = BUF_INIT;

		assert_int_equal(cluster_make(seed, 8, 20, &p), 0);
		profile_write(&p, &a);
		if (profile_read_text(&q, a.p, a.n, "again", &e) < 0)
			fail_msg("%s", e.msg);
		profile_write(&q, &b);
		assert_int_equal(a.n, b.n);
		assert_memory_equal(a.p, b.p, a.n);
		buf_release(&a);
		buf_release(&b);
		profile_release(&p);
		profile_release(&q);
	}
}

static void test_curve(void **state)
{
	static const double table[] = { 1, 2, 4, 7, 11, 16, 22 };
	struct curve both = { table, 3, true, true, 10, 5, 0 },
		     only = { table, 7, false, true, 0, 0, 0 },
		     one = { table + 2, 1, false, true, 0, 0, 0 };

	(void)state;
	assert_true(curve_at(&both, 3) == 4 && curve_at(&both, 4) == 45);
	assert_true(curve_at(&only, 8) == 22 + (22 - 4) / 4.0);
	assert_true(curve_at(&one, 5) == 20);
}

static const struct plan_options options = PLAN_OPTIONS_DEFAULT;

static void test_plan_round_trip(void **state)
{
	int chunked = 0, groups = 0;

	(void)state;
	for (uint64_t seed = 1; seed <= 120; seed++) {
		struct profile p;
		struct err e = { 0 };
		struct plan_options o = options;

		o.effort = 100000;
		assert_int_equal(cluster_make(seed, 6, 20, &p), 0);
		for (size_t i = 0; planner_at(i); i++) {
			struct plan a, b;
			struct buf text = BUF_INIT;
			if (planner_at(i) == &planner_exhaustive)
				continue;
			if (planner_run(planner_at(i), &p, &o, &a, &e) < 0) {
				if (e.code != ERR_USAGE) /* it has no plan, and says so */
					fail_msg("%s: %s", planner_at(i)->name, e.msg);
				continue;
			}
			plan_to_json(&p, &a, &text);
			if (plan_read_text(&p, &o, text.p, text.n, "plan.json", &b, &e) < 0)
				fail_msg("%s: %s\n%s", a.planner, e.msg, text.p);
			if (!(fabs(a.simulated_ms - b.simulated_ms) <= 1e-9 * a.simulated_ms))
				fail_msg("%s: %.9g ms, read back %.9g ms", a.planner,
					 a.simulated_ms, b.simulated_ms);
			assert_int_equal(a.fits, b.fits);
			assert_int_equal(a.left_outs, b.left_outs);
			chunked += a.chunks > 1;
			groups += !a.executable;
			plan_release(&a);
			plan_release(&b);
			buf_release(&text);
		}
		profile_release(&p);
	}
	assert_true(chunked > 5 && groups > 5);
}

static void plan_refused(const struct profile *p, const char *text, const char *word)
{
	struct plan plan;
	struct err e = { 0 };

	if (plan_read_text(p, &options, text, strlen(text), "plan.json", &plan, &e) == 0)
		fail_msg("accepted: %s", text);
	if (!strstr(e.msg, word) || strchr(e.msg, '\n'))
		fail_msg("'%s' does not say '%s'", e.msg, word);
}

static void test_bad_plans(void **state)
{
	struct profile p;
	struct err e = { 0 };
	struct plan plan;
	static const char manual[] = "{\"stages\": [{\"layers\": [0, 2], \"devices\": [{\"id\": "
				     "\"a\"}]}, {\"layers\": [2, 6], "
				     "\"devices\": [{\"id\": \"b\"}]}]}";

	(void)state;
	assert_int_equal(profile_read_text(&p, good, strlen(good), "profile.json", &e), 0);
	if (plan_read_text(&p, &options, manual, strlen(manual), "plan.json", &plan, &e) < 0)
		fail_msg("%s", e.msg);
	assert_true(plan.executable && plan.stages == 2 && plan_layers(&plan, 1) == 4);
	plan_release(&plan);
	plan_refused(&p,
		     "{\"stages\": [{\"layers\": [0, 2], \"devices\": [{\"id\": \"a\"}]}, "
		     "{\"layers\": [3, 6], \"devices\": "
		     "[{\"id\": \"b\"}]}]}",
		     "gaps");
	plan_refused(&p,
		     "{\"stages\": [{\"layers\": [0, 4], \"devices\": [{\"id\": \"a\"}]}, "
		     "{\"layers\": [2, 6], \"devices\": "
		     "[{\"id\": \"b\"}]}]}",
		     "gaps");
	plan_refused(&p, "{\"stages\": [{\"layers\": [0, 5], \"devices\": [{\"id\": \"a\"}]}]}",
		     "in no stage");
	plan_refused(&p, "{\"stages\": [{\"layers\": [0, 7], \"devices\": [{\"id\": \"a\"}]}]}",
		     "a model with 6");
	plan_refused(&p, "{\"layers\": 30, \"stages\": []}", "30 layers");
	plan_refused(&p, good, "this is a profile; a plan was expected");
	plan_refused(&p, "{\"predicted_seconds\": 2, \"stages\": [{\"id\": \"a\"}]}",
		     "the prediction of a run");
	plan_refused(&p, "{\"r\": 8}", "no plan, it has no 'stages'");
	plan_refused(&p, "{\"stages\": [{\"layers\": [0, 6], \"devices\": [{\"id\": \"z\"}]}]}",
		     "'z' is not in the profile");
	plan_refused(&p,
		     "{\"stages\": [{\"layers\": [0, 2], \"devices\": [{\"id\": \"a\"}]}, "
		     "{\"layers\": [2, 6], \"devices\": "
		     "[{\"id\": \"a\"}]}]}",
		     "twice");
	plan_refused(
		&p,
		"{\"stages\": [{\"layers\": [0, 2], \"devices\": [{\"id\": \"a\", \"share\": 1}, "
		"{\"id\": \"b\", \"share\": 1}]}, {\"layers\": [2, 6], \"devices\": "
		"[{\"id\": \"b\"}]}]}",
		"device 'b' is used twice");
	plan_refused(
		&p,
		"{\"stages\": [{\"layers\": [0, 6], \"devices\": [{\"id\": \"a\", \"share\": 0}, "
		"{\"id\": \"b\", \"share\": 0}]}]}",
		"or each a 'share', which are not all 0");
	plan_refused(&p, "{\"microbatch\": 3, \"stages\": []}", "does not divide");
	plan_refused(&p, "{\"schedule\": \"magic\", \"stages\": []}", "magic");
	plan_refused(&p,
		     "{\"chunks\": 2, \"stages\": [{\"layers\": [0, 3], \"devices\": [{\"id\": "
		     "\"a\"}]}, {\"layers\": [3, 6], "
		     "\"devices\": [{\"id\": \"b\"}]}]}",
		     "chunks");
	plan_refused(&p, "{\"stages\": []}", "'stages'");
	plan_refused(&p,
		     "{\"stages\": [{\"layers\": [0, 6], \"devices\": [{\"id\": \"a\", "
		     "\"microbatch\": 1, \"microbatches\": 3}, "
		     "{\"id\": \"b\", "
		     "\"microbatch\": 1, \"microbatches\": 3}]}]}",
		     "6 sequences");
	profile_release(&p);
}

/* Too little memory: by how much, where, and what would help. */
static void test_does_not_fit(void **state)
{
	char *s = changed(
		"\"parameters_per_layer\": 1000000",
		"\"parameters_per_layer\": 1000000, \"layer_gib\": 4, \"layer_state_gib\": 0.1");
	struct profile p;
	struct plan plan;
	struct err e = { 0 };

	(void)state;
	assert_int_equal(profile_read_text(&p, s, strlen(s), "profile.json", &e), 0);
	assert_int_equal(planner_run(&planner_best, &p, &options, &plan, &e), ERR_USAGE);
	print_message("%s\n", e.msg);
	assert_non_null(strstr(e.msg, "GiB more"));
	assert_non_null(strstr(e.msg, "(of 8.00 GiB other programs use 0.00, and 0.40 are kept "
				      "free, memory_reserve); "));
	assert_non_null(strstr(e.msg, "helps: 4-bit weights"));
	assert_int_equal(planner_run(&planner_even, &p, &options, &plan, &e), 0);
	assert_false(plan.fits);
	assert_true(plan.over_gib > 4 && !plan.executable);
	plan_release(&plan);
	profile_release(&p);
	free(s);
}

/* A device that others have filled, or that is too small for anything, is left out, and its
 * shortage is not what the message is about. What is said to be missing suffices. */
static void small_devices(void)
{
	char *s = changed("\"memory_gib\": 8",
			  "\"memory_gib\": 2, \"used_gib\": 1.8, \"fixed_gib\": 0.5");
	struct plan_options o = options;
	struct profile p;
	struct plan plan;
	struct err e = { 0 };
	double gib;

	if (profile_read_text(&p, s, strlen(s), "profile.json", &e) < 0)
		fail_msg("%s", e.msg);
	assert_int_equal(planner_run(&planner_best, &p, &o, &plan, &e), 0);
	assert_false(plan_uses(&plan, 0));
	plan_release(&plan);
	p.layer_gib = 2;
	assert_int_equal(planner_run(&planner_best, &p, &o, &plan, &e), ERR_USAGE);
	print_message("%s\n", e.msg);
	assert_non_null(strstr(e.msg, "that device 'b' may use"));
	profile_release(&p);
	free(s);
	/* both lack memory */
	assert_int_equal(profile_read_text(&p, good, strlen(good), "profile.json", &e), 0);
	p.layer_gib = 5;
	assert_int_equal(planner_run(&planner_best, &p, &o, &plan, &e), ERR_USAGE);
	print_message("%s\n", e.msg);
	assert_non_null(strstr(e.msg, "GiB are missing on 1 other device; "));
	const char *at = strstr(e.msg, "another device with ");
	assert_non_null(at);
	assert_int_equal(sscanf(at, "another device with %lf GiB", &gib), 1);
	struct profile_device device[3] = { p.device[0], p.device[1], p.device[1] };
	device[2].id = "c";
	device[2].memory_gib = gib;
	p.device = device;
	p.devices = 3;
	if (planner_run(&planner_best, &p, &o, &plan, &e) < 0)
		fail_msg("%s", e.msg);
	plan_release(&plan);
	profile_release(&p);
}

/* Only what helps is advised. */
static void test_advice(void **state)
{
	/* weights of 4.5 bits: 10 GiB a layer */
	char *s = changed("\"parameters_per_layer\": 1000000",
			  "\"parameters_per_layer\": 19000000000, \"layer_gib\": 10, "
			  "\"layer_state_gib\": 0.1");
	struct plan_options o = options;
	struct profile p;
	struct plan plan;
	struct err e = { 0 };

	(void)state;
	assert_int_equal(profile_read_text(&p, s, strlen(s), "profile.json", &e), 0);
	assert_int_equal(planner_run(&planner_best, &p, &options, &plan, &e), ERR_USAGE);
	assert_null(strstr(e.msg, "4-bit"));
	assert_null(strstr(e.msg, "memory_reserve of at most"));
	profile_release(&p);
	free(s);
	/* the reserve alone is the cause */
	s = changed("\"parameters_per_layer\": 1000000",
		    "\"parameters_per_layer\": 1000000, \"layer_gib\": 0.25, "
		    "\"layer_state_gib\": 0.1");
	o.reserve_gib = 7.5;
	assert_int_equal(profile_read_text(&p, s, strlen(s), "profile.json", &e), 0);
	assert_int_equal(planner_run(&planner_best, &p, &o, &plan, &e), ERR_USAGE);
	if (!strstr(e.msg, "and 7.50 are kept free, memory_reserve); ") ||
	    !strstr(e.msg, "helps: memory_reserve of at most"))
		fail_msg("%s", e.msg);
	profile_release(&p);
	free(s);
	small_devices();
}

/* A card without bfloat16 makes the job compute in float16, and is counted in that. */
static void test_cards_without_bfloat16(void **state)
{
	struct profile p;
	struct err e = { 0 };
	struct buf notes = BUF_INIT;
	char *s = changed("float16", "bfloat16");

	(void)state;
	assert_int_equal(profile_read_text(&p, s, strlen(s), "profile.json", &e), 0);
	assert_int_equal(profile_add_card(&p, "kind=v100,host=y,id=v", &notes, &e), 0);
	assert_true(fabs(curve_at(&p.device[2].forward_ms, 1) - 2.5 * 34 / 73) <= 1e-9);
	assert_non_null(strstr(
		notes.p, "v100: estimated: the measured times of 'a', scaled by the cards' rates "
			 "in float16 (34 and 73 TFLOP/s); what launching kernels"));
	assert_non_null(strstr(notes.p, "v100 has no bfloat16: with it compute_dtype auto becomes "
					"float16 on all devices"));
	profile_release(&p);
	free(s);
	/* nothing to scale from */
	buf_reset(&notes);
	s = changed("\"t4\"", "\"some card\"");
	char *other = strstr(s, "\"l4\"");
	memcpy(other, "\"?\" ", 4);
	assert_int_equal(profile_read_text(&p, s, strlen(s), "profile.json", &e), 0);
	assert_int_equal(profile_add_card(&p, "kind=a100-40,host=y", &notes, &e), 0);
	assert_non_null(strstr(
		notes.p,
		"175 TFLOP/s, measured by others; what launching kernels costs is not in it"));
	assert_null(strstr(notes.p, "bfloat16"));
	buf_release(&notes);
	profile_release(&p);
	free(s);
}

/* What the explanation claims, and how large changes are told. */
static void test_explanation(void **state)
{
	struct profile p;
	struct err e = { 0 };
	struct buf b = BUF_INIT;
	struct plan plan;
	struct plan_options o = options;
	struct plan_whatif w[2] = { { .used = true, .possible = true }, { .used = true } };

	(void)state;
	assert_int_equal(profile_read_text(&p, good, strlen(good), "profile.json", &e), 0);
	o.sched = sched_find("1f1b");
	o.microbatch = 2;
	assert_int_equal(planner_run(&planner_best, &p, &o, &plan, &e), 0);
	assert_true(plan.proven);
	w[0].ms = 1.5 * plan.simulated_ms;
	w[1] = w[0];
	w[1].ms = 124.2 * plan.simulated_ms;
	plan_explain(&p, &o, &plan, w, NULL, &b);
	w[1].ms = 0.991 * plan.simulated_ms;
	plan_explain(&p, &o, &plan, w, NULL, &b);
	assert_non_null(strstr(b.p, "ms, 0.9 % faster (--without "));
	assert_non_null(strstr(b.p, "ms, 50.0 % slower.\n"));
	assert_non_null(strstr(b.p, "ms, 124 times as long.\n"));
	assert_non_null(strstr(b.p,
			       "No pipeline with one device a stage (schedule 1f1b, microbatches "
			       "of 2) is faster: all were tried. Stages that several devices share "
			       "were not tried (--no-groups).\n"));
	buf_release(&b);
	plan_release(&plan);
	profile_release(&p);
}

/* What people write and drivers report. */
static void test_card_names(void **state)
{
	static const struct {
		const char *kind, *name; /* NULL: none or several */
	} row[] = {
		{ "3090", "RTX 3090" },
		{ "RTX 3090", "RTX 3090" },
		{ "rtx3090", "RTX 3090" },
		{ "NVIDIA GeForce RTX 3090", "RTX 3090" },
		{ "4060 Ti", "RTX 4060 Ti 16 GB" },
		{ "NVIDIA GeForce RTX 5060 Ti", "RTX 5060 Ti 16 GB" },
		{ "V100", "V100-SXM2" },
		{ "Tesla V100-PCIE-32GB", "V100-PCIe 32 GB" },
		{ "NVIDIA A100-SXM4-80GB", "A100-80" },
		{ "a100", NULL },
		{ "NVIDIA H100 80GB HBM3", "H100 SXM" },
		{ "NVIDIA H200", "H200" },
		{ "NVIDIA L4", "L4" },
		{ "NVIDIA L40S", "L40S" },
		{ "NVIDIA A10", "A10" },
		{ "NVIDIA A10G", "A10G" },
		{ "Tesla M40 24GB", "M40" },
		{ "titan x", NULL },
		{ "NVIDIA GeForce GTX TITAN X", "Titan X Maxwell" },
		{ "NVIDIA TITAN X (Pascal)", "Titan X Pascal" },
		{ "NVIDIA RTX PRO 6000 Blackwell Workstation Edition", "RTX PRO 6000" },
		{ "NVIDIA GB10", "DGX Spark" },
		{ "AMD Radeon RX 7900 XTX", "RX 7900 XTX" },
		{ "AMD Instinct MI300X", "MI300X" },
		{ "AMD Radeon 8060S Graphics", "Strix Halo" },
		{ "Intel(R) Arc(TM) A770 Graphics", "Arc A770" },
		{ "Apple M1", "M1" },
		{ "Apple M4 Max", "M4 Max" },
		{ "max", NULL },
		{ "NVIDIA", NULL },
		{ "RTX 6000 Ada", NULL },
	};
	const struct card *c;
	struct err e = { 0 };

	(void)state;
	for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
		c = card_find(row[i].kind);
		if (row[i].name ? !c || strcmp(c->name, row[i].name) != 0 : c != NULL)
			fail_msg("'%s' is '%s'", row[i].kind, c ? c->name : "none");
	}
	assert_int_equal(card_need("3091", "here", "end", &c, &e), ERR_USAGE);
	assert_string_equal(e.msg, "here: no card '3091' in the library; the nearest are RTX 3090, "
				   "RTX 3060, RTX 4090; end");
	assert_int_equal(card_need("a100", "here", "end", &c, &e), ERR_USAGE);
	assert_string_equal(e.msg, "here: 'a100' can be several cards: A100-40, A100-80, "
				   "A100-80 PCIe; write the one that is meant");
}

/* Every row is complete and finds itself; what is assumed of a data sheet follows from the cards
 * that were measured. */
static void test_card_rows(void **state)
{
	static const char *const dtype[] = { "float32", "float16", "bfloat16" };
	struct card_speed s;

	(void)state;
	for (size_t i = 0; card_at(i); i++) {
		const struct card *c = card_at(i);
		if (card_find(c->name) != c)
			fail_msg("%s does not find itself", c->name);
		assert_true(c->memory_gib >= 12 && c->memory_gib <= 384);
		assert_true(c->gbytes_per_s >= 68 && c->gbytes_per_s <= 5300);
		assert_true(c->watts >= 0 && c->watts <= 750);
		for (size_t k = 0; k < 3; k++) {
			s = card_speed(c, dtype[k]);
			assert_true(s.tflops > 0 && s.share > 0 && s.share < 1);
			assert_true(fabs(s.tflops - s.share * s.peak) <= 1e-9 * s.tflops);
			assert_true(!(s.measured && s.assumed));
		}
	}
	s = card_speed(card_find("v100"), "float16");
	assert_true(s.measured && s.tflops == 73 && s.peak == 125);
	s = card_speed(card_find("v100-pcie"), "float16");
	assert_true(!s.measured && !s.assumed && fabs(s.tflops - 112 * 73 / 125.0) <= 1e-9);
	/* the mean of A6000 and A10G */
	s = card_speed(card_find("3090"), "bfloat16");
	assert_true(fabs(s.share - (94 / 154.8 + 49 / 70.0) / 2) <= 1e-9);
	s = card_speed(card_find("mi50"), "float32");
	assert_true(s.assumed && s.share == 0.5);
}

/* Nothing of the profile is in the library: times by the rate alone, at least the time of reading
 * the weights. */
static void test_card_times(void **state)
{
	struct profile p;
	struct err e = { 0 };
	struct profile_device d = { 0 };
	double T, flop;

	(void)state;
	assert_int_equal(profile_read_text(&p, good, strlen(good), "profile.json", &e), 0);
	T = p.sequence_len;
	flop = 2 * p.parameters_per_layer * T + 2 * T * T * p.hidden;
	assert_int_equal(card_times(&p, &d, 2, 0, &e), 0);
	assert_true(fabs(curve_at(&d.forward_ms, 3) - 3 * flop / 2e9) <= 1e-9);
	assert_true(fabs(curve_at(&d.backward_ms, 1) - 2 * flop / 2e9) <= 1e-9);
	assert_true(d.optimizer_ms == 0);
	/* so fast that memory limits it */
	assert_int_equal(card_times(&p, &d, 1e6, 10, &e), 0);
	assert_true(fabs(curve_at(&d.forward_ms, 1) - p.layer_gib * 1073741824 / 1e7) <= 1e-9);
	assert_true(curve_at(&d.forward_ms, 2) == curve_at(&d.forward_ms, 1));
	assert_true(fabs(d.optimizer_ms - 2 * p.layer_state_gib * 1073741824 / 1e7) <= 1e-9);
	profile_release(&p);
}

static int price_of(const char *text, const struct profile *p, double *euro, struct err *e)
{
	struct prices l;
	int rc = prices_read(&l, text, e);
	if (rc >= 0)
		rc = prices_sum(&l, p, euro, e);
	if (rc >= 0)
		rc = prices_all_used(&l, p, e);
	prices_release(&l);
	return rc;
}

static void test_prices(void **state)
{
	static const struct {
		const char *text, *says;
	} bad[] = {
		{ "t4=200", "no price for 'b' (l4); add b=EUROS" },
		{ "t4=200,l4=1,3090=2",
		  "'3090' is no device and no kind of this cluster, which has "
		  "a (t4), b (l4)" },
		{ "t4=cheap,l4=1", "the price of 't4' is 'cheap'" },
		{ "t4=-1,l4=1", "a number from 0" },
		{ "t4=nan,l4=1", "a number from 0" },
		{ "t4=1,t4=2,l4=1", "two prices for 't4'" },
		{ "t4=1,l4", "'l4' is not NAME=EUROS" },
		{ "=1", "no id and no kind" },
		{ "/nowhere/prices", "/nowhere/prices" },
	};
	struct profile p;
	struct err e = { 0 };
	double euro = 0;

	(void)state;
	assert_int_equal(profile_read_text(&p, good, strlen(good), "profile.json", &e), 0);
	assert_int_equal(price_of("Tesla T4 = 250, b=100.5", &p, &euro, &e), 0);
	assert_true(euro == 350.5);
	assert_int_equal(price_of("a=1,t4=250", &p, &euro, &e), ERR_USAGE);
	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
		assert_true(price_of(bad[i].text, &p, &euro, &e) < 0);
		if (!strstr(e.msg, bad[i].says))
			fail_msg("'%s' does not say '%s'", e.msg, bad[i].says);
	}
	profile_release(&p);
}

/* Energy: watts of the library for the busy share, and who is not counted. */
static void test_energy(void **state)
{
	struct profile p;
	struct err e = { 0 };
	struct plan plan;
	struct plan_options o = options;
	struct plan_energy x;

	(void)state;
	assert_int_equal(profile_read_text(&p, good, strlen(good), "profile.json", &e), 0);
	assert_int_equal(planner_run(&planner_even, &p, &o, &plan, &e), 0);
	x = plan_energy(&p, &plan);
	double watts = 0;
	for (int k = 0; k < 2; k++) {
		const struct plan_member *m = &plan.stage[k].member[0];
		watts += m->busy * (m->device == 0 ? 70 : 72);
	}
	assert_true(x.used == 2 && x.known == 2 && fabs(x.watts - watts) <= 1e-9);
	assert_true(fabs(x.tokens_per_wh - 3600 * plan.tokens_per_s / watts) <= 1e-6);
	p.device[1].kind = "abacus";
	x = plan_energy(&p, &plan);
	assert_true(x.used == 2 && x.known == 1);
	assert_string_equal(x.unknown, p.device[1].id);
	p.device[1].watts = 5;
	assert_int_equal(plan_energy(&p, &plan).known, 2);
	plan_release(&plan);
	profile_release(&p);
}

static void test_cards(void **state)
{
	struct profile p;
	struct err e = { 0 };
	struct plan plan;
	struct buf b = BUF_INIT;
	struct plan_whatif w[4];
	struct plan_rival second;
	int d;

	(void)state;
	assert_int_equal(profile_read_text(&p, good, strlen(good), "profile.json", &e), 0);
	assert_ptr_equal(card_find("V100"), card_find("v100-sxm2"));
	assert_null(card_find("a"));
	assert_null(card_find(""));
	/* the same kind: the same times; another: scaled by the rates, 34 and 6.6 TFLOP/s in
	 * fp16 */
	assert_int_equal(profile_add_card(&p, "kind=t4,host=y,id=c", NULL, &e), 0);
	d = profile_find(&p, "c");
	assert_true(curve_at(&p.device[d].forward_ms, 3) == curve_at(&p.device[0].forward_ms, 3));
	if (profile_add_card(&p, "kind=p40,host=z,bandwidth=0.05,latency=1", NULL, &e) < 0)
		fail_msg("%s", e.msg);
	d = p.devices - 1;
	assert_true(fabs(curve_at(&p.device[d].backward_ms, 2) - 9 * 34 / 6.6) <= 1e-9);
	assert_true(p.device[d].memory_gib == 22.5 && profile_bandwidth(&p, d, 0) == 0.05 &&
		    profile_latency_ms(&p, 1, d) == 1);
	assert_true(p.device[d].estimated && profile_estimated(&p) && !p.device[2].estimated);
	assert_int_equal(profile_add_card(&p, "kind=p40,host=new,id=c", NULL, &e), ERR_USAGE);
	assert_non_null(strstr(e.msg, "already"));
	assert_int_equal(profile_add_card(&p, "kind=p40,host=y,bandwidth=1", NULL, &e), ERR_USAGE);
	assert_int_equal(profile_add_card(&p, "kind=gtx9,host=y", NULL, &e), ERR_USAGE);
	assert_int_equal(profile_add_card(&p, "kind=a100,host=y", NULL, &e), ERR_USAGE);
	assert_int_equal(profile_add_card(&p, "kind=t4,host=y,count=1.5", NULL, &e), ERR_USAGE);
	assert_int_equal(profile_add_card(&p, "kind=t4,count=2,id=v", NULL, &e), ERR_USAGE);
	assert_int_equal(profile_add_card(&p, "host=y", NULL, &e), ERR_USAGE);
	assert_int_equal(profile_add_card(&p, "kind=t4,host=y,bandwidth=nan", NULL, &e), ERR_USAGE);
	assert_int_equal(profile_add_card(&p, "kind=t4,host=y,speed=3", NULL, &e), ERR_USAGE);
	assert_int_equal(profile_add_card(&p, "kind=t4,host=y,id=c", NULL, &e), ERR_USAGE);
	assert_int_equal(p.devices, 4);

	assert_int_equal(planner_run(&planner_best, &p, &options, &plan, &e), 0);
	assert_int_equal(plan_whatifs(&p, &options, &plan, w, &e), 0);
	assert_int_equal(plan_second_best(&p, &options, &plan, &second, &e), 0);
	for (int i = 0; i < 4; i++)
		assert_true(w[i].possible && w[i].ms >= plan.simulated_ms * (1 - 1e-9));
	assert_true(second.any && second.ms >= plan.simulated_ms * (1 - 1e-9));
	plan_explain(&p, &options, &plan, w, &second, &b);
	print_message("%s", b.p);
	assert_non_null(strstr(b.p, "Second best"));
	buf_release(&b);
	plan_release(&plan);
	assert_int_equal(profile_remove(&p, "nobody", &e), ERR_USAGE);
	assert_int_equal(profile_remove(&p, "a", &e), 0);
	assert_int_equal(p.devices, 3);
	profile_release(&p);
}

/* Every allocation made to fail once: an error, no crash, nothing lost (the sanitizer build
 * looks). */
static void test_out_of_memory(void **state)
{
	static const char *const names[] = { "even",  "proportional", "cephalo",
					     "zorse", "exhaustive",   "best" };

	(void)state;
	for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
		for (uint64_t n = 1; n < 400; n++) {
			struct plan_options o = options;
			struct profile p;
			struct plan plan;
			struct err e = { 0 };
			int rc;

			o.effort = 1000;
			o.groups = true;
			mem_fail_after(n);
			rc = profile_read_text(&p, good, strlen(good), "profile.json", &e);
			if (rc == 0) {
				rc = planner_run(planner_find(names[i]), &p, &o, &plan, &e);
				mem_fail_after(0);
				if (rc == 0)
					plan_release(&plan);
				profile_release(&p);
			}
			mem_fail_after(0);
			if (rc == 0)
				break;
			if (e.code != ERR_NOMEM)
				fail_msg("%s, allocation %llu: %d %s", names[i],
					 (unsigned long long)n, e.code, e.msg);
		}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_bad_profiles), cmocka_unit_test(test_profiles_too_large),
		cmocka_unit_test(test_ways),         cmocka_unit_test(test_profile_round_trip),
		cmocka_unit_test(test_curve),        cmocka_unit_test(test_plan_round_trip),
		cmocka_unit_test(test_bad_plans),    cmocka_unit_test(test_does_not_fit),
		cmocka_unit_test(test_advice),       cmocka_unit_test(test_cards),
		cmocka_unit_test(test_card_names),   cmocka_unit_test(test_card_rows),
		cmocka_unit_test(test_card_times),   cmocka_unit_test(test_prices),
		cmocka_unit_test(test_energy),       cmocka_unit_test(test_cards_without_bfloat16),
		cmocka_unit_test(test_explanation),  cmocka_unit_test(test_out_of_memory),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
