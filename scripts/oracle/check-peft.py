#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""check-peft.py MODEL ADAPTER DATA: PEFT loads the adapter as it is and gives the loss that
`heteroshard eval --adapter` gives.

    scripts/oracle/check-peft.py models/SmolLM2-135M-Instruct.Q4_1.gguf demo-run
        examples/homelab.jsonl [--four-bit]"""

import argparse
import sys

import common


def main():
    a = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    a.add_argument("model")
    a.add_argument("adapter")
    a.add_argument("data")
    a.add_argument("--binary", default="build/heteroshard")
    a.add_argument("--four-bit", action="store_true", help="the base in NF4 on both sides")
    a.add_argument(
        "--double-quant", action="store_true", help="with --four-bit: double quantisation"
    )
    a.add_argument("--most", type=float, default=1e-4, help="largest relative difference")
    a.add_argument(
        "--system",
        default=common.SMOLLM2_SYSTEM,
        help="default system message of the chat template",
    )
    o, extra = a.parse_known_args()
    extra += ["--load-in-4bit"] * o.four_bit + ["--double-quant"] * o.double_quant
    ours = common.heteroshard(
        o.binary,
        "eval",
        o.model,
        "--adapter",
        o.adapter,
        "--data",
        o.data,
        "--compute-dtype",
        "float32",
        *extra,
    )
    model = common.load_model(o.model, o.adapter, o.four_bit, o.double_quant)
    parts = {n for n, _ in model.named_parameters() if ".lora_" in n}
    zero = sum(1 for n, p in model.named_parameters() if ".lora_B." in n and not p.any())
    theirs, tokens, examples = common.mean_loss(
        model, common.load_tokenizer(o.model), o.data, default_system=o.system
    )
    with model.disable_adapter():
        base, _, _ = common.mean_loss(
            model, common.load_tokenizer(o.model), o.data, default_system=o.system
        )
    print(
        f"PEFT: {len(parts)} adapter matrices ({zero} B still zero), {examples} examples, {tokens}"
        f" trained tokens, loss {base:.6f} without the adapter; heteroshard: {ours}"
    )
    sys.exit(not common.report("loss with adapter", ours["loss"], theirs, o.most))


if __name__ == "__main__":
    main()
