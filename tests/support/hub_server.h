/* SPDX-License-Identifier: Apache-2.0 */
/* hub_server.h - a small HTTP server on loopback that behaves like the hub: a list of files,
 * redirects to another port for large ones, ranges, 401 and 404, and mistakes that pass (429, 503,
 * a cut connection) or do not (a byte that is wrong). One repository of each kind, in a thread. */
#ifndef HS_TESTS_HUB_SERVER_H
#define HS_TESTS_HUB_SERVER_H

#include <stdbool.h>
#include <stddef.h>

struct hub_server {
	char url[64];
	/* what the next answers for files do, each counted down */
	int cut;      /* end in the middle */
	int busy;     /* 429 with Retry-After: 0 */
	int broken;   /* 503 */
	int no_range; /* 200 and the whole file for a range */
	bool wrong;   /* a byte of the file is changed */
	int drip;     /* the list comes byte by byte and does not end, as long as anybody reads */
	bool gated, private_, text, no_list_hash, bad_name;
	/* the list gives no sizes, or one of 2^50 bytes; answers that nobody asked for more of: 404
	 * with a text or with headers that do not end */
	bool no_size, huge, endless_text, endless_head;
	/* seen */
	int requests, files, ranges, tokens, foreign_tokens;
};

struct hub_server *hub_server_start(void);
void hub_server_stop(struct hub_server *s);
/* The large file's bytes. */
const char *hub_server_large(size_t *n_p);

#define HUB_COMMIT "0123456789abcdef0123456789abcdef01234567"

#endif
