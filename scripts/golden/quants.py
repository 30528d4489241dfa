#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""quants.py - golden file of the block formats that src/file/ggml_quants.c writes.

tests/golden/file/quants.safetensors:
  source            F32 [rows, 256]   numbers as weights have them, with outliers, zeros, one sign
  <type>.packed     U8 [rows, bytes]  what gguf.quantize makes of it: q4_0, q4_1, q5_0, q5_1, q8_0
  <type>.packed     U8 [rows, bytes]  what llama.cpp's ggml_quantize_chunk makes of it: q4_k, q5_k,
                                      q6_k; there only the errors are compared

Needs: pip install numpy safetensors gguf xllamacpp. llama.cpp is called through the library in the
xllamacpp wheel. With a GGUF file as argument: its tokens after --prompt, greedy, from llama.cpp:
  quants.py --run FILE.gguf --prompt TEXT [--n 32] [--lora FILE.gguf]"""
import argparse
import ctypes
import glob
import importlib.metadata
import os
import sys

import numpy as np

HERE = os.path.dirname(os.path.abspath(__file__))
OUT = os.path.join(HERE, "..", "..", "tests", "golden", "file")


def library():
    import importlib.util

    folder = os.path.dirname(importlib.util.find_spec("xllamacpp").origin)
    return ctypes.CDLL(glob.glob(os.path.join(folder, "xllamacpp*.so"))[0])


def source():
    rng = np.random.default_rng(11)
    x = rng.normal(size=(12, 256)).astype(np.float32) * np.float32(0.03)
    x[1, ::37] *= 12  # outliers
    x[2] = 0
    x[3, :128] = 0
    x[4] = np.abs(x[4])
    x[5] = -np.abs(x[5])
    x[6] = np.float32(0.25)
    x[7] += np.float32(0.1)
    x[8] *= np.linspace(1e-4, 10, 256, dtype=np.float32)
    x[9] = np.round(x[9] * 100) / 8  # many equal numbers, halves between levels
    return x


def golden():
    import gguf
    from safetensors.numpy import save_file

    T = gguf.GGMLQuantizationType
    x = source()
    out = {"source": x}
    for t in (T.Q4_0, T.Q4_1, T.Q5_0, T.Q5_1, T.Q8_0):
        out[f"{t.name.lower()}.packed"] = gguf.quantize(x, t)
    lib = library()
    lib.ggml_quantize_chunk.restype = ctypes.c_size_t
    lib.ggml_quantize_chunk.argtypes = [ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p]
    lib.ggml_quantize_chunk.argtypes += [ctypes.c_int64] * 3 + [ctypes.c_void_p]
    for t in (T.Q4_K, T.Q5_K, T.Q6_K):
        packed = np.zeros((x.shape[0], gguf.GGML_QUANT_SIZES[t][1]), np.uint8)
        n = lib.ggml_quantize_chunk(
            t.value, x.ctypes.data, packed.ctypes.data, 0, x.shape[0], x.shape[1], None
        )
        assert n == packed.size, (t, n)
        out[f"{t.name.lower()}.packed"] = packed
    save_file(out, os.path.join(OUT, "quants.safetensors"))
    names = ("numpy", "safetensors", "gguf", "xllamacpp")
    with open(os.path.join(OUT, "quants-versions.txt"), "w", encoding="utf-8") as f:
        f.write("made by scripts/golden/quants.py with\n")
        f.writelines(f"{n} {importlib.metadata.version(n)}\n" for n in names)


def run(args):
    import xllamacpp as x

    p = x.CommonParams()
    p.model.path = args.run
    p.n_ctx = 512
    p.n_predict = args.n
    p.cpuparams.n_threads = 2
    p.sampling.temp = 0
    if args.lora:
        lora = x.CommonAdapterLoraInfo()
        lora.path = args.lora
        lora.scale = 1.0
        p.lora_adapters = [lora]
    server = x.Server(p)
    answer = server.handle_completions(
        dict(prompt=args.prompt, n_predict=args.n, temperature=0, top_k=1, cache_prompt=False)
    )
    print(answer["choices"][0]["text"])


if __name__ == "__main__":
    a = argparse.ArgumentParser()
    a.add_argument("--run")
    a.add_argument("--lora")
    a.add_argument("--prompt", default="The capital of France is")
    a.add_argument("--n", type=int, default=32)
    a = a.parse_args()
    sys.exit(run(a) if a.run else golden())
