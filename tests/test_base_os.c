/* SPDX-License-Identifier: Apache-2.0 */
/* test_base_os.c - memory and processors by control groups, from files made here; a child program
 * that ends with its parent. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/err.h"
#include "base/mem.h"
#include "base/os.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define MIB ((uint64_t)1 << 20)

static char root[64];

/* Writes a file below `root`, with its folders. */
static void put(const char *path, const char *text)
{
	char command[400], full[300];
	snprintf(full, sizeof full, "%s/%s", root, path);
	snprintf(command, sizeof command, "mkdir -p \"$(dirname '%s')\"", full);
	assert_int_equal(system(command), 0);
	FILE *f = fopen(full, "we");
	assert_non_null(f);
	fputs(text, f);
	fclose(f);
}

static int fresh(void **state)
{
	(void)state;
	snprintf(root, sizeof root, "/tmp/hs-os-XXXXXX");
	if (!mkdtemp(root))
		return -1;
	put("proc/meminfo", "MemTotal:       16384000 kB\nMemFree:  1 kB\n"
			    "MemAvailable:   12288000 kB\n");
	return 0;
}

static int tidy(void **state)
{
	char command[100];
	(void)state;
	snprintf(command, sizeof command, "rm -rf '%s'", root);
	return system(command);
}

static void memory_is(uint64_t total, uint64_t left)
{
	uint64_t t, l;
	os_memory(root, &t, &l);
	assert_int_equal(t / MIB, total);
	assert_int_equal(l / MIB, left);
}

static void without_groups(void **state)
{
	(void)state;
	memory_is(16000, 12000);
	assert_int_equal(os_cores(root, 8), 8);
}

static const char stat_v2[] = "anon 104857600\nfile 734003200\ninactive_file 524288000\n"
			      "active_file 209715200\nslab_reclaimable 104857600\nshmem 1\n";

/* A mapped model of 700 MiB, in a container of 1 GiB: of its 924 MiB in use 800 can be dropped. */
static void page_cache_is_free_v2(void **state)
{
	(void)state;
	put("proc/self/cgroup", "0::/\n");
	put("proc/self/mountinfo",
	    "31 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw,nsdelegate\n");
	put("sys/fs/cgroup/memory.max", "1073741824\n");
	put("sys/fs/cgroup/memory.current", "968884224\n");
	put("sys/fs/cgroup/memory.stat", stat_v2);
	memory_is(1024, 1024 - (924 - 800));
	/* the kernel does not read its numbers at the same moment */
	put("sys/fs/cgroup/memory.current", "1048576\n");
	memory_is(1024, 1024);
}

static void the_tightest_group_counts_v2(void **state)
{
	(void)state;
	put("proc/self/cgroup", "0::/user/job\n");
	put("proc/self/mountinfo", "31 23 0:26 / /cg rw,nosuid shared:4 - cgroup2 none rw\n");
	put("cg/user/job/memory.max", "max\n");
	put("cg/user/job/cpu.max", "max 100000\n");
	put("cg/user/memory.max", "2147483648\n");
	put("cg/user/memory.current", "1073741824\n");
	put("cg/user/cpu.max", "250000 100000\n");
	memory_is(2048, 1024);
	assert_int_equal(os_cores(root, 8), 3);
	assert_int_equal(os_cores(root, 2), 2);
}

/* Version 1, as a container sees it: the group has the host's name, its folder is the top one. */
static void page_cache_is_free_v1(void **state)
{
	(void)state;
	put("proc/self/cgroup", "12:pids:/docker/abc\n5:memory:/docker/abc\n"
				"3:cpu,cpuacct:/docker/abc\n0::/docker/abc\n");
	put("proc/self/mountinfo",
	    "40 39 0:30 /docker/abc /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n"
	    "41 39 0:31 /docker/abc /sys/fs/cgroup/cpu ro - cgroup cgroup rw,cpu,cpuacct\n");
	put("sys/fs/cgroup/memory/memory.limit_in_bytes", "1073741824\n");
	put("sys/fs/cgroup/memory/memory.usage_in_bytes", "943718400\n");
	put("sys/fs/cgroup/memory/memory.stat", "cache 5\ninactive_file 1\ntotal_inactive_file "
						"419430400\ntotal_active_file 104857600\n");
	put("sys/fs/cgroup/cpu/cpu.cfs_quota_us", "150000\n");
	put("sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n");
	memory_is(1024, 1024 - (900 - 500));
	assert_int_equal(os_cores(root, 8), 2);
}

static void no_limit_v1(void **state)
{
	(void)state;
	put("proc/self/cgroup", "5:memory:/\n3:cpu,cpuacct:/\n");
	put("proc/self/mountinfo", "40 39 0:30 / /m ro - cgroup cgroup rw,memory\n"
				   "41 39 0:31 / /c ro - cgroup cgroup rw,cpu,cpuacct\n");
	put("m/memory.limit_in_bytes", "9223372036854771712\n");
	put("m/memory.usage_in_bytes", "943718400\n");
	put("c/cpu.cfs_quota_us", "-1\n");
	put("c/cpu.cfs_period_us", "100000\n");
	memory_is(16000, 12000);
	assert_int_equal(os_cores(root, 8), 8);
}

static void odd_files(void **state)
{
	(void)state;
	char line[6000];
	memset(line, 'x', sizeof line);
	line[sizeof line - 1] = 0;
	put("proc/self/cgroup", line);
	put("proc/self/mountinfo", line);
	memory_is(16000, 12000);
	put("proc/self/cgroup", "0::\n:\n::\n7:memory\n0::/../..\n");
	put("proc/self/mountinfo", "1 - cgroup2\n - \n31 23 0:26 / /sys/fs/cgroup rw - cgroup2\n");
	memory_is(16000, 12000);
	put("proc/meminfo", "");
	memory_is(0, 0);
}

static void this_system(void **state)
{
	char a[80] = "", b[80] = "";
	uint64_t total, left;
	(void)state;
	os_memory("", &total, &left);
	assert_true(total > 0 && left > 0 && left <= total);
	assert_true(os_affinity() >= 1);
	assert_int_equal(access(os_self_exe(), X_OK), 0);
	assert_non_null(strstr(os_self_exe(), "test_base_os"));
	assert_true(os_boot_id(a, sizeof a) && strlen(a) == 36);
	assert_true(os_net_namespace(b, sizeof b) && !strncmp(b, "net:[", 5));
	assert_false(os_die_with_parent()); /* this process is not tied to its parent */
}

/* ---- a program that ends with its parent ---- */

struct tied {
	pid_t pid;
	int tie;
	int out[2];
};

static void *start(void *ctx)
{
	struct tied *t = ctx;
	struct err e = { 0 };
	char number[16];
	snprintf(number, sizeof number, "%d", t->out[1]);
	char *const args[] = { (char *)(uintptr_t) "test_base_os", (char *)(uintptr_t) "--child",
			       number, NULL };
	if (os_spawn_tied(os_self_exe(), args, &t->pid, &t->tie, &e) < 0)
		t->pid = -1;
	return NULL;
}

/* The child writes 'a' and waits for ever. */
static int child(const char *number)
{
	const int fd = (int)strtol(number, NULL, 10);
	if (!os_die_with_parent() || !os_die_with_parent() || getenv("HS_PARENT_PIPE") ||
	    write(fd, "a", 1) != 1)
		return 1;
	for (;;)
		pause();
}

/* The parent starts the child from a thread. When the thread ends, the child lives on. When the
 * parent is killed, the child ends, and with it the last writer of the pipe. */
static void a_child_ends_with_the_process_and_not_with_a_thread(void **state)
{
	struct tied t = { 0 };
	char c;
	int status;
	(void)state;
	assert_int_equal(pipe(t.out), 0);
	int done[2];
	assert_int_equal(pipe(done), 0);
	fflush(NULL);
	const pid_t parent = fork();
	if (parent == 0) {
		pthread_t thread;
		pthread_create(&thread, NULL, start, &t);
		pthread_join(thread, NULL);
		close(t.out[1]);
		/* the child has written after the thread's end, and is still there */
		const bool ok = t.pid > 0 && read(t.out[0], &c, 1) == 1 && c == 'a' &&
				waitpid(t.pid, &status, WNOHANG) == 0;
		if (write(done[1], ok ? "y" : "n", 1) != 1)
			_exit(1);
		for (;;)
			pause();
	}
	close(t.out[1]);
	assert_int_equal(read(done[0], &c, 1), 1);
	assert_int_equal(c, 'y');
	assert_int_equal(kill(parent, SIGKILL), 0);
	assert_int_equal(waitpid(parent, &status, 0), parent);
	assert_int_equal(read(t.out[0], &c, 1), 0); /* the child's end is closed: it is gone */
	close(t.out[0]);
	close(done[0]);
	close(done[1]);
}

/* Closing the tie ends the child too. */
static void a_tie_that_is_closed(void **state)
{
	struct tied t = { 0 };
	char c;
	int status;
	(void)state;
	assert_int_equal(pipe(t.out), 0);
	start(&t);
	assert_true(t.pid > 0);
	assert_int_equal(read(t.out[0], &c, 1), 1);
	close(t.tie);
	assert_int_equal(waitpid(t.pid, &status, 0), t.pid);
	assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
	close(t.out[0]);
	close(t.out[1]);
}

int main(int argc, char **argv)
{
	if (argc == 3 && !strcmp(argv[1], "--child"))
		return child(argv[2]);
#define FILES(name) cmocka_unit_test_setup_teardown(name, fresh, tidy)
	const struct CMUnitTest tests[] = {
		FILES(without_groups),
		FILES(page_cache_is_free_v2),
		FILES(the_tightest_group_counts_v2),
		FILES(page_cache_is_free_v1),
		FILES(no_limit_v1),
		FILES(odd_files),
		cmocka_unit_test(this_system),
		cmocka_unit_test(a_child_ends_with_the_process_and_not_with_a_thread),
		cmocka_unit_test(a_tie_that_is_closed),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
