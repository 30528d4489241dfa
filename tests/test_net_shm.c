/* SPDX-License-Identifier: Apache-2.0 */
/* test_net_shm.c - what only links through shared memory have: bytes that are not copied, memory
 * that is used again and freed with the link, the folder where processes meet and who may use it, a
 * peer that is killed at any moment, and a peer that writes false values into the memory. */
#include <dirent.h>
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
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/log.h"
#include "net/frame.h"
#include "net/net.h"
#include "net/shm_meet.h"
#include "net/shm_memory.h"
#include "net/shm_proof.h"
#include "net/tls_head.h"
#include "support/scratch.h"

static struct err err;
static struct key_pair key[3];
#define SOON net_in(20)
#define OK(call)                                                                                   \
	do {                                                                                       \
		if ((call) < 0)                                                                    \
			fail_msg("%s: %s (%d)", #call, err.msg, err.code);                         \
	} while (0)

enum { NOBODY = 65534, PAGE = 4096 };

/* ---- helpers -------------------------------------------------------------------------------- */

/* Mappings of shared buffers that this process has. */
static int mappings(void)
{
	char line[512];
	int n = 0;
	FILE *f = fopen("/proc/self/maps", "r");
	assert_non_null(f);
	while (fgets(line, sizeof line, f))
		n += strstr(line, "memfd:heteroshard-link") != NULL;
	fclose(f);
	return n;
}

static int open_files(void)
{
	int n = 0;
	DIR *d = opendir("/proc/self/fd");
	assert_non_null(d);
	while (readdir(d))
		n++;
	closedir(d);
	return n;
}

/* Sets the rendezvous folder; the first listener makes the folder in it. */
static const char *meet_in(const char *name)
{
	const char *dir = scratch("%s", name);
	mkdir(dir, 0700);
	setenv("XDG_RUNTIME_DIR", dir, 1);
	return scratch("%s/heteroshard", name);
}

/* Names of sockets there. */
static int names(const char *dir, char last[MEET_PATH])
{
	int n = 0;
	DIR *d = opendir(dir);
	for (struct dirent *x; d && (x = readdir(d));)
		if (strlen(x->d_name) == 32) {
			snprintf(last, MEET_PATH, "%.60s/%.40s", dir, x->d_name);
			n++;
		}
	if (d)
		closedir(d);
	return n;
}

struct ends {
	struct net *a, *b;
	struct link *la, *lb;
	char at[NET_ADDRESS];
};

static void ends_up(struct ends *x, bool keys, struct net_options o)
{
	memset(x, 0, sizeof *x);
	o.key = keys ? &key[0] : NULL;
	OK(net_open("shm", &o, &x->a, &err));
	o.key = keys ? &key[1] : NULL;
	OK(net_open("shm", &o, &x->b, &err));
	if (keys)
		OK(net_allow(x->a, key[1].pub, &err));
	OK(net_listen(x->a, "127.0.0.1:0", x->at, &err));
	OK(net_connect(x->b, x->at, keys ? key[0].pub : NULL, SOON, &x->lb, &err));
	assert_int_equal(net_accept(x->a, SOON, &x->la, &err), 1);
}

static void ends_down(struct ends *x)
{
	net_close(x->b, 5);
	net_close(x->a, 5);
}

static char last_warning[1200];

static void keep_warning(void *ctx, enum log_level level, const char *line)
{
	(void)ctx;
	if (level == LOG_WARN)
		snprintf(last_warning, sizeof last_warning, "%s", line);
}

/* ---- memory --------------------------------------------------------------------------------- */

static void nothing_is_copied(void **state)
{
	(void)state;
	struct ends x;
	struct net_msg m;
	const size_t n = 1 << 20;
	meet_in("m");
	ends_up(&x, false, (struct net_options){ 0 });
	assert_string_equal(link_way(x.la), "shared memory");
	assert_string_equal(link_way(x.lb), "shared memory");
	char *p = link_buffer(x.lb, n);
	assert_non_null(p);
	memset(p, 1, n);
	assert_int_equal(link_send(x.lb, p, n, net_buffer_release, x.b, &err), 0);
	assert_int_equal(link_recv(x.la, SOON, &m, &err), 1);
	assert_int_equal(m.size, n);
	char *q = m.data;
	assert_true(q != p && q[0] == 1 && q[n - 1] == 1);
	q[5] = 77;
	assert_int_equal(p[5], 77); /* the same page under two addresses */
	assert_int_equal(mappings(), 2);
	/* While the receiver holds it, it is not used again; after the release, it is. */
	char *r = link_buffer(x.lb, n);
	assert_true(r != p);
	net_buffer_release(NULL, r);
	net_msg_release(&m);
	char *again[2] = { link_buffer(x.lb, n), link_buffer(x.lb, n) };
	assert_true((again[0] == p && again[1] == r) || (again[0] == r && again[1] == p));
	for (int i = 0; i < 2; i++)
		net_buffer_release(NULL, again[i]);
	/* A message that lies in other memory is copied once, and its owner has it back at once. */
	static char mine[100000];
	memset(mine, 3, sizeof mine);
	OK(link_send_wait(x.lb, mine, sizeof mine, NULL, NULL, SOON, &err));
	memset(mine, 4, sizeof mine);
	assert_int_equal(link_recv(x.la, SOON, &m, &err), 1);
	assert_int_equal(((char *)m.data)[99999], 3);
	net_msg_release(&m);
	ends_down(&x);
	assert_int_equal(mappings(), 0);
}

static void memory_is_used_again(void **state)
{
	(void)state;
	struct ends x;
	struct net_msg m;
	meet_in("m");
	int files = open_files();
	ends_up(&x, false, (struct net_options){ .window = 4 << 20, .max_message = 1 << 20 });
	int used = open_files();
	for (int i = 0; i < 3000; i++) {
		size_t n = (size_t)(16 << 10) + (size_t)(i * 7919) % 900000;
		char *p = link_buffer(x.lb, n);
		memset(p, i, n);
		OK(link_send_wait(x.lb, p, n, net_buffer_release, NULL, SOON, &err));
		assert_int_equal(link_recv(x.la, SOON, &m, &err), 1);
		assert_true(m.size == n && ((unsigned char *)m.data)[n - 1] == (unsigned char)i);
		net_msg_release(&m);
	}
	printf("3000 messages of 16 to 900 KiB: %d mappings of both ends\n", mappings());
	assert_true(mappings() <= 2 * 64);
	assert_int_equal(open_files(), used); /* descriptors are closed after they were passed on */
	/* Messages beyond what the receiver takes through shared memory go through the socket, and
	 * arrive too. */
	struct net_msg held[8];
	for (int i = 0; i < 8; i++) {
		OK(link_send_copy(x.lb, "x", 1, SOON, &err));
		char *p = calloc(1, 1 << 20);
		p[12345] = (char)(i + 1);
		OK(link_send_copy(x.lb, p, 1 << 20, SOON, &err));
		free(p);
		assert_int_equal(link_recv(x.la, SOON, &m, &err), 1);
		net_msg_release(&m);
		assert_int_equal(link_recv(x.la, SOON, &held[i], &err), 1);
	}
	for (int i = 0; i < 8; i++) {
		assert_int_equal(((char *)held[i].data)[12345], i + 1);
		net_msg_release(&held[i]);
	}
	/* A held message outlives the link and the sender. */
	OK(link_send_copy(x.lb, key, sizeof key, SOON, &err));
	static char big[1 << 20];
	OK(link_send_copy(x.lb, big, sizeof big, SOON, &err));
	assert_int_equal(link_recv(x.la, SOON, &m, &err), 1);
	net_msg_release(&m);
	assert_int_equal(link_recv(x.la, SOON, &m, &err), 1);
	void *unsent = link_buffer(x.lb, 50000);
	link_close(x.la);
	while (link_state(x.lb) != LINK_LOST)
		link_recv(x.lb, net_in(0.01), &held[0], &err);
	memset(unsent, 1, 50000);
	net_buffer_release(NULL, unsent);
	assert_int_equal(((char *)m.data)[99], 0);
	net_msg_release(&m);
	ends_down(&x);
	assert_int_equal(mappings(), 0);
	assert_int_equal(open_files(), files);
}

/* A frame's fields are copied to the receiver before they are checked; a tensor's numbers are not
 * copied. */
static void frames_are_copied_before_they_are_read(void **state)
{
	(void)state;
	struct ends x;
	struct net_msg m;
	struct frame f;
	const size_t n = 40000;
	meet_in("m");
	ends_up(&x, false, (struct net_options){ 0 });
	for (int tensor = 0; tensor < 2; tensor++) {
		unsigned char *p = link_buffer(x.lb, FRAME_HEADER + n);
		struct frame out = { .kind = tensor ? FRAME_ACTIVATION : FRAME_BATCH,
				     .size = n,
				     .payload = p + FRAME_HEADER };
		if (tensor) {
			out.ndim = 1;
			out.dim[0] = n / 4;
		}
		memset(p + FRAME_HEADER, 5, n);
		size_t all;
		OK(frame_encode(&out, p, FRAME_HEADER + n, &all, &err));
		assert_int_equal(link_send(x.lb, p, all, net_buffer_release, NULL, &err), 0);
		assert_int_equal(link_recv_frame(x.la, SOON, &m, &f, &err), 1);
		memset(p, 9, all); /* the sender changes it afterwards */
		assert_true(f.size == n && f.kind == out.kind);
		assert_int_equal(((const unsigned char *)f.payload)[7], tensor ? 9 : 5);
		net_msg_release(&m);
	}
	ends_down(&x);
}

/* ---- where processes meet ------------------------------------------------------------------- */

/* A process that waits for a text. It begins before this one has threads, and may have its own. */
struct child {
	pid_t pid;
	int fd;
};

static struct child child_new(void (*what)(const char *at), uid_t uid)
{
	int p[2];
	assert_int_equal(pipe(p), 0);
	struct child c = { .pid = fork(), .fd = p[1] };
	assert_true(c.pid >= 0);
	if (c.pid == 0) {
		char at[NET_ADDRESS];
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		alarm(120);
		close(p[1]);
		if (read(p[0], at, sizeof at) != sizeof at)
			_exit(0);
		if (uid && (setgid(uid) < 0 || setuid(uid) < 0))
			_exit(9);
		what(at);
		_exit(0);
	}
	close(p[0]);
	return c;
}

static void child_tell(struct child *c, const char *at)
{
	char text[NET_ADDRESS] = { 0 };
	snprintf(text, sizeof text, "%s", at);
	assert_int_equal(write(c->fd, text, sizeof text), sizeof text);
	close(c->fd);
}

/* its exit status; 1000: ended by a signal */
static int child_end(struct child *c)
{
	int status;
	waitpid(c->pid, &status, 0);
	return WIFEXITED(status) ? WEXITSTATUS(status) : 1000;
}

static int child_run(struct child *c, const char *at)
{
	child_tell(c, at);
	return child_end(c);
}

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

/* ---- a peer that is killed at any moment ---------------------------------------------------- */

static void talks_for_ever(const char *at)
{
	struct net *n;
	struct link *l;
	struct net_msg m, kept = { 0 };
	static char p[300000];
	if (net_open("shm", &(struct net_options){ .window = 1 << 20 }, &n, &err) < 0 ||
	    net_connect(n, at, NULL, SOON, &l, &err) < 0)
		_exit(1);
	for (unsigned i = 0;; i++) {
		if (link_send_copy(l, p, 1 + i * 977 % sizeof p, NET_FOREVER, &err) < 0)
			_exit(1);
		while (link_recv(l, NET_NOW, &m, &err) == 1) {
			net_msg_release(&kept);
			kept = m;
		}
	}
}

static void killed_at_any_moment(void **state)
{
	(void)state;
	enum { TIMES = 60 };
	const char *dir = meet_in("killed");
	char at[NET_ADDRESS], last[MEET_PATH];
	static char p[300000];
	uint64_t messages = 0;
	struct net *n;
	struct child k[TIMES];
	for (int i = 0; i < TIMES; i++)
		k[i] = child_new(talks_for_ever, 0);
	OK(net_open("shm", &(struct net_options){ .window = 1 << 20 }, &n, &err));
	OK(net_listen(n, "127.0.0.1:0", at, &err));
	int files = open_files() - TIMES; /* without the pipe to each child */
	for (int i = 0; i < TIMES; i++) {
		struct link *l = NULL;
		struct net_msg m;
		struct link_stats s;
		child_tell(&k[i], at);
		int64_t at_ns = clock_now() + 1000000 + (int64_t)i * i * 20000, late = SOON;
		while (clock_now() < at_ns || (!l && i % 4 && clock_now() < late)) {
			if (!l && net_accept(n, NET_NOW, &l, &err) != 1)
				continue;
			link_send(l, p, 1 + (size_t)i * 4999, NULL, NULL, &err);
			if (link_recv(l, NET_NOW, &m, &err) == 1)
				net_msg_release(&m);
		}
		assert_int_equal(kill(k[i].pid, SIGKILL), 0);
		child_end(&k[i]);
		if (!l && net_accept(n, net_in(0.05), &l, &err) != 1)
			continue;
		int rc;
		while ((rc = link_recv(l, SOON, &m, &err)) == 1)
			net_msg_release(&m);
		assert_int_equal(rc, ERR_NET);
		link_stats(l, &s);
		messages += s.messages_in;
		link_close(l);
	}
	printf("%d peers killed, %llu messages had come\n", TIMES, (unsigned long long)messages);
	assert_true(messages > TIMES);
	for (int64_t end = SOON; (mappings() || open_files() > files) && clock_now() < end;)
		usleep(1000);
	assert_int_equal(mappings(), 0);
	assert_int_equal(open_files(), files);
	net_close(n, 1);
	assert_int_equal(names(dir, last), 0);
}

/* A process that is being started has every descriptor for a moment: epoll must not report links
 * that were closed meanwhile. */
static void a_process_is_started_meanwhile(void **state)
{
	(void)state;
	meet_in("started");
	for (int tls = 0; tls < 2; tls++) {
		struct net *a, *b;
		struct link *la, *lb;
		struct net_msg m;
		char at[NET_ADDRESS];
		OK(net_open(tls ? "tls" : "shm", NULL, &a, &err));
		OK(net_open(tls ? "tls" : "shm", NULL, &b, &err));
		OK(net_listen(a, "127.0.0.1:0", at, &err));
		OK(net_connect(b, at, NULL, SOON, &lb, &err));
		assert_int_equal(net_accept(a, SOON, &la, &err), 1);
		pid_t pid = fork();
		if (pid == 0)
			for (;;)
				pause();
		link_close(la);
		assert_int_equal(link_recv(lb, SOON, &m, &err), ERR_NET);
		link_close(lb);
		OK(net_connect(b, at, NULL, SOON, &lb, &err)); /* the threads still work */
		assert_int_equal(net_accept(a, SOON, &la, &err), 1);
		kill(pid, SIGKILL);
		waitpid(pid, NULL, 0);
		OK(link_send_copy(lb, "x", 1, SOON, &err));
		assert_int_equal(link_recv(la, SOON, &m, &err), 1);
		net_msg_release(&m);
		net_close(b, 1);
		net_close(a, 1);
	}
}

/* ---- a peer that writes false values -------------------------------------------------------- */

enum { WINDOW = 1 << 20, LARGEST = 1 << 18 };

struct liar {
	struct net *n;
	struct link *l; /* the honest end */
	int fd;         /* the hostile peer's end */
};

static void say_with(int fd, const void *p, size_t n, const int *pass, int count)
{
	_Alignas(struct cmsghdr) char room[CMSG_SPACE(8 * sizeof(int))] = { 0 };
	struct iovec v = { .iov_base = (void *)(uintptr_t)p, .iov_len = n };
	struct msghdr m = { .msg_iov = &v, .msg_iovlen = 1 };
	if (count) {
		m.msg_control = room;
		m.msg_controllen = CMSG_SPACE((size_t)count * sizeof(int));
		struct cmsghdr *h = CMSG_FIRSTHDR(&m);
		h->cmsg_level = SOL_SOCKET;
		h->cmsg_type = SCM_RIGHTS;
		h->cmsg_len = CMSG_LEN((size_t)count * sizeof(int));
		memcpy(CMSG_DATA(h), pass, (size_t)count * sizeof(int));
	}
	if (sendmsg(fd, &m, MSG_NOSIGNAL) < 0)
		assert_int_equal(errno, EPIPE);
}

static void say_head(struct liar *x, enum head_type type, uint64_t a, uint64_t b, int pass)
{
	unsigned char head[HEAD_BYTES];
	head_write(head, type, a, b);
	say_with(x->fd, head, sizeof head, &pass, pass >= 0);
}

static void liar_begin(struct liar *x)
{
	unsigned char first[PROOF_FIRST] = "HSP1", back[PROOF_FIRST + PROOF_SIGNATURE + HEAD_BYTES];
	const struct net_options o = { .window = WINDOW, .max_message = LARGEST };
	OK(net_open("shm", &o, &x->n, &err));
	OK(net_listen(x->n, "127.0.0.1:3021", NULL, &err));
	assert_int_equal(meet_connect("127.0.0.1:3021", &x->fd, &err), 1);
	fcntl(x->fd, F_SETFL, 0);
	say_with(x->fd, first, sizeof first, NULL, 0);
	say_head(x, HEAD_HELLO, WINDOW, LARGEST, -1);
	assert_int_equal(recv(x->fd, back, sizeof back, MSG_WAITALL), sizeof back);
	assert_int_equal(net_accept(x->n, SOON, &x->l, &err), 1);
}

static int make_memory(size_t size, unsigned seals)
{
	int fd = memfd_create("liar", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	assert_true(fd >= 0 && ftruncate(fd, (off_t)size) == 0);
	if (seals)
		assert_int_equal(fcntl(fd, F_ADD_SEALS, seals), 0);
	return fd;
}

enum { SEALED = F_SEAL_SHRINK | F_SEAL_GROW };

static void no_seals(struct liar *x)
{
	say_head(x, HEAD_MEMORY, 1 << 16, 0, make_memory(1 << 16, 0));
}
static void may_shrink(struct liar *x)
{
	say_head(x, HEAD_MEMORY, 1 << 16, 0, make_memory(1 << 16, F_SEAL_GROW));
}
static void a_real_file(struct liar *x)
{
	const char *path = scratch("real");
	scratch_text(path, "x");
	int fd = open(path, O_RDWR);
	assert_true(fd >= 0 && ftruncate(fd, 1 << 16) == 0);
	say_head(x, HEAD_MEMORY, 1 << 16, 0, fd);
	close(fd);
}
static void a_device(struct liar *x)
{
	int fd = open("/dev/zero", O_RDWR);
	say_head(x, HEAD_MEMORY, 1 << 16, 0, fd);
	close(fd);
}
static void smaller_than_said(struct liar *x)
{
	say_head(x, HEAD_MEMORY, 1 << 16, 0, make_memory(PAGE, SEALED));
}
static void no_descriptor(struct liar *x) { say_head(x, HEAD_MEMORY, 1 << 16, 0, -1); }
static void several_descriptors(struct liar *x)
{
	unsigned char head[HEAD_BYTES];
	int fd[3];
	for (int i = 0; i < 3; i++)
		fd[i] = make_memory(1 << 16, SEALED);
	head_write(head, HEAD_MEMORY, 1 << 16, 0);
	say_with(x->fd, head, sizeof head, fd, 3);
	for (int i = 0; i < 3; i++)
		close(fd[i]);
}
static void a_large_number(struct liar *x)
{
	say_head(x, HEAD_MEMORY, 1 << 16, SHM_BUFFERS, make_memory(1 << 16, SEALED));
}
static void the_same_number(struct liar *x)
{
	for (int i = 0; i < 2; i++)
		say_head(x, HEAD_MEMORY, 1 << 16, 3, make_memory(1 << 16, SEALED));
}
static void too_much_at_once(struct liar *x)
{
	say_head(x, HEAD_MEMORY, WINDOW + LARGEST + PAGE, 0,
		 make_memory(WINDOW + LARGEST + PAGE, SEALED));
}
static void too_much_in_all(struct liar *x)
{
	for (uint64_t i = 0; i < (WINDOW + LARGEST) / PAGE + 1; i++) {
		int fd = make_memory(PAGE, SEALED);
		say_head(x, HEAD_MEMORY, PAGE, i, fd);
		close(fd);
	}
}
static void odd_sizes(struct liar *x)
{
	say_head(x, HEAD_MEMORY, 5000, 0, make_memory(5000, SEALED));
}
static void nothing_at_all(struct liar *x)
{
	say_head(x, HEAD_MEMORY, 0, 0, make_memory(0, SEALED));
}
static void not_shared(struct liar *x) { say_head(x, HEAD_SHARED, 100, 7, -1); }
static void far_outside(struct liar *x) { say_head(x, HEAD_SHARED, 100, UINT64_MAX, -1); }
static void beyond_the_end(struct liar *x)
{
	say_head(x, HEAD_MEMORY, 1 << 16, 0, make_memory(1 << 16, SEALED));
	say_head(x, HEAD_SHARED, (1 << 16) - 63, 0, -1);
}
static void endless(struct liar *x)
{
	say_head(x, HEAD_MEMORY, 1 << 16, 0, make_memory(1 << 16, SEALED));
	say_head(x, HEAD_SHARED, UINT64_MAX - 100, 0, -1);
}
static void twice_in_one(struct liar *x)
{
	say_head(x, HEAD_MEMORY, 1 << 16, 0, make_memory(1 << 16, SEALED));
	say_head(x, HEAD_SHARED, 100, 0, -1);
	say_head(x, HEAD_SHARED, 100, 0, -1);
}
static void drops_what_is_used(struct liar *x)
{
	say_head(x, HEAD_MEMORY, 1 << 16, 0, make_memory(1 << 16, SEALED));
	say_head(x, HEAD_SHARED, 100, 0, -1);
	say_head(x, HEAD_DROP, 0, 0, -1);
}
static void drops_what_is_not_there(struct liar *x) { say_head(x, HEAD_DROP, 0, 5, -1); }
static void more_than_the_window(struct liar *x)
{
	for (uint64_t i = 0; i < 8; i++) {
		int fd = make_memory(LARGEST, SEALED);
		say_head(x, HEAD_MEMORY, LARGEST, i, fd);
		say_head(x, HEAD_SHARED, LARGEST - 64, i, -1);
		close(fd);
	}
}
static void garbage(struct liar *x)
{
	unsigned char p[2000];
	for (size_t i = 0; i < sizeof p; i++)
		p[i] = (unsigned char)(i * i * 31 + 7);
	say_with(x->fd, p, sizeof p, NULL, 0);
}
static void second_hello(struct liar *x) { say_head(x, HEAD_HELLO, WINDOW, LARGEST, -1); }

static void lies_end_the_link(void **state)
{
	(void)state;
	static const struct {
		void (*lie)(struct liar *x);
		const char *says;
	} lies[] = { { no_seals, "change its size" },
		     { may_shrink, "change its size" },
		     { a_real_file, "change its size" },
		     { a_device, "change its size" },
		     { smaller_than_said, "change its size" },
		     { no_descriptor, "without its descriptor" },
		     { several_descriptors, "without its descriptor" },
		     { a_large_number, "too large a number" },
		     { the_same_number, "number that is in use" },
		     { too_much_at_once, "larger than this side accepts" },
		     { too_much_in_all, "larger than this side accepts" },
		     { odd_sizes, "larger than this side accepts" },
		     { nothing_at_all, "larger than this side accepts" },
		     { not_shared, "did not share" },
		     { far_outside, "did not share" },
		     { beyond_the_end, "larger than its buffer" },
		     { endless, "larger than this side accepts" },
		     { twice_in_one, "still uses" },
		     { drops_what_is_used, "not its own" },
		     { drops_what_is_not_there, "not its own" },
		     { more_than_the_window, "more than its window" },
		     { garbage, "no head of a message" },
		     { second_hello, "HELLO for a second time" } };
	meet_in("liar");
	int files = open_files();
	for (size_t i = 0; i < sizeof lies / sizeof *lies; i++) {
		struct liar x;
		struct net_msg m, held[16];
		int rc, n = 0;
		liar_begin(&x);
		lies[i].lie(&x);
		while ((rc = link_recv(x.l, SOON, &m, &err)) == 1 && n < 16)
			held[n++] = m;
		if (rc != ERR_PROTOCOL || !strstr(err.msg, lies[i].says))
			fail_msg("lie %zu: %d, %s", i, rc, err.msg);
		while (n)
			net_msg_release(&held[--n]);
		close(x.fd);
		net_close(x.n, 1);
	}
	assert_int_equal(mappings(), 0);
	for (int fd = 3; fd < 300; fd++) /* the hostile peer's descriptors */
		if (fd > files + 1)
			close(fd);
}

/* What the peer writes into the shared memory harms only itself: the word that says who owns a
 * buffer, and the bytes of a message that is being read. */
static void scribbles(void **state)
{
	(void)state;
	struct liar x;
	struct net_msg m;
	struct frame f;
	meet_in("liar");
	liar_begin(&x);
	int fd = make_memory(1 << 16, SEALED), rc = 0;
	unsigned char *p = mmap(NULL, 1 << 16, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	assert_true(p != MAP_FAILED);
	unsigned char batch[FRAME_HEADER + 20000] = { 0 };
	size_t n;
	const struct frame out = { .kind = FRAME_BATCH,
				   .size = sizeof batch - FRAME_HEADER,
				   .payload = batch + FRAME_HEADER };
	OK(frame_encode(&out, batch, sizeof batch, &n, &err));
	memcpy(p, batch, n);
	say_head(&x, HEAD_MEMORY, 1 << 16, 0, fd);
	pid_t pid = fork();
	if (pid == 0) { /* writes all the time, headers and all */
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		for (uint32_t k = 1;; k = k * 1664525 + 1013904223) {
			p[k % (FRAME_HEADER + 64)] = (unsigned char)(k >> 24);
			p[65536 - 64] = (unsigned char)(k >> 16);
			if (k % 64 == 0)
				memcpy(p, batch, FRAME_HEADER);
		}
	}
	int good = 0, bad = 0;
	for (int i = 0; i < 3000 && !bad; i++) {
		say_head(&x, HEAD_SHARED, n, 0, -1);
		rc = link_recv_frame(x.l, SOON, &m, &f, &err);
		if (rc == 1) {
			good++;
			assert_true(f.size <= n - FRAME_HEADER);
			net_msg_release(&m);
		} else {
			bad++;
			assert_int_equal(rc, ERR_PROTOCOL);
		}
	}
	printf("a peer that scribbles: %d frames taken, then: %s\n", good, bad ? err.msg : "-");
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	munmap(p, 1 << 16);
	close(fd);
	close(x.fd);
	net_close(x.n, 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(nothing_is_copied),
		cmocka_unit_test(memory_is_used_again),
		cmocka_unit_test(frames_are_copied_before_they_are_read),
		cmocka_unit_test(names_of_the_dead_are_taken_over),
		cmocka_unit_test(folders_that_are_refused),
		cmocka_unit_test(other_users_are_refused),
		cmocka_unit_test(each_way),
		cmocka_unit_test(nobody_in_between),
		cmocka_unit_test(killed_at_any_moment),
		cmocka_unit_test(a_process_is_started_meanwhile),
		cmocka_unit_test(lies_end_the_link),
		cmocka_unit_test(scribbles),
	};
	for (int i = 0; i < 3; i++)
		if (key_pair_generate(&key[i], &err) < 0)
			return 1;
	return cmocka_run_group_tests_name("net_shm", tests, NULL, NULL);
}
