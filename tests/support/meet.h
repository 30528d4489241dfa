/* SPDX-License-Identifier: Apache-2.0 */
/* meet.h - for tests of links through shared memory: a rendezvous of their own, and what a process
 * holds. Failures end the test. */
#ifndef HS_TESTS_SUPPORT_MEET_H
#define HS_TESTS_SUPPORT_MEET_H

#include "net/shm_meet.h"

int mappings(void);   /* of shared buffers that this process has */
int open_files(void); /* of this process */

/* Sets the rendezvous folder; the first listener makes the folder in it, whose path is returned. */
const char *meet_in(const char *name);
/* How many names of sockets are there, and one of them. */
int names(const char *dir, char last[MEET_PATH]);

#endif
