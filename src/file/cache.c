/* SPDX-License-Identifier: Apache-2.0 */
/* cache.c - see cache.h. */
#include "file/cache.h"

#include "base/err.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/open.h"
#include "base/os_calls.h"
#include "file/atomic.h"

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

int cache_folder(const char *given, const char *part, char *out, size_t cap, struct err *e)
{
	const char *xdg = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
	int n = given           ? snprintf(out, cap, "%s/%s", given, part)
		: xdg && *xdg   ? snprintf(out, cap, "%s/heteroshard/%s", xdg, part)
		: home && *home ? snprintf(out, cap, "%s/.cache/heteroshard/%s", home, part)
				: -1;
	if (n < 0)
		return err_set(e, ERR_USAGE, "there is no HOME to keep %s in: give 'cache_dir'",
			       part);
	if ((size_t)n >= cap)
		return err_set(e, ERR_USAGE, "cache_dir: the path is too long");
	return 0;
}

/* ---- whose it is ---- */

enum { TOLD_MOST = 64 };

/* Each path is told once; when there are too many, each time. */
static bool first_time(const char *path)
{
	static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
	static char *told[TOLD_MOST];
	static size_t n;
	bool first = true;
	pthread_mutex_lock(&lock);
	for (size_t i = 0; i < n; i++)
		first &= strcmp(told[i], path) != 0;
	if (first && n < TOLD_MOST && (told[n] = mem_strdup(path)))
		n++;
	pthread_mutex_unlock(&lock);
	return first;
}

static bool refuse(const char *path, const char *why)
{
	if (first_time(path))
		log_warn("%s %s: it is not used", path, why);
	return false;
}

bool cache_file_ready(const char *path)
{
	const char *why;
	return open_only_mine(path, &why) || refuse(path, why);
}

bool cache_ready(const char *dir, bool make)
{
	char above[PATH_MAX];
	struct err e = { 0 };
	if (make && dir_make_private(dir, &e) < 0) {
		if (first_time(dir))
			log_warn("%s: nothing is cached", e.msg);
		return false;
	}
	snprintf(above, sizeof above, "%s", dir);
	char *slash = strrchr(above, '/');
	if (slash && slash > above)
		*slash = 0;
	/* in a folder like /tmp (sticky) others cannot move what is this user's */
	struct stat st;
	bool sticky = !stat(above, &st) && st.st_mode & S_ISVTX;
	return (sticky || cache_file_ready(above)) && cache_file_ready(dir);
}

/* ---- size ---- */

struct kept {
	char *path;
	uint64_t bytes;
	struct timespec used;
};

struct shelf {
	struct kept *v;
	size_t n, cap;
	uint64_t bytes;
};

int cache_hold(const char *dir)
{
	char path[PATH_MAX];
	if (!cache_ready(dir, true) ||
	    snprintf(path, sizeof path, "%s/lock", dir) >= (int)sizeof path)
		return -1;
	int fd = open_write(path, OPEN_LOCK, 0600);
	if (fd >= 0 && flock(fd, LOCK_SH) < 0) {
		close(fd);
		return -1;
	}
	return fd;
}

void cache_used(const char *path)
{
	const struct timespec t[2] = { { .tv_nsec = UTIME_NOW }, { .tv_nsec = UTIME_OMIT } };
	/* when that is not permitted, the file only seems older than it is */
	utimensat(AT_FDCWD, path, t, 0);
}

static void look(struct shelf *s, const char *dir, int depth)
{
	DIR *d = opendir(dir);
	for (struct dirent *f; d && (f = readdir(d));) {
		char path[PATH_MAX];
		struct stat st;
		if (f->d_name[0] == '.' ||
		    snprintf(path, sizeof path, "%s/%s", dir, f->d_name) >= (int)sizeof path ||
		    lstat(path, &st) < 0)
			continue;
		if (S_ISDIR(st.st_mode) && depth)
			look(s, path, depth - 1);
		if (!S_ISREG(st.st_mode) || depth)
			continue;
		char *mine = mem_strdup(path);
		if (!mine || !mem_grow(&s->v, &s->cap, s->n + 1, sizeof *s->v)) {
			mem_free(mine);
			break;
		}
		s->v[s->n++] = (struct kept){ mine, (uint64_t)st.st_size, os_used(&st) };
		s->bytes += (uint64_t)st.st_size;
	}
	if (d)
		closedir(d);
}

static int by_use(const void *a, const void *b)
{
	const struct timespec *x = &((const struct kept *)a)->used,
			      *y = &((const struct kept *)b)->used;
	if (x->tv_sec != y->tv_sec)
		return x->tv_sec < y->tv_sec ? -1 : 1;
	return (x->tv_nsec > y->tv_nsec) - (x->tv_nsec < y->tv_nsec);
}

void cache_release(const char *dir, int held, uint64_t limit)
{
	struct shelf s = { 0 };
	size_t gone = 0;
	uint64_t bytes = 0;
	if (held < 0)
		return;
	/* else another process uses it, and will remove files when it ends */
	if (limit && flock(held, LOCK_EX | LOCK_NB) == 0) {
		look(&s, dir, 1);
		if (s.n)
			qsort(s.v, s.n, sizeof *s.v, by_use);
		for (size_t i = 0; i < s.n && s.bytes - bytes > limit; i++)
			if (unlink(s.v[i].path) == 0) {
				bytes += s.v[i].bytes;
				gone++;
			}
		if (gone)
			log_info("%s: %zu files (%.1f MB) that were not used for the longest time "
				 "are removed (cache_limit_gib)",
				 dir, gone, (double)bytes / 1e6);
	}
	for (size_t i = 0; i < s.n; i++)
		mem_free(s.v[i].path);
	mem_free(s.v);
	close(held);
}
