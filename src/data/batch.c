/* SPDX-License-Identifier: Apache-2.0 */
/* batch.c - see batch.h. The rows of an epoch are computed when the epoch is first requested, and
 * kept until another one is; batches_new allocates all memory at the largest size that any epoch or
 * batch needs. */
#include "data/batch.h"
#include "data/block_order.h"
#include "data/sample_set.h"
#include "data/split.h"

#include "base/err.h"
#include "base/mem.h"
#include "base/rng.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Rows that packing keeps open: more of them fill rows better and take more time a sequence. */
#define OPEN_ROWS 64

/* The purposes of keys: different ones make the split and the epochs independent of each other. */
#define DRAW_SPLIT 0x73706c6974ull
#define DRAW_EPOCH 0x65706f6368ull

/* Row i holds the examples ex[start[i]] ... ex[start[i + 1] - 1]. */
struct rows {
	uint32_t *ex, *start;
	size_t n;
};

struct batches {
	const struct dataset *d; /* NULL: samples */
	const struct sample_set *s;
	struct batch_options o;
	/* (N) the examples in split order: ntrain to train, then nval for validation */
	uint32_t *order;
	uint32_t *epoch_order, *row_of; /* (N) */
	size_t ntrain, nval;
	struct rows train, val;
	struct block_order *by_block;   /* of samples in blocks, in place of those before */
	size_t *val_first, nval_passes; /* [nval_passes + 1] rows at which those of val begin */
	bool planned;
	uint64_t epoch; /* the epoch of which `train` holds the rows, if any */
	int32_t *id, *pos, *label, *start, *row; /* of all microbatches of a global batch */
	struct pairs all;                        /* the same of preferences, and their parts */
	struct pairs *pairs;
	uint32_t answer_most; /* tokens of the longest answer */
	struct microbatch *mb;
	uint64_t rows, seqs; /* of a global batch, at most */
	int *pass;           /* [npass] rows; NULL: micro_batch_size each */
	size_t npass;
};

/* One of samples has neither ids nor marks here. */
static struct example example_of(const struct batches *b, size_t i)
{
	const struct sample_set *s = b->s;
	if (!s)
		return dataset_get(b->d, i);
	return (struct example){ .n = s->length, .trained = s->length, .source = i >= s->count };
}

static size_t example_count(const struct batches *b)
{
	return b->s ? (size_t)(b->s->count + b->s->held) : dataset_count(b->d);
}

static enum prefer_data prefers(const struct batches *b)
{
	return b->s ? PREFER_NONE : dataset_prefer(b->d);
}

static size_t source_count(const struct batches *b)
{
	return b->s ? 1 + (b->s->held > 0) : dataset_sources(b->d);
}

static uint64_t id_words(const struct batches *b) { return b->s ? b->s->in_words : 1; }
static uint64_t label_words(const struct batches *b) { return b->s ? b->s->out_words : 1; }

/* Most tokens that an example takes in a row, and its sequences. */
static uint32_t tokens_of(const struct batches *b, size_t i)
{
	const struct example x = example_of(b, i);
	if (prefers(b) != PREFER_SINGLE)
		return x.n;
	const uint64_t second = (uint64_t)x.answer[0] + b->answer_most;
	const uint64_t most = (uint64_t)b->o.sequence_len;
	return x.n + (uint32_t)(second < most ? second : most);
}
static uint32_t seqs_of(const struct batches *b) { return prefers(b) ? 2 : 1; }

/* First-fit with at most OPEN_ROWS open rows; when a new row is needed, the fullest one is closed.
 * Rows are numbered as they are opened. */
static size_t first_fit(const struct batches *b, const uint32_t *order, size_t n, uint32_t *row_of)
{
	struct {
		uint32_t row, room;
	} open[OPEN_ROWS];
	size_t nopen = 0, rows = 0;
	for (size_t i = 0; i < n; i++) {
		uint32_t len = example_of(b, order[i]).n;
		size_t at = 0;
		if (order == b->order + b->ntrain && i &&
		    example_of(b, order[i]).source != example_of(b, order[i - 1]).source)
			nopen = 0; /* a row of validation is of one source */
		while (at < nopen && open[at].room < len)
			at++;
		if (at == nopen) {
			if (nopen == OPEN_ROWS) {
				size_t fullest = 0;
				for (size_t k = 1; k < nopen; k++)
					if (open[k].room < open[fullest].room)
						fullest = k;
				memmove(&open[fullest], &open[fullest + 1],
					(nopen - fullest - 1) * sizeof open[0]);
				nopen--;
			}
			at = nopen++;
			open[at].row = (uint32_t)rows++;
			open[at].room = (uint32_t)b->o.sequence_len;
		}
		open[at].room -= len;
		row_of[i] = open[at].row;
	}
	return rows;
}

static void plan_rows(const struct batches *b, const uint32_t *order, size_t n, uint32_t *row_of,
		      struct rows *r)
{
	if (!b->o.sample_packing) {
		r->n = n;
		memcpy(r->ex, order, n * sizeof *order);
		for (size_t i = 0; i <= n; i++)
			r->start[i] = (uint32_t)i;
		return;
	}
	/* Counting sort by row: start[row + 1] is first a count, then the place of the next example
	 * of the row, and at last the row's end. */
	r->n = first_fit(b, order, n, row_of);
	memset(r->start, 0, (n + 1) * sizeof *r->start);
	for (size_t i = 0; i < n; i++)
		r->start[row_of[i] + 1]++;
	uint32_t at = 0;
	for (size_t i = 1; i <= r->n; i++) {
		uint32_t count = r->start[i];
		r->start[i] = at;
		at += count;
	}
	for (size_t i = 0; i < n; i++)
		r->ex[r->start[row_of[i] + 1]++] = order[i];
}

static void plan_epoch(struct batches *b, uint64_t epoch)
{
	const bool planned = (b->planned && b->epoch == epoch) || b->by_block;
	b->epoch = epoch;
	if (planned)
		return;
	memcpy(b->epoch_order, b->order, b->ntrain * sizeof *b->order);
	if (!b->o.in_order)
		split_shuffle(b->epoch_order, b->ntrain,
			      rng_fold(rng_fold(b->o.seed, DRAW_EPOCH), epoch));
	plan_rows(b, b->epoch_order, b->ntrain, b->row_of, &b->train);
	b->planned = true;
}

static size_t rows_per_batch(const struct batches *b)
{
	return (size_t)b->o.micro_batch_size * (size_t)b->o.accumulation;
}

static size_t pass_rows(const struct batches *b, size_t i)
{
	return b->pass ? (size_t)b->pass[i] : (size_t)b->o.micro_batch_size;
}

/* Microbatches of `rows` rows. */
static size_t passes_of(const struct batches *b, size_t rows)
{
	size_t n = 0;
	for (size_t at = 0; at < rows; n++)
		at += pass_rows(b, n);
	return n;
}

/* The most that `rows` rows can hold: examples and tokens. */
struct need {
	uint64_t seqs, tokens;
};

static int longer_first(const void *a, const void *b)
{
	uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
	return (x < y) - (x > y);
}

/* Without packing the sum of the longest examples; with it no more than `rows` full rows, and never
 * more than the dataset. `len` is scratch. */
static struct need largest_need(const struct batches *b, const uint32_t *order, size_t n,
				uint64_t rows, uint32_t *len)
{
	struct need all = { .seqs = n }, most = { 0 };
	if (b->s) {
		most.seqs = n < rows ? n : rows;
		most.tokens = most.seqs * b->s->length;
		return most;
	}
	for (size_t i = 0; i < n; i++) {
		len[i] = tokens_of(b, order[i]);
		all.tokens += len[i];
	}
	if (b->o.sample_packing) {
		uint64_t full = rows * (uint64_t)b->o.sequence_len;
		most.tokens = full < all.tokens ? full : all.tokens;
		/* an example has two ids or more */
		most.seqs = full / 2 < all.seqs ? full / 2 : all.seqs;
		return most;
	}
	qsort(len, n, sizeof *len, longer_first);
	for (size_t i = 0; i < n && i < rows; i++) {
		most.seqs += seqs_of(b);
		most.tokens += len[i];
	}
	return most;
}

static int check(const struct batches *b, size_t *nval_p, struct err *e)
{
	const struct batch_options *o = &b->o;
	const uint32_t least = b->s ? 1 : 2;
	const size_t n = example_count(b), once = b->s ? n : split_count(b->d);
	size_t nval = 0;
	if (o->micro_batch_size < 1 || o->micro_batch_size > INT32_MAX)
		return err_set(e, ERR_USAGE, "micro_batch_size is %lld; it must be at least 1",
			       (long long)o->micro_batch_size);
	if (o->accumulation < 1 || o->accumulation > INT32_MAX)
		return err_set(e, ERR_USAGE,
			       "gradient_accumulation_steps is %lld; it must be at least 1",
			       (long long)o->accumulation);
	const int64_t in_row = (prefers(b) ? 2 : 1) * o->sequence_len;
	if (o->sequence_len < least || o->micro_batch_size * in_row > INT32_MAX)
		return err_set(e, ERR_USAGE,
			       "a microbatch of %lld rows with %lld tokens each: at least 2 and at "
			       "most 2^31 - 1 tokens are possible",
			       (long long)o->micro_batch_size, (long long)in_row);
	if (prefers(b) && o->sample_packing)
		return err_set(e, ERR_USAGE, "sample_packing is not possible with preferences");
	if (!(o->val_set_size >= 0.0) || isinf(o->val_set_size))
		return err_set(e, ERR_USAGE, "val_set_size is %g; it must be 0 or more",
			       o->val_set_size);
	if (n > UINT32_MAX - 1)
		return err_set(e, ERR_UNSUPPORTED,
			       "a dataset of %zu examples; at most %u are possible", n,
			       UINT32_MAX - 1);
	for (size_t i = 0; i < n && !b->s; i++) {
		struct example x = example_of(b, i);
		if (x.n > in_row || x.n < least)
			return err_set(e, ERR_INTERNAL, "example %zu has %u tokens, not 2 to %lld",
				       i, x.n, (long long)in_row);
	}
	if (o->val_source) {
		while (nval < n && example_of(b, n - 1 - nval).source >= o->val_source)
			nval++;
	} else if (o->val_set_size >= 1.0) {
		nval = o->val_set_size >= (double)once ? once : (size_t)o->val_set_size;
	} else if (o->val_set_size > 0.0) {
		nval = (size_t)llround(o->val_set_size * (double)once);
		nval = nval ? nval : 1;
	}
	if (nval >= n && o->val_source)
		return err_set(e, ERR_USAGE, "no example is left to train but those held out");
	if (nval >= once)
		return err_set(e, ERR_USAGE,
			       "val_set_size %g takes %zu of %zu examples and leaves none to train",
			       o->val_set_size, nval, once);
	*nval_p = nval;
	return 0;
}

static int alloc_rows(struct rows *r, size_t n, struct err *e)
{
	r->ex = mem_array(n, sizeof *r->ex);
	r->start = mem_array(n + 1, sizeof *r->start);
	return r->ex && r->start ? 0
				 : err_nomem(e, 2ull * n * sizeof *r->ex, "the order of the data");
}

/* The sample that is row `row`. */
static uint32_t sample_at(const struct batches *b, const struct rows *r, size_t row)
{
	if (!b->by_block)
		return r->ex[row];
	return r == &b->val ? block_order_held(b->by_block, row)
			    : block_order_train(b->by_block, b->epoch, row);
}

static uint32_t source_of_row(const struct batches *b, const struct rows *r, size_t row)
{
	return example_of(b, b->s ? sample_at(b, r, row) : r->ex[r->start[row]]).source;
}

static void sort_by_source(struct batches *b, uint32_t *order, size_t n)
{
	size_t at = 0;
	for (size_t s = 0; s < source_count(b); s++)
		for (size_t i = 0; i < n; i++)
			if (example_of(b, order[i]).source == s)
				b->row_of[at++] = order[i];
	memcpy(order, b->row_of, at * sizeof *order);
}

static int cut_val(struct batches *b, struct err *e)
{
	const struct rows *r = &b->val;
	const size_t most = r->n / (size_t)b->o.micro_batch_size + source_count(b) + 1;
	size_t left = 0;
	b->val_first = mem_array(most, sizeof *b->val_first);
	if (!b->val_first)
		return err_nomem(e, most * sizeof *b->val_first, "the validation split");
	for (size_t k = 0; k < r->n; k++, left--)
		if (!left || source_of_row(b, r, k) != source_of_row(b, r, k - 1)) {
			b->val_first[b->nval_passes++] = k;
			left = (size_t)b->o.micro_batch_size;
		}
	b->val_first[b->nval_passes] = r->n;
	return 0;
}

/* The same where samples lie in blocks: no sample has memory of its own. */
static int order_blocks(struct batches *b, struct err *e)
{
	const struct block_shape s = { .samples = b->ntrain + b->nval,
				       .train = b->ntrain,
				       .block = b->s->block,
				       .mixed = b->s->mixed ? b->s->mixed : 1,
				       .drawn = !b->o.val_source };
	TRY(block_order_new(&s, b->o.seed, &b->by_block, e));
	b->train.n = b->ntrain;
	b->val.n = b->nval;
	return cut_val(b, e);
}

static int fill_order(struct batches *b, struct err *e)
{
	if (b->s && b->s->block)
		return order_blocks(b, e);
	size_t n = b->ntrain + b->nval;
	b->order = mem_array(n, sizeof *b->order);
	b->epoch_order = mem_array(n, sizeof *b->epoch_order);
	b->row_of = mem_array(n, sizeof *b->row_of);
	if (!b->order || !b->epoch_order || !b->row_of)
		return err_nomem(e, 3ull * n * sizeof *b->order, "the order of the data");
	TRY(alloc_rows(&b->train, b->ntrain, e));
	TRY(alloc_rows(&b->val, b->nval, e));
	for (size_t i = 0; i < n; i++)
		b->order[i] = (uint32_t)i;
	if (b->nval && !b->o.val_source && !b->s)
		TRY(split_examples(b->d, b->nval, rng_fold(b->o.seed, DRAW_SPLIT), b->order,
				   &b->ntrain, e));
	else if (!b->o.in_order)
		split_shuffle(b->order, b->o.val_source ? b->ntrain : n,
			      rng_fold(b->o.seed, DRAW_SPLIT));
	sort_by_source(b, b->order + b->ntrain, b->nval);
	plan_rows(b, b->order + b->ntrain, b->nval, b->row_of, &b->val);
	return cut_val(b, e);
}

static void free_pairs(struct batches *b)
{
	mem_free(b->all.answer);
	mem_free(b->all.good);
	mem_free(b->all.ref);
	mem_free(b->pairs);
	b->all = (struct pairs){ 0 };
	b->pairs = NULL;
}

static int alloc_pairs(struct batches *b, uint64_t rows, uint64_t nmb, struct err *e)
{
	free_pairs(b);
	b->all = (struct pairs){ .answer = mem_array(2 * rows, sizeof(int32_t)),
				 .good = mem_array(rows, sizeof(int32_t)),
				 .ref = mem_array(2 * rows, sizeof(double)) };
	b->pairs = mem_array(nmb, sizeof *b->pairs);
	return b->all.answer && b->all.good && b->all.ref && b->pairs
		       ? 0
		       : err_nomem(e, rows * 28 + nmb * sizeof *b->pairs, "pairs");
}

/* The places of the sequences and the microbatches of `rows` rows with `seqs` sequences. */
static int alloc_passes(struct batches *b, uint64_t rows, uint64_t seqs, struct err *e)
{
	const uint64_t nmb = passes_of(b, rows);
	int32_t *start = mem_array(seqs + nmb, sizeof *start),
		*row = mem_array(rows + nmb, sizeof *row);
	struct microbatch *mb = mem_array(nmb, sizeof *mb);
	const int rc = prefers(b) ? alloc_pairs(b, rows, nmb, e) : 0;
	if (!start || !row || !mb || rc < 0) {
		mem_free(start);
		mem_free(row);
		mem_free(mb);
		return rc < 0 ? rc
			      : err_nomem(e, (seqs + nmb) * 4 + nmb * sizeof *mb, "a global batch");
	}
	mem_free(b->start);
	mem_free(b->row);
	mem_free(b->mb);
	b->start = start;
	b->row = row;
	b->mb = mb;
	return 0;
}

static int alloc_batch(struct batches *b, struct err *e)
{
	uint64_t mbs = (uint64_t)b->o.micro_batch_size, acc = (uint64_t)b->o.accumulation;
	/* A row has at least one example, so no more rows than examples are ever in use. */
	uint64_t rows = mbs * acc < b->ntrain ? mbs * acc : b->ntrain,
		 val_rows = mbs < b->nval ? mbs : b->nval;
	for (size_t i = 0; prefers(b) && i < example_count(b); i++) {
		const struct example x = example_of(b, i);
		const uint32_t n = x.cut - x.answer[0];
		b->answer_most = n > b->answer_most ? n : b->answer_most;
	}
	struct need t = largest_need(b, b->order, b->ntrain, rows, b->row_of);
	const uint32_t *val = b->by_block ? NULL : b->order + b->ntrain;
	struct need v = largest_need(b, val, b->nval, val_rows, b->row_of);
	uint64_t tokens = t.tokens > v.tokens ? t.tokens : v.tokens,
		 seqs = t.seqs > v.seqs ? t.seqs : v.seqs;
	uint64_t ids, labels;
	if (!mul_ok(tokens, id_words(b), &ids) || !mul_ok(tokens, label_words(b), &labels))
		return err_nomem(e, UINT64_MAX, "a global batch");
	b->id = mem_array(ids, sizeof *b->id);
	b->pos = mem_array(tokens, sizeof *b->pos);
	b->label = mem_array(labels, sizeof *b->label);
	if (!b->id || !b->pos || !b->label)
		return err_nomem(e, (ids + labels + tokens) * 4, "a global batch");
	b->rows = rows > val_rows ? rows : val_rows;
	b->seqs = seqs;
	return alloc_passes(b, b->rows, seqs, e);
}

int batches_set_passes(struct batches *b, const int *pass, size_t n, struct err *e)
{
	int *old = b->pass;
	const size_t was = b->npass;
	for (size_t i = 0; i < n; i++)
		if (pass[i] < 1 || seqs_of(b) * pass[i] * b->o.sequence_len > INT32_MAX)
			return err_set(e, ERR_USAGE,
				       "a microbatch of %d rows with %lld tokens each: at least 1 "
				       "row and at most 2^31 - 1 tokens are possible",
				       pass[i], (long long)b->o.sequence_len);
	int *copy = n ? mem_array(n, sizeof *copy) : NULL;
	if (n && !copy)
		return err_nomem(e, n * sizeof *copy, "passes");
	if (n)
		memcpy(copy, pass, n * sizeof *copy);
	b->pass = copy;
	b->npass = n;
	const int rc = alloc_passes(b, b->rows, b->seqs, e);
	if (rc < 0) {
		b->pass = old;
		b->npass = was;
		old = copy;
	}
	mem_free(old);
	return rc;
}

static int make(const struct dataset *d, const struct sample_set *s, const struct batch_options *o,
		struct batches **b_p, struct err *e)
{
	const struct batches one = { .d = d, .s = s, .o = *o };
	size_t nval = 0;
	TRY(check(&one, &nval, e));
	struct batches *b = mem_zalloc(sizeof *b);
	if (!b)
		return err_nomem(e, sizeof *b, "batches");
	*b = one;
	b->nval = nval;
	b->ntrain = example_count(b) - nval;
	int rc;
	TRYOUT(fill_order(b, e));
	TRYOUT(alloc_batch(b, e));
	*b_p = b;
	return 0;
out:
	batches_free(b);
	return rc;
}

int batches_new(const struct dataset *d, const struct batch_options *o, struct batches **b_p,
		struct err *e)
{
	return make(d, NULL, o, b_p, e);
}

int batches_of_samples(const struct sample_set *s, const struct batch_options *o,
		       struct batches **b_p, struct err *e)
{
	if (s->count < 1 || s->count > UINT32_MAX / 2 || s->held > UINT32_MAX / 2 ||
	    s->length < 1 || s->length > SAMPLE_ROWS_MOST || s->in_words < 1 ||
	    s->in_words > SAMPLE_WORDS_MOST || s->out_words < 1 || s->out_words > SAMPLE_WORDS_MOST)
		return err_set(e, ERR_USAGE,
			       "data of %llu samples, and %llu held out, of %u rows of %u and %u "
			       "numbers cannot be trained on",
			       (unsigned long long)s->count, (unsigned long long)s->held, s->length,
			       s->in_words, s->out_words);
	struct batch_options own = *o;
	own.sequence_len = s->length;
	own.sample_packing = false;
	own.val_source = s->held ? 1 : 0;
	return make(NULL, s, &own, b_p, e);
}

void batches_free(struct batches *b)
{
	if (!b)
		return;
	free_pairs(b);
	block_order_free(b->by_block);
	void *all[] = { b->order,       b->epoch_order, b->row_of, b->train.ex,
			b->train.start, b->val_first,   b->val.ex, b->val.start,
			b->id,          b->pos,         b->label,  b->start,
			b->row,         b->mb,          b->pass,   b };
	for (size_t i = 0; i < ARRAY_LEN(all); i++)
		mem_free(all[i]);
}

uint64_t batches_per_epoch(struct batches *b, uint64_t epoch)
{
	plan_epoch(b, epoch);
	size_t per = rows_per_batch(b);
	return (b->train.n + per - 1) / per;
}

/* A sequence of a row of preferences: the first `np` ids of x, then n ids of an answer. */
static void add_sequence(struct batches *b, struct microbatch *m, size_t at, const int32_t *prompt,
			 uint32_t np, const int32_t *answer, uint32_t n, bool prompt_labels)
{
	int32_t *id = b->id + at + m->n, *pos = b->pos + at + m->n, *label = b->label + at + m->n;
	const uint32_t most = (uint32_t)b->o.sequence_len;
	n = np + n > most ? most - np : n;
	memcpy(id, prompt, np * sizeof *id);
	memcpy(id + np, answer, n * sizeof *id);
	for (uint32_t i = 0; i < np + n; i++) {
		const bool trained = i + 1 < np + n && (prompt_labels || i + 1 >= np);
		pos[i] = (int32_t)i;
		label[i] = trained ? id[i + 1] : -100;
		m->trained += trained;
	}
	m->pairs->answer[m->nseq++] = (int32_t)(m->n + np - 1);
	m->n += np + n;
}

/* The same as fill() of preferences. */
static struct microbatch fill_pairs(struct batches *b, const struct rows *r, size_t first,
				    size_t last, size_t at, size_t start_at, size_t row_at,
				    size_t pair_at, struct pairs *pairs)
{
	int32_t *start = b->start + start_at, *row = b->row + row_at;
	struct microbatch m = { .id = b->id + at,
				.pos = b->pos + at,
				.label = b->label + at,
				.start = start,
				.row = row,
				.nrows = (uint32_t)(last - first),
				.pairs = pairs };
	*pairs = (struct pairs){ b->all.answer + 2 * pair_at, b->all.good + pair_at,
				 b->all.ref + 2 * pair_at };
	for (size_t k = first; k < last; k++) {
		const struct example x = example_of(b, r->ex[k]),
				     y = example_of(b, r->ex[k == first ? last - 1 : k - 1]);
		const bool single = prefers(b) == PREFER_SINGLE;
		const uint32_t np = x.answer[0], second = x.answer[1];
		pairs->good[k - first] = single ? x.good : 1;
		*row++ = *start++ = (int32_t)m.n;
		add_sequence(b, &m, at, x.id, np, x.id + np, x.cut - np, b->o.prompt_labels);
		*start++ = (int32_t)m.n;
		if (single)
			add_sequence(b, &m, at, x.id, np, y.id + y.answer[0], y.n - y.answer[0],
				     false);
		else
			add_sequence(b, &m, at, x.id + x.cut, second, x.id + x.cut + second,
				     x.n - x.cut - second, false);
	}
	*start = *row = (int32_t)m.n;
	return m;
}

/* The same as fill() of samples. */
static int fill_samples(struct batches *b, const struct rows *r, size_t first, size_t last,
			size_t at, size_t start_at, size_t row_at, struct microbatch *m_p,
			struct err *e)
{
	const struct sample_set *s = b->s;
	struct microbatch m = { .id = b->id + at * s->in_words,
				.pos = b->pos + at,
				.label = b->label + at * s->out_words,
				.start = b->start + start_at,
				.row = b->row + row_at,
				.nrows = (uint32_t)(last - first),
				.id_words = s->in_words,
				.label_words = s->out_words };
	for (size_t k = first; k < last; k++, at += s->length) {
		const uint32_t sample = sample_at(b, r, k);
		const int rc = s->get(s->ctx, sample, b->id + at * s->in_words,
				      b->label + at * s->out_words, e);
		if (rc < 0)
			return err_prefix(e, "sample %u", (unsigned)sample);
		b->row[row_at + k - first] = b->start[start_at + m.nseq++] = (int32_t)m.n;
		for (uint32_t i = 0; i < s->length; i++)
			b->pos[at + i] = (int32_t)i;
		m.n += s->length;
	}
	m.trained = m.n;
	b->start[start_at + m.nseq] = b->row[row_at + last - first] = (int32_t)m.n;
	*m_p = m;
	return 0;
}

/* Rows [first, last) as a microbatch that begins at token `at`, boundary `start_at` and row
 * boundary `row_at` of the buffers, the n-th of the batch. */
static int fill(struct batches *b, const struct rows *r, size_t first, size_t last, size_t at,
		size_t start_at, size_t row_at, size_t n, struct microbatch *m_p, struct err *e)
{
	if (b->s)
		return fill_samples(b, r, first, last, at, start_at, row_at, m_p, e);
	struct microbatch m = { .id = b->id + at,
				.pos = b->pos + at,
				.label = b->label + at,
				.start = b->start + start_at,
				.row = b->row + row_at,
				.nrows = (uint32_t)(last - first) };
	if (prefers(b)) {
		*m_p = fill_pairs(b, r, first, last, at, start_at, row_at, row_at - n,
				  b->pairs + n);
		return 0;
	}
	int32_t *start = b->start + start_at, *row = b->row + row_at;
	for (size_t k = r->start[first], next = first; k < r->start[last]; k++) {
		struct example x = example_of(b, r->ex[k]);
		for (; next < last && r->start[next] == k; next++)
			*row++ = (int32_t)m.n;
		start[m.nseq++] = (int32_t)m.n;
		memcpy(b->id + at, x.id, x.n * sizeof *x.id);
		for (uint32_t i = 0; i < x.n; i++) {
			b->pos[at + i] = (int32_t)i;
			b->label[at + i] = i + 1 < x.n && x.train[i + 1] ? x.id[i + 1] : -100;
		}
		m.n += x.n;
		m.trained += x.trained;
		at += x.n;
	}
	start[m.nseq] = *row = (int32_t)m.n;
	*m_p = m;
	return 0;
}

uint64_t batches_left(struct batches *b, double epochs, uint64_t epoch, uint64_t batch)
{
	uint64_t all = 0;
	for (uint64_t k = 0; epochs > 0; k++, epochs -= 1) {
		uint64_t n = k < epoch ? 0 : batches_per_epoch(b, k);
		if (epochs < 1)
			n = (uint64_t)ceil(epochs * (double)n);
		if (k == epoch)
			n = n > batch ? n - batch : 0;
		all += n;
	}
	return all;
}

int batches_get(struct batches *b, uint64_t epoch, uint64_t batch, const struct microbatch **mb_p,
		size_t *n_p, struct err *e)
{
	uint64_t count = batches_per_epoch(b, epoch);
	if (batch >= count)
		return err_set(e, ERR_INTERNAL,
			       "epoch %llu has %llu global batches; there is no batch %llu",
			       (unsigned long long)epoch, (unsigned long long)count,
			       (unsigned long long)batch);
	size_t row = batch * rows_per_batch(b), n = 0, at = 0, start_at = 0;
	const size_t first = row;
	size_t end = b->train.n - row < rows_per_batch(b) ? b->train.n : row + rows_per_batch(b);
	while (row < end) {
		const size_t rows = pass_rows(b, n), last = end - row < rows ? end : row + rows;
		TRY(fill(b, &b->train, row, last, at, start_at, row - first + n, n, &b->mb[n], e));
		b->mb[n].first_row = (uint32_t)(row - first);
		row = last;
		at += b->mb[n].n;
		start_at += b->mb[n++].nseq + 1;
	}
	*mb_p = b->mb;
	*n_p = n;
	return 0;
}

struct batch_shape batches_shape(struct batches *b)
{
	if (b->s) /* all samples have the same length */
		return (struct batch_shape){ b->s->length, 1, 1 };
	const struct rows *r = &b->train;
	double all = 0, trained = 0, squares = 0, parts = 0;
	struct batch_shape s = { 0 };
	plan_epoch(b, 0);
	for (size_t row = 0; row < r->n; row++) {
		double tokens = 0;
		for (size_t k = r->start[row]; k < r->start[row + 1]; k++) {
			struct example x = example_of(b, r->ex[k]);
			const double two = seqs_of(b) > 1 ? tokens_of(b, r->ex[k]) - x.cut : 0,
				     one = seqs_of(b) > 1 ? x.cut : x.n;
			tokens += one + two;
			parts += one * one + two * two;
			trained += x.trained;
		}
		all += tokens;
		squares += tokens * tokens;
	}
	s.tokens = all / (double)r->n;
	s.sequences = squares / parts;
	s.trained = trained / all;
	return s;
}

static double row_tokens(const struct batches *b, size_t row)
{
	double n = 0;
	for (size_t k = b->train.start[row]; k < b->train.start[row + 1]; k++)
		n += (double)tokens_of(b, b->train.ex[k]);
	return n;
}

double batches_fullest(struct batches *b, size_t rows)
{
	double most = 0, here = 0;
	if (b->s)
		return b->s->length;
	plan_epoch(b, 0);
	for (size_t row = 0; row < b->train.n; row++) {
		const size_t at = row % rows_per_batch(b);
		here = at ? here : 0;
		here += row_tokens(b, row) - (at >= rows ? row_tokens(b, row - rows) : 0);
		most = here > most ? here : most;
	}
	return most / (double)rows;
}

size_t batches_val_examples(const struct batches *b) { return b->nval; }

size_t batches_val_count(const struct batches *b) { return b->nval_passes; }

size_t batches_val_source(const struct batches *b, size_t i)
{
	return source_of_row(b, &b->val, b->val_first[i]);
}

int batches_val(struct batches *b, size_t i, struct microbatch *mb_p, struct err *e)
{
	if (i >= b->nval_passes)
		return err_set(e, ERR_INTERNAL,
			       "there are %zu validation microbatches; there is no microbatch %zu",
			       b->nval_passes, i);
	return fill(b, &b->val, b->val_first[i], b->val_first[i + 1], 0, 0, 0, 0, mb_p, e);
}
