/* SPDX-License-Identifier: Apache-2.0 */
/* base_hash.c - see base_hash.h. */
#include "job/base_hash.h"

#include "base/buf.h"
#include "base/err.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/os_calls.h"
#include "file/atomic.h"
#include "file/cache.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

enum {
	FILES_MOST = 4096,
	SETTLED = 3 /* seconds: a newer file may change without a new time stamp */
	,
	LARGE = 1 << 30
};

static int is_weights(const struct dirent *f)
{
	size_t n = strlen(f->d_name);
	return !strcmp(f->d_name, "config.json") ||
	       (n > 12 && !strcmp(f->d_name + n - 12, ".safetensors"));
}

static int add_stat(struct buf *b, const char *path, uint64_t *bytes, bool *settled, struct err *e)
{
	struct stat st;
	if (stat(path, &st) < 0)
		return err_sys(e, errno, "%s", path);
	*bytes += (uint64_t)st.st_size;
	*settled = *settled && time(NULL) - os_modified(&st).tv_sec >= SETTLED;
	buf_addf(b, "%s\n%llu %llu %lld %lld.%09ld\n", path, (unsigned long long)st.st_dev,
		 (unsigned long long)st.st_ino, (long long)st.st_size,
		 (long long)os_modified(&st).tv_sec, os_modified(&st).tv_nsec);
	return 0;
}

static int add_hash(struct buf *b, const char *path, const char *name, struct err *e)
{
	char hex[HASH_HEX];
	TRY(hash_file(path, hex, NULL, e));
	buf_addf(b, "%s %s\n", name, hex);
	return 0;
}

/* Adds for every file of the model its size and times (`contents` false), or its hash. */
static int add_files(const char *model, bool contents, struct buf *b, uint64_t *bytes,
		     bool *settled, struct err *e)
{
	struct stat st;
	if (stat(model, &st) < 0)
		return err_sys(e, errno, "%s", model);
	if (!S_ISDIR(st.st_mode))
		return contents ? add_hash(b, model, "model", e)
				: add_stat(b, model, bytes, settled, e);
	struct dirent **f = NULL;
	int n = scandir(model, &f, is_weights, alphasort),
	    rc = n < 0            ? err_sys(e, errno, "%s", model)
		 : n > FILES_MOST ? err_set(e, ERR_INPUT, "%s: more than %d files of weights",
					    model, FILES_MOST)
				  : 0;
	for (int i = 0; i < n; i++) {
		char path[PATH_MAX];
		if (rc >= 0 &&
		    snprintf(path, sizeof path, "%s/%s", model, f[i]->d_name) >= PATH_MAX)
			rc = err_set(e, ERR_INPUT, "%s: the path is too long", model);
		if (rc >= 0)
			rc = contents ? add_hash(b, path, f[i]->d_name, e)
				      : add_stat(b, path, bytes, settled, e);
		free(f[i]);
	}
	free(f);
	return rc;
}

/* cache/base/KEY holds "HASH CHECK", where CHECK is a hash of key and hash. */
static void check_of(const char *key, const char *hex, char check[HASH_HEX])
{
	char both[2 * HASH_HEX];
	int n = snprintf(both, sizeof both, "%s%s", key, hex);
	hash_bytes(both, (size_t)n, check);
}

static bool read_kept(const char *path, const char *key, char hex[BASE_HASH])
{
	struct buf b = BUF_INIT;
	struct err ignored = { 0 };
	char check[HASH_HEX];
	bool found = cache_file_ready(path) && buf_read_file(&b, path, 4096, &ignored) >= 0 &&
		     b.n == 2 * HASH_HEX;
	if (found) {
		memcpy(hex, b.p, HASH_HEX - 1);
		hex[HASH_HEX - 1] = 0;
		check_of(key, hex, check);
		found = !memcmp(b.p + HASH_HEX, check, HASH_HEX - 1);
	}
	buf_release(&b);
	return found;
}

int base_hash(const char *model, const char *cache_dir, char hex[BASE_HASH], struct err *e)
{
	struct buf b = BUF_INIT;
	struct err ignored = { 0 };
	char whole[PATH_MAX], dir[PATH_MAX - 80], path[PATH_MAX], key[HASH_HEX], check[HASH_HEX];
	uint64_t bytes = 0;
	bool settled = true;
	if (!realpath(model, whole))
		return err_sys(e, errno, "%s", model);
	int rc = add_files(whole, false, &b, &bytes, &settled, e);
	if (rc >= 0)
		rc = buf_ok(&b, e);
	if (rc < 0)
		goto out;
	hash_bytes(b.p, b.n, key);
	bool keeps = settled && cache_folder(cache_dir, "base", dir, sizeof dir, &ignored) >= 0 &&
		     cache_ready(dir, true);
	if (keeps)
		snprintf(path, sizeof path, "%s/%s", dir, key);
	if (keeps && read_kept(path, key, hex))
		goto out;
	if (bytes > LARGE)
		log_info("computing a hash of %s (%.1f GB), once: checkpoints identify their base "
			 "model by it",
			 model, (double)bytes * 1e-9);
	buf_reset(&b);
	TRYOUT(add_files(whole, true, &b, &bytes, &settled, e));
	TRYOUT(buf_ok(&b, e));
	hash_bytes(b.p, b.n, hex);
	if (keeps) {
		buf_reset(&b);
		check_of(key, hex, check);
		buf_addf(&b, "%s %s\n", hex, check);
		if (!b.failed) /* without it the hash is computed again next time */
			atomic_write_file(path, b.p, b.n, &ignored);
	}
out:
	buf_release(&b);
	return rc;
}
