/* SPDX-License-Identifier: Apache-2.0 */
/* Properties of batches: every example comes once an epoch, a batch is the same however it is asked
 * for, leftovers, packing, labels, the validation split, and no allocation after the first batches.
 * The datasets are generated; an example is recognised by its second id and its length. */
#include "base/buf.h"
#include "base/err.h"
#include "base/mem.h"
#include "base/rng.h"
#include "data/batch.h"
#include "support/fake_tokenizer.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

enum { LONGEST = 61 };

/* `n` prompt/completion records with random bytes of 2 to LONGEST - 2 tokens; the numbers at the
 * front keep them apart. */
static struct dataset *generate_weighted(size_t n, uint64_t seed, double weight)
{
	struct buf b = BUF_INIT;
	struct rng_key key = rng_key(seed);
	for (size_t i = 0; i < n; i++) {
		size_t prompt = rng_below(key, 3 * i, 20),
		       answer = 1 + rng_below(key, 3 * i + 1, 30);
		buf_addf(&b, "{\"prompt\":\"%05zu", i);
		for (size_t k = 0; k < prompt; k++)
			buf_addc(&b, 'p');
		buf_adds(&b, "\",\"completion\":\"");
		for (size_t k = 0; k < answer; k++)
			buf_addc(&b, (char)('a' + k % 26));
		buf_adds(&b, "\"}\n");
	}
	static const struct tokenizer tok = { 0 };
	struct dataset_options o = { .tok = &tok, .sequence_len = LONGEST };
	struct err e = { 0 };
	struct dataset *d = NULL;
	char path[] = "/tmp/hs-batch-XXXXXX";
	int fd = mkstemp(path);
	assert_true(fd >= 0);
	assert_int_equal(write(fd, b.p, b.n), b.n);
	close(fd);
	struct dataset_source src = { .path = path, .type = "completion", .weight = weight };
	int rc = dataset_load(&src, 1, &o, &d, &e);
	unlink(path);
	buf_release(&b);
	if (rc)
		fail_msg("%s", e.msg);
	assert_int_equal(dataset_count(d), (size_t)((double)n * weight));
	return d;
}

static struct dataset *generate(size_t n, uint64_t seed) { return generate_weighted(n, seed, 1); }

static struct batches *make(const struct dataset *d, const struct batch_options *o)
{
	struct batches *b = NULL;
	struct err e = { 0 };
	if (batches_new(d, o, &b, &e))
		fail_msg("%s", e.msg);
	return b;
}

/* By the number in front of a record. */
static void count_records(const struct microbatch *m, uint32_t *seen)
{
	for (uint32_t s = 0; s < m->nseq; s++) {
		size_t i = 0;
		for (int k = 1; k <= 5; k++)
			i = i * 10 + (size_t)(m->id[m->start[s] + k] - '0');
		seen[i]++;
	}
}

/* Which example a sequence is, after checking it against the dataset id for id and label for
 * label. */
static size_t check_sequence(const struct dataset *d, const struct microbatch *m, uint32_t s,
			     uint32_t *trained)
{
	const int32_t *id = m->id + m->start[s];
	int32_t n = m->start[s + 1] - m->start[s];
	size_t i = 0;
	assert_true(n >= 7);
	for (int k = 1; k <= 5; k++)
		i = i * 10 + (size_t)(id[k] - '0');
	assert_true(i < dataset_count(d));
	struct example x = dataset_get(d, i);
	assert_int_equal(n, x.n);
	for (int32_t k = 0; k < n; k++) {
		assert_int_equal(id[k], x.id[k]);
		assert_int_equal(m->pos[m->start[s] + k], k);
		int32_t want = k + 1 < n && x.train[k + 1] ? x.id[k + 1] : -100;
		assert_int_equal(m->label[m->start[s] + k], want);
		*trained += want != -100;
	}
	return i;
}

/* Counts the sequences of a microbatch into seen[] and checks its sums. Returns the least number of
 * rows that could hold it. */
static void check_microbatch(const struct dataset *d, const struct microbatch *m, uint32_t *seen)
{
	uint32_t trained = 0;
	assert_int_equal(m->start[0], 0);
	assert_int_equal(m->start[m->nseq], m->n);
	for (uint32_t s = 0; s < m->nseq; s++)
		seen[check_sequence(d, m, s, &trained)]++;
	assert_int_equal(trained, m->trained);
}

/* Copies that `weight` makes of an example are not trained where it is held out, and are not held
 * out themselves. */
static void copies(void **state)
{
	(void)state;
	static const double weights[] = { 0.5, 1.5, 2, 3 };
	enum { N = 60 };
	for (size_t c = 0; c < ARRAY_LEN(weights); c++) {
		const double w = weights[c];
		struct dataset *d = generate_weighted(N, c, w);
		const struct batch_options o = { .seed = 1,
						 .sequence_len = LONGEST,
						 .micro_batch_size = 2,
						 .accumulation = 3,
						 .val_set_size = 0.2 };
		struct batches *b = make(d, &o);
		uint32_t val[N] = { 0 }, seen[N] = { 0 }, held = 0, trained = 0;
		struct err e = { 0 };
		for (size_t i = 0; i < batches_val_count(b); i++) {
			struct microbatch m;
			assert_int_equal(batches_val(b, i, &m, &e), 0);
			count_records(&m, val);
		}
		for (uint64_t k = 0; k < batches_per_epoch(b, 0); k++) {
			const struct microbatch *m;
			size_t n;
			assert_int_equal(batches_get(b, 0, k, &m, &n, &e), 0);
			for (size_t i = 0; i < n; i++)
				count_records(&m[i], seen);
		}
		for (size_t i = 0; i < N; i++) {
			assert_true(val[i] <= 1 && (!val[i] || !seen[i]));
			assert_true(seen[i] <= (uint32_t)ceil(w));
			assert_true(val[i] || seen[i] >= (uint32_t)w);
			held += val[i];
			trained += seen[i];
		}
		assert_int_equal(held, w < 1 ? N / 2 / 5 : N / 5);
		assert_true(trained >= (uint32_t)((w < 1 ? 0.4 : 0.8 * floor(w)) * N));
		batches_free(b);
		dataset_free(d);
	}
}

static uint64_t hash_batch(const struct microbatch *m, size_t n)
{
	uint64_t h = n;
	for (size_t i = 0; i < n; i++) {
		h = rng_fold(rng_fold(h, m[i].n), m[i].trained);
		for (uint32_t k = 0; k < m[i].n; k++)
			h = rng_fold(rng_fold(h, (uint64_t)m[i].id[k]),
				     (uint64_t)(int64_t)m[i].label[k] ^ (uint64_t)m[i].pos[k]
										<< 32);
		for (uint32_t s = 0; s <= m[i].nseq; s++)
			h = rng_fold(h, (uint64_t)m[i].start[s]);
	}
	return h;
}

static const struct shape {
	size_t n;
	int64_t len, mbs, acc;
	double val;
	bool packing;
} shapes[] = {
	{ 1, LONGEST, 1, 1, 0, false },         { 1, LONGEST, 3, 5, 0, true },
	{ 2, LONGEST, 1, 1, 1, false },         { 104, LONGEST, 1, 4, 0.05, false },
	{ 104, LONGEST, 3, 4, 7, true },        { 211, LONGEST, 2, 3, 0.1, false },
	{ 211, 97, 1, 7, 0.1, true },           { 1009, 256, 2, 5, 0.013, true },
	{ 1009, LONGEST, 5, 2, 0.5, false },    { 1009, 4096, 4, 8, 101, true },
	{ 500, LONGEST, 1000, 1000, 0, false }, { 500, LONGEST, 1000, 1000, 3, true },
};

static struct batch_options options(const struct shape *s, uint64_t seed)
{
	return (struct batch_options){ .seed = seed,
				       .sequence_len = s->len,
				       .micro_batch_size = s->mbs,
				       .accumulation = s->acc,
				       .sample_packing = s->packing,
				       .val_set_size = s->val };
}

static void everything_once(void **state)
{
	(void)state;
	for (size_t c = 0; c < ARRAY_LEN(shapes); c++) {
		const struct shape *s = &shapes[c];
		struct dataset *d = generate(s->n, c);
		struct batch_options o = options(s, 42);
		struct batches *b = make(d, &o);
		struct err e = { 0 };
		uint32_t *val = mem_array(s->n, sizeof *val), *seen = mem_array(s->n, sizeof *seen);
		size_t nval = 0;
		for (size_t i = 0; i < batches_val_count(b); i++) {
			struct microbatch m;
			assert_int_equal(batches_val(b, i, &m, &e), 0);
			check_microbatch(d, &m, val);
			assert_true(m.n <= s->mbs * s->len);
			assert_true(s->packing || m.nseq <= s->mbs);
		}
		for (size_t i = 0; i < s->n; i++) {
			assert_true(val[i] <= 1);
			nval += val[i];
		}
		size_t want = s->val >= 1  ? (size_t)s->val
			      : s->val > 0 ? (size_t)llround(s->val * (double)s->n)
					   : 0;
		assert_int_equal(nval, want);
		assert_int_equal(batches_val_examples(b), want);
		struct microbatch none;
		assert_int_equal(batches_val(b, batches_val_count(b), &none, &e), ERR_INTERNAL);

		for (uint64_t epoch = 0; epoch < 3; epoch++) {
			uint64_t nb = batches_per_epoch(b, epoch), trained = 0;
			memset(seen, 0, s->n * sizeof *seen);
			for (uint64_t i = 0; i < nb; i++) {
				const struct microbatch *m;
				size_t n;
				assert_int_equal(batches_get(b, epoch, i, &m, &n, &e), 0);
				assert_true(n >= 1 && (int64_t)n <= s->acc);
				assert_true((int64_t)n == s->acc || i + 1 == nb);
				for (size_t k = 0; k < n; k++) {
					check_microbatch(d, &m[k], seen);
					assert_true(m[k].n <= s->mbs * s->len);
					assert_true(m[k].nseq >= s->mbs ||
						    (i + 1 == nb && k + 1 == n));
					assert_true(s->packing || m[k].nseq <= s->mbs);
					trained += m[k].trained;
				}
			}
			for (size_t i = 0; i < s->n; i++) {
				assert_int_equal(seen[i] + val[i], 1);
				trained -= seen[i] ? dataset_get(d, i).trained : 0;
			}
			assert_int_equal(trained, 0);
			if (!s->packing)
				assert_int_equal(nb, (s->n - nval + (size_t)(s->mbs * s->acc) - 1) /
							     (size_t)(s->mbs * s->acc));
			const struct microbatch *m;
			size_t n;
			assert_int_equal(batches_get(b, epoch, nb, &m, &n, &e), ERR_INTERNAL);
		}
		mem_free(val);
		mem_free(seen);
		batches_free(b);
		dataset_free(d);
	}
}

/* Each row of a packed epoch holds at most sequence_len tokens: with micro_batch_size 1 a
 * microbatch is one row. Packing must also save rows. */
static void packing_fits(void **state)
{
	(void)state;
	struct dataset *d = generate(1009, 7);
	for (int64_t len = LONGEST; len <= 512; len += 113) {
		struct batch_options o = { .seed = 1,
					   .sequence_len = len,
					   .micro_batch_size = 1,
					   .accumulation = 1,
					   .sample_packing = true };
		struct batches *b = make(d, &o);
		struct err e = { 0 };
		uint64_t rows = batches_per_epoch(b, 5), tokens = 0;
		for (uint64_t i = 0; i < rows; i++) {
			const struct microbatch *m;
			size_t n;
			assert_int_equal(batches_get(b, 5, i, &m, &n, &e), 0);
			assert_int_equal(n, 1);
			assert_true(m->n <= len);
			tokens += m->n;
		}
		assert_int_equal(tokens, dataset_stats(d)->tokens);
		double full = (double)tokens / ((double)rows * (double)len);
		print_message("sequence_len %lld: rows %.1f %% full\n", (long long)len, full * 100);
		assert_true(full > 0.9);
		batches_free(b);
	}
	dataset_free(d);
}

/* What comes next is a function of (seed, epoch, batch): asked for in any order, from any object,
 * it is the same. */
static void resuming(void **state)
{
	(void)state;
	for (size_t c = 0; c < ARRAY_LEN(shapes); c++) {
		struct dataset *d = generate(shapes[c].n, c);
		struct batch_options o = options(&shapes[c], 9);
		struct batches *b = make(d, &o);
		struct err e = { 0 };
		uint64_t want[3][8], per[3];
		for (uint64_t epoch = 0; epoch < 3; epoch++) {
			per[epoch] = batches_per_epoch(b, epoch);
			for (uint64_t i = 0; i < per[epoch]; i++) {
				const struct microbatch *m;
				size_t n;
				assert_int_equal(batches_get(b, epoch, i, &m, &n, &e), 0);
				if (i < 8)
					want[epoch][i] = hash_batch(m, n);
			}
		}
		batches_free(b);
		b = make(d, &o);
		for (int epoch = 2; epoch >= 0; epoch--) {
			for (uint64_t i = per[epoch] < 8 ? per[epoch] : 8; i-- > 0;) {
				const struct microbatch *m;
				struct microbatch v;
				size_t n;
				struct batches *fresh = make(d, &o);
				assert_int_equal(batches_get(fresh, (uint64_t)epoch, i, &m, &n, &e),
						 0);
				assert_int_equal(hash_batch(m, n), want[epoch][i]);
				batches_free(fresh);
				if (batches_val_count(b))
					assert_int_equal(batches_val(b, 0, &v, &e), 0);
				assert_int_equal(batches_get(b, (uint64_t)epoch, i, &m, &n, &e), 0);
				assert_int_equal(hash_batch(m, n), want[epoch][i]);
			}
		}
		batches_free(b);
		dataset_free(d);
	}
}

/* Another epoch or another seed gives another order. The first order is fixed here, because an old
 * checkpoint must find the order that it was trained with. */
static void orders(void **state)
{
	(void)state;
	struct dataset *d = generate(100, 3);
	uint64_t seen[8];
	size_t k = 0;
	struct err e = { 0 };
	for (uint64_t seed = 0; seed < 4; seed++) {
		struct batch_options o = { .seed = seed,
					   .sequence_len = LONGEST,
					   .micro_batch_size = 4,
					   .accumulation = 25 };
		struct batches *b = make(d, &o);
		for (uint64_t epoch = 0; epoch < 2; epoch++) {
			const struct microbatch *m;
			size_t n;
			assert_int_equal(batches_get(b, epoch, 0, &m, &n, &e), 0);
			seen[k] = hash_batch(m, n);
			for (size_t i = 0; i < k; i++)
				assert_true(seen[i] != seen[k]);
			k++;
		}
		batches_free(b);
	}
	if (seen[0] != 0xa024a94ad767abadull)
		fail_msg("the order of seed 0, epoch 0 hashes to 0x%llx",
			 (unsigned long long)seen[0]);
	dataset_free(d);
}

static void nothing_allocated(void **state)
{
	(void)state;
	for (size_t c = 0; c < ARRAY_LEN(shapes); c++) {
		struct dataset *d = generate(shapes[c].n, c);
		struct batch_options o = options(&shapes[c], 9);
		struct batches *b = make(d, &o);
		struct err e = { 0 };
		uint64_t before = mem_count();
		for (uint64_t epoch = 0; epoch < 3; epoch++)
			for (uint64_t i = 0; i < batches_per_epoch(b, epoch); i++) {
				const struct microbatch *m;
				size_t n;
				assert_int_equal(batches_get(b, epoch, i, &m, &n, &e), 0);
			}
		for (size_t i = 0; i < batches_val_count(b); i++) {
			struct microbatch m;
			assert_int_equal(batches_val(b, i, &m, &e), 0);
		}
		assert_int_equal(mem_count() - before, 0);
		batches_free(b);
		dataset_free(d);
	}
}

/* The shape of an epoch is what its microbatches add up to. */
static void mean_shape(void **state)
{
	(void)state;
	struct dataset *d = generate(211, 5);
	for (size_t i = 0; i < 4; i++) {
		struct batch_options o = { .seed = 1,
					   .sequence_len = LONGEST + 100,
					   .micro_batch_size = 1 + (int64_t)i,
					   .accumulation = 2,
					   .sample_packing = i % 2 };
		struct batches *b = make(d, &o);
		struct err e = { 0 };
		struct batch_shape s = batches_shape(b);
		double tokens = 0, trained = 0, parts = 0, fullest = 0;
		for (uint64_t k = 0; k < batches_per_epoch(b, 0); k++) {
			const struct microbatch *m;
			size_t n, rows = 0;
			double size[8], here = 0; /* of the batch's rows, in their order */
			assert_int_equal(batches_get(b, 0, k, &m, &n, &e), 0);
			for (size_t x = 0; x < n; x++)
				for (uint32_t q = 0; q < m[x].nrows; q++)
					size[rows++] =
						m[x].row ? m[x].row[q + 1] - m[x].row[q] : m[x].n;
			for (size_t x = 0; x < rows; x++) { /* wherever they begin */
				here += size[x] - (x > i ? size[x - i - 1] : 0);
				fullest = fmax(fullest, here / (double)(1 + i));
			}
			for (size_t x = 0; x < n; x++) {
				tokens += m[x].n;
				trained += m[x].trained;
				for (uint32_t q = 0; q < m[x].nseq; q++) {
					double len = m[x].start[q + 1] - m[x].start[q];
					parts += len * len;
				}
			}
		}
		double rows = tokens / s.tokens;
		assert_true(fabs(rows - floor(rows + 0.5)) < 1e-6 && rows >= 1);
		assert_true(batches_fullest(b, 1 + i) == fullest);
		assert_true(fabs(s.trained - trained / tokens) < 1e-12);
		if (o.sample_packing)
			assert_true(s.sequences > 1 &&
				    s.sequences * parts >= tokens * tokens / rows * 0.999999);
		else
			assert_true(fabs(s.sequences - 1) < 1e-12 && rows == 211);
		batches_free(b);
	}
	dataset_free(d);
}

/* Passes of sizes of their own: the same rows in the same order as with one size, cut where the
 * list says; a short batch ends the list early. */
static void passes_have_sizes_of_their_own(void **state)
{
	(void)state;
	static const int pass[] = { 5, 1, 7, 3 };
	for (int packing = 0; packing < 2; packing++) {
		struct dataset *d = generate(211, 3);
		struct batch_options o = { .seed = 42,
					   .sequence_len = LONGEST + 100,
					   .micro_batch_size = 1,
					   .accumulation = 16,
					   .sample_packing = packing };
		struct batches *one = make(d, &o), *own = make(d, &o);
		struct err e = { 0 };
		assert_int_equal(batches_set_passes(own, pass, ARRAY_LEN(pass), &e), 0);
		assert_int_equal(batches_per_epoch(own, 0), batches_per_epoch(one, 0));
		for (uint64_t k = 0; k < batches_per_epoch(own, 0); k++) {
			const struct microbatch *a, *b;
			size_t na, nb, at = 0;
			assert_int_equal(batches_get(one, 0, k, &a, &na, &e), 0);
			assert_int_equal(batches_get(own, 0, k, &b, &nb, &e), 0);
			for (size_t i = 0; i < nb; i++) {
				uint32_t tokens = 0, trained = 0, seqs = 0;
				for (int r = 0; r < pass[i] && at < na; r++, at++) {
					assert_memory_equal(a[at].id, b[i].id + tokens,
							    a[at].n * sizeof *a[at].id);
					assert_memory_equal(a[at].label, b[i].label + tokens,
							    a[at].n * sizeof *a[at].id);
					tokens += a[at].n;
					trained += a[at].trained;
					seqs += a[at].nseq;
				}
				assert_true(b[i].n == tokens && b[i].trained == trained &&
					    b[i].nseq == seqs);
			}
			assert_int_equal(at, na); /* all rows, also of the short batch */
		}
		assert_int_equal(batches_set_passes(own, (const int[]){ 0, 16 }, 2, &e), ERR_USAGE);
		batches_free(one);
		batches_free(own);
		dataset_free(d);
	}
}

static void refused(void **state)
{
	(void)state;
	struct dataset *d = generate(10, 1);
	const struct batch_options good = {
		.seed = 1, .sequence_len = LONGEST, .micro_batch_size = 1, .accumulation = 1
	};
	struct batch_options bad[9];
	for (size_t i = 0; i < ARRAY_LEN(bad); i++)
		bad[i] = good;
	bad[0].micro_batch_size = 0;
	bad[1].accumulation = 0;
	bad[2].val_set_size = 10;
	bad[3].val_set_size = NAN;
	bad[4].val_set_size = -0.5;
	bad[5].val_set_size = INFINITY;
	bad[6].micro_batch_size = INT64_MAX;
	bad[7].micro_batch_size = INT32_MAX;
	bad[8].val_set_size = 0.99;
	for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
		struct batches *b = NULL;
		struct err e = { 0 };
		assert_int_equal(batches_new(d, &bad[i], &b, &e), ERR_USAGE);
		assert_null(b);
	}
	for (uint64_t n = 1;; n++) {
		struct batches *b = NULL;
		struct err e = { 0 };
		mem_fail_after(n);
		int rc = batches_new(d, &good, &b, &e);
		mem_fail_after(0);
		if (!rc) {
			assert_true(n > 10);
			batches_free(b);
			break;
		}
		assert_int_equal(rc, ERR_NOMEM);
	}
	dataset_free(d);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(everything_once),
		cmocka_unit_test(copies),
		cmocka_unit_test(packing_fits),
		cmocka_unit_test(resuming),
		cmocka_unit_test(orders),
		cmocka_unit_test(nothing_allocated),
		cmocka_unit_test(refused),
		cmocka_unit_test(mean_shape),
		cmocka_unit_test(passes_have_sizes_of_their_own),
	};
	return cmocka_run_group_tests_name("data_batch", tests, NULL, NULL);
}
