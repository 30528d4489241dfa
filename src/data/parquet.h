/* SPDX-License-Identifier: Apache-2.0 */
/* parquet.h - the rows of a Parquet file as JSON objects: columns of strings, numbers, booleans,
 * and lists and structs of them (apache/parquet-format, 2.10).
 *
 * Pages of version 1 and 2; encodings plain, dictionary, RLE, the three delta ones; packed with
 * Snappy, gzip, zstd, or not. Columns of other kinds (raw bytes, decimals, 96-bit times) are left
 * out; encrypted files are refused. One row group's columns are in memory at a time, and no count
 * in a file is believed before there are bytes for it. */
#ifndef HS_DATA_PARQUET_H
#define HS_DATA_PARQUET_H

#include <stddef.h>

struct err;
struct parquet;

int parquet_open(const char *path, struct parquet **p_p, struct err *e);
void parquet_close(struct parquet *p); /* NULL is allowed */
/* 1 and the next row, valid until the next call; 0 at the end. */
int parquet_next(struct parquet *p, const char **text_p, size_t *n_p, struct err *e);

#endif
