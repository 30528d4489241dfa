#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""models.py [FAMILY ...] - tiny models of every family with what PyTorch computes from them:
logits, gradients, training curves.

Writes tests/golden/models/. Run it with a Python that has torch, transformers, peft, bitsandbytes,
gguf, tokenizers and safetensors; the tests themselves need no Python. The versions that made the
files in the repository stand in tests/golden/models/versions.txt.

  <family>/                   a Hugging Face folder: config.json and weights, random but fixed
  <family>/expect.safetensors input, logits, loss and gradients (names below)
  <family>.gguf               the same model as convert_hf_to_gguf.py of llama.cpp would write it
  train-<case>/               a training run: case.json, init/ (PEFT adapter, for LoRA),
                              expect.safetensors

expect.safetensors of a model. The input is one microbatch, named as in src/data/batch.h: two
sequences, one after the other.
  id, pos, label (N) I32; start (S+1) I32       labels are shifted, -100 is not trained
  logits (N, V), loss (1)                        float32, eager attention; loss is the mean over the
                                                 trained tokens
  grad.<parameter>, gradnorm.<parameter>         d loss / d parameter, nothing frozen: the first 16
                                                 rows, and the norm of all of it
  lora_r, lora_alpha (1)                         scale = alpha / R
  lora.<module>.A (R, in), lora.<module>.B       adapters of all linear layers
  router_loss, router_z (1), loss.routers (1)    of experts: factors on the balance and the z loss
                                                 of routers, which are part of all gradients and
                                                 of <set>.loss; and the loss with them
  <set>.loss, <set>.grad.<module>.A, .B          with adapters on the modules of the set: `qkvo`
                                                 (attention) or `all` (all linear)

NF4 models too are expected to compute with float32 weights, not with weights rounded to the dtype
that the quantisation state names.

expect.safetensors of a training run.
  s<step>.m<microbatch>.{id,pos,label,start}     steps and microbatches from 0
  loss, grad_norm, lr (steps) F64                loss = sum of token losses / trained tokens of the
                                                 global batch; norm before clipping
  final.<module>.A, .B; final.<parameter>        after the last step: the adapter; the first 16 rows
                                                 of a parameter

Learning rate, steps s = 1..N, w warm-up steps, r the smallest share of the base rate:
  s <= w            base * s / w                             the first step already trains
  cosine, s > w     base * (r + (1 - r) * (1 + cos(pi * (s - w) / (N - w))) / 2)
  linear, s > w     base * (N - s + 1) / (N - w + 1)         never zero on a step that is taken
Clipping as torch.nn.utils.clip_grad_norm_: factor min(1, max_norm / (norm + 1e-6)).

All weights are exact in bfloat16, float16 and float32, so the dtype of a file does not change the
expectation."""

import json
import math
import os
import re
import shutil
import sys

os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ["TORCHDYNAMO_DISABLE"] = "1"

import numpy as np
import torch
import transformers
import peft
import bitsandbytes
import gguf
import safetensors
import tokenizers
from safetensors.torch import save_file

import experts

ROOT = os.path.join(
    os.path.dirname(os.path.abspath(__file__)), "..", "..", "tests", "golden", "models"
)
ATTENTION = ["q_proj", "k_proj", "v_proj", "o_proj", "qkv_proj"]
ATTENTION += ["in_proj_qkv", "in_proj_z", "in_proj_b", "in_proj_a", "out_proj"]  # linear attention
ATTENTION += ["in_proj_qkvz", "in_proj_ba"]
ATTENTION += ["in_proj"]  # of a short convolution
ATTENTION += ["q_a_proj", "q_b_proj", "kv_a_proj_with_mqa", "kv_b_proj"]  # latent attention
ATTENTION += ["g_proj"]  # a gate of each head
ALL_LINEAR = ATTENTION + ["gate_proj", "up_proj", "down_proj", "gate_up_proj"]
ALL_LINEAR += ["input_linear", "output_linear"]
ALL_LINEAR += ["gate", "router", "w1", "w2", "w3", "shared_expert_gate", "proj"]  # of experts
DTYPE = {"F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}
GGUF = (
    "granite",
    "olmo2",
    "smollm3-gguf",
    "gemma",
    "gemma2-gguf",
    "gemma3-gguf",
    "phi3",
    "phi4-mini",
    "glm4",
    "qwen3-moe",
    "olmoe",
    "mixtral",
    "gpt-oss",
    "qwen2-moe",
    "glm4-moe",
    "ernie4_5-moe",
    "olmo3",
    "exaone4-gguf",
    "ernie4_5",
    "qwen3_5-gguf",
    "qwen3_5-moe-gguf",
    "seed_oss",
    "lfm2",
    "lfm2-moe",
    "granite4",
    "gemma4",
    "gemma4-moe",
)
LORA_R, LORA_ALPHA = 3, 4.0
ROUTER_LOSS, ROUTER_Z = 0.3, 0.02
LENGTHS = (13, 37)
ROWS = 16  # of a matrix that are kept, where the whole would make the files large

# What the small models of several families have in common.
SMALL = dict(
    hidden_size=48,
    intermediate_size=40,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    max_position_embeddings=128,
)

# One row a model: how its config.json reads, what its weights are stored as, and what is expected
# of it. `shard`: bytes per file; `grads`: also store gradients; `new_style`: config.json in the
# words of transformers 5.
FAMILIES = {
    "llama2": dict(
        arch="llama",
        store="BF16",
        config=dict(
            vocab_size=131,
            hidden_size=48,
            intermediate_size=40,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=4,
            max_position_embeddings=64,
            rms_norm_eps=1e-5,
            rope_theta=10000.0,
            rope_scaling=None,
            tie_word_embeddings=False,
            attention_bias=False,
            mlp_bias=False,
            pretraining_tp=1,
        ),
    ),
    "llama3": dict(
        arch="llama",
        store="BF16",
        config=dict(
            vocab_size=137,
            hidden_size=64,
            intermediate_size=40,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=2,
            max_position_embeddings=8192,
            rms_norm_eps=1e-5,
            rope_theta=500000.0,
            rope_scaling=None,
            tie_word_embeddings=False,
            attention_bias=False,
            mlp_bias=False,
            pretraining_tp=1,
        ),
    ),
    "llama31": dict(
        arch="llama",
        store="BF16",
        tokenizer="llama-bpe",
        config=dict(
            vocab_size=271,
            hidden_size=64,
            intermediate_size=40,
            num_hidden_layers=2,
            num_attention_heads=2,
            num_key_value_heads=1,
            head_dim=32,
            max_position_embeddings=256,
            rms_norm_eps=1e-5,
            rope_theta=500000.0,
            rope_scaling=dict(
                rope_type="llama3",
                factor=8.0,
                low_freq_factor=1.0,
                high_freq_factor=4.0,
                original_max_position_embeddings=32,
            ),
            tie_word_embeddings=False,
            attention_bias=False,
            mlp_bias=False,
            pretraining_tp=1,
        ),
    ),
    "llama-linear": dict(
        arch="llama",
        store="BF16",
        grads=False,
        config=dict(
            vocab_size=131,
            hidden_size=48,
            intermediate_size=40,
            num_hidden_layers=2,
            num_attention_heads=3,
            num_key_value_heads=1,
            max_position_embeddings=128,
            rms_norm_eps=1e-6,
            rope_theta=10000.0,
            rope_scaling=dict(type="linear", factor=4.0),
            tie_word_embeddings=False,
            attention_bias=False,
            mlp_bias=False,
        ),
    ),
    "smollm2": dict(
        arch="llama",
        store="F32",
        shard=80_000,
        tokenizer="smollm",
        config=dict(
            vocab_size=269,
            hidden_size=48,
            intermediate_size=40,
            num_hidden_layers=3,
            num_attention_heads=6,
            num_key_value_heads=2,
            max_position_embeddings=256,
            rms_norm_eps=1e-5,
            rope_theta=100000.0,
            rope_scaling=None,
            rope_interleaved=False,
            tie_word_embeddings=True,
            attention_bias=False,
            mlp_bias=False,
            pretraining_tp=1,
        ),
    ),
    "tinyllama": dict(
        arch="llama",
        store="F16",
        config=dict(
            vocab_size=127,
            hidden_size=64,
            intermediate_size=40,
            num_hidden_layers=2,
            num_attention_heads=8,
            num_key_value_heads=1,
            max_position_embeddings=2048,
            rms_norm_eps=1e-5,
            rope_theta=10000.0,
            rope_scaling=None,
            tie_word_embeddings=False,
            attention_bias=False,
            pretraining_tp=1,
        ),
    ),
    "mistral": dict(
        arch="mistral",
        store="BF16",
        config=dict(
            vocab_size=131,
            hidden_size=48,
            intermediate_size=40,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=2,
            head_dim=12,
            max_position_embeddings=128,
            rms_norm_eps=1e-5,
            rope_theta=10000.0,
            sliding_window=11,
            tie_word_embeddings=False,
        ),
    ),
    "mistral-full": dict(
        arch="mistral",
        store="F16",
        grads=False,
        config=dict(
            vocab_size=131,
            **SMALL,
            rms_norm_eps=1e-5,
            rope_theta=1000000.0,
            sliding_window=None,
            tie_word_embeddings=False,
        ),
    ),
    "qwen2": dict(
        arch="qwen2",
        store="F32",
        config=dict(
            vocab_size=149,
            **SMALL,
            max_window_layers=2,
            rms_norm_eps=1e-6,
            rope_theta=1000000.0,
            sliding_window=32768,
            use_sliding_window=False,
            tie_word_embeddings=True,
        ),
    ),
    "qwen3": dict(
        arch="qwen3",
        store="BF16",
        new_style=True,
        config=dict(
            vocab_size=139,
            hidden_size=48,
            intermediate_size=40,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=2,
            head_dim=20,
            max_position_embeddings=128,
            max_window_layers=2,
            rms_norm_eps=1e-6,
            rope_theta=1000000.0,
            rope_scaling=None,
            sliding_window=None,
            use_sliding_window=False,
            attention_bias=False,
            tie_word_embeddings=True,
        ),
    ),
    "llama-bias": dict(
        arch="llama",
        store="F32",
        config=dict(
            vocab_size=127,
            hidden_size=48,
            intermediate_size=36,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=2,
            max_position_embeddings=128,
            rms_norm_eps=1e-5,
            rope_theta=10000.0,
            rope_scaling=dict(rope_type="dynamic", factor=2.0),
            tie_word_embeddings=False,
            attention_bias=True,
            mlp_bias=True,
        ),
    ),
    "qwen2-yarn": dict(
        arch="qwen2",
        store="BF16",
        grads=False,
        config=dict(
            vocab_size=149,
            hidden_size=64,
            intermediate_size=40,
            num_hidden_layers=2,
            num_attention_heads=2,
            num_key_value_heads=1,
            max_position_embeddings=128,
            max_window_layers=2,
            rms_norm_eps=1e-6,
            rope_theta=1000000.0,
            rope_scaling=dict(rope_type="yarn", factor=4.0, original_max_position_embeddings=32),
            sliding_window=None,
            use_sliding_window=False,
            tie_word_embeddings=False,
        ),
    ),
    "granite": dict(
        arch="granite",
        store="F32",
        config=dict(
            vocab_size=139,
            hidden_size=48,
            intermediate_size=40,
            num_hidden_layers=3,
            num_attention_heads=4,
            num_key_value_heads=2,
            max_position_embeddings=128,
            rms_norm_eps=1e-5,
            rope_theta=10000.0,
            rope_scaling=None,
            embedding_multiplier=6.0,
            residual_multiplier=0.22,
            attention_multiplier=0.4,
            logits_scaling=3.0,
            attention_bias=False,
            mlp_bias=False,
            tie_word_embeddings=True,
        ),
    ),
    "olmo2": dict(
        arch="olmo2",
        store="F32",
        config=dict(
            vocab_size=131,
            **SMALL,
            rms_norm_eps=1e-6,
            rope_theta=500000.0,
            rope_scaling=None,
            attention_bias=False,
            tie_word_embeddings=False,
        ),
    ),
    "smollm3": dict(
        arch="smollm3",
        store="F32",
        config=dict(
            vocab_size=133,
            hidden_size=48,
            intermediate_size=40,
            num_hidden_layers=4,
            num_attention_heads=4,
            num_key_value_heads=2,
            max_position_embeddings=128,
            rms_norm_eps=1e-6,
            rope_theta=2000000.0,
            rope_scaling=None,
            use_sliding_window=False,
            sliding_window=None,
            no_rope_layers=[1, 1, 0, 1],
            no_rope_layer_interval=3,
            pad_token_id=0,
            attention_bias=False,
            mlp_bias=False,
            tie_word_embeddings=True,
        ),
    ),
    "gemma": dict(
        arch="gemma",
        store="BF16",
        act="gelu_pytorch_tanh",
        config=dict(
            vocab_size=131, **SMALL, head_dim=16, rms_norm_eps=1e-6, tie_word_embeddings=True
        ),
    ),
    "gemma2": dict(
        arch="gemma2",
        store="BF16",
        act="gelu_pytorch_tanh",
        config=dict(
            vocab_size=131,
            **dict(SMALL, num_hidden_layers=3),
            head_dim=16,
            rms_norm_eps=1e-6,
            query_pre_attn_scalar=24,
            sliding_window=11,
            attn_logit_softcapping=2.5,
            final_logit_softcapping=3.0,
            tie_word_embeddings=True,
        ),
    ),
    "gemma3": dict(
        arch="gemma3_text",
        store="BF16",
        act="gelu_pytorch_tanh",
        config=dict(
            vocab_size=131,
            **dict(SMALL, num_hidden_layers=4),
            head_dim=16,
            rms_norm_eps=1e-6,
            query_pre_attn_scalar=16,
            sliding_window=11,
            sliding_window_pattern=3,
            rope_theta=1000000.0,
            rope_local_base_freq=10000.0,
            rope_scaling=dict(rope_type="linear", factor=8.0),
            tie_word_embeddings=True,
        ),
    ),
    "gemma3-new": dict(
        arch="gemma3_text",
        store="BF16",
        act="gelu_pytorch_tanh",
        grads=False,
        new_style=True,
        config=dict(
            vocab_size=131,
            **dict(SMALL, num_hidden_layers=4),
            head_dim=16,
            query_pre_attn_scalar=16,
            sliding_window=7,
            sliding_window_pattern=2,
            rope_theta=1000000.0,
            rope_local_base_freq=10000.0,
            tie_word_embeddings=True,
        ),
    ),
    "phi3": dict(
        arch="phi3",
        store="BF16",
        config=dict(
            vocab_size=131,
            **SMALL,
            rms_norm_eps=1e-5,
            rope_theta=10000.0,
            sliding_window=23,
            resid_pdrop=0.0,
            embd_pdrop=0.0,
            pad_token_id=0,
            tie_word_embeddings=False,
        ),
    ),
    "phi4-mini": dict(
        arch="phi3",
        store="F16",
        config=dict(
            vocab_size=127,
            **dict(SMALL, hidden_size=64),
            rms_norm_eps=1e-5,
            rope_theta=10000.0,
            partial_rotary_factor=0.75,
            original_max_position_embeddings=16,
            rope_scaling=dict(
                type="longrope",
                short_factor=[1.0, 1.1, 1.25, 1.5, 1.5, 2.0],
                long_factor=[1.0, 1.5, 2.5, 4.0, 7.0, 9.5],
            ),
            full_attn_mod=1,
            interpolate_factor=1,
            pad_token_id=0,
            tie_word_embeddings=True,
        ),
    ),
    "glm4": dict(
        arch="glm4",
        store="BF16",
        config=dict(
            vocab_size=131,
            **SMALL,
            head_dim=20,
            rms_norm_eps=1e-5,
            rope_theta=10000.0,
            partial_rotary_factor=0.5,
            attention_bias=False,
            pad_token_id=0,
            tie_word_embeddings=False,
        ),
    ),
    "glm": dict(
        arch="glm",
        store="BF16",
        config=dict(
            vocab_size=131,
            **SMALL,
            head_dim=12,
            rms_norm_eps=1.5625e-07,
            rope_theta=10000.0,
            attention_bias=True,
            pad_token_id=0,
            tie_word_embeddings=False,
        ),
    ),
    "llama-dynamic": dict(
        arch="llama",
        store="BF16",
        grads=False,
        config=dict(
            vocab_size=131,
            **dict(SMALL, max_position_embeddings=16),
            rms_norm_eps=1e-5,
            rope_theta=10000.0,
            rope_scaling=dict(rope_type="dynamic", factor=4.0),
            tie_word_embeddings=False,
            attention_bias=False,
            mlp_bias=False,
        ),
    ),
    # what a GGUF of Gemma 3 does not say: a layer of six without window, heads as wide as queries
    "gemma3-gguf": dict(
        arch="gemma3_text",
        store="BF16",
        act="gelu_pytorch_tanh",
        grads=False,
        config=dict(
            vocab_size=131,
            **dict(SMALL, num_hidden_layers=7),
            head_dim=16,
            query_pre_attn_scalar=16,
            sliding_window=9,
            rope_theta=1000000.0,
            rope_local_base_freq=10000.0,
            rope_scaling=dict(rope_type="linear", factor=8.0),
            tie_word_embeddings=True,
        ),
    ),
    "gemma2-gguf": dict(
        arch="gemma2",
        store="BF16",
        act="gelu_pytorch_tanh",
        grads=False,
        config=dict(
            vocab_size=131,
            **dict(SMALL, num_hidden_layers=3),
            head_dim=16,
            query_pre_attn_scalar=16,
            sliding_window=11,
            attn_logit_softcapping=2.5,
            final_logit_softcapping=3.0,
            tie_word_embeddings=True,
        ),
    ),
    "smollm3-gguf": dict(
        arch="smollm3",
        store="BF16",
        grads=False,
        config=dict(
            vocab_size=131,
            **dict(SMALL, num_hidden_layers=5),
            rope_theta=50000.0,
            pad_token_id=0,
            tie_word_embeddings=True,
        ),
    ),
    "qwen3-moe": dict(
        arch="qwen3_moe",
        store="BF16",
        tokenizer="smollm",
        config=dict(
            vocab_size=269,
            **SMALL,
            moe_intermediate_size=24,
            head_dim=16,
            num_experts=8,
            num_experts_per_tok=3,
            norm_topk_prob=True,
            decoder_sparse_step=1,
            mlp_only_layers=[],
            router_aux_loss_coef=0.02,
            output_router_logits=False,
            rms_norm_eps=1e-6,
            rope_theta=1000000.0,
            sliding_window=None,
            use_sliding_window=False,
            max_window_layers=2,
            attention_bias=False,
            tie_word_embeddings=False,
        ),
    ),
    "olmoe": dict(
        arch="olmoe",
        store="F32",
        config=dict(
            vocab_size=131,
            **dict(SMALL, intermediate_size=24),
            num_experts=6,
            num_experts_per_tok=2,
            norm_topk_prob=False,
            router_aux_loss_coef=0.01,
            output_router_logits=True,
            clip_qkv=None,
            rms_norm_eps=1e-5,
            rope_theta=10000.0,
            attention_bias=False,
            tie_word_embeddings=False,
        ),
    ),
    "mixtral": dict(
        arch="mixtral",
        store="BF16",
        config=dict(
            vocab_size=131,
            **SMALL,
            num_local_experts=4,
            num_experts_per_tok=2,
            router_aux_loss_coef=0.02,
            router_jitter_noise=0.0,
            output_router_logits=False,
            rms_norm_eps=1e-5,
            rope_theta=1000000.0,
            sliding_window=None,
            tie_word_embeddings=False,
        ),
    ),
    "gpt-oss": dict(
        arch="gpt_oss",
        store="BF16",
        config=dict(
            vocab_size=131,
            **dict(SMALL, hidden_size=64, intermediate_size=32),
            head_dim=16,
            num_local_experts=5,
            num_experts_per_tok=2,
            experts_per_token=2,
            initial_context_length=16,
            router_aux_loss_coef=0.9,
            output_router_logits=False,
            swiglu_limit=7.0,
            rms_norm_eps=1e-5,
            rope_theta=150000.0,
            rope_scaling=dict(
                rope_type="yarn",
                factor=8.0,
                beta_fast=32.0,
                beta_slow=1.0,
                truncate=False,
                original_max_position_embeddings=16,
            ),
            sliding_window=9,
            layer_types=["sliding_attention", "full_attention"],
            attention_bias=True,
            tie_word_embeddings=False,
        ),
    ),
    "qwen2-moe": dict(
        arch="qwen2_moe",
        store="BF16",
        config=dict(
            vocab_size=131,
            **SMALL,
            moe_intermediate_size=24,
            shared_expert_intermediate_size=28,
            num_experts=6,
            num_experts_per_tok=2,
            norm_topk_prob=False,
            qkv_bias=True,
            decoder_sparse_step=1,
            mlp_only_layers=[],
            router_aux_loss_coef=0.02,
            output_router_logits=False,
            rms_norm_eps=1e-6,
            rope_theta=1000000.0,
            sliding_window=32768,
            use_sliding_window=False,
            max_window_layers=2,
            tie_word_embeddings=False,
        ),
    ),
    "glm4-moe": dict(
        arch="glm4_moe",
        store="BF16",
        config=dict(
            vocab_size=131,
            **dict(SMALL, num_hidden_layers=3),
            head_dim=16,
            moe_intermediate_size=24,
            n_routed_experts=6,
            n_shared_experts=2,
            num_experts_per_tok=2,
            norm_topk_prob=True,
            routed_scaling_factor=1.5,
            n_group=1,
            topk_group=1,
            first_k_dense_replace=1,
            num_nextn_predict_layers=0,
            use_qk_norm=True,
            partial_rotary_factor=0.5,
            rms_norm_eps=1e-5,
            rope_theta=1000000.0,
            attention_bias=True,
            tie_word_embeddings=False,
        ),
    ),
    "ernie4_5-moe": dict(
        arch="ernie4_5_moe",
        store="BF16",
        seed=1101,
        config=dict(
            vocab_size=269,
            **dict(SMALL, num_hidden_layers=3),
            head_dim=16,
            moe_intermediate_size=24,
            moe_num_experts=6,
            moe_num_shared_experts=2,
            moe_k=2,
            moe_layer_start_index=1,
            moe_layer_end_index=2,
            moe_layer_interval=1,
            moe_norm_min=1e-12,
            router_aux_loss_coef=0.02,
            output_router_logits=False,
            rms_norm_eps=1e-5,
            rope_theta=500000.0,
            use_bias=False,
            pad_token_id=0,
            tie_word_embeddings=True,
        ),
    ),
    # every other layer has an MLP
    "qwen3-moe-mixed": dict(
        arch="qwen3_moe",
        store="BF16",
        grads=False,
        config=dict(
            vocab_size=131,
            **dict(SMALL, num_hidden_layers=4),
            moe_intermediate_size=24,
            head_dim=16,
            num_experts=4,
            num_experts_per_tok=2,
            norm_topk_prob=False,
            decoder_sparse_step=2,
            mlp_only_layers=[3],
            rms_norm_eps=1e-6,
            rope_theta=1000000.0,
            sliding_window=None,
            use_sliding_window=False,
            max_window_layers=2,
            attention_bias=False,
            tie_word_embeddings=False,
        ),
    ),
    "olmo3": dict(
        arch="olmo3",
        store="BF16",
        config=dict(
            vocab_size=131,
            **dict(SMALL, num_hidden_layers=5),
            rms_norm_eps=1e-6,
            rope_theta=500000.0,
            rope_scaling=dict(
                rope_type="yarn",
                factor=8.0,
                original_max_position_embeddings=16,
                attention_factor=1.2079441541679836,
                beta_fast=32.0,
                beta_slow=1.0,
            ),
            sliding_window=9,
            attention_bias=False,
            tie_word_embeddings=False,
        ),
    ),
    "exaone4": dict(
        arch="exaone4",
        store="F32",
        config=dict(
            vocab_size=133,
            **dict(SMALL, num_hidden_layers=5),
            head_dim=10,
            rms_norm_eps=1e-5,
            rope_theta=1000000.0,
            rope_scaling=dict(
                rope_type="llama3",
                factor=16.0,
                low_freq_factor=1.0,
                high_freq_factor=4.0,
                original_max_position_embeddings=16,
            ),
            sliding_window=9,
            sliding_window_pattern=4,
            tie_word_embeddings=False,
        ),
    ),
    # as the small one, which has no window and rotates everywhere
    "exaone4-gguf": dict(
        arch="exaone4",
        store="BF16",
        grads=False,
        config=dict(
            vocab_size=131,
            **SMALL,
            head_dim=12,
            rms_norm_eps=1e-5,
            rope_theta=1000000.0,
            sliding_window=None,
            sliding_window_pattern=None,
            layer_types=["full_attention"] * 2,
            tie_word_embeddings=True,
        ),
    ),
    "ernie4_5": dict(
        arch="ernie4_5",
        store="BF16",
        config=dict(
            vocab_size=131,
            **SMALL,
            head_dim=16,
            rms_norm_eps=1e-5,
            rope_theta=500000.0,
            use_bias=False,
            pad_token_id=0,
            tie_word_embeddings=True,
        ),
    ),
    "ministral3": dict(
        arch="ministral3",
        store="BF16",
        config=dict(
            vocab_size=131,
            **SMALL,
            head_dim=16,
            rms_norm_eps=1e-5,
            rope_parameters=dict(
                rope_type="yarn",
                rope_theta=1000000.0,
                factor=2.0,
                original_max_position_embeddings=64,
                beta_fast=32.0,
                beta_slow=1.0,
                mscale=1.0,
                mscale_all_dim=1.0,
                llama_4_scaling_beta=0.1,
            ),
            sliding_window=None,
            pad_token_id=11,
            tie_word_embeddings=True,
        ),
    ),
    # three layers of four with linear attention; its value heads are more than its key heads
    "qwen3_5": dict(
        seed=3,  # of those that were tried the least sensitive to rounding
        arch="qwen3_5_text",
        store="BF16",
        config=dict(
            vocab_size=269,
            **dict(SMALL, num_hidden_layers=5, max_position_embeddings=512),
            head_dim=16,
            rms_norm_eps=1e-6,
            rope_parameters=dict(
                rope_type="default",
                rope_theta=10000.0,
                partial_rotary_factor=0.5,
                mrope_interleaved=True,
                mrope_section=[2, 1, 1],
            ),
            attention_bias=False,
            attn_output_gate=True,
            full_attention_interval=4,
            linear_conv_kernel_dim=4,
            linear_key_head_dim=12,
            linear_value_head_dim=10,
            linear_num_key_heads=2,
            linear_num_value_heads=6,
            mamba_ssm_dtype="float32",
            mtp_num_hidden_layers=1,
            tie_word_embeddings=True,
        ),
    ),
    # the experts of a layer are one tensor, as on the hub
    "qwen3_5-moe": dict(
        arch="qwen3_5_moe_text",
        store="BF16",
        config=dict(
            vocab_size=269,
            **{k: v for k, v in SMALL.items() if k != "intermediate_size"}
            | dict(max_position_embeddings=512),
            head_dim=16,
            rms_norm_eps=1e-6,
            rope_parameters=dict(
                rope_type="default",
                rope_theta=10000.0,
                partial_rotary_factor=0.5,
                mrope_interleaved=True,
                mrope_section=[2, 1, 1],
            ),
            attention_bias=False,
            attn_output_gate=True,
            full_attention_interval=2,
            linear_conv_kernel_dim=4,
            linear_key_head_dim=12,
            linear_value_head_dim=10,
            linear_num_key_heads=2,
            linear_num_value_heads=4,
            mamba_ssm_dtype="float32",
            mlp_only_layers=[],
            mtp_num_hidden_layers=1,
            moe_intermediate_size=24,
            shared_expert_intermediate_size=28,
            num_experts=6,
            num_experts_per_tok=2,
            router_aux_loss_coef=0.02,
            output_router_logits=False,
            tie_word_embeddings=False,
        ),
    ),
    # in_proj_qkvz and in_proj_ba by key heads; its last layer has an MLP
    "qwen3-next": dict(
        arch="qwen3_next",
        store="BF16",
        config=dict(
            vocab_size=131,
            **dict(SMALL, num_hidden_layers=3, max_position_embeddings=512),
            head_dim=16,
            rms_norm_eps=1e-6,
            rope_theta=10000.0,
            rope_scaling=None,
            partial_rotary_factor=0.5,
            attention_bias=False,
            full_attention_interval=2,
            linear_conv_kernel_dim=4,
            linear_key_head_dim=12,
            linear_value_head_dim=10,
            linear_num_key_heads=2,
            linear_num_value_heads=4,
            decoder_sparse_step=1,
            mlp_only_layers=[2],
            moe_intermediate_size=24,
            shared_expert_intermediate_size=28,
            num_experts=6,
            num_experts_per_tok=2,
            norm_topk_prob=True,
            router_aux_loss_coef=0.02,
            output_router_logits=False,
            tie_word_embeddings=False,
        ),
    ),
}
FAMILIES["seed_oss"] = dict(
    seed=1040,
    arch="seed_oss",
    store="BF16",
    config=dict(
        vocab_size=131,
        **SMALL,
        head_dim=16,
        rms_norm_eps=1e-6,
        rope_theta=10000.0,
        attention_bias=True,
        attention_out_bias=False,
        mlp_bias=False,
        residual_dropout=0.1,
        tie_word_embeddings=False,
    ),
)
# short convolutions between gates; MLPs of 2/3 of 40 numbers, in steps of 4
FAMILIES["lfm2"] = dict(
    arch="lfm2",
    store="BF16",
    seed=7311,
    config=dict(
        vocab_size=269,
        **dict(SMALL, num_hidden_layers=3),
        conv_L_cache=3,
        conv_bias=False,
        block_multiple_of=4,
        block_ffn_dim_multiplier=1.0,
        block_auto_adjust_ff_dim=True,
        layer_types=["conv", "full_attention", "conv"],
        norm_eps=2e-5,
        rope_theta=1000000.0,
        tie_word_embeddings=True,
    ),
)
FAMILIES["lfm2-moe"] = dict(
    arch="lfm2_moe",
    store="BF16",
    seed=7321,
    config=dict(
        vocab_size=269,
        **dict(SMALL, num_hidden_layers=4),
        moe_intermediate_size=24,
        num_dense_layers=1,
        num_experts=6,
        num_experts_per_tok=2,
        norm_topk_prob=True,
        use_expert_bias=True,
        routed_scaling_factor=1.0,
        conv_L_cache=3,
        conv_bias=False,
        layer_types=["conv", "full_attention", "conv", "conv"],
        norm_eps=2e-5,
        rope_theta=1000000.0,
        tie_word_embeddings=True,
    ),
)
# a window, norms behind blocks, a gate of each head
FAMILIES["lfm3"] = dict(
    arch="lfm3",
    store="BF16",
    seed=7341,
    config=dict(
        vocab_size=269,
        pad_token_id=0,
        **dict(SMALL, num_hidden_layers=4),
        head_dim=16,
        conv_L_cache=7,
        conv_bias=False,
        layer_types=["conv", "full_attention", "sliding_attention", "conv"],
        sliding_window=9,
        use_sandwich_norm=True,
        use_attention_gate=True,
        norm_eps=2e-5,
        tie_word_embeddings=True,
    ),
)
# gate and up as one, names of an MLP of its own
FAMILIES["granite4"] = dict(
    arch="granitemoehybrid",
    store="BF16",
    seed=7331,
    config=dict(
        vocab_size=269,
        **dict(SMALL, num_hidden_layers=3),
        shared_intermediate_size=56,
        num_local_experts=0,
        num_experts_per_tok=0,
        layer_types=["attention"] * 3,
        position_embedding_type="rope",
        rms_norm_eps=1e-5,
        rope_theta=10000.0,
        rope_scaling=None,
        embedding_multiplier=6.0,
        residual_multiplier=0.22,
        attention_multiplier=0.4,
        logits_scaling=3.0,
        attention_bias=False,
        tie_word_embeddings=True,
        mamba_n_heads=12,
        mamba_d_head=8,
        mamba_expand=2,
    ),
)
# experts whose gate and up together are not as wide as the model: files say how they lie
FAMILIES["qwen3-moe-narrow"] = dict(FAMILIES["qwen3-moe"], grads=False, seed=7302)
FAMILIES["qwen3-moe-narrow"]["config"] = dict(
    FAMILIES["qwen3-moe"]["config"], vocab_size=131, moe_intermediate_size=20, num_experts=5
)
del FAMILIES["qwen3-moe-narrow"]["tokenizer"]
# a GGUF has one width for keys and values
FAMILIES["qwen3_5-gguf"] = dict(FAMILIES["qwen3_5"], grads=False)
FAMILIES["qwen3_5-gguf"]["config"] = dict(
    FAMILIES["qwen3_5"]["config"],
    linear_key_head_dim=8,
    linear_value_head_dim=8,
    tie_word_embeddings=False,
)
FAMILIES["qwen3_5-moe-gguf"] = dict(FAMILIES["qwen3_5-moe"], grads=False, seed=1043)
FAMILIES["qwen3_5-moe-gguf"]["config"] = dict(
    FAMILIES["qwen3_5-moe"]["config"], linear_key_head_dim=8, linear_value_head_dim=8
)
# latent attention; an epsilon that is not that of the latents' norms
FAMILIES["glm4-moe-lite"] = dict(
    arch="glm4_moe_lite",
    store="BF16",
    seed=7101,
    config=dict(
        vocab_size=131,
        **dict(SMALL, num_hidden_layers=3, num_key_value_heads=4),
        q_lora_rank=20,
        kv_lora_rank=16,
        qk_nope_head_dim=12,
        qk_rope_head_dim=8,
        v_head_dim=20,
        rope_theta=1000000.0,
        rope_scaling=None,
        partial_rotary_factor=1.0,
        moe_intermediate_size=24,
        n_routed_experts=6,
        n_shared_experts=2,
        num_experts_per_tok=2,
        norm_topk_prob=True,
        routed_scaling_factor=1.8,
        n_group=1,
        topk_group=1,
        topk_method="noaux_tc",
        first_k_dense_replace=1,
        num_nextn_predict_layers=0,
        rms_norm_eps=1e-3,
        attention_bias=False,
        tie_word_embeddings=False,
    ),
)
# queries without latents, values narrower than keys, halves that rotate, a factor on scores
FAMILIES["glm4-moe-lite-yarn"] = dict(
    arch="glm4_moe_lite",
    store="BF16",
    seed=7102,
    new_style=True,
    config=dict(
        vocab_size=131,
        **dict(SMALL, num_hidden_layers=3, num_key_value_heads=4),
        q_lora_rank=None,
        kv_lora_rank=16,
        qk_nope_head_dim=12,
        qk_rope_head_dim=8,
        v_head_dim=10,
        rope_interleave=False,
        rope_theta=10000.0,
        rope_scaling=dict(
            rope_type="yarn",
            factor=4.0,
            original_max_position_embeddings=32,
            mscale=0.9,
            mscale_all_dim=0.7,
        ),
        moe_intermediate_size=24,
        n_routed_experts=6,
        n_shared_experts=2,
        num_experts_per_tok=2,
        norm_topk_prob=True,
        routed_scaling_factor=1.8,
        n_group=1,
        topk_group=1,
        mlp_layer_types=["sparse", "dense", "sparse"],
        num_nextn_predict_layers=0,
        rms_norm_eps=1e-3,
        attention_bias=True,
        tie_word_embeddings=False,
    ),
)
# latent attention with values narrower than keys, in the words of DeepSeek-V2-Lite
FAMILIES["deepseek-v2"] = dict(
    arch="deepseek_v2",
    store="BF16",
    seed=7103,
    config=dict(
        vocab_size=131,
        **dict(SMALL, num_hidden_layers=3, num_key_value_heads=4),
        q_lora_rank=None,
        kv_lora_rank=16,
        qk_nope_head_dim=12,
        qk_rope_head_dim=8,
        v_head_dim=12,
        rope_theta=10000.0,
        rope_scaling=dict(
            type="yarn",
            factor=4.0,
            original_max_position_embeddings=32,
            beta_fast=32,
            beta_slow=1,
            mscale=0.707,
            mscale_all_dim=0.707,
        ),
        moe_intermediate_size=24,
        moe_layer_freq=1,
        n_routed_experts=6,
        n_shared_experts=2,
        num_experts_per_tok=2,
        norm_topk_prob=False,
        routed_scaling_factor=1.3,
        scoring_func="softmax",
        topk_method="greedy",
        n_group=1,
        topk_group=1,
        first_k_dense_replace=1,
        aux_loss_alpha=0.001,
        seq_aux=True,
        rms_norm_eps=1e-3,
        attention_bias=False,
        tie_word_embeddings=False,
    ),
)
FAMILIES |= {  # behind the others, whose seeds are their places
    "gemma4": dict(
        arch="gemma4_text",
        store="BF16",
        seed=1044,
        act="gelu_pytorch_tanh",
        config=dict(
            vocab_size=131,
            **dict(SMALL, num_hidden_layers=4),
            head_dim=16,
            global_head_dim=24,
            num_global_key_value_heads=1,
            attention_k_eq_v=True,
            hidden_size_per_layer_input=0,
            rms_norm_eps=1e-6,
            sliding_window=11,
            layer_types=["sliding_attention", "full_attention"] * 2,
            final_logit_softcapping=12.0,
            use_bidirectional_attention="vision",
            tie_word_embeddings=True,
        ),
    ),
    "gemma4-new": dict(
        arch="gemma4_text",
        store="BF16",
        seed=1045,
        act="gelu_pytorch_tanh",
        grads=False,
        new_style=True,
        config=dict(
            vocab_size=131,
            **dict(SMALL, num_hidden_layers=3),
            head_dim=16,
            global_head_dim=40,
            hidden_size_per_layer_input=0,
            sliding_window=7,
            rope_parameters=dict(
                full_attention=dict(
                    rope_type="proportional", partial_rotary_factor=0.5, rope_theta=5e4, factor=2.0
                ),
                sliding_attention=dict(rope_type="default", rope_theta=1e3),
            ),
            tie_word_embeddings=False,
        ),
    ),
}
FAMILIES["gemma4-moe"] = dict(FAMILIES["gemma4"], seed=1046)
FAMILIES["gemma4-moe"]["config"] = dict(
    FAMILIES["gemma4"]["config"],
    num_hidden_layers=3,
    layer_types=["sliding_attention", "full_attention", "full_attention"],
    enable_moe_block=True,
    num_experts=6,
    top_k_experts=2,
    moe_intermediate_size=24,
)
CLASS = {
    **experts.CLASS,
    "granite": transformers.GraniteForCausalLM,
    "olmo2": transformers.Olmo2ForCausalLM,
    "olmo3": transformers.Olmo3ForCausalLM,
    "exaone4": transformers.Exaone4ForCausalLM,
    "ernie4_5": transformers.Ernie4_5ForCausalLM,
    "lfm2": transformers.Lfm2ForCausalLM,
    "lfm3": transformers.Lfm3ForCausalLM,
    "granitemoehybrid": transformers.GraniteMoeHybridForCausalLM,
    "seed_oss": transformers.SeedOssForCausalLM,
    "ministral3": transformers.Ministral3ForCausalLM,
    "smollm3": transformers.SmolLM3ForCausalLM,
    "gemma": transformers.GemmaForCausalLM,
    "gemma2": transformers.Gemma2ForCausalLM,
    "gemma3_text": transformers.Gemma3ForCausalLM,
    "gemma4_text": transformers.Gemma4ForCausalLM,
    "phi3": transformers.Phi3ForCausalLM,
    "glm4": transformers.Glm4ForCausalLM,
    "glm": transformers.GlmForCausalLM,
    "llama": transformers.LlamaForCausalLM,
    "mistral": transformers.MistralForCausalLM,
    "qwen2": transformers.Qwen2ForCausalLM,
    "qwen3": transformers.Qwen3ForCausalLM,
    "qwen3_5_text": transformers.Qwen3_5ForCausalLM,
}


def path(*parts):
    p = os.path.join(ROOT, *parts)
    os.makedirs(os.path.dirname(p), exist_ok=True)
    return p


def write_json(p, value):
    with open(p, "w", encoding="utf-8") as f:
        json.dump(value, f, indent=2, ensure_ascii=False)
        f.write("\n")


def exact16(t):
    """Rounds to values that bfloat16, float16 and float32 all hold exactly."""
    t = t.to(torch.bfloat16).to(torch.float32)
    t[t.abs() < 2.0**-14] = 0
    return t


# ---- models -------------------------------------------------------------------------------------


def fill(model, seed):
    """Random weights: scores and logits of order 1 to 5, norms and biases away from one and
    zero."""
    g = torch.Generator().manual_seed(seed)
    tied = model.config.tie_word_embeddings
    kind = model.config.model_type
    # norms multiply with 1 + w
    plus = kind.startswith(("gemma", "qwen3_5", "qwen3_next")) and kind != "gemma4_text"
    # and embeddings are scaled
    scaled = math.sqrt(model.config.hidden_size) if kind.startswith("gemma") else 1
    for name, p in sorted(model.named_parameters()):
        r = torch.randn(p.shape, generator=g)
        norms = ("norm.weight", "norm_1.weight", "norm_2.weight", "router.scale", "expert_scale")
        if name.endswith(norms):
            v = (0 if plus and "linear_attn" not in name else 1) + 0.2 * r
        elif name.endswith((".bias", ".sinks", ".dt_bias")):
            v = 0.3 * r
        elif name.endswith(".A_log"):
            v = 0.8 * r - 1
        elif name.endswith(".conv1d.weight"):
            v = 2 * r  # behind SiLU queries and keys point to one side, none to the other
        elif "embed_tokens" in name:
            v = (0.25 if tied else 0.6) * r / (scaled if not tied else 1)
        elif "lm_head" in name:
            v = 0.3 * r
        else:
            sharp = ("q_proj.weight", "k_proj.weight", "qkv_proj.weight")
            gain = 1.3 if name.endswith(sharp) else 0.8
            v = gain / math.sqrt(p.shape[1]) * r
        p.data.copy_(exact16(v))
    for name, p in sorted(model.named_buffers()):
        if name.endswith(("e_score_correction_bias", ".expert_bias")):
            p.copy_(0.2 * torch.randn(p.shape, generator=g))
        if name.endswith("layer_scalar"):
            p.copy_(exact16(1 + 0.2 * torch.randn(p.shape, generator=g)))


def build(name):
    row = FAMILIES[name]
    c = dict(row["config"])
    c["architectures"] = [CLASS[row["arch"]].__name__]
    c.update(
        model_type=row["arch"],
        hidden_act=row.get("act", "silu"),
        attention_dropout=0.0,
        initializer_range=0.02,
        use_cache=True,
        bos_token_id=1,
        eos_token_id=2,
        torch_dtype={"F32": "float32", "F16": "float16", "BF16": "bfloat16"}[row["store"]],
    )
    folder = path(name, "")
    write_json(os.path.join(folder, "config.json"), c)
    config = transformers.AutoConfig.from_pretrained(folder)
    config.dtype = torch.float32
    config._attn_implementation = "eager"
    model = CLASS[row["arch"]](config).to(torch.float32).eval()
    if experts.has_experts(config):
        experts.unfuse(model)
        model.config.output_router_logits = False  # run() adds the loss of routers
    # the row of padding has no gradient in PyTorch, here it is a row like any other
    model.get_input_embeddings().padding_idx = None
    fill(model, seed=row.get("seed", 1000 + list(FAMILIES).index(name)))
    if row["arch"] == "gpt_oss":
        experts.round_mx(model)
    return model, c


def save_model(name, model, config):
    """The folder as it would come from the hub. Tensors are written by hand so that the shards fall
    where a reader can go wrong."""
    row, folder = FAMILIES[name], path(name, "")
    kept = ("e_score", ".expert_bias")
    state = {
        k: v.detach()
        .to(torch.float32 if any(s in k for s in kept) else DTYPE[row["store"]])
        .contiguous()
        for k, v in model.state_dict().items()
        if not (k == "lm_head.weight" and config["tie_word_embeddings"])
    }
    if (
        row["arch"] == "gpt_oss"
    ):  # as on the hub, and beside it as transformers saves one it trained
        n, other = config["num_local_experts"], path(name + "-bf16", "")
        write_json(os.path.join(other, "config.json"), config)
        save_file(
            experts.fused(state, n, False),
            os.path.join(other, "model.safetensors"),
            metadata={"format": "pt"},
        )
        state = experts.fused(state, n, True)
        write_json(
            os.path.join(folder, "config.json"),
            config | dict(quantization_config=dict(quant_method="mxfp4")),
        )
    side = getattr(model.config, "enable_moe_block", False)
    if side or row["arch"] == "qwen3_5_moe_text" and not row.get("each"):
        state = experts.stacked(state, model.config)
    if "shard" in row:
        shards, size = [{}], 0
        for k, v in state.items():
            if size + v.nbytes > row["shard"] and shards[-1]:
                shards.append({})
                size = 0
            shards[-1][k] = v
            size += v.nbytes
        index = {
            "metadata": {"total_size": sum(v.nbytes for v in state.values())},
            "weight_map": {},
        }
        for i, s in enumerate(shards):
            file = f"model-{i + 1:05}-of-{len(shards):05}.safetensors"
            save_file(s, os.path.join(folder, file), metadata={"format": "pt"})
            index["weight_map"].update({k: file for k in s})
        write_json(os.path.join(folder, "model.safetensors.index.json"), index)
    else:
        save_file(state, os.path.join(folder, "model.safetensors"), metadata={"format": "pt"})
    if row.get("new_style"):
        model.config.save_pretrained(folder)
        saved = json.load(open(os.path.join(folder, "config.json"), encoding="utf-8"))
        saved.update(architectures=config["architectures"], dtype=config["torch_dtype"])
        write_json(os.path.join(folder, "config.json"), saved)
    write_json(
        os.path.join(folder, "generation_config.json"), {"bos_token_id": 1, "eos_token_id": 2}
    )


def make_batch(lengths, vocab, seed, pattern=False):
    """One microbatch. The first third of each sequence and a few places after it are not
    trained."""
    g = torch.Generator().manual_seed(seed)
    ids, pos, label, start = [], [], [], [0]
    for n in lengths:
        if pattern:  # something that can be learnt: an arithmetic progression
            first, step = (
                torch.randint(0, vocab, (1,), generator=g).item(),
                torch.randint(1, 4, (1,), generator=g).item(),
            )
            seq = (first + step * torch.arange(n)) % vocab
        else:
            seq = torch.randint(0, vocab, (n,), generator=g)
        lab = torch.cat([seq[1:], torch.tensor([-100])])
        lab[: n // 3] = -100
        drop = torch.rand(n, generator=g) < 0.1
        lab[drop] = -100
        ids.append(seq)
        pos.append(torch.arange(n))
        label.append(lab)
        start.append(start[-1] + n)
    i32 = lambda ts: torch.cat(ts).to(torch.int32)
    return dict(
        id=i32(ids), pos=i32(pos), label=i32(label), start=torch.tensor(start, dtype=torch.int32)
    )


def run(model, b, coef=0.0, z=0.0):
    """Logits of all tokens, each sequence on its own, and the sum of the token losses. coef and z:
    losses of routers, joined over sequences and layers, each as often as there are trained
    tokens."""
    logits, routed = [], []
    for a, e in zip(b["start"][:-1].tolist(), b["start"][1:].tolist()):
        logits.append(model(input_ids=b["id"][a:e].long()[None], use_cache=False).logits[0])
        routed.append([m.logits for m in experts.blocks(model)])
    logits = torch.cat(logits)
    total = torch.nn.functional.cross_entropy(
        logits, b["label"].long(), ignore_index=-100, reduction="sum"
    )
    n = int((b["label"] != -100).sum())
    if coef or z:
        routed = [torch.cat(layer) for layer in zip(*routed)]
        square = torch.logsumexp(torch.cat(routed), -1) ** 2
        balance = coef * experts.aux_loss(model, routed) if coef else 0.0
        total = total + n * (balance + z * square.mean())
    return logits, total, n


def run_packed(model, b):
    """The same by one call with an explicit block-diagonal mask: proof that packed sequences do not
    see each other."""
    seq = torch.bucketize(torch.arange(len(b["id"])), b["start"][1:], right=True)
    allowed = (seq[:, None] == seq[None, :]) & (
        torch.arange(len(seq))[:, None] >= torch.arange(len(seq))[None, :]
    )
    mask = torch.where(allowed, 0.0, torch.finfo(torch.float32).min)[None, None]
    return model(
        input_ids=b["id"].long()[None],
        position_ids=b["pos"].long()[None],
        attention_mask=mask,
        use_cache=False,
    ).logits[0]


def lora_weights(model, seed):
    """Seeded A and B for every linear layer but the head, both non-zero: {module: (A, B)}."""
    g = torch.Generator().manual_seed(seed)
    out = {}
    for name, m in model.named_modules():
        if name.split(".")[-1] in ALL_LINEAR and isinstance(m, torch.nn.Linear):
            n_out, n_in = m.out_features, m.in_features
            out[name] = (
                torch.randn(LORA_R, n_in, generator=g) / math.sqrt(n_in),
                0.3 * torch.randn(n_out, LORA_R, generator=g),
            )
    return out


def lora_model(model, targets, weights, r=LORA_R, alpha=LORA_ALPHA):
    has = {n.split(".")[-1] for n, m in model.named_modules() if isinstance(m, torch.nn.Linear)}
    targets = [t for t in targets if t in has]
    cfg = peft.LoraConfig(
        r=r, lora_alpha=alpha, lora_dropout=0.0, target_modules=targets, task_type="CAUSAL_LM"
    )
    kind = model.config.model_type
    if experts.blocks(model):  # PEFT would look for transformers' own tensors of experts
        model.config.model_type = "modules"
    m = peft.get_peft_model(model, cfg).eval()
    model.config.model_type = kind
    for module, a, b in lora_parts(m):
        a.data.copy_(weights[module][0])
        b.data.copy_(weights[module][1])
    return m


def lora_parts(m):
    """(module, A, B) of each adapter, in order."""
    for name, mod in m.named_modules():
        if isinstance(mod, peft.tuners.lora.LoraLayer):
            yield (
                name.removeprefix("base_model.model."),
                mod.lora_A["default"].weight,
                mod.lora_B["default"].weight,
            )


def router_factors(model):
    """Of the balance and the z loss."""
    if not experts.blocks(model):
        return 0.0, 0.0
    return (ROUTER_LOSS if experts.has_aux_loss(model) else 0.0), ROUTER_Z


def expectation(name, model, with_grads=True, with_lora=True):
    b = make_batch(LENGTHS, model.config.vocab_size, seed=7)
    logits, total, n = run(model, b)
    out = dict(b, logits=logits.detach(), loss=(total / n).detach().reshape(1))
    by_length = getattr(model.config, "rope_parameters", {}).get("rope_type") in (
        "longrope",
        "dynamic",
    )
    given = FAMILIES.get(name, {}).get("config", {})  # linear attention knows no mask
    unmasked = "linear_conv_kernel_dim" in given or "conv_L_cache" in given
    if not (given.get("sliding_window") or by_length or unmasked):
        far = (run_packed(model, b) - logits).abs().max().item()
        assert far < 2e-5, (name, far)
    if experts.blocks(model):
        plain = experts.like(model)
        far = (run(plain, b)[0] - logits).abs().max().item()
        assert far < 2e-5, (name, far)
        first = b["id"][: b["start"][1]].long()[None]
        how = dict(use_cache=False)
        mine = [m.logits for m in experts.blocks(model) if model(first, **how) is not None]
        if experts.has_aux_loss(model):
            theirs = plain(first, output_router_logits=True, **how).aux_loss.item()
            assert abs(experts.aux_loss(model, mine).item() - theirs) < 1e-5, (name, theirs)
    if with_grads:
        last = model.config.num_hidden_layers - 1
        keep = {
            "model.embed_tokens.weight",
            "model.norm.weight",
            "lm_head.weight",
            f"model.layers.{last}.mlp.down_proj.weight",
            f"model.layers.{last}.post_attention_layernorm.weight",
        }
        keep |= {
            f"model.layers.0.{k}"
            for k in (
                "mlp.gate.weight",
                "mlp.experts.1.gate_proj.weight",
                "mlp.experts.2.up_proj.weight",
                "mlp.experts.5.down_proj.weight",
                "mlp.router.weight",
                "mlp.router.bias",
                "mlp.experts.1.up_proj.bias",
                "mlp.experts.2.down_proj.bias",
                "self_attn.sinks",
                "self_attn.o_proj.bias",
                "block_sparse_moe.gate.weight",
                "block_sparse_moe.experts.0.w1.weight",
                "block_sparse_moe.experts.1.w2.weight",
                "block_sparse_moe.experts.3.w3.weight",
                "input_layernorm.weight",
                "self_attn.q_proj.weight",
                "self_attn.q_proj.bias",
                "self_attn.k_proj.bias",
                "self_attn.v_proj.bias",
                "self_attn.q_norm.weight",
                "self_attn.k_norm.weight",
                "self_attn.k_proj.weight",
                "self_attn.qkv_proj.weight",
                "shared_mlp.input_linear.weight",
                "shared_mlp.output_linear.weight",
                "self_attn.q_a_proj.weight",
                "self_attn.q_a_proj.bias",
                "self_attn.q_a_layernorm.weight",
                "self_attn.q_b_proj.weight",
                "self_attn.kv_a_proj_with_mqa.weight",
                "self_attn.kv_a_proj_with_mqa.bias",
                "self_attn.kv_a_layernorm.weight",
                "self_attn.kv_b_proj.weight",
                "mlp.gate_up_proj.weight",
                "pre_feedforward_layernorm.weight",
                "post_mlp_layernorm.weight",
                "post_self_attn_layernorm.weight",
                "linear_attn.in_proj_qkv.weight",
                "linear_attn.in_proj_z.weight",
                "linear_attn.in_proj_a.weight",
                "linear_attn.in_proj_b.weight",
                "linear_attn.in_proj_qkvz.weight",
                "linear_attn.in_proj_ba.weight",
                "linear_attn.out_proj.weight",
                "linear_attn.norm.weight",
                "linear_attn.conv1d.weight",
                "linear_attn.A_log",
                "linear_attn.dt_bias",
            )
        }
        if model.config.model_type.startswith(("qwen3_5", "qwen3_next")):
            at = model.config.layer_types.index("full_attention")
            keep |= {
                f"model.layers.{at}.self_attn." + k
                for k in ("q_proj.weight", "k_proj.weight", "q_norm.weight", "k_norm.weight")
            }
        if model.config.model_type == "lfm2_moe":
            keep |= {
                f"model.layers.{last}.feed_forward." + k
                for k in ("gate.weight", "experts.1.w1.weight", "experts.2.w2.weight")
                + ("experts.4.w3.weight",)
            }
        if model.config.model_type == "lfm3":
            keep |= {
                f"model.layers.{i}." + k
                for i in (1, 2)
                for k in ("self_attn.q_norm.weight", "self_attn.g_proj.weight")
                + ("self_attn.o_proj.weight", "self_attn.k_proj.weight")
                + ("post_operator_norm.weight", "post_ffn_norm.weight")
            }
        if model.config.model_type in ("lfm2", "lfm2_moe", "lfm3"):
            keep |= {"model.embedding_norm.weight", f"model.layers.{last}.feed_forward.w2.weight"}
            keep |= {
                "model.layers.0." + k
                for k in ("conv.in_proj.weight", "conv.out_proj.weight", "conv.conv.weight")
                + ("operator_norm.weight", "ffn_norm.weight", "feed_forward.w1.weight")
                + ("feed_forward.w3.weight",)
            }
            keep |= {
                "model.layers.1.self_attn." + k
                for k in ("q_proj.weight", "k_proj.weight", "v_proj.weight", "out_proj.weight")
                + ("q_layernorm.weight", "k_layernorm.weight")
            }
        if model.config.model_type in ("qwen2_moe", "qwen3_5_moe_text", "qwen3_next"):
            keep |= {
                "model.layers.0.mlp.shared_expert." + k
                for k in ("gate_proj.weight", "down_proj.weight")
            }
            keep.add("model.layers.0.mlp.shared_expert_gate.weight")
        if getattr(model.config, "enable_moe_block", False):
            keep |= {
                f"model.layers.{last}." + k
                for k in (
                    "router.proj.weight",
                    "router.scale",
                    "router.per_expert_scale",
                    "experts.1.gate_proj.weight",
                    "experts.2.up_proj.weight",
                    "experts.4.down_proj.weight",
                    "post_feedforward_layernorm.weight",
                    "post_feedforward_layernorm_1.weight",
                    "pre_feedforward_layernorm_2.weight",
                    "post_feedforward_layernorm_2.weight",
                    "mlp.gate_proj.weight",
                )
            }
            keep |= {f"model.layers.0.router.{k}scale" for k in ("", "per_expert_")}
        if model.config.model_type in (*experts.GLM, "ernie4_5_moe", "deepseek_v2"):
            keep |= {
                f"model.layers.{last}.mlp." + k
                for k in (
                    "gate.weight",
                    "experts.0.gate_proj.weight",
                    "experts.1.down_proj.weight",
                    "experts.3.gate_proj.weight",
                    "experts.4.down_proj.weight",
                    "shared_experts.up_proj.weight",
                    "shared_experts.down_proj.weight",
                )
            }
            keep.add("model.layers.0.mlp.gate_proj.weight")
        coef, z = router_factors(model)
        if z:
            total = run(model, b, coef, z)[1]
            out["router_loss"], out["router_z"] = torch.tensor([coef]), torch.tensor([z])
            out["loss.routers"] = (total / n).detach().reshape(1)
        (total / n).backward()
        for k, p in model.named_parameters():
            if k in keep and p.grad is not None:  # an expert that no token chose has none
                out["grad." + k], out["gradnorm." + k] = p.grad[
                    :ROWS
                ].clone(), p.grad.norm().reshape(1)
        model.zero_grad()
    if with_lora:
        out.update(lora_expectation(model, b))
    print(
        f"{name}: |logits| max {logits.abs().max():.2f} std {logits.std():.2f}, loss"
        f" {out['loss'].item():.4f}"
    )
    save_file({k: v.contiguous() for k, v in out.items()}, path(name, "expect.safetensors"))


def lora_expectation(model, b):
    weights = lora_weights(model, seed=11)
    out = {
        "lora_r": torch.tensor([LORA_R], dtype=torch.float32),
        "lora_alpha": torch.tensor([LORA_ALPHA]),
    }
    for module, (a, bb) in weights.items():
        out[f"lora.{module}.A"], out[f"lora.{module}.B"] = a, bb
    for label, targets in (("qkvo", ATTENTION), ("all", ALL_LINEAR)):
        m = lora_model(model, targets, weights)
        coef, z = router_factors(model)
        _, total, n = run(m, b, coef, z)
        (total / n).backward()
        out[label + ".loss"] = (total / n).detach().reshape(1)
        for module, a, bb in lora_parts(m):
            # an expert that no token chose has none
            out[f"{label}.grad.{module}.A"], out[f"{label}.grad.{module}.B"] = (
                torch.zeros_like(a) if a.grad is None else a.grad.clone(),
                torch.zeros_like(bb) if bb.grad is None else bb.grad.clone(),
            )
        m.zero_grad()
        m.unload()
    for p in model.parameters():
        p.requires_grad_(True)
    return out


# ---- bitsandbytes NF4 ---------------------------------------------------------------------------


def nf4_folder(name, source, double, compute):
    """`source` quantised by transformers + bitsandbytes on the CPU and saved by
    save_pretrained()."""
    import bitsandbytes.functional as F
    from bitsandbytes.backends.default.ops import _dequantize_4bit_compute as portable

    folder = path(name, "")
    q = transformers.BitsAndBytesConfig(
        load_in_4bit=True,
        bnb_4bit_quant_type="nf4",
        bnb_4bit_use_double_quant=double,
        bnb_4bit_compute_dtype=compute,
    )
    m = transformers.AutoModelForCausalLM.from_pretrained(
        path(source, ""), quantization_config=q, dtype=compute, device_map="cpu"
    )
    m.save_pretrained(folder)
    for f in ("README.md", "chat_template.jinja"):
        if os.path.exists(os.path.join(folder, f)):
            os.remove(os.path.join(folder, f))

    # The expectation is computed by a plain model in float32 whose weights come from the very
    # tensors that were saved.
    saved = {}
    for f in sorted(os.listdir(folder)):
        if f.endswith(".safetensors") and not f.startswith("expect"):
            saved.update(safetensors.torch.load_file(os.path.join(folder, f)))
    plain, _ = build(source)
    state = plain.state_dict()
    for k, v in state.items():
        if k + ".quant_state.bitsandbytes__nf4" in saved:
            parts = {s.removeprefix(k + "."): t for s, t in saved.items() if s.startswith(k + ".")}
            qs = F.QuantState.from_dict(qs_dict=parts, device=torch.device("cpu"))
            assert qs.quant_type == "nf4" and qs.nested == double and qs.dtype == compute, (
                k,
                qs.quant_type,
                qs.nested,
                qs.dtype,
            )
            # not F.dequantize_4bit(): see nf4.py on its AVX-512 kernel
            absmax = (
                F.dequantize_blockwise(qs.absmax, qs.state2) + qs.offset if double else qs.absmax
            )
            v.copy_(portable(saved[k].reshape(-1), absmax, qs.code, 64, v.shape, torch.float32))
        elif k in saved:
            v.copy_(saved[k].float())
        else:
            assert k == "lm_head.weight", k
    expectation(name, plain, with_grads=False, with_lora=False)
    return plain


def round_nf4(model):
    """The linear weights of layers, but those of routers, become what bitsandbytes makes of them in
    doubly quantised NF4."""
    import bitsandbytes.functional as F
    from bitsandbytes.backends.default.ops import _dequantize_4bit_compute as portable

    for name, m in model.named_modules():
        last = name.split(".")[-1]
        if last not in ALL_LINEAR or last in ("gate", "router", "shared_expert_gate"):
            continue
        w = m.weight.data
        packed, qs = F.quantize_4bit(
            w, blocksize=64, quant_type="nf4", compress_statistics=True, quant_storage=torch.uint8
        )
        absmax = F.dequantize_blockwise(qs.absmax, qs.state2) + qs.offset
        w.copy_(portable(packed.reshape(-1), absmax, qs.code, 64, w.shape, torch.float32))


# ---- GGUF and tokenizers ------------------------------------------------------------------------

TEXT = (
    "The coordinator owns the job and the worker drives one device. A stage is a contiguous range"
    " of layers; the last stage computes the loss. Which card is the slow one? Measure first, then"
    " plan. " * 4
)
SPECIAL = {
    "smollm": ["<|endoftext|>", "<|im_start|>", "<|im_end|>"],
    "llama-bpe": [
        "<|begin_of_text|>",
        "<|end_of_text|>",
        "<|start_header_id|>",
        "<|end_header_id|>",
        "<|eot_id|>",
    ],
}
TEMPLATE = {
    "smollm": (
        "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\n' +"
        " message['content'] + '<|im_end|>' + '\n'}}{% endfor %}{% if add_generation_prompt %}{{"
        " '<|im_start|>assistant\n' }}{% endif %}"
    ),
    "llama-bpe": (
        "{{- bos_token }}{%- for message in messages %}{{- '<|start_header_id|>' + message['role']"
        " + '<|end_header_id|>\n\n' + message['content'] | trim + '<|eot_id|>' }}{%- endfor %}{%-"
        " if add_generation_prompt %}{{- '<|start_header_id|>assistant<|end_header_id|>\n\n' }}{%-"
        " endif %}"
    ),
}
LLAMA3_PATTERN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|"
    r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def make_tokenizer(name, kind, vocab):
    """A byte-level BPE with a few merges and the special tokens of its family; ids fill the whole
    vocabulary of the model."""
    from tokenizers import Tokenizer, Regex, models, trainers, pre_tokenizers, decoders, processors

    t = Tokenizer(models.BPE())
    if kind == "smollm":
        t.pre_tokenizer = pre_tokenizers.Sequence(
            [
                pre_tokenizers.Digits(individual_digits=True),
                pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True),
            ]
        )
    else:
        t.pre_tokenizer = pre_tokenizers.Sequence(
            [
                pre_tokenizers.Split(Regex(LLAMA3_PATTERN), "isolated"),
                pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
            ]
        )
    t.decoder = decoders.ByteLevel()
    t.train_from_iterator(
        [TEXT],
        trainers.BpeTrainer(
            vocab_size=vocab,
            special_tokens=SPECIAL[kind],
            show_progress=False,
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        ),
    )
    if kind == "llama-bpe":
        bos = SPECIAL[kind][0]
        t.post_processor = processors.TemplateProcessing(
            single=f"{bos} $A",
            pair=f"{bos} $A {bos} $B",
            special_tokens=[(bos, t.token_to_id(bos))],
        )
    assert t.get_vocab_size() == vocab, t.get_vocab_size()
    folder = path(name, "")
    t.save(os.path.join(folder, "tokenizer.json"))
    bos, eos = (
        ("<|im_start|>", "<|im_end|>") if kind == "smollm" else ("<|begin_of_text|>", "<|eot_id|>")
    )
    write_json(
        os.path.join(folder, "tokenizer_config.json"),
        {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "bos_token": bos,
            "eos_token": eos,
            "add_prefix_space": False,
            "clean_up_tokenization_spaces": False,
            "chat_template": TEMPLATE[kind],
        },
    )
    for f in ("config.json", "generation_config.json"):
        p = os.path.join(folder, f)
        c = json.load(open(p, encoding="utf-8"))
        c["bos_token_id"], c["eos_token_id"] = t.token_to_id(bos), t.token_to_id(eos)
        write_json(p, c)
    return t


def permute(w, heads):
    """Rows of Q and K from Hugging Face's order (two halves) to that of `llama` files (pairs):
    convert_hf_to_gguf.py, permute()."""
    return (
        w.reshape(heads, 2, w.shape[0] // heads // 2, *w.shape[1:]).swapaxes(1, 2).reshape(w.shape)
    )


def write_gguf(file, name, model, config, kind, f16):
    w = gguf.GGUFWriter(path(file), "llama")
    hd = config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"]
    w.add_name("golden " + name)
    w.add_block_count(config["num_hidden_layers"])
    w.add_context_length(config["max_position_embeddings"])
    w.add_embedding_length(config["hidden_size"])
    w.add_feed_forward_length(config["intermediate_size"])
    w.add_head_count(config["num_attention_heads"])
    w.add_head_count_kv(config["num_key_value_heads"])
    w.add_rope_freq_base(config["rope_theta"])
    w.add_layer_norm_rms_eps(config["rms_norm_eps"])
    w.add_vocab_size(config["vocab_size"])
    w.add_rope_dimension_count(hd)
    if "head_dim" in config:
        w.add_key_length(hd)
        w.add_value_length(hd)
    w.add_file_type(gguf.LlamaFileType.MOSTLY_F16 if f16 else gguf.LlamaFileType.ALL_F32)
    w.add_quantization_version(gguf.GGML_QUANT_VERSION)

    t = json.load(open(path(name, "tokenizer.json"), encoding="utf-8"))
    tokens = sorted(t["model"]["vocab"].items(), key=lambda kv: kv[1])
    special = {a["content"] for a in t["added_tokens"]}
    assert [i for _, i in tokens] == list(range(config["vocab_size"]))
    w.add_tokenizer_model("gpt2")
    w.add_tokenizer_pre(kind)
    w.add_token_list([s for s, _ in tokens])
    w.add_token_types(
        [gguf.TokenType.CONTROL if s in special else gguf.TokenType.NORMAL for s, _ in tokens]
    )
    w.add_token_merges([" ".join(m) if isinstance(m, list) else m for m in t["model"]["merges"]])
    c = json.load(open(path(name, "config.json"), encoding="utf-8"))
    w.add_bos_token_id(c["bos_token_id"])
    w.add_eos_token_id(c["eos_token_id"])
    if kind == "llama-bpe":
        w.add_add_bos_token(True)
    w.add_chat_template(TEMPLATE[kind])

    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.LLAMA, config["num_hidden_layers"])
    scaling = config.get("rope_scaling")
    if scaling and scaling.get("rope_type") == "llama3":
        freqs = 1.0 / (config["rope_theta"] ** (np.arange(0, hd, 2, dtype=np.float32) / hd))
        low = scaling["original_max_position_embeddings"] / scaling["low_freq_factor"]
        high = scaling["original_max_position_embeddings"] / scaling["high_freq_factor"]
        factors = []
        for wavelen in 2 * math.pi / freqs:
            if wavelen < high:
                factors.append(1.0)
            elif wavelen > low:
                factors.append(scaling["factor"])
            else:
                smooth = (
                    scaling["original_max_position_embeddings"] / wavelen
                    - scaling["low_freq_factor"]
                ) / (scaling["high_freq_factor"] - scaling["low_freq_factor"])
                factors.append(1 / ((1 - smooth) / scaling["factor"] + smooth))
        print(f"  {file}: rope factors {np.round(factors, 3).tolist()}")
        w.add_tensor("rope_freqs.weight", np.array(factors, dtype=np.float32))
    for k, v in model.state_dict().items():
        if k == "lm_head.weight" and config["tie_word_embeddings"]:
            continue
        a = v.detach().numpy()
        if k.endswith("q_proj.weight"):
            a = permute(a, config["num_attention_heads"])
        elif k.endswith("k_proj.weight"):
            a = permute(a, config["num_key_value_heads"])
        half = f16 and a.ndim > 1
        w.add_tensor(
            names.get_name(k, try_suffixes=(".weight",)),
            np.ascontiguousarray(a, np.float16 if half else np.float32),
        )
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


def deal_heads(w, dim, c, width):
    """Value heads from groups of a key head to the order in which they are dealt out to key heads:
    conversion/qwen.py, _LinearAttentionVReorderBase."""
    keys, per = c["linear_num_key_heads"], c["linear_num_value_heads"]
    per //= keys
    shape = w.shape
    w = w.reshape(*shape[:dim], keys, per, width, *shape[dim + 1 :])
    return w.swapaxes(dim, dim + 1).reshape(shape)


def linear_attention(k, a, c):
    """A tensor of linear attention as llama.cpp's converter writes it."""
    width = c["linear_value_head_dim"]
    first = 2 * c["linear_num_key_heads"] * c["linear_key_head_dim"]
    if ".conv1d." in k:
        a = a[:, 0]
    if ".conv1d." in k or ".in_proj_qkv." in k:
        return np.concatenate([a[:first], deal_heads(a[first:], 0, c, width)])
    if ".out_proj." in k:
        return deal_heads(a, 1, c, width)
    if ".in_proj_z." in k:
        return deal_heads(a, 0, c, width)
    if ".norm." in k:
        return a
    a = deal_heads(a, 0, c, 1)
    return -np.exp(a.astype(np.float64)) if k.endswith("A_log") else a


def gemma4_gguf(w, c):
    """What the two kinds of layers of Gemma 4 have; returns how many heads of keys each layer."""
    slides = [t == "sliding_attention" for t in c["layer_types"]]
    w.add_shared_kv_layers(0)
    w.add_embedding_length_per_layer_input(0)
    w.add_sliding_window_pattern(slides)
    w.add_key_length_swa(c["head_dim"])
    w.add_value_length_swa(c["head_dim"])
    w.add_rope_dimension_count_swa(c["head_dim"])
    w.add_rope_freq_base(1e6)
    w.add_rope_freq_base_swa(1e4)
    w.add_final_logit_softcapping(c["final_logit_softcapping"])
    turn = int(c["global_head_dim"] * 0.25 / 2)
    still = c["global_head_dim"] // 2 - turn
    w.add_tensor("rope_freqs.weight", np.array([1.0] * turn + [1e30] * still, np.float32))
    kv = c["num_key_value_heads"], c["num_global_key_value_heads"]
    return [kv[not s] for s in slides]


def write_family_gguf(name, model, c):
    """The same model as llama.cpp's converter writes it: names by its table, norms of Gemma plus
    one, q and k of Granite, SmolLM3 and Mixtral permuted, the experts of a layer as one tensor."""
    other = {"gemma3_text": "gemma3", "qwen3_moe": "qwen3moe", "mixtral": "llama"}
    other |= {"gemma4_text": "gemma4"}
    other |= {"qwen2_moe": "qwen2moe", "glm4_moe": "glm4moe", "olmo3": "olmo2"}
    other |= {"qwen3_5_text": "qwen35", "qwen3_5_moe_text": "qwen35moe"}
    other |= {"ernie4_5_moe": "ernie4_5-moe", "lfm2_moe": "lfm2moe"}
    other |= {"granitemoehybrid": "granite"}  # as long as all layers have attention
    arch = (other | {"gpt_oss": "gpt-oss"}).get(c["model_type"], c["model_type"])
    kind = {v: k for k, v in gguf.MODEL_ARCH_NAMES.items()}[arch]
    w = gguf.GGUFWriter(path(name + ".gguf"), arch)
    hd = c.get("head_dim") or c["hidden_size"] // c["num_attention_heads"]
    w.add_block_count(c["num_hidden_layers"])
    w.add_context_length(c["max_position_embeddings"])
    w.add_embedding_length(c["hidden_size"])
    if arch == "lfm2":
        w.add_feed_forward_length(model.model.layers[0].feed_forward.w1.out_features)
        w.add_shortconv_l_cache(c["conv_L_cache"])
    elif "shared_intermediate_size" in c:
        w.add_feed_forward_length(c["shared_intermediate_size"])
    elif "intermediate_size" in c:
        w.add_feed_forward_length(c["intermediate_size"])
    w.add_head_count(c["num_attention_heads"])
    heads = c["num_key_value_heads"]
    if arch.startswith("lfm2"):
        heads = [0 if t == "conv" else heads for t in c["layer_types"]]
    if arch == "gemma4":
        heads = gemma4_gguf(w, c)
        hd = c["global_head_dim"]
    w.add_head_count_kv(heads)
    w.add_layer_norm_rms_eps(c.get("norm_eps", c.get("rms_norm_eps", 1e-6)))
    rope = c.get("rope_parameters", c)
    if arch != "gemma4":
        w.add_rope_freq_base(rope.get("rope_theta", 10000.0))
    w.add_key_length(hd)
    w.add_value_length(hd)
    w.add_rope_dimension_count(int(hd * rope.get("partial_rotary_factor", 1.0)))
    if "mrope_section" in rope:
        w.add_rope_dimension_sections(rope["mrope_section"] + [0])
    if "linear_num_key_heads" in c:
        w.add_ssm_conv_kernel(c["linear_conv_kernel_dim"])
        w.add_ssm_state_size(c["linear_key_head_dim"])
        w.add_ssm_group_count(c["linear_num_key_heads"])
        w.add_ssm_time_step_rank(c["linear_num_value_heads"])
        w.add_ssm_inner_size(c["linear_value_head_dim"] * c["linear_num_value_heads"])
        w.add_full_attention_interval(c["full_attention_interval"])
    if c.get("sliding_window") and c.get("use_sliding_window", True):
        w.add_sliding_window(c["sliding_window"])
    if c.get("attn_logit_softcapping"):
        w.add_attn_logit_softcapping(c["attn_logit_softcapping"])
        w.add_final_logit_softcapping(c["final_logit_softcapping"])
    if arch == "lfm2moe":
        w.add_shortconv_l_cache(c["conv_L_cache"])
        w.add_leading_dense_block_count(c["num_dense_layers"])
        w.add_expert_gating_func(gguf.ExpertGatingFuncType.SIGMOID)
        w.add_expert_weights_scale(c["routed_scaling_factor"])
    used = c.get("num_experts_per_tok") or c.get("top_k_experts")
    if used:
        n = [c[k] for k in ("num_experts", "num_local_experts", "n_routed_experts") if k in c]
        w.add_expert_count(n[0])
        w.add_expert_used_count(used)
    if "moe_intermediate_size" in c:
        w.add_expert_feed_forward_length(c["moe_intermediate_size"])
    if "shared_expert_intermediate_size" in c:
        w.add_expert_shared_feed_forward_length(c["shared_expert_intermediate_size"])
    if "n_shared_experts" in c:
        w.add_expert_shared_count(c["n_shared_experts"])
        w.add_leading_dense_block_count(c["first_k_dense_replace"])
        w.add_expert_gating_func(gguf.ExpertGatingFuncType.SIGMOID)
        w.add_expert_weights_scale(c["routed_scaling_factor"])
        w.add_expert_weights_norm(c["norm_topk_prob"])
    if "moe_k" in c:
        shared = c["moe_num_shared_experts"]
        w.add_expert_count(c["moe_num_experts"])
        w.add_expert_used_count(c["moe_k"])
        w.add_expert_shared_count(shared)
        w.add_expert_shared_feed_forward_length(shared * c["moe_intermediate_size"])
        w.add_leading_dense_block_count(c["moe_layer_start_index"])
        w.add_interleave_moe_layer_step(c["moe_layer_interval"])
    if "embedding_multiplier" in c:
        w.add_embedding_scale(c["embedding_multiplier"])
        w.add_residual_scale(c["residual_multiplier"])
        w.add_attention_scale(c["attention_multiplier"])
        w.add_logit_scale(c["logits_scaling"])
    s = c.get("rope_scaling") or {}
    if s.get("rope_type") == "linear":
        w.add_rope_scaling_type(gguf.RopeScalingType.LINEAR)
        w.add_rope_scaling_factor(s["factor"])
    if s.get("rope_type") == "yarn":
        w.add_rope_scaling_type(gguf.RopeScalingType.YARN)
        w.add_rope_scaling_factor(s["factor"])
        w.add_rope_scaling_orig_ctx_len(s["original_max_position_embeddings"])
    if arch == "gpt-oss":
        w.add_expert_feed_forward_length(c["intermediate_size"])
    if s.get("type") == "longrope":
        old = c["original_max_position_embeddings"]
        scale = c["max_position_embeddings"] / old
        w.add_rope_scaling_orig_ctx_len(old)
        w.add_rope_scaling_attn_factors(math.sqrt(1 + math.log(scale) / math.log(old)))
        w.add_tensor("rope_factors_long.weight", np.array(s["long_factor"], np.float32))
        w.add_tensor("rope_factors_short.weight", np.array(s["short_factor"], np.float32))
    names = gguf.get_tensor_name_map(kind, c["num_hidden_layers"])
    plus_one = ("gemma", "gemma2", "gemma3", "qwen35", "qwen35moe")
    merged = {}  # of experts, whose numbers ascend
    state = dict(model.state_dict())
    for k in [k for k in state if "shared_mlp" in k]:
        at, v = k.replace("shared_mlp.output_linear", "mlp.down_proj"), state.pop(k)
        if "input_linear" in k:
            at = k.replace("shared_mlp.input_linear", "mlp.gate_proj")
            v, state[at.replace("gate", "up")] = v.chunk(2)
        state[at] = v
    for k, v in state.items():
        if k == "lm_head.weight" and c["tie_word_embeddings"]:
            continue
        a = v.detach().numpy()
        if ".experts." in k:
            merged.setdefault(re.sub(r"experts\.\d+", "experts", k), []).append(a)
            continue
        if ".conv.conv." in k:
            a = a[:, 0]
        if ".linear_attn." in k:
            a = linear_attention(k, a, c)
        elif arch in plus_one and k.endswith("norm.weight"):
            a = a + 1
        if arch in ("granite", "smollm3", "llama") and k.endswith("q_proj.weight"):
            a = permute(a, c["num_attention_heads"])
        if arch in ("granite", "smollm3", "llama") and k.endswith("k_proj.weight"):
            a = permute(a, c["num_key_value_heads"])
        at = k.replace("correction_bias", "correction.bias")
        at = at.replace(".expert_bias", ".expert_bias.bias")
        to = names.get_name(at, (".weight", ".bias"))
        if k.endswith(".sinks"):
            to = names.get_name(k) + ".weight"
        if k.endswith(".dt_bias"):
            to = names.get_name(k.replace("dt_bias", "dt_proj")) + ".bias"
        if k.endswith(".A_log"):
            to = names.get_name(k)
        if k.endswith(".layer_scalar"):
            to = names.get_name(k) + ".weight"
        if k.endswith("router.scale"):
            to = names.get_name(k.replace("scale", "proj")) + ".scale"
        if k.endswith("router.per_expert_scale"):
            of = k.replace("router.per_expert_scale", "experts.down_proj")
            to = names.get_name(of) + ".scale"
        if k.endswith(("shared_expert_gate.weight", "moe_statics.e_score_correction_bias")):
            a = a[0]
        half = a.ndim > 1 and "ffn_gate_inp" not in to and "conv1d" not in to and ".conv." not in to
        w.add_tensor(to, np.ascontiguousarray(a, np.float16 if half else np.float32))
    for k in [k for k in merged if arch == "gemma4" and "gate_proj" in k]:
        both = zip(merged.pop(k), merged.pop(k.replace("gate", "up")))
        merged[k.replace("gate", "gate_up")] = [np.concatenate(x) for x in both]
    for k, list_of in merged.items():
        if arch == "lfm2moe":  # the table knows them without "model."
            k = k.removeprefix("model.")
        to, a = names.get_name(k, try_suffixes=(".weight", ".bias")), np.stack(list_of)
        if arch == "gpt-oss" and a.ndim == 3:
            kind = gguf.GGMLQuantizationType.MXFP4
            w.add_tensor(to, gguf.quants.quantize(a.astype(np.float32), kind), raw_dtype=kind)
        else:
            w.add_tensor(to, a.astype(np.float16 if a.ndim > 2 else np.float32))
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


# ---- training -----------------------------------------------------------------------------------

STEPS, WARMUP, MIN_RATIO = 10, 2, 0.1
# `rows`: lengths of the sequences of each microbatch of a step; both microbatches train unequal
# numbers of tokens.
CASES = {
    "lora": dict(
        model="smollm2",
        targets=ATTENTION,
        optimizer="adamw",
        lr=1e-3,
        schedule="cosine",
        rows=[(29,), (11,)],
    ),
    "lora-packed": dict(
        model="llama31",
        targets=ALL_LINEAR,
        optimizer="adamw",
        lr=1e-3,
        schedule="linear",
        rows=[(19, 23), (7, 5, 1, 13)],
    ),
    "qlora": dict(
        model="smollm2-nf4-dq",
        targets=ALL_LINEAR,
        optimizer="adamw",
        lr=1e-3,
        schedule="cosine",
        rows=[(29,), (11,)],
        zero_b=True,
        clip=3.5,
    ),
    "full-adamw": dict(
        model="smollm2", optimizer="adamw", lr=1e-3, schedule="cosine", rows=[(29,), (11,)]
    ),
    # of experts: adapters on all linear modules, router and experts among them, with the losses of
    # routers
    # the same on weights in 4 bits, routers not
    "experts-nf4": dict(
        model="qwen3-moe",
        nf4=True,
        targets=ALL_LINEAR,
        optimizer="adamw",
        lr=2e-4,
        schedule="cosine",
        rows=[(29, 12), (11,)],
        routers=(0.05, 0.002),
    ),
    **{
        f"experts-{k}": dict(
            model=k,
            targets=ALL_LINEAR,
            optimizer="adamw",
            lr=2e-4,
            schedule="cosine",
            rows=[(29, 12), (11,)],
            routers=(0.0 if k == "glm4-moe" else 0.05, 0.002),
        )
        for k in ("qwen3-moe", "olmoe", "mixtral", "gpt-oss", "qwen2-moe", "glm4-moe")
        + ("qwen3_5-moe",)
    },
    "full-sgd": dict(
        model="llama2", optimizer="sgd", lr=2e-2, schedule="constant", rows=[(17,), (31,)]
    ),
}


def learning_rate(schedule, base, s):
    if s <= WARMUP:
        return base * s / WARMUP
    if schedule == "cosine":
        return base * (
            MIN_RATIO
            + (1 - MIN_RATIO) * 0.5 * (1 + math.cos(math.pi * (s - WARMUP) / (STEPS - WARMUP)))
        )
    if schedule == "linear":
        return base * (STEPS - s + 1) / (STEPS - WARMUP + 1)
    return base


def train(name, model):
    case = CASES[name]
    hyper = dict(
        model=case["model"],
        steps=STEPS,
        warmup_steps=WARMUP,
        lr_scheduler=case["schedule"],
        cosine_min_lr_ratio=MIN_RATIO,
        learning_rate=case["lr"],
        optimizer=case["optimizer"],
        weight_decay=0.01 if case["optimizer"] == "adamw" else 0.0,
        adam_beta1=0.9,
        adam_beta2=0.999,
        adam_epsilon=1e-8,
        momentum=0.9,
        max_grad_norm=case.get("clip", 1.0),
        gradient_accumulation_steps=len(case["rows"]),
    )
    coef, z = case.get("routers", (0.0, 0.0))
    if coef or z:
        hyper.update(router_aux_loss_coef=coef, router_z_loss_coef=z)
    if case.get("nf4"):
        hyper.update(load_in_4bit=True)
        round_nf4(model)
    folder = path("train-" + name, "")
    out = {}
    m = model
    if "targets" in case:
        weights = lora_weights(model, seed=13)
        if case.get("zero_b"):
            weights = {k: (a, torch.zeros_like(b)) for k, (a, b) in weights.items()}
        there = {k.split(".")[-1] for k in weights}
        targets = [t for t in case["targets"] if t in there]
        m = lora_model(model, targets, weights)
        hyper.update(lora_r=LORA_R, lora_alpha=LORA_ALPHA, lora_target_modules=targets)
        m.peft_config["default"].base_model_name_or_path = "../" + case["model"]
        m.save_pretrained(os.path.join(folder, "init"))
        os.remove(os.path.join(folder, "init", "README.md"))
        saved = json.load(
            open(os.path.join(folder, "init", "adapter_config.json"), encoding="utf-8")
        )
        saved["target_modules"].sort()
        write_json(os.path.join(folder, "init", "adapter_config.json"), saved)
    params = [p for p in m.parameters() if p.requires_grad]
    groups = [
        dict(params=[p for p in params if p.ndim >= 2], weight_decay=hyper["weight_decay"]),
        dict(params=[p for p in params if p.ndim < 2], weight_decay=0.0),
    ]
    if case["optimizer"] == "adamw":
        opt = torch.optim.AdamW(groups, lr=0.0, betas=(0.9, 0.999), eps=1e-8)
    else:
        opt = torch.optim.SGD(groups, lr=0.0, momentum=0.9)
    losses, norms, rates = [], [], []
    for s in range(STEPS):
        batch = [
            make_batch(rows, model.config.vocab_size, seed=100 * (s % 3) + i, pattern=True)
            for i, rows in enumerate(case["rows"])
        ]
        for i, b in enumerate(batch):
            out.update({f"s{s}.m{i}.{k}": v for k, v in b.items()})
        trained = sum(int((b["label"] != -100).sum()) for b in batch)
        opt.zero_grad()
        loss = 0.0
        for b in batch:
            _, total, _ = run(m, b, coef, z)
            (total / trained).backward()
            loss += total.item() / trained
        norm = torch.nn.utils.clip_grad_norm_(params, hyper["max_grad_norm"]).item()
        lr = learning_rate(case["schedule"], case["lr"], s + 1)
        for gr in opt.param_groups:
            gr["lr"] = lr
        opt.step()
        losses.append(loss)
        norms.append(norm)
        rates.append(lr)
    for k, v in (("loss", losses), ("grad_norm", norms), ("lr", rates)):
        out[k] = torch.tensor(v, dtype=torch.float64)
    if "targets" in case:
        for module, a, b in lora_parts(m):
            out[f"final.{module}.A"], out[f"final.{module}.B"] = a.detach(), b.detach()
    else:
        for k in (
            "model.embed_tokens.weight",
            "model.norm.weight",
            "model.layers.0.self_attn.q_proj.weight",
            "model.layers.1.mlp.down_proj.weight",
            "model.layers.1.input_layernorm.weight",
        ):
            out["final." + k] = m.get_parameter(k).detach()[:ROWS]
    write_json(os.path.join(folder, "case.json"), hyper)
    save_file(
        {k: v.contiguous() for k, v in out.items()}, os.path.join(folder, "expect.safetensors")
    )
    print(
        f"train-{name}: loss {losses[0]:.4f} -> {losses[-1]:.4f}, norms"
        f" {min(norms):.3f}..{max(norms):.3f}"
    )


def main():
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    if len(sys.argv) > 1:  # only these families and cases, beside what is there
        for name in sys.argv[1:]:
            if name.startswith("train-"):
                case = name.removeprefix("train-")
                train(case, build(CASES[case]["model"])[0])
                name = CASES[case]["model"]
                model, config = build(name)  # it wrote a fresh config.json
                save_model(name, model, config)
                continue
            row = FAMILIES[name]
            model, config = build(name)
            save_model(name, model, config)
            expectation(name, model, row.get("grads", True), row.get("grads", True))
            model = build(name)[0]
            save_model(name, model, config)
            if "tokenizer" in row:
                make_tokenizer(name, row["tokenizer"], config["vocab_size"])
            if name in GGUF:
                write_family_gguf(name, model, config)
        return
    shutil.rmtree(ROOT, ignore_errors=True)
    for name, row in FAMILIES.items():
        model, config = build(name)
        save_model(name, model, config)
        expectation(name, model, row.get("grads", True), row.get("grads", True))
        if "tokenizer" in row:
            make_tokenizer(name, row["tokenizer"], config["vocab_size"])
        if name == "smollm2":
            write_gguf("smollm2-f32.gguf", name, model, config, row["tokenizer"], f16=False)
        if name in GGUF:
            write_family_gguf(name, model, config)
        if name == "llama31":
            write_gguf("llama31-f16.gguf", name, model, config, row["tokenizer"], f16=True)
    dq = nf4_folder("smollm2-nf4-dq", "smollm2", True, torch.bfloat16)
    nf4_folder("llama2-nf4", "llama2", False, torch.float32)
    for name, case in CASES.items():
        train(name, dq if case["model"] == "smollm2-nf4-dq" else build(case["model"])[0])
    for (
        name,
        row,
    ) in (
        FAMILIES.items()
    ):  # build() for training wrote a fresh config.json; put the finished one back
        model, config = build(name)
        save_model(name, model, config)
        if "tokenizer" in row:
            make_tokenizer(name, row["tokenizer"], config["vocab_size"])
    with open(path("versions.txt"), "w", encoding="utf-8") as f:
        f.write("made by scripts/golden/models.py with\n")
        for mod in (torch, transformers, peft, bitsandbytes, tokenizers, safetensors, np):
            f.write(f"{mod.__name__} {mod.__version__}\n")
        from importlib.metadata import version

        f.write(f"gguf {version('gguf')}\npython {sys.version.split()[0]}\n")


if __name__ == "__main__":
    main()
