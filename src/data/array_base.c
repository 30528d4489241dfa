/* SPDX-License-Identifier: Apache-2.0 */
/* array_base.c - what all kinds of array share (array.h). */
#include "data/array.h"

#include "base/err.h"
#include "base/mem.h"
#include "base/open.h"
#include "base/rng.h"

#include <errno.h>
#include <math.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

int array_init(struct array *a, const struct array_kind *k, const char *path,
	       const struct array_wish *w, struct err *e)
{
	*a = (struct array){ .kind = k, .path = mem_strdup(path), .whole = w->whole };
	return a->path ? 0 : err_nomem(e, strlen(path), "a path");
}

void array_close(struct array *a)
{
	if (!a)
		return;
	if (a->kind->close)
		a->kind->close(a);
	mem_free(a->path);
	mem_free(a);
}

int array_put(const struct array *a, void *dst, uint64_t i, double v, struct err *e)
{
	if (!a->whole) {
		((float *)dst)[i] = (float)v;
		return 0;
	}
	if (!(v >= INT32_MIN && v <= INT32_MAX) || v != floor(v))
		return err_set(e, ERR_INPUT,
			       "%s: holds %g where a whole number of 32 bits is needed (an id, or "
			       "the number of a class)",
			       a->path, v);
	((int32_t *)dst)[i] = (int32_t)v;
	return 0;
}

int array_read(struct array *a, uint64_t first, uint64_t n, void *dst, struct err *e)
{
	if (first > a->rows || n > a->rows - first)
		return err_set(e, ERR_INPUT, "%s: has %llu rows; rows %llu to %llu are wanted",
			       a->path, (unsigned long long)a->rows, (unsigned long long)first,
			       (unsigned long long)(first + n) - 1);
	return a->kind->read(a, first, n, dst, e);
}

static uint64_t fold_part(int fd, uint64_t at, uint64_t key, int *failed)
{
	unsigned char part[4096];
	const ssize_t n = pread(fd, part, sizeof part, (off_t)at);
	*failed |= n < 0;
	for (ssize_t i = 0; i < n; i++)
		key = (key ^ part[i]) * 0x100000001b3ull; /* FNV-1a */
	return key;
}

int array_digest(const struct array *a, uint64_t *digest_p, struct err *e)
{
	int fd, failed = 0;
	uint64_t size;
	struct stat st;
	if (stat(a->path, &st) == 0 && S_ISDIR(st.st_mode)) {
		*digest_p = rng_fold(2, a->rows);
		return 0;
	}
	TRY(open_read(a->path, &fd, &size, e));
	uint64_t key = fold_part(fd, 0, rng_fold(1, size), &failed);
	key = fold_part(fd, size > 4096 ? size - 4096 : 0, key, &failed);
	close(fd);
	if (failed)
		return err_sys(e, EIO, "%s: reading", a->path);
	*digest_p = key;
	return 0;
}
