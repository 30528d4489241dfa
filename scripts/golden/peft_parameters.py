#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""peft_parameters.py - adapters as PEFT writes them with `target_parameters`, on the fused experts
and the routers of the tiny mixtures of tests/golden/models.

Writes tests/golden/peft-parameters/<model>/: adapter_config.json and adapter_model.safetensors as
PEFT saved them, and expect.safetensors with what PEFT adds to the weights of an expert, float32:
  delta.<layer>.<expert>.gate, .up, .down; delta.<layer>.router          (out, in)
Needs torch, transformers, peft, safetensors; made with the versions in
tests/golden/models/versions-families.txt."""

import os
import shutil

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import peft
import torch
import transformers
from safetensors.torch import save_file

HERE = os.path.dirname(os.path.abspath(__file__))
GOLDEN = os.path.join(HERE, "..", "..", "tests", "golden")
# rank_pattern: another rank for the largest parameter
MODELS = {
    "gpt-oss-bf16": dict(router="mlp.router.weight", rank_pattern={"mlp.experts.gate_up_proj": 3}),
    "mixtral": dict(router="mlp.gate.weight", rank_pattern={}),
    "glm4-moe": dict(router="mlp.gate.weight", rank_pattern={}),
    "gemma4-moe": dict(
        router="router.proj.weight", experts="experts", rank_pattern={}
    ),
}
EXPERTS = (0, 3)


def wrappers(model, layer):
    """{name of the parameter: its wrapper}"""
    out = {}
    for name, m in model.named_modules():
        if f".layers.{layer}." in name and isinstance(m, peft.tuners.lora.layer.ParamWrapper):
            kind = "router" if m.parameter_name == "weight" else m.parameter_name
            out[kind] = m
    return out


def main():
    for name, how in MODELS.items():
        torch.manual_seed(5)
        out = os.path.join(GOLDEN, "peft-parameters", name)
        shutil.rmtree(out, ignore_errors=True)
        model = transformers.AutoModelForCausalLM.from_pretrained(
            os.path.join(GOLDEN, "models", name), dtype=torch.float32
        )
        c = peft.LoraConfig(
            r=2,
            lora_alpha=3,
            target_modules=["q_proj"],
            target_parameters=[how.get("experts", "mlp.experts") + ".gate_up_proj",
                how.get("experts", "mlp.experts") + ".down_proj", how["router"]],
            rank_pattern=how["rank_pattern"],
            task_type="CAUSAL_LM",
        )
        tuned = peft.get_peft_model(model, c)
        for k, p in tuned.named_parameters():
            if "lora_" in k:
                p.data = torch.randn_like(p) * 0.3
        tuned.save_pretrained(out)
        os.remove(os.path.join(out, "README.md"))
        path = os.path.join(out, "adapter_config.json")
        text = open(path, encoding="utf-8").read().replace(os.path.abspath(GOLDEN), "..")
        open(path, "w", encoding="utf-8").write(text)
        want = {}
        for layer in range(model.config.num_hidden_layers):
            w = wrappers(tuned, layer)
            if not w:
                continue
            up = w["gate_up_proj"].get_delta_weight("default").detach()
            down = w["down_proj"].get_delta_weight("default").detach()
            if name.startswith("gpt-oss"):  # (E, in, out), gate and up row by row
                up, down = up.transpose(1, 2), down.transpose(1, 2)
                gate, up = up[:, ::2], up[:, 1::2]
            else:
                gate, up = up.chunk(2, 1)
            for x in EXPERTS:
                for part, v in (("gate", gate), ("up", up), ("down", down)):
                    want[f"delta.{layer}.{x}.{part}"] = v[x].contiguous()
            want[f"delta.{layer}.router"] = (
                w["router"].get_delta_weight("default").detach().contiguous()
            )
        save_file(want, os.path.join(out, "expect.safetensors"))
        print(name, sorted(k for k, _ in tuned.named_parameters() if "lora_" in k)[:8])


if __name__ == "__main__":
    main()
