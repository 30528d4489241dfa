/* SPDX-License-Identifier: Apache-2.0 */
/* playing.h - a player of schedules, for tests. Failures end the test. */
#ifndef HS_TESTS_SUPPORT_PLAYING_H
#define HS_TESTS_SUPPORT_PLAYING_H

#include "sched/play.h"

extern struct player *playing;
/* 64 numbers each */
extern double playing_ones[64], playing_twos[64];

/* For cmocka_run_group_tests. */
int playing_begin(void **state);
int playing_end(void **state);

/* Every forward takes 1, every backward 2. */
struct play playing_unit(int stages, int chunks, int microbatches);
struct play_result playing_run(const struct sched *s, const struct play *p);

/* Equal but for rounding; the largest difference so far. */
void playing_close(double got, double want);
double playing_worst(void);

#endif
