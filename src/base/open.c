/* SPDX-License-Identifier: Apache-2.0 */
/* open.c - see open.h. */
#include "base/open.h"

#include "base/err.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char *kind_of(mode_t m)
{
	return S_ISDIR(m)    ? "a folder"
	       : S_ISFIFO(m) ? "a pipe"
	       : S_ISSOCK(m) ? "a socket"
			     : "a device";
}

/* What Git leaves in the place of a large file that was not fetched with it. */
static bool is_lfs_pointer(int fd, const struct stat *st)
{
	static const char begins[] = "version https://git-lfs";
	char text[sizeof begins - 1];
	return S_ISREG(st->st_mode) && st->st_size < 1024 &&
	       pread(fd, text, sizeof text, 0) == (ssize_t)sizeof text &&
	       !memcmp(text, begins, sizeof text);
}

static int open_kind(const char *path, bool pipe, int *fd_p, uint64_t *size_p, struct err *e)
{
	struct stat st;
	int fd = open(path, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
	if (fd < 0 && errno == ENXIO)
		return err_set(e, ERR_INPUT, "%s: is a socket or a device, a file was expected",
			       path);
	if (fd < 0)
		return err_sys(e, errno, "%s", path);
	int rc = fstat(fd, &st) < 0 ? err_sys(e, errno, "%s", path)
		 : S_ISREG(st.st_mode) || (pipe && S_ISFIFO(st.st_mode))
			 ? 0
			 : err_set(e, ERR_INPUT, "%s: is %s, a file was expected", path,
				   kind_of(st.st_mode));
	if (rc >= 0 && is_lfs_pointer(fd, &st))
		rc = err_set(e, ERR_INPUT,
			     "%s: is only a pointer of Git LFS, the file was not fetched: run 'git "
			     "lfs pull' in its folder",
			     path);
	if (rc < 0) {
		close(fd);
		return rc;
	}
	if (size_p)
		*size_p = (uint64_t)st.st_size;
	/* A pipe that nobody writes to ends at once when it is read. A file of the kernel's may
	 * look like any other and make its reader wait. */
	if (S_ISFIFO(st.st_mode))
		fcntl(fd, F_SETFL, 0);
	*fd_p = fd;
	return 0;
}

int open_read(const char *path, int *fd_p, uint64_t *size_p, struct err *e)
{
	return open_kind(path, false, fd_p, size_p, e);
}

int open_stream(const char *path, int *fd_p, struct err *e)
{
	return open_kind(path, true, fd_p, NULL, e);
}

int open_write(const char *path, enum open_write how, unsigned mode)
{
	static const int flags[] = { [OPEN_APPEND] = O_WRONLY | O_APPEND,
				     [OPEN_EMPTY] = O_WRONLY | O_APPEND,
				     [OPEN_NEW] = O_WRONLY | O_EXCL,
				     [OPEN_LOCK] = O_RDWR };
	struct stat st;
	int fd = open(path, flags[how] | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC,
		      mode);
	if (fd < 0) {
		if (errno == ENXIO) /* a pipe that nobody reads, a socket */
			errno = EINVAL;
		return -1;
	}
	int errnum = fstat(fd, &st) < 0     ? errno
		     : !S_ISREG(st.st_mode) ? EINVAL
		     : st.st_nlink > 1      ? EMLINK
		     : how != OPEN_EMPTY    ? 0
		     : ftruncate(fd, 0) < 0 ? errno
					    : 0;
	if (!errnum)
		return fd;
	close(fd);
	errno = errnum;
	return -1;
}

int open_write_err(const char *path, enum open_write how, unsigned mode, int *fd_p, struct err *e)
{
	int fd = open_write(path, how, mode);
	if (fd >= 0) {
		*fd_p = fd;
		return 0;
	}
	switch (errno) {
	case ELOOP:
		return err_set(e, ERR_IO, "%s: is a link and is not written through: remove it",
			       path);
	case EMLINK:
		return err_set(e, ERR_IO,
			       "%s: has another name somewhere (a hard link) and is not written: "
			       "remove it",
			       path);
	case EINVAL:
	case EISDIR:
		return err_set(e, ERR_IO, "%s: is not a regular file and is not written: remove it",
			       path);
	default:
		return err_sys(e, errno, "%s: opening it to write", path);
	}
}

bool open_only_mine(const char *path, const char **why_p)
{
	struct stat st;
	*why_p = stat(path, &st) < 0                        ? NULL
		 : st.st_uid != geteuid() && st.st_uid != 0 ? "belongs to another user"
		 : st.st_mode & (S_IWGRP | S_IWOTH) ? "can be written by other users (chmod go-w)"
						    : NULL;
	return !*why_p;
}
