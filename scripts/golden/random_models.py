#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""random_models.py FOLDER COUNT [SEED] - random small models of every family, with the loss that
transformers computes of them.

Writes COUNT folders of each family into FOLDER: heads, widths, layers, biases, windows, caps and
rope scalings are drawn. `TEST_MODELS=FOLDER build/tests/test_golden_models` compares them all
(within 2e-5 of the loss). Run it with the Python of models.py."""

import os
import random
import sys

import models

SCALED = ("llama", "mistral", "qwen2", "qwen3", "granite", "olmo2", "smollm3", "glm4")
SCALED += ("exaone4", "ernie4_5", "seed_oss")


def scaling(r, rot, family):
    kind = r.choice(["none", "linear", "dynamic", "llama3", "yarn", "longrope"])
    if family == "phi3":
        kind = r.choice(["none", "longrope"])
    if kind == "linear":
        return dict(rope_type="linear", factor=r.choice([2.0, 8.0]))
    if kind == "dynamic":
        return dict(rope_type="dynamic", factor=4.0)
    if kind == "llama3":
        return dict(
            rope_type="llama3",
            factor=8.0,
            low_freq_factor=1.0,
            high_freq_factor=4.0,
            original_max_position_embeddings=r.choice([16, 64]),
        )
    if kind == "yarn":
        return dict(rope_type="yarn", factor=4.0, original_max_position_embeddings=32)
    if kind == "longrope":
        return dict(
            rope_type="longrope",
            short_factor=[round(r.uniform(1, 2), 3) for _ in range(rot // 2)],
            long_factor=[round(r.uniform(1, 9), 3) for _ in range(rot // 2)],
            original_max_position_embeddings=r.choice([16, 128]),
        )
    return None


def draw(r, family):
    """A row as those of models.FAMILIES."""
    kv = r.choice([1, 2, 3])
    heads = kv * r.choice([1, 2, 4])
    head = r.choice([8, 12, 16, 20, 32, 48])
    if family == "phi3":  # has no head_dim of its own
        hidden = heads * head
    else:
        hidden = r.choice([32, 48, 72]) if family not in ("gemma", "gemma2", "gemma3_text") else 0
        if not hidden or hidden % heads:  # several families insist
            hidden = heads * r.choice([8, 12])
        if family in ("olmo2", "olmo3", "granite", "olmoe", "mixtral"):  # likewise
            hidden = heads * head
    c = dict(
        vocab_size=r.choice([97, 131, 257]),
        hidden_size=hidden,
        intermediate_size=r.choice([24, 40, 100]),
        num_hidden_layers=r.choice([1, 2, 3, 4]),
        num_attention_heads=heads,
        num_key_value_heads=kv,
        max_position_embeddings=r.choice([16, 64, 256]),
        rms_norm_eps=r.choice([1e-5, 1e-6]),
        rope_theta=r.choice([10000.0, 500000.0]),
        tie_word_embeddings=r.random() < 0.5,
        pad_token_id=0,
    )
    if family not in ("phi3", "olmo2", "olmo3", "granite", "olmoe", "mixtral"):
        c["head_dim"] = head
    if family in ("qwen3_moe", "olmoe", "mixtral"):
        c["num_local_experts" if family == "mixtral" else "num_experts"] = r.choice([3, 5, 8])
        c["num_experts_per_tok"] = r.choice([1, 2, 3])
    if family in ("qwen3_5_moe_text", "qwen3_next"):
        if family == "qwen3_next":
            c["norm_topk_prob"], c["mlp_only_layers"] = r.random() < 0.5, r.choice([[], [1], [2]])
        else:
            del c["intermediate_size"]
        c.update(
            num_experts=r.choice([3, 5, 8]),
            num_experts_per_tok=r.choice([1, 2, 3]),
            moe_intermediate_size=r.choice([8, 24, 40]),
            shared_expert_intermediate_size=r.choice([8, 20, 40]),
        )
    if family in ("qwen3_moe", "olmoe"):
        c["norm_topk_prob"] = r.random() < 0.5
    if family == "qwen3_moe":
        c["moe_intermediate_size"] = r.choice([8, 24, 40])
    act, rot = "silu", head
    if family == "phi3" or family in ("glm", "glm4"):
        share = r.choice([0.5, 1.0]) if head % 4 == 0 else 1.0
        c["partial_rotary_factor"] = share
        rot = int(head * share)
    if family in SCALED or family == "phi3":
        s = scaling(r, rot, family)
        if s:
            c["rope_scaling"] = s
            if "original_max_position_embeddings" in s:
                c["max_position_embeddings"] = 256
            if family == "phi3":  # where transformers looks for it
                c["original_max_position_embeddings"] = s["original_max_position_embeddings"]
    if family == "llama":
        c.update(attention_bias=r.random() < 0.5, mlp_bias=r.random() < 0.5)
    if family in ("qwen3", "granite", "olmo2", "glm", "glm4", "gemma", "gemma2", "gemma3_text"):
        c["attention_bias"] = r.random() < 0.3
    if family == "olmo3":
        c["rope_theta"] = 500000.0  # transformers 5.23 takes no other for layers with a window
        s = r.choice([None, dict(rope_type="linear", factor=4.0)])
        yarn = dict(rope_type="yarn", factor=4.0, original_max_position_embeddings=32)
        c["rope_scaling"] = r.choice([s, yarn])
    if family in ("olmo3", "exaone4"):
        c["sliding_window"] = r.choice([4, 9, 40])
    if family == "exaone4":
        c["sliding_window_pattern"] = r.choice([1, 2, 4])
    if family == "seed_oss":
        c.update({k + "_bias": r.random() < 0.5 for k in ("attention", "attention_out", "mlp")})
    if family == "ernie4_5":
        c["use_bias"] = r.random() < 0.5
    if family in ("mistral", "phi3"):
        c["sliding_window"] = r.choice([None, 5, 30])
    if family in ("gemma2", "gemma3_text"):
        c["sliding_window"] = r.choice([4, 9, 40])
        c["query_pre_attn_scalar"] = r.choice([16, 32, 100])
    if family == "gemma2":
        c["attn_logit_softcapping"] = r.choice([None, 1.5, 20.0])
        c["final_logit_softcapping"] = r.choice([None, 3.0, 30.0])
    if family == "gemma3_text":
        c["sliding_window_pattern"] = r.choice([2, 3, 6])
    if family.startswith("gemma"):
        act = "gelu_pytorch_tanh"
    if family == "granite":
        c.update(
            embedding_multiplier=r.choice([1.0, 12.0]),
            residual_multiplier=r.choice([1.0, 0.22]),
            attention_multiplier=r.choice([0.125, 0.3]),
            logits_scaling=r.choice([1.0, 8.0]),
        )
    if family.startswith(("qwen3_5", "qwen3_next")):
        keys = r.choice([1, 2, 3])
        c.update(
            num_hidden_layers=r.choice([1, 3, 4, 5, 9]),
            full_attention_interval=r.choice([1, 2, 4]),
            linear_conv_kernel_dim=r.choice([2, 4, 5]),
            linear_key_head_dim=r.choice([8, 20, 32, 128]),
            linear_value_head_dim=r.choice([8, 20, 33, 128]),
            linear_num_key_heads=keys,
            linear_num_value_heads=keys * r.choice([1, 2, 3]),
            rope_parameters=dict(
                rope_type="default",
                rope_theta=c.pop("rope_theta"),
                partial_rotary_factor=r.choice([0.5, 1.0]) if head % 4 == 0 else 1.0,
            ),
            attention_bias=r.random() < 0.3,
        )
    store, each = r.choice(["F32", "BF16", "F16"]), r.random() < 0.5
    return dict(arch=family, store=store, each=each, act=act, config=c)


def main():
    models.ROOT = os.path.abspath(sys.argv[1])
    r = random.Random(int(sys.argv[3]) if len(sys.argv) > 3 else 1)
    for family in models.CLASS:
        for i in range(int(sys.argv[2])):
            name = f"{family}-{i}"
            models.FAMILIES[name] = draw(r, family)
            model, config = models.build(name)
            models.save_model(name, model, config)
            models.expectation(name, model, False, False)


if __name__ == "__main__":
    main()
