/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz_measure.c - PROFILE and PROFILED: the first byte says which. What is accepted can be written
 * again, and reads as the same. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "proto/measure_wire.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct measure_request q;
	static struct measure_result r, again;
	static uint8_t out[16384];
	struct err e = { 0 };
	size_t n;
	if (!size)
		return 0;
	if (data[0] & 1) {
		if (measure_request_read(data + 1, size - 1, &q, &e) >= 0 &&
		    (q.sizes < 1 || q.sizes > MEASURE_POINTS || q.tokens < 1))
			abort();
		return 0;
	}
	if (measure_result_read(data + 1, size - 1, &r, &e) < 0)
		return 0;
	if (measure_result_write(&r, out, sizeof out, &n, &e) < 0 ||
	    measure_result_read(out, n, &again, &e) < 0 || memcmp(&r, &again, sizeof r))
		abort();
	return 0;
}
