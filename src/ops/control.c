/* SPDX-License-Identifier: Apache-2.0 */
/* control.c - see control.h. */
#include "ops/control.h"

#include "base/buf.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/json.h"
#include "base/mem.h"
#include "base/os_calls.h"
#include "net/shm_meet.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

enum { ANSWER_MOST = 1 << 20, JOB_NAME = 24, PATIENCE = 2 /* seconds */ };

struct control {
	int fd; /* -1: the folder is not there */
	char path[MEET_PATH];
	pthread_t thread;
	atomic_bool quit;
	pthread_mutex_t lock; /* over the rest */
	struct buf state;
	struct buf leave; /* a line for each worker that is to leave */
};

/* ---- the job's side ------------------------------------------------------------------------- */

static void limit_waiting(int fd)
{
	const struct timeval t = { .tv_sec = PATIENCE };
	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &t, sizeof t);
	setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &t, sizeof t);
}

static bool send_all(int fd, const char *p, size_t n)
{
	while (n) {
		ssize_t k = send(fd, p, n, MSG_NOSIGNAL);
		if (k <= 0)
			return false;
		p += k;
		n -= (size_t)k;
	}
	return true;
}

/* Notes the wish, where the job has a worker of that name; the answer. */
static void ask_to_leave(struct control *c, const char *id, struct buf *out)
{
	struct err ignored = { 0 };
	json_t *doc = NULL, *w;
	size_t i;
	pthread_mutex_lock(&c->lock);
	if (json_parse_text(c->state.p, c->state.n, "state", &doc, &ignored) < 0)
		doc = NULL;
	const char *dir = json_string_value(json_object_get(doc, "output_dir"));
	bool known = false;
	json_array_foreach(json_object_get(doc, "workers"), i, w)
	{
		const char *name = json_string_value(json_object_get(w, "id"));
		known |= name && !strcmp(name, id);
	}
	known &= strlen(id) < CONTROL_ID;
	if (known) {
		buf_addf(&c->leave, "%s\n", id);
		buf_adds(out, "{\"leaves\": ");
		json_quote(out, id, strlen(id));
		buf_adds(out, ", \"output_dir\": ");
		json_quote(out, dir ? dir : "", dir ? strlen(dir) : 0);
	}
	buf_adds(out, known ? "}\n" : "{}\n");
	pthread_mutex_unlock(&c->lock);
	json_decref(doc);
}

bool control_leave(struct control *c, char id_p[CONTROL_ID])
{
	id_p[0] = 0;
	pthread_mutex_lock(&c->lock);
	const size_t n = c->leave.n ? strcspn(c->leave.p, "\n") : 0;
	if (n) {
		snprintf(id_p, CONTROL_ID, "%.*s", (int)n, c->leave.p);
		c->leave.n -= n + 1;
		memmove(c->leave.p, c->leave.p + n + 1, c->leave.n + 1);
	}
	pthread_mutex_unlock(&c->lock);
	return n > 0;
}

static void answer(struct control *c, int fd)
{
	char word[CONTROL_ID + 16] = "";
	pid_t pid;
	limit_waiting(fd);
	if (!meet_peer(fd, &pid))
		return;
	ssize_t n = recv(fd, word, sizeof word - 1, 0);
	word[n > 0 ? n : 0] = 0;
	if (!strcmp(word, "status\n")) {
		struct buf now = BUF_INIT;
		pthread_mutex_lock(&c->lock);
		buf_add(&now, c->state.p, c->state.n);
		pthread_mutex_unlock(&c->lock);
		send_all(fd, now.p, now.n);
		buf_release(&now);
	} else if (!strncmp(word, "leave ", 6)) {
		struct buf now = BUF_INIT;
		word[6 + strcspn(word + 6, "\n")] = 0;
		ask_to_leave(c, word + 6, &now);
		send_all(fd, now.p, now.n);
		buf_release(&now);
	}
}

static int listen_at(const char *path, int *fd_p, struct err *e)
{
	struct sockaddr_un a = { .sun_family = AF_UNIX };
	int fd = os_socket(AF_UNIX, SOCK_STREAM, OS_NEVER_WAITS);
	snprintf(a.sun_path, sizeof a.sun_path, "%s", path);
	if (fd >= 0 && bind(fd, (const struct sockaddr *)&a, sizeof a) == 0 && listen(fd, 8) == 0) {
		*fd_p = fd;
		return 0;
	}
	int errnum = errno;
	if (fd >= 0)
		close(fd);
	return err_sys(e, errnum, "%s: the control socket of this job cannot be made", path);
}

/* /run/user/UID goes when the user logs out, and comes again with the next session. */
static void listen_again(struct control *c)
{
	char dir[MEET_PATH], path[2 * MEET_PATH];
	struct err ignored = { 0 };
	if (access(c->path, F_OK) == 0 || errno != ENOENT)
		return;
	if (c->fd >= 0)
		close(c->fd);
	c->fd = -1;
	if (meet_folder(true, dir, &ignored) <= 0)
		return;
	snprintf(path, sizeof path, "%s%s", dir, strrchr(c->path, '/'));
	if (strlen(path) < sizeof c->path && listen_at(path, &c->fd, &ignored) >= 0)
		memcpy(c->path, path, strlen(path) + 1);
}

static void *run(void *ctx)
{
	struct control *c = ctx;
	while (!c->quit) {
		listen_again(c);
		struct pollfd p = { c->fd, POLLIN, 0 };
		if (poll(&p, 1, 200) <= 0)
			continue;
		int fd = os_accept(c->fd, NULL, NULL, OS_WAITS);
		if (fd < 0)
			continue;
		answer(c, fd);
		close(fd);
	}
	return NULL;
}

/* What of a path may be in the name of a socket. */
static void job_name(const char *output_dir, char out[JOB_NAME])
{
	size_t end = strlen(output_dir), from;
	while (end && output_dir[end - 1] == '/')
		end--;
	for (from = end; from && output_dir[from - 1] != '/'; from--)
		;
	snprintf(out, JOB_NAME, "%.*s", (int)(end - from), output_dir + from);
	for (char *p = out; *p; p++)
		if (!isalnum((unsigned char)*p) && !strchr("-_", *p))
			*p = '-';
}

int control_open(const char *output_dir, struct control **c_p, struct err *e)
{
	char dir[MEET_PATH], name[JOB_NAME];
	struct control *c;
	TRY(meet_folder(true, dir, e));
	if (!(c = mem_zalloc(sizeof *c)))
		return err_nomem(e, sizeof *c, "the control socket");
	job_name(output_dir, name);
	buf_init(&c->state);
	buf_init(&c->leave);
	buf_adds(&c->state, "{}");
	int rc = 0;
	if (snprintf(c->path, sizeof c->path, "%s/%s-%ld.sock", dir, name, (long)getpid()) >=
	    (int)sizeof c->path)
		rc = err_set(e, ERR_IO, "%s: too long for a control socket", dir);
	if (rc >= 0)
		rc = listen_at(c->path, &c->fd, e);
	if (rc >= 0) {
		pthread_mutex_init(&c->lock, NULL);
		int failed = pthread_create(&c->thread, NULL, run, c);
		if (failed) {
			meet_leave(c->fd, c->path);
			rc = err_sys(e, failed, "starting the thread of the control socket");
		}
	}
	if (rc < 0) {
		buf_release(&c->state);
		mem_free(c);
		return rc;
	}
	*c_p = c;
	return 0;
}

void control_state(struct control *c, const char *json)
{
	pthread_mutex_lock(&c->lock);
	buf_reset(&c->state);
	buf_adds(&c->state, json);
	pthread_mutex_unlock(&c->lock);
}

void control_close(struct control *c)
{
	if (!c)
		return;
	c->quit = true;
	pthread_join(c->thread, NULL);
	meet_leave(c->fd, c->path);
	pthread_mutex_destroy(&c->lock);
	buf_release(&c->state);
	buf_release(&c->leave);
	mem_free(c);
}

/* ---- the asking side ------------------------------------------------------------------------ */

/* -1: nobody of this user listens there. */
static int dial(const char *path)
{
	struct sockaddr_un a = { .sun_family = AF_UNIX };
	pid_t pid;
	int fd = os_socket(AF_UNIX, SOCK_STREAM, OS_WAITS);
	snprintf(a.sun_path, sizeof a.sun_path, "%s", path);
	if (fd < 0)
		return -1;
	limit_waiting(fd);
	if (connect(fd, (const struct sockaddr *)&a, sizeof a) == 0) {
		if (meet_peer(fd, &pid))
			return fd;
	} else if (errno == ECONNREFUSED) {
		unlink(path); /* of a process that was killed */
	}
	close(fd);
	return -1;
}

static bool ask_one(const char *path, const char *word, control_each_fn each, void *ctx)
{
	char line[CONTROL_ID + 16], bytes[4096];
	struct buf b = BUF_INIT;
	json_t *doc = NULL;
	struct err ignored = { 0 };
	int fd = dial(path);
	if (fd < 0)
		return false;
	snprintf(line, sizeof line, "%s\n", word);
	const int64_t until = clock_now() + (int64_t)PATIENCE * 1000000000;
	bool ok = send_all(fd, line, strlen(line));
	for (ssize_t n; ok && b.n < ANSWER_MOST && (n = recv(fd, bytes, sizeof bytes, 0)) > 0;) {
		buf_add(&b, bytes, (size_t)n);
		ok = clock_now() < until; /* one that says it byte by byte does not answer */
	}
	close(fd);
	ok = ok && b.n && json_parse_text(b.p, b.n, path, &doc, &ignored) >= 0 &&
	     json_is_object(doc);
	if (ok && each)
		each(ctx, doc);
	json_decref(doc);
	buf_release(&b);
	return ok;
}

static int ask_in(const char *dir, const char *word, control_each_fn each, void *ctx)
{
	char path[MEET_PATH + 256];
	int n = 0;
	DIR *d = opendir(dir);
	for (struct dirent *x; d && (x = readdir(d));) {
		size_t len = strlen(x->d_name);
		if (len < 6 || strcmp(x->d_name + len - 5, ".sock"))
			continue;
		if (snprintf(path, sizeof path, "%s/%s", dir, x->d_name) < MEET_PATH)
			n += ask_one(path, word, each, ctx);
	}
	if (d)
		closedir(d);
	return n;
}

int control_ask(const char *word, control_each_fn each, void *ctx, struct err *e)
{
	char dir[MEET_PATH], before[MEET_PATH];
	int n = 0, rc = meet_folder(false, dir, e);
	if (rc > 0)
		n += ask_in(dir, word, each, ctx);
	if (rc >= 0 && meet_folder_without_session(before))
		n += ask_in(before, word, each, ctx);
	return rc < 0 ? rc : n;
}
