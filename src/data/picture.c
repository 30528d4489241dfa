/* SPDX-License-Identifier: Apache-2.0 */
/* picture.c - see picture.h. */
#include "data/picture.h"

#include "base/err.h"
#include "base/mem.h"

#include <math.h>
#include <png.h>
#include <string.h>
#include <turbojpeg.h>

void picture_release(struct picture *p)
{
	mem_free(p->rgb);
	*p = (struct picture){ 0 };
}

static int make_room(struct picture *p, uint64_t width, uint64_t height, const char *where,
		     struct err *e)
{
	if (!width || !height || width > PICTURE_PIXELS_MOST || height > PICTURE_PIXELS_MOST ||
	    width * height > PICTURE_PIXELS_MOST)
		return err_set(e, ERR_UNSUPPORTED,
			       "%s: an image of %llu x %llu pixels; at most %d Mi pixels are read",
			       where, (unsigned long long)width, (unsigned long long)height,
			       PICTURE_PIXELS_MOST >> 20);
	if (!mem_grow(&p->rgb, &p->cap, (size_t)(width * height * 3), 1))
		return err_nomem(e, width * height * 3, where);
	p->width = (int32_t)width;
	p->height = (int32_t)height;
	return 0;
}

static int decode_png(struct picture *p, const void *file, size_t n, const char *where,
		      struct err *e)
{
	png_image image = { .version = PNG_IMAGE_VERSION };
	const png_color black = { 0, 0, 0 };
	int rc = 0;
	if (png_image_begin_read_from_memory(&image, file, n)) {
		image.format = PNG_FORMAT_RGB;
		rc = make_room(p, image.width, image.height, where, e);
		if (rc >= 0)
			png_image_finish_read(&image, &black, p->rgb, 0, NULL);
	}
	if (rc >= 0 && PNG_IMAGE_FAILED(image))
		rc = err_set(e, ERR_INPUT, "%s: %s", where, image.message);
	png_image_free(&image);
	return rc;
}

static int decode_jpeg(struct picture *p, const void *file, size_t n, const char *where,
		       struct err *e)
{
	tjhandle t = tjInitDecompress();
	int width = 0, height = 0, part, space;
	if (!t)
		return err_nomem(e, 1, where);
	int bad = tjDecompressHeader3(t, file, n, &width, &height, &part, &space);
	int rc = bad ? 0 : make_room(p, (uint64_t)width, (uint64_t)height, where, e);
	if (!bad && rc >= 0)
		bad = tjDecompress2(t, file, n, p->rgb, width, 0, height, TJPF_RGB,
				    TJFLAG_STOPONWARNING | TJFLAG_LIMITSCANS);
	if (bad)
		rc = err_set(e, ERR_INPUT, "%s: %s", where, tjGetErrorStr2(t));
	tjDestroy(t);
	return rc;
}

int picture_decode(struct picture *p, const void *file, size_t n, const char *where, struct err *e)
{
	if (n >= 8 && !memcmp(file, "\x89PNG\r\n\x1a\n", 8))
		return decode_png(p, file, n, where, e);
	if (n >= 3 && !memcmp(file, "\xff\xd8\xff", 3))
		return decode_jpeg(p, file, n, where, e);
	return err_set(e, ERR_INPUT, "%s: is neither PNG nor JPEG", where);
}

static float pixel(const struct picture *p, int32_t channels, int32_t channel, int32_t y, int32_t x)
{
	const uint8_t *c = p->rgb + ((size_t)y * (size_t)p->width + (size_t)x) * 3;
	if (channels == 3)
		return c[channel];
	return (float)((c[0] * 19595u + c[1] * 38470u + c[2] * 7471u + 0x8000u) >> 16);
}

/* The mean over [y0, y1) x [x0, x1), edges counted by the part that lies inside. */
static float mean(const struct picture *p, int32_t channels, int32_t channel, double y0, double y1,
		  double x0, double x1)
{
	double sum = 0, all = 0;
	for (int32_t y = (int32_t)y0; y < p->height && y < y1; y++) {
		const double h = fmin(y + 1, y1) - fmax(y, y0);
		for (int32_t x = (int32_t)x0; x < p->width && x < x1; x++) {
			const double w = h * (fmin(x + 1, x1) - fmax(x, x0));
			sum += w * pixel(p, channels, channel, y, x);
			all += w;
		}
	}
	return (float)(all > 0 ? sum / all : 0);
}

void picture_fit(const struct picture *p, int32_t channels, int32_t height, int32_t width,
		 float *dst)
{
	const bool same = p->height == height && p->width == width;
	const double sy = (double)p->height / height, sx = (double)p->width / width;
	for (int32_t c = 0; c < channels; c++)
		for (int32_t y = 0; y < height; y++)
			for (int32_t x = 0; x < width; x++)
				*dst++ = same ? pixel(p, channels, c, y, x)
					      : mean(p, channels, c, y * sy, (y + 1) * sy, x * sx,
						     (x + 1) * sx);
}
