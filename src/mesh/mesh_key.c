/* SPDX-License-Identifier: Apache-2.0 */
/* mesh_key.c - see mesh_key.h. */
#include "mesh/mesh_key.h"

#include "base/err.h"
#include "base/open.h"
#include "base/text.h"
#include "file/atomic.h"

#include <errno.h>
#include <limits.h>
#include <sodium.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { BYTES = crypto_scalarmult_BYTES };

static int no_rights(const char *path, struct err *e)
{
	return errno == EACCES || errno == EPERM
		       ? err_set(e, ERR_IO,
				 "%s: no permission: run 'sudo heteroshard mesh key', or name a "
				 "file (and 'mesh: {key_file: ...}' in the configuration)",
				 path)
		       : err_sys(e, errno, "%s", path);
}

static int make(const char *path, struct err *e)
{
	unsigned char raw[BYTES];
	char text[MESH_KEY + 1], dir[PATH_MAX];
	const char *slash = strrchr(path, '/');
	snprintf(dir, sizeof dir, "%.*s", slash ? (int)(slash - path) : 0, path);
	if (dir[0])
		TRY(dir_make_private(dir, e));
	int fd = open_write(path, OPEN_NEW, 0600);
	if (fd < 0)
		return no_rights(path, e);
	randombytes_buf(raw, sizeof raw);
	/* as RFC 7748 section 5 takes them */
	raw[0] &= 248;
	raw[31] = (raw[31] & 127) | 64;
	sodium_bin2base64(text, sizeof text, raw, sizeof raw, sodium_base64_VARIANT_ORIGINAL);
	text[44] = '\n';
	int rc = write(fd, text, 45) == 45 && fsync(fd) == 0 ? 0 : err_sys(e, errno, "%s", path);
	close(fd);
	sodium_memzero(raw, sizeof raw);
	sodium_memzero(text, sizeof text);
	if (rc < 0)
		unlink(path);
	return rc;
}

static int load(const char *path, char pub_p[MESH_KEY], struct err *e)
{
	unsigned char raw[BYTES], pub[BYTES];
	char text[64] = "", word[PATH_MAX];
	struct stat st;
	size_t n = 0;
	int fd;
	if (access(path, R_OK) < 0)
		return no_rights(path, e);
	TRY(open_read(path, &fd, NULL, e));
	if (fstat(fd, &st) < 0 || st.st_mode & 077) {
		close(fd);
		return err_set(e, ERR_INPUT, "%s: others can read this private key: 'chmod 600 %s'",
			       path, text_word(path, word, sizeof word));
	}
	ssize_t got = read(fd, text, sizeof text - 1);
	close(fd);
	text[strcspn(text, "\r\n")] = 0;
	bool ok = got > 0 && strlen(text) == 44 &&
		  sodium_base642bin(raw, sizeof raw, text, 44, NULL, &n, NULL,
				    sodium_base64_VARIANT_ORIGINAL) == 0 &&
		  n == BYTES && crypto_scalarmult_base(pub, raw) == 0;
	sodium_memzero(raw, sizeof raw);
	sodium_memzero(text, sizeof text);
	if (!ok)
		return err_set(
			e, ERR_INPUT,
			"%s: it holds no key of WireGuard: move it away, and another is made",
			path);
	sodium_bin2base64(pub_p, MESH_KEY, pub, sizeof pub, sodium_base64_VARIANT_ORIGINAL);
	return 0;
}

int mesh_key(const char *path, char pub_p[MESH_KEY], bool *made_p, struct err *e)
{
	if (sodium_init() < 0)
		return err_set(e, ERR_INTERNAL, "libsodium does not start");
	*made_p = access(path, F_OK) < 0 && errno == ENOENT;
	if (*made_p)
		TRY(make(path, e));
	return load(path, pub_p, e);
}
