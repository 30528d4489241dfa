/* SPDX-License-Identifier: Apache-2.0 */
/* doctor.h - what keeps a machine, or the machines of a configuration, from working well, each
 * finding with the command that mends it. The checks are the rows of doctor.def; they only look. */
#ifndef HS_OPS_DOCTOR_H
#define HS_OPS_DOCTOR_H

#include "config/config.h"

#include <signal.h>
#include <stdbool.h>
#include <stddef.h>

struct err;

enum { FINDINGS_MOST = 256 };

struct finding {
	char check[32];  /* row of doctor.def */
	char where[128]; /* the id of a worker; "": this machine */
	char text[400];
	char mend[500]; /* a command; "": none */
};

struct doctor {
	const char *root;       /* put in front of files of the system; "" */
	const struct config *c; /* NULL: this machine alone */
	const char *reach;      /* "ADDRESS:PORT" that must answer from here; NULL: none */
	const volatile sig_atomic_t *stop;
	struct finding v[FINDINGS_MOST];
	size_t n, checks;
};

struct check {
	const char *name, *help;
	void (*run)(struct doctor *d);
};
extern const struct check doctor_checks[]; /* ended by a NULL name */

/* Runs the rows; findings in d->v. */
void doctor_run(struct doctor *d);

/* For the rows. */
void doctor_found(struct doctor *d, const char *check, const char *where, const char *text,
		  const char *mend);

#endif
