/* SPDX-License-Identifier: Apache-2.0 */
/* What lies at a path may have been put there by somebody else: a pipe, a socket, a device or a
 * folder where a file is read, a pipe, a link or a second name of another file where one is
 * written. Nothing waits for ever, and nothing outside is changed. */
#include "base/arena.h"
#include "base/buf.h"
#include "base/err.h"
#include "base/mem.h"
#include "base/open.h"
#include "cli/cli.h"
#include "data/records.h"
#include "file/atomic.h"
#include "file/hash.h"
#include "file/lock.h"
#include "file/map.h"
#include "file/model_file.h"
#include "file/peft.h"
#include "file/cache.h"
#include "net/keys.h"
#include "report/metrics.h"
#include "support/scratch.h"

#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

static void waits(int sig)
{
	static const char text[] = "not ok 1 - a call waits for ever\n";
	(void)sig;
	if (write(1, text, sizeof text - 1) > 0)
		_exit(1);
	_exit(2);
}

static void same(const char *path, const char *text)
{
	struct err e = { 0 };
	struct buf b = BUF_INIT;
	if (buf_read_file(&b, path, 0, &e) < 0)
		fail_msg("%s", e.msg);
	assert_string_equal(b.p, text);
	buf_release(&b);
}

/* ---- reading ---- */

static int read_whole(const char *path, struct err *e)
{
	struct buf b = BUF_INIT;
	return buf_read_file(&b, path, 1 << 20, e);
}

static int read_map(const char *path, struct err *e)
{
	struct file_map m;
	return map_open(path, &m, e);
}

static int read_hash(const char *path, struct err *e)
{
	char hex[HASH_HEX];
	return hash_file(path, hex, NULL, e);
}

static int read_records(const char *path, struct err *e)
{
	struct records *r;
	return records_open(path, false, &r, e);
}

static int read_key(const char *path, struct err *e)
{
	struct key_pair k;
	return key_pair_load(path, &k, e);
}

static int read_model(const char *path, struct err *e)
{
	struct model_file *f;
	return model_file_open(path, &f, e);
}

static void make_socket(const char *path)
{
	struct sockaddr_un a = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, SOCK_STREAM, 0);
	snprintf(a.sun_path, sizeof a.sun_path, "%.100s", path);
	assert_int_equal(bind(fd, (struct sockaddr *)&a, sizeof a), 0);
	close(fd);
}

static void no_reader_waits(void **state)
{
	(void)state;
	static const struct {
		const char *name;
		int (*read)(const char *path, struct err *e);
	} reader[] = { { "whole", read_whole },     { "map", read_map }, { "hash", read_hash },
		       { "records", read_records }, { "key", read_key }, { "model", read_model } };
	const char *const path[] = { scratch("pipe"), scratch("pipe.gguf"), scratch("socket"),
				     "/dev/zero", "/dev/tty" };
	assert_int_equal(mkfifo(path[0], 0600), 0);
	assert_int_equal(mkfifo(path[1], 0600), 0);
	make_socket(path[2]);
	for (size_t r = 0; r < ARRAY_LEN(reader); r++)
		for (size_t i = 0; i < ARRAY_LEN(path); i++) {
			struct err e = { 0 };
			int rc = reader[r].read(path[i], &e);
			if (rc >= 0 || !strstr(e.msg, path[i]) || strchr(e.msg, '\n'))
				fail_msg("%s of %s: %d, '%s'", reader[r].name, path[i], rc, e.msg);
		}
}

/* Some files of the kernel's (/proc/kmsg) look regular and make who reads them wait. */
static void what_looks_regular_does_not_wait(void **state)
{
	(void)state;
	struct err e = { 0 };
	int fd;
	scratch_text(scratch("regular"), "a text");
	if (open_read(scratch("regular"), &fd, NULL, &e) < 0)
		fail_msg("%s", e.msg);
	assert_true(fcntl(fd, F_GETFL) & O_NONBLOCK);
	close(fd);
}

/* One file of a model's or an adapter's folder is a pipe. */
static void a_folder_with_a_pipe(void **state)
{
	(void)state;
	static const char *const model[] = {
		"config.json",           "model.safetensors",   "model.safetensors.index.json",
		"tokenizer_config.json", "chat_template.jinja", "chat_template.json"
	};
	static const char *const adapter[] = { "adapter_config.json", "adapter_model.safetensors" };
	char dir[256], path[512];
	struct err e = { 0 };
	snprintf(dir, sizeof dir, "%s", scratch("folder"));
	for (size_t i = 0; i < ARRAY_LEN(model) + ARRAY_LEN(adapter); i++) {
		bool peft = i >= ARRAY_LEN(model);
		const char *name = peft ? adapter[i - ARRAY_LEN(model)] : model[i];
		assert_int_equal(dir_remove(dir, &e), 0);
		snprintf(path, sizeof path, "%s/%s", dir,
			 peft ? "adapter_config.json" : "config.json");
		scratch_text(path, peft ? "{\"peft_type\": \"LORA\", \"r\": 8, "
					  "\"target_modules\": [\"q_proj\"]}"
					: "{\"model_type\": \"llama\"}");
		if (!peft && i > 2) {
			snprintf(path, sizeof path, "%s/model.safetensors", dir);
			scratch_write(path, "\2\0\0\0\0\0\0\0{}", 10);
		}
		snprintf(path, sizeof path, "%s/%s", dir, name);
		unlink(path);
		assert_int_equal(mkfifo(path, 0600), 0);
		struct arena a = ARENA_INIT;
		struct peft_adapter ad;
		int rc = peft ? peft_read(dir, &a, &ad, &e) : read_model(dir, &e);
		if (rc >= 0 || !strstr(e.msg, name) || !strstr(e.msg, "is a pipe"))
			fail_msg("%s: %d, '%s'", name, rc, e.msg);
		arena_release(&a);
	}
}

/* ---- writing ---- */

enum strange { PIPE, LINK, SECOND_NAME, SOCKET, STRANGES };

static void put(enum strange what, const char *path, const char *victim)
{
	unlink(path);
	if (what == PIPE)
		assert_int_equal(mkfifo(path, 0600), 0);
	else if (what == LINK)
		assert_int_equal(symlink(victim, path), 0);
	else if (what == SECOND_NAME)
		assert_int_equal(link(victim, path), 0);
	else
		make_socket(path);
}

/* Beside a file that is written whole: anything at its temporary name is removed, what a link there
 * points to stays. */
static void temporary_names(void **state)
{
	(void)state;
	const char *victim = scratch("victim"), *path = scratch("result"),
		   *tmp = scratch("result.tmp");
	struct err e = { 0 };
	scratch_text(victim, "not yours");
	for (int what = 0; what < STRANGES; what++) {
		put((enum strange)what, tmp, victim);
		if (atomic_write_file(path, "mine", 4, &e) < 0)
			fail_msg("%d: %s", what, e.msg);
		same(path, "mine");
		same(victim, "not yours");
		assert_int_equal(access(tmp, F_OK), -1);
	}
	assert_int_equal(mkdir(tmp, 0700), 0);
	assert_int_equal(atomic_write_file(path, "more", 4, &e), ERR_IO);
	same(path, "mine");
}

static int log_metrics(const char *dir, struct err *e)
{
	struct metrics *m;
	const struct metrics_step s = { .step = 1, .loss = 2 };
	TRY(metrics_open(dir, -1, &m, e));
	int rc = metrics_add(m, &s, e);
	metrics_close(m);
	return rc;
}

static int log_metrics_more(const char *dir, struct err *e)
{
	struct metrics *m;
	TRY(metrics_open(dir, 10, &m, e));
	metrics_close(m);
	return 0;
}

static int take_lock(const char *dir, struct err *e)
{
	struct file_lock l = FILE_LOCK_INIT;
	char path[512], stale[256];
	snprintf(path, sizeof path, "%s/run.lock", dir);
	TRY(file_lock_take(path, &l, stale, sizeof stale, e));
	file_lock_release(&l);
	return 0;
}

static int hold_cache(const char *dir, struct err *e)
{
	int fd = cache_hold(dir);
	if (fd < 0)
		return err_set(e, ERR_IO, "%s is not held", dir);
	cache_release(dir, fd, 0);
	return 0;
}

/* Files that are added to or locked where they are: they are refused. */
static void logs_and_locks(void **state)
{
	(void)state;
	static const struct {
		const char *name;
		int (*write)(const char *dir, struct err *e);
	} row[] = { { "metrics.jsonl", log_metrics },
		    { "metrics.jsonl", log_metrics_more },
		    { "run.lock", take_lock },
		    { "lock", hold_cache } };
	/* valid lines of metrics.jsonl, so that only the link is wrong */
	static const char text[] = "{\"step\": 1, \"loss\": 3}\n";
	char dir[256], path[512], victim[256];
	snprintf(dir, sizeof dir, "%s", scratch("run"));
	snprintf(victim, sizeof victim, "%s", scratch("other"));
	assert_int_equal(mkdir(dir, 0700), 0);
	scratch_text(victim, "%s", text);
	for (size_t i = 0; i < ARRAY_LEN(row); i++)
		for (int what = 0; what < STRANGES; what++) {
			struct err e = { 0 };
			snprintf(path, sizeof path, "%s/%s", dir, row[i].name);
			put((enum strange)what, path, victim);
			int rc = row[i].write(dir, &e);
			if (rc >= 0 || !strstr(e.msg, dir))
				fail_msg("%s, %d: %d, '%s'", row[i].name, what, rc, e.msg);
			same(victim, text);
			unlink(path);
		}
}

/* Ordinary files are still added to. */
static void own_files(void **state)
{
	(void)state;
	struct err e = { 0 };
	struct buf b = BUF_INIT;
	char dir[256], path[512];
	snprintf(dir, sizeof dir, "%s", scratch("own"));
	snprintf(path, sizeof path, "%s/metrics.jsonl", dir);
	assert_int_equal(mkdir(dir, 0700), 0);
	for (int i = 0; i < 2; i++) {
		if (log_metrics(dir, &e) < 0 || log_metrics_more(dir, &e) < 0 ||
		    take_lock(dir, &e) < 0)
			fail_msg("%s", e.msg);
		assert_int_equal(buf_read_file(&b, path, 0, &e), 0);
		assert_memory_equal(b.p, "{\"step\": 1,", 11);
		assert_ptr_equal(strchr(b.p, '\n'), b.p + b.n - 1);
	}
	buf_release(&b);
}

/* A file that another program makes shorter while it is mapped: the process names the file and
 * ends. */
static void a_shorter_file_is_named(void **state)
{
	(void)state;
	enum { SIZE = 1 << 20 };
	static char zeros[SIZE];
	char path[256], text[512] = "", want[600];
	int fd[2], status;
	snprintf(path, sizeof path, "%s", scratch("mapped.safetensors"));
	scratch_write(path, zeros, SIZE);
	assert_int_equal(pipe(fd), 0);
	pid_t pid = fork();
	if (!pid) {
		struct err e = { 0 };
		struct file_map other, m;
		dup2(fd[1], 2);
		cli_name_lost_files();
		if (map_open(scratch("victim"), &other, &e) < 0 || map_open(path, &m, &e) < 0 ||
		    truncate(path, 4096) < 0)
			_exit(3);
		volatile const uint8_t *p = m.p;
		_exit(p[4095] + p[SIZE - 1]);
	}
	close(fd[1]);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	ssize_t n = read(fd[0], text, sizeof text - 1);
	close(fd[0]);
	snprintf(want, sizeof want,
		 "error: %s: the file became shorter while it was in use, or its disk cannot be "
		 "read: put it back and start again\n",
		 path);
	if (n <= 0 || strcmp(text, want) != 0)
		fail_msg("'%s', status %d", text, status);
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(no_reader_waits),
		cmocka_unit_test(what_looks_regular_does_not_wait),
		cmocka_unit_test(a_folder_with_a_pipe),
		cmocka_unit_test(temporary_names),
		cmocka_unit_test(logs_and_locks),
		cmocka_unit_test(own_files),
		cmocka_unit_test(a_shorter_file_is_named),
	};
	signal(SIGALRM, waits);
	alarm(60);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
