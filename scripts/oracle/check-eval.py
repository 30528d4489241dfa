#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""check-eval.py MODEL DATA: the loss of `heteroshard eval` against transformers, for a folder or a
.gguf file.

    scripts/oracle/check-eval.py models/SmolLM2-135M-Instruct.Q4_1.gguf examples/homelab.jsonl"""

import argparse
import sys

import common


def main():
    a = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    a.add_argument("model")
    a.add_argument("data")
    a.add_argument("--binary", default="build/heteroshard")
    a.add_argument("--most", type=float, default=1e-4, help="largest relative difference")
    a.add_argument(
        "--system",
        default=common.SMOLLM2_SYSTEM,
        help="default system message of the chat template",
    )
    o, extra = a.parse_known_args()
    ours = common.heteroshard(
        o.binary, "eval", o.model, "--data", o.data, "--compute-dtype", "float32", *extra
    )
    theirs, tokens, examples = common.mean_loss(
        common.load_model(o.model), common.load_tokenizer(o.model), o.data, default_system=o.system
    )
    print(f"reference: {examples} examples, {tokens} trained tokens; heteroshard: {ours}")
    sys.exit(not common.report("loss", ours["loss"], theirs, o.most))


if __name__ == "__main__":
    main()
