/* SPDX-License-Identifier: Apache-2.0 */
/* limits.h - what a worker takes of its machine: threads, memory, priority.
 *
 * Workers of one machine that compute on its processor divide it: each gets as many threads as its
 * `threads` says, the others equal parts of what is left, and each keeps to processors of its own.
 * Which ones: a processor is taken by a lock on a file in the folder where the user's processes
 * meet (shm_meet.h), so jobs that know nothing of each other do not take the same. */
#ifndef HS_OPS_LIMITS_H
#define HS_OPS_LIMITS_H

#include "config/config.h"

struct err;

/* Threads of worker `i` of the configuration (ROLE_LOCAL: the coordinator's own device), of `cores`
 * processors; 0: all of them, because nobody shares them. Pure but for who is on this machine. */
int limits_threads(const struct config *c, int i, int cores);

/* For this process, before it starts threads. `threads` 0: no limit. Where too few processors are
 * free the threads are not kept to any; one line says so where `threads` was written. ERR_USAGE
 * where `nice` is refused. */
int limits_take(const struct config_limits *l, int threads, struct err *e);

#endif
