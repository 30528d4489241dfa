#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""vision.py [NAME...] - folders whose model also has a part for pictures, made around tiny language
models that models.py has made: tests/golden/models/*-vision, all or these.

Tensors are named as in files of the hub. Checked here: transformers computes from each folder and a
text what it computes from the language model alone, so expect.safetensors of that one holds. Needs
what models.py needs."""

import json
import os
import sys

import torch
import transformers
from safetensors.torch import load_file, save_file

import models

SIGLIP = dict(
    model_type="siglip_vision_model",
    hidden_size=16,
    intermediate_size=24,
    num_hidden_layers=1,
    num_attention_heads=2,
    image_size=8,
    patch_size=4,
)
GEMMA4 = dict(hidden_size=16, intermediate_size=24, num_hidden_layers=1, num_attention_heads=2)
GEMMA4 |= dict(num_key_value_heads=2, head_dim=8, patch_size=4, position_embedding_size=16)
PIXTRAL = dict(SIGLIP, model_type="pixtral", head_dim=8)
QWEN = dict(depth=1, hidden_size=16, intermediate_size=24, num_heads=2, patch_size=4)
QWEN |= dict(out_hidden_size=48, num_position_embeddings=4, deepstack_visual_indexes=[0])
QWEN2 = dict(depth=1, hidden_size=48, intermediate_size=24, num_heads=2, patch_size=4)
QWEN2 |= dict(out_hidden_size=48, fullatt_block_indexes=[0])
QWEN35 = {k: v for k, v in QWEN.items() if k != "deepstack_visual_indexes"}
# name, language model, the whole model's type and class, what else its configuration has
FOLDERS = (
    (
        "gemma3-vision",
        "gemma3",
        "gemma3",
        transformers.Gemma3ForConditionalGeneration,
        dict(vision_config=SIGLIP, mm_tokens_per_image=4, image_token_index=120)
        | dict(boi_token_index=121, eoi_token_index=122, eos_token_id=[2, 3]),
    ),
    (
        "gemma4-vision",
        "gemma4",
        "gemma4",
        transformers.Gemma4ForConditionalGeneration,
        dict(vision_config=GEMMA4, audio_config=None, image_token_id=120, boi_token_id=121)
        | dict(eoi_token_id=122, video_token_id=123, eos_token_id=[2, 3]),
    ),
    (
        "mistral-vision",
        "mistral-full",
        "mistral3",
        transformers.Mistral3ForConditionalGeneration,
        dict(vision_config=PIXTRAL, image_token_index=10, spatial_merge_size=2)
        | dict(projector_hidden_act="gelu", multimodal_projector_bias=False),
    ),
    (
        "qwen2_5-vision",
        "qwen2",
        "qwen2_5_vl",
        transformers.Qwen2_5_VLForConditionalGeneration,
        dict(vision_config=QWEN2, image_token_id=120, video_token_id=121)
        | dict(vision_start_token_id=122, vision_end_token_id=123, vision_token_id=124),
    ),
    (
        "qwen3-vision",
        "qwen3",
        "qwen3_vl",
        transformers.Qwen3VLForConditionalGeneration,
        dict(vision_config=QWEN, image_token_id=120, video_token_id=121)
        | dict(vision_start_token_id=122, vision_end_token_id=123),
    ),
    (
        "qwen3-moe-vision",
        "qwen3-moe-narrow",
        "qwen3_vl_moe",
        transformers.Qwen3VLMoeForConditionalGeneration,
        dict(vision_config=QWEN, image_token_id=120, video_token_id=121)
        | dict(vision_start_token_id=122, vision_end_token_id=123),
    ),
    (
        "qwen3_5-vision",
        "qwen3_5",
        "qwen3_5",
        transformers.Qwen3_5ForConditionalGeneration,
        dict(vision_config=QWEN35, image_token_id=120, video_token_id=121)
        | dict(vision_start_token_id=122, vision_end_token_id=123),
    ),
    (
        "qwen3_5-moe-vision",
        "qwen3_5-moe",
        "qwen3_5_moe",
        transformers.Qwen3_5MoeForConditionalGeneration,
        dict(vision_config=QWEN35, image_token_id=120, video_token_id=121)
        | dict(vision_start_token_id=122, vision_end_token_id=123),
    ),
)
OF_TEXT = ("architectures", "torch_dtype", "dtype", "bos_token_id", "eos_token_id")
WINDOW = ("use_sliding_window", "sliding_window", "max_window_layers")


def joined(weights, config):
    """The experts of a layer in one tensor: in layer 0 by columns, as in files of the hub, in the
    others by rows, as transformers 5 writes them."""
    out = {k: v for k, v in weights.items() if ".mlp.experts." not in k}
    for i in range(config["num_hidden_layers"]):
        before = f"model.layers.{i}.mlp.experts."
        each = {}
        for k in ("gate_proj", "up_proj", "down_proj"):
            all_of = [weights[f"{before}{x}.{k}.weight"] for x in range(config["num_experts"])]
            each[k] = torch.stack(all_of)
        gate_up = torch.cat([each["gate_proj"], each["up_proj"]], 1)
        for k, v in (("gate_up_proj", gate_up), ("down_proj", each["down_proj"])):
            out[before + k] = v if i else v.transpose(1, 2).contiguous()
    return out


def main():
    torch.manual_seed(1)
    for name, source, kind, cls, more in FOLDERS:
        if len(sys.argv) > 1 and name not in sys.argv[1:]:
            continue
        text = json.load(open(models.path(source, "config.json"), encoding="utf-8"))
        weights = load_file(models.path(source, "model.safetensors"))
        config = dict(architectures=[cls.__name__], model_type=kind, torch_dtype="bfloat16")
        text = {k: v for k, v in text.items() if k not in OF_TEXT}
        tied = text.get("tie_word_embeddings", False)
        qwen = kind.startswith("qwen3")
        if qwen:  # names as transformers 5 has them
            text["model_type"] = kind + "_text"
            sections = dict(qwen3_vl=[4, 3, 3], qwen3_vl_moe=[4, 2, 2]).get(kind, [2, 1, 1])
            key = "rope_parameters" if "rope_parameters" in text else "rope_scaling"
            text[key] = text.get(key) or {}
            text[key] |= dict(mrope_section=sections, mrope_interleaved=True)
            more = dict(more, tie_word_embeddings=tied)
        if kind == "qwen3_vl_moe":
            weights = joined(weights, text)
            text["rope_scaling"]["rope_type"] = "default"  # beside rope_theta, as on the hub
            text = {k: v for k, v in text.items() if k not in WINDOW}
        if kind == "qwen2_5_vl":  # as on the hub
            text["rope_scaling"] = dict(type="mrope", mrope_section=[2, 2, 2])
            config |= text | dict(model_type=kind) | more
        else:
            config |= dict(text_config=text) | more
        folder = models.path(name, "")
        models.write_json(os.path.join(folder, "config.json"), config)
        whole = cls(transformers.AutoConfig.from_pretrained(folder))
        state = {}
        before = "model." if qwen or kind == "gemma4" else ""
        flat = kind == "qwen2_5_vl"
        for k, v in whole.state_dict().items():
            k = k.removeprefix("model.")
            if not k.startswith(("language_model.", "lm_head.")):
                state[before + k] = (torch.randn_like(v.float()) * 0.1).to(torch.bfloat16)
        for k, v in weights.items():
            if before and k.startswith("model."):
                k = k.replace("model.", "model.language_model.", 1)
            state[k if before or flat else "language_model." + k] = v
        if kind.startswith("qwen3_5"):  # a layer that predicts one token more, not read
            state["mtp.fc.weight"] = torch.ones(48, 96, dtype=torch.bfloat16)
            state["mtp.layers.0.input_layernorm.weight"] = torch.ones(48, dtype=torch.bfloat16)
        if kind == "qwen3_5_moe":
            for k, shape in (("gate_up_proj", (6, 48, 48)), ("down_proj", (6, 48, 24))):
                k = "mtp.layers.0.mlp.experts." + k
                state[k] = torch.ones(shape, dtype=torch.bfloat16)
        save_file(state, os.path.join(folder, "model.safetensors"), metadata={"format": "pt"})
        ids = torch.arange(3, 60)[None]
        with torch.no_grad():
            got, want = (
                c.from_pretrained(
                    models.path(f, ""), dtype=torch.float32, attn_implementation="eager"
                )
                .eval()(ids)
                .logits
                for f, c in ((name, cls), (source, transformers.AutoModelForCausalLM))
            )
        off = (got - want).abs().max().item()
        print(f"{name}: {len(state)} tensors, logits beside {source}: {off:.1e}")
        assert off < 1e-5


if __name__ == "__main__":
    main()
