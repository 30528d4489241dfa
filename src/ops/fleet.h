/* SPDX-License-Identifier: Apache-2.0 */
/* fleet.h - the machines of a configuration, started and stopped over ssh (ssh.h).
 *
 * A worker of the configuration that has `ssh` belongs to it. One with an address gets a copy of
 * the configuration; one without is an invited machine (peers/), and joins by an invitation of its
 * own when it has not yet. On its machine each has the folder ~/.local/state/heteroshard/ID, with
 * log, process number and, when it joined here, its key. The program is the one of this version
 * that is found there: ~/.local/share/heteroshard/VERSION, then PATH and the usual places.
 *
 * What is done on a machine is a text of sh that is sent to it; it uses no more than POSIX and
 * tar. All machines work side by side, and one that fails does not hold up the others. */
#ifndef HS_OPS_FLEET_H
#define HS_OPS_FLEET_H

#include "config/config.h"
#include "ops/ssh.h"
#include "peers/peer_list.h"

#include <limits.h>
#include <signal.h>

struct err;

struct fleet_member {
	const struct config_worker *w;
	bool failed;
	char text[SSH_WHY]; /* what was done, or what went wrong */
	/* found there */
	char machine[64];   /* "x86_64" */
	char version[64];   /* of the program that is used; "": none of this version */
	char other[64];     /* another version that is there; "": none */
	char program[256];  /* its path; "": none */
	int64_t pid;        /* of the worker; 0: it does not run */
	uint64_t space;     /* bytes free in the home folder */
	int joined;         /* has a coordinator: in its own folder (1), by hand (2) */
	char last[SSH_WHY]; /* the last line of its log */
	char *devices;      /* as `heteroshard devices --json` prints; NULL: not asked */
};

struct fleet {
	const struct config *c; /* borrowed */
	struct fleet_member *member;
	size_t n;
	size_t elsewhere; /* workers without `ssh` that are not on this machine */
	const volatile sig_atomic_t *stop;
};

/* `only`: the id of one worker; NULL: all. ERR_USAGE where no worker has `ssh`, for an `ssh` that
 * cannot be read, and for an id that is no name of a peer (it is part of a path). */
int fleet_open(const struct config *c, const char *only, struct fleet *f_p, struct err *e);
void fleet_close(struct fleet *f);

/* Asks each machine; those that do not answer have failed. `devices`: also what it computes on. */
int fleet_look(struct fleet *f, bool devices, struct err *e);

struct fleet_up {
	bool install;     /* the program, where this version of it is missing */
	const char *from; /* the folder with tarballs; NULL: the usual places */
	/* asked before that, with what would be done; NULL: no */
	bool (*ask)(void *ctx, const char *question);
	void *ctx;
	unsigned minutes; /* for invitations */
};
/* After fleet_look(): installs what is missing, lets those join that have not, starts the workers.
 * An error only where nothing could be tried at all. */
int fleet_start(struct fleet *f, const struct fleet_up *o, struct err *e);
/* Ends the workers: a step is finished first, at most `wait` seconds; `now`: without. */
int fleet_stop(struct fleet *f, double wait, bool now, struct err *e);
/* Lines of the logs, each with the id of its worker, as they come; `failed` gets what went wrong
 * with a machine, while the others go on. */
typedef void (*fleet_line_fn)(void *ctx, const char *id, const char *line);
int fleet_logs(struct fleet *f, int lines, bool follow, fleet_line_fn line, fleet_line_fn failed,
	       void *ctx, struct err *e);

/* The configuration of the last `up` (its path), for commands that are given none; ERR_USAGE:
 * there was none. */
int fleet_remember(const char *config, struct err *e);
int fleet_remembered(char path_p[PATH_MAX], struct err *e);

#endif
