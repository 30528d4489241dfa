/* SPDX-License-Identifier: Apache-2.0 */
/* log.h - messages for people, from parts that must not print themselves.
 *
 * Libraries call log_info() and friends; the command line installs a sink. Without a sink nothing
 * is shown. Thread-safe. */
#ifndef HS_BASE_LOG_H
#define HS_BASE_LOG_H

#include <stdbool.h>
#include <stdint.h>

enum log_level { LOG_DEBUG, LOG_INFO, LOG_WARN, LOG_ERROR };

typedef void (*log_sink_fn)(void *ctx, enum log_level level, const char *line);

void log_set_sink(log_sink_fn fn, void *ctx, enum log_level least);
/* The least level that the sink gets. */
void log_set_least(enum log_level least);
enum log_level log_least(void);
void log_line(enum log_level level, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* So many lines a minute of one kind that others can cause at will. Zeros to begin with; for one
 * thread. `now`: a moment of clock_now(). */
#define LOG_LIMIT 10
struct log_limit {
	int64_t since;                 /* the minute began */
	unsigned said, left_out, owed; /* owed: left out of minutes before */
};
/* Whether a line may be written now; counts it either way. */
bool log_limit_allows(struct log_limit *l, int64_t now);
/* When the minute is over: how many lines it left out, for a line that says so; each is reported
 * once. 0 otherwise. */
unsigned log_limit_left_out(struct log_limit *l, int64_t now);

#define log_debug(...) log_line(LOG_DEBUG, __VA_ARGS__)
#define log_info(...) log_line(LOG_INFO, __VA_ARGS__)
#define log_warn(...) log_line(LOG_WARN, __VA_ARGS__)
#define log_error(...) log_line(LOG_ERROR, __VA_ARGS__)

#endif
