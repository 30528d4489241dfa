/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz_wire.c - structured payloads: the input is a list of what to read (until a zero byte), then
 * the payload. A reader never reads outside the payload, and after a failure gives only zeros and
 * nothing. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "net/wire.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Every byte of what was handed out is touched, so that the sanitizer looks at it. */
static unsigned touch(const void *p, size_t n)
{
	unsigned sum = 0;
	for (size_t i = 0; i < n; i++)
		sum += ((const uint8_t *)p)[i];
	return sum;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const uint8_t *end = size ? memchr(data, 0, size) : NULL;
	if (!end)
		return 0;
	struct wire_reader r = wire_read(end + 1, size - (size_t)(end + 1 - data));
	struct err e = { 0 };
	volatile unsigned sum = 0;
	for (const uint8_t *what = data; what < end; what++) {
		char text[16];
		size_t n = 1;
		const void *p;
		switch (*what % 8) {
		case 0:
			sum += wire_get_u8(&r);
			break;
		case 1:
			sum += wire_get_u32(&r);
			break;
		case 2:
			sum += (unsigned)wire_get_u64(&r);
			break;
		case 3:
			sum += wire_get_f64(&r) > 0;
			break;
		case 4:
			wire_get_str(&r, text, sizeof text);
			sum += (unsigned)strlen(text);
			break;
		case 5:
			p = wire_get_text(&r, &n);
			sum += touch(p, n);
			break;
		case 6:
			p = wire_get_bytes(&r, &n);
			sum += touch(p, n);
			break;
		case 7:
			if (wire_get_count(&r, 4, 1000) > 1000)
				abort();
			break;
		}
		if (r.at > r.n || (r.failed && n > 1 && *what % 8 >= 5 && *what % 8 <= 6))
			abort();
	}
	int rc = wire_read_end(&r, "x", &e);
	if (rc != 0 && (rc != ERR_PROTOCOL || !e.msg[0]))
		abort();
	return 0;
}
