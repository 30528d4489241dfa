/* SPDX-License-Identifier: Apache-2.0 */
/* http.h - requests by libcurl: a small answer into memory, and files to disk, several at once. */
#ifndef HS_HUB_HTTP_H
#define HS_HUB_HTTP_H

#include "base/buf.h"

struct err;

struct http_options {
	const char *token; /* NULL: none */
	unsigned retry_ms;
	unsigned stall_s; /* slower than 1,000 bytes/s for so long: another try */
};

/* GET into `out`, at most `limit` bytes. */
int http_get(const char *url, const struct http_options *o, size_t limit, struct buf *out,
	     struct err *e);

/* POSTs a JSON text, one try of at most 10 s, without redirects; the answer is not kept, and one
 * that is no 2xx is an error. */
int http_post(const char *url, const char *json, struct err *e);

struct http_file {
	const char *url, *path, *name; /* name: for messages and progress */
	uint64_t size;
};
/* Fetches all, going on behind what `path` holds already. */
int http_files(const struct http_file *f, size_t n, const struct http_options *o, struct err *e);

#endif
