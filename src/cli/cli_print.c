/* SPDX-License-Identifier: Apache-2.0 */
/* cli_print.c - what is printed for people: facts, headings, lines, the text of models. All of it
 * may hold words of files and of other machines, so it passes through base/text.h; colours are put
 * around it afterwards. */
#include "cli/cli.h"

#include "base/buf.h"
#include "base/text.h"

#include <stdarg.h>
#include <string.h>

static void print_safe(FILE *f, const char *fmt, va_list ap, enum text_pass pass)
{
	char text[4096];
	va_list again;
	va_copy(again, ap);
	int n = vsnprintf(text, sizeof text, fmt, ap);
	if (n >= (int)sizeof text) {
		struct buf b = BUF_INIT;
		buf_reserve(&b, (size_t)n);
		if (!b.failed) {
			vsnprintf(b.p, (size_t)n + 1, fmt, again);
			fwrite(b.p, 1, text_safe(b.p, (size_t)n, pass), f);
		}
		buf_release(&b);
	} else if (n > 0) {
		fwrite(text, 1, text_safe(text, (size_t)n, pass), f);
	}
	va_end(again);
}

void cli_fact(const char *name, const char *fmt, ...)
{
	bool c = cli_colour(cli_out());
	va_list ap;
	fprintf(cli_out(), "  %s", c ? "\033[2m" : "");
	cli_line(cli_out(), "%-22s", name);
	fputs(c ? "\033[0m " : " ", cli_out());
	va_start(ap, fmt);
	print_safe(cli_out(), fmt, ap, TEXT_LINE);
	va_end(ap);
	fputc('\n', cli_out());
}

void cli_heading(const char *fmt, ...)
{
	bool c = cli_colour(cli_out());
	va_list ap;
	fputs(c ? "\033[1m" : "", cli_out());
	va_start(ap, fmt);
	print_safe(cli_out(), fmt, ap, TEXT_LINE);
	va_end(ap);
	fputs(c ? "\033[0m\n" : "\n", cli_out());
}

void cli_line(FILE *f, const char *fmt, ...)
{
	va_list ap;
	va_start(ap, fmt);
	print_safe(f, fmt, ap, TEXT_LINES);
	va_end(ap);
}

void cli_json(FILE *f, const char *text, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (text[i] == 0x7f)
			fputs("\\u007f", f);
		else
			fputc(text[i], f);
}

bool cli_text(FILE *f, const char *text, size_t n)
{
	if (!cli_is_terminal(f))
		return fwrite(text, 1, n, f) == n;
	struct buf b = BUF_INIT;
	buf_add(&b, text, n);
	n = b.failed ? 0 : text_safe(b.p, b.n, TEXT_PROSE);
	bool ok = !b.failed && fwrite(b.p, 1, n, f) == n;
	buf_release(&b);
	return ok;
}
