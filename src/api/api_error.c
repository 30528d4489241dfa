/* SPDX-License-Identifier: Apache-2.0 */
/* api_error.c - errors, versions and the log of the public interface. */
#include "api/api.h"

#include "base/log.h"
#include "base/version.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

_Static_assert((int)HS_E_USAGE == (int)ERR_USAGE && (int)HS_E_INTERNAL == (int)ERR_INTERNAL,
	       "the codes are those of base/err.h");

int api_error(const struct err *from, hs_error *to)
{
	if (to) {
		to->code = from->code;
		snprintf(to->text, sizeof to->text, "%s", from->msg);
	}
	return from->code;
}

int api_refuse(hs_error *to, int code, const char *fmt, ...)
{
	struct err e;
	va_list ap;
	va_start(ap, fmt);
	err_vset(&e, code, fmt, ap);
	va_end(ap);
	return api_error(&e, to);
}

bool api_take(void *to, size_t cap, const void *from, size_t least)
{
	size_t n;
	if (!from)
		return false;
	memcpy(&n, from, sizeof n);
	if (n < least)
		return false;
	memset(to, 0, cap);
	memcpy(to, from, n < cap ? n : cap);
	return true;
}

bool api_words(const char *const *word, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (!word || !word[i])
			return false;
	return true;
}

const char *hs_version(void) { return HS_VERSION; }
int hs_api_version(void) { return HS_API_VERSION; }

static hs_log_fn user_fn;

static void to_user(void *ctx, enum log_level level, const char *line)
{
	user_fn(ctx, (int)level, line);
}

void hs_set_log(hs_log_fn fn, void *ctx, int least)
{
	log_set_sink(NULL, NULL, LOG_ERROR);
	user_fn = fn;
	if (fn)
		log_set_sink(to_user, ctx, least < 0 ? LOG_DEBUG : (enum log_level)least);
}
