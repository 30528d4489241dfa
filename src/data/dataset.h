/* SPDX-License-Identifier: Apache-2.0 */
/* dataset.h - training records from files, tokenized: the token ids of each example and which of
 * them are trained.
 *
 * Kinds are rows of dataset.def: alpaca, sharegpt, messages, completion (prompt/completion), text;
 * `auto` recognises a record by its keys. Files are read by records.h: JSON, JSONL, CSV, Parquet,
 * plain text, packed or not; once, front to end, with one record in memory at a time. A share of a
 * file (split: train[:10%]) needs the number of its records, so such a file is read twice. Every
 * error names file, line and key. */
#ifndef HS_DATA_DATASET_H
#define HS_DATA_DATASET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct err;
struct tokenizer;
struct chat_template;

/* Keys of records that may have other names. */
enum dataset_field {
	FIELD_INSTRUCTION,
	FIELD_INPUT,
	FIELD_OUTPUT,
	FIELD_SYSTEM,
	FIELD_MESSAGES,
	FIELD_TOOLS,
	FIELD_TEXT,
	FIELD_PROMPT, /* of preferences, as those up to the label */
	FIELD_CHOSEN,
	FIELD_REJECTED,
	FIELD_COMPLETION,
	FIELD_LABEL,
	FIELD_ROLE, /* of a turn */
	FIELD_CONTENT,
	FIELD_TRAIN,
	FIELD_COUNT,
};
extern const char *const dataset_field_key[FIELD_COUNT]; /* our names for them */

struct dataset_source {
	const char *path;  /* a file, a pattern or a folder: sources.h */
	const char *type;  /* row of dataset.def, or "auto"; "chat_template" is messages */
	const char *split; /* MAY: "train[:100]" */
	const char *const *data_files; /* MAY: files in the folder `path` */
	size_t ndata_files;
	const char *field[FIELD_COUNT]; /* what the file calls them; NULL: as we do */
	const char *roles; /* MAY: whose turns are trained, "user,assistant"; "": none; NULL:
			    * those of the assistant */
	/* MAY: text of a prompt, with {instruction}, {input} and {system} in it, and the text where
	 * there is no input; the records are then prompt and completion (`output`) */
	const char *format, *no_input_format, *system_format, *system_prompt;
	/* MAY: the same of preferences (user_defined.default): {prompt} and {system}, {chosen},
	 * {rejected}, {completion} stand in them */
	const char *prompt_format, *chosen_format, *rejected_format, *completion_format;
	/* how often each example is used in an epoch; a part of them (evenly spaced) where it is no
	 * whole number. 0 counts as 1 */
	double weight;
	bool held_out; /* only to evaluate; these come behind all others */
};

/* What preference training learns from (preference.h). */
enum prefer_data {
	PREFER_NONE,
	PREFER_PAIRS,  /* a chosen and a rejected answer to a prompt */
	PREFER_SINGLE, /* an answer, and whether it is wanted */
};

/* What is done with an example that is longer than sequence_len; texts are always divided. */
enum dataset_excess { EXCESS_TRUNCATE, EXCESS_DROP, EXCESS_RAISE };

struct dataset_options {
	const struct tokenizer *tok;
	const struct chat_template *chat; /* for alpaca, sharegpt, messages */
	/* longer examples are cut at the end (counted; kind text: split), or as `excess` says; at
	 * least 2 */
	int64_t sequence_len;
	bool train_on_inputs;  /* false: loss on answers only */
	bool skip_bad_records; /* false: the first bad record is an error */
	enum prefer_data prefer;
	enum dataset_excess excess;
	/* MAY: a folder that is there, where the tokens are kept in a file in place of memory, and
	 * used again (prepared.h); `identity` is all that tokens depend on beside these options,
	 * the sources and their files: tokenizer and template */
	const char *prepared, *identity;
};

/* One example: `n` ids; train[i] says whether predicting id[i] from the ids before it counts
 * (train[0] never does). Of preferences it holds the chosen and then the rejected sequence, with
 * PREFER_SINGLE one; those that are longer than sequence_len are not used. */
struct example {
	const int32_t *id;
	const uint8_t *train;
	uint32_t n;
	uint32_t trained; /* number of trained ids */
	/* of preferences: ids of the first sequence (else 0); where the answer begins in each of
	 * the two; whether a single one is wanted */
	uint32_t cut, answer[2];
	bool good;
	uint16_t source; /* which of those that were loaded */
};

struct dataset_stats {
	/* untrained: no trained token after cutting, or too long (EXCESS_DROP, preferences); not
	 * used */
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
size_t dataset_sources(const struct dataset *d);
enum prefer_data dataset_prefer(const struct dataset *d);
const struct dataset_stats *dataset_stats(const struct dataset *d);
/* A digest of all ids and marks (FNV-1a 64), kept in checkpoints: a resumed run must see the
 * same data. */
uint64_t dataset_digest(const struct dataset *d);
/* Whether the tokens are those that an earlier run left (options.prepared). */
bool dataset_was_prepared(const struct dataset *d);

#endif
