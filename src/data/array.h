/* SPDX-License-Identifier: Apache-2.0 */
/* array.h - rows of numbers in files, for models that are not trained on text: NumPy's .npy and
 * .npz, IDX (MNIST), columns of CSV, TSV and JSONL, folders of images. The form is recognised by
 * content, tables and JSONL by their endings (.csv, .tsv, .jsonl, also with .gz or .zst).
 *
 * Rows are read by number, in any order; runs of rows that follow each other are fastest. A file is
 * not loaded: what is in memory does not depend on its size (of tables and JSONL the place of every
 * 256th row, of a folder its names). What is packed (gzip, zstd, a compressed .npz) is unpacked
 * into memory, up to 1 GiB. Numbers come as float32, or as int32, and then must be whole. */
#ifndef HS_DATA_ARRAY_H
#define HS_DATA_ARRAY_H

#include <stdbool.h>
#include <stdint.h>

struct err;

enum { ARRAY_WORDS_MOST = 1 << 24, ARRAY_UNPACKED_MOST = 1 << 30 /* bytes */ };

struct array_wish {
	/* Of a table or JSONL the columns, "a,b,c" (NULL: all); of an .npz the array's name (NULL:
	 * the only one). */
	const char *columns;
	/* Of a folder of images the pixels: (channels, height, width), channels 1 (grey) or 3. An
	 * image of another size is scaled. 0: the number of the folder that an image lies in, by
	 * name. Negative: no pixels can be read. */
	int32_t channels, height, width;
	bool whole; /* int32 and not float32 */
};

struct array;

struct array_kind {
	const char *name;
	int (*read)(struct array *a, uint64_t first, uint64_t n, void *dst, struct err *e);
	void (*close)(struct array *a);
};

/* Every kind has such a head. */
struct array {
	const struct array_kind *kind;
	char *path;
	uint64_t rows, each; /* numbers in a row */
	bool bytes;          /* they are 0..255: pixels, or unsigned bytes */
	bool whole;          /* they are read as int32 */
};

int array_open(const char *path, const struct array_wish *w, struct array **a_p, struct err *e);
/* Whether a file of this name is a table. */
bool array_has_columns(const char *path);
void array_close(struct array *a); /* NULL is allowed */
/* Rows [first, first+n): n*each numbers of 4 bytes. */
int array_read(struct array *a, uint64_t first, uint64_t n, void *dst, struct err *e);
/* A number that changes when the file is another one: of its length, its first and its last
 * bytes; of a folder of how many images it has. */
int array_digest(const struct array *a, uint64_t *digest_p, struct err *e);

/* ---- for the kinds ---- */

/* Fills in the head. */
int array_init(struct array *a, const struct array_kind *k, const char *path,
	       const struct array_wish *w, struct err *e);
/* v as dst[i], as the array's numbers are wanted. */
int array_put(const struct array *a, void *dst, uint64_t i, double v, struct err *e);

#endif
