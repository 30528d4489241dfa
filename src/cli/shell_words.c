/* SPDX-License-Identifier: Apache-2.0 */
/* shell_words.c - see shell_words.h. */
#include "cli/shell_words.h"

#include "base/buf.h"
#include "cli/cli.h"

#include <string.h>

static void print_page(void)
{
	struct buf b = BUF_INIT;
	buf_addf(&b,
		 ".TH HETEROSHARD 1 \"\" \"heteroshard %s\"\n.SH NAME\nheteroshard \\- fine\\-tune "
		 "large language models across unlike devices\n.SH SYNOPSIS\n"
		 "heteroshard [\\-v | \\-q] COMMAND ...\n.SH COMMANDS\n",
		 HS_VERSION);
	for (size_t i = 0; commands[i].name; i++) {
		buf_addf(&b, ".TP\n.BR heteroshard\\-%s (1)\n", commands[i].name);
		opt_roff(&b, commands[i].help);
		buf_addc(&b, '\n');
	}
	buf_adds(&b, ".SH OPTIONS\n.TP\n.B \\-v, \\-\\-verbose\nshow more messages\n"
		     ".TP\n.B \\-q, \\-\\-quiet\nonly warnings and errors\n"
		     ".TP\n.B \\-\\-version\nprint the version and the commit\n"
		     ".SH EXIT STATUS\n0, 1 when something failed, 2 when it was called wrongly.\n"
		     ".SH FILES\n.TP\n.I ~/.config/heteroshard/key\nthe private key of this "
		     "machine\n.TP\n.I ~/.cache/heteroshard\nlayers, measurements and compiled "
		     "kernels\n");
	fwrite(b.p, 1, b.n, cli_out());
	buf_release(&b);
}

/* The options of each command, as rows of a `case`. */
static void print_cases(shell_run_fn run, const char *indent)
{
	for (int i = 0; commands[i].name; i++) {
		char help[] = "--help=words", *words[] = { (char *)commands[i].name, help, NULL };
		fprintf(cli_out(), "%s%s) words='", indent, commands[i].name);
		run(i, 2, words);
		fprintf(cli_out(), "' ;;\n");
	}
}

static void print_bash(shell_run_fn run)
{
	fprintf(cli_out(), "# bash completion of heteroshard; made by 'heteroshard --help=bash'\n"
			   "_heteroshard() {\n"
			   "\tlocal cur=${COMP_WORDS[COMP_CWORD]} words='' i\n"
			   "\tfor ((i = 1; i < COMP_CWORD; i++)); do\n"
			   "\t\tcase ${COMP_WORDS[i]} in -*) ;; *) break ;; esac\n"
			   "\tdone\n"
			   "\tif [ \"$i\" -ge \"$COMP_CWORD\" ]; then\n"
			   "\t\twords='--version --help --quiet --verbose");
	for (size_t i = 0; commands[i].name; i++)
		fprintf(cli_out(), " %s", commands[i].name);
	fprintf(cli_out(), "'\n"
			   "\telse\n"
			   "\t\tcase ${COMP_WORDS[i]} in\n");
	print_cases(run, "\t\t");
	fprintf(cli_out(),
		"\t\tesac\n"
		"\t\t# keys of a configuration come behind its file, not behind their '='\n"
		"\t\tlocal given=\" ${COMP_WORDS[*]:i+1:COMP_CWORD-i-1}\"\n"
		"\t\tif [[ $cur != -* && ($given == *= || $cur == *=* ||\n"
		"\t\t\t$given != *' '[!-]*) ]]; then\n"
		"\t\t\twords=''\n"
		"\t\tfi\n"
		"\tfi\n"
		"\tmapfile -t COMPREPLY < <(compgen -W \"$words\" -- \"$cur\")\n"
		"\tif [[ ${COMPREPLY[*]} == *= ]]; then compopt -o nospace; fi\n"
		"}\n"
		"complete -o default -F _heteroshard heteroshard\n");
}

static void print_zsh(shell_run_fn run)
{
	fprintf(cli_out(), "#compdef heteroshard\n"
			   "# zsh completion of heteroshard; made by 'heteroshard --help=zsh'\n"
			   "local -a commands before\n"
			   "before=(${words[2,CURRENT-1]:#-*})\n"
			   "local words\n"
			   "commands=(\n");
	for (size_t i = 0; commands[i].name; i++) {
		fprintf(cli_out(), "\t'%s:", commands[i].name);
		for (const char *p = commands[i].help; *p; p++)
			if (*p == '\'')
				fputs("'\\''", cli_out());
			else
				fprintf(cli_out(), "%s%c", *p == ':' ? "\\" : "", *p);
		fprintf(cli_out(), "'\n");
	}
	fprintf(cli_out(), ")\n"
			   "if (( ! $#before )) && [[ $PREFIX != -* ]]; then\n"
			   "\t_describe command commands\n"
			   "\treturn\n"
			   "fi\n"
			   "case $before[1] in\n"
			   "'') words='--version --help --quiet --verbose' ;;\n");
	print_cases(run, "");
	fprintf(cli_out(), "esac\n"
			   "# keys of a configuration come behind its file\n"
			   "local -a flags=(${${=words}:#*=}) keys=(${(M)${=words}:#*=})\n"
			   "[[ $PREFIX == -* ]] && compadd -- $flags && return\n"
			   "(( $#before > 1 && $#keys )) && compadd -S '' -- $keys\n"
			   "_files\n");
}

bool shell_words_print(const char *kind, shell_run_fn run)
{
	if (!strcmp(kind, "man"))
		print_page();
	else if (!strcmp(kind, "bash"))
		print_bash(run);
	else if (!strcmp(kind, "zsh"))
		print_zsh(run);
	else
		return false;
	return true;
}
