/* SPDX-License-Identifier: Apache-2.0 */
/* json_each.c - the members of one large object, one after the other (json_each() of json.h). The
 * ends of keys and values are found by counting brackets outside strings; jansson reads each. */
#include "base/json.h"

#include "base/buf.h"
#include "base/err.h"

#include <string.h>

struct rest {
	const char *begin, *p, *end;
	const char *where;
};

static int broken(const struct rest *r, const char *at, const char *what, struct err *e)
{
	return err_set(e, ERR_INPUT, "%s: byte %zu: not valid JSON: %s", r->where,
		       (size_t)(at - r->begin), what);
}

static void skip_space(struct rest *r)
{
	while (r->p < r->end && strchr(" \t\r\n", *r->p) && *r->p)
		r->p++;
}

static bool take(struct rest *r, char c)
{
	skip_space(r);
	if (r->p == r->end || *r->p != c)
		return false;
	r->p++;
	return true;
}

/* Bytes of the value at r->p, at least 1; 0 when it does not end. A number or a word ends where
 * something else begins. */
static size_t value_length(const struct rest *r)
{
	size_t depth = 0;
	bool string = false;
	for (const char *p = r->p; p < r->end; p++) {
		if (string) {
			if (*p == '\\') {
				p++;
			} else if (*p == '"') {
				string = false;
				if (!depth)
					return (size_t)(p - r->p) + 1;
			}
		} else if (*p == '"') {
			string = true;
		} else if (*p == '{' || *p == '[') {
			depth++;
		} else if (*p == '}' || *p == ']') {
			if (!depth || !--depth)
				return (size_t)(p - r->p) +
				       (p == r->p || *r->p == '{' || *r->p == '[');
		} else if (!depth && p > r->p && strchr(",: \t\r\n", *p)) {
			return (size_t)(p - r->p);
		}
	}
	return 0;
}

/* The value at r->p, which is then behind it. */
static int take_value(struct rest *r, uint64_t memory, json_t **v_p, struct err *e)
{
	json_error_t je;
	skip_space(r);
	size_t n = value_length(r);
	if (!n)
		return broken(r, r->p, "a value does not end", e);
	TRY(json_check_memory(r->p, n, r->where, memory, e));
	json_t *v =
		json_loadb(r->p, n, JSON_DECODE_ANY | JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &je);
	if (!v)
		return broken(r,
			      r->p + (je.position > 0 && (size_t)je.position <= n
					      ? (size_t)je.position - 1
					      : 0),
			      je.text, e);
	r->p += n;
	*v_p = v;
	return 0;
}

static int take_member(struct rest *r, uint64_t memory, json_each_fn fn, void *ctx, struct err *e)
{
	json_t *key = NULL, *v = NULL;
	skip_space(r);
	const char *at = r->p;
	if (at == r->end || *at != '"')
		return broken(r, at, "a key was expected", e);
	int rc = take_value(r, memory, &key, e);
	if (rc >= 0 && strlen(json_string_value(key)) != json_string_length(key))
		rc = broken(r, at, "a key with a NUL inside", e);
	if (rc >= 0 && !take(r, ':'))
		rc = broken(r, r->p, "a ':' was expected", e);
	if (rc >= 0)
		rc = take_value(r, memory, &v, e);
	if (rc >= 0)
		rc = fn(ctx, json_string_value(key), v, e);
	json_decref(key);
	json_decref(v);
	return rc;
}

int json_each(const char *text, size_t n, const char *where, uint64_t memory, json_each_fn fn,
	      void *ctx, struct err *e)
{
	struct rest r = { text, text, text + n, where };
	if (!take(&r, '{'))
		return err_set(e, ERR_INPUT, "%s: an object was expected", where);
	if (!take(&r, '}')) {
		do
			TRY(take_member(&r, memory, fn, ctx, e));
		while (take(&r, ','));
		if (!take(&r, '}'))
			return broken(&r, r.p, "a ',' or a '}' was expected", e);
	}
	skip_space(&r);
	return r.p == r.end ? 0 : broken(&r, r.p, "the end was expected", e);
}
