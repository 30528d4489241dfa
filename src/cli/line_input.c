/* SPDX-License-Identifier: Apache-2.0 */
/* line_input.c - see line_input.h. */
#include "cli/line_input.h"

#include "base/mem.h"
#include "cli/cli.h"

#include <locale.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#ifdef HAVE_LIBEDIT
#include <histedit.h>
#endif

enum { LINE = 1 << 16, KEPT = 500 };

struct line_input {
	const char *prompt;
	char line[LINE];
#ifdef HAVE_LIBEDIT
	EditLine *edit; /* NULL: plain */
	History *before;
	char shown[128]; /* the prompt; what takes no column is between two \1 */
#endif
};

#ifdef HAVE_LIBEDIT
static char *prompt_of(EditLine *e)
{
	struct line_input *l;
	el_get(e, EL_CLIENTDATA, &l);
	return l->shown;
}

static void open_editor(struct line_input *l)
{
	HistEvent ev;
	if (!isatty(STDIN_FILENO) || !isatty(STDOUT_FILENO))
		return;
	setlocale(LC_CTYPE, ""); /* libedit reads characters, not bytes */
	l->edit = el_init("heteroshard", cli_in(), cli_out(), cli_err());
	l->before = history_init();
	if (!l->edit || !l->before)
		return;
	snprintf(l->shown, sizeof l->shown,
		 cli_colour(cli_out()) ? "\1\033[1m\1%s\1\033[0m\1" : "%s", l->prompt);
	history(l->before, &ev, H_SETSIZE, KEPT);
	history(l->before, &ev, H_SETUNIQUE, 1);
	el_set(l->edit, EL_CLIENTDATA, l);
	el_set(l->edit, EL_PROMPT_ESC, prompt_of, '\1');
	el_set(l->edit, EL_EDITOR, "emacs"); /* the keys of the shell */
	el_set(l->edit, EL_HIST, history, l->before);
}

static void close_editor(struct line_input *l)
{
	if (l->edit)
		el_end(l->edit);
	if (l->before)
		history_end(l->before);
}

/* false: the input is over. */
static bool edit_line(struct line_input *l)
{
	HistEvent ev;
	int n = 0;
	const char *s = el_gets(l->edit, &n);
	if (!s || n <= 0)
		return false;
	snprintf(l->line, sizeof l->line, "%s", s);
	if (s[strspn(s, " \t\r\n")])
		history(l->before, &ev, H_ENTER, s);
	return true;
}
#endif

struct line_input *line_input_new(const char *prompt)
{
	struct line_input *l = mem_zalloc(sizeof *l);
	if (!l)
		return NULL;
	l->prompt = prompt;
#ifdef HAVE_LIBEDIT
	open_editor(l);
#endif
	return l;
}

void line_input_free(struct line_input *l)
{
	if (!l)
		return;
#ifdef HAVE_LIBEDIT
	close_editor(l);
#endif
	mem_free(l);
}

static bool plain_line(struct line_input *l)
{
	fprintf(cli_out(), cli_colour(cli_out()) ? "\033[1m%s\033[0m" : "%s", l->prompt);
	fflush(cli_out());
	return fgets(l->line, sizeof l->line, cli_in()) != NULL;
}

const char *line_input_read(struct line_input *l)
{
#ifdef HAVE_LIBEDIT
	if (l->edit && l->before ? !edit_line(l) : !plain_line(l))
		return NULL;
#else
	if (!plain_line(l))
		return NULL;
#endif
	l->line[strcspn(l->line, "\r\n")] = 0;
	return l->line;
}
