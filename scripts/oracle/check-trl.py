#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""check-trl.py: whole preference runs of `heteroshard train` against TRL's DPOTrainer, KTOTrainer,
ORPOTrainer and CPOTrainer on a tiny model: loss, norm and rewards of every step, losses and margins
of evaluations, and how far apart the trained parameters are at the end.

    scripts/oracle/check-trl.py [--binary build/heteroshard]
        [--model tests/golden/models/smollm2] [--steps 6] [CASE ...]

TRL reads the same records, pads and cuts them, and takes them in the order that this program draws
(src/data/batch.c), so that its microbatches hold the same rows. Adapters begin as in
check-train.py. Cases whose name ends in '!' show differences that are meant (docs/preferences.md):
they must differ."""

import argparse
import importlib
import json
import os
import sys
import tempfile
import warnings

os.environ["TRL_EXPERIMENTAL_SILENCE"] = "1"
os.environ["TQDM_DISABLE"] = "1"

import common
import datasets
import peft
import safetensors.torch
import torch
import transformers
import trl
from trl.experimental.cpo import CPOConfig, CPOTrainer
from trl.experimental.orpo import ORPOConfig, ORPOTrainer

train = importlib.import_module("check-train")
trainer = importlib.import_module("check-trainer")

PAIRS = [
    ("What is a stage?", "A range of layers.", "It depends."),
    ("Name a schedule.", "1f1b.", "There are many, and everybody sees them differently."),
    ("What is lost when a cable is pulled?", "Nothing.", "All of it."),
    ("Who owns the job?", "The coordinator.", "Nobody knows."),
    ("Say yes.", "Yes, of course, whenever you like.", "No"),
    ("2 + 2?", "4", "5"),
    ("What travels over a link?", "Activations and gradients.", "Bits"),
    ("What does a worker drive?", "Exactly one device.", "A car."),
]
GOOD = [1, 0, 1, 1, 0, 0, 1, 0]
# not used: a sequence is longer than sequence_len
TOO_LONG = dict(prompt="one two three " * 40)
# a token spans the border to the chosen answer: " c", " the"
BORDER = [("Name an animal.", "cat", "dog"), ("Which?", "the first", "both")]
BASE = dict(train.BASE, warmup_steps=0, learning_rate=2e-3, weight_decay=0.1, lr_scheduler="linear")
BASE |= dict(micro_batch_size=2, gradient_accumulation_steps=2, rl="dpo")
LORA = dict(BASE, **train.LORA)
MIXTURE = dict(BASE, sequence_len=128, adapter="lora", lora_r=4, lora_alpha=8, model="qwen3-moe")
MIXTURE |= dict(lora_target_modules=["q_proj", "k_proj", "v_proj", "o_proj"])
KTO = dict(LORA, rl="kto", micro_batch_size=4, gradient_accumulation_steps=1)
SMOOTH = 0.1
# ours, and what TRL's configuration is given beside what is the same for all
CASES = {
    "dpo": (LORA, {}),
    "dpo, beta 0.5": (dict(LORA, rl_beta=0.5), dict(beta=0.5)),
    "dpo, one row a microbatch": (
        dict(LORA, micro_batch_size=1, gradient_accumulation_steps=4),
        {},
    ),
    # (1 - s) f(x) + s f(-x), of what TRL has: `robust` is ((1 - s) f(x) - s f(-x)) / (1 - 2 s)
    "dpo, label smoothing": (
        dict(LORA, dpo_label_smoothing=SMOOTH),
        dict(
            loss_type=["sigmoid", "robust"],
            loss_weights=[2 * (1 - SMOOTH), 2 * SMOOTH - 1],
            label_smoothing=SMOOTH,
        ),
    ),
    "rpo": (
        dict(LORA, rpo_alpha=0.7),
        dict(loss_type=["sigmoid", "sft"], loss_weights=[1.0, 0.7]),
    ),
    "dpo, clipped": (dict(LORA, max_grad_norm=0.05), {}),
    "dpo, dora, rslora": (
        dict(LORA, peft_use_dora=True, use_rslora=True, weight_decay=0.0),
        {},
    ),
    "dpo, modules_to_save": (
        dict(LORA, lora_modules_to_save=["embed_tokens", "lm_head"]),
        dict(precompute_ref_log_probs=True),
    ),
    "dpo, all parameters": (BASE, {}),
    "dpo, all parameters, precomputed": (BASE, dict(precompute_ref_log_probs=True)),
    "ipo": (dict(LORA, rl="ipo", rl_beta=0.2), dict(loss_type=["ipo"], beta=0.2)),
    "ipo, all parameters": (dict(BASE, rl="ipo"), dict(loss_type=["ipo"])),
    "orpo": (dict(LORA, rl="orpo"), {}),
    "orpo, orpo_alpha": (dict(LORA, rl="orpo", orpo_alpha=0.4), dict(beta=0.4)),
    "orpo, all parameters": (dict(BASE, rl="orpo"), {}),
    "simpo": (
        dict(LORA, rl="simpo", rl_beta=2.0),
        dict(loss_type="simpo", beta=2.0, cpo_alpha=1.0, simpo_gamma=0.5),
    ),
    "simpo alone": (
        dict(LORA, rl="simpo", rl_beta=2.0, cpo_alpha=0, simpo_gamma=1.0),
        dict(loss_type="simpo", beta=2.0, cpo_alpha=0.0, simpo_gamma=1.0),
    ),
    "simpo, all parameters": (dict(BASE, rl="simpo"), dict(loss_type="simpo")),
    "dpo, chat template": (LORA, {}, "chat"),
    "dpo, rendered text": (LORA, {}, "rendered"),
    "dpo, chat template, TRL's turns!": (LORA, {}, "turns"),
    "dpo, a token spans the border": (LORA, {}, "border"),
    "dpo, fewer rows at the end!": (LORA, {}, "seven"),
    "dpo, begins with an adapter!": (LORA, {}, "adapter"),
    "dpo, begins with an adapter, base as reference": (LORA, {}, "adapter"),
    "dpo, experts": (dict(MIXTURE, router_aux_loss_coef=0.0), dict(router_aux_loss_coef=0.0)),
    "dpo, experts, balanced": (
        dict(MIXTURE, router_aux_loss_coef=0.5),
        dict(router_aux_loss_coef=0.5),
    ),
    "orpo, experts, balanced": (dict(MIXTURE, rl="orpo", router_aux_loss_coef=0.5), {}),
    "kto, experts, balanced!": (
        dict(MIXTURE, rl="kto", router_aux_loss_coef=0.5, micro_batch_size=4)
        | dict(gradient_accumulation_steps=1),
        dict(router_aux_loss_coef=0.5),
    ),
    "kto, chat template": (KTO, {}, "chat"),
    "kto": (KTO, {}),
    "kto, two microbatches": (
        dict(KTO, gradient_accumulation_steps=2, rl_beta=0.5),
        dict(beta=0.5),
    ),
    "kto, weights": (
        dict(KTO, kto_desirable_weight=0.7, kto_undesirable_weight=1.6),
        dict(desirable_weight=0.7, undesirable_weight=1.6),
    ),
    "kto, all parameters": (
        dict(BASE, rl="kto", micro_batch_size=4, gradient_accumulation_steps=1),
        dict(precompute_ref_log_probs=True),
    ),
}


# Adam divides by gradients that may be as small as their rounding
LESS = dict(norm=10, parameters=50)
REWARDS = [f"rewards/{k}" for k in ("chosen", "rejected", "margins", "accuracies")]


def order(seed, n, epochs):
    """src/data/batch.c: of n examples, none of them held out"""

    def shuffled(v, key):
        v = list(v)
        for i in range(len(v), 1, -1):
            w = train.philox(key, i - 1)
            j = ((w[0] << 32 | w[1]) * i) >> 64
            v[i - 1], v[j] = v[j], v[i - 1]
        return v

    first = shuffled(range(n), train.fold(seed, int.from_bytes(b"split", "big")))
    epoch = train.fold(seed, int.from_bytes(b"epoch", "big"))
    return [i for e in range(epochs) for i in shuffled(first, train.fold(epoch, e))]


def records(kind, kto, which, tok):
    """(ours, TRL's)"""
    both = ([], [])
    for i in which:
        question, chosen, rejected = (PAIRS + BORDER if kind == "border" else PAIRS)[i]
        prompt = f"Q: {question}\nA: "
        one = dict(chosen=chosen, rejected=rejected)
        if kto:
            one = dict(completion=chosen if GOOD[i] else rejected, label=bool(GOOD[i]))
        if kind in ("chat", "rendered"):
            asked = [dict(role="user", content=question)]
            prompt = tok.apply_chat_template(asked, tokenize=False, add_generation_prompt=True)
        both[0].append(dict(one, prompt=question if kind in ("chat", "turns") else prompt))
        both[1].append(dict(one, prompt=prompt))
        if kind == "turns":
            turns = {k: [dict(role="assistant", content=v)] for k, v in one.items() if k != "label"}
            both[1][-1] |= dict(turns, prompt=[dict(role="user", content=question)])
    return both


class Frames(transformers.TrainerCallback):
    def __init__(self):
        self.step, self.val = [], []

    def on_log(self, args, state, control, logs=None, **more):
        if "loss" in logs and "grad_norm" in logs:
            self.step.append(dict(logs))

    def on_evaluate(self, args, state, control, metrics=None, **more):
        self.val.append({k.removeprefix("eval_"): v for k, v in metrics.items()})


def tokenizer(path, c):
    tok = common.load_tokenizer(path)
    tok.pad_token = tok.eos_token
    if c["rl"] in ("orpo", "simpo"):
        tok.bos_token = None  # these trainers put it in front even where the tokenizer does not
    return tok


def reference(c, more, model_path, tok, steps, rows, val, base_refers, tmp):
    model = common.load_model(model_path)
    if "router_aux_loss_coef" in c:
        model.config.output_router_logits = c["router_aux_loss_coef"] > 0
        model.config.router_aux_loss_coef = c["router_aux_loss_coef"]
    if "lora_model_dir" in c:
        model = peft.PeftModel.from_pretrained(model, c["lora_model_dir"], is_trainable=True)
    elif "adapter" in c:
        model = trainer.adapted(model, c)
    size = c["micro_batch_size"] * c["gradient_accumulation_steps"]
    epochs = -(-steps * size // len(rows))
    config, make = {
        "kto": (trl.KTOConfig, trl.KTOTrainer),
        "orpo": (ORPOConfig, ORPOTrainer),
        "simpo": (CPOConfig, CPOTrainer),
    }.get(c["rl"], (trl.DPOConfig, trl.DPOTrainer))
    args = config(
        output_dir=os.path.join(tmp, "trl"),
        per_device_train_batch_size=c["micro_batch_size"],
        per_device_eval_batch_size=c["micro_batch_size"],
        gradient_accumulation_steps=c["gradient_accumulation_steps"],
        max_steps=steps,
        learning_rate=c["learning_rate"],
        lr_scheduler_type=c["lr_scheduler"],
        weight_decay=c["weight_decay"],
        max_grad_norm=c["max_grad_norm"],
        adam_beta1=c["adam_beta1"],
        adam_beta2=c["adam_beta2"],
        train_sampling_strategy="sequential",
        gradient_checkpointing=False,
        bf16=False,
        max_length=c["sequence_len"],
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
    frames = Frames()
    keys = dict(ref_model=common.load_model(model_path)) if base_refers else {}
    own = make(
        model,
        args=args,
        train_dataset=datasets.Dataset.from_list(
            [rows[i] for i in order(c["seed"], len(rows), epochs)]
        ),
        eval_dataset=datasets.Dataset.from_list(val),
        processing_class=tok,
        callbacks=[frames],
        **keys,
    )
    own.remove_callback(transformers.PrinterCallback)
    own.train()
    return frames, own.model


def apart(pairs):
    """the largest difference, in units of the largest value"""
    return max(abs(x - y) for x, y in pairs) / max(abs(y) for _, y in pairs)


def trained(model, c):
    """(ours, theirs) of all that is trained"""
    ours = {}
    for n in os.listdir(c["output_dir"]):
        if n.endswith(".safetensors"):
            ours |= safetensors.torch.load_file(os.path.join(c["output_dir"], n))
    theirs = model.state_dict()
    if "adapter" in c:
        theirs = peft.get_peft_model_state_dict(model)
    return [(ours[k].flatten().tolist(), theirs[k].flatten().tolist()) for k in ours]


def main():
    a = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    a.add_argument("--binary", default="build/heteroshard")
    a.add_argument("--model", default="tests/golden/models/smollm2")
    a.add_argument("--steps", type=int, default=6)
    a.add_argument("--most", type=float, default=1e-4, help="largest relative difference of a loss")
    a.add_argument("case", nargs="*", help="of these only")
    o = a.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    transformers.logging.set_verbosity_error()
    datasets.disable_progress_bars()
    good = True
    for name, (case, more, *kind) in CASES.items():
        if o.case and name not in o.case:
            continue
        with tempfile.TemporaryDirectory() as tmp:
            kto, kind, tok = case["rl"] == "kto", (kind or ["text"])[0], tokenizer(o.model, case)
            steps = 2 if kind == "seven" else o.steps
            first = {"seven": range(7), "border": range(2, 10)}.get(kind, range(8))
            where, own = os.path.split(o.model)
            model_path = os.path.join(where, case.get("model", own))
            rows, rows_trl = records(kind, kto, first, tok)
            held, held_trl = records(kind, kto, (1, 2, 4, 7), tok)
            data, val = (os.path.join(tmp, f"{x}.jsonl") for x in ("data", "val"))
            for path, what in ((data, rows + [dict(rows[0], **TOO_LONG)]), (val, held)):
                with open(path, "w", encoding="utf-8") as f:
                    f.writelines(json.dumps(r) + "\n" for r in what)
            text = os.path.join(tmp, "sft.jsonl")
            with open(text, "w", encoding="utf-8") as f:
                f.writelines(json.dumps(dict(text=" ".join(p))) + "\n" for p in PAIRS)
            form = "chatml.ultra" if kind in ("chat", "turns") else "passthrough.default"
            c = dict(
                {k: v for k, v in case.items() if k != "model"},
                base_model=model_path,
                max_steps=steps,
                eval_steps=steps // 2,
                output_dir=os.path.join(tmp, "run"),
                datasets=[dict(type=form, path=data)],
                test_datasets=[dict(type=form, path=val)],
                log_level="error",
            )
            if kind == "adapter":
                sft = [dict(path=text, type="text")]
                trainer.metrics(o.binary, dict(c, rl="none", datasets=sft, test_datasets=sft), tmp)
                c["lora_model_dir"] = os.path.join(tmp, "sft")
                os.rename(c["output_dir"], c["lora_model_dir"])
            got = trainer.metrics(o.binary, c, tmp)
            step = [m for m in got if "grad_norm" in m]
            evaluated = [m for m in got if m.get("val_loss") is not None and m["step"]]
            them, model = reference(
                c, more, model_path, tok, steps, rows_trl, held_trl, "base as" in name, tmp
            )
            pairs = [("loss", [m["loss"] for m in step], [t["loss"] for t in them.step])]
            pairs += [("norm", [m["grad_norm"] for m in step], [t["grad_norm"] for t in them.step])]
            pairs += [
                ("evaluation", [m["val_loss"] for m in evaluated], [t["loss"] for t in them.val])
            ]
            worst = {k: trainer.largest(x, y) for k, x, y in pairs}
            # rewards begin at 0, so in units of the largest
            both = [(m, t, "") for m, t in zip(step, them.step, strict=True)]
            both += [(m, t, "val_") for m, t in zip(evaluated, them.val, strict=True)]
            worst["rewards"] = apart(
                [
                    (m[f"{v}{k}"], t[k])
                    for m, t, v in both[case["rl"] in ("dpo", "kto") :]
                    for k in REWARDS
                    if k in t
                ]
            )
            worst["parameters"] = apart(
                [(x, y) for pair in trained(model, c) for x, y in zip(*pair)]
            )
            if case["rl"] == "ipo":
                del worst["rewards"]  # TRL's are of whole answers
            if "model" in case:
                del worst["evaluation"]  # Trainer's has the losses of routers
            same = all(x <= o.most * LESS.get(k, 1) for k, x in worst.items())
            ok = same != name.endswith("!")
            good &= ok
            print(
                f"{name:32} loss {step[0]['loss']:.4f} -> {step[-1]['loss']:.4f}; largest relative"
                " difference: "
                + ", ".join(f"{k} {x:.1e}" for k, x in worst.items())
                + (" ok" if ok else " FAIL"),
                flush=True,
            )
    sys.exit(not good)


if __name__ == "__main__":
    main()
