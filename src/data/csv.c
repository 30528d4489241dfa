/* SPDX-License-Identifier: Apache-2.0 */
/* csv.c - see csv.h. */
#include "data/csv.h"

#include "base/err.h"
#include "base/json.h"
#include "data/token.h"

#include <string.h>

void csv_release(struct csv *c)
{
	buf_release(&c->names);
	buf_release(&c->record);
}

/* As csv_field() below reads them: a quote begins a quoted field only as its first character. Text
 * behind a closing quote is left to csv_row, which refuses it. */
static enum csv_state after(enum csv_state at, char separator, char c)
{
	if (at == CSV_QUOTED)
		return c == '"' ? CSV_CLOSED : CSV_QUOTED;
	if (c == separator)
		return CSV_START;
	return c == '"' && at != CSV_BARE ? CSV_QUOTED : CSV_BARE;
}

int csv_length(const struct csv *c, struct csv_scan *s, const char *p, size_t n, bool last,
	       size_t *n_p, struct err *e)
{
	for (; s->at < n; s->at++) {
		if (p[s->at] == '\n' && s->state != CSV_QUOTED) {
			*n_p = s->at + 1;
			return 1;
		}
		s->state = after(s->state, c->separator, p[s->at]);
	}
	if (!last)
		return 0;
	if (s->state == CSV_QUOTED)
		return err_set(e, ERR_INPUT, "a quoted field does not end (is the file cut off?)");
	*n_p = n;
	return 1;
}

int csv_field(char separator, const char *p, size_t n, size_t *i, struct buf *out, struct err *e)
{
	size_t k = *i;
	buf_reset(out);
	if (k < n && p[k] == '"') {
		for (k++; k < n && (p[k] != '"' || (k + 1 < n && p[k + 1] == '"')); k++) {
			buf_addc(out, p[k]);
			k += p[k] == '"';
		}
		k++;
		if (k < n && p[k] != separator)
			return err_set(e, ERR_INPUT,
				       "there is text behind the closing quote of a field");
	} else {
		while (k < n && p[k] != separator)
			k++;
		buf_add(out, p + *i, k - *i);
	}
	*i = k < n ? k + 1 : n + 1;
	return buf_ok(out, e);
}

static int names(struct csv *c, const char *p, size_t n, struct buf *text, struct err *e)
{
	size_t i = 0;
	do {
		if (c->columns >= CSV_COLUMNS)
			return err_set(e, ERR_INPUT, "more than %d columns", CSV_COLUMNS);
		TRY(csv_field(c->separator, p, n, &i, text, e));
		const size_t at = c->names.n;
		json_quote(&c->names, text->p, text->n);
		buf_addc(&c->names, 0);
		TRY(buf_ok(&c->names, e));
		for (const char *s = c->names.p; s < c->names.p + at; s += strlen(s) + 1)
			if (!strcmp(s, c->names.p + at))
				return err_set(e, ERR_INPUT, "two columns have the name %.60s", s);
		c->columns++;
	} while (i <= n);
	return 0;
}

static int record(struct csv *c, const char *p, size_t n, struct buf *text, struct err *e)
{
	const char *name = c->names.p;
	size_t i = 0, count = 0;
	buf_reset(&c->record);
	buf_addc(&c->record, '{');
	do {
		TRY(csv_field(c->separator, p, n, &i, text, e));
		if (count++ >= c->columns)
			break;
		buf_adds(&c->record, count > 1 ? "," : "");
		buf_adds(&c->record, name);
		buf_addc(&c->record, ':');
		json_quote(&c->record, text->p, text->n);
		name += strlen(name) + 1;
	} while (i <= n);
	if (count != c->columns)
		return err_set(e, ERR_INPUT, "%s%zu fields in a table of %zu columns",
			       count > c->columns ? "at least " : "", count, c->columns);
	buf_addc(&c->record, '}');
	return buf_ok(&c->record, e);
}

int csv_row(struct csv *c, const char *p, size_t n, struct err *e)
{
	struct buf text = BUF_INIT;
	if (n && p[n - 1] == '\n')
		n--;
	if (n && p[n - 1] == '\r')
		n--;
	const size_t good = utf8_valid(p, n);
	if (good < n)
		return err_set(e, ERR_INPUT,
			       "not UTF-8: byte 0x%02x at byte %zu of the row; save the table as "
			       "UTF-8",
			       (uint8_t)p[good], good + 1);
	int rc = c->columns ? record(c, p, n, &text, e) : names(c, p, n, &text, e);
	buf_release(&text);
	return rc;
}
