/* SPDX-License-Identifier: Apache-2.0 */
/* token.h - the inside of a tokenizer: what the kinds (tokenizer_<name>.c), the readers and the
 * chat templates share.
 *
 * A text is encoded in this order: added tokens are cut out of it (token_added.c); the text between
 * them is normalised (token_normal.c), cut into pre-tokens (token_split.c), and each pre-token is
 * merged into ids (token_merge.c). The post-processor adds ids at the beginning and the end. The
 * order is that of Hugging Face's `tokenizers` library, whose results are the reference.
 *
 * Everything here is filled while a tokenizer is made and only read afterwards; encoding has its
 * own data in struct token_run. */
#ifndef HS_DATA_TOKEN_H
#define HS_DATA_TOKEN_H

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "base/arena.h"
#include "base/buf.h"
#include "data/tokenizer.h"

#define TOKEN_IDS_MAX (1u << 20)   /* ids are below this */
#define TOKEN_BYTES_MAX (1u << 16) /* longest token */
#define TOKEN_MERGES_MAX (1u << 22)
#define TOKEN_ADDED_BYTES_MAX 512 /* longest added token */
#define TOKEN_TEXT_MAX (1u << 30) /* longest text in one call */

/* ---- text to number ------------------------------------------------------------------------- */

/* Keys are borrowed. A table with very long probes is refused, because only hostile keys
 * make one. */
struct strmap {
	struct strmap_slot {
		const char *key;
		uint32_t n;
		int32_t value; /* -1: free */
	} * slot;
	size_t mask;
};

int strmap_init(struct strmap *m, size_t items, struct err *e);
void strmap_release(struct strmap *m);
int32_t strmap_get(const struct strmap *m, const char *key, size_t n); /* -1: no such key */
/* *old_p is -1, or the value that the key already has (and keeps). */
int strmap_put(struct strmap *m, const char *key, size_t n, int32_t value, int32_t *old_p,
	       struct err *e);

/* ---- vocabulary ----------------------------------------------------------------------------- */

enum {
	TOKEN_EXISTS = 1,
	TOKEN_SPECIAL = 2,
	TOKEN_ADDED = 4,    /* matched in the text before all else */
	TOKEN_BYTE = 8,     /* <0xNN> of a vocabulary with byte fallback */
	TOKEN_OUTSIDE = 16, /* added, and not in the model's vocabulary: no text is merged to it */
};

struct token {
	const char *text;  /* as the file writes it */
	const char *bytes; /* what it decodes to */
	uint32_t ntext, nbytes;
	uint8_t flags;
};

struct added {
	int32_t id;
	bool special, single_word, lstrip, rstrip, normalized;
};

/* A tree over the bytes of the added tokens; node 0 is the root. */
struct added_tree {
	struct added_node {
		int32_t child, next; /* -1: none */
		int32_t token;       /* index into `added`, -1: none ends here */
		uint8_t byte;
	} * node;
	size_t n, cap;
	int32_t first[256]; /* children of the root */
};

/* ---- merges --------------------------------------------------------------------------------- */

/* One initial symbol or what it has been merged into: `len` bytes at `start` of the pre-token. id
 * -1: not in the vocabulary. */
struct symbol {
	int32_t id;
	uint32_t start, len;
	int32_t prev, next;
};

struct pair_entry {
	uint64_t pair; /* left id << 32 | right id; UINT64_MAX: free */
	uint32_t rank;
	int32_t id;
};

/* Either pairs of ids with their rank, or (by_score) any two neighbours whose joined text is a
 * token, the best score first. */
struct merges {
	struct pair_entry *pair;
	size_t mask;
	bool by_score;
	uint32_t *rank; /* by_score: of each id, the best score is 0; UINT32_MAX: never a result */
};

/* ---- normaliser, pre-tokenizer, post-processor ---------------------------------------------- */

enum normal_kind {
	NORMAL_NFC,
	NORMAL_NFD,
	NORMAL_NFKC,
	NORMAL_NFKD,
	NORMAL_PREPEND,
	NORMAL_REPLACE
};

struct normal_step {
	enum normal_kind kind;
	const char *from, *to; /* REPLACE from by to; PREPEND to */
	size_t nfrom, nto;
};

enum split_kind { SPLIT_REGEX, SPLIT_PREFIX_SPACE, SPLIT_METASPACE };
/* What becomes of a match: the behaviours of Split. */
enum split_how {
	SPLIT_ISOLATED,
	SPLIT_REMOVED,
	SPLIT_WITH_PREVIOUS,
	SPLIT_WITH_NEXT,
	SPLIT_CONTIGUOUS
};
enum metaspace_scheme { METASPACE_ALWAYS, METASPACE_FIRST, METASPACE_NEVER };

struct split_step {
	enum split_kind kind;
	pcre2_code *code;   /* REGEX */
	enum split_how how; /* REGEX */
	bool invert;        /* REGEX: what lies between matches counts as a match */
	char mark[8];       /* METASPACE */
	uint32_t nmark;
	enum metaspace_scheme scheme;
	bool split;
};

#define TOKEN_STEPS_MAX 16

struct tokenizer_kind;

struct tokenizer {
	const struct tokenizer_kind *kind;
	struct arena arena; /* all strings */
	struct token *tok;  /* by id */
	size_t ntok;
	/* the model's vocabulary and the added tokens, as the file writes them */
	struct strmap by_text;
	struct added *added;
	size_t nadded;
	struct added_tree raw, normal; /* added tokens matched before and after normalising */
	struct normal_step step[TOKEN_STEPS_MAX];
	size_t nstep;
	struct split_step split_step[TOKEN_STEPS_MAX];
	size_t nsplit;
	bool byte_level; /* the last of them are ByteLevel's */
	pcre2_general_context *pcre;
	struct merges merges;
	int32_t *head, *tail; /* of the post-processor */
	size_t nhead, ntail;
	int32_t bos, eos, pad, unk; /* -1: none */
	bool fuse_unk;
	/* bytebpe */
	int32_t byte_id[256]; /* of a single byte; -1: not in the vocabulary */
	bool ignore_merges;
	struct strmap by_bytes; /* ignore_merges: the model's vocabulary by what it decodes to */
	/* spm */
	bool byte_fallback;
	/* no token has a space after other text: words can be merged one by one */
	bool spaces_apart;
	bool decode_replace;   /* the mark of a space becomes a space */
	bool decode_bytes;     /* <0xNN> becomes the byte */
	bool decode_metaspace; /* the first token loses its marks */
	uint32_t decode_strip; /* spaces taken from the front of the text */
};

struct token_run;

struct tokenizer_kind {
	const char *name;
	const char *gguf_models[2]; /* tokenizer.ggml.model */
	/* Whether this kind reads that tokenizer.json. Asked in the order of tokenizer.def. */
	bool (*fits)(const json_t *doc);
	/* The model's own part, after vocabulary, normaliser, pre-tokenizer and merges have
	 * been read. */
	int (*from_json)(struct tokenizer *t, const json_t *doc, const char *where, struct err *e);
	/* The same from the KV pairs, after the vocabulary and the added tokens; it reads the
	 * merges too. */
	int (*from_gguf)(struct tokenizer *t, const json_t *kv, const char *where, struct err *e);
	/* Sets what each token decodes to, when all have been read. */
	int (*finish)(struct tokenizer *t, const char *where, struct err *e);
	/* A pre-token (valid UTF-8) to ids. */
	int (*word)(struct token_run *s, const char *text, size_t n);
	/* Bytes that are not UTF-8. */
	int (*bytes)(struct token_run *s, const char *text, size_t n);
};

#define TOKENIZER(name) extern const struct tokenizer_kind tokenizer_kind_##name;
#include "data/tokenizer.def"
#undef TOKENIZER
extern const struct tokenizer_kind *const tokenizer_kinds[]; /* the rows, then NULL */

struct tokenizer *token_alloc(void); /* empty; NULL when memory is out */

/* ---- reading -------------------------------------------------------------------------------- */

/* The pairs are those of Gemma 4: of SentencePiece's kind, with merges in place of scores. */
bool token_is_gemma4(const json_t *kv);

/* Makes room for ids [0, n). */
int token_table_init(struct tokenizer *t, size_t n, const char *where, struct err *e);
/* Copies the text. An id that is taken, or a text that already has another id, is an error; the
 * same pair again is not. */
int token_put(struct tokenizer *t, int64_t id, const char *text, size_t n, uint8_t flags,
	      const char *where, struct err *e);
/* in the arena, NUL behind; NULL when memory is out */
char *token_copy(struct tokenizer *t, const char *p, size_t n);

/* `a->id` must be in the table. Call token_added_done() after the last. */
int token_added_put(struct tokenizer *t, const struct added *a, struct err *e);
int token_added_done(struct tokenizer *t, struct err *e);

int merges_init(struct merges *m, size_t items, struct err *e);
int merges_put(struct merges *m, int32_t left, int32_t right, uint32_t rank, int32_t id,
	       struct err *e);
void merges_release(struct merges *m);
/* Reads a list of merges ("a b" or ["a", "b"]). */
int merges_read(struct tokenizer *t, const json_t *list, const char *where, struct err *e);

int token_normal_read(struct tokenizer *t, const json_t *normalizer, const char *where,
		      struct err *e);
int token_split_read(struct tokenizer *t, const json_t *pre_tokenizer, const char *where,
		     struct err *e);
int token_split_regex(struct tokenizer *t, const char *pattern, enum split_how how, bool invert,
		      bool trusted, const char *where, struct err *e);
extern const char token_gpt2_pattern[];
bool token_pattern_known(const char *pattern); /* one of the published ones */

/* What tokenizer.ggml.pre of a GGUF means. */
struct token_pre {
	const char *names;      /* space-separated */
	const char *pattern[4]; /* one after the other; NULL behind the last */
	bool ignore_merges, add_bos, nfc;
};
int token_pre_find(const json_t *kv, const char *where, const struct token_pre **pre_p,
		   struct err *e);

/* GPT-2's mapping of bytes to characters: the character of each byte, and back (-1: not one
 * of them). */
uint32_t token_byte_char(uint8_t byte);
int token_char_byte(uint32_t c);

/* ---- UTF-8 ---------------------------------------------------------------------------------- */

/* Length of the longest valid start of `s`. */
size_t utf8_valid(const char *s, size_t n);
/* The character at `s` (valid, n > 0) and its length. */
uint32_t utf8_char(const char *s, size_t *len_p);
size_t utf8_put(uint32_t c, char *out); /* at most 4 bytes */

/* ---- encoding ------------------------------------------------------------------------------- */

struct heap_entry {
	uint32_t rank;
	int32_t pos, id;
	uint32_t len;
};

struct token_run {
	const struct tokenizer *t;
	struct tokens *out;
	struct err *e;
	pcre2_match_data *match;
	pcre2_match_context *limits;
	struct buf normal[2];
	struct symbol *sym;
	size_t capsym;
	struct heap_entry *heap;
	size_t nheap, capheap;
	uint64_t work, work_most; /* of patterns that are not published ones */
	size_t work_at;
};

/* A part of the text in which special tokens are not recognised: a message, as opposed to the
 * template's text. Sorted, without overlaps. */
struct token_range {
	size_t begin, end;
};

/* Where the ids came from: one entry for each added token and each stretch between two of them. */
struct token_piece {
	size_t begin, end; /* bytes of the text */
	size_t first;      /* index of its first id in the output */
};
struct token_pieces {
	struct token_piece *p;
	size_t n, cap;
};

/* tokenizer_encode() without the post-processor. `pieces` may be NULL. */
int token_encode(const struct tokenizer *t, const char *text, size_t n, bool parse_special,
		 const struct token_range *literal, size_t nliteral, struct tokens *out,
		 struct token_pieces *pieces, struct err *e);
/* Length of `text` after normalising, without the text that the normaliser inserts at the front.
 * Invalid bytes count unchanged. */
int token_normal_length(const struct tokenizer *t, const char *text, size_t n, size_t *n_p,
			struct err *e);

/* Finds the next added token at or after *pos in [*pos, n): true with [*begin_p, *end_p) and its
 * index, *pos moved behind it. `last` is the end of the previous one: white space before it is not
 * used again. */
bool token_added_next(const struct tokenizer *t, const struct added_tree *tree, const char *text,
		      size_t n, bool parse_special, const struct token_range *literal,
		      size_t nliteral, size_t last, size_t *pos, size_t *begin_p, size_t *end_p,
		      int32_t *token_p);
/* Sets the limits for matching patterns in a text of n bytes. */
int token_limits(struct token_run *s, size_t n);
/* Runs the normaliser; *out_p stays valid until the next call. `front`: the text begins a stretch,
 * where Prepend applies. */
int token_normalize(struct token_run *s, const char *text, size_t n, bool front, const char **out_p,
		    size_t *n_p);
/* Cuts a normalised stretch into pre-tokens and hands each to the kind. `start`: it is at the
 * beginning of the whole text. */
int token_split(struct token_run *s, size_t step, const char *text, size_t n, bool start);
/* Room for `n` symbols in s->sym. */
int symbols_reserve(struct token_run *s, size_t n);
/* Merges s->sym[0..n) until no merge applies; the result is s->sym[0..*n_p) in order. */
int merge_symbols(struct token_run *s, const char *text, size_t n, size_t *n_p);

#endif
