/* SPDX-License-Identifier: Apache-2.0 */
/* apart.h - pairs of workers that reach the coordinator but not each other. Plans put no such pair
 * beside each other (train/remaining.h).
 *
 * A link that breaks once is made again; a pair whose link cannot be made, or breaks twice without
 * a step in between, is apart for some time, and after that is tried again: later each time that
 * it fails. Pure; times are of base/clock.h. One thread uses it. */
#ifndef HS_CREW_APART_H
#define HS_CREW_APART_H

#include <stdbool.h>
#include <stdint.h>

struct err;

struct apart_pair {
	uint8_t breaks; /* since one of the two has done a step */
	int64_t until;  /* when it is tried again; 0: it is not apart */
	double wait;    /* seconds, the last time */
};

struct apart {
	struct apart_pair *pair; /* [n * n], the lower number first */
	int n;
};

int apart_init(struct apart *p, int n, struct err *e);
void apart_release(struct apart *p);
/* Their link broke; `made` false: it could not be made. True: they are apart from now on. */
bool apart_broke(struct apart *p, int a, int b, bool made, int64_t now);
bool apart_is(const struct apart *p, int a, int b);
/* A member has done a step. */
void apart_worked(struct apart *p, int member);
/* True, once for each pair, when it is time to try again: it is not apart any more. */
bool apart_again(struct apart *p, int64_t now, int *a_p, int *b_p);

#endif
