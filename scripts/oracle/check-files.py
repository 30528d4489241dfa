#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""check-files.py [SEED [CASES]] - random weights read by us and by gguf, safetensors and
bitsandbytes: blocks of every type that we read, with random bytes, in gguf.quants; folders with
tensors in all dtypes, in one file or several, and in NF4 with block sizes, double quantisation and
dtypes."""

import json
import os
import random
import sys
import tempfile

os.environ["TORCHDYNAMO_DISABLE"] = "1"

import gguf
import numpy as np
import torch
from gguf import quants
from reader import Reader, Report
from safetensors.torch import save_file

TYPES = "F32 F16 BF16 Q4_0 Q4_1 Q5_0 Q5_1 Q8_0 Q4_K Q5_K Q6_K MXFP4".split()
CONFIG = {
    "model_type": "llama",
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 1,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 40,
    "rms_norm_eps": 1e-5,
    "max_position_embeddings": 128,
    "tie_word_embeddings": False,
}


def equal(a, b):
    return a.shape == b.shape and bool(np.all((a == b) | (np.isnan(a) & np.isnan(b))))


def blocks(r, reader, report, d, n):
    name = r.choice(TYPES)
    t = getattr(gguf.GGMLQuantizationType, name)
    block, size = gguf.GGML_QUANT_SIZES[t]
    rng = np.random.default_rng(r.randrange(2**32))
    raw = rng.integers(0, 256, size * r.randrange(1, 40), dtype=np.uint8)
    if r.random() < 0.5:
        raw[rng.random(raw.size) < 0.3] = r.choice([0, 255, 0x7C, 0x80, 1])
    if name == "MXFP4":  # the scale 255 is NaN here, and 2^127 in gguf
        raw[::17] = np.minimum(raw[::17], 254)
    raw.tofile(os.path.join(d, "from"))
    with np.errstate(all="ignore"):
        want = (
            quants.dequantize(raw.reshape(1, -1), t).reshape(-1)
            if name not in ("F32", "F16")
            else raw.view(np.float32 if name == "F32" else np.float16).astype(np.float32)
        )
    got = reader.ask(
        "blocks", type=int(t), **{"from": os.path.join(d, "from")}, to=os.path.join(d, "to")
    )
    have = np.fromfile(os.path.join(d, "to"), np.float32)
    report.case(equal(want.astype(np.float32), have), f"--- {n} {name} {got}", want[:8], have[:8])


def shapes():
    h, f, v = 64, 96, 40
    out = {"model.embed_tokens.weight": (v, h), "lm_head.weight": (v, h), "model.norm.weight": (h,)}
    p = "model.layers.0."
    for k, s in {
        "self_attn.q_proj": (h, h),
        "self_attn.k_proj": (h // 2, h),
        "self_attn.v_proj": (h // 2, h),
        "self_attn.o_proj": (h, h),
        "mlp.gate_proj": (f, h),
        "mlp.up_proj": (f, h),
        "mlp.down_proj": (h, f),
    }.items():
        out[p + k + ".weight"] = s
    return {**out, p + "input_layernorm.weight": (h,), p + "post_attention_layernorm.weight": (h,)}


def folder(r, reader, report, d, n):
    import bitsandbytes.functional as F
    from bitsandbytes.backends.default.ops import _dequantize_4bit_compute as portable

    g = torch.Generator().manual_seed(r.randrange(2**31))
    nf4, want, files = r.random() < 0.5, {}, [{} for _ in range(r.choice([1, 1, 3]))]
    config = dict(CONFIG)
    dtype = r.choice([torch.float32, torch.bfloat16, torch.float16])
    block, double, storage = (
        r.choice([64, 64, 128, 256, 512, 1024]),
        r.random() < 0.5,
        r.choice([torch.uint8, torch.uint8, torch.bfloat16, torch.float32]),
    )
    if nf4:
        config["quantization_config"] = {
            "quant_method": "bitsandbytes",
            "load_in_4bit": True,
            "_load_in_4bit": True,
            "bnb_4bit_quant_type": "nf4",
            "bnb_4bit_use_double_quant": double,
            "bnb_4bit_quant_storage": str(storage).split(".")[1],
            "bnb_4bit_compute_dtype": "bfloat16",
        }
    for name, shape in shapes().items():
        w = (torch.randn(shape, generator=g) * r.choice([1, 1e-3, 30])).to(dtype)
        if r.random() < 0.1:
            w.view(-1)[:7] = 0
        to = r.choice(files)
        if nf4 and name.split(".")[-2].endswith("_proj"):
            q, state = F.quantize_4bit(
                w,
                blocksize=block,
                quant_type="nf4",
                compress_statistics=double,
                quant_storage=storage,
            )
            to[name] = q
            for k, v in state.as_dict(packed=True).items():
                to[f"{name}.{k}"] = v
            absmax = (
                F.dequantize_blockwise(state.absmax, state.state2) + state.offset
                if double
                else state.absmax
            )
            want[name] = portable(
                q.view(torch.uint8).reshape(-1), absmax, state.code, block, w.shape, torch.float32
            ).numpy()
        else:
            to[name] = (
                w
                if r.random() < 0.9
                else w.to(r.choice([torch.float32, torch.bfloat16, torch.float64]))
            )
            want[name] = to[name].float().numpy()
    for f in os.listdir(d):
        os.remove(os.path.join(d, f))
    files = [f for f in files if f]
    names = (
        ["model.safetensors"]
        if len(files) == 1
        else [f"model-{i + 1:05}-of-{len(files):05}.safetensors" for i in range(len(files))]
    )
    for f, to in zip(names, files):
        save_file(to, os.path.join(d, f), r.choice([None, {"format": "pt"}]))
    if len(files) > 1:
        index = {
            "metadata": r.choice([{}, {"total_size": 1}]),
            "weight_map": {k: f for f, to in zip(names, files) for k in to},
        }
        json.dump(index, open(os.path.join(d, "model.safetensors.index.json"), "w"))
    json.dump(config, open(os.path.join(d, "config.json"), "w"))
    got = reader.ask("model", path=d, to=os.path.join(d, "to"))
    note = f"--- {n} nf4 {nf4} {dtype} block {block} double {double} {storage} files {len(files)}"
    if not report.case("out" in got, note, got.get("error")):
        return
    have, at = np.fromfile(os.path.join(d, "to"), np.float32), 0
    report.case({k for k, _ in got["out"]} == set(want), note, "other tensors")
    for name, count in got["out"]:
        a, b = want[name].reshape(-1), have[at : at + count]
        at += count
        report.case(equal(a, b), note, name, a[:6], b[:6], int((a != b).sum()))


def main():
    seed, cases = int((sys.argv[1:] + ["1"])[0]), int((sys.argv[2:] + ["600"])[0])
    reader, report = Reader(), Report()
    with tempfile.TemporaryDirectory() as d:
        for n in range(cases):
            r = random.Random(f"{seed} {n}")
            (folder if n % 3 == 0 else blocks)(r, reader, report, d, f"{seed} {n}")
    report.end()


main()
