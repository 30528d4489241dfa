/* SPDX-License-Identifier: Apache-2.0 */
/* first.h - a first configuration, written from a few answers: with comments, and checked as
 * `train` checks it. */
#ifndef HS_OPS_FIRST_H
#define HS_OPS_FIRST_H

#include <stddef.h>

struct buf;
struct err;

struct first {
	const char *model, *data, *output; /* output NULL: runs/NAME-OF-THE-DATA */
	/* names of peers, "user@host:port" for ssh, or "all" alone; none: this machine only */
	const char **worker;
	size_t nworkers;
	double minutes;      /* 0: as long as three epochs take */
	const char *devices; /* what this machine has, a line each, for a comment; "" */
};

/* ERR_USAGE where an answer cannot be right: a model or data that is neither there nor the name of
 * something on a hub, a worker that is no peer. */
int first_write(const struct first *f, struct buf *out, struct err *e);

#endif
