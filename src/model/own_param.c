/* SPDX-License-Identifier: Apache-2.0 */
/* own_param.c - the parameters of a model of one's own: names, shapes, first values. A name is that
 * of the same module in PyTorch's nn.Sequential, so it begins with the number of its layer; the
 * embedding of a model of tokens is `embed.weight`. */
#include "model/own.h"

#include "base/err.h"
#include "base/mem.h"
#include "base/rng.h"
#include "data/sample_set.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static size_t of_block(const struct own_block *b, struct own_param p[OWN_PARAMS])
{
	return b->kind->params ? b->kind->params(b, p) : 0;
}

/* "3.0.": the numbers of a block and of those around it. */
static void prefix(const struct own_model *m, int place, char out[256])
{
	size_t at = 0;
	for (int i = 0; i <= place && at < 200;) {
		const struct own_block *b = &m->block[i];
		if (i == place || place <= i + b->inside) {
			at += (size_t)snprintf(out + at, 256 - at, "%d.", (int)b->number);
			i++;
		} else {
			i += 1 + b->inside;
		}
	}
}

static int layer_of(const struct own_model *m, int place)
{
	int layer = 0;
	while (place > m->first[layer] + m->block[m->first[layer]].inside)
		layer++;
	return layer;
}

bool own_param_at(const struct own_model *m, size_t i, struct own_param *p_p, char name[256],
		  int *layer_p)
{
	struct own_param p[OWN_PARAMS];
	if (m->tokens && i == 0) {
		*p_p = (struct own_param){ .name = "weight",
					   .ndim = 2,
					   .dim = { m->tokens, m->input.dim[0] },
					   .first = FIRST_NORMAL };
		snprintf(name, 256, "embed.weight");
		*layer_p = -1;
		return true;
	}
	i -= m->tokens > 0;
	for (int place = 0; place < m->n; place++) {
		const size_t n = of_block(&m->block[place], p);
		if (i < n) {
			*p_p = p[i];
			prefix(m, place, name);
			const size_t at = strlen(name);
			snprintf(name + at, 256 - at, "%s", p[i].name);
			*layer_p = layer_of(m, place);
			return true;
		}
		i -= n;
	}
	return false;
}

bool own_param_find(const struct own_model *m, const char *name, struct own_param *p_p)
{
	char is[256];
	int layer;
	for (size_t i = 0; own_param_at(m, i, p_p, is, &layer); i++)
		if (!strcmp(is, name))
			return true;
	return false;
}

bool own_has_classes(const struct own_model *m) { return m->loss.v[OWN_NUMBERS - 1] > 0; }

const struct own_kind *own_of_batches(const struct own_model *m)
{
	for (int i = 0; i < m->n; i++)
		if (m->block[i].kind->batch)
			return m->block[i].kind;
	return NULL;
}

int own_check_data(const struct own_model *m, const struct sample_set *s, const char *where,
		   bool plain, struct err *e)
{
	if (!s)
		return err_set(e, ERR_UNSUPPORTED,
			       "%s: a model of one's own is trained by a program with its data "
			       "(heteroshard.h), not on text",
			       where);
	if (!plain)
		return err_set(e, ERR_USAGE,
			       "%s: adapter, load_in_4bit, rl, sample_prompts, and a profile other "
			       "than none are not possible with a model of one's own",
			       where);
	if (s->in_words != own_input_words(m) || s->out_words != own_target_words(m))
		return err_set(e, ERR_USAGE,
			       "the data gives rows of %u numbers with targets of %u; the model "
			       "reads %lld and compares with %lld",
			       s->in_words, s->out_words, (long long)own_input_words(m),
			       (long long)own_target_words(m));
	return 0;
}

size_t own_params(const struct own_model *m, int64_t layer)
{
	struct own_param p[OWN_PARAMS];
	size_t n = 0;
	if (layer < 0)
		return m->tokens > 0;
	const int first = m->first[layer];
	for (int i = first; i <= first + m->block[first].inside; i++)
		n += of_block(&m->block[i], p);
	return n;
}

void own_first_values(const struct own_param *p, const char *name, uint64_t seed, int64_t row0,
		      int64_t rows, float *dst)
{
	const int64_t cols = p->ndim == 2 ? p->dim[1] : 1, from = row0 * cols;
	uint64_t k = rng_fold(seed, 0x6f776e); /* "own" */
	for (const char *c = name; *c; c++)
		k = rng_fold(k, (unsigned char)*c);
	const struct rng_key key = rng_key(k);
	const float bound = 1.0f / sqrtf((float)(p->fan > 0 ? p->fan : 1));
	for (int64_t i = 0; i < rows * cols; i++) {
		const uint64_t at = (uint64_t)(from + i);
		switch (p->first) {
		case FIRST_ZERO:
			dst[i] = 0;
			break;
		case FIRST_ONE:
			dst[i] = 1;
			break;
		case FIRST_UNIFORM:
			dst[i] = rng_uniform(key, at, -bound, bound);
			break;
		case FIRST_NORMAL:
			dst[i] = rng_normal(key, at);
			break;
		}
	}
}
