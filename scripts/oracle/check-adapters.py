#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""check-adapters.py: what runs of `heteroshard train` leave is what PEFT makes of it, for all kinds
of adapter, on a tiny model whose head is its embedding.

    scripts/oracle/check-adapters.py [--binary build/heteroshard]
        [--model tests/golden/models/smollm2]

For each kind: the run's last evaluation against the loss of its folder loaded by PEFT, and the
logits of `heteroshard merge`, in f32 and bf16, against PEFT's merge_and_unload()."""

import argparse
import importlib
import json
import os
import subprocess
import sys
import tempfile

import torch

import common

train = importlib.import_module("check-train")
BASE = dict(train.BASE, warmup_steps=0, learning_rate=5e-3, max_steps=6, log_level="error")
LORA = train.LORA
WHOLE = dict(lora_modules_to_save=["embed_tokens", "lm_head"])
KINDS = {
    "lora": LORA,
    "both whole": dict(LORA, **WHOLE),
    "embedding whole": dict(LORA, lora_modules_to_save=["embed_tokens"]),
    "head whole": dict(LORA, lora_modules_to_save=["lm_head"]),
    "dora": dict(LORA, peft_use_dora=True),
    "dora, both whole": dict(LORA, peft_use_dora=True, **WHOLE),
    "patterns, rslora, layers": dict(
        LORA,
        use_rslora=True,
        lora_rank_pattern={"q_proj": 7},
        lora_alpha_pattern={"v_proj": 3},
        peft_layers_to_transform=[0, 2],
    ),
    "qlora": dict(LORA, adapter="qlora", bnb_4bit_use_double_quant=True),
    "qlora, dora": dict(LORA, adapter="qlora", bnb_4bit_use_double_quant=False, peft_use_dora=True),
}


@torch.no_grad()
def logits(model, batch):
    out = [model(input_ids=torch.tensor([ids]), use_cache=False).logits[0] for ids, _ in batch]
    return torch.cat(out).float()


def loss(model, batch):
    target = torch.tensor([t for _, labels in batch for t in labels[1:] + [-100]])
    return torch.nn.functional.cross_entropy(logits(model, batch), target).item()


def run(*argv):
    p = subprocess.run(argv, capture_output=True, text=True)
    if p.returncode:
        sys.exit(f"{' '.join(argv)}: status {p.returncode}: {p.stderr.strip()[-300:]}")


def main():
    a = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    a.add_argument("--binary", default="build/heteroshard")
    a.add_argument("--model", default="tests/golden/models/smollm2")
    o = a.parse_args()
    good = True
    with tempfile.TemporaryDirectory() as tmp:
        data, job = os.path.join(tmp, "data.jsonl"), os.path.join(tmp, "job.yaml")
        with open(data, "w", encoding="utf-8") as f:
            f.writelines(
                json.dumps({"instruction": q, "output": t}) + "\n" for q, t in train.EXAMPLES
            )
        names = {n.split(".")[-1] for n, _ in common.load_model(o.model).named_modules()}
        modules = dict(lora_target_modules=[m for m in common.LINEAR if m in names])
        tok = common.load_tokenizer(o.model)
        batch = [common.encode(tok, x, None) for x in common.conversations(data)]
        for kind, keys in KINDS.items():
            out = os.path.join(tmp, "run")
            c = dict(BASE, **keys | modules, base_model=o.model, output_dir=out)
            c |= {k: [{"path": data, "type": "alpaca"}] for k in ("datasets", "test_datasets")}
            with open(job, "w", encoding="utf-8") as f:
                json.dump(c, f)
            run(o.binary, "train", job)
            with open(os.path.join(out, "metrics.jsonl"), encoding="utf-8") as f:
                held = [m["val_loss"] for m in map(json.loads, f) if m.get("val_loss") is not None]
            quant = c["adapter"] == "qlora"
            double = quant and c["bnb_4bit_use_double_quant"]
            model = common.load_model(o.model, out, quant, double)
            want = loss(model, batch)
            worst = [abs(held[-1] - want) / want]
            model = model.merge_and_unload()
            for kept in ("f32", "bf16"):
                if kept == "bf16":
                    for p in model.parameters():
                        if p.ndim == 2:
                            p.data.copy_(p.data.bfloat16().float())
                merged = os.path.join(tmp, "merged")
                more = ["--base", "dequantized"] if quant else []
                more += ["--double-quant"] if double else []
                run(o.binary, "merge", o.model, out, merged, "--type", kept, "--force", *more)
                there = logits(model, batch)
                here = logits(common.load_model(merged), batch)
                worst.append(((here - there).abs().max() / there.abs().max()).item())
            ok = worst[0] <= 1e-5 and worst[1] <= 1e-4 and worst[2] <= 2e-3
            good &= ok
            print(
                f"{kind:24} loss {want:.4f}, relative difference {worst[0]:.1e}; merged, share of"
                f" the largest logit: f32 {worst[1]:.1e}, bf16 {worst[2]:.1e}"
                f" {'ok' if ok else 'FAIL'}",
                flush=True,
            )
    sys.exit(not good)


if __name__ == "__main__":
    main()
