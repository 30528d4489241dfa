/* SPDX-License-Identifier: Apache-2.0 */
/* count.c - how many numbers a model has, in all, of a token, of a layer; and how many of them
 * attention keeps. See model.h. */
#include "model/model.h"
#include "model/own.h"

/* Numbers of a layer's weights, of experts all or those of a token. */
static int64_t weights_of(const struct model_config *c, int64_t layer, enum linear l, bool active,
			  bool bias)
{
	int64_t dim[2], n = linear_copies(c, layer, l);
	linear_dims(c, layer, l, dim);
	n = active && n && linear_is_expert(l) ? c->top_k : n;
	return n * (dim[0] * dim[1] + (bias && linear_has_bias(c, l) ? dim[0] : 0));
}

static int64_t weights_in_all(const struct model_config *c, enum linear l, bool active, bool bias)
{
	int64_t n = 0;
	for (int64_t i = 0; i < c->layers && model_has_linear(c, l); i++)
		n += weights_of(c, i, l, active, bias);
	return n;
}

int64_t linear_weights(const struct model_config *c, enum linear l)
{
	return weights_in_all(c, l, false, false);
}

int64_t linear_sides(const struct model_config *c, enum linear l)
{
	int64_t n = 0, dim[2];
	for (int64_t i = 0; i < c->layers && model_has_linear(c, l); i++) {
		linear_dims(c, i, l, dim);
		n += linear_copies(c, i, l) * (dim[0] + dim[1]);
	}
	return n;
}

static int64_t own_parameters(const struct own_model *m, bool products)
{
	struct own_param p;
	char name[256];
	int layer;
	int64_t n = 0;
	for (size_t i = 0; own_param_at(m, i, &p, name, &layer); i++)
		if (!products || (p.ndim == 2 && layer >= 0))
			n += p.dim[0] * p.dim[1];
	return n;
}

/* Of all layers, with all experts or those of a token. */
static int64_t layers_parameters(const struct model_config *c, bool active)
{
	int64_t n = 0, width;
	for (int64_t i = 0; i < c->layers; i++) {
		n += c->sinks && !c->delta[i] ? c->heads : 0;
		for (enum linear l = 0; l < LIN_COUNT && !c->delta[i]; l++)
			n += linear_norm(c, i, l, &width) ? width : 0;
	}
	for (enum layer_norm k = 0; k < NORM_COUNT; k++)
		n += layer_norm_name(c, k) ? c->layers * c->hidden : 0;
	for (enum router_param p = 0; p < ROUTER_PARAMS && c->beside; p++)
		n += c->layers * router_param_count(c, p);
	for (enum delta_param p = 0; p < DELTA_PARAMS && delta_param_name(c, p); p++)
		n += c->delta_layers * delta_param_count(c, p);
	for (enum linear l = 0; l < LIN_COUNT; l++)
		n += weights_in_all(c, l, active, true);
	return n + (correction_name(c) ? (c->layers - c->dense_layers) * c->experts : 0);
}

int64_t model_layer_parameters(const struct model_config *c)
{
	return (c->own.n ? own_parameters(&c->own, false) : layers_parameters(c, false)) /
	       c->layers;
}

double model_expert_bytes(const struct model_config *c, bool quantize, bool double_quant,
			  enum dtype act)
{
	const double each = c->experts_mx ? 0.5 + 1.0 / 32
			    : quantize    ? 0.5 + (double_quant ? 1 : 4) / 64.0
					  : (double)dtype_size(act);
	return 3 * (double)(c->experts * c->hidden * c->intermediate) * each;
}

int64_t model_active_parameters(const struct model_config *c)
{
	return c->own.n ? model_parameters(c)
			: model_parameters(c) - layers_parameters(c, false) +
				  layers_parameters(c, true);
}

int64_t model_parameters(const struct model_config *c)
{
	if (c->own.n)
		return own_parameters(&c->own, false);
	return layers_parameters(c, false) + c->hidden + c->vocab * c->hidden * (c->tied ? 1 : 2);
}

int64_t model_matmul_parameters(const struct model_config *c)
{
	if (c->own.n)
		return own_parameters(&c->own, true);
	int64_t n = c->vocab * c->hidden;
	for (enum linear l = 0; l < LIN_COUNT; l++)
		n += weights_in_all(c, l, true, false);
	return n;
}

/* The latents and their norms, the turned part, keys and values as they are made; then queries,
 * keys, values and what comes out, all of head_dim numbers, and the part of it that is none of
 * padding. */
static int64_t latent_kept(const struct model_config *c)
{
	const int64_t q = c->heads * c->head_dim, value = c->heads * c->latent.value;
	return 2 * c->latent.q + 3 * c->latent.kv + 2 * c->rot + c->heads * c->latent.plain +
	       value + 4 * q + (value < q ? value : 0);
}

int64_t model_attention_kept(const struct model_config *c)
{
	if (c->latent.kv)
		return latent_kept(c);
	const int64_t wide = c->delta_heads.values * c->delta_heads.dv,
		      /* joined: the product, and q with k */
		linear =
			c->lfm2 ? 6 * c->hidden /* the product, what goes through the convolution */
				: 3 * delta_width(&c->delta_heads) + 4 * wide +
					  (c->delta_joined ? 3 * delta_width(&c->delta_heads) : 0);
	int64_t n = c->delta_layers * linear;
	for (int64_t i = 0; i < c->layers; i++) {
		const int64_t d = layer_head_dim(c, i), q = c->heads * d,
			      kv = layer_kv_heads(c, i) * d;
		/* a gate: the product of q_proj, and its second half; or what it leaves */
		n += c->delta[i] ? 0
				 : 2 * (q + kv) + (c->attn_gate ? 4 * q : 0) +
					   (c->head_gate ? c->heads + q : 0);
	}
	return n / c->layers;
}
