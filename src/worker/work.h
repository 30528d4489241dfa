/* SPDX-License-Identifier: Apache-2.0 */
/* work.h - the role of a worker: chooses the listening address of the configuration, and serves
 * one job. */
#ifndef HS_WORKER_WORK_H
#define HS_WORKER_WORK_H

#include "ops/ranks.h"
#include "job/role.h"

#include <signal.h>

struct err;

/* Listens, and serves one job. */
int work(const struct config *c, const struct role *r, const volatile sig_atomic_t *stop,
	 struct err *e);
/* A rank that is not 0: serves one job; closes the net. */
int work_rank(const struct config *c, const struct ranks *r, const volatile sig_atomic_t *stop,
	      struct err *e);

#endif
