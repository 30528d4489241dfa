/* SPDX-License-Identifier: Apache-2.0 */
/* chunks.c - see chunks.h. */
#include "sched/chunks.h"

#include <stdio.h>

void chunk_layers_text(int stages, int chunks, const int64_t *first, int stage, char *out,
		       size_t cap)
{
	size_t at = 0;
	out[0] = 0;
	for (int v = stage, end; v < stages * chunks && at < cap; v = end) {
		for (end = v + stages;
		     end < stages * chunks && first[end] == first[end - stages + 1];)
			end += stages; /* with one stage the next chunk adjoins */
		const int64_t last = first[end - stages + 1] - 1;
		const int n =
			snprintf(out + at, cap - at, last > first[v] ? "%s%lld to %lld" : "%s%lld",
				 v > stage ? ", " : "", (long long)first[v], (long long)last);
		at += n > 0 ? (size_t)n : 0;
	}
}
