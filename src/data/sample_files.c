/* SPDX-License-Identifier: Apache-2.0 */
/* sample_files.c - see sample_files.h. Blocks of samples are kept until others are needed; the one
 * that was not used for longest goes first. */
#include "data/sample_files.h"

#include "base/err.h"
#include "base/mem.h"
#include "base/rng.h"

#include <string.h>

enum { BLOCK_BYTES = 1 << 20, MIXED_MOST = SAMPLE_FILES_MEMORY / BLOCK_BYTES, MORE = 2 };

struct kept {
	bool full;
	uint64_t block, used; /* which; when it was last used */
	char *x, *y;
};

struct sample_files {
	struct array *x, *y;
	struct sample_set set;
	double scale, shift;
	size_t in, out; /* bytes of a sample */
	uint64_t block; /* samples that are read at once */
	struct kept *kept, *last;
	uint64_t n, clock;
};

static void scale(const struct sample_files *f, float *x, uint64_t n)
{
	const float by = (float)f->scale, more = (float)f->shift;
	if (f->x->whole || (f->scale == 1 && f->shift == 0))
		return;
	for (uint64_t i = 0; i < n; i++)
		x[i] = x[i] * by + more;
}

static int load(struct sample_files *f, struct kept *k, uint64_t block, struct err *e)
{
	const uint64_t first = block * f->block, left = f->set.count + f->set.held - first,
		       n = left < f->block ? left : f->block;
	k->full = false;
	k->x = k->x ? k->x : mem_alloc(f->block * f->in);
	k->y = k->y ? k->y : mem_alloc(f->block * f->out);
	if (!k->x || !k->y)
		return err_nomem(e, f->block * (f->in + f->out), "a block of samples");
	TRY(array_read(f->x, first, n, k->x, e));
	TRY(array_read(f->y, first, n, k->y, e));
	scale(f, (float *)(void *)k->x, n * f->in / 4);
	k->block = block;
	k->full = true;
	return 0;
}

static int find(struct sample_files *f, uint64_t block, struct kept **k_p, struct err *e)
{
	struct kept *oldest = &f->kept[0];
	if (f->last && f->last->full && f->last->block == block) {
		*k_p = f->last;
		return 0;
	}
	for (uint64_t i = 0; i < f->n; i++) {
		struct kept *k = &f->kept[i];
		if (k->full && k->block == block) {
			oldest = k;
			break;
		}
		if (k->used < oldest->used)
			oldest = k;
	}
	if (!oldest->full || oldest->block != block)
		TRY(load(f, oldest, block, e));
	oldest->used = ++f->clock;
	*k_p = f->last = oldest;
	return 0;
}

static int get(void *ctx, uint64_t index, void *in, void *out, struct err *e)
{
	struct sample_files *f = ctx;
	struct kept *k;
	TRY(find(f, index / f->block, &k, e));
	memcpy(in, k->x + index % f->block * f->in, f->in);
	memcpy(out, k->y + index % f->block * f->out, f->out);
	return 0;
}

/* Rows of a file are samples of `length` rows of the model. */
static int check(struct sample_files *f, const struct sample_files_options *o, struct err *e)
{
	const struct array *x = f->x, *y = f->y;
	const uint64_t length = o->length ? o->length : x->each / o->in_words;
	if (!length || length > SAMPLE_ROWS_MOST || x->each != length * o->in_words)
		return err_set(e, ERR_INPUT,
			       "%s: its rows have %llu numbers; the model reads %llu (of each of "
			       "%llu rows of a sample)",
			       x->path, (unsigned long long)x->each,
			       (unsigned long long)o->in_words, (unsigned long long)length);
	if (y->each != length * o->out_words)
		return err_set(e, ERR_INPUT,
			       "%s: its rows have %llu numbers; the model compares with %llu (of "
			       "each of %llu rows of a sample)",
			       y->path, (unsigned long long)y->each,
			       (unsigned long long)o->out_words, (unsigned long long)length);
	if (x->rows != y->rows || x->rows <= o->held)
		return err_set(e, ERR_INPUT,
			       "%s has %llu samples, %s %llu, of which %llu are held out: that is "
			       "nothing to train on",
			       x->path, (unsigned long long)x->rows, y->path,
			       (unsigned long long)y->rows, (unsigned long long)o->held);
	f->set.length = (uint32_t)length;
	return 0;
}

static void choose_blocks(struct sample_files *f, const struct sample_files_options *o)
{
	const uint64_t each = f->in + f->out, fit = BLOCK_BYTES / each;
	const bool all = f->x->rows <= SAMPLE_FILES_MEMORY / each;
	f->block = o->block ? o->block : fit ? fit : 1;
	uint64_t mixed = SAMPLE_FILES_MEMORY / each / f->block;
	mixed = mixed > MIXED_MOST ? MIXED_MOST : mixed ? mixed : 1;
	f->set.block = o->block || !all ? f->block : 0;
	f->set.mixed = o->mixed ? o->mixed : mixed;
	const uint64_t blocks = (f->x->rows + f->block - 1) / f->block;
	f->n = (all && !o->block) || f->set.mixed + MORE > blocks ? blocks : f->set.mixed + MORE;
}

static int make(struct sample_files *f, const struct sample_files_options *o, struct err *e)
{
	uint64_t dx, dy;
	TRY(array_open(o->x, &o->x_wish, &f->x, e));
	TRY(array_open(o->y ? o->y : o->x, &o->y_wish, &f->y, e));
	TRY(check(f, o, e));
	TRY(array_digest(f->x, &dx, e));
	TRY(array_digest(f->y, &dy, e));
	f->scale = o->scale != 0 ? o->scale : f->x->bytes ? 1.0 / 255 : 1;
	f->shift = o->shift;
	f->in = (size_t)f->x->each * 4;
	f->out = (size_t)f->y->each * 4;
	choose_blocks(f, o);
	f->kept = mem_array(f->n, sizeof *f->kept);
	if (!f->kept)
		return err_nomem(e, f->n * sizeof *f->kept, "blocks of samples");
	f->set.count = f->x->rows - o->held;
	f->set.held = o->held;
	f->set.in_words = (uint32_t)o->in_words;
	f->set.out_words = (uint32_t)o->out_words;
	f->set.digest = rng_fold(dx, dy);
	f->set.get = get;
	f->set.ctx = f;
	return 0;
}

int sample_files_open(const struct sample_files_options *o, struct sample_files **f_p,
		      struct err *e)
{
	struct sample_files *f = mem_zalloc(sizeof *f);
	if (!f)
		return err_nomem(e, sizeof *f, o->x);
	const int rc = make(f, o, e);
	if (rc < 0)
		sample_files_close(f);
	else
		*f_p = f;
	return rc;
}

void sample_files_close(struct sample_files *f)
{
	if (!f)
		return;
	for (uint64_t i = 0; f->kept && i < f->n; i++) {
		mem_free(f->kept[i].x);
		mem_free(f->kept[i].y);
	}
	mem_free(f->kept);
	array_close(f->x);
	array_close(f->y);
	mem_free(f);
}

const struct sample_set *sample_files_set(const struct sample_files *f) { return &f->set; }
