/* SPDX-License-Identifier: Apache-2.0 */
/* site.c - see site.h. */
#include "support/site.h"

#include "base/buf.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/mem.h"
#include "support/ports.h"

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

enum { ARGS = 32 };

static char program[4096];

void site_program(const char *argv0)
{
	const char *given = getenv("HETEROSHARD"), *slash = strrchr(argv0, '/');
	if (given)
		snprintf(program, sizeof program, "%s", given);
	else
		snprintf(program, sizeof program, "%.*s/../heteroshard",
			 slash ? (int)(slash - argv0) : 1, slash ? argv0 : ".");
}

/* ---- files ---- */

void site_put(const struct site *s, const char *name, const char *text, mode_t mode)
{
	char path[512];
	snprintf(path, sizeof path, "%s/%s", s->t.dir, name);
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, mode);
	assert_true(fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text));
	close(fd);
}

void site_configuration(const struct site *s, const char *name, int workers, const char *extra)
{
	static const char adapter[] = "adapter: lora\nlora_r: 4\nlora_alpha: 8\n"
				      "lora_target_linear: true\nlora_dropout: 0.1\n";
	struct buf b = BUF_INIT;
	buf_addf(&b,
		 "base_model: %s/model\n%s"
		 "compute_dtype: float32\ndatasets: [{path: %s/data.jsonl, type: "
		 "completion}]\nsequence_len: "
		 "128\nmicro_batch_size: 2\n"
		 "gradient_accumulation_steps: 3\nlearning_rate: 0.005\nmax_steps: "
		 "6\nwarmup_steps: 2\nsave_steps: "
		 "3\nval_set_size: 4\n"
		 "visualize: false\ntensorboard: false\ntrace: false\nwire_dtype: "
		 "float32\noutput_dir: %s/%s\ncache_dir: %s/cache\n"
		 "peer_timeout: 10\njoin_timeout: 60\nprofile: none\n%s%s",
		 s->t.dir, strstr(extra, "adapter:") ? "" : adapter, s->t.dir, s->t.dir, name,
		 s->t.dir,
		 /* tests of what ends a worker do not wait */
		 strstr(extra, "coordinator_timeout") ? "" : "coordinator_timeout: 0\n", extra);
	if (workers)
		buf_addf(&b,
			 "key_file: %s/key\ncoordinator: {hostname: c, ip: 127.0.0.1, port: %d, "
			 "device: none, public_key: '%s'}\n"
			 "workers:\n",
			 s->t.dir, s->port, s->key.pub);
	for (int i = 0; i < workers; i++)
		buf_addf(&b,
			 "- {id: %c, hostname: box%c, ip: 127.0.0.%d, port: %d, device: cpu, "
			 "public_key: '%s'}\n",
			 'a' + i, 'a' + i, i + 2, s->port + 1 + i, s->key.pub);
	char file[128];
	snprintf(file, sizeof file, "%s.yaml", name);
	site_put(s, file, b.p, 0644);
	buf_release(&b);
}

static void make(struct site *s, bool tied, const char *config)
{
	static int turn, ports[2]; /* what an earlier site left does not meet the next one */
	struct err e = { 0 };
	char path[512];
	if (config)
		tiny_make_model(&s->t, config, 40);
	else
		(tied ? tiny_make_tied : tiny_make)(&s->t, SITE_LAYERS, 40);
	/* where the processes of this site meet */
	setenv("XDG_RUNTIME_DIR", s->t.dir, 1);
	turn = !turn;
	if (!ports[turn])
		ports[turn] = ports_claim();
	s->port = ports[turn];
	snprintf(path, sizeof path, "%s/key", s->t.dir);
	if (key_pair_generate(&s->key, &e) < 0 || key_pair_save(&s->key, path, &e) < 0)
		fail_msg("%s", e.msg);
}

void site_make(struct site *s) { make(s, false, NULL); }

void site_make_tied(struct site *s) { make(s, true, NULL); }

void site_make_model(struct site *s, const char *config) { make(s, false, config); }

char *site_text(const char *path)
{
	struct buf b = BUF_INIT;
	struct err e = { 0 };
	if (buf_read_file(&b, path, 0, &e) < 0)
		return mem_strdup("");
	return buf_detach(&b);
}

/* ---- processes ---- */

static const char *space;

void site_namespace(const char *name) { space = name; }

struct process site_start(const struct site *s, ...)
{
	static int serial;
	struct process p;
	char *arg[ARGS + 5], file[512];
	int n = 0;
	va_list ap;
	va_start(ap, s);
	if (space) { /* becomes the program, under the same pid */
		static const char *const enter[] = { "ip", "netns", "exec" };
		for (size_t i = 0; i < ARRAY_LEN(enter); i++)
			arg[n++] = (char *)enter[i];
		arg[n++] = (char *)space;
	}
	arg[n++] = program;
	for (char *a; n < ARGS + 4 && (a = va_arg(ap, char *));) {
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
		execvp(arg[0], arg);
		_exit(127);
	}
	return p;
}

void show_log(const struct process *p)
{
	char *t = site_text(p->log);
	fprintf(stderr, "---- %s\n%s----\n", p->log, t);
	mem_free(t);
}

int finished_or_hangs(const struct process *p, double seconds)
{
	int status;
	for (int64_t end = clock_now() + (int64_t)(seconds * 1e9); clock_now() < end;
	     usleep(5000)) {
		pid_t got = waitpid(p->pid, &status, WNOHANG);
		if (got == p->pid)
			return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
	}
	kill(p->pid, SIGKILL);
	waitpid(p->pid, &status, 0);
	show_log(p);
	return -1;
}

int finished(const struct process *p, double seconds)
{
	int rc = finished_or_hangs(p, seconds);
	if (rc < 0)
		fail_msg("process %d still ran after %g s", (int)p->pid, seconds);
	return rc;
}

void must_succeed(const struct process *p)
{
	int rc = finished(p, PATIENCE);
	if (rc) {
		show_log(p);
		fail_msg("status %d", rc);
	}
}

bool says(const struct process *p, const char *what)
{
	char *t = site_text(p->log);
	bool found = strstr(t, what) != NULL;
	mem_free(t);
	return found;
}

void until(const struct process *p, const char *what)
{
	for (int64_t end = clock_now() + (int64_t)PATIENCE * 1000000000; clock_now() < end;
	     usleep(5000))
		if (says(p, what))
			return;
	show_log(p);
	fail_msg("'%s' did not appear", what);
}

void must_fail(const struct process *p, int status, const char *what)
{
	int rc = finished(p, PATIENCE);
	char *t = site_text(p->log);
	if (rc != status || !strstr(t, what)) {
		show_log(p);
		fail_msg("status %d, wanted %d with '%s'", rc, status, what);
	}
	const char *line = strstr(t, "error:");
	if (line && strstr(line + 1, "error:")) {
		show_log(p);
		fail_msg("more than one line of error");
	}
	printf("  %.*s\n", line ? (int)strcspn(line, "\n") : 0, line ? line : "");
	mem_free(t);
}

/* ---- results ---- */

/* Everything in metrics.jsonl that must not depend on who computes. */
static void losses(const struct site *s, const char *run, struct buf *out)
{
	char path[512];
	snprintf(path, sizeof path, "%s/%s/metrics.jsonl", s->t.dir, run);
	char *t = site_text(path);
	static const char *const keys[] = { "\"step\":", "\"loss\":", "\"val_loss\":",
					    "\"grad_norm\":" };
	for (char *line = strtok(t, "\n"); line; line = strtok(NULL, "\n")) {
		if (strstr(line, "\"event\":"))
			continue;
		for (size_t k = 0; k < ARRAY_LEN(keys); k++) {
			const char *at = strstr(line, keys[k]);
			if (at)
				buf_add(out, at, strcspn(at, ",}"));
		}
		buf_addc(out, '\n');
	}
	mem_free(t);
}

void same_result(const struct site *s, const char *a, const char *b, bool curve)
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

/* ---- checkpoints ---- */

bool run_says(const struct site *s, const char *run, const char *file, const char *what)
{
	char path[600];
	snprintf(path, sizeof path, "%s/%s/%s", s->t.dir, run, file);
	char *text = site_text(path);
	const bool found = strstr(text, what) != NULL;
	mem_free(text);
	return found;
}

void no_torn_checkpoint(const struct site *s, const char *run)
{
	static const char *const files[] = { "adapter_config.json", "adapter_model.safetensors",
					     "optimizer.safetensors", "trainer_state.json" };
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

bool has_checkpoint(const struct site *s, const char *run)
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
