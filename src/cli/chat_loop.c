/* SPDX-License-Identifier: Apache-2.0 */
/* chat_loop.c - see chat_loop.h. */
#include "cli/chat_loop.h"

#include "base/buf.h"
#include "base/err.h"
#include "base/mem.h"
#include "cli/cli.h"
#include "cli/line_input.h"
#include "data/chat.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

struct talk {
	struct runtime *r;
	const struct chat_options *o;
	struct chat_message *msg; /* their texts are owned, but for the system message */
	size_t n, cap;
	struct buf answer;
};

static volatile sig_atomic_t interrupted;

static void on_interrupt(int sig)
{
	(void)sig;
	interrupted = 1;
}

static int add_message(struct talk *t, enum chat_role role, const char *text, size_t n,
		       struct err *e)
{
	char *copy = mem_strndup(text, n);
	if (!copy || !mem_grow(&t->msg, &t->cap, t->n + 1, sizeof *t->msg)) {
		mem_free(copy);
		return err_nomem(e, n, "the conversation");
	}
	t->msg[t->n++] = (struct chat_message){ .role = role, .text = copy, .n = n };
	return 0;
}

static void forget_last(struct talk *t) { mem_free((void *)t->msg[--t->n].text); }

static int begin_anew(struct talk *t, struct err *e)
{
	while (t->n)
		forget_last(t);
	if (!t->o->system)
		return 0;
	return add_message(t, CHAT_SYSTEM, t->o->system, strlen(t->o->system), e);
}

static int show(void *ctx, const char *text, size_t n)
{
	struct talk *t = ctx;
	buf_add(&t->answer, text, n);
	return !cli_text(cli_out(), text, n) || fflush(cli_out()) || interrupted;
}

void chat_stats(const struct generate_stats *st)
{
	fprintf(cli_err(), "%lld prompt tokens at %.0f/s, %lld tokens at %.1f/s%s\n",
		(long long)st->prompt,
		(double)st->prompt / (st->prompt_seconds > 0 ? st->prompt_seconds : 1e-9),
		(long long)st->generated,
		(double)st->generated / (st->seconds > 0 ? st->seconds : 1e-9),
		st->stopped ? "" : " (stopped by --max-new-tokens)");
}

/* The model's answer to the messages so far, shown while it is made. */
static int answer(struct talk *t, struct err *e)
{
	struct tokens ids = { 0 };
	struct generate_stats st;
	int rc = chat_encode(t->r->chat, t->r->tok, t->msg, t->n, true, &ids, NULL, e);
	buf_reset(&t->answer);
	if (rc >= 0)
		rc = generate(t->r, ids.id, ids.n, t->o->max_new_tokens, &t->o->sampling, show, t,
			      &st, e);
	tokens_release(&ids);
	if (rc < 0)
		return rc;
	fputc('\n', cli_out());
	if (t->o->stats)
		chat_stats(&st);
	TRY(buf_ok(&t->answer, e));
	return add_message(t, CHAT_ASSISTANT, t->answer.p, t->answer.n, e);
}

/* *over_p: the conversation ends. */
static int take_line(struct talk *t, const char *line, bool *over_p, struct err *e)
{
	*over_p = !strcmp(line, "/exit") || !strcmp(line, "/quit");
	if (*over_p || !line[strspn(line, " \t")])
		return 0;
	if (!strcmp(line, "/new"))
		return begin_anew(t, e);
	if (line[0] == '/') {
		cli_line(cli_err(),
			 "'%.60s' is no command; these are: /new forgets the conversation, "
			 "/exit ends it\n",
			 line);
		return 0;
	}
	TRY(add_message(t, CHAT_USER, line, strlen(line), e));
	int rc = answer(t, e);
	if (rc == ERR_INPUT) { /* too long for the model: the message is taken back */
		fprintf(cli_err(), "%s; /new begins a new conversation\n", e->msg);
		forget_last(t);
		err_clear(e);
		rc = 0;
	}
	return rc;
}

int chat_loop(struct runtime *r, const struct chat_options *o, struct err *e)
{
	struct sigaction mine = { .sa_handler = on_interrupt }, before;
	struct talk t = { .r = r, .o = o };
	struct line_input *in = line_input_new("> ");
	const char *line = "";
	bool over = false;
	int rc = in ? begin_anew(&t, e) : err_nomem(e, 1 << 16, "a line");
	buf_init(&t.answer);
	sigaction(SIGINT, &mine, &before); /* without SA_RESTART: reading a line ends too */
	if (rc >= 0)
		fprintf(cli_err(),
			"/new forgets the conversation, /exit ends it, Ctrl-C ends an answer\n");
	while (rc >= 0 && !over && (line = line_input_read(in))) {
		interrupted = 0;
		rc = take_line(&t, line, &over, e);
	}
	if (!line)
		fputc('\n', cli_out());
	sigaction(SIGINT, &before, NULL);
	while (t.n)
		forget_last(&t);
	mem_free(t.msg);
	line_input_free(in);
	buf_release(&t.answer);
	return rc;
}
