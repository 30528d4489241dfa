#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""check-merge.py MODEL ADAPTER MERGED: what `heteroshard merge` wrote loads in transformers and
computes what base + adapter computes.

    scripts/oracle/check-merge.py MODEL.gguf ADAPTER MERGED [--rounding float16]
        [--four-bit --double-quant]

MERGED is a folder or a .gguf file. Its weights are usually rounded: with --rounding the merged
matrices of the reference are rounded in the same way first. For Q8_0 there is no such option; give
a larger --most."""

import argparse
import sys

import torch

import common


@torch.no_grad()
def logits(model, ids):
    return torch.cat([model(input_ids=x[None], use_cache=False).logits[0] for x in ids])


def main():
    a = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    a.add_argument("model")
    a.add_argument("adapter")
    a.add_argument("merged")
    a.add_argument(
        "--four-bit", action="store_true", help="MERGED stands on the dequantised NF4 base"
    )
    a.add_argument(
        "--double-quant", action="store_true", help="with --four-bit: double quantisation"
    )
    a.add_argument(
        "--rounding",
        choices=["none", "bfloat16", "float16"],
        default="none",
        help="how MERGED's matrices are stored",
    )
    a.add_argument(
        "--most",
        type=float,
        default=1e-3,
        help="largest difference of a logit, as a share of the largest logit",
    )
    o = a.parse_args()
    generator = torch.Generator().manual_seed(1)
    base = common.load_model(o.model, o.adapter, o.four_bit, o.double_quant).merge_and_unload()
    ids = [
        torch.randint(0, base.config.vocab_size, (n,), generator=generator) for n in (17, 64, 101)
    ]
    if o.rounding != "none":
        exact = logits(base, ids)
        for p in base.parameters():
            if p.ndim == 2:
                p.data.copy_(p.data.to(getattr(torch, o.rounding)))
    want = logits(base, ids)
    got = logits(common.load_model(o.merged), ids)
    share = (got - want).abs().max().item() / want.abs().max().item()
    same = (got.argmax(-1) == want.argmax(-1)).float().mean().item()
    print(
        f"logits: largest difference {share:.2e} of the largest, likeliest token the same at"
        f" {same:.1%} of {len(want)} positions"
    )
    if o.rounding != "none":
        print(
            f"(rounding to {o.rounding} by itself:"
            f" {(want - exact).abs().max().item() / exact.abs().max().item():.2e})"
        )
    ok = share <= o.most
    print("ok" if ok else "FAIL")
    sys.exit(not ok)


if __name__ == "__main__":
    main()
