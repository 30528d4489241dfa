/* SPDX-License-Identifier: Apache-2.0 */
/* array_table.c - see array_table.h. The file is read once to find its rows; then the place of
 * every 256th is known, and a row is found from the one before it. */
#include "data/array_table.h"

#include "base/err.h"
#include "base/json.h"
#include "base/mem.h"
#include "data/bytes.h"
#include "data/csv.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
	EVERY = 256,
	PART = 1 << 20,
	RECORD_MOST = 64 << 20,
	NAME_MOST = 256,
	WORDS_MOST = 1 << 16 /* labels */
};

struct column {
	char *name;
	uint64_t each; /* numbers in it */
};

struct table {
	struct array a;
	struct bytes b;
	struct csv csv;        /* separator 0: JSONL */
	struct column *column; /* in their order in a row of the array */
	size_t columns, columns_cap;
	int32_t *use; /* [fields] which column a field of the file is; -1: none */
	size_t fields, use_cap;
	uint64_t *place; /* of row k * EVERY */
	size_t places, places_cap;
	uint64_t next, next_at; /* a row, and where it begins */
	uint8_t *window;        /* [n] bytes of the file from `from` on */
	size_t cap;
	uint64_t from, n;
	struct buf field;
	char **word; /* [words] labels that are words, sorted: the number of one is its place */
	size_t words, words_cap;
	/* the file is read for the first time, and labels are found; one was a number */
	bool learns, numbers;
};

/* ---- records ---- */

/* At least `want` bytes from `at` on, or all that are left. */
static int load(struct table *t, uint64_t at, uint64_t want, struct err *e)
{
	const uint64_t left = t->b.size - at, n = want < left ? want : left;
	if (!mem_grow(&t->window, &t->cap, n + 1, 1))
		return err_nomem(e, n, t->a.path);
	t->n = 0;
	TRY(bytes_read(&t->b, at, t->window, n, e));
	t->window[n] = 0;
	t->from = at;
	t->n = n;
	return 0;
}

static int length(const struct table *t, struct csv_scan *s, const char *p, size_t n, bool last,
		  size_t *n_p, struct err *e)
{
	if (t->csv.separator)
		return csv_length(&t->csv, s, p, n, last, n_p, e);
	const char *end = n > s->at ? memchr(p + s->at, '\n', n - s->at) : NULL;
	s->at = n;
	*n_p = end ? (size_t)(end - p) + 1 : n;
	return end || last;
}

/* The record at *at, which moves behind it: its text without the line's end. 0 at the end. */
static int record_at(struct table *t, uint64_t *at, const char **p_p, size_t *n_p, struct err *e)
{
	struct csv_scan s = { 0 };
	size_t n = 0;
	uint64_t want = PART;
	int rc = 0;
	if (*at >= t->b.size)
		return 0;
	while (!rc) {
		if (*at < t->from || *at >= t->from + t->n || s.at)
			TRY(load(t, *at, want, e));
		const uint64_t have = t->from + t->n - *at;
		rc = length(t, &s, (const char *)t->window + (*at - t->from), have,
			    *at + have == t->b.size, &n, e);
		if (!rc && have >= RECORD_MOST)
			rc = err_set(e, ERR_INPUT, "a row has more than %d MiB", RECORD_MOST >> 20);
		want = have * 2 > PART ? have * 2 : PART;
		s.at = s.at ? s.at : 1; /* what is there is not enough */
	}
	if (rc < 0)
		return err_prefix(e, "%s: at byte %llu", t->a.path, (unsigned long long)*at);
	*p_p = (const char *)t->window + (*at - t->from);
	*at += n;
	n -= n && (*p_p)[n - 1] == '\n';
	n -= n && (*p_p)[n - 1] == '\r';
	*n_p = n;
	return 1;
}

/* The same, but for empty lines. */
static int row_at(struct table *t, uint64_t *at, uint64_t *began_p, const char **p_p, size_t *n_p,
		  struct err *e)
{
	int rc;
	do {
		*began_p = *at;
		rc = record_at(t, at, p_p, n_p, e);
	} while (rc > 0 && strspn(*n_p ? *p_p : "", " \t") >= *n_p);
	return rc;
}

/* ---- columns ---- */

static int add_column(struct table *t, const char *name, size_t n, uint64_t each, struct err *e)
{
	if (!mem_grow(&t->column, &t->columns_cap, t->columns + 1, sizeof *t->column) ||
	    !(t->column[t->columns].name = mem_strndup(name, n)))
		return err_nomem(e, n, "a column");
	t->column[t->columns++].each = each;
	t->a.each += each;
	if (t->a.each > ARRAY_WORDS_MOST)
		return err_set(e, ERR_INPUT, "%s: a row has more than %d numbers", t->a.path,
			       ARRAY_WORDS_MOST);
	return 0;
}

/* Where `name` stands in a list "a,b,c", from 0; -1: it does not. */
static int place_in(const char *list, const char *name)
{
	int k = 0;
	for (const char *p = list;; k++) {
		const size_t n = strcspn(p, ",");
		if (n == strlen(name) && !strncmp(p, name, n))
			return k;
		if (!p[n])
			return -1;
		p += n + 1;
	}
}

/* The columns of a wish, in its order; `each` of them 1 until rows say more. */
static int wished(struct table *t, const char *list, struct err *e)
{
	for (const char *p = list;;) {
		const size_t n = strcspn(p, ",");
		if (!n || n >= NAME_MOST)
			return err_set(e, ERR_USAGE, "%s: '%.200s' is no list of columns",
				       t->a.path, list);
		TRY(add_column(t, p, n, 1, e));
		if (!p[n])
			return 0;
		p += n + 1;
	}
}

/* The first row of a table. */
static int read_names(struct table *t, const char *p, size_t n, const char *list, struct err *e)
{
	const bool but = list && list[0] == '!';
	size_t i = 0, found = 0;
	if (list && !but)
		TRY(wished(t, list, e));
	do {
		TRY(csv_field(t->csv.separator, p, n, &i, &t->field, e));
		if (t->fields == CSV_COLUMNS)
			return err_set(e, ERR_INPUT, "%s: more than %d columns", t->a.path,
				       CSV_COLUMNS);
		if (!mem_grow(&t->use, &t->use_cap, t->fields + 1, sizeof *t->use))
			return err_nomem(e, t->fields * sizeof *t->use, "columns");
		int32_t *use = &t->use[t->fields++];
		*use = list ? place_in(list + but, t->field.p) : -1;
		if (!list || (but && *use < 0)) {
			*use = (int32_t)t->columns;
			TRY(add_column(t, t->field.p, t->field.n, 1, e));
		} else if (but) {
			*use = -1;
		}
		found += *use >= 0;
	} while (i <= n);
	for (size_t k = 0; list && !but && k < t->columns; k++) {
		size_t f = 0;
		while (f < t->fields && t->use[f] != (int32_t)k)
			f++;
		if (f == t->fields)
			return err_set(e, ERR_INPUT, "%s: has no column '%s'", t->a.path,
				       t->column[k].name);
	}
	if (found != t->columns || !found)
		return err_set(e, ERR_INPUT, "%s: a column is there twice, or none is left",
			       t->a.path);
	return 0;
}

/* ---- rows ---- */

static int refuse(const char *column, const char *why, struct err *e)
{
	return err_set(e, ERR_INPUT, "column '%.100s': %s", column, why);
}

/* ---- labels that are words ---- */

/* Where a word is, or belongs. */
static size_t place_of(const struct table *t, const char *s, bool *there_p)
{
	size_t low = 0, high = t->words;
	*there_p = false;
	while (low < high) {
		const size_t mid = low + (high - low) / 2;
		const int order = strcmp(t->word[mid], s);
		if (!order)
			*there_p = true;
		if (order < 0)
			low = mid + 1;
		else
			high = mid;
	}
	return low;
}

/* The number of a label. */
static int number_of(struct table *t, const char *s, double *v_p, struct err *e)
{
	bool there;
	const size_t at = place_of(t, s, &there);
	*v_p = (double)at;
	if (there)
		return 0;
	if (!t->learns || t->numbers)
		return err_set(e, ERR_INPUT, "'%.60s' is not a number", s);
	if (t->words == WORDS_MOST || strlen(s) >= NAME_MOST)
		return err_set(e, ERR_INPUT, "'%.60s': more than %d labels, or one is too long", s,
			       WORDS_MOST);
	if (!mem_grow(&t->word, &t->words_cap, t->words + 1, sizeof *t->word))
		return err_nomem(e, t->words * sizeof *t->word, "labels");
	char *copy = mem_strdup(s);
	if (!copy)
		return err_nomem(e, strlen(s), "labels");
	memmove(t->word + at + 1, t->word + at, (t->words - at) * sizeof *t->word);
	t->word[at] = copy;
	t->words++;
	return 0;
}

/* The number that a field holds, or that of the label that it is. */
static int field_value(struct table *t, const char *s, double *v_p, struct err *e)
{
	char *end;
	*v_p = strtod(s, &end);
	end += strspn(end, " \t");
	const bool number = end != s && !*end;
	if (number && t->words)
		return err_set(e, ERR_INPUT,
			       "'%.60s' is a number, and other rows have words (as '%.60s')", s,
			       t->word[0]);
	t->numbers |= number;
	return number ? 0 : number_of(t, s, v_p, e);
}

static int table_row(struct table *t, const char *p, size_t n, void *dst, uint64_t to,
		     struct err *e)
{
	size_t i = 0, f = 0;
	for (; i <= n; f++) {
		double v;
		TRY(csv_field(t->csv.separator, p, n, &i, &t->field, e));
		if (f >= t->fields || t->use[f] < 0)
			continue;
		if (field_value(t, t->field.p, &v, e) < 0)
			return err_prefix(e, "column '%.100s'", t->column[t->use[f]].name);
		if (!t->learns)
			TRY(array_put(&t->a, dst, to + (uint64_t)t->use[f], v, e));
	}
	return f == t->fields ? 0
			      : err_set(e, ERR_INPUT, "has %zu fields, the table has %zu columns",
					f, t->fields);
}

/* The numbers of a value, counted into *n_p, and where dst is not NULL written there while they are
 * below `most`. */
static int values(struct table *t, const json_t *v, void *dst, uint64_t to, uint64_t most,
		  uint64_t *n_p, struct err *e)
{
	if (json_is_array(v)) {
		for (size_t i = 0; i < json_array_size(v); i++)
			TRY(values(t, json_array_get(v, i), dst, to, most, n_p, e));
		return 0;
	}
	double number = json_is_boolean(v) ? json_is_true(v) : json_number_value(v);
	if (json_is_string(v) && (t->words || t->learns))
		TRY(number_of(t, json_string_value(v), &number, e));
	else if (!json_is_number(v) && !json_is_boolean(v))
		return err_set(e, ERR_INPUT, "is neither a number nor a list of numbers");
	else if (t->words)
		return err_set(e, ERR_INPUT, "is a number, and other rows have words (as '%.60s')",
			       t->word[0]);
	t->numbers |= !json_is_string(v);
	if (dst && *n_p < most && !t->learns)
		TRY(array_put(&t->a, dst, to + *n_p, number, e));
	++*n_p;
	return 0;
}

static int line_columns(struct table *t, const json_t *o, void *dst, uint64_t to, struct err *e)
{
	for (size_t k = 0; k < t->columns; k++) {
		struct column *c = &t->column[k];
		const json_t *v = json_object_get(o, c->name);
		uint64_t n = 0;
		if (!v)
			return refuse(c->name, "is not there", e);
		const int rc = values(t, v, dst, to, c->each, &n, e);
		if (rc < 0)
			return err_prefix(e, "column '%.100s'", c->name);
		if (!dst) {
			t->a.each += n - c->each;
			c->each = n;
		}
		if (n != c->each || !n || t->a.each > ARRAY_WORDS_MOST)
			return refuse(c->name,
				      "has another count of numbers than in the first "
				      "row, or none",
				      e);
		to += n;
	}
	return 0;
}

static int line_row(struct table *t, const char *p, size_t n, void *dst, uint64_t to, struct err *e)
{
	json_t *o;
	TRY(json_parse_text_in(p, n, t->a.path, JSON_MEMORY, &o, e));
	const int rc = json_is_object(o) ? line_columns(t, o, dst, to, e)
					 : err_set(e, ERR_INPUT, "is not a JSON object");
	json_decref(o);
	return rc;
}

/* Row `first` is the next one. */
static int seek(struct table *t, uint64_t first, struct err *e)
{
	const char *p;
	size_t n;
	uint64_t began;
	if (t->next > first || t->next / EVERY != first / EVERY) {
		t->next = first / EVERY * EVERY;
		t->next_at = t->place[first / EVERY];
	}
	for (; t->next < first; t->next++)
		if (row_at(t, &t->next_at, &began, &p, &n, e) <= 0)
			return err_set(e, ERR_INPUT, "%s: changed while it was read", t->a.path);
	return 0;
}

static int read_table(struct array *a, uint64_t first, uint64_t n, void *dst, struct err *e)
{
	struct table *t = (struct table *)(void *)a;
	TRY(seek(t, first, e));
	for (uint64_t i = 0; i < n; i++, t->next++) {
		const char *p;
		size_t len;
		uint64_t began;
		int rc = row_at(t, &t->next_at, &began, &p, &len, e);
		if (!rc)
			rc = err_set(e, ERR_INPUT, "is not there any more");
		else if (rc > 0)
			rc = t->csv.separator ? table_row(t, p, len, dst, i * a->each, e)
					      : line_row(t, p, len, dst, i * a->each, e);
		if (rc < 0) {
			t->next = UINT64_MAX; /* found again from a place */
			return err_prefix(e, "%s: row %llu", a->path,
					  (unsigned long long)(first + i + 1));
		}
	}
	return 0;
}

static void close_table(struct array *a)
{
	struct table *t = (struct table *)(void *)a;
	for (size_t k = 0; k < t->columns; k++)
		mem_free(t->column[k].name);
	for (size_t k = 0; k < t->words; k++)
		mem_free(t->word[k]);
	mem_free(t->word);
	mem_free(t->column);
	mem_free(t->use);
	mem_free(t->place);
	mem_free(t->window);
	buf_release(&t->field);
	csv_release(&t->csv);
	bytes_close(&t->b);
}

static const struct array_kind kind = { .name = "table", .read = read_table, .close = close_table };

/* A row of labels, when it is read for the first time. */
static int learn(struct table *t, const char *p, size_t n, struct err *e)
{
	int32_t label;
	const int rc = t->csv.separator ? table_row(t, p, n, &label, 0, e)
					: line_row(t, p, n, &label, 0, e);
	return rc < 0 ? err_prefix(e, "%s: row %llu", t->a.path, (unsigned long long)t->a.rows + 1)
		      : 0;
}

/* Finds all rows. */
static int find_rows(struct table *t, const char *list, struct err *e)
{
	const char *p;
	size_t n;
	uint64_t at = 0, began;
	int rc;
	if (t->csv.separator) {
		TRY(load(t, 0, PART, e));
		if (t->n >= 3 && !memcmp(t->window, "\xef\xbb\xbf", 3))
			at = 3; /* a byte order mark */
		rc = row_at(t, &at, &began, &p, &n, e);
		if (!rc)
			rc = err_set(e, ERR_INPUT, "%s: is empty", t->a.path);
		if (rc > 0)
			rc = read_names(t, p, n, list, e);
		TRY(rc);
	} else {
		TRY(wished(t, list, e));
	}
	t->learns = t->a.whole && t->columns == 1;
	while ((rc = row_at(t, &at, &began, &p, &n, e)) > 0) {
		if (!t->csv.separator && !t->a.rows)
			TRY(line_row(t, p, n, NULL, 0, e));
		t->learns &= t->a.each == 1; /* of JSONL the first row says it */
		if (t->learns)
			TRY(learn(t, p, n, e));
		if (t->a.rows++ % EVERY)
			continue;
		if (!mem_grow(&t->place, &t->places_cap, t->places + 1, sizeof *t->place))
			return err_nomem(e, t->places * sizeof *t->place, t->a.path);
		t->place[t->places++] = began;
	}
	t->next = UINT64_MAX;
	t->learns = false;
	return rc;
}

int table_open(const char *path, char separator, const struct array_wish *w, struct array **a_p,
	       struct err *e)
{
	struct table *t = mem_zalloc(sizeof *t);
	if (!t)
		return err_nomem(e, sizeof *t, path);
	t->b.fd = -1;
	buf_init(&t->field);
	t->csv = (struct csv){ .separator = separator, .names = BUF_INIT, .record = BUF_INIT };
	int rc = array_init(&t->a, &kind, path, w, e);
	if (rc >= 0 && !separator && (!w->columns || w->columns[0] == '!'))
		rc = err_set(e, ERR_USAGE, "%s: say which columns of its records are meant", path);
	if (rc >= 0)
		rc = bytes_open(&t->b, t->a.path, ARRAY_UNPACKED_MOST, e);
	if (rc >= 0)
		rc = find_rows(t, w->columns, e);
	if (rc < 0)
		array_close(&t->a);
	else
		*a_p = &t->a;
	return rc;
}
