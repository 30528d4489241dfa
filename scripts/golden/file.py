#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""file.py - golden files of src/file: blocks of every ggml type that is read, a file as the
reference writes it; seeds for its fuzz targets.

Writes tests/golden/file/ and tests/fuzz/seeds/{safetensors,gguf,model_folder}/. Run it with a
Python that has gguf, numpy and safetensors; the tests themselves need no Python.

  blocks.safetensors     <type>.packed U8 [blocks, bytes], random
                         <type>.f32 [blocks, numbers]: what gguf.dequantize makes of it
                         q8_0.source F32 [rows, 64]
                         q8_0.quantized U8: what gguf.quantize makes of it
  reference.safetensors  tensors of every dtype in the order and spelling of
                         safetensors.numpy.save_file
"""

import json
import os
import struct
import sys
from importlib.metadata import version

import gguf
import numpy as np
from gguf import GGMLQuantizationType as T
from safetensors.numpy import save, save_file

TESTS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "tests")
OUT = os.path.join(TESTS, "golden", "file")
# Type, and where in a block its float16 scales stand.
TYPES = [
    (T.F16, [0]),
    (T.BF16, []),
    (T.Q4_0, [0]),
    (T.Q4_1, [0, 2]),
    (T.Q5_0, [0]),
    (T.Q5_1, [0, 2]),
    (T.Q8_0, [0]),
    (T.Q4_K, [0, 2]),
    (T.Q5_K, [0, 2]),
    (T.Q6_K, [208]),
]
BLOCKS = 9


def blocks(rng):
    out = {}
    for t, scales in TYPES:
        numbers, size = gguf.GGML_QUANT_SIZES[t]
        if numbers == 1:
            raw = np.arange(
                0, 65536, 37, dtype=np.uint16
            )  # every 37th bit pattern, infinities and NaN among them
            packed = raw.view(np.uint8).reshape(-1, 2)
        else:
            packed = rng.integers(0, 256, (BLOCKS, size), dtype=np.uint8)
            for at in scales:  # finite, of both signs, one zero, one subnormal
                s = rng.normal(0, 1, BLOCKS).astype(np.float16)
                s[0], s[1] = 0, np.float16(3e-7)
                packed[:, at : at + 2] = s.view(np.uint8).reshape(-1, 2)
        out[f"{t.name.lower()}.packed"] = packed
        out[f"{t.name.lower()}.f32"] = np.ascontiguousarray(
            gguf.dequantize(packed.reshape(-1) if numbers == 1 else packed, t)
        ).astype(np.float32)
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
        "b.u8": np.arange(7, dtype=np.uint8),
        "a.i8": np.arange(-3, 2, dtype=np.int8),
        "z.f16": rng.normal(0, 1, (3, 5)).astype(np.float16),
        "m.i32": np.arange(6, dtype=np.int32).reshape(2, 3),
        "k.f32": rng.normal(0, 1, (2, 1, 3)).astype(np.float32),
        "c.f64": np.array(0.1),
        "x.i64": np.array([1 << 40, -1]),
        "a.f32": np.zeros((0, 4), np.float32),
        'quote"\\ \u00e9': np.ones(1, np.float32),
    }


# ---- seeds: small files that are right, for the fuzz targets to damage --------------------------


def seed(subject, name):
    folder = os.path.join(TESTS, "fuzz", "seeds", subject)
    os.makedirs(folder, exist_ok=True)
    return os.path.join(folder, name)


def write(path, data):
    with open(path, "wb") as f:
        f.write(data)


def gguf_seed(rng, path, arch, kind):
    g = gguf.GGUFWriter(path, arch)
    g.add_context_length(16)
    g.add_embedding_length(32)
    g.add_block_count(1)
    g.add_feed_forward_length(32)
    g.add_head_count(4)
    g.add_head_count_kv(2)
    g.add_layer_norm_rms_eps(1e-5)
    g.add_rope_freq_base(1e4)
    g.add_file_type(0)
    g.add_tokenizer_model("gpt2")
    g.add_tokenizer_pre("smollm")
    g.add_token_list(["a", "b", "ab", "<s>"])
    g.add_token_types([1, 1, 1, 3])
    g.add_token_merges(["a b"])
    g.add_bos_token_id(3)
    g.add_chat_template("x")
    g.add_array("x.f", [1.0, 2.0])
    g.add_bool("x.b", True)
    g.add_uint64("x.u", 7)
    shapes = {
        "token_embd": (4, 32),
        "output_norm": (32,),
        "rope_freqs": (4,),
        "blk.0.attn_q": (32, 32),
        "blk.0.attn_k": (16, 32),
        "blk.0.attn_v": (16, 32),
        "blk.0.attn_output": (32, 32),
        "blk.0.ffn_down": (32, 32),
        "blk.0.attn_norm": (32,),
    }
    for name, shape in shapes.items():
        x = rng.normal(0, 1, shape).astype(np.float32)
        if name == "rope_freqs":
            x = abs(x) + 1
        if len(shape) > 1:
            g.add_tensor(name + ".weight", gguf.quantize(x, kind), raw_dtype=kind)
        else:
            g.add_tensor(name + ".weight", x)
    g.write_header_to_file()
    g.write_kv_data_to_file()
    g.write_tensors_to_file()
    g.close()


def linear_seed(path):
    """A layer of linear attention with two value heads for a key head, and one of attention."""
    rng = np.random.default_rng(5)
    g = gguf.GGUFWriter(path, "qwen35")
    g.add_context_length(16)
    g.add_embedding_length(16)
    g.add_block_count(3)
    g.add_feed_forward_length(16)
    g.add_head_count(2)
    g.add_head_count_kv(1)
    g.add_key_length(8)
    g.add_value_length(8)
    g.add_rope_dimension_count(4)
    g.add_rope_dimension_sections([1, 1, 0, 0])
    g.add_layer_norm_rms_eps(1e-6)
    g.add_ssm_conv_kernel(2)
    g.add_ssm_state_size(4)
    g.add_ssm_group_count(1)
    g.add_ssm_time_step_rank(2)
    g.add_ssm_inner_size(8)
    g.add_full_attention_interval(2)
    g.add_nextn_predict_layers(1)
    for name, shape in {
        "token_embd.weight": (4, 16),
        "output_norm.weight": (16,),
        "blk.0.attn_norm.weight": (16,),
        "blk.0.attn_qkv.weight": (16, 16),
        "blk.0.attn_gate.weight": (8, 16),
        "blk.0.ssm_alpha.weight": (2, 16),
        "blk.0.ssm_beta.weight": (2, 16),
        "blk.0.ssm_conv1d.weight": (16, 2),
        "blk.0.ssm_a": (2,),
        "blk.0.ssm_dt.bias": (2,),
        "blk.0.ssm_norm.weight": (4,),
        "blk.0.ssm_out.weight": (16, 8),
        "blk.1.attn_q.weight": (32, 16),
        "blk.2.nextn.enorm.weight": (16,),
    }.items():
        g.add_tensor(name, -abs(rng.normal(0, 1, shape)).astype(np.float32))
    g.write_header_to_file()
    g.write_kv_data_to_file()
    g.write_tensors_to_file()
    g.close()


CONFIG = dict(
    model_type="llama",
    hidden_size=16,
    intermediate_size=16,
    num_hidden_layers=1,
    num_attention_heads=2,
    num_key_value_heads=1,
    max_position_embeddings=8,
    vocab_size=6,
    rope_theta=1e4,
    rms_norm_eps=1e-5,
    tie_word_embeddings=True,
    rope_scaling=dict(
        rope_type="llama3",
        factor=8.0,
        low_freq_factor=1.0,
        high_freq_factor=4.0,
        original_max_position_embeddings=32,
    ),
)
TOKENIZER = dict(
    added_tokens=[dict(id=0, content="<s>", special=True)],
    pre_tokenizer=dict(
        type="Sequence",
        pretokenizers=[
            dict(type="Digits", individual_digits=True),
            dict(type="ByteLevel", add_prefix_space=False, use_regex=True),
        ],
    ),
    post_processor=dict(
        type="TemplateProcessing",
        single=[dict(SpecialToken=dict(id="<s>")), dict(Sequence=dict(id="A"))],
    ),
    model=dict(
        type="BPE", byte_fallback=False, vocab=dict(a=1, b=2, ab=3), merges=["a b", ["a", "b"]]
    ),
)


def folder_seed(name, choice, config, beside, tensors):
    """The parts of one input as tests/fuzz/fuzz_model_folder.c takes it apart."""
    a, b = json.dumps(config).encode(), json.dumps(beside).encode() if beside else b""
    write(
        seed("model_folder", name),
        bytes([choice])
        + struct.pack("<H", len(a))
        + a
        + struct.pack("<H", len(b))
        + b
        + save(tensors),
    )


def folder_seeds(rng):
    f = lambda *shape: rng.normal(0, 1, shape).astype(np.float32)
    k = "model.layers.0.self_attn.k_proj.weight"
    plain = {
        "model.embed_tokens.weight": f(6, 16),
        "model.norm.weight": f(16),
        k: f(8, 16),
        "model.layers.0.self_attn.q_proj.weight": f(16, 16).astype(np.float16),
    }
    folder_seed("single", 0, CONFIG, {"chat_template": "x", "bos_token": "<s>"}, plain)
    folder_seed(
        "sharded",
        2,
        dict(CONFIG, rope_parameters=dict(rope_type="linear", factor=2.0, rope_theta=1e5)),
        {"weight_map": {name: "x.safetensors" for name in plain}},
        plain,
    )
    folder_seed("bytebpe", 4, CONFIG, TOKENIZER, plain)
    spm = dict(
        TOKENIZER,
        normalizer=dict(type="Prepend", prepend="_"),
        model=dict(
            TOKENIZER["model"],
            byte_fallback=True,
            unk_token="a",
            vocab={"a": 1, "b": 2, "ab": 3, "<0x0A>": 4},
        ),
    )
    folder_seed("spm", 4, CONFIG, spm, plain)
    for nested in (False, True):
        state = dict(quant_type="nf4", blocksize=64, dtype="bfloat16", shape=[8, 16])
        parts = {
            k: rng.integers(0, 256, (64, 1), dtype=np.uint8),
            k + ".absmax": f(2),
            k + ".quant_map": f(16),
        }
        if nested:
            state.update(nested_blocksize=256, nested_dtype="float32", nested_offset=0.1)
            parts.update(
                {
                    k + ".absmax": np.array([7, 200], np.uint8),
                    k + ".nested_absmax": f(1),
                    k + ".nested_quant_map": f(256),
                }
            )
        parts[k + ".quant_state.bitsandbytes__nf4"] = np.frombuffer(
            json.dumps(state).encode(), np.uint8
        )
        folder_seed(
            "nf4_dq" if nested else "nf4",
            0,
            dict(CONFIG, quantization_config=dict(quant_method="bitsandbytes", load_in_4bit=True)),
            None,
            {**plain, **parts},
        )
    module = "base_model.model.model.layers.0.self_attn.q_proj.lora_"
    folder_seed(
        "adapter",
        1,
        dict(
            peft_type="LORA",
            r=2,
            lora_alpha=4,
            lora_dropout=0.1,
            target_modules=["q_proj"],
            bias="none",
            use_rslora=True,
            rank_pattern={},
        ),
        None,
        {module + "A.weight": f(2, 16), module + "B.weight": f(16, 2)},
    )


def seeds(rng):
    small = {
        "b": np.arange(3, dtype=np.uint8),
        "a": np.ones((2, 2), np.float32),
        "s": np.array(1.0),
    }
    write(seed("safetensors", "small"), save(small, {"format": "pt", "k": "v"}))
    write(seed("safetensors", "reference"), save(reference(rng), {"format": "pt"}))
    for name, arch, kind in (
        ("llama_q4_1", "llama", T.Q4_1),
        ("qwen2_q8_0", "qwen2", T.Q8_0),
        ("llama_f16", "llama", T.F16),
    ):
        gguf_seed(rng, seed("gguf", name), arch, kind)
    linear_seed(seed("gguf", "qwen35"))
    folder_seeds(rng)


def main():
    os.makedirs(OUT, exist_ok=True)
    rng = np.random.default_rng(11)
    save_file(blocks(rng), os.path.join(OUT, "blocks.safetensors"))
    save_file(reference(rng), os.path.join(OUT, "reference.safetensors"), metadata={"format": "pt"})
    for name in ("blocks", "reference"):
        os.chmod(os.path.join(OUT, name + ".safetensors"), 0o644)
    seeds(np.random.default_rng(12))
    with open(os.path.join(OUT, "versions.txt"), "w", encoding="utf-8") as f:
        f.write("made by scripts/golden/file.py with\n")
        f.write(
            "".join(f"{p} {version(p)}\n" for p in ("gguf", "numpy", "safetensors"))
            + f"python {sys.version.split()[0]}\n"
        )


if __name__ == "__main__":
    main()
