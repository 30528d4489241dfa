#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""check-vision.py [PROGRAM]: the language model of a folder that has a model for pictures too.

For Gemma 3 and 4 (dense, with experts), Mistral Small 3.1, Ministral 3, Qwen2.5-VL, Qwen3-VL and
Qwen3.5 (both dense and with experts) a small random model is made and saved by transformers. A
run's adapter (that of experts as `merge --adapter-only` writes it) must load into the whole model
by PEFT, in the language model only, and change its logits as `heteroshard merge` changes those of
the language model alone; an adapter that PEFT made for the whole model must be merged likewise.
Needs torch, transformers and peft; the tokenizer is the one of tests/golden/models/smollm2."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import warnings

import peft
import torch
import transformers

TOKENIZER = os.path.join(os.path.dirname(__file__), "../../tests/golden/models/smollm2")
PICTURES = dict(hidden_size=16, intermediate_size=24, num_hidden_layers=1, num_attention_heads=2)
PICTURES |= dict(image_size=8, patch_size=4)
TEXT = dict(vocab_size=272, hidden_size=48, intermediate_size=64, num_hidden_layers=3, head_dim=16)
TEXT |= dict(num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=256)
TEXT |= dict(bos_token_id=1, eos_token_id=2, pad_token_id=0)
IDS = torch.arange(3, 70)[None]


def gemma():
    text = dict(TEXT, model_type="gemma3_text", sliding_window=16, query_pre_attn_scalar=16)
    c = transformers.Gemma3Config(
        text_config=text,
        vision_config=dict(PICTURES, model_type="siglip_vision_model"),
        mm_tokens_per_image=4,
        image_token_index=270,
        boi_token_index=268,
        eoi_token_index=269,
    )
    return transformers.Gemma3ForConditionalGeneration, c


def gemma4(**more):
    text = dict(TEXT, model_type="gemma4_text", sliding_window=16, global_head_dim=24)
    text |= dict(attention_k_eq_v=True, num_global_key_value_heads=1, num_kv_shared_layers=0)
    text |= dict(hidden_size_per_layer_input=0, final_logit_softcapping=30.0)
    vision = dict(hidden_size=16, intermediate_size=24, num_hidden_layers=1, head_dim=8)
    vision |= dict(num_attention_heads=2, num_key_value_heads=2, position_embedding_size=16)
    c = transformers.Gemma4Config(
        text_config=text
        | dict(layer_types=["sliding_attention", "full_attention", "full_attention"])
        | more,
        vision_config=vision,
        audio_config=None,
        image_token_id=270,
        video_token_id=271,
        boi_token_id=268,
        eoi_token_id=269,
    )
    return transformers.Gemma4ForConditionalGeneration, c


def gemma4_moe():
    more = dict(enable_moe_block=True, num_experts=5, top_k_experts=2)
    return gemma4(**more, moe_intermediate_size=24)


def mistral(kind="mistral", **more):
    c = transformers.Mistral3Config(
        text_config=dict(TEXT, model_type=kind, sliding_window=None, tie_word_embeddings=False)
        | more,
        vision_config=dict(PICTURES, model_type="pixtral", head_dim=8),
        image_token_index=270,
        spatial_merge_size=2,
        tie_word_embeddings=False,
    )
    return transformers.Mistral3ForConditionalGeneration, c


def ministral():
    rope = dict(rope_type="yarn", rope_theta=1e6, factor=2.0, original_max_position_embeddings=128)
    rope |= dict(mscale=1.0, mscale_all_dim=1.0, llama_4_scaling_beta=0.1)
    return mistral("ministral3", rope_parameters=rope)


def qwen():
    rope = dict(rope_type="default", rope_theta=1e6, mrope_section=[4, 2, 2])
    c = transformers.Qwen3VLConfig(
        text_config=dict(TEXT, model_type="qwen3_vl_text", rope_parameters=rope),
        vision_config=dict(depth=1, hidden_size=16, intermediate_size=24, num_heads=2)
        | dict(patch_size=4, out_hidden_size=48, num_position_embeddings=4)
        | dict(deepstack_visual_indexes=[0]),
        image_token_id=268,
        video_token_id=269,
        vision_start_token_id=270,
        vision_end_token_id=271,
        tie_word_embeddings=True,
    )
    return transformers.Qwen3VLForConditionalGeneration, c


def qwen_moe():
    rope = dict(rope_type="default", rope_theta=1e6, mrope_section=[4, 2, 2])
    text = dict(TEXT, model_type="qwen3_vl_moe_text", num_experts=5, num_experts_per_tok=2)
    c = transformers.Qwen3VLMoeConfig(
        text_config=dict(text, moe_intermediate_size=20, rope_parameters=rope),
        vision_config=dict(depth=1, hidden_size=16, intermediate_size=24, num_heads=2)
        | dict(patch_size=4, out_hidden_size=48, num_position_embeddings=4)
        | dict(deepstack_visual_indexes=[0]),
        image_token_id=268,
        video_token_id=269,
        vision_start_token_id=270,
        vision_end_token_id=271,
    )
    return transformers.Qwen3VLMoeForConditionalGeneration, c


def qwen2():
    rope = dict(rope_type="default", rope_theta=1e6, mrope_section=[2, 2, 2])
    c = transformers.Qwen2_5_VLConfig(
        text_config={k: v for k, v in TEXT.items() if k != "head_dim"} | dict(rope_parameters=rope),
        vision_config=dict(depth=1, hidden_size=48, intermediate_size=24, num_heads=2)
        | dict(patch_size=4, out_hidden_size=48, fullatt_block_indexes=[0]),
        image_token_id=268,
        video_token_id=269,
        vision_start_token_id=270,
        vision_end_token_id=271,
        tie_word_embeddings=True,
    )
    return transformers.Qwen2_5_VLForConditionalGeneration, c


def qwen35(moe=False):
    rope = dict(rope_type="default", rope_theta=1e6, mrope_section=[2, 1, 1])
    linear = dict(linear_key_head_dim=12, linear_value_head_dim=10, linear_num_key_heads=2)
    text = dict(TEXT, model_type="qwen3_5_text", num_hidden_layers=4)
    if moe:
        text |= dict(model_type="qwen3_5_moe_text", num_experts=5, num_experts_per_tok=2)
        text |= dict(moe_intermediate_size=24, shared_expert_intermediate_size=20)
        del text["intermediate_size"]
    kind = "Qwen3_5Moe" if moe else "Qwen3_5"
    c = getattr(transformers, kind + "Config")(
        text_config=text
        | dict(linear, linear_num_value_heads=4)
        | dict(rope_parameters=rope | dict(partial_rotary_factor=0.5)),
        vision_config=dict(depth=1, hidden_size=16, intermediate_size=24, num_heads=2)
        | dict(patch_size=4, out_hidden_size=48, num_position_embeddings=4),
        image_token_id=268,
        video_token_id=269,
        vision_start_token_id=270,
        vision_end_token_id=271,
        tie_word_embeddings=True,
    )
    return getattr(transformers, kind + "ForConditionalGeneration"), c


def qwen35_moe():
    return qwen35(True)


MODELS = (gemma, gemma4, gemma4_moe, mistral, ministral, qwen2, qwen, qwen_moe, qwen35, qwen35_moe)


def logits(model):
    with torch.no_grad():
        return model.float().eval()(IDS).logits


def merged(program, base, adapter, out):
    merge = [program, "merge", "-q", base, adapter, out, "--type", "f32"]
    subprocess.run(merge, check=True, stdout=subprocess.DEVNULL)
    return logits(transformers.AutoModelForCausalLM.from_pretrained(out, dtype=torch.float32))


def main():
    program = sys.argv[1] if len(sys.argv) > 1 else "build/heteroshard"
    bad = 0
    for make in MODELS:
        torch.manual_seed(0)
        cls, c = make()
        model = cls(c).float()
        for p in model.parameters():
            one = p.ndim == 1 and make not in (gemma, qwen35, qwen35_moe)
            p.data = torch.randn_like(p) * (0.15 if p.ndim > 1 else 0.1) + one
        for n, b in model.named_buffers():
            if n.endswith("layer_scalar"):
                b.fill_(0.875)
        with tempfile.TemporaryDirectory() as d:
            base, run, own = d + "/base", d + "/run", d + "/peft"
            model.save_pretrained(base)
            for f in ("tokenizer.json", "tokenizer_config.json"):
                shutil.copy(os.path.join(TOKENIZER, f), base)
            with open(d + "/data.jsonl", "w", encoding="utf-8") as f:
                for word in ("card", "link", "worker", "plan"):
                    f.write(json.dumps(dict(prompt=f"What is a {word}?", completion="This.")))
                    f.write("\n")
            keys = ["adapter=lora", "lora_target_linear=true", "lora_r=4", "max_steps=4"]
            keys += ["learning_rate=0.02", "sequence_len=64", "gradient_accumulation_steps=2"]
            with open(d + "/run.yaml", "w", encoding="utf-8") as f:
                f.write(f"base_model: {base}\ndatasets: {d}/data.jsonl\noutput_dir: {run}\n")
            subprocess.run([program, "train", "-q", d + "/run.yaml"] + keys, check=True)
            mine = run
            if make in (gemma4_moe, qwen_moe, qwen35_moe):
                mine = d + "/joined"
                join = [program, "merge", "-q", base, run, mine, "--adapter-only"]
                subprocess.run(join, check=True, stdout=subprocess.DEVNULL)
            plain = logits(cls.from_pretrained(base, dtype=torch.float32))
            with warnings.catch_warnings():
                warnings.filterwarnings("error", message=".*(missing|unexpected).*")
                whole = peft.PeftModel.from_pretrained(
                    cls.from_pretrained(base, dtype=torch.float32), mine
                )
            outside = [n for n, _ in whole.named_parameters() if "lora_A" in n]
            outside = [n for n in outside if "language_model" not in n]
            want = logits(whole)
            off = (merged(program, base, run, d + "/a") - want).abs().max().item()
            theirs = peft.get_peft_model(
                cls.from_pretrained(base, dtype=torch.float32),
                peft.LoraConfig(r=4, target_modules=r".*language_model.*\.(q_proj|down_proj)"),
            )
            for n, p in theirs.named_parameters():
                if "lora_" in n:
                    p.data = torch.randn_like(p) * 0.1
            theirs.save_pretrained(own)
            back = (merged(program, base, own, d + "/b") - logits(theirs)).abs().max().item()
        good = not outside and (want - plain).abs().max() > 0.1 and off < 1e-4 and back < 1e-4
        bad += not good
        print(
            f"{make.__name__}: PEFT's and merge's logits within {off:.1e}, for an adapter of "
            f"PEFT {back:.1e}  {'ok' if good else 'WRONG'}"
        )
    sys.exit(bad > 0)


if __name__ == "__main__":
    main()
