/* SPDX-License-Identifier: Apache-2.0 */
/* cli_streams.c - where a command's results and messages go, and what it reads: the streams of the
 * process, or those of a program that called hs_command(). */
#include "cli/cli.h"

#include "base/buf.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

static struct cli_inside *inside;

void cli_go_inside(struct cli_inside *i) { inside = i; }
struct cli_inside *cli_is_inside(void) { return inside; }
FILE *cli_out(void) { return inside ? inside->out : stdout; }
FILE *cli_err(void) { return inside ? inside->err : stderr; }
FILE *cli_in(void) { return stdin; }
bool cli_is_terminal(FILE *f) { return isatty(fileno(f)); }
bool cli_asks(void) { return !inside && isatty(STDIN_FILENO) && isatty(STDERR_FILENO); }

/* The next bytes of the input. */
static ssize_t take(size_t at, char *piece, size_t cap)
{
	if (!inside)
		return read(STDIN_FILENO, piece, cap);
	const size_t left = inside->ninput - at, n = left < cap ? left : cap;
	if (n)
		memcpy(piece, inside->input + at, n);
	return (ssize_t)n;
}

int cli_read_stdin(struct buf *b, uint64_t limit, struct err *e)
{
	char piece[65536];
	for (size_t at = 0;;) {
		ssize_t n = take(at, piece, sizeof piece);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return err_sys(e, errno, "cannot read standard input");
		if (!n)
			return buf_ok(b, e);
		if (b->n + (uint64_t)n > limit)
			return err_set(
				e, ERR_INPUT,
				"standard input: more than %llu MiB; divide it into several parts",
				(unsigned long long)(limit >> 20));
		buf_add(b, piece, (size_t)n);
		at += (size_t)n;
	}
}
