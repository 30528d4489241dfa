/* SPDX-License-Identifier: Apache-2.0 */
/* scratch.c - see scratch.h. */
#include "support/scratch.h"

#include "base/arena.h"
#include "base/err.h"
#include "file/atomic.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct arena paths;
static const char *folder;

static void fail(const char *what, const char *why)
{
	fprintf(stderr, "%s: %s\n", what, why);
	abort();
}

static void remove_folder(void)
{
	struct err e = { 0 };
	dir_remove(folder, &e);
	arena_release(&paths);
}

static const char *path(const char *top, const char *fmt, va_list ap)
{
	char name[512];
	struct buf b = BUF_INIT;
	vsnprintf(name, sizeof name, fmt, ap);
	buf_addf(&b, "%s%s%s", top, *name ? "/" : "", name);
	const char *s = arena_strdup(&paths, b.p);
	buf_release(&b);
	if (!s)
		fail("scratch", "out of memory");
	return s;
}

const char *scratch(const char *fmt, ...)
{
	if (!folder) {
		const char *tmp = getenv("TMPDIR");
		char name[256];
		snprintf(name, sizeof name, "%s/hs-test-XXXXXX", tmp && *tmp ? tmp : "/tmp");
		if (!mkdtemp(name))
			fail(name, "cannot be made");
		folder = arena_strdup(&paths, name);
		atexit(remove_folder);
	}
	va_list ap;
	va_start(ap, fmt);
	const char *s = path(folder, fmt, ap);
	va_end(ap);
	return s;
}

const char *repository(const char *fmt, ...)
{
	const char *top = getenv("HS_SOURCE");
	va_list ap;
	va_start(ap, fmt);
	const char *s = path(top && *top ? top : ".", fmt, ap);
	va_end(ap);
	return s;
}

void scratch_write(const char *file, const void *p, size_t n)
{
	struct err e = { 0 };
	char dir[1024];
	snprintf(dir, sizeof dir, "%s", file);
	char *slash = strrchr(dir, '/');
	if (slash)
		*slash = 0;
	if ((slash && dir_make(dir, &e) < 0) || atomic_write_file(file, p, n, &e) < 0)
		fail(file, e.msg);
}

void scratch_text(const char *file, const char *fmt, ...)
{
	va_list ap;
	char *s = NULL;
	va_start(ap, fmt);
	int n = vasprintf(&s, fmt, ap);
	va_end(ap);
	if (n < 0)
		fail(file, "out of memory");
	scratch_write(file, s, (size_t)n);
	free(s);
}

struct buf scratch_read(const char *file)
{
	struct buf b = BUF_INIT;
	struct err e = { 0 };
	if (buf_read_file(&b, file, 0, &e) < 0)
		fail(file, e.msg);
	return b;
}
