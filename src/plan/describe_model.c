/* SPDX-License-Identifier: Apache-2.0 */
/* describe_model.c - the model of a description: parameters and bytes as the profiler counts them
 * (describe.h has the formulas). */
#include "plan/describe_parts.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/err.h"
#include "base/json.h"
#include "base/mem.h"
#include "dev/dev_delta.h"
#include "file/model_file.h"
#include "file/text_part.h"
#include "model/lora.h"
#include "tensor/ops.h"

#define GIB 1073741824.0
#define NF4_BYTES (0.5 + 1.0 / 64) /* a number of a matrix: 4 bits, and 8 for each block of 64 */
#define MX_BYTES (0.5 + 1.0 / 32 + 1.0 / 2048) /* the same, of 32; and 32 for each 256 blocks */

static int from_shape(const struct description *d, struct model_config *c, struct err *e)
{
	const struct described_model *m = &d->shape;
	const int64_t heads = m->heads ? m->heads : m->hidden >= 128 ? m->hidden / 128 : 1;
	char where[300];
	json_t *j;
	int rc;

	snprintf(where, sizeof where, "%.280s: 'model'", d->path);
	if (!m->layers || !m->hidden || !m->intermediate || !m->vocab)
		return err_set(e, ERR_USAGE,
			       "%s needs at least layers, hidden, intermediate and vocab", where);
	if (!m->head_dim && m->hidden % heads)
		return err_set(
			e, ERR_USAGE,
			"%s: hidden %lld is not a multiple of %lld heads; give 'head_dim' or "
			"other 'heads'",
			where, (long long)m->hidden, (long long)heads);
	j = json_pack("{s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:b, s:s, s:I}", "model_type", "llama",
		      "hidden_size", (json_int_t)m->hidden, "intermediate_size",
		      (json_int_t)m->intermediate, "num_hidden_layers", (json_int_t)m->layers,
		      "num_attention_heads", (json_int_t)heads, "num_key_value_heads",
		      (json_int_t)(m->kv_heads ? m->kv_heads : heads), "vocab_size",
		      (json_int_t)m->vocab, "tie_word_embeddings", m->tied, "hidden_act", "silu",
		      "head_dim", (json_int_t)(m->head_dim ? m->head_dim : m->hidden / heads));
	if (!j)
		return err_set(e, ERR_NOMEM, "out of memory for a description");
	rc = model_config_read(j, where, c, e);
	json_decref(j);
	return rc;
}

static int from_files(const struct description *d, struct model_config *c, struct err *e)
{
	const size_t n = strlen(d->base_model);
	char path[1024];
	json_t *j = NULL, *text = NULL;
	int rc;

	if (n > 5 && !strcmp(d->base_model + n - 5, ".gguf")) {
		struct model_file *f;
		TRY(model_file_open(d->base_model, &f, e));
		rc = model_config_read(model_file_config(f), d->base_model, c, e);
		model_file_close(f);
		return rc;
	}
	if (n > 5 && !strcmp(d->base_model + n - 5, ".json"))
		snprintf(path, sizeof path, "%s", d->base_model);
	else
		snprintf(path, sizeof path, "%s/config.json", d->base_model);
	if (json_parse_file_in(path, 16u << 20, JSON_MEMORY_CONFIG, &j, e) < 0)
		return err_prefix(e, "%s: 'base_model'", d->path);
	rc = text_part_config(j, path, &text, e);
	if (rc >= 0)
		rc = model_config_read(text ? text : j, path, c, e);
	json_decref(text);
	json_decref(j);
	return rc;
}

/* Parameters of the adapters of a layer. */
static int adapters(const struct description *d, const struct model_config *c, double *n_p,
		    char *text, size_t cap, struct err *e)
{
	struct lora_options o = { .r = d->lora_r };
	size_t at = 0;

	*n_p = 0;
	if (lora_targets(c, d->lora_target_modules.item, d->lora_target_modules.n, &o, e) < 0)
		return err_prefix(e, "%s: 'lora_target_modules'", d->path);
	at += (size_t)snprintf(text, cap, "lora r %lld on", (long long)d->lora_r);
	for (int l = 0; l < LIN_COUNT; l++) {
		if (!o.target[l])
			continue;
		*n_p += (double)(d->lora_r * linear_sides(c, l)) / (double)c->layers;
		if (at < cap)
			at += (size_t)snprintf(text + at, cap - at, " %s", linear_name(l));
	}
	if (at < cap)
		snprintf(text + at, cap - at, "%s, adamw",
			 d->adapter == ADAPTER_QLORA ? ", 4-bit" : "");
	return 0;
}

int describe_model(const struct description *d, struct profile *p, struct model_config *c,
		   struct err *e)
{
	const double bytes = profile_dtype_bytes(p);
	double table, saved = 0, lora = 0, state; /* saved: by 4 bits, in a layer */
	char training[256] = "full, adamw";

	TRY(d->has_shape ? from_shape(d, c, e) : from_files(d, c, e));
	if (d->adapter != ADAPTER_NONE)
		TRY(adapters(d, c, &lora, training, sizeof training, e));
	for (enum linear l = 0; l < LIN_COUNT; l++) {
		const double numbers = (double)linear_weights(c, l) / (double)c->layers;
		if (c->experts_mx && linear_is_expert(l))
			saved += numbers * (bytes - MX_BYTES);
		else if (d->adapter == ADAPTER_QLORA && !linear_is_router(l))
			saved += numbers * (bytes - NF4_BYTES);
	}
	table = (double)c->vocab * (double)c->hidden;
	p->model = arena_strdup(&p->mem, d->base_model                     ? d->base_model
					 : d->shape.name && *d->shape.name ? d->shape.name
									   : "described model");
	p->training = arena_strdup(&p->mem, training);
	if (!p->model || !p->training)
		return err_set(e, ERR_NOMEM, "out of memory for a profile");
	p->tied = c->tied;
	p->layers = (int)c->layers;
	p->hidden = (int)c->hidden;
	p->parameters = (double)model_parameters(c);
	p->parameters_per_layer = (double)model_layer_parameters(c);
	p->embedding_parameters = table;
	p->head_parameters = (double)c->hidden + (c->tied ? 0 : table);
	p->layer_gib = (p->parameters_per_layer * bytes + lora * 4 - saved) / GIB;
	p->experts = (int)c->experts;
	p->top_k = (int)c->top_k;
	p->expert_parameters = c->experts ? 3.0 * (double)c->hidden * (double)c->intermediate : 0;
	if (c->experts && d->adapter != ADAPTER_NONE)
		p->expert_gib = (double)(c->layers - c->dense_layers) / (double)c->layers *
				model_expert_bytes(c, d->adapter == ADAPTER_QLORA, true,
						   bytes < 4 ? DT_BF16 : DT_F32) /
				GIB;
	p->embedding_gib = table * bytes / GIB;
	p->head_gib = (table + (double)c->hidden) * bytes / GIB;
	/* gradient and two moments, and where values have 16 bits those in float32 */
	p->gradient_share = bytes < 4 ? 0.25 : 1.0 / 3;
	state = bytes < 4 ? 16 : 12;
	p->layer_state_gib = p->parameters_per_layer * state / GIB;
	p->embedding_state_gib = table * state / GIB;
	p->head_state_gib = c->tied ? table * 4 / GIB : (table + (double)c->hidden) * state / GIB;
	if (d->adapter != ADAPTER_NONE) {
		p->gradient_share = 1.0 / 3;
		p->layer_state_gib = lora * 12 / GIB;
		p->embedding_state_gib = p->head_state_gib = 0;
	}
	return 0;
}

/* Which inputs of the feed-forward matrices stay for backward: all where matrices are trained, and
 * of experts, else those of matrices with adapters (block_mlp()). */
static void kept_inputs(const struct description *d, const struct model_config *c, bool *in_p,
			bool *down_p)
{
	struct lora_options o = { .r = d->lora_r };
	struct err ignored = { 0 };
	*in_p = *down_p = true;
	if (d->adapter == ADAPTER_NONE || c->experts ||
	    lora_targets(c, d->lora_target_modules.item, d->lora_target_modules.n, &o, &ignored) <
		    0)
		return;
	*in_p = o.target[linear_as(c, LIN_GATE)] || o.target[linear_as(c, LIN_UP)] ||
		o.target[linear_as(c, LIN_GATE_UP)];
	*down_p = o.target[linear_as(c, LIN_DOWN)];
}

void describe_memory(const struct description *d, const struct profile *p,
		     const struct model_config *c, struct profile_device *x)
{
	bool in, down;
	kept_inputs(d, c, &in, &down);
	const double T = p->sequence_len, C = (double)c->hidden, F = (double)c->intermediate,
		     kv = (double)(c->kv_heads * c->head_dim), bytes = profile_dtype_bytes(p),
		     k = c->experts ? (double)c->top_k
				    : 1, /* rows of a token, of experts both sides */
		own = c->experts ? 2 * k * C * bytes + 8 * (double)c->experts : 0,
		     wide = k * F + (double)c->shared + (c->beside ? (double)c->dense_width : 0),
		     side = c->beside ? 7 * C : 0, /* norms, and what each side gives */
		attn = c->delta_layers || c->latent.kv || c->full_head_dim
			       ? (double)model_attention_kept(c)
			       : 2 * C + 2 * kv,
		     all = T *
			   ((4 * C + side + attn + 3 * wide) * bytes + own + 4 * (double)c->heads),
		     kept = all - T * ((in ? 0 : C) + (down ? 0 : F)) * bytes,
		     rows = (double)op_loss_rows(c->vocab);
	const struct delta_heads *h = &c->delta_heads;
	const struct dev_delta delta = { p->sequence_len, 1, h->values, h->dk, h->dv };
	const double states = c->delta_layers ? (double)dev_delta_bytes(&delta, 1) : 0;

	x->kept_gib = (struct curve){ .line = true, .given = true, .slope = kept / GIB };
	x->activation_gib = x->kept_gib;
	x->activation_gib.slope +=
		(T * (2 * C + 2 * k * (F + (k > 1 ? C : 0))) * bytes + states) / GIB;
	x->head_gib = (struct curve){ .line = true,
				      .given = true,
				      .slope = 4 * T * C * bytes / GIB,
				      .intercept = fmin(rows, T) * 4 * (double)c->vocab / GIB };
	x->head_kept_gib =
		(struct curve){ .line = true, .given = true, .slope = 2 * T * C * bytes / GIB };
}
