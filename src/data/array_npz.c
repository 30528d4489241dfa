/* SPDX-License-Identifier: Apache-2.0 */
/* array_npz.c - one array of a .npz: its place in the archive's directory. */
#include "data/array_npy.h"

#include "base/err.h"
#include "base/le.h"

#include <stdio.h>
#include <string.h>

enum { NAME_MOST = 512, TAIL = 22 + 65535, ENTRIES_MOST = 1 << 16 };

struct entry {
	char name[NAME_MOST];
	unsigned method, flags;
	uint64_t packed, size, at;
};

bool npz_is(const struct array_raw *r)
{
	char head[4];
	struct err ignored;
	return r->b.size >= 22 && bytes_read(&r->b, 0, head, 4, &ignored) >= 0 &&
	       !memcmp(head, "PK\3\4", 4);
}

static int damaged(const struct array_raw *r, struct err *e)
{
	return err_set(e, ERR_INPUT,
		       "%s: its directory of arrays is damaged or missing (is it cut "
		       "off?)",
		       r->a.path);
}

/* Where the directory begins, and how many entries it has. */
static int directory(const struct array_raw *r, uint64_t *at_p, uint64_t *n_p, struct err *e)
{
	uint8_t tail[TAIL], wide[56];
	const uint64_t n = r->b.size < TAIL ? r->b.size : TAIL, from = r->b.size - n;
	TRY(bytes_read(&r->b, from, tail, n, e));
	uint64_t k = n - 22 + 1;
	while (k && memcmp(tail + k - 1, "PK\5\6", 4))
		k--;
	if (!k)
		return damaged(r, e);
	k--;
	*n_p = le_get(tail + k + 10, 2);
	*at_p = le_get(tail + k + 16, 4);
	if (k < 20 || memcmp(tail + k - 20, "PK\6\7", 4))
		return 0;
	TRY(bytes_read(&r->b, le_get(tail + k - 20 + 8, 8), wide, sizeof wide, e));
	if (memcmp(wide, "PK\6\6", 4))
		return damaged(r, e);
	*n_p = le_get(wide + 32, 8);
	*at_p = le_get(wide + 48, 8);
	return 0;
}

/* The sizes and places that do not fit into 32 bits. */
static void widen(struct entry *x, const uint8_t *extra, uint64_t n)
{
	uint64_t *const wide[] = { &x->size, &x->packed, &x->at };
	for (uint64_t i = 0; i + 4 <= n; i += 4 + le_get(extra + i + 2, 2)) {
		const uint64_t end = i + 4 + le_get(extra + i + 2, 2);
		uint64_t k = i + 4;
		if (le_get(extra + i, 2) != 1 || end > n)
			continue;
		for (int f = 0; f < 3; f++)
			if (*wide[f] == UINT32_MAX && k + 8 <= end) {
				*wide[f] = le_get(extra + k, 8);
				k += 8;
			}
	}
}

/* The entry at *at_p, which moves to the next one. */
static int next_entry(const struct array_raw *r, uint64_t *at_p, struct entry *x, struct err *e)
{
	uint8_t head[46], extra[4096];
	TRY(bytes_read(&r->b, *at_p, head, sizeof head, e));
	const uint64_t name = le_get(head + 28, 2), more = le_get(head + 30, 2),
		       note = le_get(head + 32, 2);
	if (memcmp(head, "PK\1\2", 4))
		return damaged(r, e);
	*x = (struct entry){ .flags = (unsigned)le_get(head + 8, 2),
			     .method = (unsigned)le_get(head + 10, 2),
			     .packed = le_get(head + 20, 4),
			     .size = le_get(head + 24, 4),
			     .at = le_get(head + 42, 4) };
	if (name < NAME_MOST)
		TRY(bytes_read(&r->b, *at_p + 46, x->name, name, e));
	const uint64_t n = more < sizeof extra ? more : sizeof extra;
	TRY(bytes_read(&r->b, *at_p + 46 + name, extra, n, e));
	widen(x, extra, n);
	*at_p += 46 + name + more + note;
	return 0;
}

static int take(struct array_raw *r, const struct entry *x, struct err *e)
{
	uint8_t head[30];
	TRY(bytes_read(&r->b, x->at, head, sizeof head, e));
	if (memcmp(head, "PK\3\4", 4))
		return damaged(r, e);
	r->at = x->at + 30 + le_get(head + 26, 2) + le_get(head + 28, 2);
	if (x->flags & 1 || (x->method != 0 && x->method != 8))
		return err_set(e, ERR_UNSUPPORTED,
			       "%s: '%.100s' is packed in a way that is not "
			       "known",
			       r->a.path, x->name);
	if (x->method == 8) {
		if (x->size > ARRAY_UNPACKED_MOST)
			return err_set(e, ERR_UNSUPPORTED,
				       "%s: '%.100s' has more than %d MiB unpacked; np.savez() "
				       "without compression has no such limit",
				       r->a.path, x->name, ARRAY_UNPACKED_MOST >> 20);
		TRY(bytes_inflate(&r->b, r->at, x->packed, x->size, e));
		r->at = 0;
	}
	return npy_read_header(r, e);
}

int npz_find(struct array_raw *r, const char *name, struct err *e)
{
	uint64_t at, n;
	struct entry x, found = { .name = "" };
	char known[400] = "";
	size_t have = 0, arrays = 0;
	TRY(directory(r, &at, &n, e));
	if (n > ENTRIES_MOST)
		return damaged(r, e);
	for (uint64_t i = 0; i < n; i++) {
		TRY(next_entry(r, &at, &x, e));
		const size_t len = strlen(x.name);
		if (len < 5 || strcmp(x.name + len - 4, ".npy"))
			continue;
		x.name[len - 4] = 0;
		if (!name || !strcmp(x.name, name)) {
			found = x;
			arrays++;
		}
		if (have < sizeof known)
			have += (size_t)snprintf(known + have, sizeof known - have, "%s%.100s",
						 have ? ", " : "", x.name);
	}
	if (arrays == 1)
		return take(r, &found, e);
	if (!have)
		return err_set(e, ERR_INPUT, "%s: holds no array of NumPy", r->a.path);
	return name ? err_set(e, ERR_INPUT, "%s: has no array '%.100s'; it has: %s", r->a.path,
			      name, known)
		    : err_set(e, ERR_INPUT, "%s: say which of its arrays is meant: %s", r->a.path,
			      known);
}
