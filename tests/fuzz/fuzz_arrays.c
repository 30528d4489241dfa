/* SPDX-License-Identifier: Apache-2.0 */
/* Arrays in files from anywhere: .npy, .npz and IDX through array.h, tables and JSONL, images. They
 * are read or refused with one line; rows that are there are read in any order. The first byte
 * chooses. */
#include "base/err.h"
#include "data/array_table.h"
#include "data/picture.h"
#include "starve.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static void check(const struct err *e, int rc)
{
	if (rc < 0 && (!e->msg[0] || strchr(e->msg, '\n') || rc == ERR_INTERNAL || rc != e->code))
		abort();
}

static void rows(struct array *a)
{
	struct err e = { 0 };
	if (a->rows && a->each <= 1 << 16) {
		void *v = calloc(4 * a->each, 2);
		check(&e, array_read(a, a->rows - 1, 1, v, &e));
		check(&e, array_read(a, 0, a->rows > 1 ? 2 : 1, v, &e));
		free(v);
	}
	array_close(a);
}

static void pixels(const uint8_t *data, size_t n)
{
	static float out[3 * 5 * 4];
	struct picture p = { 0 };
	struct err e = { 0 };
	const int rc = picture_decode(&p, data, n, "fuzz", &e);
	check(&e, rc);
	if (rc >= 0)
		picture_fit(&p, 3, 5, 4, out);
	picture_release(&p);
}

static void once(const uint8_t *data, size_t n)
{
	struct array_wish w = { .whole = data[0] & 1 };
	struct array *a;
	struct err e = { 0 };
	char path[32];
	const int how = data[0] >> 1 & 7;
	if (how == 0) {
		pixels(data + 1, n - 1);
		return;
	}
	int fd = memfd_create("fuzz", MFD_CLOEXEC);
	snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
	if (fd < 0 || write(fd, data + 1, n - 1) != (ssize_t)(n - 1))
		abort();
	w.columns = how == 2 ? "a,b" : how == 3 ? "a" : how == 4 ? "x" : how == 5 ? "!a" : NULL;
	const int rc = how == 1 || how == 4 ? array_open(path, &w, &a, &e)
		       : how == 3           ? table_open(path, 0, &w, &a, &e)
					    : table_open(path, ',', &w, &a, &e);
	check(&e, rc);
	if (rc >= 0)
		rows(a);
	close(fd);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
	if (n)
		starve(once, data, n);
	return 0;
}
