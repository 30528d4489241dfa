/* SPDX-License-Identifier: Apache-2.0 */
/* memfile.h - bytes as a file without a disk, for fuzz targets: one anonymous file that is filled
 * again each time. */
#ifndef HS_TESTS_SUPPORT_MEMFILE_H
#define HS_TESTS_SUPPORT_MEMFILE_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

static inline const char *memfile(const uint8_t *data, size_t size)
{
	static int fd = -1;
	static char path[64];
	if (fd < 0) {
		fd = memfd_create("fuzz", 0);
		snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
	}
	if (fd < 0 || ftruncate(fd, 0) < 0 || ftruncate(fd, (off_t)size) < 0 ||
	    pwrite(fd, data, size, 0) != (ssize_t)size)
		abort();
	return path;
}

#endif
