/* SPDX-License-Identifier: Apache-2.0 */
/* shm_meet.c - see shm_meet.h. */
#include "net/shm_meet.h"

#include <dirent.h>
#include <errno.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/err.h"
#include "base/open.h"
#include "base/os.h"
#include "base/os_calls.h"
#include "net/address.h"

enum { BACKLOG = 64, NAME = 32, LOCK_TRIES = 200 };

/* ---- the folder ----------------------------------------------------------------------------- */

static bool own_folder(const char *path)
{
	struct stat s;
	return lstat(path, &s) == 0 && S_ISDIR(s.st_mode) && s.st_uid == geteuid();
}

/* 1: it is there and the user's alone; 0: it does not exist. */
static int check_folder(const char *out, struct err *e)
{
	struct stat s;
	if (lstat(out, &s) < 0)
		return 0;
	if (!S_ISDIR(s.st_mode) || s.st_uid != geteuid())
		return err_set(e, ERR_IO,
			       "%s: processes of this machine meet in this folder, but it %s: "
			       "remove it, or set XDG_RUNTIME_DIR to a folder of your own",
			       out,
			       !S_ISDIR(s.st_mode) ? "is no folder" : "belongs to another user");
	if (s.st_mode & 077)
		return err_set(e, ERR_IO,
			       "%s: processes of this machine meet in this folder, but its mode "
			       "%04o lets others in: `chmod 700` it",
			       out, (unsigned)(s.st_mode & 07777));
	return 1;
}

int meet_folder(bool make, char out[MEET_PATH], struct err *e)
{
	const char *base = getenv("XDG_RUNTIME_DIR");
	char user[64];
	snprintf(user, sizeof user, "/run/user/%u", (unsigned)geteuid());
	if (base && base[0] != '/')
		base = NULL;
	if (!base && own_folder(user))
		base = user;
	int n = base ? snprintf(out, MEET_PATH, "%s/heteroshard", base)
		     : snprintf(out, MEET_PATH, "/tmp/heteroshard-%u", (unsigned)geteuid());
	if (n + 1 + NAME + 1 > MEET_PATH)
		return err_set(e, ERR_IO,
			       "%.200s: too long for the sockets through which processes of this "
			       "machine meet: set XDG_RUNTIME_DIR to a shorter path",
			       base);
	if (make && mkdir(out, 0700) < 0 && errno != EEXIST)
		return err_set(e, ERR_IO,
			       "%s: cannot make this folder, in which processes of this machine "
			       "meet: %s",
			       out, strerror(errno));
	return check_folder(out, e);
}

bool meet_folder_without_session(char out[MEET_PATH])
{
	char session[MEET_PATH], user[64];
	struct err ignored = { 0 };
	snprintf(user, sizeof user, "/run/user/%u/heteroshard", (unsigned)geteuid());
	snprintf(out, MEET_PATH, "/tmp/heteroshard-%u", (unsigned)geteuid());
	return meet_folder(false, session, &ignored) >= 0 && !strcmp(session, user) &&
	       check_folder(out, &ignored) > 0;
}

/* The path of the socket for an address, in the folder. */
static void socket_path(const char *dir, const char *number, struct sockaddr_un *a)
{
	char host[NET_ADDRESS], all[NET_ADDRESS], network[80] = "?", text[NET_ADDRESS + 100];
	unsigned char sum[NAME / 2];
	unsigned port;
	address_parts(number, host, &port);
	if (!strcmp(host, "0.0.0.0") || !strcmp(host, "::")) {
		snprintf(all, sizeof all, "*:%u", port);
		number = all;
	}
	os_net_namespace(network, sizeof network);
	int n = snprintf(text, sizeof text, "%s %s", network, number);
	crypto_generichash(sum, sizeof sum, (unsigned char *)text, (unsigned long long)n, NULL, 0);
	*a = (struct sockaddr_un){ .sun_family = AF_UNIX };
	int at = snprintf(a->sun_path, sizeof a->sun_path, "%s/", dir);
	sodium_bin2hex(a->sun_path + at, sizeof a->sun_path - (size_t)at, sum, sizeof sum);
}

/* ---- connecting ----------------------------------------------------------------------------- */

bool meet_peer(int fd, pid_t *pid_p)
{
	uid_t user;
	return os_peer(fd, &user, pid_p) && user == geteuid();
}

/* -1 with errno */
static int try_connect(const struct sockaddr_un *a)
{
	int fd = os_socket(AF_UNIX, SOCK_STREAM, OS_NEVER_WAITS);
	if (fd < 0)
		return -1;
	if (connect(fd, (const struct sockaddr *)a, sizeof *a) == 0)
		return fd;
	int errnum = errno;
	close(fd);
	errno = errnum;
	return -1;
}

int meet_connect(const char *number, int *fd_p, struct err *e)
{
	char dir[MEET_PATH], host[NET_ADDRESS], all[NET_ADDRESS];
	struct sockaddr_un a;
	unsigned port;
	pid_t pid;
	int rc = meet_folder(false, dir, e), fd = -1;
	if (rc <= 0)
		return rc;
	address_parts(number, host, &port);
	snprintf(all, sizeof all, "*:%u", port);
	socket_path(dir, number, &a);
	fd = try_connect(&a);
	if (fd < 0 && (errno == ENOENT || errno == ECONNREFUSED)) {
		socket_path(dir, all, &a);
		fd = try_connect(&a);
	}
	if (fd < 0)
		return 0;
	if (!meet_peer(fd, &pid)) {
		close(fd);
		return err_set(e, ERR_NET, "what listens for it in %s belongs to another user",
			       dir);
	}
	*fd_p = fd;
	return 1;
}

bool meet_is_here(const char *number)
{
	struct sockaddr_storage a;
	char host[NET_ADDRESS], bare[NET_ADDRESS];
	unsigned port;
	address_parts(number, host, &port);
	address_join(host, 0, bare);
	unsigned n = address_socket(bare, &a);
	if (!n || host[0] == '*')
		return false;
	/* the kernel binds a socket to addresses of this machine only */
	int fd = os_socket(a.ss_family, SOCK_DGRAM, OS_WAITS);
	bool here = fd >= 0 && bind(fd, (struct sockaddr *)&a, n) == 0;
	if (fd >= 0)
		close(fd);
	return here;
}

/* ---- listening ------------------------------------------------------------------------------ */

static bool is_name(const char *s)
{
	return strlen(s) == NAME && strspn(s, "0123456789abcdef") == NAME;
}

/* Removes the names of listeners that are gone. */
static void sweep(const char *dir)
{
	DIR *d = opendir(dir);
	struct sockaddr_un a = { .sun_family = AF_UNIX };
	for (struct dirent *x; d && (x = readdir(d));) {
		if (!is_name(x->d_name))
			continue;
		snprintf(a.sun_path, sizeof a.sun_path, "%.70s/%.36s", dir, x->d_name);
		int fd = try_connect(&a);
		if (fd >= 0)
			close(fd);
		else if (errno == ECONNREFUSED)
			unlink(a.sun_path);
	}
	if (d)
		closedir(d);
}

/* One process at a time looks who listens and makes a name of its own. */
static int lock_folder(const char *dir, int *fd_p, struct err *e)
{
	char path[MEET_PATH + 8];
	snprintf(path, sizeof path, "%s/lock", dir);
	int fd;
	TRY(open_write_err(path, OPEN_LOCK, 0600, &fd, e));
	for (int i = 0; flock(fd, LOCK_EX | LOCK_NB) < 0; i++) {
		if (i == LOCK_TRIES) {
			close(fd);
			return err_set(e, ERR_IO, "%s: another process keeps it locked", path);
		}
		usleep(10000);
	}
	*fd_p = fd;
	return 0;
}

int meet_listen(const char *number, int *fd_p, char path_p[MEET_PATH], struct err *e)
{
	char dir[MEET_PATH];
	struct sockaddr_un a;
	int lock = -1, rc = meet_folder(true, dir, e);
	if (rc >= 0)
		rc = rc ? 0
			: err_set(e, ERR_IO,
				  "%s: this folder, in which processes of this "
				  "machine meet, was removed at this moment",
				  dir);
	TRY(rc);
	TRY(lock_folder(dir, &lock, e));
	sweep(dir);
	socket_path(dir, number, &a);
	int fd = os_socket(AF_UNIX, SOCK_STREAM, OS_NEVER_WAITS);
	if (fd < 0 || bind(fd, (struct sockaddr *)&a, sizeof a) < 0 || listen(fd, BACKLOG) < 0) {
		rc = errno == EADDRINUSE
			     ? err_set(e, ERR_NET,
				       "%s: a process of this user listens there already; is "
				       "heteroshard running already?",
				       number)
			     : err_set(e, ERR_IO, "%s: cannot listen at %s: %s", number, a.sun_path,
				       strerror(errno));
		if (fd >= 0)
			close(fd);
	}
	close(lock);
	if (rc < 0)
		return rc;
	snprintf(path_p, MEET_PATH, "%s", a.sun_path);
	*fd_p = fd;
	return 0;
}

void meet_leave(int fd, const char *path)
{
	if (fd < 0)
		return;
	unlink(path);
	close(fd);
}
