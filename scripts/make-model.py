#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""make-model.py - writes a Hugging Face folder with random weights in the shape of a known model.
Needs nothing but Python.

    scripts/make-model.py --shape llama3-8b --out DIR [--dtype bf16] [--layers N] [--vocab N]
        [--shard-size 5000] [--seed 1]

For measuring speed and memory, and for tests of loading: config.json, generation_config.json,
safetensors (sharded as on the hub) and a byte-level tokenizer of 256 bytes and the special tokens.
Weights are normal with deviation 0.02, norms are 1. They are cut at random places from one block of
a MiB, so that writing 16 GB takes as long as the disk does and next to no memory. Of mixtures the
matrices are written in 4 bits: those of gpt-oss as its files have them (MXFP4, experts only), those
of Qwen3-MoE as bitsandbytes does (NF4, doubly quantised)."""

import argparse
import json
import os
import random
import struct
import sys

LLAMA3_PATTERN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|"
    r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
LLAMA3_SPECIAL = [
    "<|begin_of_text|>",
    "<|end_of_text|>",
    "<|start_header_id|>",
    "<|end_header_id|>",
    "<|eot_id|>",
]
CHATML_SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
LLAMA3_TEMPLATE = (
    "{{- bos_token }}{%- for message in messages %}{{- '<|start_header_id|>' + message['role'] +"
    " '<|end_header_id|>\n\n' + message['content'] | trim + '<|eot_id|>' }}{%- endfor %}{%- if"
    " add_generation_prompt %}{{- '<|start_header_id|>assistant<|end_header_id|>\n\n' }}{%-"
    " endif %}"
)
CHATML_TEMPLATE = (
    "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\n' + message['content'] +"
    " '<|im_end|>' + '\n'}}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n'"
    " }}{% endif %}"
)


def llama(
    vocab, hidden, inter, layers, heads, kv, tied, theta, positions, scaling=None, special="llama3"
):
    return dict(
        special=special,
        config=dict(
            architectures=["LlamaForCausalLM"],
            model_type="llama",
            attention_bias=False,
            attention_dropout=0.0,
            hidden_act="silu",
            hidden_size=hidden,
            initializer_range=0.02,
            intermediate_size=inter,
            max_position_embeddings=positions,
            mlp_bias=False,
            num_attention_heads=heads,
            num_hidden_layers=layers,
            num_key_value_heads=kv,
            head_dim=hidden // heads,
            pretraining_tp=1,
            rms_norm_eps=1e-5,
            rope_scaling=scaling,
            rope_theta=theta,
            tie_word_embeddings=tied,
            use_cache=True,
            vocab_size=vocab,
        ),
    )


def qwen3_moe(vocab, hidden, inter, layers, heads, kv, experts, top):
    config = llama(vocab, hidden, 3 * hidden, layers, heads, kv, False, 1e6, 40960)["config"]
    del config["mlp_bias"], config["pretraining_tp"]
    config.update(
        architectures=["Qwen3MoeForCausalLM"],
        model_type="qwen3_moe",
        head_dim=128 if hidden >= 1024 else hidden // heads,
        rms_norm_eps=1e-6,
        moe_intermediate_size=inter,
        num_experts=experts,
        num_experts_per_tok=top,
        norm_topk_prob=True,
        decoder_sparse_step=1,
        mlp_only_layers=[],
        router_aux_loss_coef=0.001,
        output_router_logits=False,
        quantization_config=dict(
            quant_method="bitsandbytes",
            load_in_4bit=True,
            load_in_8bit=False,
            bnb_4bit_quant_type="nf4",
            bnb_4bit_use_double_quant=True,
            bnb_4bit_compute_dtype="bfloat16",
            bnb_4bit_quant_storage="uint8",
        ),
    )
    return dict(special="chatml", config=config)


def gpt_oss(vocab, hidden, inter, layers, heads, kv, experts, top):
    config = llama(vocab, hidden, inter, layers, heads, kv, False, 150000.0, 131072)["config"]
    del config["mlp_bias"], config["pretraining_tp"]
    config.update(
        architectures=["GptOssForCausalLM"],
        model_type="gpt_oss",
        attention_bias=True,
        head_dim=64 if hidden >= 1024 else hidden // heads,
        num_local_experts=experts,
        num_experts_per_tok=top,
        experts_per_token=top,
        initial_context_length=4096,
        router_aux_loss_coef=0.9,
        output_router_logits=False,
        swiglu_limit=7.0,
        sliding_window=128,
        layer_types=[("sliding", "full")[i % 2] + "_attention" for i in range(layers)],
        rope_scaling=dict(
            rope_type="yarn",
            factor=32.0,
            beta_fast=32.0,
            beta_slow=1.0,
            truncate=False,
            original_max_position_embeddings=4096,
        ),
        quantization_config=dict(quant_method="mxfp4"),
    )
    return dict(special="chatml", config=config)


def rope3(factor):
    return dict(
        rope_type="llama3",
        factor=factor,
        low_freq_factor=1.0,
        high_freq_factor=4.0,
        original_max_position_embeddings=8192,
    )


SHAPES = {
    "llama3-8b": llama(128256, 4096, 14336, 32, 32, 8, False, 500000.0, 8192),
    "llama3.1-8b": llama(128256, 4096, 14336, 32, 32, 8, False, 500000.0, 131072, rope3(8.0)),
    "llama3.2-1b": llama(128256, 2048, 8192, 16, 32, 8, True, 500000.0, 131072, rope3(32.0)),
    "smollm2-135m": llama(49152, 576, 1536, 30, 9, 3, True, 100000.0, 8192, special="chatml"),
    "tiny": llama(320, 64, 160, 2, 4, 2, True, 10000.0, 512, special="chatml"),
    "small": llama(320, 192, 512, 4, 6, 2, True, 10000.0, 2048, special="chatml"),
    "qwen3-30b-a3b": qwen3_moe(151936, 2048, 768, 48, 32, 4, 128, 8),
    "qwen3-moe-small": qwen3_moe(320, 128, 64, 2, 4, 2, 8, 2),
    "gpt-oss-20b": gpt_oss(201088, 2880, 2880, 24, 64, 8, 32, 4),
    "gpt-oss-small": gpt_oss(320, 128, 64, 2, 4, 2, 8, 2),
}
DTYPES = {
    "bf16": ("BF16", 2, "bfloat16"),
    "f16": ("F16", 2, "float16"),
    "f32": ("F32", 4, "float32"),
}
BLOCK = 1 << 20


def nf4(name, rows, columns):
    """The tensors that bitsandbytes makes of a matrix."""
    blocks = rows * columns // 64
    state = dict(quant_type="nf4", blocksize=64, dtype="bfloat16", shape=[rows, columns])
    state.update(nested_blocksize=256, nested_dtype="float32", nested_offset=0.04)
    text = json.dumps(state).encode()
    codes = [-1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453]
    codes += [-0.28444138169288635, -0.18477343022823334, -0.09105003625154495, 0.0]
    codes += [0.07958029955625534, 0.16093020141124725, 0.24611230194568634, 0.33791524171829224]
    codes += [0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1.0]
    yield name, [rows * columns // 2, 1], "U8", "bytes"
    yield name + ".absmax", [blocks], "U8", "bytes"
    yield name + ".nested_absmax", [-(-blocks // 256)], "F32", struct.pack("<f", 0.005)
    yield name + ".nested_quant_map", [256], "F32", struct.pack("<256f", *dynamic_map())
    yield name + ".quant_map", [16], "F32", struct.pack("<16f", *codes)
    yield name + ".quant_state.bitsandbytes__nf4", [len(text)], "U8", text


def dynamic_map():
    """The 256 values of scales of scales (bitsandbytes, create_dynamic_map)."""
    out = [0.0, 1.0]
    for i in range(7):
        n = 2**i
        bounds = [0.1 + 0.9 * k / n for k in range(n + 1)]
        means = [(a + b) / 2 * 10.0 ** (i - 6) for a, b in zip(bounds, bounds[1:])]
        out += means + [-m for m in means]
    return sorted(out)


def mixture(c):
    """As tensors(); a third and fourth value: how a tensor is stored, and where its bytes come
    from."""
    h, hd, n = c["hidden_size"], c["head_dim"], c["num_hidden_layers"]
    q, kv = c["num_attention_heads"] * hd, c["num_key_value_heads"] * hd
    oss = c["model_type"] == "gpt_oss"
    f = c["intermediate_size"] if oss else c["moe_intermediate_size"]
    experts = c["num_local_experts"] if oss else c["num_experts"]
    plain = lambda name, shape: [(name, shape)]
    matrix = (lambda name, *s: plain(name, list(s))) if oss else nf4
    yield "model.embed_tokens.weight", [c["vocab_size"], h]
    for i in range(n):
        p = f"model.layers.{i}."
        yield p + "input_layernorm.weight", [h]
        yield p + "post_attention_layernorm.weight", [h]
        for name, rows, columns in (("q", q, h), ("k", kv, h), ("v", kv, h), ("o", h, q)):
            yield from matrix(f"{p}self_attn.{name}_proj.weight", rows, columns)
            if oss:
                yield f"{p}self_attn.{name}_proj.bias", [rows]
        if not oss:
            yield p + "self_attn.q_norm.weight", [hd]
            yield p + "self_attn.k_norm.weight", [hd]
            yield p + "mlp.gate.weight", [experts, h]
            for e in range(experts):
                at = f"{p}mlp.experts.{e}."
                yield from nf4(at + "gate_proj.weight", f, h)
                yield from nf4(at + "up_proj.weight", f, h)
                yield from nf4(at + "down_proj.weight", h, f)
            continue
        yield p + "self_attn.sinks", [c["num_attention_heads"]]
        yield p + "mlp.router.weight", [experts, h]
        yield p + "mlp.router.bias", [experts]
        for name, rows, columns in (("gate_up_proj", 2 * f, h), ("down_proj", h, f)):
            at = f"{p}mlp.experts.{name}_"
            yield at + "blocks", [experts, rows, columns // 32, 16], "U8", "bytes"
            yield at + "scales", [experts, rows, columns // 32], "U8", bytes([120])
            yield at + "bias", [experts, rows]
    yield "model.norm.weight", [h]
    yield "lm_head.weight", [c["vocab_size"], h]


def tensors(c):
    """(name, shape) of every tensor in the order of the hub's files."""
    if "num_experts_per_tok" in c:
        yield from mixture(c)
        return
    h, f, hd = c["hidden_size"], c["intermediate_size"], c["head_dim"]
    q, kv = c["num_attention_heads"] * hd, c["num_key_value_heads"] * hd
    yield "model.embed_tokens.weight", [c["vocab_size"], h]
    for i in range(c["num_hidden_layers"]):
        p = f"model.layers.{i}."
        yield p + "input_layernorm.weight", [h]
        yield p + "mlp.down_proj.weight", [h, f]
        yield p + "mlp.gate_proj.weight", [f, h]
        yield p + "mlp.up_proj.weight", [f, h]
        yield p + "post_attention_layernorm.weight", [h]
        yield p + "self_attn.k_proj.weight", [kv, h]
        yield p + "self_attn.o_proj.weight", [h, q]
        yield p + "self_attn.q_proj.weight", [q, h]
        yield p + "self_attn.v_proj.weight", [kv, h]
    yield "model.norm.weight", [h]
    if not c["tie_word_embeddings"]:
        yield "lm_head.weight", [c["vocab_size"], h]


def encode(values, dtype):
    if dtype == "f32":
        return struct.pack(f"<{len(values)}f", *values)
    if dtype == "f16":
        return struct.pack(f"<{len(values)}e", *values)
    raw = struct.unpack(f"<{len(values)}I", struct.pack(f"<{len(values)}f", *values))
    return struct.pack(f"<{len(values)}H", *((u + 0x7FFF + ((u >> 16) & 1)) >> 16 for u in raw))


class Weights:
    """An endless supply of random weights: pieces of one block, each from another place."""

    def __init__(self, dtype, seed):
        self.rng = random.Random(seed)
        self.size = DTYPES[dtype][1]
        self.block = memoryview(
            encode([self.rng.gauss(0.0, 0.02) for _ in range(BLOCK // self.size)], dtype)
        )
        self.one, self.zero = encode([1.0], dtype), encode([0.0], dtype)
        self.bytes = memoryview(self.rng.randbytes(BLOCK))

    def write(self, f, name, count, source=None):
        """source: bytes that are repeated, or "bytes": any."""
        if source is None and (name.endswith((".bias", "_bias", ".sinks"))):
            source = self.zero
        elif source is None and name.endswith("norm.weight"):
            source = self.one
        if isinstance(source, bytes):
            f.write(source * (count // len(source) if len(source) > 1 else count))
            return
        block, size = (self.bytes, 1) if source else (self.block, self.size)
        left = count
        while left:
            n = min(left, self.rng.randrange(BLOCK // 4, BLOCK // 2) // size * size)
            at = self.rng.randrange(0, (BLOCK - n) // size + 1) * size
            f.write(block[at : at + n])
            left -= n


def write_json(path, value):
    with open(path, "w", encoding="utf-8") as f:
        json.dump(value, f, indent=2, ensure_ascii=False)
        f.write("\n")


def write_weights(out, c, dtype, shard_bytes, seed):
    name_of, size, _ = DTYPES[dtype]
    shards, filled = [[]], 0
    for name, shape, *stored in tensors(c):
        n = {"U8": 1, "F32": 4}[stored[0]] if stored else size
        for d in shape:
            n *= d
        if shards[-1] and filled + n > shard_bytes:
            shards.append([])
            filled = 0
        shards[-1].append((name, shape, n, *stored))
        filled += n
    weights, index = Weights(dtype, seed), {}
    for i, shard in enumerate(shards):
        file = (
            "model.safetensors"
            if len(shards) == 1
            else f"model-{i + 1:05}-of-{len(shards):05}.safetensors"
        )
        header, at = {"__metadata__": {"format": "pt"}}, 0
        for name, shape, n, *stored in shard:
            kind = stored[0] if stored else name_of
            header[name] = {"dtype": kind, "shape": shape, "data_offsets": [at, at + n]}
            at += n
            index[name] = file
        text = json.dumps(header, separators=(",", ":")).encode()
        text += b" " * (-len(text) % 8)
        path = os.path.join(out, file)
        with open(path + ".tmp", "wb") as f:
            f.write(struct.pack("<Q", len(text)) + text)
            for name, _, n, *stored in shard:
                weights.write(f, name, n, *stored[1:])
        os.replace(path + ".tmp", path)
        print(f"{path}: {at / 1e6:.1f} MB")
    total = sum(t[2] for shard in shards for t in shard)
    if len(shards) > 1:
        write_json(
            os.path.join(out, "model.safetensors.index.json"),
            {"metadata": {"total_size": total}, "weight_map": index},
        )
    return total // size


def byte_alphabet():
    """The 256 characters byte-level BPE writes bytes as (GPT-2, encoder.py, bytes_to_unicode)."""
    keep = [*range(33, 127), *range(161, 173), *range(174, 256)]
    rest = [b for b in range(256) if b not in keep]
    char = {b: chr(b) for b in keep} | {b: chr(256 + i) for i, b in enumerate(rest)}
    return [char[b] for b in range(256)]


def write_tokenizer(out, kind):
    """Bytes are 0..255, special tokens follow. Returns the ids of beginning and end."""
    special = LLAMA3_SPECIAL if kind == "llama3" else CHATML_SPECIAL
    bos, eos = (
        ("<|begin_of_text|>", "<|eot_id|>") if kind == "llama3" else ("<|im_start|>", "<|im_end|>")
    )
    level = lambda use: {
        "type": "ByteLevel",
        "add_prefix_space": False,
        "trim_offsets": True,
        "use_regex": use,
    }
    ids = {s: 256 + i for i, s in enumerate(special)}
    if kind == "llama3":
        first, last = {
            "type": "Split",
            "pattern": {"Regex": LLAMA3_PATTERN},
            "behavior": "Isolated",
            "invert": False,
        }, level(False)
        post = {
            "type": "TemplateProcessing",
            "single": [
                {"SpecialToken": {"id": bos, "type_id": 0}},
                {"Sequence": {"id": "A", "type_id": 0}},
            ],
            "pair": [
                {"SpecialToken": {"id": bos, "type_id": 0}},
                {"Sequence": {"id": "A", "type_id": 0}},
                {"SpecialToken": {"id": bos, "type_id": 1}},
                {"Sequence": {"id": "B", "type_id": 1}},
            ],
            "special_tokens": {bos: {"id": bos, "ids": [ids[bos]], "tokens": [bos]}},
        }
    else:
        first, last, post = {"type": "Digits", "individual_digits": True}, level(True), None
    write_json(
        os.path.join(out, "tokenizer.json"),
        {
            "version": "1.0",
            "truncation": None,
            "padding": None,
            "added_tokens": [
                {
                    "id": i,
                    "content": s,
                    "single_word": False,
                    "lstrip": False,
                    "rstrip": False,
                    "normalized": False,
                    "special": True,
                }
                for s, i in ids.items()
            ],
            "normalizer": None,
            "pre_tokenizer": {"type": "Sequence", "pretokenizers": [first, last]},
            "post_processor": post,
            "decoder": level(True),
            "model": {
                "type": "BPE",
                "dropout": None,
                "unk_token": None,
                "continuing_subword_prefix": None,
                "end_of_word_suffix": None,
                "fuse_unk": False,
                "byte_fallback": False,
                "ignore_merges": False,
                "vocab": {s: i for i, s in enumerate(byte_alphabet() + special)},
                "merges": [],
            },
        },
    )
    write_json(
        os.path.join(out, "tokenizer_config.json"),
        {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "bos_token": bos,
            "eos_token": eos,
            "clean_up_tokenization_spaces": False,
            "chat_template": LLAMA3_TEMPLATE if kind == "llama3" else CHATML_TEMPLATE,
        },
    )
    return ids[bos], ids[eos]


def main():
    a = argparse.ArgumentParser(description="Writes a Hugging Face folder with random weights.")
    a.add_argument("--shape", required=True, choices=SHAPES)
    a.add_argument("--out", required=True, metavar="DIR")
    a.add_argument("--dtype", default="bf16", choices=DTYPES)
    a.add_argument("--layers", type=int, metavar="N", help="another number of layers")
    a.add_argument("--vocab", type=int, metavar="N", help="another number of tokens, at least 512")
    a.add_argument(
        "--shard-size", type=float, default=5000, metavar="MB", help="largest file (default 5000)"
    )
    a.add_argument("--seed", type=int, default=1)
    o = a.parse_args()
    if o.layers is not None and o.layers < 1:
        a.error("--layers must be 1 or more")
    if o.vocab is not None and o.vocab < 512:
        a.error("--vocab must be 512 or more")
    c = dict(SHAPES[o.shape]["config"])
    c["torch_dtype"] = DTYPES[o.dtype][2]
    if o.layers:
        c["num_hidden_layers"] = o.layers
    if o.vocab:
        c["vocab_size"] = o.vocab
    try:
        os.makedirs(o.out, exist_ok=True)
        c["bos_token_id"], c["eos_token_id"] = write_tokenizer(o.out, SHAPES[o.shape]["special"])
        write_json(os.path.join(o.out, "config.json"), c)
        write_json(
            os.path.join(o.out, "generation_config.json"),
            {k: c[k] for k in ("bos_token_id", "eos_token_id")},
        )
        count = write_weights(o.out, c, o.dtype, int(o.shard_size * 1e6), o.seed)
    except OSError as e:
        sys.exit(f"error: {e.filename}: {e.strerror}")
    if "quantization_config" in c:
        print(f"{o.out}: {count * DTYPES[o.dtype][1] / 1e9:.1f} GB")
    else:
        print(f"{o.out}: {count / 1e6:.1f} million parameters")


if __name__ == "__main__":
    main()
