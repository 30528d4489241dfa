/* SPDX-License-Identifier: Apache-2.0 */
/* test_train_published.c - the plans of the published planners are trained: sizes of passes, state
 * shares and chunks included, on several processes, with the bits of one process that has the same
 * passes; also from a checkpoint, whose sizes stay. Devices have made-up speeds. */
#include "base/buf.h"
#include "base/mem.h"
#include "support/site.h"

#include <jansson.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define ROWS "micro_batch_size=1", "gradient_accumulation_steps=12"
#define FEW_ROWS "micro_batch_size=1", "gradient_accumulation_steps=6"

static json_t *read_json(const struct site *s, const char *name)
{
	size_t n;
	char *text = tiny_read(&s->t, name, &n);
	json_t *doc = json_loads(text, 0, NULL);
	assert_non_null(doc);
	mem_free(text);
	return doc;
}

/* profile.json of one device becomes that of three: of unlike speeds; c is on a machine of
 * its own behind a slow link. */
static void make_profile(const struct site *s, const char *from, const char *to)
{
	static const double slower[] = { 2, 4, 1 };
	json_t *doc = read_json(s, from), *devices = json_array(), *links = json_array();
	json_t *one = json_array_get(json_object_get(doc, "devices"), 0);
	for (int i = 0; i < 3; i++) {
		json_t *d = json_deep_copy(one);
		char id[2] = { (char)('a' + i), 0 };
		json_object_set_new(d, "id", json_string(id));
		json_object_set_new(d, "host", json_string(i < 2 ? "x" : "y"));
		json_object_set_new(d, "memory_gib", json_real(16));
		json_object_set_new(d, "used_gib", json_real(0));
		json_object_set_new(d, "forward_ms",
				    json_pack("{s:[f,f]}", "linear", slower[i], 0.2));
		json_object_set_new(d, "backward_ms",
				    json_pack("{s:[f,f]}", "linear", 2 * slower[i], 0.2));
		json_array_append_new(devices, d);
	}
	json_array_append_new(links, json_pack("{s:[s,s],s:f,s:f}", "hosts", "x", "x",
					       "bandwidth_gbytes_per_s", 5.0, "latency_ms", 0.01));
	json_array_append_new(links, json_pack("{s:[s,s],s:f,s:f}", "hosts", "*", "*",
					       "bandwidth_gbytes_per_s", 1e-4, "latency_ms", 0.2));
	json_object_set_new(doc, "devices", devices);
	json_object_set_new(doc, "links", links);
	char *text = json_dumps(doc, JSON_INDENT(1));
	site_put(s, to, text, 0644);
	free(text);
	json_decref(doc);
}

static void same_file(const struct site *s, const char *a, const char *b, const char *file)
{
	char name[2][160];
	size_t n[2];
	snprintf(name[0], sizeof name[0], "%s/%s", a, file);
	snprintf(name[1], sizeof name[1], "%s/%s", b, file);
	char *p = tiny_read(&s->t, name[0], &n[0]), *q = tiny_read(&s->t, name[1], &n[1]);
	if (n[0] != n[1] || memcmp(p, q, n[0]))
		fail_msg("%s and %s differ", name[0], name[1]);
	mem_free(p);
	mem_free(q);
}

/* The sizes of the passes of a run, as an override. */
static void passes_of(const struct site *s, const char *run, size_t rows, char *out, size_t cap)
{
	char name[64];
	snprintf(name, sizeof name, "%s/plan.json", run);
	json_t *doc = read_json(s, name), *list = json_object_get(doc, "passes"), *x;
	size_t i, at;
	at = (size_t)snprintf(out, cap, "passes=[");
	json_array_foreach(list, i, x) at += (size_t)snprintf(
		out + at, cap - at, "%s%lld", i ? ", " : "", (long long)json_integer_value(x));
	for (i = 0; !list && i < rows;
	     i += (size_t)json_integer_value(json_object_get(doc, "microbatch")))
		at += (size_t)snprintf(
			out + at, cap - at, "%s%lld", i ? ", " : "",
			(long long)json_integer_value(json_object_get(doc, "microbatch")));
	snprintf(out + at, cap - at, "]");
	assert_true(json_is_true(json_object_get(doc, "executable")));
	json_decref(doc);
}

static void make(struct site *s, const char *adapter)
{
	char text[1200];
	site_make(s);
	snprintf(text, sizeof text, "%sreduce_order: exact\n", adapter);
	site_configuration(s, "one", 0, text);
	struct process p = site_start(s, "profile", "one.yaml", "profile=auto", ROWS, NULL);
	must_succeed(&p);
	make_profile(s, "one/profile.json", "three.json");
}

static void cluster(struct site *s, const char *name, const char *adapter, const char *more)
{
	char text[1600];
	snprintf(text, sizeof text,
		 "%sreduce_order: exact\n%scoordinator: {ip: 127.0.0.1, port: %d, device: none}\n"
		 "workers:\n- {id: a, ip: 127.0.0.2, port: %d, device: cpu}\n"
		 "- {id: b, ip: 127.0.0.3, port: %d, device: cpu}\n"
		 "- {id: c, ip: 127.0.0.4, port: %d, device: cpu}\n",
		 adapter, more, s->port, s->port + 1, s->port + 2, s->port + 3);
	site_configuration(s, name, 0, text);
}

static void cephalo(void **state)
{
	(void)state;
	struct site s;
	char passes[200], profile[600], from[600];
	make(&s, "adapter: none\n");
	snprintf(profile, sizeof profile, "profile=%s/three.json", s.t.dir);
	cluster(&s, "group", "adapter: none\n", "planner: cephalo\n");
	struct process p = site_start(&s, "train", "group.yaml", profile, ROWS, NULL);
	must_succeed(&p);
	passes_of(&s, "group", 12, passes, sizeof passes);
	printf("cephalo: %s\n", passes);
	assert_null(strstr(passes, "[1, 1, 1, 1, 1, 1, 1"));
	assert_true(run_says(&s, "group", "plan.json", "\"schedule\": \"breadth_first\"") &&
		    run_says(&s, "group", "plan.json", "\"sharded\": true"));
	p = site_start(&s, "train", "one.yaml", passes, ROWS, "overwrite_output_dir=true", NULL);
	must_succeed(&p);
	same_file(&s, "one", "group", "model.safetensors");
	/* from the middle, where the sizes are the run's */
	snprintf(from, sizeof from, "resume_from_checkpoint=%s/one/checkpoints/step-000003",
		 s.t.dir);
	cluster(&s, "again", "adapter: none\n", "planner: cephalo\n");
	p = site_start(&s, "train", "again.yaml", profile, from, ROWS, NULL);
	must_succeed(&p);
	same_file(&s, "one", "again", "model.safetensors");
	/* too few rows for its rule: why, in one line */
	p = site_start(&s, "train", "again.yaml", profile, "micro_batch_size=1",
		       "gradient_accumulation_steps=2", "overwrite_output_dir=true", NULL);
	must_fail(&p, 2,
		  "cephalo: every device computes at least one sequence: 3 devices, global "
		  "batch 2");
	tiny_remove(&s.t);
}

static void zorse(void **state)
{
	(void)state;
	struct site s;
	char passes[200], profile[600];
	make(&s, "");
	snprintf(profile, sizeof profile, "profile=%s/three.json", s.t.dir);
	cluster(&s, "group", "", "planner: zorse\n");
	struct process p = site_start(&s, "train", "group.yaml", profile, FEW_ROWS, NULL);
	must_succeed(&p);
	passes_of(&s, "group", 6, passes, sizeof passes);
	printf("zorse: %s\n", passes);
	json_t *doc = read_json(&s, "group/plan.json"), *stages = json_object_get(doc, "stages");
	assert_true(json_array_size(stages) >= 2);
	size_t most = 0;
	for (size_t i = 0; i < json_array_size(stages); i++) {
		size_t n = json_array_size(json_object_get(json_array_get(stages, i), "devices"));
		most = n > most ? n : most;
	}
	assert_int_equal(most, 2);
	json_decref(doc);
	p = site_start(&s, "train", "one.yaml", passes, FEW_ROWS, "overwrite_output_dir=true",
		       NULL);
	must_succeed(&p);
	same_result(&s, "one", "group", true);
	/* no memory beside its reserve of 2 GiB: why, in one line */
	doc = read_json(&s, "three.json");
	size_t i;
	json_t *d;
	json_array_foreach(json_object_get(doc, "devices"), i, d)
		json_object_set_new(d, "memory_gib", json_real(2));
	snprintf(profile, sizeof profile, "%s/small.json", s.t.dir);
	assert_int_equal(json_dump_file(doc, profile, 0), 0);
	json_decref(doc);
	snprintf(profile, sizeof profile, "profile=%s/small.json", s.t.dir);
	p = site_start(&s, "train", "group.yaml", profile, FEW_ROWS, "overwrite_output_dir=true",
		       NULL);
	must_fail(&p, 2, "zorse: no partition into groups fits into memory");
	tiny_remove(&s.t);
}

int main(int argc, char **argv)
{
	(void)argc;
	site_program(argv[0]);
	const struct CMUnitTest tests[] = { cmocka_unit_test(cephalo), cmocka_unit_test(zorse) };
	return cmocka_run_group_tests(tests, NULL, NULL);
}
