/* SPDX-License-Identifier: Apache-2.0 */
/* split.c - see split.h. */
#include "data/split.h"

#include "base/err.h"
#include "base/mem.h"
#include "base/rng.h"

#include <string.h>

void split_shuffle(uint32_t *v, size_t n, uint64_t key)
{
	struct rng_key k = rng_key(key);
	for (size_t i = n; i > 1; i--) {
		size_t j = rng_below(k, i - 1, i);
		uint32_t t = v[i - 1];
		v[i - 1] = v[j];
		v[j] = t;
	}
}

/* Examples have their ids one behind the other, except copies, which have those of an example
 * before them. */
static bool is_copy(const struct dataset *d, size_t i, const int32_t **last_p)
{
	const int32_t *id = dataset_get(d, i).id;
	if (*last_p && id <= *last_p)
		return true;
	*last_p = id;
	return false;
}

size_t split_count(const struct dataset *d)
{
	const int32_t *last = NULL;
	size_t once = 0;
	for (size_t i = 0; i < dataset_count(d); i++)
		once += !is_copy(d, i, &last);
	return once;
}

/* Of `once` examples that are no copies, in their order, the one with the ids of i. */
static uint32_t original(const struct dataset *d, const uint32_t *first, size_t once, uint32_t i)
{
	const int32_t *id = dataset_get(d, i).id;
	size_t lo = 0, hi = once;
	while (hi - lo > 1) {
		const size_t at = lo + (hi - lo) / 2;
		if (dataset_get(d, first[at]).id <= id)
			lo = at;
		else
			hi = at;
	}
	return first[lo];
}

int split_examples(const struct dataset *d, size_t nval, uint64_t key, uint32_t *order,
		   size_t *ntrain_p, struct err *e)
{
	const size_t n = dataset_count(d);
	/* first: the examples that are no copies, then the copies */
	uint32_t *first = mem_array(n, sizeof *first), *val = mem_array(nval, sizeof *val);
	uint8_t *held = mem_zalloc(n);
	const int32_t *last = NULL;
	size_t once = 0, copies = 0;
	int rc = 0;
	if (!first || !val || !held) {
		rc = err_nomem(e, n * 5 + nval * 4, "the validation split");
		goto out;
	}
	for (size_t i = 0; i < n; i++)
		if (is_copy(d, i, &last))
			first[n - ++copies] = (uint32_t)i;
		else
			first[once++] = (uint32_t)i;
	memcpy(order, first, once * sizeof *order);
	split_shuffle(order, once, key);
	size_t ntrain = once - nval;
	memcpy(val, order + ntrain, nval * sizeof *val);
	for (size_t i = 0; i < nval; i++)
		held[val[i]] = 1;
	for (size_t i = once; i < n; i++)
		if (!held[original(d, first, once, first[i])])
			order[ntrain++] = first[i];
	memcpy(order + ntrain, val, nval * sizeof *val);
	*ntrain_p = ntrain;
out:
	mem_free(first);
	mem_free(val);
	mem_free(held);
	return rc;
}
