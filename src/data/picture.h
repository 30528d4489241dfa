/* SPDX-License-Identifier: Apache-2.0 */
/* picture.h - one image file as pixels, by libpng and libjpeg-turbo. */
#ifndef HS_DATA_PICTURE_H
#define HS_DATA_PICTURE_H

#include <stddef.h>
#include <stdint.h>

struct err;

enum { PICTURE_PIXELS_MOST = 1 << 26 };

struct picture {
	uint8_t *rgb; /* (height, width, 3) */
	size_t cap;
	int32_t width, height;
};

void picture_release(struct picture *p);
/* `where`: the file, for messages. What is transparent lies on black. p's memory is used again. */
int picture_decode(struct picture *p, const void *file, size_t n, const char *where, struct err *e);
/* (channels, height, width) of 0 to 255, channels 3, or 1: grey as ITU-R 601 has it. Another size
 * is reached by averages over the area of a pixel. */
void picture_fit(const struct picture *p, int32_t channels, int32_t height, int32_t width,
		 float *dst);

#endif
