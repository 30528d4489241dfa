#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""check-gguf.py [PROGRAM [FAMILY...]]: llama.cpp computes from `heteroshard merge ... out.gguf`,
and from an adapter alone (--lora), what transformers and PEFT compute from model and adapter.

For every family a small random model and an adapter on all linear modules are made, merged into a
GGUF of F32, and loaded by llama.cpp (the library in the wheel xllamacpp) and by the package gguf.
Logits of 60 positions may differ by 1 % of the largest: llama.cpp keeps keys and values in
F16. Needs torch, transformers, peft, gguf and xllamacpp."""

import ctypes
import glob
import importlib.util
import os
import subprocess
import sys
import tempfile

import gguf
import numpy as np
import peft
import torch
import transformers

N = 60
transformers.logging.disable_progress_bar()
SHAPE = dict(
    vocab_size=160,
    hidden_size=64,
    intermediate_size=96,
    num_attention_heads=4,
    num_key_value_heads=2,
    max_position_embeddings=128,
    tie_word_embeddings=True,
)
GEMMA = dict(SHAPE, head_dim=16, hidden_activation="gelu_pytorch_tanh")
ATTENTION = ["q_proj", "k_proj", "v_proj", "o_proj"]
ATTENTION += ["in_proj_qkv", "in_proj_z", "in_proj_b", "in_proj_a", "out_proj"]  # linear
MIXTURE = dict(SHAPE, num_hidden_layers=2, num_experts=6, num_experts_per_tok=2)
MIXTURE["tie_word_embeddings"] = False
LONG = dict(rope_type="longrope", short_factor=[1.1] * 6, long_factor=[2.5] * 6)
GEMMA4 = dict(GEMMA, global_head_dim=32, hidden_size_per_layer_input=0, num_hidden_layers=4)
GEMMA4 |= dict(attention_k_eq_v=True, num_global_key_value_heads=1, sliding_window=17)
GEMMA4 |= dict(layer_types=["sliding_attention", "full_attention"] * 2, num_kv_shared_layers=0)
MODELS = {
    "llama": ("LlamaConfig", dict(SHAPE, num_hidden_layers=2)),
    "qwen3": ("Qwen3Config", dict(SHAPE, num_hidden_layers=2, head_dim=16)),
    "granite": (
        "GraniteConfig",
        dict(SHAPE, num_hidden_layers=2, embedding_multiplier=6.0, residual_multiplier=0.3)
        | dict(attention_multiplier=0.2, logits_scaling=3.0),
    ),
    "olmo2": ("Olmo2Config", dict(SHAPE, num_hidden_layers=2, tie_word_embeddings=False)),
    "smollm3": ("SmolLM3Config", dict(SHAPE, num_hidden_layers=5)),
    "olmo3": (
        "Olmo3Config",
        dict(SHAPE, num_hidden_layers=5, sliding_window=17, tie_word_embeddings=False)
        | dict(
            max_position_embeddings=256,
            rope_scaling=dict(rope_type="yarn", factor=4.0, original_max_position_embeddings=32),
        ),
    ),
    "exaone4": (
        "Exaone4Config",
        dict(SHAPE, num_hidden_layers=2, sliding_window=None)
        | dict(layer_types=["full_attention"] * 2),
    ),
    "ernie4_5": ("Ernie4_5Config", dict(SHAPE, num_hidden_layers=2)),
    "gemma": ("GemmaConfig", dict(GEMMA, num_hidden_layers=2)),
    "gemma2": (
        "Gemma2Config",
        dict(GEMMA, num_hidden_layers=3, query_pre_attn_scalar=16, sliding_window=17)
        | dict(attn_logit_softcapping=5.0, final_logit_softcapping=4.0),
    ),
    "gemma3": (
        "Gemma3TextConfig",
        dict(GEMMA, num_hidden_layers=7, query_pre_attn_scalar=16, sliding_window=17),
    ),
    "phi3": ("Phi3Config", dict(SHAPE, num_hidden_layers=2, tie_word_embeddings=False)),
    "phi3, longrope": (
        "Phi3Config",
        dict(SHAPE, num_hidden_layers=2, max_position_embeddings=1024)
        | dict(original_max_position_embeddings=512)  # llama.cpp's context, so short factors
        | dict(rope_scaling=LONG | dict(partial_rotary_factor=0.75, rope_theta=10000.0)),
    ),
    "qwen3_moe": ("Qwen3MoeConfig", MIXTURE | dict(moe_intermediate_size=32, norm_topk_prob=True)),
    # llama.cpp knows OLMoE with as many key heads as query heads only
    "olmoe": ("OlmoeConfig", MIXTURE | dict(num_key_value_heads=4)),
    "mixtral": ("MixtralConfig", MIXTURE),
    "qwen2_moe": (
        "Qwen2MoeConfig",
        MIXTURE | dict(moe_intermediate_size=32, shared_expert_intermediate_size=48),
    ),
    "glm4_moe": (
        "Glm4MoeConfig",
        MIXTURE
        | dict(moe_intermediate_size=32, head_dim=16, n_routed_experts=6, num_mtp_layers=0)
        | dict(use_qk_norm=True, attention_bias=True, num_hidden_layers=3),
    ),
    "ernie4_5_moe": (
        "Ernie4_5_MoeConfig",
        {k: v for k, v in MIXTURE.items() if k != "num_experts_per_tok"}
        | dict(moe_intermediate_size=32, head_dim=16, moe_num_experts=6, moe_k=2)
        | dict(num_hidden_layers=3, moe_num_shared_experts=2),
    ),
    "gpt_oss": (
        "GptOssConfig",
        MIXTURE | dict(head_dim=16, sliding_window=9, num_local_experts=6),
    ),
    "seed_oss": (
        "SeedOssConfig",
        dict(SHAPE, num_hidden_layers=2, head_dim=16, tie_word_embeddings=False),
    ),
    "qwen3_5": (
        "Qwen3_5TextConfig",
        dict(SHAPE, num_hidden_layers=5, head_dim=32, linear_num_key_heads=2)
        | dict(linear_num_value_heads=6, linear_key_head_dim=16, linear_value_head_dim=16)
        | dict(rope_parameters=dict(rope_type="default", rope_theta=1e6)),
    ),
    "qwen3_5_moe": (
        "Qwen3_5MoeTextConfig",
        {k: v for k, v in MIXTURE.items() if k != "intermediate_size"}
        | dict(num_hidden_layers=4, head_dim=32, linear_num_key_heads=2)
        | dict(linear_num_value_heads=4, linear_key_head_dim=16, linear_value_head_dim=16)
        | dict(moe_intermediate_size=32, shared_expert_intermediate_size=64)
        | dict(rope_parameters=dict(rope_type="default", rope_theta=1e6)),
    ),
    "lfm2": (
        "Lfm2Config",
        dict(SHAPE, num_hidden_layers=4, block_multiple_of=32, full_attn_idxs=[1, 3]),
    ),
    "lfm2_moe": (
        "Lfm2MoeConfig",
        dict(MIXTURE, num_hidden_layers=4, moe_intermediate_size=32, num_dense_layers=1)
        | dict(tie_word_embeddings=True)
        | dict(layer_types=["conv", "full_attention", "conv", "full_attention"]),
    ),
    "granite4": (  # gate and up are one matrix in the folder, and two in the file
        "GraniteMoeHybridConfig",
        dict(SHAPE, num_hidden_layers=2, embedding_multiplier=6.0, residual_multiplier=0.3)
        | dict(attention_multiplier=0.2, logits_scaling=3.0, num_local_experts=0)
        | dict(shared_intermediate_size=80, layer_types=["full_attention"] * 2)
        | dict(position_embedding_type="rope", mamba_n_heads=16),
    ),
    "gemma4": ("Gemma4TextConfig", GEMMA4),
    "gemma4, capped": ("Gemma4TextConfig", dict(GEMMA4, final_logit_softcapping=4.0)),
    "gemma4_moe": (  # beside an MLP
        "Gemma4TextConfig",
        dict(GEMMA4, enable_moe_block=True, num_experts=6, top_k_experts=2)
        | dict(moe_intermediate_size=32),
    ),
    "glm4": (
        "Glm4Config",
        dict(SHAPE, num_hidden_layers=2, head_dim=16, tie_word_embeddings=False)
        | dict(attention_bias=True),
    ),
}
# With seed 3 two experts of a token are so close that llama.cpp, whose keys and values are float16,
# chooses the other one.
SEED = {"ernie4_5_moe": 5}


class Params(ctypes.Structure):  # larger than any of llama.cpp's own
    _fields_ = [("bytes", ctypes.c_uint64 * 64)]


class Batch(ctypes.Structure):
    _fields_ = [("bytes", ctypes.c_uint64 * 7)]


def llama_cpp():
    folder = os.path.dirname(importlib.util.find_spec("xllamacpp").origin)
    lib = ctypes.CDLL(glob.glob(os.path.join(folder, "xllamacpp*.so"))[0])
    lib.llama_model_default_params.restype = lib.llama_context_default_params.restype = Params
    lib.llama_model_load_from_file.argtypes = [ctypes.c_char_p, Params]
    lib.llama_model_load_from_file.restype = ctypes.c_void_p
    lib.llama_init_from_model.argtypes = [ctypes.c_void_p, Params]
    lib.llama_init_from_model.restype = ctypes.c_void_p
    lib.llama_batch_get_one.restype = Batch
    lib.llama_batch_get_one.argtypes = [ctypes.c_void_p, ctypes.c_int32]
    lib.llama_decode.argtypes = [ctypes.c_void_p, Batch]
    lib.llama_get_logits_ith.argtypes = [ctypes.c_void_p, ctypes.c_int32]
    lib.llama_get_logits_ith.restype = ctypes.POINTER(ctypes.c_float)
    lib.llama_adapter_lora_init.argtypes = [ctypes.c_void_p, ctypes.c_char_p]
    lib.llama_adapter_lora_init.restype = ctypes.c_void_p
    pointer = ctypes.c_void_p
    lib.llama_set_adapters_lora.argtypes = [pointer, pointer, ctypes.c_size_t, pointer]
    lib.llama_free.argtypes = lib.llama_model_free.argtypes = [ctypes.c_void_p]
    log = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p)
    lib.quiet = log(lambda level, text, data: None)
    lib.llama_log_set(lib.quiet, None)
    return lib


def logits(lib, path, ids, vocab, adapter=None):
    model = lib.llama_model_load_from_file(path.encode(), lib.llama_model_default_params())
    if not model:
        return None
    context = lib.llama_init_from_model(model, lib.llama_context_default_params())
    if adapter:
        lora = lib.llama_adapter_lora_init(model, adapter.encode())
        if not lora:
            return None
        one = ctypes.c_float(1)
        lora = ctypes.c_void_p(lora)
        assert lib.llama_set_adapters_lora(context, ctypes.byref(lora), 1, ctypes.byref(one)) == 0
    out = np.zeros((len(ids), vocab), np.float32)
    for i, t in enumerate(ids):  # one by one: each gives its logits
        token = (ctypes.c_int32 * 1)(int(t))
        assert lib.llama_decode(context, lib.llama_batch_get_one(token, 1)) == 0
        out[i] = np.ctypeslib.as_array(lib.llama_get_logits_ith(context, -1), (vocab,))
    lib.llama_free(context)
    lib.llama_model_free(model)
    return out


def main():
    program = sys.argv[1] if len(sys.argv) > 1 else "build/heteroshard"
    only = sys.argv[2:] or list(MODELS)
    lib = llama_cpp()
    bad = 0
    for name in only:
        kind, shape = MODELS[name]
        torch.manual_seed(SEED.get(name, 3))
        c = getattr(transformers, kind)(pad_token_id=0, bos_token_id=1, eos_token_id=2, **shape)
        model = transformers.AutoModelForCausalLM.from_config(c)
        for p in model.parameters():
            p.data = torch.randn_like(p) * (0.15 if p.ndim > 1 else 0.1) + (
                0 if p.ndim > 1 or name in ("gemma", "gemma2", "gemma3") else 1
            )
        for k, p in model.named_parameters():
            if name.startswith("gemma4") and k.endswith("q_norm.weight"):
                p.data *= 0.2  # nothing else divides scores, and llama.cpp's keys are float16
        for k, b in model.named_buffers():
            if k.endswith(".expert_bias"):
                b.copy_(torch.randn_like(b) * 0.2)
            if k.endswith(".layer_scalar"):
                b.copy_(torch.rand_like(b) + 0.5)
        ids = torch.randint(3, c.vocab_size, (N,))
        with tempfile.TemporaryDirectory() as d:
            model.save_pretrained(d + "/base")
            # PEFT's adapters on the experts of transformers 5 are of whole tensors
            targets = ATTENTION if "num_experts" in shape else "all-linear"
            experts = ["experts.gate_up_proj", "experts.down_proj"]
            lora = peft.LoraConfig(r=4, target_modules=targets, lora_alpha=8)
            if name == "gemma4_moe":
                lora.target_parameters = experts
            tuned = peft.get_peft_model(model, lora)
            tuned.save_pretrained(d + "/nothing")
            for k, p in tuned.named_parameters():
                if "lora_" in k:
                    p.data = torch.randn_like(p) * 0.15
            tuned.save_pretrained(d + "/adapter")
            with torch.no_grad():
                want = tuned.eval()(ids[None]).logits[0].numpy()
            out = d + "/out.gguf"
            subprocess.run(
                [program, "merge", "-q", d + "/base", d + "/adapter", out, "--type", "f32"],
                check=True,
                capture_output=True,
            )
            # the adapter alone, for --lora, on the model without it
            for adapter, file, how in (
                ("nothing", "base.gguf", ["--type", "f32"]),
                ("adapter", "lora.gguf", ["--adapter-only"]),
            ):
                subprocess.run(
                    [program, "merge", "-q", d + "/base", f"{d}/{adapter}", f"{d}/{file}", *how],
                    check=True,
                    capture_output=True,
                )
            apart = logits(lib, d + "/base.gguf", ids, c.vocab_size, d + "/lora.gguf")
            share = 9 if apart is None else np.abs(apart - want).max() / np.abs(want).max()
            print(f"{name}: the adapter by --lora: logits within {share:.1e}")
            bad += not share <= 0.01
            if name == "gpt_oss":  # a folder too, in which its experts are fused again
                subprocess.run(
                    [program, "merge", "-q", d + "/base", d + "/adapter", d + "/merged"]
                    + ["--type", "f32"],
                    check=True,
                    capture_output=True,
                )
                merged = transformers.AutoModelForCausalLM.from_pretrained(d + "/merged")
                with torch.no_grad():
                    again = merged.eval()(ids[None]).logits[0].numpy()
                share = np.abs(again - want).max() / np.abs(want).max()
                print(f"{name}: transformers on the merged folder: logits within {share:.1e}")
                bad += not share <= 1e-4
            tensors = len(gguf.GGUFReader(out).tensors)
            got = logits(lib, out, ids, c.vocab_size)
        if got is None:
            print(f"{name}: {tensors} tensors, llama.cpp does not load it  FAIL")
            bad += 1
            continue
        share = np.abs(got - want).max() / np.abs(want).max()
        ok = share <= 0.01
        bad += not ok
        print(f"{name}: {tensors} tensors, logits within {share:.1e}  {'ok' if ok else 'FAIL'}")
    sys.exit(bad > 0)


if __name__ == "__main__":
    main()
