/* SPDX-License-Identifier: Apache-2.0 */
/* test_train_cluster.c - one job over several processes with keys on loopback: the bits of one
 * process, the cache and what goes wrong. The program is $HETEROSHARD, or the one beside this
 * test. */
#include "base/buf.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/mem.h"
#include "base/rng.h"
#include "file/atomic.h"
#include "net/keys.h"
#include "support/site.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

static void the_bits_of_one_process(void **state)
{
	(void)state;
	struct site s;
	site_make(&s);
	site_configuration(&s, "one", 0, "");
	site_configuration(&s, "two", 2,
			   "shard_plan: [{id: b, start: 0, end: 2}, {id: a, start: 2, end: 6, "
			   "is_last: true}]\n");
	site_configuration(&s, "three", 3, "");
	struct process p = site_start(&s, "train", "one.yaml", NULL);
	must_succeed(&p);
	p = site_start(&s, "train", "two.yaml", NULL); /* starts both workers itself */
	must_succeed(&p);
	same_result(&s, "one", "two", true);
	struct process w[3];
	for (int i = 0; i < 3; i++)
		w[i] = site_start(&s, i ? "worker" : "train", "--worker",
				  i == 0   ? "a"
				  : i == 1 ? "b"
					   : "c",
				  "three.yaml", NULL);
	for (int i = 0; i < 3; i++)
		until(&w[i], "listens");
	p = site_start(&s, "train", "three.yaml", NULL);
	must_succeed(&p);
	for (int i = 0; i < 3; i++)
		must_succeed(&w[i]);
	same_result(&s, "one", "three", true);
	p = site_start(&s, "train", "three.yaml", "schedule=interleaved", "interleave=2",
		       "overwrite_output_dir=true", NULL);
	must_succeed(&p);
	same_result(&s, "one", "three", true);
	printf("2 and 3 workers: losses, norms and adapter identical to one process\n");
	tiny_remove(&s.t);
}

/* Measured, planned, trained, compared; a plan with the workers in the other order is obeyed; a
 * worker that the plan does not need ends with status 0. */
static void plans_by_itself(void **state)
{
	(void)state;
	struct site s;
	struct err e = { 0 };
	char path[600], key[700], out[400];
	site_make(&s);
	site_configuration(&s, "one", 0, "");
	site_configuration(&s, "two", 2, "");
	struct process p = site_start(&s, "train", "one.yaml", "profile=auto", NULL);
	must_succeed(&p);
	assert_true(says(&p, "predicted"));
	p = site_start(&s, "train", "two.yaml", "profile=auto", "planner=even", NULL);
	must_succeed(&p);
	assert_true(says(&p, "2 stages"));
	same_result(&s, "one", "two", true);
	assert_true(run_says(&s, "two", "prediction.json", "\"measured_gib\""));
	assert_true(run_says(&s, "two", "metrics.jsonl", "\"predicted_seconds\""));
	assert_true(run_says(&s, "two", "profile.json", "\"bandwidth_gbytes_per_s\""));
	snprintf(path, sizeof path, "%.300s/turned.json", s.t.dir);
	static const char turned[] =
		"{\"version\": 1, \"layers\": 6, \"schedule\": \"gpipe\", \"microbatch\": 2, "
		"\"stages\": ["
		"{\"layers\": [0, 1], \"recompute\": true, \"devices\": [{\"id\": \"b\"}]}, "
		"{\"layers\": [1, 6], \"devices\": [{\"id\": \"a\"}]}]}";
	assert_int_equal(atomic_write_file(path, turned, strlen(turned), &e), 0);
	snprintf(key, sizeof key, "plan=%s", path);
	p = site_start(&s, "train", "two.yaml", "profile=auto", key, "overwrite_output_dir=true",
		       NULL);
	must_succeed(&p);
	assert_true(says(&p, "layers 0 to 0 on 'b', recomputed"));
	same_result(&s, "one", "two", true);
	static const char alone[] = "{\"version\": 1, \"layers\": 6, \"microbatch\": 2, "
				    "\"stages\": [{\"layers\": [0, 6], \"devices\": "
				    "[{\"id\": \"b\"}]}]}";
	assert_int_equal(atomic_write_file(path, alone, strlen(alone), &e), 0);
	struct process w = site_start(&s, "worker", "--worker", "a", "two.yaml", NULL);
	until(&w, "listens");
	p = site_start(&s, "train", "two.yaml", "profile=auto", key, "overwrite_output_dir=true",
		       NULL);
	must_succeed(&p);
	assert_true(says(&p, "left out: 'a'"));
	must_succeed(&w);
	same_result(&s, "one", "two", true);
	snprintf(out, sizeof out, "%.300s/even", s.t.dir);
	p = site_start(&s, "plan", "--planner", "even", "--out", out, "two.yaml", NULL);
	must_succeed(&p);
	assert_true(run_says(&s, "even", "plan.json", "\"planner\": \"even\""));
	static const char unknown[] = "{\"version\": 1, \"layers\": 6, \"microbatch\": 2, "
				      "\"stages\": [{\"layers\": [0, 6], \"devices\": "
				      "[{\"id\": \"zed\"}]}]}";
	assert_int_equal(atomic_write_file(path, unknown, strlen(unknown), &e), 0);
	p = site_start(&s, "train", "two.yaml", "profile=auto", key, "overwrite_output_dir=true",
		       NULL);
	must_fail(&p, 1, "'zed' is not in the profile");
	tiny_remove(&s.t);
}

/* Overwrites two bytes of one file below. */
static int damage(const char *dir, int depth)
{
	DIR *d = opendir(dir);
	int done = 0;
	for (struct dirent *f; d && !done && (f = readdir(d));) {
		char path[4096];
		if (f->d_name[0] == '.')
			continue;
		snprintf(path, sizeof path, "%s/%s", dir, f->d_name);
		if (depth) {
			done = damage(path, depth - 1);
		} else {
			int fd = open(path, O_WRONLY);
			done = fd >= 0 && pwrite(fd, "\x55\x55", 2, 3) == 2;
			close(fd);
		}
	}
	if (d)
		closedir(d);
	return done;
}

/* In NF4 and in plain numbers: a worker without the model gets its layers once; a damaged cache
 * file is fetched anew. */
static void a_worker_without_the_model(void **state)
{
	(void)state;
	static const char *const kinds[] = { "load_in_4bit=false", "adapter=qlora" };
	for (size_t k = 0; k < ARRAY_LEN(kinds); k++) {
		struct site s;
		char cache[300];
		site_make(&s);
		site_configuration(&s, "one", 0, "");
		site_configuration(&s, "two", 2, "");
		struct process p = site_start(&s, "train", "one.yaml", kinds[k], NULL);
		must_succeed(&p);
		snprintf(cache, sizeof cache, "%s/cache/weights", s.t.dir);
		for (int round = 0; round < 3; round++) {
			struct process w[2];
			if (round == 2)
				assert_true(damage(cache, 1));
			for (int i = 0; i < 2; i++)
				w[i] = site_start(&s, "worker", "--worker", i ? "b" : "a",
						  "two.yaml", "base_model=/nonexistent", NULL);
			for (int i = 0; i < 2; i++)
				until(&w[i], "listens");
			p = site_start(&s, "train", "two.yaml", "overwrite_output_dir=true",
				       kinds[k], NULL);
			must_succeed(&p);
			for (int i = 0; i < 2; i++)
				must_succeed(&w[i]);
			same_result(&s, "one", "two", true);
			char *t = site_text(p.log);
			int sent = 0, none = 0;
			for (const char *at = t; (at = strstr(at, "MB of its layers sent")); at++)
				sent++;
			for (const char *at = t; (at = strstr(at, "already has its layers")); at++)
				none++;
			mem_free(t);
			assert_int_equal(sent + none, 2);
			assert_int_equal(none, round == 0 ? 0 : round == 1 ? 2 : 1);
			assert_true((round == 2) == (says(&w[0], "does not match its hash") ||
						     says(&w[1], "does not match its hash")));
		}
		tiny_remove(&s.t);
	}
}

static int listens_silently(const char *ip, int port)
{
	const int one = 1, fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	struct sockaddr_in at = { .sin_family = AF_INET, .sin_port = htons((uint16_t)port) };
	assert_true(fd >= 0 && inet_pton(AF_INET, ip, &at.sin_addr) == 1);
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
	assert_int_equal(bind(fd, (struct sockaddr *)&at, sizeof at), 0);
	assert_int_equal(listen(fd, 8), 0);
	return fd;
}

static void what_goes_wrong_is_one_line(void **state)
{
	(void)state;
	struct site s;
	site_make(&s);
	site_configuration(&s, "two", 2, "");
	struct process p, w;

	p = site_start(
		&s, "train", "two.yaml",
		"shard_plan=[{id: a, start: 0, end: 2}, {id: b, start: 2, end: 7, is_last: true}]",
		NULL);
	must_fail(&p, 2, "ends at layer 7");
	p = site_start(&s, "worker", "--worker", "x", "two.yaml", NULL);
	must_fail(&p, 2, "no worker of this id");
	site_configuration(&s, "bare", 0,
			   "coordinator: {ip: 198.51.100.1, hostname: nosuch, device: "
			   "none}\nworkers: [{id: a, ip: 198.51.100.2}]\n");
	p = site_start(&s, "train", "bare.yaml", NULL);
	must_fail(&p, 2, "none of this machine's addresses");
	p = site_start(&s, "train", "--role", "coordinator", "bare.yaml", "join_timeout=2", NULL);
	must_fail(&p, 2, "--insecure");

	/* somebody else has the key: the coordinator's is not the worker's */
	struct key_pair other;
	struct err e = { 0 };
	char path[300], text[512];
	snprintf(path, sizeof path, "%s/other", s.t.dir);
	assert_true(key_pair_generate(&other, &e) >= 0 && key_pair_save(&other, path, &e) >= 0);
	snprintf(text, sizeof text, "key_file=%s", path);
	p = site_start(&s, "train", "two.yaml", text, NULL);
	must_fail(&p, 2, "public key");
	w = site_start(&s, "worker", "--worker", "a", "two.yaml", text, NULL);
	must_fail(&w, 2, "public key");

	/* a worker that nobody starts, and is not on this machine; TEST-NET is nobody's */
	snprintf(text, sizeof text,
		 "workers=[{id: a, ip: 127.0.0.2, port: %d, public_key: '%s'}, {id: far, ip: "
		 "203.0.113.9, public_key: '%s'}]",
		 s.port + 1, s.key.pub, s.key.pub);
	p = site_start(&s, "train", "two.yaml", text, "join_timeout=2", NULL);
	must_fail(&p, 1, "far");
	/* one that never answers; nothing trains yet, so Ctrl-C does not promise to save */
	const int silent = listens_silently("127.0.0.2", s.port + 1);
	p = site_start(&s, "train", "two.yaml", NULL);
	const int caller = accept(silent, NULL, NULL);
	kill(p.pid, SIGINT);
	must_fail(&p, 1, "interrupted while waiting");
	assert_true(says(&p, "stopping (Ctrl-C again: end at once)"));
	close(caller);
	close(silent);

	/* two that claim one id: the second finds the port taken */
	w = site_start(&s, "worker", "--worker", "b", "two.yaml", NULL);
	until(&w, "listens");
	p = site_start(&s, "worker", "--worker", "b", "two.yaml", NULL);
	must_fail(&p, 1, "cannot listen");
	kill(w.pid, SIGKILL);
	finished(&w, PATIENCE);

	/* the right port, the wrong worker */
	snprintf(text, sizeof text, "workers=[{id: z, ip: 127.0.0.2, port: %d, public_key: '%s'}]",
		 s.port + 1, s.key.pub);
	w = site_start(&s, "worker", "--worker", "a", "two.yaml", NULL);
	until(&w, "listens");
	p = site_start(&s, "train", "two.yaml", text, NULL);
	must_fail(&p, 1, "worker 'z' is wanted");
	kill(w.pid, SIGINT);
	must_fail(&w, 1, "interrupted");
	/* a member of no group: said once, the job is that of the others */
	p = site_start(&s, "train", "two.yaml", "shard_plan=[{id: a, start: 0, end: 6}]",
		       "overwrite_output_dir=true", NULL);
	must_succeed(&p);
	assert_true(says(&p, "'shard_plan' gives no layers to 'b': this worker is not used"));
	tiny_remove(&s.t);
}

/* How often a log says so. */
static int times(const struct process *p, const char *what)
{
	char *t = site_text(p->log);
	int n = 0;
	for (const char *at = t; (at = strstr(at, what)); at++)
		n++;
	mem_free(t);
	return n;
}

/* One that cannot keep its layers ends the job before its first step: one line says so, the worker
 * that the coordinator has started adds none, and the same command begins again. */
static void a_start_that_failed_is_repeated(void **state)
{
	(void)state;
	struct site s;
	site_make(&s);
	site_configuration(&s, "two", 2,
			   "shard_plan: [{id: b, start: 0, end: 2}, {id: a, start: 2, end: 6}]\n");
	struct process w = site_start(&s, "worker", "--worker", "a", "two.yaml",
				      "base_model=/nonexistent", "cache_dir=/dev/null/x", NULL);
	until(&w, "listens");
	struct process p =
		site_start(&s, "train", "two.yaml", "rejoin_timeout=0", "auto_resume=false", NULL);
	must_fail(&p, 2, "cannot keep the layers");
	must_fail(&w, 1, "cannot keep the layers");
	assert_int_equal(times(&p, "error: "), 1);
	assert_false(says(&p, "begins again"));
	p = site_start(&s, "train", "two.yaml", "auto_resume=false", "sequence_len=56", NULL);
	must_succeed(&p);
	assert_true(says(&p, " of 40 records were longer than sequence_len 56 and cut"));
	tiny_remove(&s.t);
}

/* In the file or in an option: one line of warning for each process that somebody started. */
static void insecure_is_said(void **state)
{
	(void)state;
	struct site s;
	char text[400];
	site_make(&s);
	snprintf(text, sizeof text,
		 "coordinator: {hostname: c, ip: 127.0.0.1, port: %d, device: none}\n"
		 "workers:\n- {id: a, hostname: a, ip: 127.0.0.2, port: %d, device: cpu}\n"
		 "- {id: b, hostname: b, ip: 127.0.0.3, port: %d, device: cpu}\n",
		 s.port, s.port + 1, s.port + 2);
	site_configuration(&s, "open", 0, text);
	struct process w = site_start(&s, "worker", "--worker", "a", "open.yaml", "insecure=true",
				      NULL),
		       p;
	until(&w, "listens");
	p = site_start(&s, "train", "--insecure", "open.yaml", "max_steps=1", "warmup_steps=0",
		       NULL);
	must_succeed(&p);
	must_succeed(&w);
	assert_int_equal(times(&p, "insecure is set: links are neither encrypted"), 1);
	assert_int_equal(times(&w, "insecure is set: links are neither encrypted"), 1);
	site_configuration(&s, "two", 2, "");
	p = site_start(&s, "train", "two.yaml", "insecure=true", "max_steps=1", "warmup_steps=0",
		       "overwrite_output_dir=true", NULL);
	must_succeed(&p);
	assert_int_equal(times(&p, "insecure is set: it has no effect"), 1);
	tiny_remove(&s.t);
}

/* Ctrl-C at the coordinator, then at a worker: saved and finished everywhere, and the resumed run
 * is the uninterrupted one. */
static void interrupted_is_saved(void **state)
{
	(void)state;
	struct site s;
	site_make(&s);
	site_configuration(&s, "one", 0, "");
	site_configuration(&s, "two", 2, "");
	struct process p =
		site_start(&s, "train", "one.yaml", "max_steps=400", "save_steps=0", NULL);
	must_succeed(&p);
	struct process w = site_start(&s, "worker", "--worker", "b", "two.yaml", NULL);
	until(&w, "listens");
	p = site_start(&s, "train", "two.yaml", "max_steps=400", "save_steps=0", NULL);
	until(&p, " 3/400 ");
	kill(p.pid, SIGINT);
	assert_int_equal(finished(&p, PATIENCE), 1);
	must_succeed(&w);
	assert_true(says(&p, "interrupted after step"));
	assert_true(says(&p, "stopping: the step is finished and saved first"));
	p = site_start(&s, "train", "two.yaml", "max_steps=400", "save_steps=0",
		       "resume_from_checkpoint=latest", NULL);
	must_succeed(&p);
	same_result(&s, "one", "two", false);
	tiny_remove(&s.t);
}

/* Ctrl-C on a worker: the others get its layers after the step, and go on. */
static void a_worker_leaves(void **state)
{
	struct site s;
	char text[200];
	(void)state;
	site_make(&s);
	site_configuration(&s, "one", 0, "");
	site_configuration(&s, "two", 3, "");
	struct process p =
		site_start(&s, "train", "one.yaml", "max_steps=60", "save_steps=0", NULL);
	must_succeed(&p);
	struct process w = site_start(&s, "worker", "--worker", "b", "two.yaml", NULL);
	until(&w, "listens");
	p = site_start(&s, "train", "two.yaml", "max_steps=60", "save_steps=0", "snapshot_to=off",
		       NULL);
	until(&p, " 3/60 ");
	assert_true(says(&p, "snapshot_to is off: when a worker is lost, the job goes back to the "
			     "newest checkpoint, and computes up to 60 steps again"));
	kill(w.pid, SIGINT);
	must_succeed(&w);
	until(&p, "'b' has left");
	assert_false(says(&p, "computed again"));
	struct process l = site_start(&s, "leave", "nobody", NULL);
	must_fail(&l, 2, "no job that runs here has a worker 'nobody'");
	l = site_start(&s, "leave", "c", NULL);
	must_succeed(&l);
	assert_true(says(&l, "'c' leaves the job in "));
	until(&p, "'c' has left");
	/* nobody else has the layers */
	l = site_start(&s, "leave", "a", NULL);
	must_succeed(&l);
	until(&p, "'a' wants to leave, but the others cannot go on without it");
	must_succeed(&p);
	assert_false(says(&p, "is back"));
	same_result(&s, "one", "two", true);
	snprintf(text, sizeof text, "%.150s/two/metrics.jsonl", s.t.dir);
	char *m = site_text(text);
	assert_non_null(strstr(m, "\"event\": \"left\""));
	mem_free(m);
	tiny_remove(&s.t);
}

/* While the devices are measured: nothing was trained, so nothing is exported. */
static void interrupted_before_the_first_step(void **state)
{
	(void)state;
	struct site s;
	char path[600];
	site_make(&s);
	site_configuration(&s, "two", 2, "");
	struct process w[2];
	for (int i = 0; i < 2; i++) {
		w[i] = site_start(&s, "worker", "--worker", i ? "b" : "a", "two.yaml", NULL);
		until(&w[i], "listens");
	}
	struct process p = site_start(&s, "train", "two.yaml", "profile=auto", NULL);
	for (int i = 0; i < 2; i++)
		until(&w[i], "has joined");
	usleep(500000); /* measuring takes seconds */
	int64_t began = clock_now();
	kill(p.pid, SIGINT);
	must_fail(&p, 1, "before the first step");
	printf("  ended after %.1f s\n", clock_seconds(clock_now() - began));
	for (int i = 0; i < 2; i++)
		assert_int_equal(finished(&w[i], PATIENCE), 1);
	snprintf(path, sizeof path, "%.300s/two/adapter_model.safetensors", s.t.dir);
	assert_true(access(path, F_OK) < 0);
	tiny_remove(&s.t);
}

/* A run began in bfloat16. With compute_dtype auto it goes on in it, in one process and in several,
 * whatever the devices would choose; another dtype is refused. */
static void a_resumed_run_keeps_its_dtype(void **state)
{
	(void)state;
	static const char *const name[] = { "one.yaml", "two.yaml" };
	struct site s;
	site_make(&s);
	site_configuration(&s, "one", 0, "");
	site_configuration(&s, "two", 2,
			   "shard_plan: [{id: a, start: 0, end: 3}, {id: b, start: 3, end: 6}]\n");
	for (int i = 0; i < 2; i++) {
		struct process p = site_start(&s, "train", name[i], "compute_dtype=bfloat16",
					      "max_steps=3", "val_set_size=0", NULL);
		must_succeed(&p);
		p = site_start(&s, "train", name[i], "compute_dtype=float32", "val_set_size=0",
			       "resume_from_checkpoint=latest", NULL);
		must_fail(&p, 2, "'compute_dtype' was bfloat16 and is float32 now");
		p = site_start(&s, "train", name[i], "compute_dtype=auto", "max_steps=4",
			       "val_set_size=0", "resume_from_checkpoint=latest", NULL);
		must_succeed(&p);
		assert_true(says(&p, "computing in bfloat16"));
		p = site_start(&s, "train", name[i], "compute_dtype=float32", "max_steps=5",
			       "val_set_size=0", "resume_from_checkpoint=latest", "--allow-changes",
			       NULL);
		must_succeed(&p);
		assert_true(says(&p, "computing in float32"));
	}
	tiny_remove(&s.t);
}

/* A neighbour that is not ready within join_timeout is waited for: it may be loading its layers.
 * It stands still from before its plan comes. */
static void a_slow_neighbour_is_waited_for(void **state)
{
	(void)state;
	struct site s;
	site_make(&s);
	site_configuration(&s, "two", 2, "");
	struct process a, b, p;
	a = site_start(&s, "worker", "--worker", "a", "two.yaml", "join_timeout=1",
		       "coordinator_timeout=30", NULL);
	b = site_start(&s, "worker", "--worker", "b", "two.yaml", "join_timeout=1",
		       "coordinator_timeout=30", NULL);
	until(&a, "listens");
	until(&b, "listens");
	kill(b.pid, SIGSTOP); /* until the other cannot have got its plan */
	p = site_start(&s, "train", "two.yaml",
		       "shard_plan=[{id: a, start: 0, end: 2}, "
		       "{id: b, start: 2, end: 6, is_last: true}]",
		       "peer_timeout=60", "min_workers=2", "rejoin_timeout=0", NULL);
	until(&a, "has joined");
	kill(a.pid, SIGSTOP);
	kill(b.pid, SIGCONT);
	until(&b, "has joined");
	sleep(3);
	kill(a.pid, SIGCONT);
	must_succeed(&p);
	assert_false(says(&p, "lost each other"));
	must_succeed(&a);
	must_succeed(&b);
	tiny_remove(&s.t);
}

/* Before it asks for its workers the coordinator makes the first adapters, which may take longer
 * than join_timeout. */
static void a_preparation_is_waited_for(void **state)
{
	(void)state;
	struct site s;
	site_make(&s);
	site_configuration(&s, "two", 2, "peft_init_lora_weights: loftq\nadapter: qlora\n");
	struct process a, b, p;
	a = site_start(&s, "worker", "--worker", "a", "two.yaml", "join_timeout=1", NULL);
	b = site_start(&s, "worker", "--worker", "b", "two.yaml", "join_timeout=1", NULL);
	until(&a, "asks for: waiting on");
	until(&b, "asks for: waiting on");
	p = site_start(&s, "train", "two.yaml", "max_steps=2", NULL);
	must_succeed(&p);
	must_succeed(&a);
	must_succeed(&b);
	tiny_remove(&s.t);
}

int main(int argc, char **argv)
{
	(void)argc;
	site_program(argv[0]);
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_bits_of_one_process),
		cmocka_unit_test(plans_by_itself),
		cmocka_unit_test(a_preparation_is_waited_for),
		cmocka_unit_test(a_worker_without_the_model),
		cmocka_unit_test(what_goes_wrong_is_one_line),
		cmocka_unit_test(a_start_that_failed_is_repeated),
		cmocka_unit_test(insecure_is_said),
		cmocka_unit_test(interrupted_is_saved),
		cmocka_unit_test(a_worker_leaves),
		cmocka_unit_test(a_slow_neighbour_is_waited_for),
		cmocka_unit_test(interrupted_before_the_first_step),
		cmocka_unit_test(a_resumed_run_keeps_its_dtype),
	};
	const char *only = getenv("HS_ONLY"); /* one test, by name */
	if (only)
		cmocka_set_test_filter(only);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
