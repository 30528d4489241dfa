/* SPDX-License-Identifier: Apache-2.0 */
/* parquet_page.h - one column of one row group: its pages unpacked and decoded. */
#ifndef HS_DATA_PARQUET_PAGE_H
#define HS_DATA_PARQUET_PAGE_H

#include "base/buf.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct err;

enum pq_type { PQ_BOOL, PQ_INT32, PQ_INT64, PQ_INT96, PQ_FLOAT, PQ_DOUBLE, PQ_BYTES, PQ_FIXED };

#define PQ_ENTRIES (64u << 20) /* of a column in a row group */

/* A decoded column. Entry i has a repetition and a definition level; those whose definition level
 * is max_def have the next value. */
struct pq_column {
	enum pq_type type;
	unsigned max_rep, max_def;
	uint8_t *rep, *def;
	size_t n, rep_cap, def_cap;
	/* numbers: their bits (int64, or the bits of a double); texts: offsets into `text`, with
	 * one more at the end */
	uint64_t *v;
	size_t nv, v_cap;
	struct buf text;
	/* bytes that may still be unpacked, of all columns of the row group; borrowed */
	uint64_t *room;
};

void pq_release(struct pq_column *c);
/* Decodes the pages in the `n` bytes of a column chunk, which hold `entries`. `codec`: that of the
 * metadata. What it unpacks and keeps is taken from *c->room: a few bytes of runs can stand for
 * millions of values. */
int pq_decode(struct pq_column *c, int codec, const uint8_t *p, size_t n, uint64_t entries,
	      struct err *e);
/* Snappy's raw format, for tests too. */
int pq_snappy(const uint8_t *p, size_t n, uint8_t *out, size_t out_n);

#endif
