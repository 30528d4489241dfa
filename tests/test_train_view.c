/* SPDX-License-Identifier: Apache-2.0 */
/* What a job of several processes shows and leaves: its lines, those of its workers,
 * architecture.dot, trace.json on one time axis. */
#include "base/clock.h"
#include "base/err.h"
#include "base/json.h"
#include "base/mem.h"
#include "support/site.h"

#include <arpa/inet.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static char program[256];

static char *read_run(const struct site *s, const char *name)
{
	char path[512];
	snprintf(path, sizeof path, "%s/two/%s", s->t.dir, name);
	return site_text(path);
}

static double number(const json_t *event, const char *key)
{
	const json_t *v = json_object_get(event, key);
	return json_number_value(v ? v : json_object_get(json_object_get(event, "args"), key));
}

static const char *name_of(const json_t *event)
{
	return json_string_value(json_object_get(event, "name"));
}

/* The span of this name, worker, step and microbatch. */
static const json_t *find(const json_t *events, const char *name, int pid, double step,
			  double microbatch)
{
	for (size_t i = 0; i < json_array_size(events); i++) {
		const json_t *v = json_array_get(events, i);
		if (!strcmp(name_of(v), name) && number(v, "pid") == pid &&
		    number(v, "step") == step && number(v, "microbatch") == microbatch)
			return v;
	}
	return NULL;
}

/* What is received was sent before, by no more than the clocks can be apart; every stream of every
 * worker is there. */
static void check_trace(const struct site *s, bool one_clock)
{
	enum { SEND = 1, RECEIVE = 2, STREAMS = 4 };
	struct err e = { 0 };
	json_t *doc;
	char *text = read_run(s, "trace.json");
	if (json_parse_text(text, strlen(text), "trace.json", &doc, &e) < 0)
		fail_msg("%s", e.msg);
	const json_t *events = json_object_get(doc, "traceEvents");
	double apart = json_number_value(json_object_get(json_object_get(doc, "otherData"),
							 "clocks apart at most, ns")) /
		       1e3;
	size_t seen[2][STREAMS] = { { 0 } }, pairs = 0;
	double least = 1e300;
	for (size_t i = 0; i < json_array_size(events); i++) {
		const json_t *v = json_array_get(events, i);
		int pid = (int)number(v, "pid"), tid = (int)number(v, "tid");
		if (strcmp(json_string_value(json_object_get(v, "ph")), "X"))
			continue;
		assert_true(pid >= 0 && pid < 2 && tid >= 0 && tid < STREAMS);
		seen[pid][tid]++;
		if (tid != RECEIVE)
			continue;
		char sent[32];
		snprintf(sent, sizeof sent, "send%s", name_of(v) + strlen("recv"));
		const json_t *by =
			find(events, sent, 1 - pid, number(v, "step"), number(v, "microbatch"));
		if (!by)
			fail_msg("%s of step %g, microbatch %g: nobody sent it", name_of(v),
				 number(v, "step"), number(v, "microbatch"));
		double later = number(v, "ts") + number(v, "dur") - number(by, "ts");
		least = later < least ? later : least;
		pairs++;
	}
	for (int w = 0; w < 2; w++)
		for (int k = 0; k < STREAMS; k++)
			if (!seen[w][k])
				fail_msg("worker %d has nothing on stream %d", w, k);
	assert_true(pairs >= 2 * 4 * 3);
	printf("%zu messages received, the quickest %.1f us after it began to be sent; clocks at "
	       "most %.1f us apart\n",
	       pairs, least, apart);
	assert_true(least >= -apart);
	assert_true(one_clock ? apart == 0 : apart > 0);
	json_decref(doc);
	mem_free(text);
}

/* Waits for the silent worker 'a'. The kernel names a TCP socket's address as it lies in memory, in
 * hexadecimal digits; the state of one that listens is 0A. */
static void until_a_listens(const struct site *s)
{
	char wanted[64];
	snprintf(wanted, sizeof wanted, " %08X:%04X 00000000:0000 0A ", htonl(0x7f000002),
		 (unsigned)s->port + 1);
	for (int64_t end = clock_now() + (int64_t)PATIENCE * 1000000000; clock_now() < end;
	     usleep(5000)) {
		char *text = site_text("/proc/net/tcp");
		const bool found = strstr(text, wanted) != NULL;
		mem_free(text);
		if (found)
			return;
	}
	fail_msg("nobody listens at 127.0.0.2:%d", s->port + 1);
}

static void what_a_job_shows(void **state)
{
	(void)state;
	struct site s;
	site_make(&s);
	site_configuration(&s, "two", 2,
			   "shard_plan: [{id: a, start: 0, end: 3}, {id: b, start: 3, end: 6, "
			   "is_last: true}]\n");
	struct process w =
		site_start(&s, "worker", "--worker", "b", "two.yaml", "logging_steps=2", NULL);
	struct process quiet = site_start(&s, "-q", "worker", "--worker", "a", "two.yaml", NULL);
	until(&w, "listens");
	until_a_listens(&s); /* or the coordinator starts it too */
	struct process p = site_start(&s, "train", "two.yaml", "max_steps=4", "visualize=true",
				      "trace=true", "val_set_size=0", NULL);
	must_succeed(&p);
	must_succeed(&w);
	must_succeed(&quiet);
	assert_true(says(&p, "stages  0 a busy "));
	assert_true(says(&p, "; 1 b busy "));
	assert_true(says(&w, "worker 'b' has joined "));
	assert_true(says(&w, "is stage 1 of 2, 1f1b: layers 3 to 5, head"));
	assert_true(says(&w, "step 2: ") && says(&w, "step 4: ") && !says(&w, "step 3: "));
	assert_true(says(&w, "worker 'b' ended after step "));
	char *text = site_text(quiet.log);
	assert_string_equal(text, "");
	mem_free(text);
	text = read_run(&s, "architecture.dot");
	static const char *const wanted[] = {
		"boxa",          "127.0.0.2", "a · cpu",       "boxb",
		"127.0.0.3",     "b · cpu",   "layers 0 to 2", "layers 3 to 5 + head",
		"shared memory", "/s<br/>",   "ms a step",     "busy ",
		"coordinator"
	};
	for (size_t i = 0; i < ARRAY_LEN(wanted); i++)
		if (!strstr(text, wanted[i]))
			fail_msg("architecture.dot does not say '%s':\n%s", wanted[i], text);
	mem_free(text);
	check_trace(&s, true);
	tiny_remove(&s.t);
}

/* Members of one stage: a line, a box with its share, and a track for each. */
static void what_a_group_shows(void **state)
{
	(void)state;
	struct site s;
	site_make(&s);
	site_configuration(&s, "two", 2,
			   "shard_plan: [{id: [a, b], share: [2, 1], start: 0, end: 6}]\n");
	struct process w[2] = {
		site_start(&s, "worker", "--worker", "a", "two.yaml", NULL),
		site_start(&s, "worker", "--worker", "b", "two.yaml", NULL),
	};
	for (int i = 0; i < 2; i++)
		until(&w[i], "listens"); /* or the coordinator starts them too */
	struct process p = site_start(&s, "train", "two.yaml", "max_steps=2", "visualize=true",
				      "trace=true", "val_set_size=0", NULL);
	must_succeed(&p);
	must_succeed(&w[0]);
	must_succeed(&w[1]);
	assert_true(says(&p, "stages  0.0 a busy ") && says(&p, "; 0.1 b busy "));
	char *dot = read_run(&s, "architecture.dot"), *trace = read_run(&s, "trace.json");
	static const char *const wanted[] = { "a · cpu", "b · cpu", "67 %", "33 %" };
	for (size_t i = 0; i < ARRAY_LEN(wanted); i++)
		if (!strstr(dot, wanted[i]))
			fail_msg("architecture.dot does not say '%s':\n%s", wanted[i], dot);
	struct err e = { 0 };
	json_t *doc;
	bool reduces[2] = { false };
	if (json_parse_text(trace, strlen(trace), "trace.json", &doc, &e) < 0)
		fail_msg("%s", e.msg);
	const json_t *events = json_object_get(doc, "traceEvents");
	for (size_t i = 0; i < json_array_size(events); i++) {
		const json_t *v = json_array_get(events, i);
		const int pid = (int)number(v, "pid");
		if (!strcmp(json_string_value(json_object_get(v, "ph")), "X") &&
		    !strncmp(name_of(v), "reduce", 6)) {
			assert_true(pid == 0 || pid == 1);
			reduces[pid] = true;
		}
	}
	assert_true(reduces[0] && reduces[1]);
	json_decref(doc);
	mem_free(trace);
	mem_free(dot);
	tiny_remove(&s.t);
}

/* A coordinator without a host name, with a device of its own and a worker beside it: one machine,
 * one box. */
static void one_machine_is_one_box(void **state)
{
	(void)state;
	struct site s;
	char path[512], file[4096];
	site_make(&s);
	site_configuration(&s, "two", 0, "");
	snprintf(path, sizeof path, "%s/two.yaml", s.t.dir);
	char *text = site_text(path);
	snprintf(file, sizeof file,
		 "%scoordinator: {ip: 127.0.0.1, port: %d, device: cpu}\n"
		 "workers: [{id: b, ip: 127.0.0.1, port: %d, device: cpu}]\n"
		 "shard_plan: [{id: b, start: 0, end: 3}, {id: local, start: 3, end: 6}]\n",
		 text, s.port, s.port + 1);
	mem_free(text);
	site_put(&s, "two.yaml", file, 0644);
	struct process p =
		site_start(&s, "train", "two.yaml", "max_steps=2", "visualize=true", NULL);
	must_succeed(&p);
	/* examples, not microbatches of two */
	assert_true(says(&p, "trained; 4 held out"));
	text = read_run(&s, "architecture.dot");
	const char *box = strstr(text, "subgraph cluster_");
	assert_non_null(box);
	assert_null(strstr(box + 1, "subgraph cluster_"));
	assert_non_null(strstr(box, "coordinator"));
	assert_non_null(strstr(box, "b · cpu"));
	assert_non_null(strstr(box, "local · cpu"));
	mem_free(text);
	tiny_remove(&s.t);
}

/* A worker whose monotonic clock is more than an hour ahead: a time namespace. */
static void on_one_time_axis(void **state)
{
	(void)state;
	if (system("unshare --time --monotonic 5000 --fork true 2>/dev/null") != 0) {
		printf("skipped: time namespaces need root and Linux 5.6\n");
		skip();
	}
	struct site s;
	char script[700], wrapper[512];
	site_make(&s);
	site_configuration(&s, "two", 2,
			   "shard_plan: [{id: a, start: 0, end: 3}, {id: b, start: 3, end: 6, "
			   "is_last: true}]\n");
	snprintf(script, sizeof script,
		 "#!/bin/sh\ncase \"$*\" in *--worker*) exec unshare --time --monotonic 5000 "
		 "--fork '%s' \"$@\";; esac\nexec '%s' "
		 "\"$@\"\n",
		 program, program);
	site_put(&s, "late.sh", script, 0755);
	snprintf(wrapper, sizeof wrapper, "%s/late.sh", s.t.dir);
	setenv("HETEROSHARD", wrapper, 1);
	site_program("");
	struct process w = site_start(&s, "worker", "--worker", "b", "two.yaml", NULL);
	until(&w, "listens");
	struct process p = site_start(&s, "train", "two.yaml", "max_steps=4", "trace=true",
				      "val_set_size=0", NULL);
	must_succeed(&p);
	must_succeed(&w);
	check_trace(&s, false);
	tiny_remove(&s.t);
}

/* PEFT leaves modules of such an adapter out: the end says which command makes one that it
 * takes. */
static void of_experts(void **state)
{
	(void)state;
	struct site s;
	site_make_model(&s, "{\"model_type\":\"qwen3_moe\"," TINY_COMMON
			    ",\"num_experts\":4,\"num_experts_per_tok\":2,"
			    "\"moe_intermediate_size\":24}");
	site_configuration(&s, "run", 0, "");
	struct process all =
		site_start(&s, "train", "run.yaml", "max_steps=3", "val_set_size=0", NULL);
	must_succeed(&all);
	assert_true(says(&all, "for PEFT: heteroshard merge "));
	assert_true(says(&all, "/run OUT --adapter-only"));
	struct process attention =
		site_start(&s, "train", "run.yaml", "max_steps=3", "val_set_size=0",
			   "lora_target_linear=false", "lora_target_modules=q_proj",
			   "overwrite_output_dir=true", NULL);
	must_succeed(&attention);
	assert_false(says(&attention, "for PEFT"));
	/* that command refuses it */
	struct process dora = site_start(&s, "train", "run.yaml", "max_steps=3", "val_set_size=0",
					 "peft_use_dora=true", "overwrite_output_dir=true", NULL);
	must_succeed(&dora);
	assert_false(says(&dora, "for PEFT"));
	tiny_remove(&s.t);
}

int main(int argc, char **argv)
{
	(void)argc;
	const char *given = getenv("HETEROSHARD"), *slash = strrchr(argv[0], '/');
	if (given)
		snprintf(program, sizeof program, "%s", given);
	else
		snprintf(program, sizeof program, "%.*s/../heteroshard",
			 slash ? (int)(slash - argv[0]) : 1, slash ? argv[0] : ".");
	site_program(argv[0]);
	const struct CMUnitTest tests[] = {
		/* changes the program: the last one */
		cmocka_unit_test(what_a_job_shows),       cmocka_unit_test(what_a_group_shows),
		cmocka_unit_test(one_machine_is_one_box), cmocka_unit_test(of_experts),
		cmocka_unit_test(on_one_time_axis),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
