/* SPDX-License-Identifier: Apache-2.0 */
/* hash.h - hashes by which a changed file is noticed: BLAKE2b, 256 bits, as hex.
 *
 * A file's hash is the hash of the hashes of its parts of 4 MiB, so that several threads can work
 * on a large one. An empty file has no part. */
#ifndef HS_FILE_HASH_H
#define HS_FILE_HASH_H

#include <stddef.h>
#include <stdint.h>

struct err;

enum { HASH_HEX = 65 }; /* with its NUL */

void hash_bytes(const void *p, size_t n, char hex[HASH_HEX]);
/* bytes_p MAY be NULL: how long the file is */
int hash_file(const char *path, char hex[HASH_HEX], uint64_t *bytes_p, struct err *e);

#endif
