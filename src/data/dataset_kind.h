/* SPDX-License-Identifier: Apache-2.0 */
/* dataset_kind.h - a kind of record: a row of dataset.def and the file dataset_<name>.c
 * that defines `dataset_kind_<name>`.
 *
 * A kind recognises its records by their keys and appends the record's token ids and
 * marks to an encoding. Its messages begin with the key ("output: is missing"); file and line are
 * put before them by dataset.c. */
#ifndef HS_DATA_DATASET_KIND_H
#define HS_DATA_DATASET_KIND_H

#include "base/arena.h"
#include "base/json.h"
#include "data/chat.h"
#include "data/dataset.h"
#include "data/tokenizer.h"

/* One record while it is encoded. `ids` and `train` have the same length when the kind
 * has returned. */
struct encoding {
	const struct dataset_options *o;
	struct tokens ids, train; /* train: 0 or 1 for each id */
	struct arena scratch;     /* emptied before each record */
	struct chat_message *msg; /* the turns so far, see turns.h */
	size_t nmsg, msg_cap;
	bool marked;         /* a turn has its own mark whether it is trained */
	unsigned roles;      /* a bit for each chat_role whose other turns are trained */
	const json_t *tools; /* of the record, or NULL */
	json_t *own_tools;   /* the same where they were a text */
	const json_t *args;  /* of the record, for the chat template, or NULL */
	/* of preferences, as in struct example */
	uint32_t cut, answer[2];
	bool good;
};

struct dataset_kind {
	const char *name;
	const char *keys; /* the keys by which it is recognised, for messages */
	/* a record longer than sequence_len becomes several examples instead of being cut */
	bool split;
	bool (*match)(const json_t *rec); /* MUST; rec is an object */
	int (*encode)(struct encoding *x, const json_t *rec, struct err *e); /* MUST */
	/* MAY: the text of a file that is not JSON */
	int (*plain)(struct encoding *x, const char *text, size_t n, struct err *e);
};

extern const struct dataset_kind dataset_kind_completion; /* also for preference.c */

/* Strings of a record. *text_p keeps what it was when an optional key is missing or null; with
 * `need` that is an error. */
int record_text(const json_t *rec, const char *key, bool need, const char **text_p, size_t *n_p,
		struct err *e);
bool record_has(const json_t *rec, const char *key); /* there and not null */
bool text_is_blank(const char *text, size_t n);

/* Appends the ids of text that no chat template writes: the name of a special token is that token,
 * as in Hugging Face's tokenizers; BOS as the model's tokenizer has it, but not twice. */
int encoding_text(const struct encoding *x, const char *text, size_t n, struct tokens *ids,
		  struct err *e);
/* Marks the ids that have no mark yet: makes `train` as long as `ids`. */
int encoding_mark(struct encoding *x, bool train, struct err *e);
/* Appends EOS with mark `train`, where the model has one and the ids do not end with it already. */
int encoding_end(struct encoding *x, bool train, struct err *e);

#endif
