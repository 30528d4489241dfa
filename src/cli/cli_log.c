/* SPDX-License-Identifier: Apache-2.0 */
/* cli_log.c - log lines on standard error, above the bar of a progress display. */
#include "cli/cli.h"

#include "base/log.h"
#include "report/progress.h"

static struct progress *shown;

static void log_to_stderr(void *ctx, enum log_level level, const char *line)
{
	static const char *const plain[] = { "debug: ", "", "warning: ", "error: " };
	static const char *const colour[] = { "\033[2mdebug: ", "", "\033[33mwarning:\033[0m ",
					      "\033[31merror:\033[0m " };
	struct progress *progress = *(struct progress *const *)ctx;
	bool c = cli_colour(cli_err());
	char text[2200];
	snprintf(text, sizeof text, "%s%s%s", c ? colour[level] : plain[level], line,
		 c && level == LOG_DEBUG ? "\033[0m" : "");
	if (progress)
		progress_line(progress, text);
	else
		fprintf(cli_err(), "%s\n", text);
}

void cli_set_progress(struct progress *p) { shown = p; }

void cli_log_start(void) { log_set_sink(log_to_stderr, &shown, LOG_INFO); }
