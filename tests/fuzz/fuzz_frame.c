/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz_frame.c - whatever a peer sends as a frame is refused with a message or is what its header
 * says. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "net/frame.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Reads a frame that was accepted, and makes the same bytes again from what was read. */
static void read_back(const uint8_t *data, size_t size)
{
	struct frame f;
	struct err e = { 0 };
	size_t n = 0;
	int rc = frame_parse_trusted(data, size, &f, &e);
	if (rc < 0) {
		if (rc != ERR_PROTOCOL || !e.msg[0])
			abort();
		return;
	}
	uint8_t *again = malloc(size);
	if (!again)
		return;
	if (f.size != size - FRAME_HEADER || frame_encode(&f, again, size, &n, &e) < 0 ||
	    n != size || memcmp(again, data, 92) != 0 ||
	    memcmp(again + FRAME_HEADER, data + FRAME_HEADER, f.size) != 0)
		abort();
	if (frame_parse(again, n, &f, &e) < 0)
		abort();
	free(again);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct frame f;
	struct err e;
	frame_parse(data, size, &f, &e);
	read_back(data, size); /* without the checksum, which a fuzzer does not guess */
	return 0;
}
