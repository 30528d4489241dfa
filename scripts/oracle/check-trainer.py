#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""check-trainer.py: whole runs of `heteroshard train` against transformers' own Trainer, on a tiny
model: loss, norm and rate of every step, and the losses of evaluations.

    scripts/oracle/check-trainer.py [--binary build/heteroshard]
        [--model tests/golden/models/smollm2] [--steps 8] [CASE ...]

What Trainer decides is left to it: schedule, groups of weight decay, what a step's loss is divided
by, clipping, the optimizers behind its names, PEFT's LoRA+. One global batch of microbatches with
unlike numbers of trained tokens holds all examples, so that the order of the data does not matter;
there Trainer pads, and this program does not. Adapters begin as in check-train.py. Cases whose name
ends in '!' show differences that are meant (docs/axolotl.md): they must differ."""

import argparse
import importlib
import json
import os
import subprocess
import sys
import tempfile

import torch
import transformers

import common

train = importlib.import_module("check-train")

BASE = dict(train.BASE, warmup_steps=0, learning_rate=2e-3, weight_decay=0.1)
LORA = train.LORA
ALL = dict(LORA, lora_modules_to_save=["embed_tokens", "lm_head"])
# ours, and what TrainingArguments and LoraConfig are given beside what is the same for all
CASES = {
    "lora, linear": (dict(LORA, lr_scheduler="linear"), dict(lr_scheduler_type="linear")),
    "one row a microbatch": (
        dict(LORA, lr_scheduler="cosine", micro_batch_size=1, gradient_accumulation_steps=8),
        dict(lr_scheduler_type="cosine"),
    ),
    "packed": (
        dict(LORA, lr_scheduler="constant", sample_packing=True, micro_batch_size=1)
        | dict(gradient_accumulation_steps=8),
        dict(lr_scheduler_type="constant"),
    ),
    "clipped, rslora": (
        dict(LORA, lr_scheduler="constant", max_grad_norm=0.05, use_rslora=True),
        dict(lr_scheduler_type="constant"),
    ),
    "modules_to_save": (dict(ALL, lr_scheduler="constant"), dict(lr_scheduler_type="constant")),
    "LoRA+": (
        dict(LORA, lr_scheduler="cosine", loraplus_lr_ratio=16, learning_rate=5e-4),
        dict(lr_scheduler_type="cosine"),
    ),
    "LoRA+, modules_to_save": (
        dict(ALL, lr_scheduler="cosine", loraplus_lr_ratio=16, learning_rate=5e-4),
        dict(lr_scheduler_type="cosine"),
    ),
    "dora": (
        dict(LORA, lr_scheduler="cosine", peft_use_dora=True, weight_decay=0.0),
        dict(lr_scheduler_type="cosine"),
    ),
    "dora, weight decay!": (
        dict(LORA, lr_scheduler="constant", peft_use_dora=True, weight_decay=2.0),
        dict(lr_scheduler_type="constant"),
    ),
    "dora, LoRA+!": (
        dict(LORA, lr_scheduler="cosine", peft_use_dora=True, weight_decay=0.0)
        | dict(loraplus_lr_ratio=16, learning_rate=5e-4),
        dict(lr_scheduler_type="cosine"),
    ),
    "all parameters": (dict(lr_scheduler="cosine"), dict(lr_scheduler_type="cosine")),
    "all parameters, on inputs": (
        dict(lr_scheduler="cosine_with_restarts", lr_num_cycles=2, train_on_inputs=True),
        dict(lr_scheduler_type="cosine_with_restarts", lr_scheduler_kwargs=dict(num_cycles=2)),
    ),
    "adafactor": (
        dict(lr_scheduler="polynomial", lr_power=2, lr_min_ratio=0.1, optimizer="adafactor"),
        dict(
            lr_scheduler_type="polynomial",
            lr_scheduler_kwargs=dict(power=2, lr_end=2e-4),
            optim="adafactor",
        ),
    ),
    "sgd": (
        dict(LORA, lr_scheduler="constant", optimizer="sgd", learning_rate=0.1),
        dict(lr_scheduler_type="constant", optim="sgd"),
    ),
    "lion": (
        dict(LORA, lr_scheduler="constant", optimizer="lion", learning_rate=1e-4),
        dict(lr_scheduler_type="constant", optim="lion_32bit"),
    ),
    "adamw_8bit": (
        dict(LORA, lora_r=96, lr_scheduler="constant", optimizer="adamw_8bit"),
        dict(lr_scheduler_type="constant", optim="adamw_bnb_8bit"),
    ),
    "adamw_8bit, all parameters": (
        dict(lr_scheduler="constant", optimizer="adamw_8bit"),
        dict(lr_scheduler_type="constant", optim="adamw_bnb_8bit"),
    ),
    "stable, then down": (
        dict(LORA, lr_scheduler="warmup_stable_decay", lr_decay_ratio=0.5),
        dict(lr_scheduler_type="warmup_stable_decay", lr_scheduler_kwargs=dict(num_decay_steps=4)),
    ),
}


def nearest_codes():
    """bitsandbytes on a CPU searches codes roughly; on a card it takes the nearest, as we do."""
    from bitsandbytes.backends.cpu import ops

    def nearest(x, table, tops, out, size):
        flat = torch.nn.functional.pad(x.flatten(), (0, -x.numel() % size)).reshape(-1, size)
        top = flat.abs().max(1).values
        tops.copy_(top)
        borders = (table[1:] + table[:-1]) * 0.5
        found = torch.searchsorted(borders, (flat / top[:, None]).contiguous())
        out.copy_(found.flatten()[: x.numel()].reshape(x.shape).to(torch.uint8))

    ops._quant_blockwise_fp32_direct = nearest


class Rows(torch.utils.data.Dataset):
    def __init__(self, batch):
        self.row = [
            dict(input_ids=ids, labels=labels, attention_mask=[1] * len(ids))
            for ids, labels in batch
        ]

    def __len__(self):
        return len(self.row)

    def __getitem__(self, i):
        return self.row[i]


def padded(rows):
    n = max(len(r["input_ids"]) for r in rows)
    fill = dict(input_ids=0, labels=-100, attention_mask=0)
    return {k: torch.tensor([r[k] + [f] * (n - len(r[k])) for r in rows]) for k, f in fill.items()}


class Frames(transformers.TrainerCallback):
    """The log as it is made; Trainer's own history rounds nothing."""

    def __init__(self):
        self.step, self.val = [], []

    def on_log(self, args, state, control, logs=None, **more):
        if "loss" in logs and "grad_norm" in logs:
            self.step.append((logs["loss"], float(logs["grad_norm"]), logs["learning_rate"]))

    def on_evaluate(self, args, state, control, metrics=None, **more):
        self.val.append(metrics["eval_loss"])


def batch_of(tok, path, everything):
    batch = [common.encode(tok, x, None) for x in common.conversations(path)]
    return [(ids, ids if everything else labels) for ids, labels in batch]


def adapted(model, c):
    """with PEFT's adapter of the configuration, drawn as this program draws it"""
    import peft

    model = peft.get_peft_model(
        model,
        peft.LoraConfig(
            r=c["lora_r"],
            lora_alpha=c["lora_alpha"],
            task_type="CAUSAL_LM",
            target_modules=c["lora_target_modules"],
            use_rslora=c.get("use_rslora", False),
            use_dora=c.get("peft_use_dora", False),
            modules_to_save=c.get("lora_modules_to_save"),
        ),
    )
    for name, p in model.named_parameters():
        if ".lora_A." in name:
            plain = name.removeprefix("base_model.model.").replace(".default.", ".")
            p.data.copy_(train.first_a(c["seed"], plain, p.shape))
    return model


def reference(c, more, model_path, steps, data, val, tmp):
    model = common.load_model(model_path)
    tok = common.load_tokenizer(model_path)
    batch = batch_of(tok, data, c.get("train_on_inputs"))
    if "adapter" in c:
        model = adapted(model, c)
    args = transformers.TrainingArguments(
        output_dir=os.path.join(tmp, "trainer"),
        per_device_train_batch_size=c["micro_batch_size"],
        per_device_eval_batch_size=len(batch),
        gradient_accumulation_steps=c["gradient_accumulation_steps"],
        max_steps=steps,
        learning_rate=c["learning_rate"],
        weight_decay=c["weight_decay"],
        max_grad_norm=c["max_grad_norm"],
        adam_beta1=c["adam_beta1"],
        adam_beta2=c["adam_beta2"],
        logging_steps=1,
        eval_strategy="steps",
        eval_steps=steps // 2,
        save_strategy="no",
        report_to=[],
        use_cpu=True,
        disable_tqdm=True,
        dataloader_pin_memory=False,
        **more,
    )
    own = None
    if c.get("loraplus_lr_ratio"):
        from peft.optimizers import create_loraplus_optimizer

        own = create_loraplus_optimizer(
            model,
            torch.optim.AdamW,
            lr=c["learning_rate"],
            loraplus_lr_ratio=c["loraplus_lr_ratio"],
            loraplus_weight_decay=c["weight_decay"],
        )
    frames = Frames()
    trainer = transformers.Trainer(
        model,
        args,
        train_dataset=Rows(batch),
        eval_dataset=Rows(batch_of(tok, val, c.get("train_on_inputs"))),
        data_collator=padded,
        callbacks=[frames],
        optimizers=(own, None),
    )
    trainer.remove_callback(transformers.PrinterCallback)
    trainer.train()
    return frames


def metrics(binary, c, tmp):
    """the lines of metrics.jsonl of a run"""
    config = os.path.join(tmp, "job.yaml")
    with open(config, "w", encoding="utf-8") as f:
        json.dump(c, f)
    run = subprocess.run([binary, "train", config], capture_output=True, text=True)
    if run.returncode:
        sys.exit(f"status {run.returncode}: {run.stderr.strip()[-300:]}")
    with open(os.path.join(c["output_dir"], "metrics.jsonl"), encoding="utf-8") as f:
        return [json.loads(line) for line in f]


def ours(binary, c, tmp):
    rows = metrics(binary, c, tmp)
    step = [(m["loss"], m["grad_norm"], m["learning_rate"]) for m in rows if "grad_norm" in m]
    return step, [m["val_loss"] for m in rows if m.get("val_loss") is not None and m["step"]]


def largest(got, want):
    return max(abs(x - y) / max(abs(y), 1e-30) for x, y in zip(got, want, strict=True))


def main():
    a = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    a.add_argument("--binary", default="build/heteroshard")
    a.add_argument("--model", default="tests/golden/models/smollm2")
    a.add_argument("--steps", type=int, default=8)
    a.add_argument("--most", type=float, default=1e-4, help="largest relative difference of a loss")
    a.add_argument("case", nargs="*", help="of these only")
    o = a.parse_args()
    transformers.logging.set_verbosity_error()
    nearest_codes()
    good = True
    with tempfile.TemporaryDirectory() as tmp:
        data, val = (os.path.join(tmp, f"{name}.jsonl") for name in ("data", "val"))
        for path, rows in ((data, train.EXAMPLES), (val, train.EXAMPLES[2:7])):
            with open(path, "w", encoding="utf-8") as f:
                f.writelines(json.dumps({"instruction": q, "output": t}) + "\n" for q, t in rows)
        for name, (case, more) in CASES.items():
            if o.case and name not in o.case:
                continue
            c = {**BASE, **case}
            c |= dict(
                base_model=o.model,
                max_steps=o.steps,
                eval_steps=o.steps // 2,
                output_dir=os.path.join(tmp, "run"),
                datasets=[{"path": data, "type": "alpaca"}],
                test_datasets=[{"path": val, "type": "alpaca"}],
                log_level="error",
            )
            step, held = ours(o.binary, c, tmp)
            them = reference(c, more, o.model, o.steps, data, val, tmp)
            worst = [largest(x, y) for x, y in zip(zip(*step), zip(*them.step))]
            worst.append(largest(held, them.val))
            same = worst[0] <= o.most and worst[1] <= 1e-3 and worst[2] <= 1e-5
            same = same and worst[3] <= o.most
            ok = same != name.endswith("!")
            good &= ok
            print(
                f"{name:26} loss {step[0][0]:.4f} -> {step[-1][0]:.4f}; largest relative"
                f" difference: loss {worst[0]:.1e}, norm {worst[1]:.1e}, rate {worst[2]:.1e},"
                f" evaluation {worst[3]:.1e} {'ok' if ok else 'FAIL'}",
                flush=True,
            )
    sys.exit(not good)


if __name__ == "__main__":
    main()
