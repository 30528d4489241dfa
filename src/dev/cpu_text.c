/* SPDX-License-Identifier: Apache-2.0 */
/* cpu_text.c - texts of kernels (dev.h, struct dev_text) on a processor: compiled by the C compiler
 * of this machine (HS_CC; else cc, gcc or clang) into a shared object, in a folder that is gone
 * when it is loaded. A work-group is one lane there (kernel/host.k), groups are shared out among
 * the threads. No option names this processor, so that machines with the same compiler get the same
 * bits. */
#include "dev/cpu/cpu.h"

#include "base/buf.h"
#include "base/dl.h"
#include "base/err.h"
#include "base/mem.h"
#include "dev/gpu.h"
#include "dev/gpu_cache.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { BUFFERS = 8, NUMBERS = 4, FLOATS = 6, CHUNKS = 64, LOG_MOST = 1 << 16 };
_Static_assert(sizeof DEV_TEXT_SIG == BUFFERS + NUMBERS + FLOATS + 1, "as user_run() takes them");

/* user_run() of kernel/host_end.k */
typedef void (*run_fn)(int entry, void *const *p, const int64_t *o, const int64_t *n,
		       const float *s, int64_t first, int64_t end);

struct cpu_text {
	const struct dev_text *text;
	enum dtype t;
	void *library;
	run_fn run;
	struct cpu_text *next;
};

extern char **environ;

/* Runs a compiler; its exit status, -1: it is not there. */
static int run_compiler(const char *cc, const char *in, const char *out, const char *log)
{
	const char *const word[] = { cc,
				     "-std=gnu11",
				     "-O3",
				     "-ffp-contract=off",
				     "-fno-math-errno",
				     "-fno-strict-aliasing",
				     "-Werror=implicit-function-declaration",
				     "-fPIC",
				     "-shared",
				     in,
				     "-o",
				     out,
				     "-lm",
				     NULL };
	posix_spawn_file_actions_t a;
	pid_t pid;
	int status = -1;
	if (posix_spawn_file_actions_init(&a))
		return -1;
	posix_spawn_file_actions_addopen(&a, 0, "/dev/null", O_RDONLY, 0);
	posix_spawn_file_actions_addopen(&a, 1, log, O_WRONLY | O_CREAT | O_TRUNC, 0600);
	posix_spawn_file_actions_adddup2(&a, 1, 2);
	const int rc = posix_spawnp(&pid, cc, &a, NULL, (char **)(uintptr_t)word, environ);
	posix_spawn_file_actions_destroy(&a);
	if (rc)
		return -1;
	while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	/* 127: a system that says so late that there is no such program */
	return WIFEXITED(status) && WEXITSTATUS(status) != 127 ? WEXITSTATUS(status) : -1;
}

/* One line of what the compiler said. */
static void read_log(const char *path, const char *text, size_t n, char *line, size_t cap)
{
	char key[GPU_KEY], *log = mem_zalloc(LOG_MOST);
	FILE *f = log ? fopen(path, "r") : NULL;
	const char *const part[] = { "cpu" };
	if (f) {
		log[fread(log, 1, LOG_MOST - 1, f)] = 0;
		fclose(f);
	}
	gpu_cache_key(part, 1, text, n, key);
	gpu_cache_log(key, log ? log : "", line, cap);
	mem_free(log);
}

static int write_text(const char *path, const struct buf *text, struct err *e)
{
	FILE *f = fopen(path, "w");
	const bool ok = f && fwrite(text->p, 1, text->n, f) == text->n;
	return (f && fclose(f)) || !ok ? err_sys(e, errno, "%s cannot be written", path) : 0;
}

static int compile_in(const char *dir, const struct buf *text, struct cpu_text *u, struct err *e)
{
	const char *own = getenv("HS_CC"), *const all[] = { "cc", "gcc", "clang" };
	char in[PATH_MAX], out[PATH_MAX], log[PATH_MAX], line[1600];
	static const struct dl_symbol symbols[] = { { "user_run", 0, 0 } };
	int status = -1;
	snprintf(in, sizeof in, "%s/text.c", dir);
	snprintf(out, sizeof out, "%s/text.so", dir);
	snprintf(log, sizeof log, "%s/log", dir);
	TRY(write_text(in, text, e));
	if (own && own[0])
		status = run_compiler(own, in, out, log);
	else
		for (size_t i = 0; i < ARRAY_LEN(all) && status < 0; i++)
			status = run_compiler(all[i], in, out, log);
	if (status < 0)
		return err_set(
			e, ERR_DEVICE,
			"cpu: no C compiler (%s) runs here, and a text of kernels needs one: "
			"install gcc or clang, or set HS_CC",
			own && own[0] ? own : "cc, gcc, clang");
	if (status > 0) {
		read_log(log, text->p, text->n, line, sizeof line);
		return err_set(e, ERR_DEVICE, "cpu: the C compiler does not compile it: %.900s",
			       line);
	}
	return dl_open((const char *[]){ out, NULL }, symbols, 1, &u->run, &u->library, e);
}

static void remove_folder(const char *dir)
{
	static const char *const files[] = { "text.c", "text.so", "log" };
	char path[PATH_MAX];
	for (size_t i = 0; i < ARRAY_LEN(files); i++) {
		snprintf(path, sizeof path, "%s/%s", dir, files[i]);
		unlink(path);
	}
	rmdir(dir);
}

static int compile(struct cpu_text *u, struct err *e)
{
	const char *tmp = getenv("TMPDIR");
	char dir[PATH_MAX - 32];
	struct buf text = BUF_INIT;
	snprintf(dir, sizeof dir, "%s/heteroshard-XXXXXX", tmp && tmp[0] ? tmp : "/tmp");
	if (!mkdtemp(dir))
		return err_sys(e, errno, "%s: no folder to compile in can be made", dir);
	gpu_user_text(u->t, u->text, true, &text);
	int rc = buf_ok(&text, e);
	if (rc == 0)
		rc = compile_in(dir, &text, u, e);
	buf_release(&text);
	remove_folder(dir);
	return rc;
}

static int text_of(struct cpu *c, const struct dev_text *text, enum dtype t, struct cpu_text **u_p,
		   struct err *e)
{
	for (*u_p = c->texts; *u_p; *u_p = (*u_p)->next)
		if ((*u_p)->text == text && (*u_p)->t == t)
			return 0;
	struct cpu_text *u = mem_zalloc(sizeof *u);
	if (!u)
		return err_nomem(e, sizeof *u, text->name);
	*u = (struct cpu_text){ .text = text, .t = t };
	if (compile(u, e) < 0) {
		mem_free(u);
		return err_prefix(e, "%s", text->name);
	}
	u->next = c->texts;
	*u_p = c->texts = u;
	return 0;
}

void cpu_texts_release(struct cpu *c)
{
	while (c->texts) {
		struct cpu_text *u = c->texts;
		c->texts = u->next;
		dl_close(u->library);
		mem_free(u);
	}
}

struct work {
	const struct cpu_text *u;
	int entry;
	void *p[BUFFERS];
	int64_t o[BUFFERS], n[NUMBERS], groups;
	float s[FLOATS];
};

static void chunk(void *ctx, int64_t i, int thread)
{
	const struct work *w = ctx;
	(void)thread;
	w->u->run(w->entry, w->p, w->o, w->n, w->s, w->groups * i / CHUNKS,
		  w->groups * (i + 1) / CHUNKS);
}

int cpu_launch_text(struct dev *d, const struct dev_text_launch *l, struct err *e)
{
	struct cpu *c = d->priv;
	struct cpu_text *u;
	TRY(text_of(c, l->text, l->t, &u, e));
	struct work w = { .u = u,
			  .entry = (int)l->entry,
			  .groups = l->groups > 0 ? l->groups : l->lanes };
	for (int i = 0; i < BUFFERS; i++) {
		w.p[i] = cpu_ptr(l->arg[i]);
		w.o[i] = w.p[i] ? 0 : -1;
	}
	for (int i = 0; i < NUMBERS; i++)
		w.n[i] = l->arg[BUFFERS + i].i;
	for (int i = 0; i < FLOATS; i++)
		w.s[i] = l->arg[BUFFERS + NUMBERS + i].f;
	if (w.groups < CHUNKS)
		u->run(w.entry, w.p, w.o, w.n, w.s, 0, w.groups);
	else
		cpu_par(c, CHUNKS, chunk, &w);
	return 0;
}
