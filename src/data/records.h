/* SPDX-License-Identifier: Apache-2.0 */
/* records.h - the records of a data file, one after the other, as text with its place: JSONL, a
 * JSON list, an object that holds the list under `data`, a table (csv.h), a Parquet file
 * (parquet.h), or a plain text file as one record; packed with gzip or zstd or not (stream.h). The
 * form is recognised by content, tables by the ending .csv or .tsv, plain text by .txt too. Rows of
 * tables and Parquet files come as JSON objects.
 *
 * The file is read once, from beginning to end; at most a window around one record is in memory.
 * dataset.c and the kinds interpret the records. Limits: a record has at most RECORD_MAX bytes. */
#ifndef HS_DATA_RECORDS_H
#define HS_DATA_RECORDS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct err;

#define RECORD_MAX (256u << 20)

enum records_form {
	RECORDS_LINES, /* JSONL: a record a line, empty lines are ignored */
	RECORDS_LIST,  /* a JSON list, or an object with the list under `data` */
	RECORDS_PLAIN, /* plain text: the whole file */
	RECORDS_TABLE, /* CSV or TSV */
	RECORDS_PARQUET,
};

struct record {
	const char *text; /* not NUL-terminated; valid until the next call */
	size_t n;
	uint64_t number; /* from 1 */
	uint64_t line;   /* where it begins, from 1 */
};

struct records;

/* `plain_ok`: a file that does not begin like JSON is plain text instead of an error. */
int records_open(const char *path, bool plain_ok, struct records **r_p, struct err *e);
void records_close(struct records *r);
enum records_form records_form(const struct records *r);
/* 1 and the next record, 0 at the end, or an error of the file itself (unreadable, cut off,
 * no list). */
int records_next(struct records *r, struct record *rec_p, struct err *e);
/* "FILE:LINE" or "FILE: record N (line L)", into `out` of `cap` bytes. `line_in` (from 1) is a line
 * inside the record. */
void records_place(const struct records *r, const struct record *rec, uint64_t line_in, char *out,
		   size_t cap);

#endif
