/* SPDX-License-Identifier: Apache-2.0 */
/* ports.h - TCP ports that no other test program of this machine uses.
 *
 * They lie below the ports that the kernel gives to dialling sockets. A block is this program's
 * until it ends. Test scripts have bands of their own: tests/test_newcomer.sh 20000 to 21999,
 * tests/test_together.sh 22000 to 22999, tests/test_api_examples.sh 23880 to 23887,
 * scripts/mean.sh 23995 to 23999, tests/support/golden_job.sh 30000 to 32699. */
#ifndef HS_TESTS_SUPPORT_PORTS_H
#define HS_TESTS_SUPPORT_PORTS_H

enum { PORTS_BLOCK = 10 }; /* ports of a block */

/* Returns the first port of a block that is this program's from now on; fails the test if all
 * blocks are taken. */
int ports_claim(void);

#endif
