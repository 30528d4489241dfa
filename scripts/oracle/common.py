# SPDX-License-Identifier: Apache-2.0
"""common.py - what the checks by hand share: models by transformers, examples as conversations, the
program itself.

These scripts compare heteroshard with the packages people use (transformers, peft, bitsandbytes) on
files too large for the repository. They need a Python with those packages; no test does. Everything
is computed in float32 with eager attention on the CPU."""

import json
import os
import subprocess
import sys

os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ["TORCHDYNAMO_DISABLE"] = "1"

import torch
import transformers

LINEAR = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
LINEAR += ("in_proj_qkv", "in_proj_z", "in_proj_b", "in_proj_a", "out_proj")
LINEAR += ("in_proj_qkvz", "in_proj_ba")
LINEAR += ("q_a_proj", "q_b_proj", "kv_a_proj_with_mqa", "kv_b_proj")
LINEAR += ("in_proj", "w1", "w2", "w3", "input_linear", "output_linear", "g_proj")


def where(path):
    """from_pretrained()'s arguments for a folder or a .gguf file."""
    if path.endswith(".gguf"):
        return os.path.dirname(os.path.abspath(path)), {"gguf_file": os.path.basename(path)}
    return path, {}


def load_model(path, adapter=None, four_bit=False, double_quant=False):
    """In float32. With four_bit the linear weights of the layers go through bitsandbytes' NF4 and
    back."""
    folder, extra = where(path)
    m = transformers.AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float32, attn_implementation="eager", **extra
    ).eval()
    if four_bit:
        import bitsandbytes.functional as F
        from bitsandbytes.backends.default.ops import (
            _dequantize_4bit_compute as portable,
        )  # why: scripts/golden/nf4.py

        def through(w):
            q, state = F.quantize_4bit(
                w, blocksize=64, quant_type="nf4", compress_statistics=double_quant
            )
            absmax = (
                F.dequantize_blockwise(state.absmax, state.state2) + state.offset
                if double_quant
                else state.absmax
            )
            w.copy_(portable(q.reshape(-1), absmax, state.code, 64, w.shape, torch.float32))

        for name, p in m.named_parameters():
            if name.endswith(".weight") and name.split(".")[-2] in LINEAR:
                through(p.data)
            for w in p.data if ".experts." in name else ():  # gate and up of one expert, or down
                for part in w.chunk(2) if "gate_up" in name else (w,):
                    through(part)
    if adapter:
        import peft

        m = peft.PeftModel.from_pretrained(m, adapter).eval()
    return m


def load_tokenizer(path):
    folder, extra = where(path)
    tok = transformers.AutoTokenizer.from_pretrained(folder, **extra)
    if extra:
        # transformers does not read which pre-tokenizer a GGUF names; SmolLM2's splits off every
        # digit before anything else.
        import gguf
        from tokenizers import pre_tokenizers

        pre = gguf.GGUFReader(path).get_field("tokenizer.ggml.pre")
        if pre and pre.contents() == "smollm":
            tok.backend_tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
                [
                    pre_tokenizers.Digits(individual_digits=True),
                    pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True),
                ]
            )
    return tok


def conversations(path):
    """The records of a JSON or JSONL file as lists of (role, text): alpaca, messages, sharegpt,
    completion."""
    with open(path, encoding="utf-8-sig") as f:
        text = f.read()
    records = (
        json.loads(text)
        if text.lstrip().startswith("[")
        # not splitlines(), which also splits at U+2028 and U+0085 inside a text
        else [json.loads(line) for line in text.split("\n") if line.strip()]
    )
    role = {
        "human": "user",
        "gpt": "assistant",
        "system": "system",
        "user": "user",
        "assistant": "assistant",
    }
    for r in records:
        if "messages" in r:
            yield [(m["role"], m["content"]) for m in r["messages"]]
        elif "conversations" in r:
            yield [(role[m["from"]], m["value"]) for m in r["conversations"]]
        else:
            question = r["instruction"] + ("\n" + r["input"] if r.get("input") else "")
            system = [("system", r["system"])] if r.get("system") else []
            yield system + [("user", question), ("assistant", r["output"])]


def encode(tok, conversation, default_system):
    """chatml: (ids, labels) with the answers and the token that ends them trained; labels are not
    shifted. Between two special tokens the text is encoded as one piece, as apply_chat_template has
    it, but never becomes a special token itself; a token is trained where its last character is."""
    ids, labels = [], []

    def special(text, train):
        new = tok.convert_tokens_to_ids(text)
        ids.append(new)
        labels.append(new if train else -100)

    def plain(text, trained_from):
        new = tok(
            text, add_special_tokens=False, split_special_tokens=True, return_offsets_mapping=True
        )
        ids.extend(new["input_ids"])
        labels.extend(
            i if end > trained_from else -100
            for i, (_, end) in zip(new["input_ids"], new["offset_mapping"])
        )

    if default_system and conversation[0][0] != "system":
        conversation = [("system", default_system)] + conversation
    for role, text in conversation:
        answer = role == "assistant"
        special("<|im_start|>", False)
        plain(role + "\n" + text, len(role) + 1 if answer else 1 << 40)
        special("<|im_end|>", answer)
        plain("\n", 1)
    return ids, labels


SMOLLM2_SYSTEM = "You are a helpful AI assistant named SmolLM, trained by Hugging Face"


@torch.no_grad()
def mean_loss(model, tok, data, limit=0, sequence_len=2048, default_system=SMOLLM2_SYSTEM):
    """(loss per trained token, trained tokens, examples)"""
    total, count, seen = 0.0, 0, 0
    for c in conversations(data):
        ids, labels = encode(tok, c, default_system)
        ids, labels = ids[:sequence_len], labels[:sequence_len]
        logits = model(input_ids=torch.tensor([ids]), use_cache=False).logits[0]
        target = torch.tensor(labels[1:])
        total += torch.nn.functional.cross_entropy(
            logits[:-1], target, ignore_index=-100, reduction="sum"
        ).item()
        count += int((target != -100).sum())
        seen += 1
        if limit and seen == limit:
            break
    return total / count, count, seen


def heteroshard(binary, *args):
    """Runs the program with --json and returns what it printed as a dictionary."""
    run = subprocess.run([binary, *args, "--json"], capture_output=True, text=True)
    if run.returncode:
        sys.exit(f"{' '.join([binary, *args])}: status {run.returncode}: {run.stderr.strip()}")
    return json.loads(run.stdout)


def report(what, ours, theirs, most):
    error = abs(ours - theirs) / abs(theirs)
    ok = error <= most
    print(
        f"{what}: heteroshard {ours:.6f}, reference {theirs:.6f}, relative difference {error:.2e}"
        f" {'ok' if ok else 'FAIL'}"
    )
    return ok
