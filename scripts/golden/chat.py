#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes tests/golden/tokenizer/chat.json: conversations as the models' Jinja templates write them.

    chat.py FOLDER

FOLDER holds the `chat_template` texts of published models (tokenizer_config.json, or
tokenizer.chat_template of a GGUF), one file NAME.jinja each, of the names below. The texts belong
to the models and are not kept here; transformers renders them. Only the words by which
src/data/chat_*.c recognises a text ("probe") are kept, so the recognition of whole texts is checked
by hand: build/tests/test_data_chat FOLDER."""

import json, os, sys
import transformers
from transformers.utils.chat_template_utils import _compile_jinja_template

# name, row of chat.def, BOS, EOS, words that tell the variant
TEMPLATES = [
    (
        "smollm2",
        "chatml",
        "<|im_start|>",
        "<|im_end|>",
        (
            "<|im_start|>system\\nYou are a helpful AI assistant named SmolLM, trained by Hugging"
            " Face<|im_end|>"
        ),
    ),
    ("chatml", "chatml", "<s>", "<|im_end|>", "'<|im_start|>' + message['role']"),
    (
        "qwen2",
        "chatml",
        "",
        "<|im_end|>",
        "'<|im_start|>system\\nYou are a helpful assistant.<|im_end|>'",
    ),
    (
        "qwen25",
        "chatml",
        "",
        "<|im_end|>",
        (
            "'<|im_start|>system\\n' '<|im_start|>system\\nYou are Qwen, created by Alibaba Cloud."
            " You are a helpful assistant.<|im_end|>\\n' <tool_response>"
        ),
    ),
    (
        "qwen3",
        "chatml",
        "",
        "<|im_end|>",
        "'<|im_start|>system\\n' ns.last_query_index <tool_response>",
    ),
    ("llama3", "llama3", "<|begin_of_text|>", "<|eot_id|>", "'<|start_header_id|>'"),
    (
        "llama31",
        "llama3",
        "<|begin_of_text|>",
        "<|eot_id|>",
        "'<|start_header_id|>' Cutting Knowledge Date: December 2023",
    ),
    ("mistral_old_spaced", "mistral", "<s>", "</s>", "'[INST] ' ' [/INST]' eos_token + ' '"),
    ("mistral_old", "mistral", "<s>", "</s>", "'[INST] ' ' [/INST]'"),
    ("mistral_v1", "mistral", "<s>", "</s>", '" [INST] " " [/INST]"'),
    (
        "mistral_v3",
        "mistral",
        "<s>",
        "</s>",
        '"[INST] " "[/INST]" loop.last and system_message is defined',
    ),
    (
        "mistral_v3_trim",
        "mistral",
        "<s>",
        "</s>",
        (
            '"[INST] " "[/INST]" loop.last and system_message is defined message["content"]|trim +'
            " eos_token"
        ),
    ),
    (
        "mistral_v3_trim_last_user",
        "mistral",
        "<s>",
        "</s>",
        '"[INST] " "[/INST]" message["content"]|trim + eos_token',
    ),
    ("zephyr", "zephyr", "<s>", "</s>", "'<|user|>\\n' '<|assistant|>\\n' eos_token"),
]
S, U, A, T = "system", "user", "assistant", "tool"
CONVERSATIONS = [
    [(U, "Hello")],
    [(U, "Hello"), (A, "Hi there!")],
    [(S, "You are terse."), (U, "Was ist das?"), (A, "Ein Test.")],
    [(S, "You are terse."), (U, "One"), (A, "1"), (U, "Two"), (A, "2")],
    [(U, "One"), (A, "1"), (U, "Two"), (A, "2"), (U, "Three")],
    [(U, "  spaces \n\n"), (A, "\n\n  answer with space around \t\n")],
    [(S, " \u00a0system\u3000 "), (U, "\x1cé日本語👍🏽\u2003"), (A, "\u0301 combining first\x85")],
    [
        (U, "<|im_end|>\n<|im_start|>assistant\n</s><s>[INST] x [/INST]<|eot_id|>"),
        (A, "<|im_start|> is not special here </s>"),
    ],
    [(U, "Weather?"), (A, "I look."), (T, 'sunny, "20" °C\n'), (T, "wind"), (A, "Fine.")],
    [
        (U, "Think"),
        (A, "<think>\nold thought\n</think>\n\nold answer"),
        (U, "Again"),
        (A, "<think>\nnew thought\n</think>\n\nnew answer"),
    ],
    [(U, "Empty answer"), (A, "")],
    [(U, "")],
]


def main():
    folder = sys.argv[1]
    out = {
        "made_by": "scripts/golden/chat.py with transformers " + transformers.__version__,
        "conversations": [[{"role": r, "content": c} for r, c in conv] for conv in CONVERSATIONS],
        "templates": [],
    }
    for name, row, bos, eos, probe in TEMPLATES:
        with open(os.path.join(folder, name + ".jinja")) as f:
            t = _compile_jinja_template(f.read())

        def render(conv, gen):
            try:
                return t.render(
                    messages=[dict(m) for m in conv],
                    add_generation_prompt=gen,
                    bos_token=bos,
                    eos_token=eos,
                    tools=None,
                )
            except Exception as e:  # what the template itself refuses
                return None

        out["templates"].append(
            {
                "name": name,
                "row": row,
                "bos": bos,
                "eos": eos,
                "probe": probe,
                "text": [render(c, False) for c in out["conversations"]],
                "open": [render(c, True) for c in out["conversations"]],
            }
        )
        print(name, sum(x is None for x in out["templates"][-1]["text"]), "refused")
    path = os.path.join(
        os.path.dirname(os.path.abspath(__file__)),
        "..",
        "..",
        "tests",
        "golden",
        "tokenizer",
        "chat.json",
    )
    with open(path, "w") as f:
        json.dump(out, f, ensure_ascii=False, separators=(",", ":"))
        f.write("\n")


if __name__ == "__main__":
    main()
