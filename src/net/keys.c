/* SPDX-License-Identifier: Apache-2.0 */
/* keys.c - see keys.h. */
#include "net/keys.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sodium.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zmq.h>

#include "base/err.h"

int key_pair_generate(struct key_pair *k_p, struct err *e)
{
	if (sodium_init() < 0 || zmq_curve_keypair(k_p->pub, k_p->sec) != 0)
		return err_set(e, ERR_INTERNAL,
			       "cannot make a key pair: this machine's random generator or "
			       "libzmq's CURVE is missing");
	return 0;
}

void key_pair_wipe(struct key_pair *k) { sodium_memzero(k, sizeof *k); }

bool key_equal(const char *a, const char *b)
{
	return strlen(a) == 40 && strlen(b) == 40 && sodium_memcmp(a, b, 40) == 0;
}

static int path_beside(const char *path, char out[PATH_MAX], struct err *e)
{
	if (snprintf(out, PATH_MAX, "%s.pub", path) >= PATH_MAX)
		return err_set(e, ERR_USAGE, "%s: the path is too long", path);
	return 0;
}

/* One line into a file that must not exist yet, synced: what is lost here locks a machine out. */
static int write_new(const char *path, const char *line, mode_t mode, struct err *e)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, mode);
	if (fd < 0 && errno == EEXIST)
		return err_set(e, ERR_USAGE,
			       "%s: already exists and is not overwritten; move it away or name "
			       "another file",
			       path);
	if (fd < 0)
		return err_sys(e, errno, "%s: cannot create", path);
	char text[KEY_TEXT + 1];
	int n = snprintf(text, sizeof text, "%s\n", line);
	/* The umask may have taken bits away; it cannot have added any. */
	bool ok = write(fd, text, (size_t)n) == n && fsync(fd) == 0;
	int errnum = errno;
	sodium_memzero(text, sizeof text);
	ok = close(fd) == 0 && ok;
	if (ok)
		return 0;
	unlink(path);
	return err_sys(e, errnum, "%s: cannot write", path);
}

int key_pair_save(const struct key_pair *k, const char *path, struct err *e)
{
	char beside[PATH_MAX];
	TRY(path_beside(path, beside, e));
	TRY(write_new(path, k->sec, 0600, e));
	int rc = write_new(beside, k->pub, 0644, e);
	if (rc < 0)
		unlink(path);
	return rc;
}

int key_default_path(char *path_p, size_t cap, bool make_folder, struct err *e)
{
	const char *xdg = getenv("XDG_CONFIG_HOME"), *home = getenv("HOME");
	bool own = xdg && *xdg == '/';
	if (!own && !(home && *home == '/'))
		return err_set(e, ERR_USAGE, "no place for a key: HOME is not set; name a file");
	int n = snprintf(path_p, cap, "%s%s/heteroshard/key", own ? xdg : home,
			 own ? "" : "/.config");
	if (n < 0 || (size_t)n >= cap)
		return err_set(e, ERR_USAGE,
			       "no place for a key: the path of the home folder is too long");
	for (char *p = path_p + 1; make_folder && (p = strchr(p, '/')); p++) {
		*p = 0;
		int rc = mkdir(path_p, 0700) < 0 && errno != EEXIST
				 ? err_sys(e, errno, "%s: cannot create", path_p)
				 : 0;
		*p = '/';
		if (rc < 0)
			return rc;
	}
	return 0;
}

int key_parse(const char *text, const char *where, char out[KEY_TEXT], struct err *e)
{
	while (isspace((unsigned char)*text))
		text++;
	size_t n = strlen(text);
	while (n && isspace((unsigned char)text[n - 1]))
		n--;
	if (n != 40)
		return err_set(e, ERR_USAGE,
			       "%s: a key has 40 characters, this one %zu (`heteroshard keygen` "
			       "makes one)",
			       where, n);
	char key[KEY_TEXT];
	memcpy(key, text, 40);
	key[40] = 0;
	uint8_t raw[32];
	/* libzmq's decoder lets some words through that stand for more than 32 bits: only what
	 * encodes back the same is a key. */
	char again[KEY_TEXT];
	if (!zmq_z85_decode(raw, key) || !zmq_z85_encode(again, raw, 32) ||
	    memcmp(again, key, 40) != 0)
		return err_set(e, ERR_USAGE,
			       "%s: not a key in Z85 (a character or group that Z85 does not have)",
			       where);
	memcpy(out, key, KEY_TEXT);
	sodium_memzero(raw, sizeof raw);
	return 0;
}

int key_pair_load(const char *path, struct key_pair *k_p, struct err *e)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return err_sys(e, errno, "%s: cannot open the secret key", path);
	struct stat st;
	char text[128];
	ssize_t n = -1;
	int rc = 0;
	/* Asked of the open file, so that nobody can swap it between the question and the
	 * reading. */
	if (fstat(fd, &st) < 0)
		rc = err_sys(e, errno, "%s: cannot ask for its mode", path);
	else if (!S_ISREG(st.st_mode))
		rc = err_set(e, ERR_USAGE, "%s: not a regular file", path);
	else if (st.st_uid != geteuid() && geteuid() != 0)
		rc = err_set(e, ERR_USAGE, "%s: the secret key belongs to another user", path);
	else if (st.st_mode & 077)
		rc = err_set(e, ERR_USAGE,
			     "%s: mode %04o lets others at the secret key; use `chmod 600 %s`",
			     path, (unsigned)st.st_mode & 07777, path);
	else if ((n = read(fd, text, sizeof text - 1)) < 0)
		rc = err_sys(e, errno, "%s: cannot read", path);
	close(fd);
	if (rc < 0)
		return rc;
	text[n] = 0;
	struct key_pair k;
	rc = key_parse(text, path, k.sec, e);
	if (rc == 0 && zmq_curve_public(k.pub, k.sec) != 0)
		rc = err_set(e, ERR_USAGE, "%s: no secret key", path);
	if (rc == 0)
		*k_p = k;
	sodium_memzero(text, sizeof text);
	key_pair_wipe(&k);
	return rc;
}
