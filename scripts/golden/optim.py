#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""optim.py - golden file of the optimizers, and the tables of 8-bit codes.

tests/golden/optim/NAME.safetensors: four parameters after STEPS steps, as `PARAM.value`, and what
the optimizer keeps of them, as `PARAM.STATE`. Values and gradients are made by draw(), which
tests/test_golden_optim.c has too. References: torch.optim.AdamW, SGD and Muon (in float32 instead
of bfloat16), transformers' Adafactor, bitsandbytes' Lion and AdamW8bit, the latter with its own
code but for the search of the nearest code: on a CPU it replaces the smallest value of the map by
-1 and searches roughly, on a card it takes the nearest one.

src/dev/kernel/dynamic8.k: bitsandbytes' dynamic map, with and without sign.

Needs: pip install torch transformers bitsandbytes safetensors numpy"""
import inspect
import os

import numpy as np
import torch
from bitsandbytes.functional import create_dynamic_map
from safetensors.torch import save_file

HERE = os.path.dirname(os.path.abspath(__file__))
TOP = os.path.join(HERE, "..", "..")
OUT = os.path.join(TOP, "tests", "golden", "optim")
STEPS, LR, DECAY, SCALE = 5, 0.01, 0.1, 0.5
PARAMS = {
    "model.layers.0.mlp.up_proj.weight": (72, 60),
    "model.layers.0.mlp.down_proj.weight": (40, 104),
    "model.layers.0.input_layernorm.weight": (50,),
    "model.embed_tokens.weight": (70, 16),
}


def draw(n, salt):
    """Numbers in [-1, 1), every fifth a sixteenth of that."""
    x = (np.arange(n, dtype=np.uint64) * 2654435761 + salt * 805459861) & 0xFFFFFFFF
    x ^= x >> np.uint64(15)
    x = (x * 2246822519) & 0xFFFFFFFF
    x ^= x >> np.uint64(13)
    v = (x.astype(np.float64) / 2147483648.0 - 1).astype(np.float32)
    v[::5] *= np.float32(0.0625)
    return v


def start():
    p = {}
    for k, (name, shape) in enumerate(PARAMS.items()):
        v = torch.from_numpy(draw(int(np.prod(shape)), 1000 + k).reshape(shape))
        p[name] = torch.nn.Parameter(v.clone())
    return p


def gradient(k, step, shape):
    return torch.from_numpy(draw(int(np.prod(shape)), 100 * step + k).reshape(shape)) * SCALE


def groups(p):
    return [
        dict(params=[v for v in p.values() if v.ndim == 2], weight_decay=DECAY),
        dict(params=[v for v in p.values() if v.ndim != 2], weight_decay=0.0),
    ]


def run(optimizers, p):
    for step in range(1, STEPS + 1):
        for k, (name, v) in enumerate(p.items()):
            v.grad = gradient(k, step, v.shape)
        for o in optimizers:
            o.step()


def keep(name, p, states):
    out = {}
    for k, v in p.items():
        out[k + ".value"] = v.detach().contiguous()
        for s, t in states(v).items():
            out[f"{k}.{s}"] = t.detach().contiguous()
    save_file(out, os.path.join(OUT, name + ".safetensors"))
    print(name, len(out), "tensors")


def of_torch(name, make, states):
    p = start()
    o = make(p)
    run([o], p)
    keep(name, p, lambda v: {s: o.state[v][s] for s in states if s in o.state[v]})


def muon():
    p = start()
    inner = [v for k, v in p.items() if v.ndim == 2 and "embed" not in k]
    rest = {k: v for k, v in p.items() if v.ndim != 2 or "embed" in k}
    from torch.optim import _muon

    text = inspect.getsource(_muon._zeropower_via_newtonschulz)
    exec(text.replace("torch.bfloat16", "torch.float32"), _muon.__dict__)
    m = torch.optim.Muon(
        inner, lr=LR, weight_decay=DECAY, momentum=0.95, adjust_lr_fn="match_rms_adamw"
    )
    a = torch.optim.AdamW(groups(rest), lr=LR)
    run([m, a], p)
    names = ("momentum_buffer", "exp_avg", "exp_avg_sq")
    keep(
        "muon",
        p,
        lambda v: {
            s: o.state[v][s] for o in (m, a) if v in o.state for s in names if s in o.state[v]
        },
    )


def lion():
    import bitsandbytes

    p = start()
    o = bitsandbytes.optim.Lion(groups(p), lr=LR, betas=(0.9, 0.99), optim_bits=32)
    run([o], p)
    keep("lion", p, lambda v: {"exp_avg": o.state[v]["state1"]})


def eight():
    """As bitsandbytes does it: parameters below 4,096 elements keep float32 moments."""
    import bitsandbytes
    from bitsandbytes.backends.cpu import ops

    def nearest(x, table, tops, out, size):
        flat = torch.nn.functional.pad(x.flatten(), (0, -x.numel() % size)).reshape(-1, size)
        top = flat.abs().max(1).values
        tops.copy_(top)
        borders = (table[1:] + table[:-1]) * 0.5
        found = torch.searchsorted(borders, (flat / top[:, None]).contiguous())
        out.copy_(found.flatten()[: x.numel()].reshape(x.shape).to(torch.uint8))

    ops._quant_blockwise_fp32_direct = nearest
    p = start()
    o = bitsandbytes.optim.AdamW8bit(groups(p), lr=LR)
    run([o], p)
    names = {
        "state1": "exp_avg",
        "state2": "exp_avg_sq",
        "absmax1": "exp_avg_absmax",
        "absmax2": "exp_avg_sq_absmax",
    }
    keep(
        "adamw_8bit",
        p,
        lambda v: {names[k]: t for k, t in o.state[v].items() if k in names},
    )


def table_text(name, t):
    lines, line = [f"TABLE f32 {name}[256] = {{"], "\t"
    for x in t.tolist():
        word = f"{np.float32(x):.9g}"
        word += ("" if "." in word or "e" in word else ".0") + "f,"
        if len(line) + len(word) > 92:
            lines.append(line.rstrip())
            line = "\t"
        line += word + " "
    lines.append(line.rstrip())
    lines.append("};")
    return "\n".join(lines) + "\n"


def main():
    torch.set_num_threads(1)
    os.makedirs(OUT, exist_ok=True)
    signed, unsigned = create_dynamic_map(True), create_dynamic_map(False)
    with open(os.path.join(TOP, "src/dev/kernel/dynamic8.k"), "w", encoding="utf-8") as f:
        f.write(
            "/* SPDX-License-Identifier: Apache-2.0 */\n"
            "/* dynamic8.k - values of the codes of 8-bit moments, rising: the dynamic map of "
            "bitsandbytes\n * (arXiv 2110.02861), with and without sign. Written by "
            "scripts/golden/optim.py. */\n"
        )
        f.write(table_text("dynamic8_signed", signed))
        f.write(table_text("dynamic8_unsigned", unsigned))
    of_torch(
        "adamw", lambda p: torch.optim.AdamW(groups(p), lr=LR), ("exp_avg", "exp_avg_sq")
    )
    of_torch(
        "sgd", lambda p: torch.optim.SGD(groups(p), lr=LR, momentum=0.9), ("momentum_buffer",)
    )

    def adafactor(p):
        from transformers.optimization import Adafactor

        return Adafactor(groups(p), lr=LR, scale_parameter=False, relative_step=False)

    of_torch("adafactor", adafactor, ("exp_avg_sq", "exp_avg_sq_row", "exp_avg_sq_col"))
    muon()
    lion()
    eight()
    import bitsandbytes
    import transformers

    with open(os.path.join(OUT, "versions-optim.txt"), "w", encoding="utf-8") as f:
        f.write("made by scripts/golden/optim.py with\n")
        for mod in (torch, transformers, bitsandbytes, np):
            f.write(f"{mod.__name__} {mod.__version__}\n")


main()
