/* SPDX-License-Identifier: Apache-2.0 */
/* log.h - messages for people, from parts that must not print themselves.
 *
 * Libraries call log_info() and friends; the command line installs a sink. Without a sink nothing
 * is shown. Thread-safe. */
#ifndef HS_BASE_LOG_H
#define HS_BASE_LOG_H

enum log_level { LOG_DEBUG, LOG_INFO, LOG_WARN, LOG_ERROR };

typedef void (*log_sink_fn)(void *ctx, enum log_level level, const char *line);

void log_set_sink(log_sink_fn fn, void *ctx, enum log_level least);
/* The least level that the sink gets. */
void log_set_least(enum log_level least);
enum log_level log_least(void);
void log_line(enum log_level level, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

#define log_debug(...) log_line(LOG_DEBUG, __VA_ARGS__)
#define log_info(...) log_line(LOG_INFO, __VA_ARGS__)
#define log_warn(...) log_line(LOG_WARN, __VA_ARGS__)
#define log_error(...) log_line(LOG_ERROR, __VA_ARGS__)

#endif
