#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""check-axolotl.py FOLDER: which of axolotl's example configurations (FOLDER is its `examples` at
the commit that docs/axolotl.md names) train two steps here, each with a tiny random model of its
family and records of this repository. Prints a line for each; status 1 when one of them does other
than the page says.

    scripts/oracle/check-axolotl.py axolotl/examples [--program build/heteroshard]
"""

import argparse
import itertools
import json
import os
import subprocess
import sys
import tempfile

import torch
from transformers import AutoConfig, AutoModelForCausalLM

GOLDEN = "tests/golden/models"
SPECIAL = ("<|begin_of_text|>", "<|end_of_text|>", "<|eot_id|>", "<s>", "</s>")
SFT = ("examples/homelab.jsonl", "alpaca")
PAIRS = ("examples/preferences.jsonl", "chatml.intel")
LABELS = ("examples/judged.jsonl", "chatml.prompt_pairs")
# file, family, data, what the page says of those that are refused
EXAMPLES = [
    ("llama-2/qlora.yml", "llama2", SFT, ""),
    ("llama-2/qlora-fsdp.yml", "llama2", SFT, ""),
    ("llama-2/fft_optimized.yml", "llama2", SFT, ""),
    ("llama-3/lora-1b.yml", "llama3", SFT, ""),
    ("llama-3/lora-1b-kernels.yml", "llama3", SFT, ""),
    ("llama-3/qlora-1b.yml", "llama3", SFT, ""),
    ("llama-3/qlora-fsdp-70b.yaml", "llama3", SFT, ""),
    ("llama-3/fft-8b.yaml", "llama3", SFT, ""),
    ("mistral/config.yml", "mistral", SFT, ""),
    ("qwen2/qlora-fsdp.yaml", "qwen2", SFT, ""),
    ("qwen3/qlora-fsdp.yaml", "qwen3", SFT, ""),
    ("archived/tiny-llama/qlora.yml", "tinyllama", SFT, ""),
    ("llama-3/lora-8b.yml", "llama3", SFT, "load_in_8bit"),
    ("llama-3/instruct-lora-8b.yml", "llama3", SFT, "load_in_8bit"),
    ("llama-3/lora-1b-deduplicate-sft.yml", "llama3", SFT, "dataset_exact_deduplication"),
    ("llama-3/fft-8b-liger-fsdp.yaml", "llama3", SFT, ""),
    ("llama-2/loftq.yml", "llama2", SFT, "'peft'"),
    ("mistral/lora.yml", "mistral", SFT, "load_in_8bit"),
    ("mistral/qlora.yml", "mistral", SFT, ""),
    ("gemma3/gemma-3-1b-qlora.yml", "gemma3", SFT, "unfrozen_parameters"),
    ("llama-3/qlora-1b-kto.yaml", "llama3", LABELS, ""),
    ("mistral/orpo/mistral-qlora-orpo.yml", "mistral", PAIRS, ""),
    ("qwen2/dpo.yaml", "qwen2", PAIRS, ""),
    ("mistral/dpo/mistral-dpo-qlora.yml", "mistral", PAIRS, ""),
]


def make_model(family, out):
    """A random model of the golden one's shape, for a tokenizer of 274 tokens, with the positions
    that the examples ask for."""
    c = AutoConfig.from_pretrained(f"{GOLDEN}/{family}")
    c.vocab_size, c.max_position_embeddings, c.dtype = 300, 32768, "float32"
    torch.manual_seed(1)
    AutoModelForCausalLM.from_config(c).float().save_pretrained(out)
    with open(f"{GOLDEN}/smollm2/tokenizer.json") as f:
        t = json.load(f)
    n = len(t["model"]["vocab"])
    plain = dict(single_word=False, lstrip=False, rstrip=False, normalized=False, special=True)
    t["added_tokens"] += [dict(plain, id=n + k, content=s) for k, s in enumerate(SPECIAL)]
    eos = dict(tokenizer_class="PreTrainedTokenizerFast", eos_token="<|endoftext|>")
    for name, value in ("tokenizer.json", t), ("tokenizer_config.json", eos):
        with open(f"{out}/{name}", "w") as f:
            json.dump(value, f)


def train(program, file, model, data, kind, out):
    program, file = os.path.abspath(program), os.path.abspath(file)
    over = [f"base_model={model}", f"datasets=[{{path: {data}, type: {kind}}}]"]
    over += [f"output_dir={out}", "max_steps=2", "device=cpu", "chat_template=plain"]
    x = subprocess.run(
        [program, "train", file, *over, "profile=none"],
        capture_output=True,
        text=True,
        cwd=os.path.dirname(out),
    )
    error = [line for line in x.stderr.splitlines() if line.startswith("error: ")]
    return x.returncode, error[0] if error else ""


def main():
    a = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    a.add_argument("folder")
    a.add_argument("--program", default="build/heteroshard")
    o = a.parse_args()
    wrong = trained = 0
    with tempfile.TemporaryDirectory() as tmp:
        for n, (file, family, (data, kind), refused) in enumerate(EXAMPLES):
            model, short = f"{tmp}/{family}", f"{tmp}/{os.path.basename(data)}"
            if not os.path.exists(model):
                make_model(family, model)
            with open(data) as f, open(short, "w") as out:
                out.writelines(itertools.islice(f, 60))
            status, error = train(o.program, f"{o.folder}/{file}", model, short, kind, f"{tmp}/{n}")
            as_said = refused in error if refused and status == 2 else not refused and not status
            print(f"{'ok  ' if as_said else 'FAIL'}  {file}: {error or 'trains'}", flush=True)
            wrong += not as_said
            trained += status == 0
    print(f"{trained} of {len(EXAMPLES)} train")
    return wrong > 0


if __name__ == "__main__":
    sys.exit(main())
