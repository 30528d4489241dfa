/* SPDX-License-Identifier: Apache-2.0 */
/* json.c - see json.h. */
#include "base/json.h"

#include "base/buf.h"
#include "base/err.h"
#include "base/mem.h"
#include "base/text.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What jansson 2.14 allocates on 64 bits, with the allocator's own bytes: an object is 72 bytes and
 * 8 buckets of 16, a list 40 and 8 places of 8, a string 32 and its text, a number 24; a member 57
 * and two buckets, which double as they grow while the old ones are still there; a place of a list
 * grows the same way. test_base_json.c compares the sum with what is allocated. */
enum { OBJECT = 240, LIST = 128, STRING = 88, NUMBER = 32, MEMBER = 136, PLACE = 32 };

uint64_t json_memory(const char *text, size_t n)
{
	uint64_t sum = STRING;
	bool string = false, number = false;
	for (size_t i = 0; i < n; i++) {
		char c = text[i];
		if (string) {
			i += c == '\\';
			string = c != '"';
			continue;
		}
		bool digit = c == '-' || (c >= '0' && c <= '9');
		switch (c) {
		case '"':
			string = true;
			sum += STRING;
			break;
		case '{':
			sum += OBJECT;
			break;
		case '[':
			sum += LIST + PLACE;
			break;
		case ',':
			sum += PLACE;
			break;
		case ':':
			sum += MEMBER;
			break;
		default:
			sum += digit && !number ? NUMBER : 0;
		}
		/* 1e-5 is one number */
		number = digit || (number && (c == '.' || c == '+' || (c | 32) == 'e'));
	}
	return sum;
}

int json_check_memory(const char *text, size_t n, const char *where, uint64_t memory, struct err *e)
{
	/* no text of n bytes can hold more than this */
	if (n < memory / OBJECT)
		return 0;
	uint64_t need = json_memory(text, n);
	if (need <= memory)
		return 0;
	return err_set(e, ERR_INPUT,
		       "%s: too many JSON values: they would take %llu MiB of memory, %llu are "
		       "allowed here",
		       where, (unsigned long long)(need >> 20), (unsigned long long)(memory >> 20));
}

/* The same text with null and real numbers (json.h). */
static void relax(const char *s, size_t n, struct buf *out)
{
	static const char *const none[] = { "NaN", "Infinity", "-Infinity" };
	bool string = false;
	for (size_t i = 0, len = 1; i < n; i += len) {
		size_t word = 0;
		len = string && s[i] == '\\' && i + 1 < n ? 2 : 1;
		string = string != (s[i] == '"');
		if (string || s[i] == '"') {
			buf_add(out, s + i, len);
			continue;
		}
		for (size_t k = 0; k < ARRAY_LEN(none); k++)
			if (n - i >= strlen(none[k]) && !memcmp(s + i, none[k], strlen(none[k])))
				word = strlen(none[k]);
		size_t digits = s[i] == '-';
		while (i + digits < n && s[i + digits] >= '0' && s[i + digits] <= '9')
			digits++;
		if (word)
			buf_adds(out, "null");
		else
			buf_add(out, s + i, digits ? digits : 1);
		len = word ? word : digits ? digits : 1;
		if (!word && digits > 18 && !(i + len < n && strchr(".eE", s[i + len])) &&
		    !(i && strchr(".eE+-0123456789", s[i - 1])))
			buf_adds(out, ".0");
	}
}

json_t *json_load_python(const char *text, size_t n, size_t flags, json_error_t *je)
{
	flags |= JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL;
	json_error_t again;
	struct buf b = BUF_INIT;
	json_t *doc = json_loadb(text, n, flags, je);
	if (!doc && (json_error_code(je) == json_error_numeric_overflow ||
		     json_error_code(je) == json_error_invalid_syntax)) {
		relax(text, n, &b);
		doc = b.failed ? NULL : json_loadb(b.p, b.n, flags, &again);
		buf_release(&b);
	}
	return doc;
}

int json_parse_text_in(const char *text, size_t n, const char *where, uint64_t memory,
		       json_t **doc_p, struct err *e)
{
	json_error_t je;
	TRY(json_check_memory(text, n, where, memory, e));
	json_t *doc = json_load_python(text, n, 0, &je);
	if (!doc)
		return err_set(e, ERR_INPUT, "%s:%d:%d: not valid JSON: %s", where, je.line,
			       je.column, je.text);
	*doc_p = doc;
	return 0;
}

int json_parse_text(const char *text, size_t n, const char *where, json_t **doc_p, struct err *e)
{
	return json_parse_text_in(text, n, where, JSON_MEMORY, doc_p, e);
}

int json_parse_file(const char *path, uint64_t limit, json_t **doc_p, struct err *e)
{
	return json_parse_file_in(path, limit, JSON_MEMORY, doc_p, e);
}

int json_parse_file_in(const char *path, uint64_t limit, uint64_t memory, json_t **doc_p,
		       struct err *e)
{
	struct buf b = BUF_INIT;
	TRY(buf_read_file(&b, path, limit, e));
	int rc = json_parse_text_in(b.p, b.n, path, memory, doc_p, e);
	buf_release(&b);
	return rc;
}

const char *json_kind_name(const json_t *v)
{
	if (!v)
		return "missing";
	switch (json_typeof(v)) {
	case JSON_OBJECT:
		return "an object";
	case JSON_ARRAY:
		return "a list";
	case JSON_STRING:
		return "a string";
	case JSON_INTEGER:
	case JSON_REAL:
		return "a number";
	case JSON_NULL:
		return "null";
	default:
		return "true or false";
	}
}

/* 1 and *v_p when the member is there, 0 when it is not. */
static int member(const json_t *o, const char *where, const char *key, bool need,
		  const json_t **v_p, struct err *e)
{
	if (!json_is_object(o))
		return err_set(e, ERR_INPUT, "%s: an object with the key '%s' was expected", where,
			       key);
	const json_t *v = json_object_get(o, key);
	if (v && !json_is_null(v)) {
		*v_p = v;
		return 1;
	}
	return need ? err_set(e, ERR_INPUT, "%s: the key '%s' is missing", where, key) : 0;
}

static int wrong(const json_t *v, const char *where, const char *key, const char *want,
		 struct err *e)
{
	return err_set(e, ERR_INPUT, "%s: '%s' must be %s, not %s", where, key, want,
		       json_kind_name(v));
}

static int get_int(const json_t *o, const char *where, const char *key, int64_t lo, int64_t hi,
		   bool need, int64_t *v_p, struct err *e)
{
	const json_t *v = NULL;
	int rc = member(o, where, key, need, &v, e);
	if (rc <= 0)
		return rc;
	if (!json_is_integer(v))
		return wrong(v, where, key, "an integer", e);
	int64_t x = json_integer_value(v);
	if (x < lo || x > hi)
		return err_set(e, ERR_INPUT, "%s: '%s' is %lld, allowed is %lld to %lld", where,
			       key, (long long)x, (long long)lo, (long long)hi);
	*v_p = x;
	return 0;
}

static int get_num(const json_t *o, const char *where, const char *key, double lo, double hi,
		   bool need, double *v_p, struct err *e)
{
	const json_t *v = NULL;
	int rc = member(o, where, key, need, &v, e);
	if (rc <= 0)
		return rc;
	if (!json_is_number(v))
		return wrong(v, where, key, "a number", e);
	double x = json_number_value(v);
	if (!(x >= lo && x <= hi))
		return err_set(e, ERR_INPUT, "%s: '%s' is %g, allowed is %g to %g", where, key, x,
			       lo, hi);
	*v_p = x;
	return 0;
}

static int get_str(const json_t *o, const char *where, const char *key, bool need, const char **v_p,
		   struct err *e)
{
	const json_t *v = NULL;
	int rc = member(o, where, key, need, &v, e);
	if (rc <= 0)
		return rc;
	if (!json_is_string(v))
		return wrong(v, where, key, "a string", e);
	*v_p = json_string_value(v);
	return 0;
}

int json_need_int(const json_t *o, const char *w, const char *k, int64_t lo, int64_t hi,
		  int64_t *v_p, struct err *e)
{
	return get_int(o, w, k, lo, hi, true, v_p, e);
}

int json_opt_int(const json_t *o, const char *w, const char *k, int64_t lo, int64_t hi,
		 int64_t *v_p, struct err *e)
{
	return get_int(o, w, k, lo, hi, false, v_p, e);
}

int json_need_num(const json_t *o, const char *w, const char *k, double lo, double hi, double *v_p,
		  struct err *e)
{
	return get_num(o, w, k, lo, hi, true, v_p, e);
}

int json_opt_num(const json_t *o, const char *w, const char *k, double lo, double hi, double *v_p,
		 struct err *e)
{
	return get_num(o, w, k, lo, hi, false, v_p, e);
}

int json_need_str(const json_t *o, const char *w, const char *k, const char **v_p, struct err *e)
{
	return get_str(o, w, k, true, v_p, e);
}

int json_opt_str(const json_t *o, const char *w, const char *k, const char **v_p, struct err *e)
{
	return get_str(o, w, k, false, v_p, e);
}

int json_opt_bool(const json_t *o, const char *where, const char *key, bool *v_p, struct err *e)
{
	const json_t *v = NULL;
	int rc = member(o, where, key, false, &v, e);
	if (rc <= 0)
		return rc;
	if (!json_is_boolean(v))
		return wrong(v, where, key, "true or false", e);
	*v_p = json_is_true(v);
	return 0;
}

/* Length of the valid UTF-8 sequence at s, or 0. */
static size_t utf8_len(const unsigned char *s, size_t n)
{
	if (s[0] < 0x80)
		return 1;
	size_t len = s[0] >= 0xf0 ? 4 : s[0] >= 0xe0 ? 3 : 2;
	if (s[0] < 0xc2 || s[0] > 0xf4 || len > n)
		return 0;
	for (size_t i = 1; i < len; i++)
		if ((s[i] & 0xc0) != 0x80)
			return 0;
	if ((s[0] == 0xe0 && s[1] < 0xa0) || (s[0] == 0xed && s[1] > 0x9f) ||
	    (s[0] == 0xf0 && s[1] < 0x90) || (s[0] == 0xf4 && s[1] > 0x8f))
		return 0;
	return len;
}

/* A character of two or three bytes that a terminal would obey. */
static void quote_hidden(struct buf *b, const unsigned char *s, size_t len)
{
	unsigned c = len == 2 ? (s[0] & 0x1fu) << 6 | (s[1] & 0x3fu)
			      : (s[0] & 0x0fu) << 12 | (s[1] & 0x3fu) << 6 | (s[2] & 0x3fu);
	buf_addf(b, "\\u%04x", c);
}

void json_quote(struct buf *b, const char *text, size_t n)
{
	const unsigned char *s = (const unsigned char *)text;
	buf_addc(b, '"');
	for (size_t i = 0; i < n;) {
		size_t len = utf8_len(s + i, n - i);
		if ((len == 2 || len == 3) && !text_char(text + i, len, TEXT_PROSE))
			quote_hidden(b, s + i, len);
		else if (len > 1)
			buf_add(b, s + i, len);
		else if (!len)
			buf_adds(b, "\xef\xbf\xbd");
		else if (s[i] == '"' || s[i] == '\\')
			buf_addf(b, "\\%c", s[i]);
		else if (s[i] == '\n')
			buf_adds(b, "\\n");
		else if (s[i] == '\t')
			buf_adds(b, "\\t");
		else if (s[i] < 0x20 || s[i] == 0x7f)
			buf_addf(b, "\\u%04x", s[i]);
		else
			buf_addc(b, (char)s[i]);
		i += len ? len : 1;
	}
	buf_addc(b, '"');
}

void json_number(struct buf *b, double v)
{
	if (!isfinite(v)) {
		buf_adds(b, "null");
		return;
	}
	char s[32];
	for (int digits = 6; digits <= 17; digits++) {
		snprintf(s, sizeof s, "%.*g", digits, v);
		if (strtod(s, NULL) == v)
			break;
	}
	buf_adds(b, s);
}
