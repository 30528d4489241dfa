/* SPDX-License-Identifier: Apache-2.0 */
/* dataset.c - see dataset.h. Reads the files record by record, lets the kind encode each, cuts it,
 * and keeps ids and marks one after the other, in memory or in a file. records.c finds where
 * records begin and end; the kinds interpret them. */
#include "data/dataset.h"

#include "base/err.h"
#include "base/json.h"
#include "base/log.h"
#include "base/mem.h"
#include "data/dataset_kind.h"
#include "data/fields.h"
#include "data/preference.h"
#include "data/prepared.h"
#include "data/records.h"
#include "data/sources.h"
#include "data/stream.h"
#include "data/turns.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <utf8proc.h>

struct span {
	uint64_t at;
	uint32_t n, trained, cut, answer[2];
	bool good;
	uint16_t source;
};

struct dataset {
	enum prefer_data prefer;
	size_t source; /* that is being loaded; at last how many there are */
	/* of each example its ids, its marks, and zeros up to a multiple of 4 bytes */
	const uint8_t *data;
	uint8_t *own, *mark; /* own: data, where it is in memory; mark: of one example */
	const struct span *ex;
	struct span *own_ex;
	size_t n, cap, mark_cap, count, ex_cap;
	uint64_t unmarked;    /* examples in which nothing is trained, cut or not */
	uint64_t same;        /* pairs whose two answers are the same */
	char first_same[512]; /* where the first of them is */
	bool to_file, again;
	struct prepared file;
	struct dataset_stats stats;
	uint64_t digest;
};

#define DATASET(name) extern const struct dataset_kind dataset_kind_##name;
#include "data/dataset.def"
#undef DATASET

static const struct dataset_kind *const kinds[] = {
#define DATASET(name) &dataset_kind_##name,
#include "data/dataset.def"
#undef DATASET
};

static void encoding_reset(struct encoding *x)
{
	x->ids.n = x->train.n = x->nmsg = 0;
	x->marked = false;
	x->tools = x->args = NULL;
	arena_reset(&x->scratch);
}

static void encoding_release(struct encoding *x)
{
	tokens_release(&x->ids);
	tokens_release(&x->train);
	arena_release(&x->scratch);
	json_decref(x->own_tools);
	mem_free(x->msg);
}

static int refuse_kind(const json_t *rec, struct err *e)
{
	char have[160] = "", known[200] = "";
	const char *key;
	json_t *v;
	json_object_foreach((json_t *)rec, key, v)
	{
		size_t n = strlen(have);
		snprintf(have + n, sizeof have - n, "%s%.32s", n ? ", " : "", key);
	}
	if (json_object_get(rec, "chosen") && json_object_get(rec, "rejected"))
		return err_set(
			e, ERR_INPUT,
			"preference data (chosen and rejected) needs 'rl: dpo' or another loss of "
			"preferences (docs/preferences.md); to learn the chosen answers only, "
			"write records with the keys 'prompt' and 'completion', completion being "
			"what is 'chosen'");
	for (size_t i = 0; i < ARRAY_LEN(kinds); i++) {
		size_t n = strlen(known);
		snprintf(known + n, sizeof known - n, "%s%s (%s)", n ? ", " : "", kinds[i]->name,
			 kinds[i]->keys);
	}
	return err_set(e, ERR_INPUT, "a record of no known kind, its keys: %s; known kinds: %s",
		       *have ? have : "none", known);
}

static const struct dataset_kind *recognise(const json_t *rec)
{
	for (size_t i = 0; i < ARRAY_LEN(kinds); i++)
		if (kinds[i]->match(rec))
			return kinds[i];
	return NULL;
}

static size_t round_up(size_t n) { return (n + 3) / 4 * 4; }

/* Keeps ids [at, at + n) of the encoding as an example. */
static int add_example(struct dataset *d, const struct encoding *x, size_t at, size_t n,
		       struct err *e)
{
	uint32_t trained = 0;
	for (size_t i = 1; i < n; i++)
		trained += x->train.id[at + i] != 0;
	if (!trained) {
		d->stats.untrained++;
		d->unmarked += !memchr(x->train.id, 1, x->train.n * sizeof *x->train.id);
		return 0;
	}
	const size_t marks = round_up(n), size = n * 4 + marks;
	if (!mem_grow(&d->mark, &d->mark_cap, marks, 1) ||
	    !mem_grow(&d->own_ex, &d->ex_cap, d->count + 1, sizeof *d->own_ex) ||
	    (!d->to_file && !mem_grow(&d->own, &d->cap, d->n + size, 1)))
		return err_nomem(e, (d->to_file ? 0 : d->n) + size, "the dataset's tokens");
	memset(d->mark, 0, marks);
	for (size_t i = 1; i < n; i++)
		d->mark[i] = x->train.id[at + i] != 0;
	if (d->to_file) {
		TRY(prepared_put(&d->file, x->ids.id + at, n * 4, e));
		TRY(prepared_put(&d->file, d->mark, marks, e));
	} else {
		memcpy(d->own + d->n, x->ids.id + at, n * 4);
		memcpy(d->own + d->n + n * 4, d->mark, marks);
	}
	memset(&d->own_ex[d->count], 0, sizeof *d->own_ex); /* they go into a file as they are */
	d->own_ex[d->count++] = (struct span){ .at = d->n,
					       .n = (uint32_t)n,
					       .trained = trained,
					       .cut = x->cut,
					       .answer = { x->answer[0], x->answer[1] },
					       .good = x->good,
					       .source = (uint16_t)d->source };
	d->n += size;
	d->stats.tokens += n;
	d->stats.trained += trained;
	return 0;
}

static int keep_cut(struct dataset *d, const struct encoding *x, bool split, struct err *e)
{
	size_t most = (size_t)x->o->sequence_len, n = x->ids.n;
	if (x->o->prefer) { /* as axolotl: what is too long is left out */
		const bool fits = x->cut <= most && n - x->cut <= most;
		d->stats.untrained += !fits;
		return fits ? add_example(d, x, 0, n, e) : 0;
	}
	if (!split && n > most && x->o->excess == EXCESS_RAISE)
		return err_set(e, ERR_INPUT,
			       "the record has %zu tokens, more than sequence_len %zu "
			       "(excess_length_strategy: raise)",
			       n, most);
	if (!split && n > most && x->o->excess == EXCESS_DROP) {
		d->stats.untrained++;
		return 0;
	}
	if (!split) {
		d->stats.truncated += n > most;
		return add_example(d, x, 0, n < most ? n : most, e);
	}
	/* A part begins with the last id of the previous part, so that each id but the first is
	 * predicted once. */
	for (size_t at = 0;; at += most - 1) {
		if (n - at <= most)
			return add_example(d, x, at, n - at, e);
		TRY(add_example(d, x, at, most, e));
	}
}

static int check_utf8(const char *text, size_t n, uint64_t *line_p, struct err *e)
{
	const utf8proc_uint8_t *s = (const utf8proc_uint8_t *)text;
	*line_p = 1;
	for (size_t i = 0; i < n;) {
		utf8proc_int32_t c;
		size_t left = n - i;
		utf8proc_ssize_t k =
			s[i] < 0x80 ? 1
				    : utf8proc_iterate(s + i, left < 4 ? (utf8proc_ssize_t)left : 4,
						       &c);
		if (k <= 0)
			return err_set(e, ERR_INPUT,
				       "not UTF-8: byte 0x%02x at byte %zu of the record", s[i],
				       i + 1);
		*line_p += s[i] == '\n';
		i += (size_t)k;
	}
	*line_p = 1;
	return 0;
}

/* Encodes one record. *line_p: the line inside the record that an error is about. */
static int encode_record(struct encoding *x, const struct dataset_source *src,
			 const struct dataset_kind *kind, enum records_form form,
			 const struct record *r, bool *split_p, uint64_t *line_p, struct err *e)
{
	struct preference_type prefer;
	TRY(check_utf8(r->text, r->n, line_p, e));
	encoding_reset(x);
	if (form == RECORDS_PLAIN) {
		*split_p = kind->split;
		return kind->plain(x, r->text, r->n, e);
	}
	json_t *doc;
	TRY(fields_parse(r->text, r->n, &doc, line_p, e));
	int rc;
	if (form == RECORDS_PARQUET)
		fields_drop_nulls(doc);
	if (!json_is_object(doc))
		rc = err_set(e, ERR_INPUT, "a record must be an object, not %s",
			     json_kind_name(doc));
	else if ((rc = fields_rename(src, doc, e)) < 0)
		;
	else if (x->o->prefer)
		rc = preference_type(src, &prefer, e) < 0
			     ? e->code
			     : preference_encode(x, src, &prefer, doc, e);
	else if (!kind && !(kind = recognise(doc)))
		rc = refuse_kind(doc, e);
	else if (kind == &dataset_kind_completion && dataset_kind_text.match(doc) &&
		 !json_object_get(doc, "prompt")) /* axolotl's `completion` */
		rc = (kind = &dataset_kind_text)->encode(x, doc, e);
	else
		rc = kind->encode(x, doc, e);
	json_decref(doc);
	if (rc >= 0 && x->ids.n != x->train.n)
		rc = err_set(e, ERR_INTERNAL, "dataset kind %s: %zu ids but %zu marks",
			     kind ? kind->name : "preference", x->ids.n, x->train.n);
	if (rc >= 0)
		*split_p = kind && kind->split;
	return rc;
}

static bool same_answers(const struct encoding *x)
{
	return x->o->prefer == PREFER_PAIRS && x->ids.n == 2 * (size_t)x->cut &&
	       !memcmp(x->ids.id, x->ids.id + x->cut, x->cut * sizeof *x->ids.id);
}

/* Records [lo, hi) of a source, counted over its files. */
struct range {
	uint64_t at, lo, hi;
};

static int load_file(struct dataset *d, struct encoding *x, const struct dataset_source *src,
		     const char *path, const struct dataset_kind *kind, struct range *range,
		     struct err *e)
{
	const struct dataset_options *o = x->o;
	const struct dataset_kind *plain_kind = kind;
	uint64_t used = 0;
	if (!kind && stream_ends(path, ".txt"))
		plain_kind = &dataset_kind_text;
	struct records *r;
	TRY(records_open(path, plain_kind && plain_kind->plain, &r, e));
	bool plain = records_form(r) == RECORDS_PLAIN;
	struct record rec = { .n = 0 };
	uint64_t skipped = d->stats.skipped;
	int rc = 0;
	while (range->at < range->hi && (rc = records_next(r, &rec, e)) > 0) {
		bool split = false;
		uint64_t line;
		char place[512];
		if (range->at++ < range->lo)
			continue;
		used++;
		d->stats.records++;
		rc = encode_record(x, src, plain ? plain_kind : kind, records_form(r), &rec, &split,
				   &line, e);
		if (rc >= 0 && same_answers(x) && !d->same++)
			records_place(r, &rec, 1, d->first_same, sizeof d->first_same);
		if (rc >= 0)
			rc = keep_cut(d, x, split, e);
		if (rc >= 0)
			continue;
		records_place(r, &rec, line, place, sizeof place);
		err_prefix(e, "%s", place);
		if (!o->skip_bad_records || (rc != ERR_INPUT && rc != ERR_UNSUPPORTED))
			break;
		if (!d->stats.skipped++)
			snprintf(d->stats.first_skipped, sizeof d->stats.first_skipped, "%.511s",
				 e->msg);
		err_clear(e);
	}
	if (range->at >= range->hi && rc >= 0)
		rc = 0;
	if (!rc && !rec.number && range->at < range->hi)
		rc = err_set(e, ERR_INPUT, "%s: holds no records; a dataset needs at least one",
			     path);
	else if (!rc && used && d->stats.skipped - skipped == used)
		rc = err_set(
			e, ERR_INPUT,
			"%s: not one of its %llu records can be used; the first one skipped was %s",
			path, (unsigned long long)used, d->stats.first_skipped);
	records_close(r);
	return rc < 0 ? rc : 0;
}

static int find_kind(const struct dataset_source *src, enum prefer_data prefer,
		     const struct dataset_kind **kind_p, struct err *e)
{
	*kind_p = NULL;
	const char *type = src->format ? "completion" : src->type;
	if (prefer) { /* of their own */
		struct preference_type t;
		return preference_type(src, &t, e);
	}
	if (!type || !strcmp(type, "auto"))
		return 0;
	if (!strcmp(type, "chat_template")) /* as axolotl calls it */
		type = "messages";
	char known[200] = "auto";
	for (size_t i = 0; i < ARRAY_LEN(kinds); i++) {
		if (!strcmp(type, kinds[i]->name)) {
			*kind_p = kinds[i];
			return 0;
		}
		size_t n = strlen(known);
		snprintf(known + n, sizeof known - n, ", %s", kinds[i]->name);
	}
	return err_set(e, ERR_USAGE, "%s: unknown dataset type '%.64s'; known: %s", src->path,
		       src->type, known);
}

static uint64_t fnv1a(uint64_t h, const void *p, size_t n)
{
	for (const uint8_t *b = p, *end = b + n; b < end; b++)
		h = (h ^ *b) * 0x100000001b3ull;
	return h;
}

/* Over each example's length, ids and marks; numbers little-endian, as everywhere this
 * program runs. */
static uint64_t digest_of(const struct dataset *d)
{
	uint64_t h = 0xcbf29ce484222325ull;
	for (size_t i = 0; i < d->count; i++) {
		const struct span *s = &d->ex[i];
		h = fnv1a(h, &s->n, sizeof s->n);
		h = fnv1a(h, d->data + s->at, (size_t)s->n * 5);
		if (d->prefer) {
			const uint32_t more[] = { s->cut, s->answer[0], s->answer[1], s->good };
			h = fnv1a(h, more, sizeof more);
		}
	}
	return h;
}

/* Releases the unused part of the arrays, up to half of them. When this fails, the larger ones
 * are kept. */
static void release_unused(struct dataset *d)
{
	void *p;
	if ((p = mem_realloc(d->own, d->n)))
		d->own = p;
	if ((p = mem_realloc(d->own_ex, d->count * sizeof *d->own_ex)))
		d->own_ex = p;
	d->data = d->own;
	d->ex = d->own_ex;
}

static int count_records(const struct source_files *f, const struct dataset_kind *kind,
			 uint64_t *n_p, struct err *e)
{
	*n_p = 0;
	for (size_t i = 0; i < f->n; i++) {
		struct records *r;
		struct record rec;
		TRY(records_open(f->path[i], kind && kind->plain, &r, e));
		int rc;
		while ((rc = records_next(r, &rec, e)) > 0)
			++*n_p;
		records_close(r);
		if (rc < 0)
			return rc;
	}
	return 0;
}

/* Uses the examples from `first` on `weight` times: whole copies, and of a part of them one more.
 * The tokens are not copied. */
static int weigh(struct dataset *d, size_t first, double weight, struct err *e)
{
	size_t n = d->count - first, out = first;
	double whole = floor(weight), part = weight - whole;
	if (weight == 1 || !n)
		return 0;
	if (weight * (double)n > 1e9)
		return err_set(e, ERR_USAGE, "weight %g makes more than 10^9 examples", weight);
	struct span *old = mem_array(n, sizeof *old);
	if (!old)
		return err_nomem(e, n * sizeof *old, "the examples of a dataset");
	memcpy(old, d->own_ex + first, n * sizeof *old);
	for (size_t i = 0; i < n; i++) {
		d->stats.tokens -= old[i].n;
		d->stats.trained -= old[i].trained;
	}
	for (double round = 0; round <= whole; round++)
		for (size_t i = 0; i < n; i++) {
			/* 0.2 of 5 is 1, also where it is written as 1.2 */
			bool chosen = round < whole || floor((double)(i + 1) * part + 1e-9) >
							       floor((double)i * part + 1e-9);
			if (!chosen)
				continue;
			if (!mem_grow(&d->own_ex, &d->ex_cap, out + 1, sizeof *d->own_ex)) {
				mem_free(old);
				return err_nomem(e, (out + 1) * sizeof *old, "a dataset");
			}
			d->own_ex[out++] = old[i];
			d->stats.tokens += old[i].n;
			d->stats.trained += old[i].trained;
		}
	d->count = out;
	mem_free(old);
	return 0;
}

static int load_source(struct dataset *d, struct encoding *x, const struct dataset_source *src,
		       struct err *e)
{
	const struct dataset_kind *kind;
	struct source_files f;
	struct source_slice slice;
	struct range range = { 0, 0, UINT64_MAX };
	size_t first = d->count;
	int rc = 0;
	TRY(find_kind(src, d->prefer, &kind, e));
	TRY(turns_roles(src->roles, &x->roles, e));
	if (d->prefer && x->roles != 1u << CHAT_ASSISTANT)
		return err_set(e, ERR_USAGE,
			       "%s: roles_to_train: with 'rl' the answers are compared: leave it "
			       "out",
			       src->path);
	TRY(source_slice(src, &slice, e));
	TRY(source_files(src, &f, e));
	if (slice.count)
		TRYOUT(count_records(&f, kind, &range.hi, e));
	source_range(&slice, range.hi, &range.lo, &range.hi);
	for (size_t i = 0; i < f.n && range.at < range.hi; i++)
		TRYOUT(load_file(d, x, src, f.path[i], kind, &range, e));
	if (range.at <= range.lo && (slice.from.given || slice.to.given)) {
		rc = err_set(e, ERR_INPUT, "%s: split '%s' has no records", src->path, src->split);
		goto out;
	}
	rc = weigh(d, first, src->weight > 0 ? src->weight : 1, e);
out:
	source_files_release(&f);
	return rc;
}

/* ---- in a file ---- */

/* Whether an example is one that this program makes. */
static bool example_fits(const struct example *x, const struct dataset_options *o)
{
	const size_t vocab = tokenizer_vocab_size(o->tok);
	const uint64_t most = (uint64_t)o->sequence_len * (1 + (o->prefer != PREFER_NONE));
	uint32_t marked = 0;
	for (uint32_t k = 0; k < x->n; k++) {
		if (x->id[k] < 0 || (size_t)x->id[k] >= vocab || x->train[k] > 1)
			return false;
		marked += x->train[k];
	}
	if (x->n < 2 || x->n > most || x->train[0] || !marked || marked != x->trained)
		return false;
	if (!o->prefer)
		return true;
	const uint32_t cut = x->cut, rest = x->n - cut;
	return cut <= o->sequence_len && rest <= o->sequence_len && x->answer[0] &&
	       x->answer[0] < cut && x->train[cut - 1] &&
	       (o->prefer != PREFER_PAIRS ||
		(x->answer[1] && x->answer[1] < rest && x->train[x->n - 1]));
}

/* Whether every span lies in the data and is what this program writes, and the sums are theirs. */
static bool spans_fit(const struct dataset *d, const struct dataset_options *o)
{
	const struct prepared_head *h = &d->file.head;
	uint64_t tokens = 0, trained = 0;
	for (size_t i = 0; i < d->count; i++) {
		const struct span *s = &d->ex[i];
		const uint64_t size = (uint64_t)s->n * 5;
		uint8_t good;
		memcpy(&good, &s->good, sizeof good);
		if (s->at % 4 || s->at > h->bytes || size > h->bytes - s->at || s->cut > s->n ||
		    s->source >= d->source || good > 1)
			return false;
		const struct example x = dataset_get(d, i);
		if (!example_fits(&x, o))
			return false;
		tokens += x.n;
		trained += x.trained;
	}
	return tokens == h->stats.tokens && trained == h->stats.trained;
}

/* 1: the tokens are those of an earlier run. */
static int take_prepared(struct dataset *d, const struct dataset_options *o, const char *key,
			 size_t nsrc, struct err *e)
{
	const int there = prepared_open(o->prepared, key, sizeof *d->ex, &d->file, e);
	if (there <= 0)
		return there;
	const struct prepared_head *h = &d->file.head;
	d->data = d->file.data;
	d->ex = d->file.span;
	d->count = h->count;
	d->source = nsrc;
	if (h->sources == nsrc && spans_fit(d, o) && digest_of(d) == h->digest) {
		d->stats = h->stats;
		d->digest = h->digest;
		d->again = true;
		return 1;
	}
	log_warn("%s: is damaged: it is made again", d->file.path);
	prepared_close(&d->file);
	d->count = d->source = 0;
	return 0;
}

static int begin_prepared(struct dataset *d, const struct dataset_source *src, size_t nsrc,
			  const struct dataset_options *o, struct err *e)
{
	char key[PREPARED_KEY];
	if (!o->prepared)
		return 0;
	int rc = prepared_key(src, nsrc, o, key, e);
	if (rc <= 0)
		return rc;
	if ((rc = take_prepared(d, o, key, nsrc, e)) != 0)
		return rc;
	TRY(prepared_begin(o->prepared, key, &d->file, e));
	d->to_file = true;
	return 0;
}

static int keep_prepared(struct dataset *d, struct err *e)
{
	TRY(prepared_map(&d->file, d->own_ex, sizeof *d->own_ex, d->count, e));
	mem_free(d->own_ex);
	d->own_ex = NULL;
	d->data = d->file.data;
	d->ex = d->file.span;
	d->digest = d->file.head.digest = digest_of(d);
	d->file.head.sources = d->source;
	d->file.head.stats = d->stats;
	return prepared_keep(&d->file, e);
}

static int nothing_left(const struct dataset *d, const char *path, const struct dataset_options *o,
			struct err *e)
{
	const struct dataset_stats *s = &d->stats;
	const bool dropped = o->excess == EXCESS_DROP || o->prefer;
	if (d->unmarked == s->untrained)
		return err_set(
			e, ERR_INPUT,
			"%s: no tokens are left to train: in none of %llu records a turn is "
			"trained (its 'train' or 'weight', roles_to_train), or the chat template "
			"shows it",
			path, (unsigned long long)s->records);
	return err_set(e, ERR_INPUT,
		       "%s: no tokens are left to train: of %llu records %llu were %s "
		       "sequence_len %lld, and none keeps an answer; raise sequence_len",
		       path, (unsigned long long)s->records,
		       (unsigned long long)(dropped ? s->untrained - d->unmarked : s->truncated),
		       dropped ? "longer than" : "cut at", (long long)o->sequence_len);
}

int dataset_load(const struct dataset_source *src, size_t nsrc, const struct dataset_options *o,
		 struct dataset **d_p, struct err *e)
{
	if (o->sequence_len < 2 || o->sequence_len > INT32_MAX)
		return err_set(e, ERR_USAGE, "sequence_len is %lld; it must be at least 2",
			       (long long)o->sequence_len);
	if (!nsrc)
		return err_set(e, ERR_USAGE, "no dataset is given; set datasets: [{path: ...}]");
	if (nsrc > UINT16_MAX)
		return err_set(e, ERR_UNSUPPORTED, "%zu datasets; at most %d are possible", nsrc,
			       UINT16_MAX);
	struct dataset *d = mem_zalloc(sizeof *d);
	if (!d)
		return err_nomem(e, sizeof *d, "a dataset");
	d->prefer = o->prefer;
	d->file.fd = -1;
	struct encoding x = { .o = o, .scratch = ARENA_INIT };
	int rc = begin_prepared(d, src, nsrc, o, e);
	if (rc > 0) {
		*d_p = d;
		return 0;
	}
	for (; d->source < nsrc && rc >= 0; d->source++)
		rc = load_source(d, &x, &src[d->source], e);
	encoding_release(&x);
	if (rc >= 0 && d->same)
		log_warn("%s: rejected: is the same text as 'chosen', which teaches no preference "
			 "(so it is in %llu of %llu records)",
			 d->first_same, (unsigned long long)d->same,
			 (unsigned long long)d->stats.records);
	if (rc >= 0 && !d->count)
		rc = nothing_left(d, src[0].path, o, e);
	if (rc >= 0 && d->to_file) {
		rc = keep_prepared(d, e);
	} else if (rc >= 0) {
		release_unused(d);
		d->digest = digest_of(d);
	}
	if (rc < 0) {
		dataset_free(d);
		return rc;
	}
	*d_p = d;
	return 0;
}

void dataset_free(struct dataset *d)
{
	if (!d)
		return;
	mem_free(d->own);
	mem_free(d->mark);
	mem_free(d->own_ex);
	prepared_close(&d->file);
	mem_free(d);
}

size_t dataset_sources(const struct dataset *d) { return d->source; }
enum prefer_data dataset_prefer(const struct dataset *d) { return d->prefer; }
size_t dataset_count(const struct dataset *d) { return d->count; }

struct example dataset_get(const struct dataset *d, size_t i)
{
	const struct span *s = &d->ex[i];
	const uint8_t *p = d->data + s->at;
	return (struct example){ .id = (const int32_t *)(const void *)p,
				 .train = p + (size_t)s->n * 4,
				 .n = s->n,
				 .trained = s->trained,
				 .cut = s->cut,
				 .answer = { s->answer[0], s->answer[1] },
				 .good = s->good,
				 .source = s->source };
}

const struct dataset_stats *dataset_stats(const struct dataset *d) { return &d->stats; }
uint64_t dataset_digest(const struct dataset *d) { return d->digest; }
bool dataset_was_prepared(const struct dataset *d) { return d->again; }
