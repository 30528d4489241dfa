/* SPDX-License-Identifier: Apache-2.0 */
/* err.c - see err.h. Messages are cut, never overflowed; a message is one line that any terminal
 * can show. */
#include "base/err.h"

#include "base/text.h"

#include <stdio.h>
#include <string.h>

int err_vset(struct err *e, int code, const char *fmt, va_list ap)
{
	vsnprintf(e->msg, sizeof e->msg, fmt, ap);
	text_safe_str(e->msg, TEXT_LINE);
	e->code = code;
	return code;
}

int err_set(struct err *e, int code, const char *fmt, ...)
{
	va_list ap;
	va_start(ap, fmt);
	err_vset(e, code, fmt, ap);
	va_end(ap);
	return code;
}

int err_sys(struct err *e, int errnum, const char *fmt, ...)
{
	va_list ap;
	va_start(ap, fmt);
	err_vset(e, ERR_IO, fmt, ap);
	va_end(ap);
	size_t n = strlen(e->msg);
	snprintf(e->msg + n, sizeof e->msg - n, ": %s", strerror(errnum));
	return e->code;
}

int err_prefix(struct err *e, const char *fmt, ...)
{
	char old[sizeof e->msg];
	memcpy(old, e->msg, sizeof old);
	va_list ap;
	va_start(ap, fmt);
	vsnprintf(e->msg, sizeof e->msg, fmt, ap);
	va_end(ap);
	size_t n = strlen(e->msg);
	snprintf(e->msg + n, sizeof e->msg - n, ": %s", old);
	text_safe_str(e->msg, TEXT_LINE);
	return e->code;
}

int err_nomem(struct err *e, unsigned long long bytes, const char *what)
{
	return err_set(e, ERR_NOMEM, "out of memory: %llu bytes for %s", bytes, what);
}

void err_clear(struct err *e)
{
	e->code = 0;
	e->msg[0] = 0;
}
