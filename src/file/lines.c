/* SPDX-License-Identifier: Apache-2.0 */
/* lines.c - see lines.h. */
#include "file/lines.h"

#include "base/buf.h"
#include "base/err.h"
#include "base/open.h"
#include "file/atomic.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

int lines_copy(const struct buf *old, lines_fn stays, void *ctx, struct buf *kept, struct err *e)
{
	for (const char *p = old->p, *end = old->p + old->n, *nl;
	     p < end && (nl = memchr(p, '\n', (size_t)(end - p))); p = nl + 1) {
		int rc = stays(ctx, p, (size_t)(nl - p), e);
		if (rc < 0)
			return rc;
		if (rc)
			buf_add(kept, p, (size_t)(nl - p) + 1);
	}
	return buf_ok(kept, e);
}

static int shorten(const char *path, const struct buf *text, struct err *e)
{
	int fd, rc = 0;
	TRY(open_write_err(path, OPEN_LOCK, 0666, &fd, e));
	if (pwrite(fd, text->p, text->n, 0) != (ssize_t)text->n ||
	    ftruncate(fd, (off_t)text->n) < 0)
		rc = err_sys(e, errno, "%s: removing lines", path);
	close(fd);
	return rc;
}

int lines_keep(const char *path, lines_fn stays, void *ctx, struct err *e)
{
	struct buf old = BUF_INIT, kept = BUF_INIT;
	int rc = 0;
	if (access(path, F_OK) != 0)
		return 0;
	TRY(buf_read_file(&old, path, 0, e));
	TRYOUT(lines_copy(&old, stays, ctx, &kept, e));
	if (kept.n == old.n)
		goto out;
	rc = atomic_write_file(path, kept.p, kept.n, e);
	if (rc < 0 && shorten(path, &kept, &(struct err){ 0 }) >= 0) {
		err_clear(e);
		rc = 0;
	}
out:
	buf_release(&old);
	buf_release(&kept);
	return rc;
}
