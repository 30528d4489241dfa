#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""check-experts.py [PROGRAM [FAMILY...]]: adapters on the fused experts of transformers 5.

For every family of mixtures a small random model gets an adapter from PEFT with
`target_parameters`. `heteroshard merge` merges it into a folder: transformers computes the same
from that as PEFT does. `heteroshard merge --adapter-only` reads it, takes it apart and writes it
again: PEFT loads that and computes the same. Needs torch, transformers, peft."""

import os
import subprocess
import sys
import tempfile

import peft
import torch
import transformers

N = 40
SHAPE = dict(
    vocab_size=160,
    hidden_size=64,
    intermediate_size=96,
    num_attention_heads=4,
    num_key_value_heads=4,
    num_hidden_layers=2,
    max_position_embeddings=128,
    num_experts_per_tok=2,
    tie_word_embeddings=False,
)
MODELS = {
    "qwen3_moe": ("Qwen3MoeConfig", dict(moe_intermediate_size=32, num_experts=6)),
    "qwen2_moe": (
        "Qwen2MoeConfig",
        dict(moe_intermediate_size=32, num_experts=6, shared_expert_intermediate_size=48),
    ),
    "qwen3_5_moe": (
        "Qwen3_5MoeTextConfig",
        dict(moe_intermediate_size=32, num_experts=6, shared_expert_intermediate_size=48)
        | dict(head_dim=16, linear_key_head_dim=12, linear_value_head_dim=10)
        | dict(linear_num_key_heads=2, linear_num_value_heads=4)
        | dict(layer_types=["linear_attention", "full_attention"], intermediate_size=None),
    ),
    "qwen3_next": (
        "Qwen3NextConfig",
        dict(moe_intermediate_size=32, num_experts=6, shared_expert_intermediate_size=48)
        | dict(head_dim=16, linear_key_head_dim=12, linear_value_head_dim=10)
        | dict(linear_num_key_heads=2, linear_num_value_heads=4)
        | dict(layer_types=["linear_attention", "full_attention"]),
    ),
    "olmoe": ("OlmoeConfig", dict(num_experts=6)),
    "mixtral": ("MixtralConfig", dict(num_local_experts=6)),
    "gpt_oss": ("GptOssConfig", dict(head_dim=16, sliding_window=9, num_local_experts=6)),
    "glm4_moe": (
        "Glm4MoeConfig",
        dict(moe_intermediate_size=32, head_dim=16, n_routed_experts=6, num_hidden_layers=3),
    ),
    "ernie4_5_moe": (
        "Ernie4_5_MoeConfig",
        dict(moe_intermediate_size=32, head_dim=16, moe_num_experts=6, num_hidden_layers=3)
        | dict(moe_k=2, num_experts_per_tok=None),
    ),
    "deepseek_v2": (
        "DeepseekV2Config",
        dict(moe_intermediate_size=32, n_routed_experts=6, num_hidden_layers=3, q_lora_rank=None)
        | dict(kv_lora_rank=16, qk_nope_head_dim=12, qk_rope_head_dim=8, v_head_dim=14)
        | dict(first_k_dense_replace=1),
    ),
    "glm4_moe_lite": (
        "Glm4MoeLiteConfig",
        dict(moe_intermediate_size=32, n_routed_experts=6, num_hidden_layers=3, q_lora_rank=24)
        | dict(kv_lora_rank=16, qk_nope_head_dim=12, qk_rope_head_dim=8, v_head_dim=14),
    ),
    "lfm2_moe": (
        "Lfm2MoeConfig",
        dict(moe_intermediate_size=32, num_experts=6, num_dense_layers=1, num_hidden_layers=3)
        | dict(layer_types=["full_attention", "conv", "full_attention"]),
    ),
    "gemma4": (
        "Gemma4TextConfig",
        dict(moe_intermediate_size=32, num_experts=6, top_k_experts=2, num_experts_per_tok=None)
        | dict(enable_moe_block=True, head_dim=16, global_head_dim=24, sliding_window=9)
        | dict(attention_k_eq_v=True, num_global_key_value_heads=2, hidden_size_per_layer_input=0)
        | dict(layer_types=["sliding_attention", "full_attention"]),
    ),
}
# Further parameters: what every token has.
EVERY = {
    "qwen2_moe": ["shared_expert.gate_proj.weight", "shared_expert.down_proj.weight"],
    "qwen3_5_moe": ["shared_expert.up_proj.weight", "shared_expert.down_proj.weight"],
    "qwen3_next": ["shared_expert.gate_proj.weight", "shared_expert.up_proj.weight"],
    "glm4_moe_lite": ["shared_experts.up_proj.weight", "mlp.gate_proj.weight"],
    "glm4_moe": ["shared_experts.gate_proj.weight", "mlp.up_proj.weight", "mlp.down_proj.weight"],
    "ernie4_5_moe": ["shared_experts.up_proj.weight", "mlp.gate_proj.weight"],
    "gemma4": ["mlp.gate_proj.weight", "mlp.down_proj.weight"],
    "lfm2_moe": ["feed_forward.w1.weight", "feed_forward.w2.weight"],
}
TARGETS = {
    "glm4_moe_lite": ["q_a_proj", "q_b_proj", "kv_a_proj_with_mqa", "kv_b_proj", "o_proj"],
    "lfm2_moe": ["q_proj", "out_proj", "in_proj"],
}


def run(*argv):
    p = subprocess.run(argv, capture_output=True, text=True)
    if p.returncode:
        sys.exit(f"{' '.join(argv)}: {p.stderr}")


def main():
    program = sys.argv[1] if len(sys.argv) > 1 else "build/heteroshard"
    bad = 0
    transformers.logging.disable_progress_bar()
    for name, (kind, shape) in MODELS.items():
        if sys.argv[2:] and name not in sys.argv[2:]:
            continue
        torch.manual_seed(3)
        c = getattr(transformers, kind)(
            pad_token_id=0,
            bos_token_id=1,
            eos_token_id=2,
            **{k: v for k, v in (SHAPE | shape).items() if v is not None},
        )
        model = transformers.AutoModelForCausalLM.from_config(c).eval()
        for p in model.parameters():
            p.data = torch.randn_like(p) * (0.15 if p.ndim > 1 else 0.1) + (p.ndim < 2)
        ids = torch.randint(3, c.vocab_size, (1, N))
        for k, b in model.named_buffers():
            if k.endswith(".expert_bias"):
                b.copy_(torch.randn_like(b) * 0.2)
        router = {"gpt_oss": "mlp.router.weight", "gemma4": "router.proj.weight"}
        router["lfm2_moe"] = "feed_forward.gate.weight"
        router = router.get(name, "mlp.gate.weight")
        block = {"gemma4": "experts", "lfm2_moe": "feed_forward.experts"}.get(name, "mlp.experts")
        with tempfile.TemporaryDirectory() as d:
            model.save_pretrained(d + "/base")
            tuned = peft.get_peft_model(
                model,
                peft.LoraConfig(
                    r=4,
                    lora_alpha=8,
                    target_modules=TARGETS.get(name, ["q_proj", "o_proj"]),
                    target_parameters=[
                        block + ".gate_up_proj",
                        block + ".down_proj",
                        router,
                        *EVERY.get(name, []),
                    ],
                ),
            )
            for k, p in tuned.named_parameters():
                if "lora_" in k:
                    p.data = torch.randn_like(p) * 0.15
            tuned.save_pretrained(d + "/adapter")
            with torch.no_grad():
                want = tuned.eval()(ids).logits
            args = ["merge", "-q", d + "/base", d + "/adapter"]
            run(program, *args, d + "/merged", "--type", "f32")
            run(program, *args, d + "/again", "--adapter-only")
            with torch.no_grad():
                merged = transformers.AutoModelForCausalLM.from_pretrained(d + "/merged")
                base = transformers.AutoModelForCausalLM.from_pretrained(d + "/base")
                plain = base.eval()(ids).logits
                again = peft.PeftModel.from_pretrained(base, d + "/again")
                got = {"merged": merged.eval()(ids).logits, "again": again.eval()(ids).logits}
        assert (plain - want).abs().max() > 0.05 * want.abs().max()
        for what, v in got.items():
            share = ((v - want).abs().max() / want.abs().max()).item()
            ok = share <= 1e-4
            bad += not ok
            print(f"{name}: {what}: logits within {share:.1e}  {'ok' if ok else 'FAIL'}")
    sys.exit(bad > 0)


if __name__ == "__main__":
    main()
