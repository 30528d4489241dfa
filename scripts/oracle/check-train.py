#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""check-train.py: whole runs of `heteroshard train` against torch and peft, on a tiny model: loss,
norm and rate of every step.

    scripts/oracle/check-train.py [--binary build/heteroshard] [--model tests/golden/models/smollm2]
        [--steps 10] [--attention]

One global batch holds all examples, so that the order of the data does not matter. The first
adapter is drawn here by the same formula (src/model/lora.h, src/base/rng.h). Cases: LoRA, LoRA with
packing, QLoRA, all parameters, SGD with momentum."""

import argparse
import json
import math
import os
import subprocess
import sys
import tempfile

import torch

import common

EXAMPLES = [
    ("What is a stage?", "A range of layers."),
    ("Name a schedule.", "1f1b."),
    ("What is lost when a cable is pulled?", "Nothing."),
    ("Who owns the job?", "The coordinator."),
    ("Say yes.", "Yes, of course, whenever you like."),
    ("2 + 2?", "4"),
    ("What travels over a link?", "Activations and gradients."),
    ("What does a worker drive?", "Exactly one device."),
]
BASE = dict(
    sequence_len=256,
    micro_batch_size=2,
    gradient_accumulation_steps=4,
    learning_rate=1e-3,
    warmup_steps=2,
    weight_decay=0.01,
    max_grad_norm=1.0,
    adam_beta1=0.9,
    adam_beta2=0.999,
    adam_epsilon=1e-8,
    optimizer="adamw",
    compute_dtype="float32",
    seed=42,
    overwrite_output_dir=True,
)
COSINE = dict(lr_scheduler="cosine", cosine_min_lr_ratio=0.1)
LORA = dict(adapter="lora", lora_r=4, lora_alpha=8, lora_target_modules="all-linear")
CASES = {
    "lora": dict(LORA, **COSINE),
    "lora packed": dict(
        LORA,
        **COSINE,
        sample_packing=True,
        sequence_len=256,
        micro_batch_size=8,
        gradient_accumulation_steps=1,
    ),
    "lora recomputed": dict(LORA, gradient_checkpointing=True, lr_scheduler="linear"),
    "qlora": dict(LORA, **COSINE, adapter="qlora", bnb_4bit_use_double_quant=False),
    "all parameters": dict(lr_scheduler="constant"),
    "sgd": dict(LORA, **COSINE, optimizer="sgd", momentum=0.9, learning_rate=0.1, weight_decay=0.0),
}
MASK = 2**64 - 1


def mix64(x):
    x = (x + 0x9E3779B97F4A7C15) & MASK
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & MASK
    return x ^ (x >> 31)


def fold(key, part):
    return mix64(key ^ mix64(part))


def philox(key, counter):
    c, k = [counter & 0xFFFFFFFF, counter >> 32, 0, 0], [key & 0xFFFFFFFF, key >> 32]
    for _ in range(10):
        p0, p1 = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        c = [(p1 >> 32) ^ c[1] ^ k[0], p1 & 0xFFFFFFFF, (p0 >> 32) ^ c[3] ^ k[1], p0 & 0xFFFFFFFF]
        k = [(k[0] + 0x9E3779B9) & 0xFFFFFFFF, (k[1] + 0xBB67AE85) & 0xFFFFFFFF]
    return c


def first_a(seed, name, shape):
    key = fold(seed, 0x6C6F7261)
    for ch in name.encode():
        key = fold(key, ch)
    n, bound = shape[0] * shape[1], 1 / math.sqrt(shape[1])
    words = [w for i in range((n + 3) // 4) for w in philox(key, i)][:n]
    return torch.tensor([-bound + 2 * bound * (w >> 8) * 2.0**-24 for w in words]).reshape(shape)


def rate(c, s, steps):
    """The rule of src/optim/optim.h: the first step behind the warm-up has the full rate."""
    base, w, r = c["learning_rate"], c["warmup_steps"], c.get("cosine_min_lr_ratio")
    if s <= w:
        return base * s / w
    at = (s - 1 - w) / (steps - w)
    if c["lr_scheduler"] == "cosine":
        return base * (r + (1 - r) * 0.5 * (1 + math.cos(math.pi * at)))
    return base * (1 - at) if c["lr_scheduler"] == "linear" else base


def reference(c, model_path, steps, data):
    model = common.load_model(model_path, four_bit=c.get("adapter") == "qlora")
    tok = common.load_tokenizer(model_path)
    batch = [common.encode(tok, x, None) for x in common.conversations(data)]
    trained = sum(t >= 0 for _, labels in batch for t in labels[1:])
    if "adapter" in c:
        import peft

        model = peft.get_peft_model(
            model,
            peft.LoraConfig(
                r=c["lora_r"],
                lora_alpha=c["lora_alpha"],
                task_type="CAUSAL_LM",
                target_modules=c["lora_target_modules"],
            ),
        ).eval()
        for name, p in model.named_parameters():
            if ".lora_A." in name:
                plain = name.removeprefix("base_model.model.").replace(".default.", ".")
                p.data.copy_(first_a(c["seed"], plain, p.shape))
    params = [p for p in model.parameters() if p.requires_grad]
    decays = {id(p): p.ndim > 1 or n.endswith(".A_log") for n, p in model.named_parameters()}
    groups = [
        dict(params=[p for p in params if decays[id(p)]], weight_decay=c["weight_decay"]),
        dict(params=[p for p in params if not decays[id(p)]], weight_decay=0.0),
    ]
    opt = (
        torch.optim.SGD(groups, lr=0.0, momentum=c["momentum"])
        if c["optimizer"] == "sgd"
        else torch.optim.AdamW(groups, lr=0.0)
    )
    for s in range(1, steps + 1):
        loss = 0.0
        for ids, labels in batch:
            logits = model(input_ids=torch.tensor([ids]), use_cache=False).logits[0]
            part = (
                torch.nn.functional.cross_entropy(
                    logits[:-1], torch.tensor(labels[1:]), reduction="sum"
                )
                / trained
            )
            part.backward()
            loss += part.item()
        norm = torch.nn.utils.clip_grad_norm_(params, c["max_grad_norm"]).item()
        for g in opt.param_groups:
            g["lr"] = rate(c, s, steps)
        opt.step()
        opt.zero_grad()
        yield loss, norm, rate(c, s, steps)


def main():
    a = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    a.add_argument("--binary", default="build/heteroshard")
    a.add_argument("--model", default="tests/golden/models/smollm2")
    a.add_argument("--steps", type=int, default=10)
    a.add_argument("--attention", action="store_true", help="adapters on attention alone")
    a.add_argument("--most", type=float, default=1e-4, help="largest relative difference of a loss")
    o = a.parse_args()
    good = True
    mlp = ("gate_proj", "up_proj", "down_proj") if o.attention else ()
    names = {n.split(".")[-1] for n, _ in common.load_model(o.model).named_modules()}
    targets = [m for m in common.LINEAR if m in names and m not in mlp]
    with tempfile.TemporaryDirectory() as tmp:
        data = os.path.join(tmp, "data.jsonl")
        with open(data, "w", encoding="utf-8") as f:
            f.writelines(json.dumps({"instruction": q, "output": t}) + "\n" for q, t in EXAMPLES)
        for name, case in CASES.items():
            if "adapter" in case:
                case = dict(case, lora_target_modules=targets)
            c = dict(
                BASE,
                **case,
                base_model=o.model,
                max_steps=o.steps,
                output_dir=os.path.join(tmp, "run"),
                datasets=[{"path": data, "type": "alpaca"}],
            )
            config = os.path.join(tmp, "job.yaml")
            with open(config, "w", encoding="utf-8") as f:
                json.dump(c, f)
            run = subprocess.run([o.binary, "train", config], capture_output=True, text=True)
            if run.returncode:
                print(f"{name}: status {run.returncode}: {run.stderr.strip()[-300:]} FAIL")
                good = False
                continue
            with open(os.path.join(c["output_dir"], "metrics.jsonl"), encoding="utf-8") as f:
                got = [m for m in map(json.loads, f) if "grad_norm" in m]
            worst = [0.0, 0.0, 0.0]
            first = last = None
            for m, (loss, norm, lr) in zip(got, reference(c, o.model, o.steps, data), strict=True):
                pairs = ((m["loss"], loss), (m["grad_norm"], norm), (m["learning_rate"], lr))
                worst = [max(w, abs(x - y) / abs(y)) for w, (x, y) in zip(worst, pairs)]
                first, last = first or loss, loss
            ok = worst[0] <= o.most and worst[1] <= 1e-3 and worst[2] <= 1e-5
            good &= ok
            print(
                f"{name:16} loss {first:.4f} -> {last:.4f}; largest relative difference: loss"
                f" {worst[0]:.1e}, norm {worst[1]:.1e}, rate {worst[2]:.1e}"
                f" {'ok' if ok else 'FAIL'}"
            )
    sys.exit(not good)


if __name__ == "__main__":
    main()
