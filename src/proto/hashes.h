/* SPDX-License-Identifier: Apache-2.0 */
/* hashes.h - a table of content hashes, so that gigabytes are not hashed again at every start.
 *
 * The key of a hash is its source (a file by path, size, modification time and inode, or all model
 * files of a folder) and the form in which the tensor travels. A file that was changed within the
 * last seconds is not kept: it could change once more with the same time stamp. The table is
 * CACHE_DIR/hashes; damaged entries are ignored. */
#ifndef HS_PROTO_HASHES_H
#define HS_PROTO_HASHES_H

#include "proto/weights_blob.h"

#include <stdbool.h>

struct hashes;

struct hash_key {
	unsigned char id[BLOB_HASH];
	bool known; /* false: the source has no key, so nothing is found and nothing kept */
};

/* Never fails: without a table, or without memory, nothing is known. */
struct hashes *hashes_open(const char *cache_dir);
/* The key of `path` (a file or a folder of model files) as it is now. */
struct hash_key hashes_source(const char *path);
/* Of one tensor there, in the form that `h` describes. */
struct hash_key hashes_tensor(const struct hash_key *source, const struct blob_head *h);
bool hashes_find(const struct hashes *t, const struct hash_key *k, unsigned char hash_p[BLOB_HASH]);
void hashes_add(struct hashes *t, const struct hash_key *k, const unsigned char hash[BLOB_HASH]);
/* Writes what is new. NULL is allowed. */
void hashes_close(struct hashes *t);

#endif
