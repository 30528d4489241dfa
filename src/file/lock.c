/* SPDX-License-Identifier: Apache-2.0 */
/* lock.c - see lock.h. */
#include "file/lock.h"

#include "base/buf.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/json.h"
#include "base/mem.h"
#include "base/open.h"
#include "base/os_calls.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { TEXT = 1024, TRIES = 100, HOST = 256 };

/* "process 12 on box, started 2026-01-31 10:00 UTC"; the host alone in host[HOST]. */
static void describe_holder(int fd, char *out, size_t cap, char host[HOST])
{
	char text[TEXT];
	ssize_t n = pread(fd, text, sizeof text - 1, 0);
	struct err ignored = { 0 };
	json_t *doc = NULL;
	int64_t pid = 0, started = 0;
	const char *on = NULL;
	char when[64] = "at an unknown time";
	host[0] = 0;
	if (n <= 0 ||
	    json_parse_text_in(text, (size_t)n, "lock", JSON_MEMORY_LINE, &doc, &ignored) < 0 ||
	    json_need_str(doc, "lock", "host", &on, &ignored) < 0 ||
	    json_need_int(doc, "lock", "pid", 1, INT32_MAX, &pid, &ignored) < 0 ||
	    json_need_int(doc, "lock", "started", 0, INT64_MAX / 1000000000, &started, &ignored) <
		    0) {
		snprintf(out, cap, "another process");
		json_decref(doc);
		return;
	}
	time_t at = (time_t)started;
	struct tm tm;
	if (gmtime_r(&at, &tm))
		strftime(when, sizeof when, "%Y-%m-%d %H:%M:%S UTC", &tm);
	snprintf(host, HOST, "%s", on);
	snprintf(out, cap, "process %lld on %.200s, started %s", (long long)pid, on, when);
	json_decref(doc);
}

static int write_owner(int fd, const char *path, const char *host, struct err *e)
{
	struct buf b = BUF_INIT;
	buf_adds(&b, "{\"host\": ");
	json_quote(&b, host, strlen(host));
	buf_addf(&b, ", \"pid\": %ld, \"started\": %lld}\n", (long)getpid(),
		 (long long)(clock_wall() / 1000000000));
	int rc = buf_ok(&b, e);
	if (rc >= 0 && (ftruncate(fd, 0) < 0 || pwrite(fd, b.p, b.n, 0) != (ssize_t)b.n))
		rc = err_sys(e, errno ? errno : EIO, "%s: writing", path);
	buf_release(&b);
	return rc;
}

/* The file open and locked; -1 with errno EWOULDBLOCK and *other_p open: another process has it. */
static int open_locked(const char *path, int *other_p)
{
	for (int i = 0; i < TRIES; i++) {
		struct stat mine, there;
		int fd = open_write(path, OPEN_LOCK, 0666);
		if (fd < 0)
			return -1;
		/* some file systems have no locks: there the file is only information */
		if (flock(fd, LOCK_EX | LOCK_NB) < 0 && errno == EWOULDBLOCK) {
			*other_p = fd;
			errno = EWOULDBLOCK;
			return -1;
		}
		/* the previous holder may have removed the file that was opened here */
		if (!fstat(fd, &mine) && !lstat(path, &there) && mine.st_ino == there.st_ino)
			return fd;
		close(fd);
	}
	errno = EBUSY;
	return -1;
}

int file_lock_take(const char *path, struct file_lock *l_p, char *stale, size_t cap, struct err *e)
{
	char who[512], host[HOST], here[HOST] = "this machine";
	int other = -1, fd = open_locked(path, &other);
	stale[0] = 0;
	gethostname(here, sizeof here - 1);
	if (fd < 0 && other >= 0) {
		describe_holder(other, who, sizeof who, host);
		close(other);
		return err_set(e, ERR_USAGE, "%s: in use by %s", path, who);
	}
	if (fd < 0)
		return err_sys(e, errno, "%s: locking", path);
	struct stat st;
	if (!fstat(fd, &st) && st.st_size > 0) {
		describe_holder(fd, who, sizeof who, host);
		if (os_is_on_network(fd) && strcmp(host, here)) {
			close(fd);
			return err_set(e, ERR_USAGE,
				       "%s: left by %s; whether it still runs cannot be seen from "
				       "here: if it does not, remove this file",
				       path, who);
		}
		snprintf(stale, cap, "%s", who);
	}
	struct file_lock l = { fd, mem_strdup(path) };
	int rc = l.path ? write_owner(fd, path, here, e) : err_nomem(e, strlen(path), "a path");
	if (rc < 0)
		file_lock_release(&l);
	else
		*l_p = l;
	return rc;
}

void file_lock_release(struct file_lock *l)
{
	if (l->fd >= 0) {
		if (l->path)
			unlink(l->path); /* before the lock is released */
		close(l->fd);
	}
	mem_free(l->path);
	*l = (struct file_lock)FILE_LOCK_INIT;
}
