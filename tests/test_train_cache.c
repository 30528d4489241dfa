/* SPDX-License-Identifier: Apache-2.0 */
/* test_train_cache.c - hashes that are remembered, and forgotten when their file changes; a cache
 * that is kept within its limit. */
#include "base/buf.h"
#include "base/err.h"
#include "base/log.h"
#include "base/mem.h"
#include "file/atomic.h"
#include "file/hash.h"
#include "job/base_hash.h"
#include "support/site.h"
#include "file/cache.h"
#include "proto/hashes.h"

#include <dirent.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

static char dir[64], model[96];

static void folder_make(void)
{
	snprintf(dir, sizeof dir, "/tmp/hs-cache-XXXXXX");
	assert_non_null(mkdtemp(dir));
	snprintf(model, sizeof model, "%s/model.gguf", dir);
}

static void folder_remove(void)
{
	struct err e = { 0 };
	assert_true(dir_remove(dir, &e) >= 0);
}

static void write_file(const char *path, const char *text, size_t n)
{
	struct err e = { 0 };
	if (atomic_write_file(path, text, n, &e) < 0)
		fail_msg("%s", e.msg);
}

/* Used and changed that many seconds ago. */
static void aged(const char *path, long used, long changed)
{
	static time_t now; /* the same age is the same time */
	if (!now)
		now = time(NULL);
	const struct timespec t[2] = { { .tv_sec = now - used }, { .tv_sec = now - changed } };
	assert_int_equal(utimensat(AT_FDCWD, path, t, 0), 0);
}

static bool known(const char *name, unsigned char hash[BLOB_HASH])
{
	struct hashes *t = hashes_open(dir);
	struct blob_head h = { .ndim = 1, .shape = { 8, 1 }, .bytes = 32 };
	const struct hash_key source = hashes_source(model);
	snprintf(h.name, sizeof h.name, "%s", name);
	const struct hash_key k = hashes_tensor(&source, &h);
	bool found = hashes_find(t, &k, hash);
	hashes_close(t);
	return found;
}

static void learn(const char *name, unsigned char value)
{
	unsigned char hash[BLOB_HASH];
	struct hashes *t = hashes_open(dir);
	struct blob_head h = { .ndim = 1, .shape = { 8, 1 }, .bytes = 32 };
	const struct hash_key source = hashes_source(model);
	snprintf(h.name, sizeof h.name, "%s", name);
	memset(hash, value, sizeof hash);
	const struct hash_key k = hashes_tensor(&source, &h);
	hashes_add(t, &k, hash);
	hashes_close(t);
}

static void hashes_of_what_has_not_changed(void **state)
{
	(void)state;
	unsigned char hash[BLOB_HASH];
	char other[128], table[128];
	folder_make();
	write_file(model, "one", 3);
	learn("a", 1);
	assert_false(known("a", hash)); /* so new that its time may not show the next change */
	aged(model, 0, 1000);
	learn("a", 1);
	learn("b", 2);
	assert_true(known("a", hash) && hash[0] == 1 && hash[BLOB_HASH - 1] == 1);
	assert_true(known("b", hash) && hash[0] == 2);
	assert_false(known("c", hash));

	aged(model, 0, 999); /* another time */
	assert_false(known("a", hash));
	aged(model, 0, 1000);
	assert_true(known("a", hash));
	snprintf(other, sizeof other, "%s/other", dir); /* another inode, all else the same */
	write_file(other, "two", 3);
	aged(other, 0, 1000);
	assert_int_equal(rename(other, model), 0);
	assert_false(known("a", hash));
	learn("a", 3);
	assert_true(known("a", hash) && hash[0] == 3);
	write_file(model, "longer", 6);
	aged(model, 0, 1000);
	assert_false(known("a", hash));
	unlink(model);
	assert_false(known("a", hash));

	/* an entry that is damaged or cut short is ignored, and can be learned again */
	write_file(model, "x", 1);
	aged(model, 0, 1000);
	learn("d", 4);
	snprintf(table, sizeof table, "%s/hashes/table", dir);
	for (int bit = 0; bit < 2; bit++) {
		struct buf b = BUF_INIT;
		struct err e = { 0 };
		assert_true(buf_read_file(&b, table, 0, &e) >= 0 && b.n % 72 == 0);
		for (size_t at = bit ? 0 : 40; at < b.n; at += 72)
			b.p[at] ^= 1;
		write_file(table, b.p, bit ? b.n - 5 : b.n);
		buf_release(&b);
		assert_false(known("d", hash));
		learn("d", 5);
		assert_true(known("d", hash) && hash[0] == 5);
	}
	folder_remove();
}

/* ---- somebody else's ---- */

static char logged[2][512];
static int lines;

static void keep_line(void *ctx, enum log_level level, const char *line)
{
	(void)ctx;
	if (level >= LOG_WARN && lines < 2)
		snprintf(logged[lines], sizeof logged[0], "%s", line);
	lines += level >= LOG_WARN;
}

static bool hash_is_kept(void)
{
	unsigned char hash[BLOB_HASH];
	return known("a", hash) && hash[0] == 7;
}

/* The hash of the model as the cache has it, which here is a forged one. */
static bool base_is_forged(void)
{
	char hex[BASE_HASH];
	struct err e = { 0 };
	if (base_hash(model, dir, hex, &e) < 0)
		fail_msg("%s", e.msg);
	return !strncmp(hex, "f0f0", 4);
}

/* Puts a wrong hash, with the right check, where the cache has the model's. */
static void forge_base(char path[256])
{
	char hex[BASE_HASH], all[256], key[128], text[300], check[BASE_HASH];
	struct err e = { 0 };
	if (base_hash(model, dir, hex, &e) < 0)
		fail_msg("%s", e.msg);
	snprintf(all, sizeof all, "%s/base", dir);
	DIR *d = opendir(all);
	assert_non_null(d);
	for (struct dirent *f; (f = readdir(d));)
		if (f->d_name[0] != '.')
			snprintf(key, sizeof key, "%.100s", f->d_name);
	closedir(d);
	snprintf(path, 256, "%.100s/%.100s", all, key);
	memset(hex, 'f', sizeof hex - 1);
	for (size_t i = 1; i + 1 < sizeof hex; i += 2)
		hex[i] = '0';
	snprintf(text, sizeof text, "%s%s", key, hex);
	hash_bytes(text, strlen(text), check);
	snprintf(text, sizeof text, "%s %s\n", hex, check);
	write_file(path, text, strlen(text));
}

/* What another user owns or may write is not used, be it the cache, a part of it or one file of it;
 * one line says so. */
static void what_others_may_change(void **state)
{
	(void)state;
	char table[128], base[256], part[96];
	static const struct {
		const char *what;
		mode_t mode;
		uid_t owner;
		const char *why;
	} row[] = { { "", 0720, 0, "can be written by other users (chmod go-w)" },
		    { "", 0702, 0, "can be written by other users (chmod go-w)" },
		    { "", 0700, 12345, "belongs to another user" },
		    { "/PART", 0770, 0, "can be written by other users (chmod go-w)" },
		    { "/PART", 0700, 12345, "belongs to another user" },
		    { "FILE", 0660, 0, "can be written by other users (chmod go-w)" },
		    { "FILE", 0606, 0, "can be written by other users (chmod go-w)" },
		    { "FILE", 0600, 12345, "belongs to another user" } };
	for (int b = 0; b < 2; b++)
		for (size_t i = 0; i < ARRAY_LEN(row); i++) {
			if (row[i].owner && geteuid() != 0)
				continue;
			folder_make();
			write_file(model, "some bytes", 10);
			aged(model, 0, 100);
			learn("a", 7);
			forge_base(base);
			snprintf(table, sizeof table, "%s/hashes/table", dir);
			snprintf(part, sizeof part, "%s/%s", dir, b ? "base" : "hashes");
			bool (*kept)(void) = b ? base_is_forged : hash_is_kept;
			assert_true(kept());
			const char *what = !row[i].what[0]         ? dir
					   : row[i].what[0] == '/' ? part
								   : (b ? base : table);
			assert_int_equal(chmod(what, row[i].mode), 0);
			if (row[i].owner)
				assert_int_equal(chown(what, row[i].owner, (gid_t)-1), 0);
			lines = 0;
			log_set_sink(keep_line, NULL, LOG_WARN);
			bool used = kept() || kept();
			log_set_sink(NULL, NULL, LOG_WARN);
			char want[512];
			snprintf(want, sizeof want, "%s %s: it is not used", what, row[i].why);
			if (used || lines != 1 || strcmp(logged[0], want) != 0)
				fail_msg("%d, %zu: used %d, %d lines, '%s'", b, i, used, lines,
					 logged[0]);
			folder_remove();
		}
}

/* New folders of the cache are only the user's, whatever the umask is. */
static void new_folders_are_private(void **state)
{
	(void)state;
	struct stat st;
	char path[128];
	mode_t old = umask(0);
	folder_make();
	snprintf(path, sizeof path, "%s/new/deep/hashes", dir);
	assert_true(cache_ready(path, true));
	while (strlen(path) > strlen(dir)) {
		assert_int_equal(stat(path, &st), 0);
		assert_int_equal(st.st_mode & 07777, 0700);
		*strrchr(path, '/') = 0;
	}
	umask(old);
	folder_remove();
}

static void kept_within_its_limit(void **state)
{
	(void)state;
	char path[8][128], sub[96];
	struct err e = { 0 };
	folder_make();
	for (int i = 0; i < 8; i++) {
		snprintf(sub, sizeof sub, "%s/%02x", dir, i / 2);
		assert_true(dir_make(sub, &e) >= 0);
		snprintf(path[i], sizeof path[i], "%s/file-%d", sub, i);
		write_file(path[i], "0123456789", 10);
		aged(path[i], 100 + (i * 3 % 8) * 10, 5000);
	}
	int mine = cache_hold(dir), other = cache_hold(dir);
	assert_true(mine >= 0 && other >= 0);
	cache_release(dir, mine, 20); /* the other one still works with it */
	for (int i = 0; i < 8; i++)
		assert_int_equal(access(path[i], F_OK), 0);
	cache_release(dir, other, 0);
	for (int i = 0; i < 8; i++)
		assert_int_equal(access(path[i], F_OK), 0);
	cache_used(path[5]); /* 3 * 5 % 8 = 7: it was the oldest */
	struct stat st;
	assert_true(stat(path[5], &st) == 0 && time(NULL) - st.st_mtim.tv_sec >= 5000);
	mine = cache_hold(dir);
	cache_release(dir, mine, 35);
	/* used: 5 just now, then 0, 3, 6 (0, 10, 20), 1 (30), ...: three fit */
	for (int i = 0; i < 8; i++)
		assert_int_equal(access(path[i], F_OK), i == 5 || i == 0 || i == 3 ? 0 : -1);
	folder_remove();
}

/* The coordinator's model is another one, of the same size: nothing of the old one may
 * be trained. */
static void a_model_that_changed(void **state)
{
	(void)state;
	struct site s;
	struct stat was, is;
	char file[400], table[400];
	site_make(&s);
	site_configuration(&s, "one", 0, "");
	site_configuration(&s, "two", 2, "");
	snprintf(file, sizeof file, "%s/model/model.safetensors", s.t.dir);
	snprintf(table, sizeof table, "%s/cache/hashes/table", s.t.dir);
	for (const char *const *f =
		     (const char *const[]){ "model.safetensors", "config.json", "tokenizer.json",
					    "tokenizer_config.json", NULL };
	     *f; f++) {
		char path[400];
		snprintf(path, sizeof path, "%s/model/%s", s.t.dir, *f);
		aged(path, 0, 1000);
	}
	for (int round = 0; round < 3; round++) {
		if (round == 2) {
			unsigned char v[4096];
			int fd = open(file, O_RDWR);
			assert_true(fd >= 0 && fstat(fd, &is) == 0 &&
				    pread(fd, v, sizeof v, is.st_size - 4096) == 4096);
			for (size_t i = 3; i < sizeof v; i += 8)
				v[i] ^= 0x80; /* of every other float32 the sign */
			assert_int_equal(pwrite(fd, v, sizeof v, is.st_size - 4096), 4096);
			close(fd);
			aged(file, 0, 900);
		}
		struct process p =
			site_start(&s, "train", "one.yaml", "overwrite_output_dir=true", NULL);
		must_succeed(&p);
		p = site_start(&s, "train", "two.yaml", "overwrite_output_dir=true", NULL);
		must_succeed(&p);
		same_result(&s, "one", "two", true);
		assert_int_equal(stat(table, round ? &is : &was), 0);
		/* nothing was hashed the second time, everything in the changed file the third */
		if (round)
			assert_true((is.st_ino == was.st_ino &&
				     is.st_mtim.tv_nsec == was.st_mtim.tv_nsec) == (round == 1));
	}
	tiny_remove(&s.t);
}

int main(int argc, char **argv)
{
	(void)argc;
	site_program(argv[0]);
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(hashes_of_what_has_not_changed),
		cmocka_unit_test(what_others_may_change),
		cmocka_unit_test(new_folders_are_private),
		cmocka_unit_test(kept_within_its_limit),
		cmocka_unit_test(a_model_that_changed),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
