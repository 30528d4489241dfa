#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""peft_kinds.py [CASE ...] [--check FOLDER MODEL] - adapters as PEFT saves them, and what PyTorch
computes with them.

Writes tests/golden/peft/<case>/: adapter_config.json and adapter_model.safetensors by PEFT's
save_pretrained, and expect.safetensors: the batch as in models.py, the loss (1), and
grad.<parameter> of each trained parameter under the name that a stage has for it.

--check loads FOLDER with PEFT over MODEL and prints the loss of the same batch: what this program
wrote must be readable. Run it with the Python of models.py."""

import json
import os
import shutil
import sys

import models
import peft
import torch
from safetensors.torch import save_file

ROOT = os.path.join(models.ROOT, "..", "peft")
CASES = {
    "dora": dict(model="llama3", use_dora=True, target_modules="all-linear"),
    "dora-phi3": dict(model="phi3", use_dora=True, target_modules=["qkv_proj", "down_proj"]),
    "dora-bias": dict(model="llama-bias", use_dora=True, target_modules="all-linear"),
    "patterns": dict(
        model="llama3",
        target_modules=["q_proj", "v_proj", "down_proj"],
        rank_pattern={"q_proj": 5, "mlp.down_proj": 2},
        alpha_pattern={"q_proj": 3},
    ),
    "layers": dict(model="llama31", target_modules=["q_proj", "up_proj"], layers_to_transform=[1]),
    "whole": dict(
        model="llama31",
        target_modules=["q_proj"],
        modules_to_save=["embed_tokens", "lm_head"],
        use_rslora=True,
    ),
    # the head is the embedding: two copies are trained
    "whole-tied": dict(
        model="smollm2",
        target_modules=["q_proj"],
        modules_to_save=["embed_tokens", "lm_head"],
    ),
    "head-tied": dict(model="smollm2", target_modules=["v_proj"], modules_to_save=["lm_head"]),
}


def batch(model):
    return models.make_batch((13, 37), model.config.vocab_size, seed=7)


def loss_of(m, b):
    _, total, n = models.run(m, b)
    return total / n


def stage_name(name):
    name = name.removeprefix("base_model.model.").replace(".default", "")
    name = name.replace(".modules_to_save", "")
    return name.replace("lora_magnitude_vector.weight", "lora_magnitude_vector")


def make(case, row):
    row = dict(row)
    folder = os.path.join(ROOT, case)
    base = row.pop("model")
    model, config = models.build(base)
    models.save_model(base, model, config)  # build() wrote a fresh config.json
    cfg = peft.LoraConfig(r=3, lora_alpha=4.0, lora_dropout=0.0, task_type="CAUSAL_LM", **row)
    m = peft.get_peft_model(model, cfg).eval()
    g = torch.Generator().manual_seed(5)
    for name, p in sorted(m.named_parameters()):
        if not p.requires_grad:
            continue
        r = torch.randn(p.shape, generator=g)
        if "lora_magnitude" in name:
            p.data.mul_(1 + 0.2 * r)
        elif "lora_B" in name:
            p.data.copy_(0.2 * r)
        elif "modules_to_save" in name:
            p.data.add_(0.05 * r)
    b = batch(model)
    loss = loss_of(m, b)
    loss.backward()
    out = dict(b, loss=loss.detach().reshape(1))
    for name, p in m.named_parameters():
        if p.requires_grad:
            out["grad." + stage_name(name)] = p.grad.clone()
    m.save_pretrained(folder)
    config = json.load(open(os.path.join(folder, "adapter_config.json"), encoding="utf-8"))
    config["base_model_name_or_path"] = base
    config["target_modules"] = sorted(config["target_modules"])
    models.write_json(os.path.join(folder, "adapter_config.json"), config)
    readme = os.path.join(folder, "README.md")
    if os.path.exists(readme):
        os.remove(readme)
    save_file(
        {k: v.contiguous() for k, v in out.items()}, os.path.join(folder, "expect.safetensors")
    )
    print(f"{case}: loss {loss.item():.6f}, {sum(k.startswith('grad.') for k in out)} gradients")


def loftq():
    """What PEFT's LoftQ makes of the difference that NF4 leaves of some weights of llama31: the
    product of its two matrices, rank 4, and the share of the difference, in squares, that is left.
    """
    import bitsandbytes.functional as bnb
    from peft.utils.loftq_utils import _low_rank_decomposition

    model, _ = models.build("llama31")
    out = {}
    for name, w in model.named_parameters():
        if "layers.0." not in name or w.ndim != 2:
            continue
        w = w.detach().float()
        q, state = bnb.quantize_4bit(w.contiguous(), quant_type="nf4", compress_statistics=False)
        d = w - bnb.dequantize_4bit(q, state).float()
        parts = _low_rank_decomposition(d, reduced_rank=4)
        product = parts["L"] @ parts["R"]
        out["product." + name] = product.contiguous()
        left = ((d - product).double() ** 2).sum() / (d.double() ** 2).sum()
        out["left." + name] = left.reshape(1)
        print(f"{name} {tuple(w.shape)}: {left.item():.6f} of the difference is left")
    os.makedirs(os.path.join(ROOT, "loftq"), exist_ok=True)
    save_file(out, os.path.join(ROOT, "loftq", "expect.safetensors"))


def pissa():
    """PEFT's first adapters and base of init_lora_weights: pissa, of some weights of llama31 in
    float32: the product s B A, the base that is left, and its share of the squares."""
    model, _ = models.build("llama31")
    model = model.float()
    before = {n: w.detach().clone() for n, w in model.named_parameters()}
    m = peft.get_peft_model(
        model,
        peft.LoraConfig(
            r=4,
            lora_alpha=14,
            init_lora_weights="pissa",
            target_modules=["q_proj", "v_proj", "up_proj", "down_proj"],
        ),
    )
    out = {}
    for name, layer in m.named_modules():
        if not hasattr(layer, "lora_A") or ".layers.0." not in name:
            continue
        name = name.removeprefix("base_model.model.") + ".weight"
        s = layer.scaling["default"]
        product = s * layer.lora_B["default"].weight @ layer.lora_A["default"].weight
        base = layer.base_layer.weight.detach()
        out["product." + name] = product.detach().contiguous()
        out["base." + name] = base.contiguous()
        left = (base.double() ** 2).sum() / (before[name].double() ** 2).sum()
        out["left." + name] = left.reshape(1)
        print(f"{name} {tuple(base.shape)}, scale {s}: {left.item():.6f} is left")
    os.makedirs(os.path.join(ROOT, "pissa"), exist_ok=True)
    save_file(out, os.path.join(ROOT, "pissa", "expect.safetensors"))


def check(folder, model):
    m, _ = models.build(model)
    m = peft.PeftModel.from_pretrained(m, folder).eval()
    print(f"loss {loss_of(m, batch(m)).item():.7f}")


def main():
    torch.set_num_threads(1)
    if len(sys.argv) > 3 and sys.argv[1] == "--check":
        check(sys.argv[2], sys.argv[3])
        return
    if "loftq" in sys.argv[1:] or not sys.argv[1:]:
        loftq()
    if "pissa" in sys.argv[1:] or not sys.argv[1:]:
        pissa()
    for case in sys.argv[1:] or CASES:
        if case in ("loftq", "pissa"):
            continue
        shutil.rmtree(os.path.join(ROOT, case), ignore_errors=True)
        make(case, CASES[case])


if __name__ == "__main__":
    main()
