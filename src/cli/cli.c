/* SPDX-License-Identifier: Apache-2.0 */
/* cli.c - see cli.h: the table of commands, options with --help, error lines, sizes. What is
 * printed is in cli_print.c and cli_table.c, where it goes in cli_streams.c, log lines in
 * cli_log.c. */
#include "cli/cli.h"

#include "base/buf.h"
#include "base/log.h"
#include "base/mem.h"
#include "config/config.h"
#include "report/progress.h"

#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>

const struct command commands[] = {
#define COMMAND(name, help) { #name, help },
#include "cli/command.def"
#undef COMMAND
	{ NULL, NULL },
};

/* A terminal that knows no escape sequences, as in Emacs. */
static bool is_dumb(void)
{
	const char *term = getenv("TERM");
	return term && !strcmp(term, "dumb");
}

bool cli_colour(FILE *f)
{
	const char *no = getenv("NO_COLOR");
	return !(no && *no) && getenv("TERM") && !is_dumb() && cli_is_terminal(f);
}

int cli_columns(FILE *f)
{
	struct winsize w;
	if (!cli_is_terminal(f) || is_dumb())
		return 0;
	return ioctl(fileno(f), TIOCGWINSZ, &w) == 0 && w.ws_col ? w.ws_col : 80;
}

int cli_rows(FILE *f)
{
	struct winsize w;
	return ioctl(fileno(f), TIOCGWINSZ, &w) == 0 && w.ws_row ? w.ws_row : 24;
}

bool cli_utf8(void)
{
	static const char *const names[] = { "LC_ALL", "LC_CTYPE", "LANG" };
	for (size_t i = 0; i < ARRAY_LEN(names); i++) {
		const char *v = getenv(names[i]);
		if (v && *v) /* the first one that is set is used */
			return strcasestr(v, "utf-8") || strcasestr(v, "utf8");
	}
	return false;
}

void cli_size(void *ctx, int *columns_p, int *rows_p)
{
	(void)ctx;
	*columns_p = cli_columns(cli_err());
	*rows_p = cli_rows(cli_err());
}

struct progress_look cli_look(void)
{
	return (struct progress_look){ .columns = cli_columns(cli_err()),
				       .rows = cli_rows(cli_err()),
				       .colour = cli_colour(cli_err()),
				       .utf8 = cli_utf8() };
}

void cli_write_stderr(void *ctx, const char *text, size_t n)
{
	(void)ctx;
	fwrite(text, 1, n, cli_err());
	fflush(cli_err());
}

static void error_line(const char *text)
{
	fprintf(cli_err(), "%s %s\n",
		cli_colour(cli_err()) ? "\033[31merror:\033[0m" : "error:", text);
}

int cli_fail(const struct err *e)
{
	fflush(cli_out());
	error_line(e->msg);
	if (cli_is_inside())
		cli_is_inside()->failed = *e;
	return e->code == ERR_USAGE ? 2 : 1;
}

int cli_usage_error(const char *fmt, ...)
{
	struct err e;
	va_list ap;
	va_start(ap, fmt);
	err_vset(&e, ERR_USAGE, fmt, ap);
	va_end(ap);
	return cli_fail(&e);
}

/* Adds paragraphs, folded at 100 columns. Lines that begin with a blank stay lines. */
static void add_folded(struct buf *b, const char *text)
{
	size_t at = 0;
	bool keep = *text == ' ';
	while (*text) {
		size_t n = strcspn(text, " \n");
		buf_add(b, text, n);
		at += n;
		text += n;
		bool ends = *text == '\n' && (keep || strchr(" \n", text[1]));
		if (*text && (ends || at + 1 + strcspn(text + 1, " \n") > 100))
			buf_addc(b, '\n'), at = 0;
		else if (*text)
			buf_addc(b, ' '), at++;
		if (ends)
			keep = text[1] == ' ';
		text += *text != 0;
	}
	buf_addc(b, '\n');
}

static void print_help(const struct cli_usage *u)
{
	struct buf b = BUF_INIT;
	buf_addf(&b, "usage: %s\n\n", u->synopsis);
	add_folded(&b, u->about);
	bool headed = u->nrows && u->rows[0].section;
	buf_adds(&b, headed ? "\n" : "\noptions:\n");
	opt_help(u->rows, u->nrows, true, &b);
	buf_adds(&b,
		 "  -q, --quiet; -v, --verbose        only warnings and errors; more of what goes "
		 "on\n"
		 "  --help                            this text\n");
	if (u->example)
		buf_addf(&b, "\nexamples:\n%s\n", u->example);
	fwrite(b.p, 1, b.n, cli_out());
	buf_release(&b);
}

/* The command's line in the table. */
static const char *summary(const char *name)
{
	for (size_t i = 0; commands[i].name; i++)
		if (!strcmp(commands[i].name, name))
			return commands[i].help;
	return "";
}

static void print_man(const struct cli_usage *u, const char *name)
{
	struct buf b = BUF_INIT;
	buf_addf(&b, ".TH HETEROSHARD\\-%s 1 \"\" \"heteroshard %s\"\n.SH NAME\n", name,
		 HS_VERSION);
	buf_addf(&b, "heteroshard\\-%s \\- %s\n.SH SYNOPSIS\n", name, summary(name));
	opt_roff(&b, u->synopsis);
	buf_adds(&b, "\n.SH DESCRIPTION\n");
	opt_roff(&b, u->about);
	buf_adds(&b, "\n.SH OPTIONS\n");
	opt_man(u->rows, u->nrows, &b);
	buf_adds(&b, ".TP\n.B \\-q, \\-\\-quiet; \\-v, \\-\\-verbose\nonly warnings and errors; "
		     "more of what goes on\n");
	if (u->example) {
		buf_adds(&b, ".SH EXAMPLES\n.nf\n");
		opt_roff(&b, u->example);
		buf_adds(&b, "\n.fi\n");
	}
	buf_adds(&b, ".SH SEE ALSO\n.BR heteroshard (1)\n");
	fwrite(b.p, 1, b.n, cli_out());
	buf_release(&b);
}

/* For the completion of shells (main.c): the words behind the command, in one line, with the keys
 * of a configuration where the command takes them. */
static void print_words(const struct cli_usage *u)
{
	struct buf b = BUF_INIT;
	size_t n;
	const struct opt *rows = config_rows(&n);
	opt_flags(u->rows, u->nrows, &b);
	for (size_t i = 0; i < n && strstr(u->synopsis, "key=value"); i++)
		buf_addf(&b, " %s=", rows[i].key);
	fprintf(cli_out(), "%s --quiet --verbose --help", b.n ? b.p + 1 : "");
	buf_release(&b);
}

static bool level_given;

bool cli_level_word(const char *word)
{
	bool loud = !strcmp(word, "-v") || !strcmp(word, "--verbose");
	if (!loud && strcmp(word, "-q") && strcmp(word, "--quiet"))
		return false;
	log_set_least(loud ? LOG_DEBUG : LOG_WARN);
	return level_given = true;
}

void cli_level_forget(void) { level_given = false; }

void cli_level_config(const struct config *c)
{
	static const enum log_level level[] = { [CONFIG_LOG_DEBUG] = LOG_DEBUG,
						[CONFIG_LOG_INFO] = LOG_INFO,
						[CONFIG_LOG_WARNING] = LOG_WARN,
						[CONFIG_LOG_ERROR] = LOG_ERROR };
	if (!level_given)
		log_set_least(level[c->log_level]);
	if (c->ignored)
		log_info("%s: these keys change nothing here and are ignored: %s", c->path,
			 c->ignored);
}

bool cli_quiet(void) { return log_least() > LOG_INFO; }

/* Takes the words of cli_level_word() out of argv[1..]; values of other options stay. */
static int take_levels(const struct cli_usage *u, int argc, char **argv)
{
	int n = 1;
	for (int i = 1; i < argc; i++) {
		char *w = argv[i];
		if (!strcmp(w, "--")) {
			while (i < argc)
				argv[n++] = argv[i++];
			break;
		}
		if (w[0] == '-' && cli_level_word(w))
			continue;
		argv[n++] = w;
		const struct opt *r = !strncmp(w, "--", 2) && !strchr(w, '=')
					      ? opt_find(u->rows, u->nrows, w + 2)
					      : NULL;
		if (r && r->kind != OPT_BOOL && i + 1 < argc)
			argv[n++] = argv[++i];
	}
	return n;
}

/* A key of the configuration written as an option: how it is written. */
static bool is_config_key(const char *word, const char *next, struct err *e)
{
	char key[64];
	size_t n, len = strcspn(word + 2, "=");
	const struct opt *rows = config_rows(&n);
	if (len >= sizeof key)
		return false;
	memcpy(key, word + 2, len);
	key[len] = 0;
	const struct opt *r = opt_find(rows, n, key);
	if (!r)
		return false;
	const char *value = word[2 + len]            ? word + 2 + len + 1
			    : next && next[0] != '-' ? next
			    : r->kind == OPT_BOOL    ? "true"
						     : "VALUE";
	err_set(e, ERR_USAGE,
		"unknown option '--%s': it is a key of the configuration, and those are written "
		"behind the file, without dashes: %s=%.60s",
		key, r->key, value);
	return true;
}

/* The word that is one too many: an option written like a key? */
static int too_many(const struct cli_usage *u, const char *command, const char *word)
{
	char key[64], flag[64];
	size_t n = strcspn(word, "=");
	snprintf(key, sizeof key, "%.*s", (int)(n < 63 ? n : 63), word);
	const struct opt *r = word[n] ? opt_find(u->rows, u->nrows, key) : NULL;
	if (!r)
		return cli_usage_error("%s: '%.60s' is one argument too many; usage: %s", command,
				       word, u->synopsis);
	snprintf(flag, sizeof flag, "%s", r->key);
	for (char *p = flag; *p; p++)
		*p = *p == '_' ? '-' : *p;
	return cli_usage_error("%s: '%.60s' is an option here: write --%s %.60s", command, word,
			       flag, word + n + 1);
}

bool cli_args(const struct cli_usage *u, int argc, char **argv, void *obj, int least, int most,
	      int *npos_p, struct arena *a, int *status_p)
{
	for (int i = 1; i < argc && strcmp(argv[i], "--"); i++) {
		if (!strcmp(argv[i], "--help") || !strcmp(argv[i], "-h")) {
			print_help(u);
			*status_p = 0;
			return false;
		}
		if (strcmp(argv[i], "--help=man") && strcmp(argv[i], "--help=words"))
			continue;
		if (!strcmp(argv[i], "--help=man"))
			print_man(u, argv[0]);
		else
			print_words(u);
		*status_p = 0;
		return false;
	}
	struct err e = { 0 };
	int npos = 0;
	*status_p = 0;
	argc = take_levels(u, argc, argv);
	for (int i = 1; u->config && i < argc && strcmp(argv[i], "--"); i++) {
		char key[64];
		snprintf(key, sizeof key, "%.*s", (int)strcspn(argv[i], "="), argv[i]);
		if (strncmp(key, "--", 2) || opt_find(u->rows, u->nrows, key + 2) ||
		    !is_config_key(argv[i], i + 1 < argc ? argv[i + 1] : NULL, &e))
			continue;
		*status_p = cli_fail(&e);
		return false;
	}
	if (opt_defaults(u->rows, u->nrows, obj, a, &e) < 0 ||
	    opt_argv(u->rows, u->nrows, obj, argc - 1, argv + 1, &npos, a, &e) < 0) {
		*status_p = cli_fail(&e);
		return false;
	}
	for (int i = 1; i <= npos; i++) {
		const bool empty = !argv[i][0]; /* "$OUT" of a variable that is not set */
		if (empty || !(argv[i] = (char *)opt_path(argv[i], a))) {
			*status_p = cli_usage_error(empty ? "%s: an argument is empty; usage: %s"
							  : "%s: out of memory",
						    argv[0], u->synopsis);
			return false;
		}
	}
	if (npos < least)
		*status_p = cli_usage_error("%s: an argument is missing; usage: %s", argv[0],
					    u->synopsis);
	else if (most >= 0 && npos > most)
		*status_p = too_many(u, argv[0], argv[1 + most]);
	*npos_p = npos;
	return *status_p == 0;
}

const char *cli_bytes(uint64_t bytes, char *s, size_t cap)
{
	static const char *const unit[] = { "bytes", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB" };
	double v = (double)bytes;
	size_t u = 0;
	while (v >= 1023.95 && u + 1 < ARRAY_LEN(unit))
		v /= 1024, u++;
	snprintf(s, cap, u ? "%.1f %s" : "%.0f %s", v, unit[u]);
	return s;
}

const char *cli_count(uint64_t n, char *s, size_t cap)
{
	if (n < 10000)
		snprintf(s, cap, "%llu", (unsigned long long)n);
	else if (n < 1000000)
		snprintf(s, cap, "%.1f thousand", (double)n / 1e3);
	else if (n < 1000000000)
		snprintf(s, cap, "%.1f million", (double)n / 1e6);
	else
		snprintf(s, cap, "%.2f billion", (double)n / 1e9);
	return s;
}

const char *cli_digits(uint64_t n, char *s, size_t cap)
{
	char plain[24];
	int len = snprintf(plain, sizeof plain, "%llu", (unsigned long long)n);
	size_t at = 0;
	for (int i = 0; i < len && at + 2 < cap; i++) {
		if (i && (len - i) % 3 == 0)
			s[at++] = ',';
		s[at++] = plain[i];
	}
	s[at] = 0;
	return s;
}
