/* SPDX-License-Identifier: Apache-2.0 */
/* A file of prepared tokens that somebody changed, with sums that fit: what is taken from it keeps
 * the promises of examples, and a file that does not is made again from the records. The first byte
 * says which file it is (1: preferences) and how it is changed: 2: the rest is the file behind the
 * key, else changes of four bytes each, {u16 place, u8 value, u8 how}; 4: the digest of
 * the tokens stays as it was. */
#include "base/err.h"
#include "base/open.h"
#include "data/batch.h"
#include "data/prepared.h"
#include "support/fake_tokenizer.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

enum { MOST = 1 << 16 };

/* As data/dataset.c keeps it. */
struct span {
	uint64_t at;
	uint32_t n, trained, cut, answer[2];
	uint8_t good; /* there a bool, which has two values */
	uint16_t source;
};

static struct made {
	char dir[64], records[96], path[256];
	uint8_t file[MOST];
	size_t n;
	uint64_t digest;
	struct dataset_options o;
	struct dataset_source src;
} made[2];

static const struct tokenizer tok;
static const struct chat_template chat = { .name = "fake" };

static void put_file(const char *path, const void *p, size_t n)
{
	unlink(path);
	FILE *f = fopen(path, "wb");
	if (!f || fwrite(p, 1, n, f) != n || fclose(f) != 0)
		abort();
}

static void tidy(void)
{
	for (int i = 0; i < 2; i++) {
		unlink(made[i].path);
		unlink(made[i].records);
		rmdir(made[i].dir);
	}
}

static void make(struct made *m, int kind)
{
	static const char *const text[] = {
		"{\"text\":\"first\"}\n{\"text\":\"the second\"}\n{\"text\":\"3\"}\n",
		"{\"prompt\":\"ask\",\"chosen\":\"yes\",\"rejected\":\"never\"}\n"
		"{\"prompt\":\"b\",\"chosen\":\"c\",\"rejected\":\"d\"}\n"
	};
	struct dataset *d;
	struct err e = { 0 };
	snprintf(m->dir, sizeof m->dir, "/dev/shm/hs-fuzz-%d-%d", (int)getpid(), kind);
	snprintf(m->records, sizeof m->records, "%s/records.jsonl", m->dir);
	if (mkdir(m->dir, 0700) < 0)
		abort();
	put_file(m->records, text[kind], strlen(text[kind]));
	m->o = (struct dataset_options){
		.tok = &tok, .chat = &chat, .sequence_len = 40, .prepared = m->dir
	};
	m->o.prefer = kind ? PREFER_PAIRS : PREFER_NONE;
	m->src = (struct dataset_source){ .path = m->records, .type = kind ? "auto" : "text" };
	if (dataset_load(&m->src, 1, &m->o, &d, &e) < 0)
		abort();
	m->digest = dataset_digest(d);
	dataset_free(d);
	DIR *list = opendir(m->dir);
	for (struct dirent *x; list && (x = readdir(list));)
		if (strstr(x->d_name, ".tokens"))
			snprintf(m->path, sizeof m->path, "%s/%s", m->dir, x->d_name);
	closedir(list);
	FILE *f = fopen(m->path, "rb");
	m->n = f ? fread(m->file, 1, MOST, f) : 0;
	if (!m->n || m->n == MOST)
		abort();
	fclose(f);
}

static uint64_t fnv1a(uint64_t h, const void *p, size_t n)
{
	for (const uint8_t *b = p, *end = b + n; b < end; b++)
		h = (h ^ *b) * 0x100000001b3ull;
	return h;
}

/* The sums of a file as the program would have written them; spans that lead out of it are left to
 * the reader. */
static void sum_up(uint8_t *file, size_t n, bool prefer, bool digest)
{
	struct prepared_head h;
	uint64_t sum = 0xcbf29ce484222325ull;
	if (n < PREPARED_HEAD)
		return;
	memcpy(&h, file, sizeof h);
	const uint64_t room = n - PREPARED_HEAD;
	if (h.bytes <= room && h.count <= (room - h.bytes) / sizeof(struct span) && digest) {
		for (uint64_t i = 0; i < h.count; i++) {
			struct span s;
			memcpy(&s, file + PREPARED_HEAD + h.bytes + i * sizeof s, sizeof s);
			if (s.at > h.bytes || (uint64_t)s.n * 5 > h.bytes - s.at)
				break;
			sum = fnv1a(sum, &s.n, sizeof s.n);
			sum = fnv1a(sum, file + PREPARED_HEAD + s.at, (size_t)s.n * 5);
			const uint32_t more[] = { s.cut, s.answer[0], s.answer[1], s.good };
			sum = prefer ? fnv1a(sum, more, sizeof more) : sum;
		}
		h.digest = sum;
	}
	h.check = 0;
	h.check = fnv1a(0xcbf29ce484222325ull, &h, sizeof h);
	memcpy(file, &h, sizeof h);
}

static void check_examples(const struct dataset *d, const struct dataset_options *o)
{
	uint64_t tokens = 0, trained = 0;
	for (size_t i = 0; i < dataset_count(d); i++) {
		const struct example x = dataset_get(d, i);
		uint32_t marked = 0;
		for (uint32_t k = 0; k < x.n; k++) {
			marked += x.train[k];
			if (x.id[k] < 0 || (size_t)x.id[k] >= tokenizer_vocab_size(&tok))
				abort();
		}
		if (x.n < 2 || x.n > o->sequence_len * (1 + (o->prefer != PREFER_NONE)) ||
		    x.train[0] || !marked || marked != x.trained || x.source)
			abort();
		if (o->prefer &&
		    (x.cut > o->sequence_len || x.n - x.cut > o->sequence_len || !x.answer[0] ||
		     x.answer[0] >= x.cut || !x.answer[1] || x.answer[1] >= x.n - x.cut))
			abort();
		tokens += x.n;
		trained += x.trained;
	}
	if (tokens != dataset_stats(d)->tokens || trained != dataset_stats(d)->trained)
		abort();
}

static void check_batches(const struct dataset *d, bool packing)
{
	struct batch_options o = { .sequence_len = 40,
				   .micro_batch_size = 2,
				   .accumulation = 2,
				   .sample_packing = packing };
	struct batches *b;
	struct err e = { 0 };
	if (batches_new(d, &o, &b, &e) < 0)
		abort();
	for (uint64_t i = 0; i < batches_per_epoch(b, 0); i++) {
		const struct microbatch *m;
		size_t nmb;
		if (batches_get(b, 0, i, &m, &nmb, &e) < 0)
			abort();
	}
	batches_free(b);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
	static uint8_t file[MOST];
	if (!made[0].n) {
		make(&made[0], 0);
		make(&made[1], 1);
		atexit(tidy);
	}
	if (n < 1)
		return 0;
	const struct made *m = &made[data[0] & 1];
	size_t size = m->n;
	memcpy(file, m->file, m->n);
	if (data[0] & 2) {
		const size_t head = offsetof(struct prepared_head, bytes);
		size = head + n - 1 < MOST ? head + n - 1 : MOST;
		memcpy(file + head, data + 1, size - head);
	} else {
		for (size_t i = 1; i + 4 <= n; i += 4) {
			const size_t at = (data[i] | data[i + 1] << 8) % size;
			if (data[i + 3] & 1) /* from the end: the spans */
				file[size - 1 - at] = data[i + 2];
			else if (data[i + 3] & 2 && at > 0)
				size = at;
			else
				file[at] = data[i + 2];
		}
	}
	sum_up(file, size, data[0] & 1, !(data[0] & 4));
	put_file(m->path, file, size);
	struct dataset *d;
	struct err e = { 0 };
	if (dataset_load(&m->src, 1, &m->o, &d, &e) < 0)
		abort();
	if (!dataset_was_prepared(d) && dataset_digest(d) != m->digest)
		abort();
	check_examples(d, &m->o);
	check_batches(d, data[0] & 8 && !(data[0] & 1));
	dataset_free(d);
	return 0;
}
