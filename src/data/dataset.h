/* SPDX-License-Identifier: Apache-2.0 */
/* dataset.h - training records from files, tokenized: the token ids of each example and which of
 * them are trained.
 *
 * Kinds are rows of dataset.def: alpaca, sharegpt, messages, completion (prompt/completion), text;
 * `auto` recognises a record by its keys. Files: JSON (an array of objects, or {"data": [...]}) and
 * JSONL, by content; read once, front to end, with one record in memory at a time. A plain text
 * file (kind text, or the ending .txt) is one record. Every error names file, line and key. */
#ifndef HS_DATA_DATASET_H
#define HS_DATA_DATASET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct err;
struct tokenizer;
struct chat_template;

struct dataset_source {
	const char *path;
	const char *type; /* row of dataset.def, or "auto" */
};

struct dataset_options {
	const struct tokenizer *tok;
	const struct chat_template *chat; /* for alpaca, sharegpt, messages */
	/* longer examples are cut at the end (counted; kind text: split); at least 2 */
	int64_t sequence_len;
	bool train_on_inputs;  /* false: loss on answers only */
	bool skip_bad_records; /* false: the first bad record is an error */
};

/* One example: `n` ids; train[i] says whether predicting id[i] from the ids before it counts
 * (train[0] never does). */
struct example {
	const int32_t *id;
	const uint8_t *train;
	uint32_t n;
	uint32_t trained; /* number of trained ids */
};

struct dataset_stats {
	/* untrained: no trained token after cutting; not used */
	uint64_t records, skipped, truncated, untrained;
	uint64_t tokens, trained;
	char first_skipped[512]; /* why the first record was skipped */
};

struct dataset;

int dataset_load(const struct dataset_source *src, size_t nsrc, const struct dataset_options *o,
		 struct dataset **d_p, struct err *e);
void dataset_free(struct dataset *d);
size_t dataset_count(const struct dataset *d);
struct example dataset_get(const struct dataset *d, size_t i);
const struct dataset_stats *dataset_stats(const struct dataset *d);
/* A digest of all ids and marks (FNV-1a 64), kept in checkpoints: a resumed run must see the
 * same data. */
uint64_t dataset_digest(const struct dataset *d);

#endif
