/* SPDX-License-Identifier: Apache-2.0 */
/* log.c - see log.h. */
#include "base/log.h"

#include "base/text.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static log_sink_fn sink;
static void *sink_ctx;
static enum log_level sink_least = LOG_INFO;

void log_set_sink(log_sink_fn fn, void *ctx, enum log_level least)
{
	pthread_mutex_lock(&lock);
	sink = fn;
	sink_ctx = ctx;
	sink_least = least;
	pthread_mutex_unlock(&lock);
}

void log_set_least(enum log_level least)
{
	pthread_mutex_lock(&lock);
	sink_least = least;
	pthread_mutex_unlock(&lock);
}

enum log_level log_least(void)
{
	pthread_mutex_lock(&lock);
	enum log_level least = sink_least;
	pthread_mutex_unlock(&lock);
	return least;
}

void log_line(enum log_level level, const char *fmt, ...)
{
	char line[2048];
	va_list ap;
	va_start(ap, fmt);
	vsnprintf(line, sizeof line, fmt, ap);
	va_end(ap);
	text_safe_str(line, TEXT_LINE);
	pthread_mutex_lock(&lock);
	if (sink && level >= sink_least)
		sink(sink_ctx, level, line);
	pthread_mutex_unlock(&lock);
}

/* ---- limits ---- */

static bool minute_is_over(const struct log_limit *l, int64_t now)
{
	return now - l->since > 60 * (int64_t)1000000000;
}

bool log_limit_allows(struct log_limit *l, int64_t now)
{
	if (!l->said || minute_is_over(l, now)) {
		l->owed += l->left_out;
		l->since = now;
		l->said = l->left_out = 0;
	}
	if (l->said < LOG_LIMIT) {
		l->said++;
		return true;
	}
	l->left_out++;
	return false;
}

unsigned log_limit_left_out(struct log_limit *l, int64_t now)
{
	unsigned n = l->owed;
	l->owed = 0;
	if (minute_is_over(l, now)) {
		n += l->left_out;
		l->left_out = 0;
	}
	return n;
}
