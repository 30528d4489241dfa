/* SPDX-License-Identifier: Apache-2.0 */
/* hashes.c - see hashes.h. The table consists of entries of 72 bytes: key, hash, and 8 bytes of a
 * hash over both. */
#include "proto/hashes.h"

#include "base/buf.h"
#include "base/err.h"
#include "base/mem.h"
#include "base/os_calls.h"
#include "file/atomic.h"
#include "file/cache.h"

#include <dirent.h>
#include <limits.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

enum {
	CHECK = 8,
	ENTRY = 2 * BLOB_HASH + CHECK,
	ENTRIES_MOST = 1 << 16,
	FILES_MOST = 4096,
	SETTLED = 3 /* seconds */
};

struct hashes {
	char path[PATH_MAX];
	unsigned char *v; /* [n][ENTRY], the first `sorted` by key */
	size_t n, sorted, cap;
};

static void seal(unsigned char *entry)
{
	unsigned char h[BLOB_HASH];
	blob_hash(entry, (size_t)2 * BLOB_HASH, h);
	memcpy(entry + 2 * BLOB_HASH, h, CHECK);
}

static int by_key(const void *a, const void *b) { return memcmp(a, b, BLOB_HASH); }

struct hashes *hashes_open(const char *cache_dir)
{
	struct hashes *t = mem_zalloc(sizeof *t);
	struct err ignored = { 0 };
	struct buf b = BUF_INIT;
	char dir[PATH_MAX - 16];
	if (!t || cache_folder(cache_dir, "hashes", dir, sizeof dir, &ignored) < 0 ||
	    !cache_ready(dir, true)) {
		mem_free(t);
		return NULL;
	}
	snprintf(t->path, sizeof t->path, "%s/table", dir);
	if (cache_file_ready(t->path) &&
	    buf_read_file(&b, t->path, (size_t)ENTRIES_MOST * ENTRY, &ignored) >= 0 &&
	    mem_grow(&t->v, &t->cap, b.n ? b.n : 1, sizeof *t->v)) {
		for (size_t at = 0; at + ENTRY <= b.n; at += ENTRY) {
			unsigned char *e = t->v + t->n * ENTRY;
			memcpy(e, b.p + at, ENTRY);
			seal(e);
			t->n += !memcmp(e, b.p + at, ENTRY);
		}
		if (t->n)
			qsort(t->v, t->n, ENTRY, by_key);
		t->sorted = t->n;
	}
	buf_release(&b);
	return t;
}

/* ---- keys ---- */

static bool add_file(crypto_generichash_state *s, const char *path)
{
	struct stat st;
	char text[PATH_MAX + 128], whole[PATH_MAX];
	if (stat(path, &st) < 0 || !realpath(path, whole) ||
	    time(NULL) - os_modified(&st).tv_sec < SETTLED)
		return false;
	int n = snprintf(text, sizeof text, "%s\n%lld %lld %lld.%09ld\n", whole,
			 (long long)st.st_ino, (long long)st.st_size,
			 (long long)os_modified(&st).tv_sec, os_modified(&st).tv_nsec);
	crypto_generichash_update(s, (const unsigned char *)text, (unsigned long long)n);
	return true;
}

static int model_files(const struct dirent *f)
{
	size_t n = strlen(f->d_name);
	return (n > 12 && !strcmp(f->d_name + n - 12, ".safetensors")) ||
	       (n > 5 && !strcmp(f->d_name + n - 5, ".json"));
}

struct hash_key hashes_source(const char *path)
{
	struct hash_key k = { .known = false };
	struct stat st;
	crypto_generichash_state s;
	crypto_generichash_init(&s, NULL, 0, sizeof k.id);
	if (stat(path, &st) < 0)
		return k;
	if (!S_ISDIR(st.st_mode)) {
		k.known = add_file(&s, path);
	} else {
		struct dirent **f = NULL;
		int n = scandir(path, &f, model_files, alphasort);
		k.known = n > 0 && n <= FILES_MOST;
		for (int i = 0; i < n; i++) {
			char one[PATH_MAX];
			k.known = k.known &&
				  snprintf(one, sizeof one, "%s/%s", path, f[i]->d_name) <
					  (int)sizeof one &&
				  add_file(&s, one);
			free(f[i]);
		}
		free(f);
	}
	crypto_generichash_final(&s, k.id, sizeof k.id);
	return k;
}

struct hash_key hashes_tensor(const struct hash_key *source, const struct blob_head *h)
{
	struct hash_key k = { .known = source->known };
	char text[512];
	crypto_generichash_state s;
	int n = snprintf(text, sizeof text, "%d %s %d %d %d %u %d %lld %lld %llu", BLOB_VERSION,
			 h->name, h->nf4, h->doubled, h->dtype, h->block, h->ndim,
			 (long long)h->shape[0], (long long)h->shape[1],
			 (unsigned long long)h->bytes);
	crypto_generichash_init(&s, NULL, 0, sizeof k.id);
	crypto_generichash_update(&s, source->id, sizeof source->id);
	crypto_generichash_update(&s, (const unsigned char *)text, (unsigned long long)n);
	crypto_generichash_final(&s, k.id, sizeof k.id);
	return k;
}

/* ---- the table ---- */

bool hashes_find(const struct hashes *t, const struct hash_key *k, unsigned char hash[BLOB_HASH])
{
	if (!t || !k->known || !t->sorted)
		return false;
	const unsigned char *e = bsearch(k->id, t->v, t->sorted, ENTRY, by_key);
	if (e)
		memcpy(hash, e + BLOB_HASH, BLOB_HASH);
	return e != NULL;
}

void hashes_add(struct hashes *t, const struct hash_key *k, const unsigned char hash[BLOB_HASH])
{
	if (!t || !k->known || t->n - t->sorted >= ENTRIES_MOST / 2 ||
	    !mem_grow(&t->v, &t->cap, (t->n + 1) * ENTRY, sizeof *t->v))
		return;
	unsigned char *e = t->v + t->n++ * ENTRY;
	memcpy(e, k->id, BLOB_HASH);
	memcpy(e + BLOB_HASH, hash, BLOB_HASH);
	seal(e);
}

void hashes_close(struct hashes *t)
{
	struct err ignored = { 0 };
	if (!t)
		return;
	/* too many: keeps the new ones; an old one that is needed is computed again */
	size_t first = t->n > ENTRIES_MOST ? t->sorted : 0;
	if (t->n > t->sorted)
		atomic_write_file(t->path, t->v + first * ENTRY, (t->n - first) * ENTRY, &ignored);
	mem_free(t->v);
	mem_free(t);
}
