/* SPDX-License-Identifier: Apache-2.0 */
/* records.c - see records.h. A window over the file that grows to hold one record, and a scanner
 * that finds where a JSON value ends by counting brackets outside strings; the caller that parses
 * the value checks whether it is valid JSON. */
#include "data/records.h"

#include "base/err.h"
#include "base/mem.h"
#include "data/csv.h"
#include "data/parquet.h"
#include "data/stream.h"

#include <stdio.h>
#include <string.h>

#define WINDOW (256u << 10)

struct records {
	char *path;
	struct stream *in;
	struct parquet *parquet;
	struct csv csv;
	enum records_form form;
	bool eof;
	bool in_object; /* RECORDS_LIST: the list is the member `data` of an object */
	bool began, done;
	uint64_t number, line; /* line at `pos` */
	char *p;               /* the window: bytes [pos, end) are not consumed yet */
	size_t pos, end, cap;
};

/* Makes at least `need` unconsumed bytes available: 1, or 0 when the file ends before. */
static int ensure(struct records *r, size_t need, struct err *e)
{
	while (r->end - r->pos < need) {
		if (r->eof)
			return 0;
		if (need > RECORD_MAX)
			return err_set(e, ERR_INPUT, "%s:%llu: a record of more than %u MiB",
				       r->path, (unsigned long long)r->line, RECORD_MAX >> 20);
		if (r->pos && r->end == r->cap) {
			memmove(r->p, r->p + r->pos, r->end - r->pos);
			r->end -= r->pos;
			r->pos = 0;
		}
		if (r->end == r->cap && !mem_grow(&r->p, &r->cap, r->cap + WINDOW, 1))
			return err_nomem(e, r->cap + WINDOW, "a record");
		size_t n;
		TRY(stream_read(r->in, r->p + r->end, r->cap - r->end, &n, e));
		if (!n)
			r->eof = true;
		r->end += n;
	}
	return 1;
}

static bool is_space(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }

static void consume(struct records *r, size_t n)
{
	for (const char *p = r->p + r->pos, *end = p + n; (p = memchr(p, '\n', (size_t)(end - p)));
	     p++)
		r->line++;
	r->pos += n;
}

/* Skips white space: 1 when a byte follows, 0 at the end. */
static int skip_space(struct records *r, struct err *e)
{
	int rc;
	while ((rc = ensure(r, 1, e)) > 0 && is_space(r->p[r->pos]))
		consume(r, 1);
	return rc;
}

/* Length of the line that begins at `pos`, without its newline; 1 or, at the end of the file, 0
 * in *nl_p. */
static int line_length(struct records *r, size_t *n_p, size_t *nl_p, struct err *e)
{
	size_t seen = 0;
	for (;;) {
		size_t have = r->end - r->pos;
		const char *nl =
			have > seen ? memchr(r->p + r->pos + seen, '\n', have - seen) : NULL;
		if (nl) {
			*n_p = (size_t)(nl - r->p) - r->pos;
			*nl_p = 1;
			return 0;
		}
		seen = have;
		int rc = ensure(r, have + 1, e);
		if (rc < 0)
			return rc;
		if (!rc) {
			*n_p = r->end - r->pos;
			*nl_p = 0;
			return 0;
		}
	}
}

/* Length of the JSON value that begins at `pos`. */
static int value_length(struct records *r, size_t *n_p, struct err *e)
{
	size_t i = 0, depth = 0;
	bool string = false;
	for (;; i++) {
		int rc = ensure(r, i + 1, e);
		if (rc < 0)
			return rc;
		if (!rc)
			break;
		char c = r->p[r->pos + i];
		if (string) {
			if (c == '\\') {
				i++;
			} else if (c == '"') {
				string = false;
				if (!depth) {
					*n_p = i + 1;
					return 0;
				}
			}
		} else if (c == '"' && (depth || !i)) {
			string = true;
		} else if (c == '{' || c == '[') {
			depth++;
		} else if (depth && (c == '}' || c == ']')) {
			if (!--depth) {
				*n_p = i + 1;
				return 0;
			}
		} else if (!depth &&
			   (c == ',' || c == '}' || c == ']' || c == ':' || is_space(c))) {
			*n_p = i; /* a number or a word */
			return 0;
		}
	}
	if (depth || string)
		return err_set(
			e, ERR_INPUT,
			"%s:%llu: the value that begins here does not end (is the file cut off?)",
			r->path, (unsigned long long)r->line);
	*n_p = r->end - r->pos;
	return 0;
}

static int refuse_byte(struct records *r, const char *what, struct err *e)
{
	if (r->eof && r->pos == r->end)
		return err_set(e, ERR_INPUT,
			       "%s:%llu: the file ends where %s was expected (is it cut off?)",
			       r->path, (unsigned long long)r->line, what);
	return err_set(e, ERR_INPUT, "%s:%llu: not valid JSON: %s was expected", r->path,
		       (unsigned long long)r->line, what);
}

/* Consumes one punctuation byte after white space. */
static int need_byte(struct records *r, char c, const char *what, struct err *e)
{
	int rc = skip_space(r, e);
	if (rc < 0)
		return rc;
	if (!rc || r->p[r->pos] != c)
		return refuse_byte(r, what, e);
	consume(r, 1);
	return 0;
}

/* Inside an object, before a member or its end: skips members until the value of `data`, a list,
 * begins (1) or the object ends (0). */
static int find_data(struct records *r, bool wanted, bool first, struct err *e)
{
	for (;; first = false) {
		int rc = skip_space(r, e);
		if (rc < 0)
			return rc;
		if (!rc)
			return refuse_byte(r, "a '}'", e);
		if (r->p[r->pos] == '}') {
			consume(r, 1);
			return 0;
		}
		if (!first) {
			TRY(need_byte(r, ',', "a ',' or a '}'", e));
			TRY(skip_space(r, e));
		}
		size_t n;
		if (r->pos == r->end || r->p[r->pos] != '"')
			return refuse_byte(r, "a key", e);
		TRY(value_length(r, &n, e));
		bool data = n == 6 && !memcmp(r->p + r->pos, "\"data\"", 6);
		consume(r, n);
		TRY(need_byte(r, ':', "a ':'", e));
		rc = skip_space(r, e);
		if (rc < 0)
			return rc;
		if (!rc)
			return refuse_byte(r, "a value", e);
		if (wanted && data && r->p[r->pos] == '[')
			return 1;
		TRY(value_length(r, &n, e));
		if (!n)
			return refuse_byte(r, "a value", e);
		consume(r, n);
	}
}

static int expect_end(struct records *r, struct err *e)
{
	int rc = skip_space(r, e);
	if (rc > 0)
		return refuse_byte(r, "the end of the file", e);
	r->done = true;
	return rc;
}

/* Whether the object at the beginning of a line ends on that line, and whether it has a list
 * `data` itself. */
static void look_at_line(const char *s, size_t n, bool *closes_p, bool *data_p)
{
	size_t depth = 0;
	bool string = false;
	*closes_p = *data_p = false;
	for (size_t i = 0; i < n; i++) {
		if (string) {
			if (s[i] == '\\')
				i++;
			else if (s[i] == '"')
				string = false;
			continue;
		}
		if (s[i] == '"') {
			string = true;
			if (depth == 1 && n - i > 6 && !memcmp(s + i, "\"data\"", 6)) {
				size_t k = i + 6;
				while (k < n && (is_space(s[k]) || s[k] == ':'))
					k++;
				if (k < n && s[k] == '[' && memchr(s + i + 6, ':', k - i - 6))
					*data_p = true;
			}
		} else if (s[i] == '{' || s[i] == '[') {
			depth++;
		} else if ((s[i] == '}' || s[i] == ']') && depth && !--depth) {
			*closes_p = true;
			return;
		}
	}
}

/* Whether another object begins behind the first n bytes. */
static int object_follows(struct records *r, size_t n, bool *yes_p, struct err *e)
{
	int rc;
	while ((rc = ensure(r, n + 1, e)) > 0 && is_space(r->p[r->pos + n]))
		n++;
	*yes_p = rc > 0 && r->p[r->pos + n] == '{';
	return rc;
}

/* The file begins with an object: JSONL when the object ends on its line and has no list `data`, or
 * another follows, or it is damaged in a way that pretty-printed JSON never is; else a document. */
static int recognise_object(struct records *r, struct err *e)
{
	size_t n, nl;
	bool closes, data, more = false;
	TRY(line_length(r, &n, &nl, e));
	const char *s = r->p + r->pos;
	look_at_line(s, n, &closes, &data);
	if (closes && data)
		TRY(object_follows(r, n, &more, e));
	s = r->p + r->pos;
	while (n && is_space(s[n - 1]))
		n--;
	bool goes_on = !closes && nl && n && strchr("{[,:", s[n - 1]);
	r->form = (data && !more) || goes_on ? RECORDS_LIST : RECORDS_LINES;
	r->in_object = r->form == RECORDS_LIST;
	return 0;
}

static int table_names(struct records *r, struct err *e);

static int recognise(struct records *r, bool plain_ok, struct err *e)
{
	static const struct {
		const char *magic;
		size_t n;
		const char *what;
	} other[] = {
		{ "\xff\xfe", 2, "UTF-16 text; save it as UTF-8" },
		{ "\xfe\xff", 2, "UTF-16 text; save it as UTF-8" },
		{ "\x1f\x8b", 2, "packed twice; unpack it first" },
		{ "\x28\xb5\x2f\xfd", 4, "packed twice; unpack it first" },
		{ "BZh", 3, "compressed with bzip2; unpack it first" },
		{ "\xfd"
		  "7zXZ",
		  5, "compressed with xz; unpack it first" },
		{ "PK\x03\x04", 4, "a zip archive; unpack it first" },
		{ "ARROW1", 6, "an Arrow file; convert it to JSONL or Parquet" },
		{ "\xff\xff\xff\xff", 4, "an Arrow file; convert it to JSONL or Parquet" },
	};
	TRY(ensure(r, 6, e));
	if (r->end >= 4 && !memcmp(r->p, "PAR1", 4)) {
		r->form = RECORDS_PARQUET;
		return parquet_open(r->path, &r->parquet, e);
	}
	for (size_t i = 0; i < ARRAY_LEN(other); i++)
		if (r->end >= other[i].n && !memcmp(r->p, other[i].magic, other[i].n))
			return err_set(e, ERR_UNSUPPORTED, "%s: is %s", r->path, other[i].what);
	if (r->end >= 3 && !memcmp(r->p, "\xef\xbb\xbf", 3))
		r->pos = 3;

	size_t len = strlen(r->path);
	if (plain_ok && len > 4 && !strcmp(r->path + len - 4, ".txt")) {
		r->form = RECORDS_PLAIN;
		return 0;
	}
	bool tabs = stream_ends(r->path, ".tsv");
	if (tabs || stream_ends(r->path, ".csv")) {
		r->form = RECORDS_TABLE;
		r->csv.separator = tabs ? '\t' : ',';
		return table_names(r, e);
	}
	int rc = skip_space(r, e);
	if (rc <= 0)
		return rc < 0 ? rc
			      : err_set(e, ERR_INPUT,
					"%s: is empty; a dataset needs at least one record",
					r->path);
	char c = r->p[r->pos];
	if (c == '[') {
		r->form = RECORDS_LIST;
		return 0;
	}
	if (c == '{')
		return recognise_object(r, e);
	if (plain_ok) {
		r->form = RECORDS_PLAIN;
		return 0;
	}
	return err_set(e, ERR_INPUT,
		       "%s:%llu: neither JSON, JSONL, CSV nor Parquet (plain text is read with "
		       "'type: text')",
		       r->path, (unsigned long long)r->line);
}

int records_open(const char *path, bool plain_ok, struct records **r_p, struct err *e)
{
	struct records *r = mem_zalloc(sizeof *r);
	if (!r)
		return err_nomem(e, sizeof *r, "a reader");
	buf_init(&r->csv.names);
	buf_init(&r->csv.record);
	r->line = 1;
	r->path = mem_strdup(path);
	int rc = 0;
	rc = r->path ? stream_open(path, &r->in, e) : err_nomem(e, strlen(path), "a path");
	if (rc >= 0)
		rc = recognise(r, plain_ok, e);
	if (rc < 0) {
		records_close(r);
		return rc;
	}
	*r_p = r;
	return 0;
}

void records_close(struct records *r)
{
	if (!r)
		return;
	stream_close(r->in);
	parquet_close(r->parquet);
	csv_release(&r->csv);
	mem_free(r->path);
	mem_free(r->p);
	mem_free(r);
}

enum records_form records_form(const struct records *r) { return r->form; }

static int take_record(struct records *r, size_t n, struct record *rec_p)
{
	*rec_p = (struct record){
		.text = r->p + r->pos, .n = n, .number = ++r->number, .line = r->line
	};
	consume(r, n);
	return 1;
}

/* 1 and the length of the row of a table at `pos`, 0 at the end; empty lines are skipped. */
static int row_length(struct records *r, size_t *n_p, struct err *e)
{
	struct csv_scan s = { 0 };
	int rc;
	while ((rc = ensure(r, 1, e)) > 0 && strchr("\r\n", r->p[r->pos]) && r->p[r->pos])
		consume(r, 1);
	while (rc > 0) {
		size_t have = r->end - r->pos;
		rc = csv_length(&r->csv, &s, r->p + r->pos, have, r->eof, n_p, e);
		if (rc < 0)
			return err_prefix(e, "%s:%llu", r->path, (unsigned long long)r->line);
		if (rc)
			return rc;
		rc = ensure(r, have + 1, e);
		rc = rc < 0 ? rc : 1; /* at the end of the file the row ends too */
	}
	return rc;
}

static int table_names(struct records *r, struct err *e)
{
	size_t n;
	int rc = row_length(r, &n, e);
	if (!rc)
		return err_set(e, ERR_INPUT,
			       "%s: is empty; the first row of a table names its columns", r->path);
	TRY(rc);
	if (csv_row(&r->csv, r->p + r->pos, n, e) < 0)
		return err_prefix(e, "%s:%llu", r->path, (unsigned long long)r->line);
	if (r->csv.columns == 1 && strchr(r->csv.names.p, ';'))
		return err_set(e, ERR_INPUT,
			       "%s:%llu: the columns are separated by semicolons: save the table "
			       "with commas, or with tabs as .tsv",
			       r->path, (unsigned long long)r->line);
	consume(r, n);
	return 0;
}

static int next_row(struct records *r, struct record *rec_p, struct err *e)
{
	size_t n;
	int rc = row_length(r, &n, e);
	if (rc <= 0)
		return rc;
	if (csv_row(&r->csv, r->p + r->pos, n, e) < 0)
		return err_prefix(e, "%s:%llu", r->path, (unsigned long long)r->line);
	*rec_p = (struct record){ .text = r->csv.record.p,
				  .n = r->csv.record.n,
				  .number = ++r->number,
				  .line = r->line };
	consume(r, n);
	return 1;
}

static int next_parquet(struct records *r, struct record *rec_p, struct err *e)
{
	const char *text;
	size_t n;
	int rc = parquet_next(r->parquet, &text, &n, e);
	if (rc > 0) /* at the end the last one stays, as in other forms */
		*rec_p = (struct record){ .text = text, .n = n, .line = 1, .number = ++r->number };
	return rc;
}

static int next_line(struct records *r, struct record *rec_p, struct err *e)
{
	for (;;) {
		size_t n, nl;
		TRY(line_length(r, &n, &nl, e));
		const char *s = r->p + r->pos;
		size_t blank = 0;
		while (blank < n && is_space(s[blank]))
			blank++;
		if (blank < n) {
			take_record(r, n, rec_p);
			consume(r, nl);
			return 1;
		}
		if (!nl) {
			r->done = true;
			return 0;
		}
		consume(r, n + 1);
	}
}

static int next_value(struct records *r, struct record *rec_p, struct err *e)
{
	if (!r->began) {
		r->began = true;
		if (r->in_object) {
			consume(r, 1); /* '{' */
			int rc = find_data(r, true, true, e);
			if (rc < 0)
				return rc;
			if (!rc)
				return err_set(e, ERR_INPUT,
					       "%s: holds one object without a list 'data'; "
					       "expected is one record a line, a list "
					       "of records, or "
					       "{\"data\": [...]}",
					       r->path);
		}
		consume(r, 1); /* '[' */
	}
	int rc = skip_space(r, e);
	if (rc < 0)
		return rc;
	bool closing = rc && r->p[r->pos] == ']';
	if (!closing && r->number) {
		TRY(need_byte(r, ',', "a ',' or a ']' after a record", e));
		rc = skip_space(r, e);
		if (rc < 0)
			return rc;
	}
	if (!rc)
		return refuse_byte(r, "a record", e);
	if (closing) {
		consume(r, 1);
		if (r->in_object)
			TRY(find_data(r, false, false, e));
		return expect_end(r, e);
	}
	size_t n;
	TRY(value_length(r, &n, e));
	if (!n)
		return refuse_byte(r, "a record", e);
	return take_record(r, n, rec_p);
}

static int read_whole(struct records *r, struct record *rec_p, struct err *e)
{
	int rc;
	do
		rc = ensure(r, r->end - r->pos + 1, e);
	while (rc > 0);
	if (rc < 0)
		return rc;
	r->done = true;
	return r->pos < r->end ? take_record(r, r->end - r->pos, rec_p) : 0;
}

int records_next(struct records *r, struct record *rec_p, struct err *e)
{
	if (r->done)
		return 0;
	switch (r->form) {
	case RECORDS_LINES:
		return next_line(r, rec_p, e);
	case RECORDS_LIST:
		return next_value(r, rec_p, e);
	case RECORDS_TABLE:
		return next_row(r, rec_p, e);
	case RECORDS_PARQUET:
		return next_parquet(r, rec_p, e);
	default:
		return read_whole(r, rec_p, e);
	}
}

void records_place(const struct records *r, const struct record *rec, uint64_t line_in, char *out,
		   size_t cap)
{
	unsigned long long line = rec->line + (line_in ? line_in - 1 : 0);
	if (r->form == RECORDS_PARQUET)
		snprintf(out, cap, "%s: row %llu", r->path, (unsigned long long)rec->number);
	else if (r->form == RECORDS_LIST)
		snprintf(out, cap, "%s: record %llu (line %llu)", r->path,
			 (unsigned long long)rec->number, line);
	else
		snprintf(out, cap, "%s:%llu", r->path, line);
}
