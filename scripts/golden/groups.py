#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""groups.py - one step of full-parameter training over microbatches of very unequal numbers of
trained tokens, by PyTorch in one process: what a group of members must give, whatever their shares.

Writes tests/golden/groups/. Run it with a Python that has torch, transformers and safetensors; the
models are folders of tests/golden/models (scripts/golden/models.py). The tests need no Python; the
versions that made the files stand in versions.txt.

expect-<model>.safetensors:
  m<i>.{id,pos,label,start}     microbatches as in src/data/batch.h; labels shifted, -100 untrained
  loss (M) F64                  sum of the token losses of each microbatch
  trained (M) F64               its trained tokens
  grad_norm (1) F64             of d(sum of losses / trained tokens of the step), before clipping
  grad.<parameter>              the first rows of that gradient
  step.<parameter>              the same rows after one step of AdamW with clipping (rules in
                                case.json)
"""

import json
import os
import sys

os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ["TORCHDYNAMO_DISABLE"] = "1"

import torch
import transformers
import safetensors
from safetensors.torch import save_file

HERE = os.path.dirname(os.path.abspath(__file__))
MODELS = os.path.join(HERE, "..", "..", "tests", "golden", "models")
ROOT = os.path.join(HERE, "..", "..", "tests", "golden", "groups")
# The lengths of the sequences of each microbatch, and how many tokens at each one's end are
# trained: between 1 and 30 a microbatch.
BATCH = [
    ((31,), (30,)),
    ((5,), (1,)),
    ((12, 9), (3, 1)),
    ((23,), (2,)),
    ((7, 3, 11), (6, 2, 10)),
    ((40,), (4,)),
    ((19,), (18,)),
]
CASE = dict(
    learning_rate=1e-2,
    adam_beta1=0.9,
    adam_beta2=0.999,
    adam_epsilon=1e-8,
    weight_decay=0.01,
    max_grad_norm=1.0,
)
ROWS = 4
KEPT = [
    "model.embed_tokens.weight",
    "model.layers.0.self_attn.q_proj.weight",
    "model.layers.0.mlp.up_proj.weight",
    "model.layers.1.self_attn.o_proj.weight",
    "model.layers.1.mlp.down_proj.weight",
    "model.layers.1.input_layernorm.weight",
    "model.norm.weight",
    "lm_head.weight",
]


def microbatch(lengths, trained, vocab, seed):
    g = torch.Generator().manual_seed(seed)
    ids, pos, label, start = [], [], [], [0]
    for n, k in zip(lengths, trained):
        seq = torch.randint(3, vocab, (n,), generator=g)
        lab = torch.cat([seq[1:], torch.tensor([-100])])
        lab[: n - 1 - k] = -100
        ids.append(seq)
        pos.append(torch.arange(n))
        label.append(lab)
        start.append(start[-1] + n)
    i32 = lambda ts: torch.cat(ts).to(torch.int32)
    return dict(
        id=i32(ids), pos=i32(pos), label=i32(label), start=torch.tensor(start, dtype=torch.int32)
    )


def token_losses(model, b):
    """The sum of the token losses; each sequence on its own."""
    logits = []
    for a, z in zip(b["start"][:-1].tolist(), b["start"][1:].tolist()):
        logits.append(model(input_ids=b["id"][a:z].long()[None], use_cache=False).logits[0])
    return torch.nn.functional.cross_entropy(
        torch.cat(logits), b["label"].long(), ignore_index=-100, reduction="sum"
    )


def make(name):
    model = transformers.AutoModelForCausalLM.from_pretrained(
        os.path.join(MODELS, name), dtype=torch.float32, attn_implementation="eager"
    ).eval()
    batch = [
        microbatch(lengths, trained, model.config.vocab_size, 40 + i)
        for i, (lengths, trained) in enumerate(BATCH)
    ]
    counts = [int((b["label"] != -100).sum()) for b in batch]
    out = {f"m{i}.{k}": v for i, b in enumerate(batch) for k, v in b.items()}
    losses = []
    for b in batch:
        loss = token_losses(model, b)
        (loss / sum(counts)).backward()
        losses.append(loss.item())
    named = dict(model.named_parameters())
    kept = {k: named[k] for k in KEPT if k in named}
    out.update({"grad." + k: p.grad[:ROWS].clone() for k, p in kept.items()})
    norm = torch.nn.utils.clip_grad_norm_(model.parameters(), CASE["max_grad_norm"]).item()
    params = list(model.parameters())
    groups = [
        dict(params=[p for p in params if p.ndim >= 2], weight_decay=CASE["weight_decay"]),
        dict(params=[p for p in params if p.ndim < 2], weight_decay=0.0),
    ]
    torch.optim.AdamW(
        groups,
        lr=CASE["learning_rate"],
        betas=(CASE["adam_beta1"], CASE["adam_beta2"]),
        eps=CASE["adam_epsilon"],
    ).step()
    out.update({"step." + k: p.detach()[:ROWS].clone() for k, p in kept.items()})
    for k, v in (("loss", losses), ("trained", counts), ("grad_norm", [norm])):
        out[k] = torch.tensor(v, dtype=torch.float64)
    save_file(
        {k: v.contiguous() for k, v in out.items()},
        os.path.join(ROOT, f"expect-{name}.safetensors"),
    )
    print(f"{name}: {sum(counts)} trained tokens {counts}, norm {norm:.4f}")


def main():
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    os.makedirs(ROOT, exist_ok=True)
    for name in ("smollm2", "llama31"):
        make(name)
    with open(os.path.join(ROOT, "case.json"), "w", encoding="utf-8") as f:
        json.dump(CASE, f, indent=2)
        f.write("\n")
    with open(os.path.join(ROOT, "versions.txt"), "w", encoding="utf-8") as f:
        f.write("made by scripts/golden/groups.py with\n")
        for mod in (torch, transformers, safetensors):
            f.write(f"{mod.__name__} {mod.__version__}\n")
        f.write(f"python {sys.version.split()[0]}\n")


if __name__ == "__main__":
    main()
