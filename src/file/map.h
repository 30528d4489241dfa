/* SPDX-License-Identifier: Apache-2.0 */
/* map.h - a file mapped read-only, and the pages of it that are resident.
 *
 * Policy: the mapping is shared and never written, so releasing pages loses nothing: they are read
 * again from the page cache or the disk. When another program truncates a mapped file, reading it
 * sends SIGBUS to the process, as in every program that maps files; map_path_at() then says which
 * file it was (cli/cli.h: cli_name_lost_files()). */
#ifndef HS_FILE_MAP_H
#define HS_FILE_MAP_H

#include <stddef.h>
#include <stdint.h>

struct err;

struct file_map {
	const uint8_t *p;
	uint64_t size; /* bytes; p is NULL for an empty file */
};

int map_open(const char *path, struct file_map *m_p, struct err *e);
void map_close(struct file_map *m);
/* The pages under [p, p+n) leave the resident set, also those shared with neighbours. */
void map_drop(const struct file_map *m, const void *p, uint64_t n);

/* The path of the mapped file that holds this address, NULL: none. For signal handlers: it takes no
 * lock. */
const char *map_path_at(const void *address);

#endif
