/* SPDX-License-Identifier: Apache-2.0 */
/* describe.h - a profile from nothing but a description of a cluster and a job: cards by name
 * (cards.h), links by speed. Nothing is measured, so every device of it is marked as estimated.
 *
 * The file is YAML:
 *
 *   base_model: DIR          a folder with config.json, config.json itself, or a .gguf; or
 *   model: {name, layers, hidden, intermediate, heads, kv_heads, head_dim, vocab, tied}
 *                            a decoder with gated MLP (Llama); heads: default hidden / 128,
 *                            kv_heads: heads
 *   adapter: none|lora|qlora     default none: all parameters, AdamW
 *   lora_r, lora_target_modules  as in a configuration
 *   sequence_len, batch          tokens of a row, rows of a step
 *   compute_dtype: auto|float32|bfloat16|float16
 *   devices: [{card, host, id, count, memory, tflops, cores, watts}, ...]
 *                            card: a name, or cpu with memory and cores or tflops (float32)
 *   links: [{hosts: [a, b] | all, speed: 10 Gbit/s, latency: 0.1 ms}, ...]
 *
 * How it is estimated, beside the rates of cards.h:
 *   memory kept of a layer    T ((6 C + 2 G D + 3 F) bytes of the dtype + 4 H) a row, as the
 *                             profiler counts it; while it runs T (2 C + 2 F) more
 *   head                      4 T C and a block of logits (tensor/op_loss.c)
 *   state                     gradient and two moments in float32, in 16 bits also the values
 *   fixed                     0.5 GiB on a card, for context and kernels
 *   links                     94 % of what is given in bits; 0.2 ms
 *   a processor               0.05 TFLOP/s a core */
#ifndef HS_PLAN_DESCRIBE_H
#define HS_PLAN_DESCRIBE_H

#include "plan/profile.h"

struct err;
struct buf;

/* `count` equal cards, dealt to `hosts` in turn. */
struct equal_cards {
	char kind[64];
	int count, hosts;
	double bandwidth, latency_ms, memory; /* between hosts; 0: gigabit, 0.2 ms, the card's */
};

/* The profile is finished; lines about what was assumed go to `notes`. The n devices called
 * `without` are left out, also where the dtype is chosen. Every error names the file, the line or
 * the key, and what to do. */
int profile_describe(const char *path, const char *const *without, size_t n, struct profile *p,
		     struct buf *notes, struct err *e);
/* The same job on equal cards instead of the devices and links of the description; `compute_dtype:
 * auto` is what these cards make of it. */
int profile_describe_equal(const char *path, const struct equal_cards *with, struct profile *p,
			   struct buf *notes, struct err *e);

#endif
