/* SPDX-License-Identifier: Apache-2.0 */
/* model.h - what a decoder-only model consists of, read from its configuration (the keys
 * of config.json).
 *
 * A family (rows of model.def) lists the keys it reads. Every key of the configuration must be one
 * that is read or one that is known not to change the result: an unknown key, or a value that asks
 * for mathematics that is not supported, is an error that names it. */
#ifndef HS_MODEL_MODEL_H
#define HS_MODEL_MODEL_H

#include "base/dtype.h"
#include "model/own_spec.h"
#include "tensor/delta_heads.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct err;

/* The end of the name of the correction of a router's choice, and of LFM2's. */
#define MODEL_CORRECTION ".e_score_correction_bias"
#define MODEL_FF_CORRECTION ".expert_bias"
/* The number that a layer's output is multiplied by, behind "model.layers.3.". */
#define MODEL_LAYER_SCALAR "layer_scalar"

enum { MODEL_LAYERS_MOST = 1024, MODEL_HEAD_DIM_MOST = 512, ROPE_TABLES = 2 };

/* The linear modules of a layer. A family has q, k, v or all three as one matrix, and gate and up
 * or both as one, or a router and experts, each of which has all of an expert's modules. The
 * numbers are in the keys of dropout masks: new ones go to the end. */
enum linear {
	LIN_Q,
	LIN_K,
	LIN_V,
	LIN_O,
	LIN_GATE,
	LIN_UP,
	LIN_DOWN,
	LIN_QKV,
	LIN_GATE_UP,
	LIN_ROUTER, /* as Qwen names them */
	LIN_EXPERT_GATE,
	LIN_EXPERT_UP,
	LIN_EXPERT_DOWN,
	LIN_SPARSE_ROUTER, /* as Mixtral names them */
	LIN_SPARSE_W1,
	LIN_SPARSE_W3,
	LIN_SPARSE_W2,
	LIN_OSS_ROUTER,  /* as gpt-oss names it */
	LIN_SHARED_GATE, /* of the expert that every token has, as Qwen2-MoE names it */
	LIN_SHARED_UP,
	LIN_SHARED_DOWN,
	LIN_SHARED_SCORE, /* the logit of its share */
	LIN_SHARED_GATES, /* as GLM-4 names them: several as one */
	LIN_SHARED_UPS,
	LIN_SHARED_DOWNS,
	LIN_DELTA_QKV, /* of linear attention, as Qwen3.5 names them */
	LIN_DELTA_Z,
	LIN_DELTA_B,
	LIN_DELTA_A,
	LIN_DELTA_OUT,
	LIN_DELTA_QKVZ, /* as Qwen3-Next names them: those before LIN_DELTA_OUT in two matrices */
	LIN_DELTA_BA,
	LIN_Q_A, /* of latent attention: to the latents of queries, and from them to heads */
	LIN_Q_B,
	LIN_KV_A,
	LIN_KV_B,
	LIN_SIDE_ROUTER, /* as Gemma 4 names them, beside an MLP */
	LIN_SIDE_GATE,
	LIN_SIDE_UP,
	LIN_SIDE_DOWN,
	LIN_CONV_IN, /* as LFM2 names them: of a short convolution, of attention, of an MLP */
	LIN_CONV_OUT,
	LIN_ATTN_OUT,
	LIN_FF_GATE,
	LIN_FF_UP,
	LIN_FF_DOWN,
	LIN_ONE_IN, /* of an MLP, as Granite 4 names them: gate and up as one, and down */
	LIN_ONE_OUT,
	LIN_FF_ROUTER, /* as LFM2 with experts names them */
	LIN_FF_EXPERT_GATE,
	LIN_FF_EXPERT_UP,
	LIN_FF_EXPERT_DOWN,
	LIN_HEAD_GATE, /* as LFM3 names it: a gate of each head's output */
	LIN_COUNT
};

/* The names of a router and experts, as Qwen 2 and 3 have them, as Mixtral, as gpt-oss, whose
 * experts are named as Qwen's here (file/model_file.h), as Gemma 4 or as LFM2. */
enum expert_names { EXPERTS_MLP, EXPERTS_SPARSE, EXPERTS_OSS, EXPERTS_SIDE, EXPERTS_FF };

/* Where a router has a vector that is added to what experts are chosen by, not to their weights,
 * and that has no gradient: nowhere, as GLM-4.5 names it, as ERNIE 4.5, a matrix of one row, or as
 * LFM2. */
enum correction { CORRECTION_NONE, CORRECTION_GATE, CORRECTION_STATICS, CORRECTION_FF };

/* Before attention and MLP (Llama, LFM2), behind both (OLMo 2), or both before and behind under the
 * names of Gemma 2, of GLM-4 or of LFM3. */
enum norms { NORMS_BEFORE, NORMS_BEHIND, NORMS_GEMMA, NORMS_GLM, NORMS_LFM2, NORMS_LFM3 };
/* The places of norms in a layer. */
enum layer_norm {
	NORM_ATTN_IN,
	NORM_ATTN_OUT,
	NORM_MLP_IN,
	NORM_MLP_OUT,  /* where an MLP and experts are side by side, of their sum */
	NORM_SIDE_MLP, /* there, of what the MLP gives; of what experts get and give */
	NORM_SIDE_IN,
	NORM_SIDE_OUT,
	NORM_COUNT
};

struct model_config {
	/* row of model.def */
	const char *family;
	/* C = hidden, F = intermediate, H, G, D, V */
	int64_t layers, hidden, intermediate, heads, kv_heads, head_dim, vocab;
	/* Layers without a window have heads of another width, and another number of those of keys
	 * and values (Gemma 4); 0: the same */
	int64_t full_head_dim, full_kv_heads;
	bool full_k_is_v; /* and v is k there, before its norm and rotation */
	/* v is normed without weights; what a layer gives is multiplied by a number of its own,
	 * which is not trained (Gemma 4) */
	bool v_norm, layer_scalar;
	int64_t max_positions; /* 0: not stated */
	double norm_eps;
	bool tied; /* the head is the embedding */
	bool qkv_bias, o_bias, mlp_bias;
	/* RMSNorm on each head of q and k before the rotation (Qwen3); qk_norm_whole: on all heads
	 * as one vector (OLMo 2) */
	bool qk_norm, qk_norm_whole;
	enum norms norms; /* where a layer has its norms */
	float norm_plus;  /* all norms multiply with their weight plus this */
	bool gelu;        /* of the gate, by tanh; else SiLU */
	/* q, k and v are one matrix; gate and up are */
	bool fused_qkv, fused_gate_up;
	bool one_mlp; /* the names of Granite 4 for an MLP with gate and up as one */
	/* Factors on embeddings, on what a block adds to the residual stream, on scores and on
	 * logits; 0: 1, for scores 1/sqrt(D). */
	double embed_scale, residual_scale, attn_scale, logit_scale;
	bool embed_rounded; /* embed_scale is rounded to the dtype of activations */
	/* A mixture: `experts` of F numbers in place of an MLP, of which a token has the `top_k`
	 * likeliest; their weights are probabilities, `whole` divided by their sum, times
	 * routed_scale (0: 1). 0: dense */
	int64_t experts, top_k;
	bool experts_whole;
	enum expert_names expert_names;
	/* Layers with experts have an MLP of dense_width numbers too: both get what attention left,
	 * each normed on its own, and so are their results (Gemma 4). The router reads that normed
	 * with a weight of its own and divided by the square root of its width, and the weights of
	 * experts are multiplied by a number of each */
	bool beside;
	/* Of GLM-4: a probability is the sigmoid of a logit */
	bool router_sigmoid;
	enum correction correction;
	double routed_scale;
	/* Beside them an expert of so many numbers that every token has, 0: none; gated: times the
	 * sigmoid of a logit (Qwen2-MoE) */
	int64_t shared;
	bool shared_gated;
	/* Layers that have an MLP of dense_width numbers instead, and how many they are */
	uint8_t dense[MODEL_LAYERS_MOST];
	int64_t dense_layers, dense_width;
	/* Layers behind the last one in the files, that predict further tokens and are not read, or
	 * have names of their own (mtp., model.mtp_) */
	int64_t extra_layers;
	bool has_mtp;
	/* Of gpt-oss: biases of router and experts, a gain and a limit in the SwiGLU (0: none), a
	 * sink for each head */
	bool expert_bias, experts_mx; /* mx: the files have their matrices in MXFP4 */
	double swiglu_alpha, swiglu_limit;
	bool sinks;
	/* factor on the loss that balances experts, where the model's configuration has one */
	double router_loss;
	/* q_proj gives each head a query and a gate of its output; or each head's output has one
	 * gate, which a module of its own gives (LFM3) */
	bool attn_gate, head_gate;
	/* Layers with linear attention by the gated delta rule instead (model/delta.h): how many,
	 * which, their heads, and how many tokens the convolution before it sees */
	int64_t delta_layers, delta_conv;
	uint8_t delta[MODEL_LAYERS_MOST];
	struct delta_heads delta_heads;
	/* q, k, v and z are one matrix, of each key head its part of all four; b and a another */
	bool delta_joined;
	/* The names of LFM2, or of LFM3, which has other ones in attention; layers of `delta` have
	 * a short convolution between gates instead (model/delta.h) */
	bool lfm2, lfm3;
	/* Latent attention (model/latent.h), where kv is not 0: the widths of latents, of queries
	 * 0 where those have none; a head has `plain` numbers that do not rotate, then rot that do,
	 * and values of `value`; head_dim is plain + rot. The norms of latents have an epsilon of
	 * their own; with `bias` the modules that make latents have one */
	struct {
		int64_t q, kv, plain, value;
		double eps;
		bool bias;
	} latent;
	double attn_cap, logit_cap;          /* soft caps on scores and logits; 0: none */
	uint8_t no_rope[MODEL_LAYERS_MOST];  /* this layer does not rotate (SmolLM3) */
	int64_t window;                      /* sliding window in tokens; 0: none */
	uint8_t windowed[MODEL_LAYERS_MOST]; /* this layer uses it */
	/* Rotary embedding: of the first rot numbers of a head (0: of all), pairs (i, i+rot/2) or,
	 * near, (2i, 2i+1); frequencies after scaling, rot/2 of each table, and which a layer
	 * uses */
	int64_t rot;
	bool rope_near;
	float inv_freq[ROPE_TABLES][MODEL_HEAD_DIM_MOST / 2];
	uint8_t rope_table[MODEL_LAYERS_MOST];
	float rope_scale[ROPE_TABLES]; /* factor on sin and cos */
	/* Sequences of more than rope_limit tokens have frequencies of their own (rope.h); 0: none
	 * have. Those of longrope, or for `dynamic` what they are computed from */
	int64_t rope_limit;
	float long_freq[MODEL_HEAD_DIM_MOST / 2];
	double dynamic_theta, dynamic_factor;
	/* Of a model of one's own (own.n > 0): its blocks; of the above only family, layers, hidden
	 * and vocab say something. */
	struct own_model own;
};

struct model_family {
	const char *name, *help;        /* help: the models it reads */
	const char *const *model_types; /* as in config.json; NULL-terminated */
	/* keys this family reads beside the common ones; NULL-terminated */
	const char *const *keys;
	/* What missing keys mean; 0: as with most, that is 10000, 1e-6, hidden / heads. */
	double rope_theta, norm_eps;
	int64_t head_dim;
	bool tied;
	/* The share of a head that rotates where the key is missing, and others are allowed; 0:
	 * always the whole head. */
	double rotary;
	bool gelu;   /* the activation of the gate is gelu_pytorch_tanh; else silu */
	bool no_mlp; /* intermediate_size may be missing: no layer has an MLP */
	bool drops;  /* attention_dropout may be set, and is not done */
	bool latent; /* attention is latent attention */
	bool rope;   /* read() reads all of the rotary embedding */
	/* Reads the keys of this family. */
	int (*read)(const json_t *j, const char *where, struct model_config *c, struct err *e);
	bool own; /* read() reads everything: it is no decoder */
};

const struct model_family *model_family_at(size_t i); /* NULL past the end */

/* `where` heads the messages, usually the path of config.json. */
int model_config_read(const json_t *j, const char *where, struct model_config *c_p, struct err *e);

/* Parameters in all, without adapters; those that a token goes through, of experts its own; and of
 * these the ones in a matrix product (N of "4N FLOP per token": everything but the norms, the
 * embedding counted once, as the head). */
int64_t model_parameters(const struct model_config *c);
int64_t model_active_parameters(const struct model_config *c);
int64_t model_matmul_parameters(const struct model_config *c);
int64_t model_layer_parameters(const struct model_config *c);
/* Bytes of the matrices of a layer's experts, frozen, as a device stores them. */
double model_expert_bytes(const struct model_config *c, bool quantize, bool double_quant,
			  enum dtype act);

/* Numbers a row has between layer index-1 and layer `index`, from 0 to c->layers. */
int64_t model_width(const struct model_config *c, int64_t index);

/* Numbers of 4 bytes that a row of the input has, and that the loss compares a row with: one id and
 * one label, unless it is a model of one's own. */
static inline size_t model_input_words(const struct model_config *c)
{
	return c->own.n ? (size_t)own_input_words(&c->own) : 1;
}
static inline size_t model_target_words(const struct model_config *c)
{
	return c->own.n ? (size_t)own_target_words(&c->own) : 1;
}

/* Numbers of a token that attention keeps for its backward pass, the mean of the layers: what goes
 * in and out of it, and of linear attention what each step of it makes. */
int64_t model_attention_kept(const struct model_config *c);

const char *linear_name(enum linear l); /* "q_proj" */
/* "self_attn.q_proj"; a star stands for the number of the expert */
const char *linear_path(enum linear l);
/* How many a layer has of this module: 1, or one for each expert; 0: none. */
int64_t linear_copies(const struct model_config *c, int64_t layer, enum linear l);
/* "model.layers.3.mlp.experts.5.gate_proj" */
enum { LINEAR_MODULE = 96 };
void linear_module(char out[LINEAR_MODULE], int64_t layer, enum linear l, int64_t expert);
/* What follows the path of `l` in a name behind "model.layers.3."; NULL: another module. */
const char *linear_behind(enum linear l, const char *name, int64_t *expert_p);
/* Whether `module` ("model.layers.3.mlp.up_proj") is one of these. */
bool linear_is_of(enum linear l, const char *module);
/* Whether the weight `name` ("model.layers.3.mlp.up_proj.weight") is one of those that are put into
 * 4 bits: all linear ones of layers but routers. */
bool linear_is_quantized(const char *name);
bool linear_is_expert(enum linear l); /* each expert has one */
bool linear_is_router(enum linear l); /* gives logits of experts: never in 4 bits */
/* [out, in]; [0, 0] where the layer does not have this module */
void linear_dims(const struct model_config *c, int64_t layer, enum linear l, int64_t dim[2]);
/* Of all layers together: numbers of the weights, and the sum of out and in. */
int64_t linear_weights(const struct model_config *c, enum linear l);
int64_t linear_sides(const struct model_config *c, enum linear l);
/* Whether any layer, or this one, has the module. */
bool model_has_linear(const struct model_config *c, enum linear l);
bool layer_has_linear(const struct model_config *c, int64_t layer, enum linear l);
/* All layers have experts, where any has. */
void model_drop_dense(struct model_config *c);
/* The last module of a layer's attention, or of what it has instead. */
enum linear layer_out(const struct model_config *c, int64_t layer);
/* The module that the model has as LIN_O, LIN_GATE, LIN_UP or LIN_DOWN. */
enum linear linear_as(const struct model_config *c, enum linear l);
/* The parameters of linear attention that are no linear modules: the name behind "model.layers.3.",
 * or NULL where the family has none, and how many numbers. A short convolution has DELTA_CONV. */
enum delta_param { DELTA_CONV, DELTA_DECAY, DELTA_DT, DELTA_NORM, DELTA_PARAMS };
const char *delta_param_name(const struct model_config *c, enum delta_param p);
int64_t delta_param_count(const struct model_config *c, enum delta_param p);
/* What a router has beside its matrix where layers have an MLP beside experts: the weight of its
 * norm, and a number of each expert. The name behind "model.layers.3.", and how many numbers. */
enum router_param { ROUTER_NORM, ROUTER_SCALES, ROUTER_PARAMS };
const char *router_param_name(enum router_param p);
int64_t router_param_count(const struct model_config *c, enum router_param p);
/* The name of a router's correction behind "model.layers.3."; NULL: it has none. */
const char *correction_name(const struct model_config *c);
bool name_is_correction(const char *name);
/* A tensor's dimensions here, which it changes to those that files have, and their number there.
 * Weights of a convolution by channel are a vector here, and [channels, 1, delta_conv] there. */
int model_file_shape(const struct model_config *c, const char *name, int ndim, int64_t *shape);
/* Whether this layer has experts. */
static inline bool layer_is_mixture(const struct model_config *c, int64_t layer)
{
	return c->experts && !c->dense[layer];
}
/* Channels of the convolution in layers of `delta`. */
int64_t delta_channels(const struct model_config *c);
const char *final_norm_name(const struct model_config *c); /* "model.norm.weight" */
/* "input_layernorm"; NULL: no norm there */
const char *layer_norm_name(const struct model_config *c, enum layer_norm n);
/* D and G of a layer. */
int64_t layer_head_dim(const struct model_config *c, int64_t layer);
int64_t layer_kv_heads(const struct model_config *c, int64_t layer);
/* The norm on what a linear module of attention gives: its name behind "model.layers.3." and its
 * width; NULL: none. */
const char *linear_norm(const struct model_config *c, int64_t layer, enum linear l,
			int64_t *width_p);
static inline float model_factor(double f) { return f > 0 ? (float)f : 1.0f; }
bool linear_has_bias(const struct model_config *c, enum linear l);

/* Whether a tensor of this name belongs to the model: 1 used, 0 known and not needed, -1 unknown
 * (not explained by this configuration). */
int model_knows_tensor(const struct model_config *c, const char *name);

#endif
