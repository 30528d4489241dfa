/* SPDX-License-Identifier: Apache-2.0 */
/* json.h - reading and writing JSON with jansson, so that every error names file, line and key.
 *
 * Reading: json_parse_file() for whole documents; the json_get_* functions fetch a member of an
 * object. `where` is the beginning of an error message, usually the path of the file. A missing
 * member is an error for json_need_*, and leaves the output as it was for json_opt_*. Members with
 * a wrong type or outside [lo, hi] are errors for both; JSON null counts as missing. Strings stay
 * owned by the document. What Python writes is read as well: NaN and Infinity, which are null here,
 * and whole numbers of more than 64 bits, which are real ones (transformers' model_max_length).
 *
 * Memory: a value takes up to 240 bytes and may be written with two, so before a text is parsed its
 * values are counted, and a text that would take more than the caller allows is refused. The bytes
 * of its strings are not counted: they take at most twice the size of the text. */
#ifndef HS_BASE_JSON_H
#define HS_BASE_JSON_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

struct err;
struct buf;

/* What the values of a document may take, in bytes, where the caller names no other limit; a
 * model's configuration, from a file and from a coordinator; a line of a file of ours. */
#define JSON_MEMORY (64ull << 20)
#define JSON_MEMORY_CONFIG (16ull << 20)
#define JSON_MEMORY_LINE (1ull << 20)
/* Vocabularies of large models. */
#define JSON_MEMORY_TABLE (512ull << 20)

/* A file of at most `limit` bytes (0: 1 GiB). */
int json_parse_file(const char *path, uint64_t limit, json_t **doc_p, struct err *e);
int json_parse_text(const char *text, size_t n, const char *where, json_t **doc_p, struct err *e);
int json_parse_file_in(const char *path, uint64_t limit, uint64_t memory, json_t **doc_p,
		       struct err *e);
int json_parse_text_in(const char *text, size_t n, const char *where, uint64_t memory,
		       json_t **doc_p, struct err *e);

/* The members of an object, one value in memory at a time (json_each.c): for tables that would be
 * large as a whole. Each value may take `memory`; whether a key stands twice is for the caller. `v`
 * is borrowed (json_incref() keeps it), as is `key`. */
typedef int (*json_each_fn)(void *ctx, const char *key, json_t *v, struct err *e);
int json_each(const char *text, size_t n, const char *where, uint64_t memory, json_each_fn fn,
	      void *ctx, struct err *e);

/* Bytes that the values of a text take when it is parsed, at most, without the text of its strings;
 * any text, valid JSON or not. */
uint64_t json_memory(const char *text, size_t n);
int json_check_memory(const char *text, size_t n, const char *where, uint64_t memory,
		      struct err *e);

/* json_loadb() with that, without a key twice, with NUL in texts; the text's memory was checked. */
json_t *json_load_python(const char *text, size_t n, size_t flags, json_error_t *je);

const char *json_kind_name(const json_t *v); /* "a string", for messages; NULL: "missing" */

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

/* Appends `s` as a JSON string with its quotes; invalid UTF-8 becomes U+FFFD, and what a terminal
 * would obey is written as \uXXXX, which means the same. */
void json_quote(struct buf *b, const char *s, size_t n);
/* A number as short as it can be and still read back the same; null for NaN and infinities. */
void json_number(struct buf *b, double v);

#endif
