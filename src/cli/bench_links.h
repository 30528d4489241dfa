/* SPDX-License-Identifier: Apache-2.0 */
/* bench_links.h - the rows of `heteroshard bench` about links: on this machine, or between two. */
#ifndef HS_CLI_BENCH_LINKS_H
#define HS_CLI_BENCH_LINKS_H

#include <stdbool.h>
#include <stdint.h>

struct err;

struct bench_links {
	const char *serve, *to;      /* HOST:PORT, one of the two */
	const char *peer, *key_file; /* NULL: raw TCP only; where keygen puts it */
	bool plain;                  /* links without encryption too */
	int64_t connections;         /* of a link in the row "tls xN" */
};

int bench_links_here(bool json, struct err *e);
int bench_links_between(const struct bench_links *o, bool json, struct err *e);

#endif
