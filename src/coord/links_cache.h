/* SPDX-License-Identifier: Apache-2.0 */
/* links_cache.h - measured ways between two workers, kept on the coordinator for a day, because
 * networks change. A result in which no address, or not the configured one, was reached is kept for
 * minutes only.
 *
 * One file for each pair, named by a hash of both sides' keys (or names, without keys), addresses
 * and port. A file that is old, damaged or about other addresses is ignored. */
#ifndef HS_COORD_LINKS_CACHE_H
#define HS_COORD_LINKS_CACHE_H

#include "coord/links.h"

enum { LINKS_UNREACHABLE_MINUTES = 5 };

/* Rows [first, n) are filled in; false: not known. */
bool links_cache_read(const struct link_ends *s, struct link_table *t, size_t first);
void links_cache_write(const struct link_ends *s, const struct link_table *t, size_t first);

/* A table of the cached results of all machines' links; NULL: out of memory. links_free(). */
struct link_table *links_recall(const struct link_ends *s);

#endif
