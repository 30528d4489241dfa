/* SPDX-License-Identifier: Apache-2.0 */
/* memory_advice.c - see memory_advice.h. */
#include "runtime/memory_advice.h"

#include "base/buf.h"
#include "base/err.h"
#include "dev/dev_attn.h"
#include "dev/dev_delta.h"
#include "tensor/ops.h"

#include <stdio.h>

enum { BLOCK = 4 << 20 /* by which stacks of device memory grow */ };

#define MIB(x) ((unsigned long long)((x) + (1 << 20) - 1) >> 20)

/* The bytes of a layer's tape: both norms and sums, q, k, v, attention's output, gate, up and their
 * product, low-rank parts. */
static uint64_t layer_bytes(const struct memory_ask *a, uint64_t n)
{
	const struct model_config *c = a->cfg;
	const uint64_t one = n * dtype_size(a->opt->act),
		       attention = (uint64_t)model_attention_kept(c);
	/* of experts, whose inputs and outputs are kept too */
	const uint64_t width = (uint64_t)c->intermediate * (c->experts ? (uint64_t)c->top_k : 1) +
			       (c->experts ? (uint64_t)(c->top_k * c->hidden + c->shared) : 0) +
			       (c->beside ? (uint64_t)c->dense_width : 0),
		       side = c->beside ? 7 * (uint64_t)c->hidden : 0;
	uint64_t sum = one * (4 * (uint64_t)c->hidden + side + attention + 3 * width) +
		       4 * n * (2 + (uint64_t)c->heads);
	for (int i = 0; i < LIN_COUNT; i++)
		sum += a->opt->lora.target[i] ? one * (uint64_t)a->opt->lora.r : 0;
	return sum;
}

/* What of it need not stay for backward: the inputs of frozen matrices (block_mlp()). */
static uint64_t brief_bytes(const struct memory_ask *a, uint64_t n)
{
	const bool *target = a->opt->lora.target;
	const uint64_t one = n * dtype_size(a->opt->act);
	const struct model_config *c = a->cfg;
	const bool in = target[linear_as(c, LIN_GATE)] || target[linear_as(c, LIN_UP)] ||
			target[linear_as(c, LIN_GATE_UP)];
	if (a->opt->train_all || a->cfg->experts)
		return 0;
	return (in ? 0 : one * (uint64_t)a->cfg->hidden) +
	       (target[linear_as(c, LIN_DOWN)] ? 0 : one * (uint64_t)a->cfg->intermediate);
}

uint64_t memory_of_pass(const struct memory_ask *a, int64_t tokens, bool recompute)
{
	const uint64_t n = (uint64_t)tokens,
		       row = n * (uint64_t)a->cfg->hidden * dtype_size(a->opt->act),
		       layer = layer_bytes(a, n);
	const uint64_t kept =
		(uint64_t)a->layers * (recompute ? row : layer - brief_bytes(a, n)) + 2 * row;
	const uint64_t logits = (uint64_t)op_loss_rows(a->cfg->vocab) * (uint64_t)a->cfg->vocab * 4;
	const struct model_config *c = a->cfg;
	const bool full = c->full_head_dim > 0;
	/* one sequence: the more there are, the fewer parts */
	const struct dev_attn attn = { tokens,
				       1,
				       c->heads,
				       full ? c->full_kv_heads : c->kv_heads,
				       full ? c->full_head_dim : c->head_dim,
				       0 };
	const uint64_t parts =
		dev_attn_bytes(&attn, dev_attn_parts(a->units, &attn)) - dev_attn_bytes(&attn, 1);
	const struct delta_heads *h = &a->cfg->delta_heads;
	const struct dev_delta delta = { tokens, 1, h->values, h->dk, h->dv };
	const uint64_t states = a->cfg->delta_layers && a->units ? dev_delta_bytes(&delta, 1) : 0;
	/* the gradients of backward, and with recomputation what one layer keeps, which are on the
	 * scratch stack */
	return 2 * BLOCK + kept * (uint64_t)a->in_flight + layer * (recompute ? 16 : 8) / 10 +
	       parts + states + (a->end ? logits + 3 * row : 0);
}

/* Bytes that 4 bits a weight would free in the layers of this worker. */
static uint64_t freed_by_nf4(const struct memory_ask *a)
{
	uint64_t weights = 0; /* of all layers of the model */
	for (enum linear l = 0; l < LIN_COUNT; l++)
		weights += (uint64_t)linear_weights(a->cfg, l);
	return weights / (uint64_t)a->cfg->layers * (uint64_t)a->layers *
	       (dtype_size(a->opt->act) * 100 - 53) / 100;
}

static void shorter(const struct memory_ask *a, struct buf *b)
{
	int64_t fits = a->tokens;
	while (fits > 0 && a->parameters + memory_of_pass(a, fits, a->opt->recompute) > a->there)
		fits -= (fits + 31) / 32;
	if (fits == a->tokens) /* the estimate is too low */
		fits = a->tokens / 2;
	if (fits > 0)
		buf_addf(b,
			 "; at most about %lld of %lld tokens a microbatch fit: divide "
			 "micro_batch_size (and multiply "
			 "gradient_accumulation_steps) or sequence_len by %lld",
			 (long long)fits, (long long)a->tokens,
			 (long long)((a->tokens + fits - 1) / fits));
}

void memory_advice(const struct memory_ask *a, struct err *e)
{
	struct buf b = BUF_INIT;
	const struct err was = *e;
	if (a->tokens) {
		const uint64_t less = memory_of_pass(a, a->tokens, true);
		buf_addf(&b,
			 "; a pass needs about %llu MiB beside %llu MiB of parameters, there are "
			 "%llu MiB",
			 MIB(memory_of_pass(a, a->tokens, a->opt->recompute)), MIB(a->parameters),
			 MIB(a->there));
		shorter(a, &b);
		if (!a->opt->recompute)
			buf_addf(&b, "; gradient_checkpointing: true needs about %llu MiB%s",
				 MIB(less),
				 a->parameters + less > a->there ? ", which is not enough alone"
								 : "");
	}
	if (!a->opt->quantize && !a->opt->train_all)
		buf_addf(&b, "; load_in_4bit: true frees about %llu MiB", MIB(freed_by_nf4(a)));
	buf_adds(&b, "; fewer layers on this device (shard_plan) need less");
	if (!b.failed)
		err_set(e, was.code, "%.600s%s", was.msg, b.p);
	buf_release(&b);
}
