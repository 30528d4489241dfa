/* test_train_cluster.c - one job over several processes with keys on loopback: the bits of one process, the cache, what goes wrong, and killing
 * any of them at random moments (HS_KILLS times, 6 unless said otherwise). The program is $HETEROSHARD, or the one beside this test. */
#include "base/buf.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/mem.h"
#include "base/rng.h"
#include "file/atomic.h"
#include "net/keys.h"
#include "support/tiny.h"

#include <dirent.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

enum { ARGS = 32, LAYERS = 6, PATIENCE = 60 /* seconds: other programs may keep the machine busy */ };

static char program[4096];

struct site {
	struct tiny t;
	struct key_pair key;
	int port;
};

struct process {
	pid_t pid;
	char log[512];
};

/* ---- files ---- */

static void put(const struct site *s, const char *name, const char *text, mode_t mode)
{
	char path[512];
	snprintf(path, sizeof path, "%s/%s", s->t.dir, name);
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, mode);
	assert_true(fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text));
	close(fd);
}

/* NAME.yaml: workers 'a', 'b', ... at 127.0.0.2, .3, ...; `cluster` false: the same job in one process. */
static void configuration(const struct site *s, const char *name, int workers, const char *extra)
{
	struct buf b = BUF_INIT;
	buf_addf(&b,
		 "base_model: %s/model\nadapter: lora\nlora_r: 4\nlora_alpha: 8\nlora_target_linear: true\nlora_dropout: 0.1\n"
		 "compute_dtype: float32\ndatasets: [{path: %s/data.jsonl, type: completion}]\nsequence_len: "
		 "128\nmicro_batch_size: 2\n"
		 "gradient_accumulation_steps: 3\nlearning_rate: 0.005\nmax_steps: 6\nwarmup_steps: 2\nsave_steps: "
		 "3\nval_set_size: 4\n"
		 "visualize: false\ntensorboard: false\ntrace: false\nwire_dtype: float32\noutput_dir: %s/%s\ncache_dir: %s/cache\n"
		 "peer_timeout: 10\njoin_timeout: 60\n%s",
		 s->t.dir, s->t.dir, s->t.dir, name, s->t.dir, extra);
	if (workers)
		buf_addf(&b,
			 "key_file: %s/key\ncoordinator: {hostname: c, ip: 127.0.0.1, port: %d, device: none, public_key: '%s'}\n"
			 "workers:\n",
			 s->t.dir, s->port, s->key.pub);
	for (int i = 0; i < workers; i++)
		buf_addf(&b, "- {id: %c, hostname: box%c, ip: 127.0.0.%d, port: %d, device: cpu, public_key: '%s'}\n", 'a' + i,
			 'a' + i, i + 2, s->port + 1 + i, s->key.pub);
	char file[128];
	snprintf(file, sizeof file, "%s.yaml", name);
	put(s, file, b.p, 0644);
	buf_release(&b);
}

static void site_make(struct site *s)
{
	static int turn;
	struct err e = { 0 };
	char path[512];
	tiny_make(&s->t, LAYERS, 40);
	s->port = 20000 + (int)(getpid() % 3000) * 10 + turn++ % 2 * 5;
	snprintf(path, sizeof path, "%s/key", s->t.dir);
	if (key_pair_generate(&s->key, &e) < 0 || key_pair_save(&s->key, path, &e) < 0)
		fail_msg("%s", e.msg);
}

static char *text_of(const char *path)
{
	struct buf b = BUF_INIT;
	struct err e = { 0 };
	if (buf_read_file(&b, path, 0, &e) < 0)
		return mem_strdup("");
	return buf_detach(&b);
}

/* ---- processes ---- */

/* Arguments end with NULL; "NAME.yaml" is taken from the site's folder. */
static struct process start(const struct site *s, ...)
{
	static int serial;
	struct process p;
	char *arg[ARGS + 1], file[512];
	int n = 0;
	va_list ap;
	va_start(ap, s);
	arg[n++] = program;
	for (char *a; n < ARGS && (a = va_arg(ap, char *));) {
		size_t len = strlen(a);
		if (len > 5 && !strcmp(a + len - 5, ".yaml")) {
			snprintf(file, sizeof file, "%s/%s", s->t.dir, a);
			a = file;
		}
		arg[n++] = a;
	}
	va_end(ap);
	arg[n] = NULL;
	snprintf(p.log, sizeof p.log, "%.200s/log-%d", s->t.dir, serial++);
	p.pid = fork();
	assert_true(p.pid >= 0);
	if (p.pid == 0) {
		int fd = open(p.log, O_WRONLY | O_CREAT | O_TRUNC, 0644);
		if (fd < 0 || dup2(fd, 1) < 0 || dup2(fd, 2) < 0)
			_exit(126);
		setenv("OMP_NUM_THREADS", "1", 1);
		execv(program, arg);
		_exit(127);
	}
	return p;
}

static void show_log(const struct process *p)
{
	char *t = text_of(p->log);
	fprintf(stderr, "---- %s\n%s----\n", p->log, t);
	mem_free(t);
}

/* Exit status, or 1000 + signal. */
static int finished(const struct process *p, double seconds)
{
	int status;
	for (int64_t end = clock_now() + (int64_t)(seconds * 1e9); clock_now() < end; usleep(5000)) {
		pid_t got = waitpid(p->pid, &status, WNOHANG);
		if (got == p->pid)
			return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
	}
	kill(p->pid, SIGKILL);
	waitpid(p->pid, &status, 0);
	show_log(p);
	fail_msg("process %d still ran after %g s", (int)p->pid, seconds);
	return -1;
}

static void must_succeed(const struct process *p)
{
	int rc = finished(p, PATIENCE);
	if (rc) {
		show_log(p);
		fail_msg("status %d", rc);
	}
}

static bool says(const struct process *p, const char *what)
{
	char *t = text_of(p->log);
	bool found = strstr(t, what) != NULL;
	mem_free(t);
	return found;
}

/* Waits until a worker's log has the line. */
static void until(const struct process *p, const char *what)
{
	for (int64_t end = clock_now() + (int64_t)PATIENCE * 1000000000; clock_now() < end; usleep(5000))
		if (says(p, what))
			return;
	show_log(p);
	fail_msg("'%s' did not appear", what);
}

/* One line that says `what`, and the status. */
static void must_fail(const struct process *p, int status, const char *what)
{
	int rc = finished(p, PATIENCE);
	char *t = text_of(p->log);
	if (rc != status || !strstr(t, what)) {
		show_log(p);
		fail_msg("status %d, wanted %d with '%s'", rc, status, what);
	}
	const char *line = strstr(t, "error:");
	printf("  %.*s\n", line ? (int)strcspn(line, "\n") : 0, line ? line : "");
	mem_free(t);
}

/* ---- results ---- */

/* Everything in metrics.jsonl that must not depend on who computes. */
static void losses(const struct site *s, const char *run, struct buf *out)
{
	char path[512];
	snprintf(path, sizeof path, "%s/%s/metrics.jsonl", s->t.dir, run);
	char *t = text_of(path);
	static const char *const keys[] = { "\"step\":", "\"loss\":", "\"val_loss\":", "\"grad_norm\":" };
	for (char *line = strtok(t, "\n"); line; line = strtok(NULL, "\n")) {
		for (size_t k = 0; k < ARRAY_LEN(keys); k++) {
			const char *at = strstr(line, keys[k]);
			if (at)
				buf_add(out, at, strcspn(at, ",}"));
		}
		buf_addc(out, '\n');
	}
	mem_free(t);
}

static void same_result(const struct site *s, const char *a, const char *b, bool curve)
{
	char name[2][128];
	size_t n[2];
	snprintf(name[0], sizeof name[0], "%s/adapter_model.safetensors", a);
	snprintf(name[1], sizeof name[1], "%s/adapter_model.safetensors", b);
	char *p = tiny_read(&s->t, name[0], &n[0]), *q = tiny_read(&s->t, name[1], &n[1]);
	if (n[0] != n[1] || memcmp(p, q, n[0]))
		fail_msg("the adapters of %s and %s differ", a, b);
	mem_free(p);
	mem_free(q);
	struct buf x = BUF_INIT, y = BUF_INIT;
	losses(s, a, &x);
	losses(s, b, &y);
	assert_true(strstr(x.p, "\"loss\":") != NULL);
	if (curve)
		assert_string_equal(x.p, y.p);
	buf_release(&x);
	buf_release(&y);
}

static void the_bits_of_one_process(void **state)
{
	(void)state;
	struct site s;
	site_make(&s);
	configuration(&s, "one", 0, "");
	configuration(&s, "two", 2, "shard_plan: [{id: b, start: 0, end: 2}, {id: a, start: 2, end: 6, is_last: true}]\n");
	configuration(&s, "three", 3, "");
	struct process p = start(&s, "train", "one.yaml", NULL);
	must_succeed(&p);
	p = start(&s, "train", "two.yaml", NULL); /* starts both workers itself */
	must_succeed(&p);
	same_result(&s, "one", "two", true);
	struct process w[3];
	for (int i = 0; i < 3; i++)
		w[i] = start(&s, i ? "worker" : "train", "--worker", i == 0 ? "a" : i == 1 ? "b" : "c", "three.yaml", NULL);
	for (int i = 0; i < 3; i++)
		until(&w[i], "listens");
	p = start(&s, "train", "three.yaml", NULL);
	must_succeed(&p);
	for (int i = 0; i < 3; i++)
		must_succeed(&w[i]);
	same_result(&s, "one", "three", true);
	p = start(&s, "train", "three.yaml", "schedule=interleaved", "interleave=2", "overwrite_output_dir=true", NULL);
	must_succeed(&p);
	same_result(&s, "one", "three", true);
	printf("2 and 3 workers: losses, norms and adapter identical to one process\n");
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

/* In NF4 and in plain numbers: a worker without the model gets its layers once; a damaged cache file is fetched anew. */
static void a_worker_without_the_model(void **state)
{
	(void)state;
	static const char *const kinds[] = { "load_in_4bit=false", "adapter=qlora" };
	for (size_t k = 0; k < ARRAY_LEN(kinds); k++) {
		struct site s;
		char cache[300];
		site_make(&s);
		configuration(&s, "one", 0, "");
		configuration(&s, "two", 2, "");
		struct process p = start(&s, "train", "one.yaml", kinds[k], NULL);
		must_succeed(&p);
		snprintf(cache, sizeof cache, "%s/cache/weights", s.t.dir);
		for (int round = 0; round < 3; round++) {
			struct process w[2];
			if (round == 2)
				assert_true(damage(cache, 1));
			for (int i = 0; i < 2; i++)
				w[i] = start(&s, "worker", "--worker", i ? "b" : "a", "two.yaml", "base_model=/nonexistent", NULL);
			for (int i = 0; i < 2; i++)
				until(&w[i], "listens");
			p = start(&s, "train", "two.yaml", "overwrite_output_dir=true", kinds[k], NULL);
			must_succeed(&p);
			for (int i = 0; i < 2; i++)
				must_succeed(&w[i]);
			same_result(&s, "one", "two", true);
			char *t = text_of(p.log);
			int sent = 0, none = 0;
			for (const char *at = t; (at = strstr(at, "MB of its layers sent")); at++)
				sent++;
			for (const char *at = t; (at = strstr(at, ": 0.000 of ")); at++)
				none++;
			mem_free(t);
			assert_int_equal(sent, 2);
			assert_int_equal(none, round == 0 ? 0 : round == 1 ? 2 : 1);
			assert_true((round == 2) ==
				    (says(&w[0], "does not match its hash") || says(&w[1], "does not match its hash")));
		}
		tiny_remove(&s.t);
	}
}

static void what_goes_wrong_is_one_line(void **state)
{
	(void)state;
	struct site s;
	site_make(&s);
	configuration(&s, "two", 2, "");
	struct process p, w;

	p = start(&s, "train", "two.yaml", "shard_plan=[{id: a, start: 0, end: 2}, {id: b, start: 2, end: 7, is_last: true}]",
		  NULL);
	must_fail(&p, 2, "ends at layer 7");
	p = start(&s, "worker", "--worker", "x", "two.yaml", NULL);
	must_fail(&p, 2, "no worker of this id");
	configuration(&s, "bare", 0,
		      "coordinator: {ip: 198.51.100.1, hostname: nosuch, device: none}\nworkers: [{id: a, ip: 198.51.100.2}]\n");
	p = start(&s, "train", "bare.yaml", NULL);
	must_fail(&p, 2, "none of this machine's addresses");
	p = start(&s, "train", "--role", "coordinator", "bare.yaml", "join_timeout=2", NULL);
	must_fail(&p, 2, "--insecure");

	/* somebody else has the key: the coordinator's is not the worker's */
	struct key_pair other;
	struct err e = { 0 };
	char path[300], text[512];
	snprintf(path, sizeof path, "%s/other", s.t.dir);
	assert_true(key_pair_generate(&other, &e) >= 0 && key_pair_save(&other, path, &e) >= 0);
	snprintf(text, sizeof text, "key_file=%s", path);
	p = start(&s, "train", "two.yaml", text, NULL);
	must_fail(&p, 2, "public key");
	w = start(&s, "worker", "--worker", "a", "two.yaml", text, NULL);
	must_fail(&w, 2, "public key");

	/* a worker that nobody starts, and is not on this machine; TEST-NET is nobody's */
	snprintf(text, sizeof text,
		 "workers=[{id: a, ip: 127.0.0.2, port: %d, public_key: '%s'}, {id: far, ip: 203.0.113.9, public_key: '%s'}]",
		 s.port + 1, s.key.pub, s.key.pub);
	p = start(&s, "train", "two.yaml", text, "join_timeout=2", NULL);
	must_fail(&p, 1, "far");

	/* two that claim one id: the second finds the port taken */
	w = start(&s, "worker", "--worker", "b", "two.yaml", NULL);
	until(&w, "listens");
	p = start(&s, "worker", "--worker", "b", "two.yaml", NULL);
	must_fail(&p, 1, "cannot listen");
	kill(w.pid, SIGKILL);
	finished(&w, PATIENCE);

	/* the right port, the wrong worker */
	snprintf(text, sizeof text, "workers=[{id: z, ip: 127.0.0.2, port: %d, public_key: '%s'}]", s.port + 1, s.key.pub);
	w = start(&s, "worker", "--worker", "a", "two.yaml", NULL);
	until(&w, "listens");
	p = start(&s, "train", "two.yaml", text, NULL);
	must_fail(&p, 1, "worker 'z' is wanted");
	kill(w.pid, SIGINT);
	must_fail(&w, 1, "interrupted");
	tiny_remove(&s.t);
}

/* Ctrl-C at the coordinator, then at a worker: saved and finished everywhere, and the resumed run is the uninterrupted one. */
static void interrupted_anywhere_is_saved(void **state)
{
	(void)state;
	for (int who = 0; who < 2; who++) {
		struct site s;
		site_make(&s);
		configuration(&s, "one", 0, "");
		configuration(&s, "two", 2, "");
		struct process p = start(&s, "train", "one.yaml", "max_steps=400", "save_steps=0", NULL);
		must_succeed(&p);
		struct process w = start(&s, "worker", "--worker", "b", "two.yaml", NULL);
		until(&w, "listens");
		p = start(&s, "train", "two.yaml", "max_steps=400", "save_steps=0", NULL);
		until(&p, " 3/400 ");
		kill(who ? w.pid : p.pid, SIGINT);
		assert_int_equal(finished(&p, PATIENCE), 1);
		must_succeed(&w);
		assert_true(says(&p, "interrupted after step"));
		if (who)
			assert_true(says(&p, "worker 'b'") && says(&p, "asked to stop"));
		p = start(&s, "train", "two.yaml", "max_steps=400", "save_steps=0", "resume_from_checkpoint=latest", NULL);
		must_succeed(&p);
		same_result(&s, "one", "two", false);
		tiny_remove(&s.t);
	}
}

/* ---- killing ---- */

static void no_torn_checkpoint(const struct site *s, const char *run)
{
	static const char *const files[] = { "adapter_config.json", "adapter_model.safetensors", "optimizer.safetensors",
					     "trainer_state.json" };
	char dir[512], path[1024];
	snprintf(dir, sizeof dir, "%s/%s/checkpoints", s->t.dir, run);
	DIR *d = opendir(dir);
	for (struct dirent *f; d && (f = readdir(d));) {
		size_t n = strlen(f->d_name);
		if (strncmp(f->d_name, "step-", 5) || (n > 4 && !strcmp(f->d_name + n - 4, ".tmp")))
			continue;
		for (size_t i = 0; i < ARRAY_LEN(files); i++) {
			snprintf(path, sizeof path, "%s/%s/%s", dir, f->d_name, files[i]);
			if (access(path, R_OK) < 0)
				fail_msg("%s is missing", path);
		}
	}
	if (d)
		closedir(d);
}

static bool has_checkpoint(const struct site *s, const char *run)
{
	char dir[512];
	bool found = false;
	snprintf(dir, sizeof dir, "%s/%s/checkpoints", s->t.dir, run);
	DIR *d = opendir(dir);
	for (struct dirent *f; d && (f = readdir(d));)
		found |= !strncmp(f->d_name, "step-", 5) && !strstr(f->d_name, ".tmp");
	if (d)
		closedir(d);
	return found;
}

static void killed_at_random_moments(void **state)
{
	(void)state;
	const char *env = getenv("HS_KILLS"), *seed_text = getenv("HS_SEED");
	int kills = env ? (int)strtol(env, NULL, 10) : 6;
	struct rng_key key = rng_key(seed_text ? strtoull(seed_text, NULL, 10) : 1);
	uint64_t at = 0;
	static const char *const role[] = { "the coordinator", "worker 'a'", "worker 'b'" };
	struct site s;
	site_make(&s);
	configuration(&s, "one", 0, "");
	configuration(&s, "two", 2, "");
	struct process p = start(&s, "train", "one.yaml", "max_steps=80", "save_steps=2", NULL);
	must_succeed(&p);
	int64_t worst = 0;
	int done = 0, resumed = 0, early = 0;
	while (done < kills) {
		struct process w[3];
		bool stop = rng_below(key, at++, 4) == 0, resume = has_checkpoint(&s, "two");
		int victim = (int)rng_below(key, at++, 3), status[3];
		double after = (double)rng_uniform(key, at++, 0, 1.5f);
		w[1] = start(&s, "worker", "--worker", "a", "two.yaml", "peer_timeout=3", NULL);
		w[2] = start(&s, "worker", "--worker", "b", "two.yaml", "peer_timeout=3", NULL);
		until(&w[1], "listens");
		until(&w[2], "listens");
		/* every other time with another split */
		w[0] = start(&s, "train", "two.yaml", "max_steps=80", "save_steps=2", "peer_timeout=3", "join_timeout=20",
			     done % 2 ? "shard_plan=[{id: b, start: 0, end: 1}, {id: a, start: 1, end: 6, is_last: true}]"
				      : "shard_plan=[{id: a, start: 0, end: 3}, {id: b, start: 3, end: 6, is_last: true}]",
			     resume ? "resume_from_checkpoint=latest" : "overwrite_output_dir=true", NULL);
		usleep((useconds_t)(after * 1e6));
		int64_t when = clock_now();
		kill(w[victim].pid, stop ? SIGSTOP : SIGKILL);
		for (int i = 0; i < 3; i++)
			status[i] = i == victim ? 0 : finished(&w[i], 3 + 60);
		int64_t took = clock_now() - when;
		kill(w[victim].pid, SIGKILL);
		int own = finished(&w[victim], PATIENCE);
		no_torn_checkpoint(&s, "two");
		resumed += resume;
		if (own != 1000 + SIGKILL || (status[0] == 0 && victim != 0)) { /* it had ended by itself: begin anew */
			struct err e = { 0 };
			char path[512];
			snprintf(path, sizeof path, "%.300s/two", s.t.dir);
			if (own == 0 && dir_remove(path, &e) < 0)
				fail_msg("%s", e.msg);
			early++;
			assert_true(early < 20 + 2 * kills);
			continue;
		}
		for (int i = 0; i < 3; i++)
			if (i != victim && status[i] != 1) {
				show_log(&w[0]);
				show_log(&w[1]);
				show_log(&w[2]);
				fail_msg("%s %s: status %d of %s", role[victim], stop ? "stopped" : "killed", status[i], role[i]);
			}
		if (victim && !says(&w[0], role[victim])) {
			show_log(&w[0]);
			fail_msg("the coordinator does not name %s", role[victim]);
		}
		if (took > worst)
			worst = took;
		done++;
	}
	printf("%d kills, %d runs went on from a checkpoint, %d ended before they were killed; the others had left after %.1f s at "
	       "most\n",
	       done, resumed, early, clock_seconds(worst));
	p = start(&s, "train", "two.yaml", "max_steps=80", "save_steps=2",
		  has_checkpoint(&s, "two") ? "resume_from_checkpoint=latest" : "overwrite_output_dir=true", NULL);
	must_succeed(&p);
	same_result(&s, "one", "two", false);
	tiny_remove(&s.t);
}

int main(int argc, char **argv)
{
	(void)argc;
	const char *given = getenv("HETEROSHARD"), *slash = strrchr(argv[0], '/');
	if (given)
		snprintf(program, sizeof program, "%s", given);
	else
		snprintf(program, sizeof program, "%.*s/../heteroshard", slash ? (int)(slash - argv[0]) : 1, slash ? argv[0] : ".");
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_bits_of_one_process),     cmocka_unit_test(a_worker_without_the_model),
		cmocka_unit_test(what_goes_wrong_is_one_line), cmocka_unit_test(interrupted_anywhere_is_saved),
		cmocka_unit_test(killed_at_random_moments),
	};
	const char *only = getenv("HS_ONLY"); /* one test, by name */
	if (only)
		cmocka_set_test_filter(only);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
