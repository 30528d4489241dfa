/* SPDX-License-Identifier: Apache-2.0 */
/* A profile from nothing but a description: what is estimated is what the profiler counts, and
 * every bad description ends in one line that names file, place and what to do. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/err.h"
#include "dev/dev_delta.h"
#include "plan/describe.h"
#include "plan/plan.h"

#define SMALL                                                                                      \
	"model: {layers: 6, hidden: 576, intermediate: 1536, heads: 9, kv_heads: 3, vocab: 4096, " \
	"tied: true}\n"
#define TWO                                                                                        \
	"devices: [{card: 3090, host: a}, {card: v100, host: b}]\n"                                \
	"links: [{hosts: [a, b], speed: 10 Gbit/s}]\n"

static char path[128];

static int setup(void **state)
{
	const char *tmp = getenv("TMPDIR");
	int fd;
	(void)state;
	snprintf(path, sizeof path, "%s/hs-describe-XXXXXX", tmp ? tmp : "/tmp");
	fd = mkstemp(path);
	return fd < 0 ? -1 : close(fd);
}

static int teardown(void **state)
{
	(void)state;
	return unlink(path);
}

static int describe(const char *text, struct profile *p, struct buf *notes, struct err *e)
{
	FILE *f = fopen(path, "w");
	assert_non_null(f);
	fputs(text, f);
	fclose(f);
	return profile_describe(path, NULL, 0, p, notes, e);
}

static void good(const char *text, struct profile *p, struct buf *notes)
{
	struct err e = { 0 };
	if (describe(text, p, notes, &e) < 0)
		fail_msg("%s", e.msg);
}

/* Within 1 % of KiB that `heteroshard profile` counted for the same model (6 layers of SmolLM2's
 * width, vocabulary 4,096, rows of 256 tokens). */
static void near_kib(const char *what, double gib, double kib)
{
	if (!(fabs(gib * 1048576 / kib - 1) <= 0.01))
		fail_msg("%s: %.1f KiB, counted %.1f", what, gib * 1048576, kib);
}

static void test_memory(void **state)
{
	static const struct {
		const char *keys;
		double kept, active, head, layer, state, embedding_state, head_state;
	} row[] = {
		{ "compute_dtype: float32\n", 8459.15, 12683.15, 6383.34, 13828.5, 41485.5, 27648,
		  9222.75 },
		{ "compute_dtype: bfloat16\n", 4235.15, 6347.15, 5233.73, 6916.5, 55309.5, 36864,
		  9222.75 },
		{ "compute_dtype: float32\nadapter: lora\n", 6363, 10595, 6383.34, 13888.5, 180, 0,
		  0 },
	};
	(void)state;
	for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
		struct profile p;
		char text[600];
		snprintf(text, sizeof text, "%s%ssequence_len: 256\nbatch: 4\n%s", SMALL,
			 row[i].keys, "devices: [{card: 3090, host: a}]\n");
		good(text, &p, NULL);
		near_kib("kept", curve_at(&p.device[0].kept_gib, 1), row[i].kept);
		near_kib("active", curve_at(&p.device[0].activation_gib, 1), row[i].active);
		near_kib("head", curve_at(&p.device[0].head_gib, 1), row[i].head);
		near_kib("layer", p.layer_gib, row[i].layer);
		near_kib("state", p.layer_state_gib, row[i].state);
		if (row[i].head_state > 0) {
			near_kib("embedding", p.embedding_state_gib, row[i].embedding_state);
			near_kib("head's state", p.head_state_gib, row[i].head_state);
		} else {
			assert_true(p.embedding_state_gib == 0 && p.head_state_gib == 0);
		}
		assert_true(p.parameters == 23600448 && p.parameters_per_layer == 3540096);
		profile_release(&p);
	}
}

/* Everything is marked, and what is written can be read again. */
static void test_marked(void **state)
{
	struct profile p, again;
	struct buf b = BUF_INIT, notes = BUF_INIT;
	struct plan plan;
	struct plan_options o = PLAN_OPTIONS_DEFAULT;
	struct err e = { 0 };

	(void)state;
	good(SMALL "devices:\n"
		   "  - {card: NVIDIA GeForce RTX 3090, host: a, count: 2}\n"
		   "  - {card: cpu, host: b, cores: 4, memory: 16, watts: 65}\n"
		   "  - {card: v100, host: b, tflops: 9, memory: 30, id: mine}\n"
		   "links: [{hosts: all, speed: 1 Gbit/s}, {hosts: [a, a], speed: 12 GB/s, "
		   "latency: 0.01 ms}]\n",
	     &p, &notes);
	assert_int_equal(p.devices, 4);
	assert_string_equal(p.device[0].id, "NVIDIA-GeForce-RTX-3090");
	assert_string_equal(p.device[1].id, "NVIDIA-GeForce-RTX-3090-2");
	assert_string_equal(p.device[1].kind, "RTX 3090");
	assert_true(p.device[3].memory_gib == 30 && p.device[2].on_host && !p.device[0].on_host);
	assert_true(fabs(profile_bandwidth(&p, 0, 2) - 0.1175) <= 1e-12);
	assert_true(profile_bandwidth(&p, 0, 1) == 12 && profile_latency_ms(&p, 0, 1) == 0.01);
	assert_true(profile_latency_ms(&p, 0, 3) == 0.2);
	/* 9 TFLOP/s against 0.2 */
	assert_true(
		fabs(curve_at(&p.device[2].forward_ms, 8) / curve_at(&p.device[3].forward_ms, 8) -
		     45) <= 1e-6);
	assert_string_equal(p.dtype, "float32");
	assert_non_null(
		strstr(notes.p, "compute_dtype auto is float32 for all devices, because 'cpu'"));
	assert_non_null(strstr(notes.p, "cpu: 0.2 TFLOP/s, assumed: 0.05 a core"));
	assert_non_null(strstr(notes.p, "v100 (V100-SXM2): 9 TFLOP/s, as the description says"));
	profile_write(&p, &b);
	assert_int_equal(profile_read_text(&again, b.p, b.n, "again", &e), 0);
	for (int i = 0; i < 4; i++)
		assert_true(again.device[i].estimated);
	assert_true(again.device[2].watts == 65);
	assert_non_null(strstr(again.source, "nothing was measured"));
	assert_int_equal(planner_run(planner_default(), &again, &o, &plan, &e), 0);
	buf_reset(&b);
	plan_to_json(&again, &plan, &b);
	assert_non_null(strstr(b.p, "\"estimated\": true"));
	plan_release(&plan);
	profile_release(&again);
	profile_release(&p);
	buf_release(&b);
	buf_release(&notes);
}

/* One dtype for all devices, as a run decides it. */
static void test_dtype(void **state)
{
	static const struct {
		const char *card, *dtype;
	} row[] = {
		{ "4090", "bfloat16" }, { "v100", "float16" }, { "mi50", "float16" },
		{ "p40", "float32" },   { "m2", "float32" },
	};
	(void)state;
	for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
		struct profile p;
		char text[600];
		snprintf(text, sizeof text,
			 SMALL "devices: [{card: 3090, host: a}, {card: %s, "
			       "host: a}]\n",
			 row[i].card);
		good(text, &p, NULL);
		assert_string_equal(p.dtype, row[i].dtype);
		profile_release(&p);
	}
}

/* What is left decides the dtype; equal cards instead decide it too. */
static void test_others(void **state)
{
	static const char *const old[] = { "m40", "cpu" }, *const none[] = { "m41" };
	const struct equal_cards five = { .kind = "4090", .count = 5, .hosts = 2, .bandwidth = 2 };
	struct profile p;
	struct err e = { 0 };

	(void)state;
	good(SMALL TWO, &p, NULL);
	assert_string_equal(p.dtype, "float16");
	profile_release(&p);
	FILE *f = fopen(path, "w");
	assert_non_null(f);
	fputs(SMALL "devices: [{card: 3090, host: a}, {card: m40, host: b}, {card: cpu, host: b, "
		    "cores: 8, memory: 8}]\nlinks: [{hosts: all, speed: 1 Gbit/s}]\n",
	      f);
	fclose(f);
	assert_int_equal(profile_describe(path, old, 1, &p, NULL, &e), 0);
	assert_true(p.devices == 2);
	assert_string_equal(p.dtype, "float32");
	profile_release(&p);
	assert_int_equal(profile_describe(path, old, 2, &p, NULL, &e), 0);
	assert_true(p.devices == 1 && profile_dtype_bytes(&p) == 2);
	assert_string_equal(p.dtype, "bfloat16");
	profile_release(&p);
	assert_int_equal(profile_describe(path, none, 1, &p, NULL, &e), ERR_USAGE);
	assert_non_null(strstr(e.msg, ": device 'm41' is not"));
	assert_int_equal(profile_describe_equal(path, &five, &p, NULL, &e), 0);
	assert_true(p.devices == 5 && p.hosts == 2 && p.device[2].host == 0 &&
		    p.device[3].host == 1);
	assert_true(profile_bandwidth(&p, 0, 4) == 2 && profile_bandwidth(&p, 0, 1) == 4);
	assert_string_equal(p.dtype, "bfloat16");
	assert_string_equal(p.device[4].kind, "RTX 4090");
	profile_release(&p);
}

static void test_model_file(void **state)
{
	struct profile p, q;
	(void)state;
	good("base_model: tests/golden/models/smollm2/config.json\nadapter: qlora\n"
	     "devices: [{card: l4, host: a}]\n",
	     &p, NULL);
	good("base_model: tests/golden/models/smollm2\n"
	     "devices: [{card: l4, host: a}]\n",
	     &q, NULL);
	assert_true(p.layers == q.layers && p.hidden == q.hidden && p.parameters == q.parameters);
	assert_true(p.layer_gib < q.layer_gib && p.layer_state_gib < q.layer_state_gib);
	profile_release(&p);
	profile_release(&q);
	/* of a folder with a model for pictures the language model; its layers' backward pass needs
	 * states of linear attention */
	struct buf notes = BUF_INIT;
	good("base_model: tests/golden/models/qwen3_5-vision\n"
	     "sequence_len: 100\n"
	     "devices: [{card: l4, host: a}]\n",
	     &p, &notes);
	assert_non_null(strstr(notes.p, "linear attention: its time on a card"));
	buf_release(&notes);
	const struct dev_delta delta = { 100, 1, 6, 12, 10 };
	const struct curve *most = &p.device[0].activation_gib, *kept = &p.device[0].kept_gib;
	assert_true(p.layers == 5 && p.hidden == 48);
	assert_true((most->slope - kept->slope) * (1 << 30) > (double)dev_delta_bytes(&delta, 1));
	profile_release(&p);
}

static void test_bad(void **state)
{
	static const struct {
		const char *text, *says;
	} bad[] = {
		{ SMALL "devices: [{card: 3091, host: a}]\n",
		  ":2: 'card': no card '3091' in the library; the nearest are RTX 3090, RTX 3060, "
		  "RTX 4090; or 'card: cpu'" },
		{ SMALL "devices: [{card: a100, host: a}]\n", "A100-40, A100-80" },
		{ SMALL "devices: [{card: t4, host: a}, {card: t4, host: b}]\n",
		  "'links' is missing: nothing connects 'a' and 'b'; add {hosts: [a, b], speed: 1 "
		  "Gbit/s}" },
		{ SMALL "devices: [{card: t4, host: a}, {card: t4, host: b}, {card: t4, host: c}]\n"
			"links: [{hosts: [a, b], speed: 1 Gbit/s}]\n",
		  "'links': nothing connects 'a' and 'c'" },
		{ SMALL "devices: [{card: t4, host: a}, {card: t4, host: b}]\n"
			"links: [{hosts: [a, d], speed: 1 Gbit/s}]\n",
		  ":3: 'hosts': no device is on 'd'; the hosts are a, b" },
		{ SMALL "devices: [{card: t4, host: a}]\nlinks: [{hosts: a, speed: 1 Gbit/s}]\n",
		  "'hosts' must be two names, or 'all'" },
		{ SMALL "devices: [{card: t4, host: a}]\nlinks: [{hosts: all, speed: fast}]\n",
		  ":3: 'speed' is 'fast': write it as 10 Gbit/s" },
		{ SMALL "devices: [{card: t4, host: a}]\nlinks: [{hosts: all}]\n",
		  "'speed' is missing" },
		{ SMALL "devices: [{card: t4, host: a}]\nlinks: [{hosts: all, speed: 0 Gbit/s}]\n",
		  "'speed' is '0 Gbit/s'" },
		{ SMALL "devices: [{card: t4, host: a}]\n"
			"links: [{hosts: all, speed: 1 GB/s, latency: 3 s}]\n",
		  "'latency' is '3 s'" },
		{ SMALL "devices: [{card: t4}]\n", ":2: a device needs 'card' and 'host'" },
		{ SMALL "devices: [{card: t4, host: \"\"}]\n", ":2: a device needs 'card' and" },
		{ "model: {layers: 2, hidden: 65, intermediate: 9, vocab: 9, heads: 3}\n" TWO,
		  "hidden 65 is not a multiple of 3 heads" },
		{ SMALL "devices: []\n", "'devices' is empty" },
		{ SMALL, "'devices' is missing" },
		{ SMALL "devices: [{card: cpu, host: a, memory: 8}]\n", "a processor needs" },
		{ SMALL "devices: [{card: t4, host: a, count: 2, id: x}]\n", "leave 'id' out" },
		{ SMALL "devices: [{card: t4, host: a, id: x}, {card: l4, host: a, id: x}]\n",
		  "two devices have the 'id' 'x'" },
		{ SMALL "devices: [{card: t4, host: a, count: 0}]\n", "count" },
		{ SMALL "devices: [{card: t4, host: a, colour: red}]\n", "colour" },
		{ SMALL "devices: [{card: t4, host: a, memory: 0}]\n", "memory" },
		{ SMALL "device: [{card: t4, host: a}]\n", "'devices'" },
		{ "devices: [{card: t4, host: a}]\n", "'base_model' is missing: which model?" },
		{ "model: {layers: 2}\ndevices: [{card: t4, host: a}]\n",
		  "'model' needs at least layers, hidden, intermediate and vocab" },
		{ "base_model: /nowhere\ndevices: [{card: t4, host: a}]\n",
		  "'base_model': /nowhere/config.json" },
		{ SMALL "base_model: x\n" TWO, "are both there" },
		{ SMALL "adapter: lora\nlora_target_modules: [q_prj]\n" TWO, "q_prj" },
		{ SMALL "batch: 0\n" TWO, "batch" },
		{ SMALL "sequence_len: none\n" TWO, "sequence_len" },
		{ "- 1\n", "were expected" },
		{ "model: [\n", ":" },
	};
	(void)state;
	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
		struct profile p;
		struct err e = { 0 };
		if (describe(bad[i].text, &p, NULL, &e) == 0)
			fail_msg("accepted: %s", bad[i].text);
		if (strncmp(e.msg, path, strlen(path)) != 0 || strchr(e.msg, '\n') ||
		    !strstr(e.msg, bad[i].says))
			fail_msg("'%s' does not say '%s'", e.msg, bad[i].says);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_memory),     cmocka_unit_test(test_marked),
		cmocka_unit_test(test_dtype),      cmocka_unit_test(test_others),
		cmocka_unit_test(test_model_file), cmocka_unit_test(test_bad)
	};
	return cmocka_run_group_tests(tests, setup, teardown);
}
