/* SPDX-License-Identifier: Apache-2.0 */
/* record.h - what a run said of its steps and evaluations, to compare runs bit for bit. Failures
 * end the test. */
#ifndef HS_TESTS_SUPPORT_RECORD_H
#define HS_TESTS_SUPPORT_RECORD_H

#include "support/tiny.h"
#include "train/train.h"

enum { RECORD_STEPS = 64 };

struct record {
	double loss[RECORD_STEPS], norm[RECORD_STEPS], eval[RECORD_STEPS];
	uint64_t trained[RECORD_STEPS];
	size_t n, neval;
	uint64_t stop_after; /* sets `stop` after this step; 0: never */
	volatile sig_atomic_t stop;
};

/* Writes what comes into r. */
struct train_sink record_sink(struct record *r);
/* The same losses, norms and evaluations. `a`: the run in one process. */
void record_same(const struct record *a, const struct record *b, const char *what);
/* Two files in the folder of t have the same bytes. */
void record_same_file(const struct tiny *t, const char *a, const char *b);

#endif
