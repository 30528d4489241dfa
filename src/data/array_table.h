/* SPDX-License-Identifier: Apache-2.0 */
/* array_table.h - columns of CSV and TSV files, and of JSONL, where a column is a number or a list
 * of numbers (of any depth, read in its order). A table's first row names its columns. Empty lines
 * are skipped.
 *
 * A single column of whole numbers may have words instead, the same in every row: they are labels,
 * numbered in the order of their bytes (as folders of images are). */
#ifndef HS_DATA_ARRAY_TABLE_H
#define HS_DATA_ARRAY_TABLE_H

#include "data/array.h"

/* separator 0: JSONL. columns NULL: all of a table; "!a,b": all but these. */
int table_open(const char *path, char separator, const struct array_wish *w, struct array **a_p,
	       struct err *e);

#endif
