#!/usr/bin/env python3
"""file.py - golden files of src/file: blocks of every ggml type that is read, and a file as the reference writes it.

Writes tests/golden/file/. Run it with a Python that has gguf, numpy and safetensors; the tests themselves need no Python.

  blocks.safetensors     <type>.packed U8 [blocks, bytes], random; <type>.f32 [blocks, numbers]: what gguf.dequantize makes of it
                         q8_0.source F32 [rows, 64], q8_0.quantized U8: what gguf.quantize makes of it
  reference.safetensors  tensors of every dtype in the order and spelling of safetensors.numpy.save_file"""
import os
import sys
from importlib.metadata import version

import gguf
import numpy as np
from gguf import GGMLQuantizationType as T
from safetensors.numpy import save_file

OUT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "tests", "golden", "file")
# Type, and where in a block its float16 scales stand.
TYPES = [(T.F16, [0]), (T.BF16, []), (T.Q4_0, [0]), (T.Q4_1, [0, 2]), (T.Q5_0, [0]), (T.Q5_1, [0, 2]), (T.Q8_0, [0]), (T.Q4_K, [0, 2]),
         (T.Q5_K, [0, 2]), (T.Q6_K, [208])]
BLOCKS = 9


def blocks(rng):
    out = {}
    for t, scales in TYPES:
        numbers, size = gguf.GGML_QUANT_SIZES[t]
        if numbers == 1:
            raw = np.arange(0, 65536, 37, dtype=np.uint16)  # every 37th bit pattern, infinities and NaN among them
            packed = raw.view(np.uint8).reshape(-1, 2)
        else:
            packed = rng.integers(0, 256, (BLOCKS, size), dtype=np.uint8)
            for at in scales:  # finite, of both signs, one zero, one subnormal
                s = rng.normal(0, 1, BLOCKS).astype(np.float16)
                s[0], s[1] = 0, np.float16(3e-7)
                packed[:, at:at + 2] = s.view(np.uint8).reshape(-1, 2)
        out[f"{t.name.lower()}.packed"] = packed
        out[f"{t.name.lower()}.f32"] = np.ascontiguousarray(gguf.dequantize(packed.reshape(-1) if numbers == 1 else packed, t)).astype(np.float32)
    x = rng.normal(0, 1, (12, 64)).astype(np.float32)
    x[0] = 0
    x[1] *= 1e-6
    x[2] *= 3e5
    x[3, :32] = np.arange(32, dtype=np.float32) - 15.5  # halves: rounding away from zero decides
    x[3, 0] = 127
    x[4, 32:] = -1
    x[5] = 1e-30
    out["q8_0.source"] = x
    out["q8_0.quantized"] = gguf.quantize(x, T.Q8_0)
    return out


def reference(rng):
    return {
        "b.u8": np.arange(7, dtype=np.uint8), "a.i8": np.arange(-3, 2, dtype=np.int8), "z.f16": rng.normal(0, 1, (3, 5)).astype(np.float16),
        "m.i32": np.arange(6, dtype=np.int32).reshape(2, 3), "k.f32": rng.normal(0, 1, (2, 1, 3)).astype(np.float32),
        "c.f64": np.array(0.1), "x.i64": np.array([1 << 40, -1]), "a.f32": np.zeros((0, 4), np.float32),
        "quote\"\\ \u00e9": np.ones(1, np.float32),
    }


def main():
    os.makedirs(OUT, exist_ok=True)
    rng = np.random.default_rng(11)
    save_file(blocks(rng), os.path.join(OUT, "blocks.safetensors"))
    save_file(reference(rng), os.path.join(OUT, "reference.safetensors"), metadata={"format": "pt"})
    with open(os.path.join(OUT, "versions.txt"), "w", encoding="utf-8") as f:
        f.write("made by scripts/golden/file.py with\n")
        f.write("".join(f"{p} {version(p)}\n" for p in ("gguf", "numpy", "safetensors")) + f"python {sys.version.split()[0]}\n")


if __name__ == "__main__":
    main()
