#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A LoRA step by transformers and peft, timed as `heteroshard bench` times its own: random weights,
r 16 on q, k, v, o, sdpa attention, bfloat16, every token trained, AdamW on the adapters, gradient
checkpointing only with --recompute. One JSON row; `fits` is false when memory was short.

NF4 as bitsandbytes has it (double quantisation), in all linear layers but the head. Peak memory is
what torch's allocator held at most in the timed steps, on CUDA and ROCm cards; on a processor it is
not measured."""

import argparse
import json
import statistics
import sys
import time

import peft
import torch
import transformers

# layers, hidden, intermediate, heads, key heads, head width, vocabulary, tied: as in
# src/runtime/step_bench.c
SHAPES = {
    "smollm2-135m": (30, 576, 1536, 9, 3, 64, 49152, True),
    "llama3.2-1b": (16, 2048, 8192, 32, 8, 64, 128256, True),
    "llama3-8b": (32, 4096, 14336, 32, 8, 128, 128256, False),
}


def model_of(name, layers, device):
    n, c, f, h, g, d, v, tied = SHAPES[name]
    cfg = transformers.LlamaConfig(
        num_hidden_layers=min(n, layers) if layers else n,
        hidden_size=c,
        intermediate_size=f,
        num_attention_heads=h,
        num_key_value_heads=g,
        head_dim=d,
        vocab_size=v,
        tie_word_embeddings=tied,
        max_position_embeddings=4096,
        attn_implementation="sdpa",
        use_cache=False,
    )
    torch.set_default_dtype(torch.bfloat16)
    with torch.device(device):
        model = transformers.AutoModelForCausalLM.from_config(cfg)
    torch.set_default_dtype(torch.float32)
    return model.to(torch.bfloat16)


def to_nf4(model, device):
    import bitsandbytes as bnb

    for layer in model.model.layers:
        for name, old in list(layer.named_modules()):
            if not isinstance(old, torch.nn.Linear):
                continue
            new = bnb.nn.Linear4bit(
                old.in_features,
                old.out_features,
                bias=False,
                compute_dtype=torch.bfloat16,
                compress_statistics=True,
                quant_type="nf4",
            )
            new.weight = bnb.nn.Params4bit(
                old.weight.data.cpu(),
                requires_grad=False,
                compress_statistics=True,
                quant_type="nf4",
            )
            parent, last = name.rsplit(".", 1)
            setattr(layer.get_submodule(parent), last, new.to(device))
    model.is_loaded_in_4bit = True  # peft looks for it


def measure(a, device):
    card = device.type == "cuda"
    model = model_of(a.shape, a.layers, device)
    if a.weights == "nf4":
        to_nf4(model, device)
    model = peft.get_peft_model(
        model,
        peft.LoraConfig(
            r=16,
            lora_alpha=32,
            lora_dropout=0.0,
            target_modules=["q_proj", "k_proj", "v_proj", "o_proj"],
            task_type="CAUSAL_LM",
        ),
    )
    if a.recompute:
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    model.train()
    opt = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-4)
    ids = torch.randint(0, model.config.vocab_size, (a.rows, a.length), device=device)
    if card:
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()

    def now():
        if card:
            torch.cuda.synchronize()
        return time.perf_counter()

    parts = []
    for _ in range(a.repeat + 2):  # two to warm up
        t0 = now()
        loss = model(input_ids=ids, labels=ids).loss
        t1 = now()
        loss.backward()
        t2 = now()
        opt.step()
        opt.zero_grad()
        parts.append((t1 - t0, t2 - t1, now() - t2))
    forward, backward, update = (statistics.median(p[i] for p in parts[2:]) for i in range(3))
    return {
        "fits": True,
        "forward": forward,
        "backward": backward,
        "update": update,
        "memory": torch.cuda.max_memory_reserved() if card else 0,
    }


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--device", default="cuda:0")
    p.add_argument("--shape", choices=SHAPES, default="llama3.2-1b")
    p.add_argument("--length", type=int, default=512)
    p.add_argument("--rows", type=int, default=1)
    p.add_argument("--layers", type=int, default=0)
    p.add_argument("--repeat", type=int, default=5)
    p.add_argument("--weights", choices=["plain", "nf4"], default="plain")
    p.add_argument("--recompute", action="store_true")
    a = p.parse_args()
    # ROCm's torch calls its cards cuda too
    device = torch.device("cpu" if a.device.startswith("cpu") else a.device.replace("hip", "cuda"))
    row = {
        "row": "peft",
        "shape": a.shape,
        "length": a.length,
        "rows": a.rows,
        "recompute": a.recompute,
        "weights": "NF4" if a.weights == "nf4" else "bfloat16",
        "versions": (
            f"torch {torch.__version__}, transformers {transformers.__version__}, peft"
            f" {peft.__version__}"
        ),
    }
    try:
        row.update(measure(a, device))
    except torch.OutOfMemoryError:
        row["fits"] = False
    except ImportError as e:
        print(f"{a.shape} {a.length} {a.weights} by peft is left out: {e}", file=sys.stderr)
        return
    print(json.dumps(row))


main()
