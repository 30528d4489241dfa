/* SPDX-License-Identifier: Apache-2.0 */
/* test_net_meet.c - where processes of one machine meet: the folder and who may use it, names of
 * processes that are gone, other users, and when links go over TCP instead. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/log.h"
#include "net/net.h"
#include "net/shm_meet.h"
#include "support/child.h"
#include "support/meet.h"
#include "support/ok.h"
#include "support/scratch.h"

static struct err err;
static struct key_pair key[3];
#define SOON net_in(20)

enum { NOBODY = 65534 };

static char last_warning[1200];

static void keep_warning(void *ctx, enum log_level level, const char *line)
{
	(void)ctx;
	if (level == LOG_WARN)
		snprintf(last_warning, sizeof last_warning, "%s", line);
}

/* ---- where processes meet ------------------------------------------------------------------- */

static void listens_and_dies(const char *at)
{
	struct net *n;
	char bound[NET_ADDRESS];
	if (net_open("shm", NULL, &n, &err) < 0 || net_listen(n, at, bound, &err) < 0)
		_exit(1);
	kill(getpid(), SIGKILL);
}

static void names_of_the_dead_are_taken_over(void **state)
{
	(void)state;
	struct net *n, *c;
	char last[MEET_PATH], bound[NET_ADDRESS];
	const char *dir = meet_in("dead");
	for (int i = 1; i <= 2; i++) {
		struct child k = child_new(listens_and_dies, 0);
		assert_int_equal(child_run(&k, i == 1 ? "127.0.0.1:3001" : "127.0.0.1:3002"), 1000);
	}
	assert_int_equal(names(dir, last), 1); /* the second one removed the first one's name */
	OK(net_open("shm", NULL, &n, &err));
	OK(net_listen(n, "127.0.0.1:3002", bound, &err));
	assert_string_equal(bound, "127.0.0.1:3002");
	OK(net_open("shm", NULL, &c, &err));
	assert_int_equal(net_listen(c, "127.0.0.1:3002", bound, &err), ERR_NET);
	assert_non_null(strstr(err.msg, "listens there already"));
	net_close(c, 0);
	assert_int_equal(names(dir, last), 1);
	net_close(n, 0);
	assert_int_equal(names(dir, last), 0);
}

static void folders_that_are_refused(void **state)
{
	(void)state;
	struct net *n, *t;
	struct link *l, *in;
	const char *dir = meet_in("bad");
	const struct net_options near = { .key = &key[1], .near = true };
	for (int how = 0; how < 4; how++) {
		static const char *const says[] = { "lets others in", "belongs to another user",
						    "is no folder", "is no folder" };
		if (how == 1 && geteuid() != 0)
			continue;
		if (how == 2)
			scratch_text(dir, "a file");
		else if (how == 3)
			assert_int_equal(symlink(scratch("m"), dir), 0);
		else
			assert_int_equal(mkdir(dir, 0700), 0);
		if (how == 0)
			assert_int_equal(chmod(dir, 0750), 0);
		if (how == 1)
			assert_int_equal(chown(dir, NOBODY, NOBODY), 0);
		OK(net_open("shm", NULL, &n, &err));
		assert_int_equal(net_listen(n, "127.0.0.1:3001", NULL, &err), ERR_IO);
		assert_non_null(strstr(err.msg, says[how]));
		assert_non_null(strstr(err.msg, dir));
		assert_null(strchr(err.msg, '\n'));
		assert_int_equal(net_connect(n, "127.0.0.1:3001", NULL, SOON, &l, &err), ERR_IO);
		assert_non_null(strstr(err.msg, says[how]));
		net_close(n, 0);
		/* Where TCP is allowed it is used, and that is said once. */
		char at[NET_ADDRESS];
		log_set_sink(keep_warning, NULL, LOG_WARN);
		last_warning[0] = 0;
		struct net_options o = near;
		o.key = &key[0];
		OK(net_open("tls", &o, &t, &err));
		OK(net_allow(t, key[1].pub, &err));
		OK(net_listen(t, "127.0.0.1:0", at, &err));
		assert_non_null(strstr(last_warning, says[how]));
		OK(net_open("tls", &near, &n, &err));
		OK(net_connect(n, at, key[0].pub, SOON, &l, &err));
		assert_string_equal(link_way(l), "TLS");
		assert_int_equal(net_accept(t, SOON, &in, &err), 1);
		net_close(n, 1);
		net_close(t, 1);
		log_set_sink(NULL, NULL, LOG_INFO);
		assert_int_equal(how == 2 || how == 3 ? unlink(dir) : rmdir(dir), 0);
	}
	/* A path that no socket can have. */
	char lengthy[200];
	memset(lengthy, 'x', sizeof lengthy);
	lengthy[0] = '/';
	lengthy[150] = 0;
	setenv("XDG_RUNTIME_DIR", lengthy, 1);
	OK(net_open("shm", NULL, &n, &err));
	assert_int_equal(net_listen(n, "127.0.0.1:3001", NULL, &err), ERR_IO);
	assert_non_null(strstr(err.msg, "too long"));
	assert_int_equal(net_listen(n, "192.0.2.1:3001", NULL, &err), ERR_USAGE);
	assert_non_null(strstr(err.msg, "not an address of this machine"));
	net_close(n, 0);
}

/* Another user, who reaches the socket although the folder's mode should prevent it. */
static void knocks(const char *path)
{
	struct sockaddr_un a = { .sun_family = AF_UNIX };
	char c;
	snprintf(a.sun_path, sizeof a.sun_path, "%s", path);
	int fd = socket(AF_UNIX, SOCK_STREAM, 0);
	if (connect(fd, (struct sockaddr *)&a, sizeof a) < 0)
		_exit(errno == EACCES ? 2 : 3);
	if (send(fd, "HSP1", 4, MSG_NOSIGNAL) < 0 && errno != EPIPE)
		_exit(4);
	ssize_t k = read(fd, &c, 1);
	_exit(k > 0 ? 5 : 6); /* 6: not a byte came back */
}

static void takes_the_place(const char *path)
{
	struct sockaddr_un a = { .sun_family = AF_UNIX };
	snprintf(a.sun_path, sizeof a.sun_path, "%s", path);
	int fd = socket(AF_UNIX, SOCK_STREAM, 0);
	if (setgid(NOBODY) < 0 || setuid(NOBODY) < 0 ||
	    bind(fd, (struct sockaddr *)&a, sizeof a) < 0 || chmod(path, 0777) < 0 ||
	    listen(fd, 5) < 0)
		_exit(1);
	for (;;)
		pause();
}

static void other_users_are_refused(void **state)
{
	(void)state;
	struct net *n, *c;
	struct link *l;
	char path[MEET_PATH];
	if (geteuid() != 0) {
		printf("needs root to be another user\n");
		skip();
	}
	const char *dir = meet_in("users");
	struct child stranger[2] = { child_new(knocks, NOBODY), child_new(knocks, NOBODY) },
		     listener = child_new(takes_the_place, 0);
	OK(net_open("shm", NULL, &n, &err));
	OK(net_listen(n, "127.0.0.1:3001", NULL, &err));
	assert_int_equal(names(dir, path), 1);
	chmod(scratch("."), 0711);
	chmod(scratch("users"), 0711);
	assert_int_equal(child_run(&stranger[0], path), 2); /* the folder's mode */
	chmod(dir, 0711);
	chmod(path, 0777);
	assert_int_equal(child_run(&stranger[1], path), 6); /* SO_PEERCRED */
	assert_int_equal(net_accept(n, NET_NOW, &l, &err), 0);
	net_close(n, 0);
	/* The listener is another user's process. */
	chmod(dir, 0777);
	child_tell(&listener, path);
	for (int64_t end = SOON; names(dir, path) != 1 && clock_now() < end;)
		usleep(1000);
	chmod(dir, 0700);
	OK(net_open("shm", NULL, &c, &err));
	assert_int_equal(net_connect(c, "127.0.0.1:3001", NULL, SOON, &l, &err), ERR_NET);
	assert_non_null(strstr(err.msg, "belongs to another user"));
	net_close(c, 0);
	kill(listener.pid, SIGKILL);
	child_end(&listener);
	unlink(path);
}

/* ---- shared memory where it can be, TCP where not ------------------------------------------- */

static struct net *near_net(int k, bool near, char at[NET_ADDRESS])
{
	struct net *n;
	const struct net_options o = { .key = &key[k], .near = near };
	OK(net_open("tls", &o, &n, &err));
	for (int i = 0; i < 3; i++)
		OK(net_allow(n, key[i].pub, &err));
	if (at)
		OK(net_listen(n, at[0] ? at : "127.0.0.1:0", at, &err));
	return n;
}

/* Process B: exits with the way by which it reaches A. */
static void says_way(const char *at)
{
	struct net *n = near_net(1, true, NULL);
	struct link *l;
	if (net_connect(n, at, key[0].pub, net_in(10), &l, &err) < 0)
		_exit(1);
	int rc = !strcmp(link_way(l), "shared memory") ? 21 : !strcmp(link_way(l), "TLS") ? 22 : 23;
	net_close(n, 2);
	_exit(rc);
}

static void from_another_folder(const char *at)
{
	setenv("XDG_RUNTIME_DIR", "/nonexistent", 1);
	says_way(at);
}

static void from_other_process_ids(const char *at)
{
	int status;
	if (unshare(CLONE_NEWPID) < 0)
		_exit(77);
	pid_t pid = fork();
	if (pid == 0)
		says_way(at);
	waitpid(pid, &status, 0);
	_exit(WEXITSTATUS(status));
}

static void each_way(void **state)
{
	(void)state;
	char at[NET_ADDRESS] = "", all[NET_ADDRESS] = "*:0", local[NET_ADDRESS];
	meet_in("ways");
	struct child k[6] = { child_new(says_way, 0),
			      child_new(from_another_folder, 0),
			      child_new(from_other_process_ids, 0),
			      child_new(says_way, 0),
			      child_new(says_way, 0),
			      child_new(says_way, 0) };
	struct net *n = near_net(0, true, at);
	assert_int_equal(child_run(&k[0], at), 21);
	/* containers that share the network and not the folder, or not the process ids */
	assert_int_equal(child_run(&k[1], at), 22);
	int rc = child_run(&k[2], at);
	assert_true(rc == 22 || rc == 77);
	net_close(n, 1);
	/* A listener at every address is reached through shared memory under each of them. */
	n = near_net(0, true, all);
	snprintf(local, sizeof local, "127.0.0.9:%s", strrchr(all, ':') + 1);
	assert_int_equal(child_run(&k[3], local), 21);
	net_close(n, 1);
	/* A listener without shared memory is reached over TCP. */
	at[0] = 0;
	n = near_net(0, false, at);
	assert_int_equal(child_run(&k[4], at), 22);
	/* A process that listens in its place without its key gets no link. */
	struct net *false_one;
	const struct net_options o = { .key = &key[2] };
	OK(net_open("shm", &o, &false_one, &err));
	OK(net_allow(false_one, key[1].pub, &err));
	OK(net_listen(false_one, at, NULL, &err));
	assert_int_equal(child_run(&k[5], at), 22);
	net_close(false_one, 1);
	net_close(n, 1);
}

/* A man in the middle: relays the bytes of two others, and could read them. */
static void relays(const char *from)
{
	char name[MEET_PATH], buf[4096];
	struct err e;
	int l, end[2];
	if (meet_listen(from, &l, name, &e) < 0)
		_exit(1);
	fcntl(l, F_SETFL, 0);
	while ((end[0] = accept(l, NULL, NULL)) >= 0) {
		if (meet_connect("127.0.0.1:3011", &end[1], &e) != 1)
			_exit(2);
		struct pollfd p[2] = { { .fd = end[0], .events = POLLIN },
				       { .fd = end[1], .events = POLLIN } };
		bool open = true;
		while (open && poll(p, 2, -1) > 0)
			for (int i = 0; i < 2 && open; i++) {
				ssize_t k = p[i].revents ? recv(end[i], buf, sizeof buf, 0) : -1;
				open = !p[i].revents || (k > 0 && send(end[1 - i], buf, (size_t)k,
								       MSG_NOSIGNAL) == k);
			}
		close(end[0]);
		close(end[1]);
	}
}

static void nobody_in_between(void **state)
{
	(void)state;
	struct net *n, *c;
	struct link *l;
	char last[MEET_PATH];
	const char *dir = meet_in("between");
	struct child k = child_new(relays, 0);
	struct net_options o = { .key = &key[0] };
	OK(net_open("shm", &o, &n, &err));
	OK(net_allow(n, key[1].pub, &err));
	OK(net_listen(n, "127.0.0.1:3011", NULL, &err));
	child_tell(&k, "127.0.0.1:3012");
	for (int64_t end = SOON; names(dir, last) != 2 && clock_now() < end;)
		usleep(1000);
	o.key = &key[1];
	OK(net_open("shm", &o, &c, &err));
	assert_int_equal(net_connect(c, "127.0.0.1:3012", key[0].pub, net_in(5), &l, &err),
			 ERR_NET);
	printf("%s\n", err.msg);
	assert_int_equal(net_accept(n, NET_NOW, &l, &err), 0);
	OK(net_connect(c, "127.0.0.1:3011", key[0].pub, SOON, &l, &err));
	kill(k.pid, SIGKILL);
	child_end(&k);
	net_close(c, 1);
	net_close(n, 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(names_of_the_dead_are_taken_over),
		cmocka_unit_test(folders_that_are_refused),
		cmocka_unit_test(other_users_are_refused),
		cmocka_unit_test(each_way),
		cmocka_unit_test(nobody_in_between),
	};
	for (int i = 0; i < 3; i++)
		if (key_pair_generate(&key[i], &err) < 0)
			return 1;
	return cmocka_run_group_tests_name("net_meet", tests, NULL, NULL);
}
