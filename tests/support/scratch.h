/* SPDX-License-Identifier: Apache-2.0 */
/* scratch.h - a folder of its own for a test program, and paths in it and in the repository.
 *
 * The folder is made on first use and removed when the program ends. Returned paths live until
 * then. Failures end the test. */
#ifndef HS_TESTS_SUPPORT_SCRATCH_H
#define HS_TESTS_SUPPORT_SCRATCH_H

#include "base/buf.h"

#include <stddef.h>

/* a path in the folder */
const char *scratch(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
const char *repository(const char *fmt, ...)
	__attribute__((format(printf, 1, 2))); /* a path in the source tree: "tests/golden/..." */

void scratch_write(const char *path, const void *p, size_t n); /* with the folders above it */
void scratch_text(const char *path, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
struct buf scratch_read(const char *file); /* a whole file; the caller releases it */

#endif
