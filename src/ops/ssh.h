/* SPDX-License-Identifier: Apache-2.0 */
/* ssh.h - commands on other machines, by the user's own ssh: the OpenSSH client that is in PATH,
 * with its configuration, keys and agent. It never asks anything (BatchMode), so what it would ask
 * becomes an error that says what to do. */
#ifndef HS_OPS_SSH_H
#define HS_OPS_SSH_H

#include "base/buf.h"

#include <signal.h>
#include <stdbool.h>
#include <stddef.h>

struct err;

enum { SSH_WHERE = 320, SSH_WHY = 512, SSH_OUTPUT = 4 << 20 };

/* "user@host:port", "host", "user@[fd00::2]:22": *host_p is what ssh takes, *port_p 0 where none is
 * given. ERR_USAGE for what is no such text, also for one that ssh would take for an option. */
int ssh_where(const char *text, char host_p[SSH_WHERE], unsigned *port_p, struct err *e);

/* One command on one machine. */
struct ssh_call {
	const char *where;   /* as ssh_where() reads it; NULL: this machine, without ssh */
	const char *command; /* for the login shell of the user there: plain words */
	const char *input;   /* its standard input; NULL: none */
	size_t ninput;
	int file;     /* in place of `input`, when above 0: a descriptor to read from */
	double limit; /* seconds; 0: none */
	/* each line of its output as it comes; NULL: they are collected in `out` */
	void (*line)(void *ctx, const char *text);
	void (*failed)(void *ctx, const char *why); /* MAY be NULL: at once, others go on */
	void *ctx;
	/* results */
	struct buf out, err; /* what it wrote, at most SSH_OUTPUT bytes each */
	int status;          /* of the command; 255 where ssh failed, -1 where it was ended here */
	char why[SSH_WHY];   /* what went wrong when status is not 0, and what to do about it */
};

/* Runs all of them side by side until each has ended. An error only where ssh cannot be started;
 * when *stop is set (MAY be NULL) what still runs is ended. */
int ssh_run(struct ssh_call *v, size_t n, const volatile sig_atomic_t *stop, struct err *e);
void ssh_release(struct ssh_call *c);

/* Texts of sh for some of several machines, to be run side by side. */
struct ssh_batch {
	struct ssh_call *call;
	struct buf *text;
	size_t *of; /* the machine of each call */
	size_t n;
};
/* For at most `most` texts. */
int ssh_batch_open(size_t most, struct ssh_batch *b_p, struct err *e);
/* A text for machine `of`, to be written; valid until the next call. */
struct buf *ssh_batch_add(struct ssh_batch *b, size_t of, const char *where, const char *command,
			  double limit);
/* As ssh_run(); a call that has a `file` reads that in place of its text. */
int ssh_batch_run(struct ssh_batch *b, const volatile sig_atomic_t *stop, struct err *e);
/* Whether call k failed; with what goes to `why`, which stays as it is when not. */
bool ssh_batch_failed(const struct ssh_batch *b, size_t k, char why[SSH_WHY]);
void ssh_batch_close(struct ssh_batch *b);

/* Appends a word as the shell reads it (base/text.h). */
void ssh_quote(struct buf *b, const char *word);
/* Appends a line NAME=WORD. */
void ssh_set(struct buf *b, const char *name, const char *word);

#endif
