/* SPDX-License-Identifier: Apache-2.0 */
/* gguf_layout.c - see gguf_layout.h. */
#include "file/gguf_layout.h"

#include "base/err.h"
#include "base/json.h"
#include "base/mem.h"
#include "file/gguf_names.h"

#include <math.h>
#include <string.h>

static const char rotated[] = "self_attn.";

/* Interleaved are the weights and biases of q_proj and k_proj. */
static bool is_rotary(const char *name)
{
	const char *s = strstr(name, rotated);
	s = s ? s + sizeof rotated - 1 : "";
	return !strncmp(s, "q_proj", 6) || !strncmp(s, "k_proj", 6);
}

/* ---- linear attention ---- */

int gguf_linear_heads(const json_t *config, const char *where, struct gguf_heads *h, struct err *e)
{
	const struct {
		const char *key;
		int64_t *v, otherwise;
	} row[] = { { "linear_num_key_heads", &h->keys, 16 },
		    { "linear_num_value_heads", &h->values, 32 },
		    { "linear_key_head_dim", &h->dk, 128 },
		    { "linear_value_head_dim", &h->dv, 128 },
		    { "linear_conv_kernel_dim", &h->conv, 4 } };
	for (size_t i = 0; i < ARRAY_LEN(row); i++) {
		*row[i].v = row[i].otherwise;
		TRY(json_opt_int(config, where, row[i].key, 1, GGUF_LINEAR_MOST, row[i].v, e));
	}
	return h->values % h->keys == 0
		       ? 0
		       : err_set(e, ERR_INPUT,
				 "%s: %lld value heads of linear attention are not a multiple of "
				 "%lld key heads",
				 where, (long long)h->values, (long long)h->keys);
}

/* What of a name follows "linear_attn."; NULL: it is of something else. */
static const char *part_of_linear(const char *name)
{
	static const char in[] = "linear_attn.";
	const char *s = strstr(name, in);
	return s ? s + sizeof in - 1 : NULL;
}

static void linear_tiles(const struct gguf_heads *h, const char *part, struct gguf_layout *l)
{
	const struct gguf_tiles one = { 0, 1, h->keys, h->values / h->keys },
				wide = { 0, h->dv, h->keys, h->values / h->keys };
	if (!strncmp(part, "in_proj_qkv", 11)) {
		l->rows = wide;
		l->rows.first = 2 * h->keys * h->dk;
	} else if (!strncmp(part, "conv1d", 6)) { /* a vector of `conv` numbers each channel */
		l->rows = wide;
		l->rows.first = 2 * h->keys * h->dk * h->conv;
		l->rows.width *= h->conv;
	} else if (!strncmp(part, "in_proj_z", 9)) {
		l->rows = wide;
	} else if (!strncmp(part, "out_proj", 8)) {
		l->columns = wide;
	} else if (strncmp(part, "norm", 4) != 0) { /* in_proj_a, in_proj_b, A_log, dt_bias */
		l->rows = one;
	}
}

static int64_t tiles_end(const struct gguf_tiles *s)
{
	return s->first + s->width * s->keys * s->per;
}

/* ---- all ---- */

int gguf_layout_of(const struct gguf_arch *a, const struct gguf_heads *h, const char *name,
		   int64_t rows, int64_t columns, const char *where, struct gguf_layout *l,
		   struct err *e)
{
	const char *part = part_of_linear(name);
	*l = (struct gguf_layout){ 0 };
	if (a->permuted && is_rotary(name))
		l->rotary = h->dim;
	if (a->plus_one && !part && strstr(name, "norm.weight"))
		l->number = GGUF_PLUS_ONE;
	if (part && !strcmp(part, "A_log"))
		l->number = GGUF_DECAY;
	if (part && h->keys > 0)
		linear_tiles(h, part, l);
	if (l->rotary && rows % l->rotary)
		return err_set(e, ERR_INPUT,
			       "%s: tensor '%s' has %lld rows, which is not a multiple of the head "
			       "width %lld",
			       where, name, (long long)rows, (long long)l->rotary);
	if ((l->rows.per && rows != tiles_end(&l->rows)) ||
	    (l->columns.per && columns != tiles_end(&l->columns)))
		return err_set(e, ERR_INPUT,
			       "%s: tensor '%s' has another shape than %lld key heads of %lld and "
			       "%lld value heads of %lld give",
			       where, name, (long long)h->keys, (long long)h->dk,
			       (long long)h->values, (long long)h->dv);
	return 0;
}

bool gguf_layout_moves(const struct gguf_layout *l)
{
	return l->rotary || l->rows.per || l->columns.per;
}

/* Block k*per + j goes to j*keys + k. */
static int64_t dealt(const struct gguf_tiles *s, int64_t i)
{
	const int64_t at = i - s->first, block = at / s->width;
	return at < 0 ? i
		      : s->first + at % s->width +
				(block % s->per * s->keys + block / s->per) * s->width;
}

static int64_t gathered(const struct gguf_tiles *s, int64_t i)
{
	return dealt(&(struct gguf_tiles){ s->first, s->width, s->per, s->keys }, i);
}

int64_t gguf_row_of_hf(const struct gguf_layout *l, int64_t row)
{
	if (l->rows.per)
		return dealt(&l->rows, row);
	if (!l->rotary)
		return row;
	const int64_t in = row % l->rotary, half = l->rotary / 2;
	return row - in + in % half * 2 + in / half;
}

int64_t hf_row_of_gguf(const struct gguf_layout *l, int64_t row)
{
	if (l->rows.per)
		return gathered(&l->rows, row);
	if (!l->rotary)
		return row;
	const int64_t in = row % l->rotary;
	return row - in + in % 2 * (l->rotary / 2) + in / 2;
}

int64_t gguf_layout_run(const struct gguf_layout *l, int64_t row, int64_t rows)
{
	const struct gguf_tiles *s = &l->rows;
	const int64_t to = l->rotary        ? row + 1
			   : !s->per        ? rows
			   : row < s->first ? s->first
					    : row + s->width - (row - s->first) % s->width;
	return (to < rows ? to : rows) - row;
}

void gguf_columns_of_hf(const struct gguf_layout *l, const float *x, float *y, int64_t n,
			int64_t columns)
{
	for (int64_t c = 0, some; c < columns; c += some) {
		const int64_t to = dealt(&l->columns, c);
		some = c < l->columns.first ? l->columns.first - c : l->columns.width;
		for (int64_t i = 0; i < n; i++)
			memcpy(y + i * columns + to, x + i * columns + c, (size_t)some * 4);
	}
}

void hf_columns_of_gguf(const struct gguf_layout *l, const float *x, float *y, int64_t n,
			int64_t columns)
{
	for (int64_t c = 0, some; c < columns; c += some) {
		const int64_t from = dealt(&l->columns, c);
		some = c < l->columns.first ? l->columns.first - c : l->columns.width;
		for (int64_t i = 0; i < n; i++)
			memcpy(y + i * columns + c, x + i * columns + from, (size_t)some * 4);
	}
}

void gguf_numbers_of_hf(const struct gguf_layout *l, float *x, uint64_t n)
{
	for (uint64_t i = 0; i < n && l->number == GGUF_PLUS_ONE; i++)
		x[i] += 1;
	for (uint64_t i = 0; i < n && l->number == GGUF_DECAY; i++)
		x[i] = (float)-exp((double)x[i]);
}

int hf_numbers_of_gguf(const struct gguf_layout *l, float *x, uint64_t n, const char *name,
		       struct err *e)
{
	for (uint64_t i = 0; i < n && l->number == GGUF_PLUS_ONE; i++)
		x[i] -= 1;
	for (uint64_t i = 0; i < n && l->number == GGUF_DECAY; i++) {
		if (!(x[i] < 0 && isfinite(x[i])))
			return err_set(e, ERR_INPUT,
				       "tensor '%s': %g is not a decay: it must be "
				       "less than 0",
				       name, (double)x[i]);
		x[i] = (float)log(-(double)x[i]);
	}
	return 0;
}
