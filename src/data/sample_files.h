/* SPDX-License-Identifier: Apache-2.0 */
/* sample_files.h - samples whose two parts, what a model reads and what its loss compares with, are
 * arrays in files (array.h).
 *
 * At most 64 MiB of samples are in memory. Where all of them fit, an epoch has an order of all
 * samples; else they are read and mixed in blocks (block_order.h). */
#ifndef HS_DATA_SAMPLE_FILES_H
#define HS_DATA_SAMPLE_FILES_H

#include "data/array.h"
#include "data/sample_set.h"

enum { SAMPLE_FILES_MEMORY = 64 << 20 };

struct sample_files_options {
	const char *x, *y; /* y NULL: the same file */
	struct array_wish x_wish, y_wish;
	uint64_t in_words, out_words; /* numbers in a row */
	uint32_t length;              /* rows of a sample; 0: as many as a row of the file has */
	uint64_t held;                /* so many samples at the end are only evaluated */
	/* A number v of x, where it is a float, is v * scale + shift. scale 0: 1/255 for bytes and
	 * pixels, else 1. */
	double scale, shift;
	uint64_t block, mixed; /* 0: chosen by size */
};

struct sample_files;

int sample_files_open(const struct sample_files_options *o, struct sample_files **f_p,
		      struct err *e);
void sample_files_close(struct sample_files *f); /* NULL is allowed */
/* Borrowed: what it gives, with the function that gives it. */
const struct sample_set *sample_files_set(const struct sample_files *f);

#endif
