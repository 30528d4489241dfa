#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""nf4.py - weights quantised to 4 bits by bitsandbytes on the CPU. Writes
tests/golden/nf4/nf4.safetensors.

Each case is one weight, named <case>; block 64, second level 256. Tensors:
  <case>.weight (out, in) F32          what was quantised
  <case>.packed U8                     high nibble first
  <case>.absmax F32                    per block
  <case>.f32 F32, <case>.bf16 BF16     dequantised from the above
  <case>.dq.absmax U8, .dq.nested_absmax F32, .dq.offset F32
                                       the same weight with double quantisation (packed is the same)
  <case>.dq.scale F32                  the absmax that these give back
  <case>.dq.f32, <case>.dq.bf16        dequantised from these
`code` is the NF4 table, `nested_quant_map` the 256 values of the second level.

Dequantised by the portable code of bitsandbytes (backends/default/ops.py): its AVX-512 kernel
(0.50.2) restarts the blocks at each row, which is wrong when rows are not a multiple of 64 long.
Where they are, both are checked to agree."""

import os
import sys
from importlib.metadata import version

os.environ["TORCHDYNAMO_DISABLE"] = "1"

import torch
import bitsandbytes.functional as F
from bitsandbytes.backends.default.ops import _dequantize_4bit_compute as portable
from safetensors.torch import save_file

OUT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "tests", "golden", "nf4")


def dequantize(packed, state, shape, dtype):
    absmax = (
        F.dequantize_blockwise(state.absmax, state.state2) + state.offset
        if state.nested
        else state.absmax
    )
    out = portable(
        packed.reshape(-1), absmax, F.get_4bit_type("nf4", device="cpu"), 64, shape, dtype
    )
    if shape[1] % 64 == 0:
        state.dtype = dtype
        assert torch.equal(out, F.dequantize_4bit(packed, state))
    return out


def cases():
    g = torch.Generator().manual_seed(5)
    rand = lambda *shape: torch.randn(shape, generator=g)
    yield "one", torch.tensor([[0.37]])
    yield "negative-one", torch.tensor([[-2.5]])
    yield "row", 0.02 * rand(1, 64)
    yield "odd", rand(7, 13)  # 91 elements: a short last block, an odd count
    yield "crossing", 0.05 * rand(11, 48)  # blocks cross rows
    yield "prime", rand(17, 67)
    yield "whole", 0.02 * rand(24, 128)
    yield "many", 0.02 * rand(131, 127)  # 260 blocks: the second level has a short last block
    z = rand(4, 64)
    z[1] = 0
    z[3, 5:] = 0
    yield "zeros", z
    yield "all-zero", torch.zeros(3, 64)
    x = rand(8, 64)
    x[0] *= 1e30
    x[1] *= 1e-30
    x[2] *= 1e-37
    x[3, 7] = 3e38
    x[4] = 1.0
    x[5] = -1.0
    x[6, ::2] = -0.0
    yield "extreme", x
    # Every value where two codes meet, one float above and below: rounding decides alone.
    code = F.get_4bit_type("nf4", device="cpu")
    mid = (code[1:] + code[:-1]) / 2
    t = torch.cat(
        [
            mid,
            torch.nextafter(mid, torch.tensor(2.0)),
            torch.nextafter(mid, torch.tensor(-2.0)),
            code[:15],
            code[15:],
            torch.tensor([0.0, 1.0, -1.0]),
        ]
    )
    yield "ties", t.reshape(1, -1)
    yield "bf16", rand(9, 71).to(torch.bfloat16).float()


def main():
    os.makedirs(OUT, exist_ok=True)
    out = {"code": F.get_4bit_type("nf4", device="cpu").float()}
    for name, w in cases():
        q, s = F.quantize_4bit(w, blocksize=64, quant_type="nf4", compress_statistics=False)
        q2, d = F.quantize_4bit(w, blocksize=64, quant_type="nf4", compress_statistics=True)
        assert torch.equal(q, q2) and s.blocksize == 64 and d.state2.blocksize == 256
        out.update(
            {
                f"{name}.weight": w,
                f"{name}.packed": q.reshape(-1),
                f"{name}.absmax": s.absmax,
                f"{name}.dq.absmax": d.absmax,
                f"{name}.dq.nested_absmax": d.state2.absmax,
                f"{name}.dq.offset": d.offset.reshape(1),
                f"{name}.dq.scale": F.dequantize_blockwise(d.absmax, d.state2) + d.offset,
            }
        )
        out.setdefault("nested_quant_map", d.state2.code.float())
        assert torch.equal(out["nested_quant_map"], d.state2.code.float())
        for label, state in (("", s), ("dq.", d)):
            out[f"{name}.{label}f32"] = dequantize(q, state, w.shape, torch.float32)
            if w.numel() <= 8192:  # the same again would only make the file large
                out[f"{name}.{label}bf16"] = dequantize(q, state, w.shape, torch.bfloat16)
    save_file({k: v.contiguous() for k, v in out.items()}, os.path.join(OUT, "nf4.safetensors"))
    with open(os.path.join(OUT, "versions.txt"), "w", encoding="utf-8") as f:
        f.write("made by scripts/golden/nf4.py with\n")
        f.write(
            "".join(f"{p} {version(p)}\n" for p in ("torch", "bitsandbytes", "safetensors"))
            + f"python {sys.version.split()[0]}\n"
        )


if __name__ == "__main__":
    main()
