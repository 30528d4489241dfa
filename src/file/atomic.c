/* SPDX-License-Identifier: Apache-2.0 */
/* atomic.c - see atomic.h. Folders are walked with descriptors and never through links, so that
 * nothing outside is ever removed. */
#include "file/atomic.h"

#include "base/buf.h"
#include "base/err.h"
#include "base/mem.h"
#include "base/open.h"
#include "base/os_calls.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MAX_DEPTH = 64 }; /* of folders: every level holds a descriptor */

static char *tmp_name(const char *path)
{
	struct buf b = BUF_INIT;
	size_t n = strlen(path);
	while (n > 1 && path[n - 1] == '/')
		n--;
	buf_add(&b, path, n);
	buf_adds(&b, ".tmp");
	return buf_detach(&b);
}

/* The folder of a path. */
static char *parent_name(const char *path)
{
	size_t n = strlen(path);
	while (n > 1 && path[n - 1] == '/')
		n--;
	while (n && path[n - 1] != '/')
		n--;
	while (n > 1 && path[n - 1] == '/')
		n--;
	return n ? mem_strndup(path, n) : mem_strdup(".");
}

static int io_error(struct err *e, int errnum, const char *path)
{
	if (errnum == ENOSPC || errnum == EDQUOT || errnum == EFBIG)
		return err_sys(e, errnum,
			       "%s: could not be written whole (what was there before is "
			       "unchanged); make room and try again",
			       path);
	return err_sys(e, errnum, "%s: writing", path);
}

/* Makes a rename durable. Some file systems cannot sync a folder and return EINVAL; they do not
 * need it. */
static int sync_parent(const char *path, struct err *e)
{
	char *dir = parent_name(path);
	if (!dir)
		return err_nomem(e, strlen(path), "a path");
	int rc = 0, fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0)
		rc = err_sys(e, errno, "%s", dir);
	else if (fsync(fd) < 0 && errno != EINVAL && errno != ENOTSUP)
		rc = err_sys(e, errno, "%s: syncing the folder", dir);
	if (fd >= 0)
		close(fd);
	mem_free(dir);
	return rc;
}

static void release(struct atomic_file *f)
{
	if (f->fd >= 0)
		close(f->fd);
	mem_free(f->path);
	mem_free(f->tmp);
	*f = (struct atomic_file){ -1, NULL, NULL };
}

/* Locked, or on a file system without locks. */
static bool locked(int fd) { return !flock(fd, LOCK_EX | LOCK_NB) || errno != EWOULDBLOCK; }

/* The name still leads to the open file: the holder of a lock may rename or remove it. */
static bool same_file(int fd, const char *path)
{
	struct stat mine, there;
	return !fstat(fd, &mine) && !lstat(path, &there) && mine.st_ino == there.st_ino &&
	       mine.st_dev == there.st_dev;
}

/* Removes what is at the temporary name; it is never written to, as it may lead to somebody else's
 * file. 0: another process is writing it; -1 with errno. */
static int remove_left(const char *tmp)
{
	int fd = open_write(tmp, OPEN_LOCK, 0600);
	bool strange = fd < 0 && (errno == ELOOP || errno == EMLINK || errno == EINVAL);
	if (fd < 0 && !strange)
		return -1;
	bool mine = strange || (locked(fd) && same_file(fd, tmp));
	int rc = mine ? !unlink(tmp) || errno == ENOENT ? 1 : -1 : 0, errnum = errno;
	if (fd >= 0)
		close(fd);
	errno = errnum;
	return rc;
}

/* Opens the temporary file, new and locked, so that several processes write the same file one after
 * the other. -1 with errno. */
static int open_locked(const char *tmp)
{
	for (int tries = 0; tries < 300; tries++) {
		int fd = open_write(tmp, OPEN_NEW, 0666), rc = 1;
		if (fd >= 0 && locked(fd) && same_file(fd, tmp))
			return fd;
		if (fd >= 0)
			close(fd);
		else if (errno != EEXIST || (rc = remove_left(tmp)) < 0)
			return -1;
		if (!rc)
			usleep(10000);
	}
	errno = EBUSY;
	return -1;
}

int atomic_begin(const char *path, struct atomic_file *f_p, struct err *e)
{
	struct atomic_file f = { -1, mem_strdup(path), tmp_name(path) };
	if (!f.path || !f.tmp) {
		release(&f);
		return err_nomem(e, strlen(path), "a path");
	}
	struct stat st;
	if (stat(path, &st) == 0 && S_ISDIR(st.st_mode)) {
		release(&f);
		return err_set(e, ERR_IO, "%s: is a folder, a file was to be written there", path);
	}
	f.fd = open_locked(f.tmp);
	if (f.fd < 0) {
		int errnum = errno;
		release(&f);
		return io_error(e, errnum, path);
	}
	*f_p = f;
	return 0;
}

int atomic_write(struct atomic_file *f, const void *p, size_t n, struct err *e)
{
	const char *s = p;
	while (n) {
		ssize_t k = write(f->fd, s, n < (1u << 30) ? n : (1u << 30));
		if (k < 0 && errno == EINTR)
			continue;
		if (k <= 0)
			return io_error(e, k ? errno : ENOSPC, f->path);
		s += k;
		n -= (size_t)k;
	}
	return 0;
}

int atomic_commit(struct atomic_file *f, struct err *e)
{
	int rc = 0;
	if (fsync(f->fd) < 0)
		rc = io_error(e, errno, f->path);
	/* while the lock is held: closing releases it */
	if (!rc && rename(f->tmp, f->path) < 0)
		rc = err_sys(e, errno, "%s: renaming to %s", f->tmp, f->path);
	if (rc < 0)
		unlink(f->tmp);
	else
		rc = sync_parent(f->path, e);
	release(f);
	return rc;
}

void atomic_abort(struct atomic_file *f)
{
	if (f->tmp)
		unlink(f->tmp);
	release(f);
}

int atomic_write_file(const char *path, const void *p, size_t n, struct err *e)
{
	struct atomic_file f;
	TRY(atomic_begin(path, &f, e));
	int rc = atomic_write(&f, p, n, e);
	if (rc < 0) {
		atomic_abort(&f);
		return rc;
	}
	return atomic_commit(&f, e);
}

int atomic_write_in(const char *dir, const char *name, const void *p, size_t n, struct err *e)
{
	char path[PATH_MAX];
	if (snprintf(path, sizeof path, "%s/%s", dir, name) >= (int)sizeof path)
		return err_set(e, ERR_INPUT, "%s: the path is too long", dir);
	return atomic_write_file(path, p, n, e);
}

static bool is_last(const char *p) { return !p[strspn(p, "/")]; }

static int make_folders(const char *path, mode_t parents, mode_t last, struct err *e)
{
	char *s = mem_strdup(path);
	if (!s)
		return err_nomem(e, strlen(path), "a path");
	int rc = 0;
	for (char *p = s + 1; rc == 0; p++) {
		if (*p != '/' && *p)
			continue;
		char c = *p;
		*p = 0;
		struct stat st;
		*p = c;
		mode_t mode = is_last(p) ? last : parents;
		*p = 0;
		if (mkdir(s, mode) < 0 &&
		    (errno != EEXIST || stat(s, &st) < 0 || !S_ISDIR(st.st_mode)))
			rc = err_sys(e, errno == EEXIST ? ENOTDIR : errno, "%s: making the folder",
				     s);
		*p = c;
		if (!c)
			break;
	}
	mem_free(s);
	return rc;
}

int dir_make(const char *path, struct err *e) { return make_folders(path, 0777, 0777, e); }

int dir_make_result(const char *path, struct err *e) { return make_folders(path, 0777, 0750, e); }

int dir_make_private(const char *path, struct err *e) { return make_folders(path, 0700, 0700, e); }

/* What is done with each entry of a folder. */
enum walk { WALK_REMOVE, WALK_SYNC };

static int walk_folder(int at, const char *name, const char *top, enum walk what, int depth,
		       struct err *e)
{
	if (depth > MAX_DEPTH)
		return err_set(e, ERR_IO, "%s: more than %d folders inside each other", top,
			       MAX_DEPTH);
	int fd = openat(at, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0)
		return err_sys(e, errno, "%s: folder %s", top, name);
	DIR *d = fdopendir(fd);
	if (!d) {
		int errnum = errno;
		close(fd);
		return err_sys(e, errnum, "%s: folder %s", top, name);
	}
	int rc = 0;
	struct dirent *ent;
	while (rc == 0 && (errno = 0, ent = readdir(d))) {
		struct stat st;
		const char *s = ent->d_name;
		if (!strcmp(s, ".") || !strcmp(s, ".."))
			continue;
		if (fstatat(fd, s, &st, AT_SYMLINK_NOFOLLOW) < 0) {
			rc = err_sys(e, errno, "%s: %s", top, s);
		} else if (S_ISDIR(st.st_mode)) {
			rc = walk_folder(fd, s, top, what, depth + 1, e);
			if (!rc && what == WALK_REMOVE && unlinkat(fd, s, AT_REMOVEDIR) < 0)
				rc = err_sys(e, errno, "%s: removing %s", top, s);
		} else if (what == WALK_REMOVE) {
			if (unlinkat(fd, s, 0) < 0)
				rc = err_sys(e, errno, "%s: removing %s", top, s);
		} else if (S_ISREG(st.st_mode)) {
			int file = openat(fd, s, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
			if (file < 0 || fsync(file) < 0)
				rc = io_error(e, errno, top);
			if (file >= 0)
				close(file);
		}
	}
	if (rc == 0 && errno)
		rc = err_sys(e, errno, "%s: reading the folder", top);
	if (rc == 0 && what == WALK_SYNC && fsync(fd) < 0 && errno != EINVAL && errno != ENOTSUP)
		rc = io_error(e, errno, top);
	closedir(d);
	return rc;
}

int dir_remove(const char *path, struct err *e)
{
	struct stat st;
	if (lstat(path, &st) < 0)
		return errno == ENOENT ? 0 : err_sys(e, errno, "%s", path);
	if (!S_ISDIR(st.st_mode))
		return err_set(e, ERR_IO, "%s: is not a folder, so it is not removed", path);
	TRY(walk_folder(AT_FDCWD, path, path, WALK_REMOVE, 0, e));
	return rmdir(path) < 0 ? err_sys(e, errno, "%s: removing", path) : 0;
}

int atomic_dir_begin(const char *path, char **tmp_p, struct err *e)
{
	char *tmp = tmp_name(path);
	if (!tmp)
		return err_nomem(e, strlen(path), "a path");
	int rc = dir_remove(tmp, e);
	if (!rc && mkdir(tmp, 0777) < 0)
		rc = io_error(e, errno, tmp);
	if (rc < 0) {
		mem_free(tmp);
		return rc;
	}
	*tmp_p = tmp;
	return 0;
}

int atomic_dir_commit(const char *path, const char *tmp, struct err *e)
{
	struct stat st;
	if (lstat(path, &st) == 0)
		return err_set(e, ERR_IO, "%s: exists already, %s stays beside it", path, tmp);
	TRY(walk_folder(AT_FDCWD, tmp, tmp, WALK_SYNC, 0, e));
	if (rename(tmp, path) < 0)
		return err_sys(e, errno, "%s: renaming to %s", tmp, path);
	return sync_parent(path, e);
}

int atomic_dir_replace(const char *path, const char *tmp, struct err *e)
{
	struct stat st;
	if (lstat(path, &st) < 0)
		return atomic_dir_commit(path, tmp, e);
	TRY(walk_folder(AT_FDCWD, tmp, tmp, WALK_SYNC, 0, e));
	if (!os_swap_names(tmp, path)) {
		/* a file system that cannot do it in one step */
		TRY(dir_remove(path, e));
		if (rename(tmp, path) < 0)
			return err_sys(e, errno, "%s: renaming to %s", tmp, path);
	} else {
		TRY(dir_remove(tmp, e));
	}
	return sync_parent(path, e);
}
