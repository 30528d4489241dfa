/* SPDX-License-Identifier: Apache-2.0 */
/* split.h - which examples of a dataset are held out for validation.
 *
 * They are drawn among the examples without the copies that `weight` makes of them (dataset.h), so
 * that none that is held out is also trained. */
#ifndef HS_DATA_SPLIT_H
#define HS_DATA_SPLIT_H

#include "data/dataset.h"

/* Fisher-Yates over base/rng.h. */
void split_shuffle(uint32_t *v, size_t n, uint64_t key);
/* Examples, each counted once. */
size_t split_count(const struct dataset *d);
/* Into order[dataset_count(d)]: *ntrain_p examples to train, with their copies, then `nval` that
 * are held out, without; nval is less than split_count(d). */
int split_examples(const struct dataset *d, size_t nval, uint64_t key, uint32_t *order,
		   size_t *ntrain_p, struct err *e);

#endif
