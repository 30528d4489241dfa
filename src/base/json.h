/* SPDX-License-Identifier: Apache-2.0 */
/* json.h - reading and writing JSON with jansson, so that every error names file, line and key.
 *
 * Reading: json_parse_file() for whole documents; the json_get_* functions fetch a member of an
 * object. `where` is the beginning of an error message, usually the path of the file. A
 * missing member is an error for json_need_*, and leaves the output as it was for json_opt_*.
 * Members with a wrong type or outside [lo, hi] are errors for both; JSON null counts as missing.
 * NaN and infinities do not exist in JSON. Strings stay owned by the document. */
#ifndef HS_BASE_JSON_H
#define HS_BASE_JSON_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

struct err;
struct buf;

int json_parse_file(const char *path, uint64_t limit, json_t **doc_p, struct err *e);
int json_parse_text(const char *text, size_t n, const char *where, json_t **doc_p, struct err *e);

int json_need_int(const json_t *o, const char *where, const char *key, int64_t lo, int64_t hi,
		  int64_t *v_p, struct err *e);
int json_opt_int(const json_t *o, const char *where, const char *key, int64_t lo, int64_t hi,
		 int64_t *v_p, struct err *e);
int json_need_num(const json_t *o, const char *where, const char *key, double lo, double hi,
		  double *v_p, struct err *e);
int json_opt_num(const json_t *o, const char *where, const char *key, double lo, double hi,
		 double *v_p, struct err *e);
int json_opt_bool(const json_t *o, const char *where, const char *key, bool *v_p, struct err *e);
int json_need_str(const json_t *o, const char *where, const char *key, const char **v_p,
		  struct err *e);
int json_opt_str(const json_t *o, const char *where, const char *key, const char **v_p,
		 struct err *e);

/* Appends `s` as a JSON string with its quotes; invalid UTF-8 becomes U+FFFD. */
void json_quote(struct buf *b, const char *s, size_t n);
/* A number as short as it can be and still read back the same; null for NaN and infinities. */
void json_number(struct buf *b, double v);

#endif
