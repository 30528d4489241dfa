/* SPDX-License-Identifier: Apache-2.0 */
/* ssh.c - see ssh.h. */
#include "ops/ssh.h"

#include "base/clock.h"
#include "base/err.h"
#include "base/mem.h"
#include "base/os_calls.h"
#include "base/text.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

int ssh_where(const char *text, char host_p[SSH_WHERE], unsigned *port_p, struct err *e)
{
	size_t n = strlen(text);
	const char *colon = strrchr(text, ':'), *bracket = strchr(text, '[');
	unsigned long port = 0;
	bool bad = !n || n >= SSH_WHERE || text[0] == '-' || text[0] == '@' || text[0] == ':';
	for (size_t i = 0; i < n && !bad; i++)
		bad = !isalnum((unsigned char)text[i]) && !strchr("._-@:[]%", text[i]);
	if (colon && bracket && strchr(colon, ']'))
		colon = NULL; /* it is part of the address */
	if (!bad && colon) {
		char *end;
		port = strtoul(colon + 1, &end, 10);
		bad = !isdigit((unsigned char)colon[1]) || *end || !port || port > 65535;
		n = (size_t)(colon - text);
	}
	const char *at = bad ? NULL : memchr(text, '@', n);
	if (!bad && at)
		bad = at + 1 == text + n || at[1] == '-';
	if (bad)
		return err_set(e, ERR_USAGE,
			       "ssh: '%.100s': user@host or user@host:port was expected", text);
	/* ssh takes an IPv6 address without its brackets */
	size_t to = 0;
	for (size_t i = 0; i < n; i++)
		if (text[i] != '[' && text[i] != ']')
			host_p[to++] = text[i];
	host_p[to] = 0;
	*port_p = (unsigned)port;
	return 0;
}

void ssh_quote(struct buf *b, const char *word)
{
	const size_t cap = TEXT_WORD(strlen(word));
	buf_reserve(b, cap);
	if (!b->failed)
		b->n += strlen(text_word(word, b->p + b->n, cap));
}

void ssh_set(struct buf *b, const char *name, const char *word)
{
	buf_addf(b, "%s=", name);
	ssh_quote(b, word);
	buf_addc(b, '\n');
}

/* ---- what went wrong ------------------------------------------------------------------------ */

/* What OpenSSH and the shell say, and what to do about it. %s: the machine as ssh takes it; %h: as
 * it stands in the list of known hosts. */
static const struct {
	const char *text, *say;
} known[] = {
	{ "REMOTE HOST IDENTIFICATION HAS CHANGED",
	  "its host key is not the one that ssh knows: if the machine was installed anew, "
	  "'ssh-keygen -R %h' forgets the old key; then 'ssh %s' once" },
	{ "Host key verification failed",
	  "ssh does not know its host key yet: run 'ssh %s' once and accept it" },
	{ "Permission denied (",
	  "ssh asks for a password: 'ssh-copy-id %s' lets this machine in by key" },
	{ "Too many authentication failures",
	  "ssh offered too many keys: name one for 'ssh %s' with IdentityFile in ~/.ssh/config" },
	{ "Could not resolve hostname", "there is no machine of this name: correct 'ssh' (%s)" },
	{ "Connection refused",
	  "nothing listens at its ssh port: does sshd run there? ('ssh %s')" },
	{ "timed out", "it does not answer: is it on, and in this network? ('ssh %s')" },
	{ "No route to host", "there is no way to it: is it on, and in this network? ('ssh %s')" },
	{ "Network is unreachable", "its network is not reached from here ('ssh %s')" },
	{ "sudo: a password is required",
	  "sudo asks for a password there: this needs root, or sudo without a password (%s); "
	  "without it machines still join by 'heteroshard invite'" },
	{ "sudo: not found",
	  "there is neither root nor sudo there (%s): this needs it; without it machines still "
	  "join by 'heteroshard invite'" },
	{ "No space left on device", "no space is left there: make room in the home folder of %s" },
	{ "Disk quota exceeded", "the quota of the home folder is used up: make room (%s)" },
};

/* The last line of a text that is not empty. */
static void last_line(const char *text, char *out, size_t cap)
{
	size_t end = strlen(text), from;
	while (end && strchr("\r\n ", text[end - 1]))
		end--;
	for (from = end; from && text[from - 1] != '\n'; from--)
		;
	snprintf(out, cap, "%.*s", (int)(end - from < 400 ? end - from : 400), text + from);
	text_safe_str(out, TEXT_LINE);
}

static void fill_in(const char *say, const char *host, unsigned port, char out[SSH_WHY])
{
	const char *at = strrchr(host, '@'), *name = at ? at + 1 : host;
	size_t n = 0;
	for (; *say && n + 1 < SSH_WHY; say++) {
		int more = 1;
		if (!strncmp(say, "%s", 2))
			more = port ? snprintf(out + n, SSH_WHY - n, "-p %u %.200s", port, host)
				    : snprintf(out + n, SSH_WHY - n, "%.200s", host);
		else if (!strncmp(say, "%h", 2) && port)
			more = snprintf(out + n, SSH_WHY - n, "[%.200s]:%u", name, port);
		else if (!strncmp(say, "%h", 2))
			more = snprintf(out + n, SSH_WHY - n, "%.200s", name);
		else
			out[n] = *say;
		say += *say == '%';
		n += (size_t)more;
	}
	out[n < SSH_WHY ? n : SSH_WHY - 1] = 0;
}

static void explain(struct ssh_call *c, const char *host, unsigned port)
{
	char line[SSH_WHY];
	c->why[0] = 0;
	if (!c->status)
		return;
	for (size_t i = 0; c->status > 0 && i < ARRAY_LEN(known); i++)
		if (strstr(c->err.p, known[i].text)) {
			fill_in(known[i].say, host, port, c->why);
			return;
		}
	/* tar says what is wrong, and then that it ends */
	char *tail = strstr(c->err.p, "\ntar: Error is not recoverable");
	if (tail)
		*tail = 0;
	last_line(c->err.p, line, sizeof line);
	if (line[0])
		snprintf(c->why, sizeof c->why, "%s",
			 strncmp(line, "error: ", 7) ? line : line + 7);
	else if (c->status == 255)
		snprintf(c->why, sizeof c->why, "ssh failed: try 'ssh %.200s'", host);
	else
		snprintf(c->why, sizeof c->why, "the command there ended with status %d",
			 c->status);
}

/* ---- running -------------------------------------------------------------------------------- */

struct child {
	struct ssh_call *c;
	char host[SSH_WHERE];
	unsigned port; /* 0: ssh's own */
	pid_t pid;
	int in, out, err; /* -1: closed */
	size_t written;
	int64_t until;   /* 0: no limit */
	struct buf part; /* of a line */
	bool late, over;
};

static void shut(int *fd)
{
	if (*fd >= 0)
		close(*fd);
	*fd = -1;
}

static int make_pipe(int end[2], int ours, struct err *e)
{
	if (os_pipe(end) < 0)
		return err_sys(e, errno, "starting ssh");
	fcntl(end[ours], F_SETFL, O_NONBLOCK);
	return 0;
}

static int spawn(struct child *k, char *const *args, int in, int out, int err, struct err *e)
{
	posix_spawn_file_actions_t a;
	posix_spawnattr_t t;
	sigset_t pipes;
	sigemptyset(&pipes);
	sigaddset(&pipes, SIGPIPE);
	if (posix_spawn_file_actions_init(&a))
		return err_nomem(e, sizeof a, "ssh");
	if (posix_spawnattr_init(&t)) {
		posix_spawn_file_actions_destroy(&a);
		return err_nomem(e, sizeof t, "ssh");
	}
	posix_spawnattr_setflags(&t, POSIX_SPAWN_SETSIGDEF);
	posix_spawnattr_setsigdefault(&t, &pipes);
	int rc = in < 0 ? posix_spawn_file_actions_addopen(&a, 0, "/dev/null", O_RDONLY, 0)
			: posix_spawn_file_actions_adddup2(&a, in, 0);
	rc = rc ? rc : posix_spawn_file_actions_adddup2(&a, out, 1);
	rc = rc ? rc : posix_spawn_file_actions_adddup2(&a, err, 2);
	rc = rc ? rc : posix_spawnp(&k->pid, args[0], &a, &t, args, environ);
	posix_spawn_file_actions_destroy(&a);
	posix_spawnattr_destroy(&t);
	if (rc == ENOENT)
		return err_set(e, ERR_USAGE,
			       "there is no 'ssh' here: install the OpenSSH client "
			       "(openssh-client)");
	return rc ? err_sys(e, rc, "starting ssh") : 0;
}

static int start_with(struct child *k, const char *const *args, struct err *e)
{
	struct ssh_call *c = k->c;
	int in[2] = { -1, -1 }, out[2] = { -1, -1 }, err[2] = { -1, -1 };
	int rc = make_pipe(out, 0, e);
	if (rc >= 0)
		rc = make_pipe(err, 0, e);
	if (rc >= 0 && c->input && c->file <= 0)
		rc = make_pipe(in, 1, e);
	if (rc >= 0)
		rc = spawn(k, (char *const *)(uintptr_t)args, c->file > 0 ? c->file : in[0], out[1],
			   err[1], e);
	shut(&in[0]);
	shut(&out[1]);
	shut(&err[1]);
	if (rc < 0) {
		shut(&in[1]);
		shut(&out[0]);
		shut(&err[0]);
		return rc;
	}
	k->in = in[1];
	k->out = out[0];
	k->err = err[0];
	k->until = c->limit > 0 ? clock_now() + (int64_t)(c->limit * 1e9) : 0;
	return 0;
}

static int start(struct child *k, struct err *e)
{
	struct ssh_call *c = k->c;
	char number[16];
	const char *args[24];
	size_t n = 0;
	if (!c->where) {
		snprintf(k->host, sizeof k->host, "localhost");
		args[n++] = "sh";
		args[n++] = "-c";
		args[n++] = c->command;
		args[n] = NULL;
		return start_with(k, args, e);
	}
	TRY(ssh_where(c->where, k->host, &k->port, e));
	args[n++] = "ssh";
	args[n++] = "-T";
	args[n++] = "-oBatchMode=yes";
	args[n++] = "-oConnectTimeout=10";
	args[n++] = "-oServerAliveInterval=10";
	args[n++] = "-oServerAliveCountMax=3";
	if (k->port) {
		snprintf(number, sizeof number, "%u", k->port);
		args[n++] = "-p";
		args[n++] = number;
	}
	args[n++] = k->host;
	args[n++] = c->command;
	args[n] = NULL;
	return start_with(k, args, e);
}

static void write_input(struct child *k)
{
	struct ssh_call *c = k->c;
	while (k->in >= 0 && k->written < c->ninput) {
		ssize_t n = write(k->in, c->input + k->written, c->ninput - k->written);
		if (n < 0 && (errno == EAGAIN || errno == EINTR))
			return;
		if (n <= 0)
			break;
		k->written += (size_t)n;
	}
	shut(&k->in);
}

static void give_lines(struct child *k, const char *p, size_t n, bool end)
{
	for (size_t i = 0; i < n; i++) {
		if (p[i] != '\n' && k->part.n < 4096) {
			buf_addc(&k->part, p[i]);
			continue;
		}
		k->c->line(k->c->ctx, k->part.p);
		buf_reset(&k->part);
	}
	if (end && k->part.n) {
		k->c->line(k->c->ctx, k->part.p);
		buf_reset(&k->part);
	}
}

/* `fd`: of `k`; closed at its end. */
static void read_some(struct child *k, int *fd, struct buf *to, bool lines)
{
	char bytes[16384];
	ssize_t n = read(*fd, bytes, sizeof bytes);
	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (n > 0 && lines)
		give_lines(k, bytes, (size_t)n, false);
	else if (n > 0 && to->n + (size_t)n <= SSH_OUTPUT)
		buf_add(to, bytes, (size_t)n);
	if (n <= 0) {
		if (lines)
			give_lines(k, NULL, 0, true);
		shut(fd);
	}
}

static bool open_still(const struct child *k) { return k->out >= 0 || k->err >= 0; }

/* One round of waiting; false: all have closed their output. */
static bool turn(struct child *k, size_t n, struct pollfd *p)
{
	size_t items = 0;
	for (size_t i = 0; i < n; i++) {
		p[items++] = (struct pollfd){ k[i].in, POLLOUT, 0 };
		p[items++] = (struct pollfd){ k[i].out, POLLIN, 0 };
		p[items++] = (struct pollfd){ k[i].err, POLLIN, 0 };
	}
	if (items)
		poll(p, items, 200); /* negative descriptors are left out */
	bool more = false;
	for (size_t i = 0; i < n; i++) {
		if (k[i].in >= 0 && p[3 * i].revents)
			write_input(&k[i]);
		if (k[i].out >= 0 && p[3 * i + 1].revents)
			read_some(&k[i], &k[i].out, &k[i].c->out, k[i].c->line != NULL);
		if (k[i].err >= 0 && p[3 * i + 2].revents)
			read_some(&k[i], &k[i].err, &k[i].c->err, false);
		more |= open_still(&k[i]);
	}
	return more;
}

/* `stopped`: by the user; Ctrl-C on a terminal ends ssh too. */
static void finish(struct child *k, bool stopped)
{
	int status;
	k->over = true;
	shut(&k->in);
	shut(&k->out);
	shut(&k->err);
	while (waitpid(k->pid, &status, 0) < 0 && errno == EINTR)
		;
	k->c->status = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
	if (k->late)
		snprintf(k->c->why, SSH_WHY, "no answer within %g s ('ssh %.200s')", k->c->limit,
			 k->host);
	else if (k->c->status && (stopped || k->c->status < 0))
		snprintf(k->c->why, SSH_WHY, "interrupted");
	else
		explain(k->c, k->host, k->port);
	buf_release(&k->part);
	if (k->c->status && !stopped && k->c->failed)
		k->c->failed(k->c->ctx, k->c->why);
}

int ssh_run(struct ssh_call *v, size_t n, const volatile sig_atomic_t *stop, struct err *e)
{
	struct child *k = mem_array(n + 1, sizeof *k);
	struct pollfd *p = mem_array(3 * (n + 1), sizeof *p);
	size_t running = 0;
	int rc = k && p ? 0 : err_nomem(e, n * sizeof *k, "ssh");
	for (; running < n && rc >= 0; running += rc >= 0) {
		k[running].c = &v[running];
		k[running].in = k[running].out = k[running].err = -1;
		buf_init(&k[running].part);
		buf_init(&v[running].out);
		buf_init(&v[running].err);
		v[running].status = -1;
		v[running].why[0] = 0;
		rc = start(&k[running], e);
	}
	while (rc >= 0 && turn(k, n, p)) {
		for (size_t i = 0; i < n; i++) {
			bool late = k[i].until && clock_now() > k[i].until;
			if (open_still(&k[i]) && (late || (stop && *stop))) {
				k[i].late = late;
				kill(k[i].pid, SIGTERM);
				shut(&k[i].in);
				shut(&k[i].out);
				shut(&k[i].err);
			}
			if (!open_still(&k[i]) && !k[i].over)
				finish(&k[i], stop && *stop);
		}
	}
	for (size_t i = 0; i < running; i++) {
		if (rc < 0)
			kill(k[i].pid, SIGTERM);
		if (!k[i].over)
			finish(&k[i], rc < 0 || (stop && *stop));
	}
	mem_free(k);
	mem_free(p);
	return rc;
}

void ssh_release(struct ssh_call *c)
{
	buf_release(&c->out);
	buf_release(&c->err);
}

/* ---- several texts --------------------------------------------------------------------------- */

int ssh_batch_open(size_t most, struct ssh_batch *b_p, struct err *e)
{
	struct ssh_batch b = { 0 };
	b.call = mem_array(most + 1, sizeof *b.call);
	b.text = mem_array(most + 1, sizeof *b.text);
	b.of = mem_array(most + 1, sizeof *b.of);
	if (!b.call || !b.text || !b.of) {
		ssh_batch_close(&b);
		return err_nomem(e, (most + 1) * sizeof *b.call, "ssh");
	}
	*b_p = b;
	return 0;
}

struct buf *ssh_batch_add(struct ssh_batch *b, size_t of, const char *where, const char *command,
			  double limit)
{
	size_t k = b->n++;
	b->of[k] = of;
	b->call[k] = (struct ssh_call){ .where = where, .command = command, .limit = limit };
	buf_init(&b->text[k]);
	return &b->text[k];
}

int ssh_batch_run(struct ssh_batch *b, const volatile sig_atomic_t *stop, struct err *e)
{
	for (size_t k = 0; k < b->n; k++) {
		TRY(buf_ok(&b->text[k], e));
		if (b->call[k].file > 0)
			continue;
		b->call[k].input = b->text[k].p;
		b->call[k].ninput = b->text[k].n;
	}
	return ssh_run(b->call, b->n, stop, e);
}

bool ssh_batch_failed(const struct ssh_batch *b, size_t k, char why[SSH_WHY])
{
	if (b->call[k].status)
		snprintf(why, SSH_WHY, "%s", b->call[k].why);
	return b->call[k].status != 0;
}

void ssh_batch_close(struct ssh_batch *b)
{
	for (size_t k = 0; b->text && k < b->n; k++) {
		buf_release(&b->text[k]);
		ssh_release(&b->call[k]);
	}
	mem_free(b->call);
	mem_free(b->text);
	mem_free(b->of);
	*b = (struct ssh_batch){ 0 };
}
