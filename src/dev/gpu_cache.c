/* SPDX-License-Identifier: Apache-2.0 */
/* gpu_cache.c - see gpu_cache.h. */
#include "dev/gpu_cache.h"

#include "base/buf.h"
#include "base/err.h"
#include "base/log.h"
#include "base/open.h"

#include <errno.h>
#include <fcntl.h>
#include <sodium.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define HASH 16
#define MOST ((uint64_t)256 << 20) /* bytes of a program, at most */
#define PATH 1100

static void hash(const void *p, size_t n, unsigned char h[HASH])
{
	crypto_generichash(h, HASH, p, n, NULL, 0);
}

/* The path of a file, its folder made when it is not there; false: there is none. */
static bool path_of(const char *key, const char *ext, char s[PATH])
{
	const char *xdg = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
	int len = xdg && xdg[0] == '/' ? snprintf(s, PATH, "%s/heteroshard/kernels/", xdg)
		  : home && home[0] == '/'
			  ? snprintf(s, PATH, "%s/.cache/heteroshard/kernels/", home)
			  : -1;
	if (len < 0 || (size_t)len + strlen(key) + strlen(ext) + 2 > PATH)
		return false;
	for (char *p = strchr(s + 1, '/'); p; p = strchr(p + 1, '/')) {
		*p = 0;
		const bool ok = mkdir(s, 0700) == 0 || errno == EEXIST;
		*p = '/';
		if (!ok)
			return false;
	}
	const char *why;
	static atomic_bool told;
	if (!open_only_mine(s, &why)) {
		if (!atomic_exchange(&told, true))
			log_warn("%s %s: it is not used", s, why);
		return false;
	}
	snprintf(s + len, PATH - (size_t)len, "%s.%s", key, ext);
	if (!open_only_mine(s, &why)) {
		log_warn("%s %s: it is not used", s, why);
		return false;
	}
	return true;
}

void gpu_cache_key(const char *const *part, size_t nparts, const char *text, size_t n,
		   char key[GPU_KEY])
{
	crypto_generichash_state s;
	unsigned char h[HASH];
	crypto_generichash_init(&s, NULL, 0, HASH);
	for (size_t i = 0; i < nparts; i++)
		crypto_generichash_update(&s, (const unsigned char *)part[i], strlen(part[i]) + 1);
	crypto_generichash_update(&s, (const unsigned char *)text, n);
	crypto_generichash_final(&s, h, HASH);
	for (int i = 0; i < HASH; i++)
		snprintf(key + 2 * i, 3, "%02x", h[i]);
}

static bool write_file(const char *path, const void *head, size_t nhead, const void *p, size_t n)
{
	char tmp[PATH + 32];
	snprintf(tmp, sizeof tmp, "%s.XXXXXX", path); /* machines may share the folder */
	const int fd = mkostemp(tmp, O_CLOEXEC);
	if (fd < 0)
		return false;
	FILE *f = fdopen(fd, "w");
	if (!f) {
		close(fd);
		unlink(tmp);
		return false;
	}
	bool ok = fwrite(head, 1, nhead, f) == nhead && fwrite(p, 1, n, f) == n;
	ok = fclose(f) == 0 && ok;
	if (ok && rename(tmp, path) == 0)
		return true;
	unlink(tmp);
	return false;
}

bool gpu_cache_get(const char *key, const char *ext, struct buf *b)
{
	struct buf all = BUF_INIT;
	struct err e = { 0 };
	unsigned char h[HASH];
	char path[PATH];
	bool ok = false;
	if (!path_of(key, ext, path) || access(path, R_OK) < 0)
		return false;
	if (buf_read_file(&all, path, MOST, &e) == 0 && all.n > HASH) {
		hash(all.p + HASH, all.n - HASH, h);
		ok = memcmp(h, all.p, HASH) == 0;
		if (ok)
			buf_add(b, all.p + HASH, all.n - HASH);
		else
			log_warn("%s is damaged and is made anew", path);
	}
	buf_release(&all);
	return ok && !b->failed;
}

void gpu_cache_put(const char *key, const char *ext, const void *p, size_t n)
{
	unsigned char h[HASH];
	char path[PATH];
	if (n > MOST || !path_of(key, ext, path))
		return;
	hash(p, n, h);
	if (!write_file(path, h, HASH, p, n))
		log_debug("compiled kernels could not be kept in %s", path);
}

void gpu_cache_log(const char *key, const char *log, char *line, size_t nline)
{
	char path[PATH], brief[400];
	const bool kept =
		log[0] && path_of(key, "log", path) && write_file(path, "", 0, log, strlen(log));
	int lines = 0;
	snprintf(brief, sizeof brief, "%s", log[0] ? log : "the compiler says nothing");
	for (char *s = brief; *s; s++)
		if (*s == '\n') {
			*s = ++lines == 3 ? 0 : ' ';
			if (!*s)
				break;
		}
	snprintf(line, nline, "%s%s%s%s", brief, kept ? " (the whole log is in " : "",
		 kept ? path : "", kept ? ")" : "");
}
