#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The tables of bench/gpu: whole steps of both programs, what a layer asks of the card, attention,
then the rows that stay below their aim.

    bench/gpu-table.py ROWS.jsonl DEVICE
"""

import json
import sys

AIMS = {"product": 0.9, "moves": 0.8, "attention": 0.5}


def table(heading, rows):
    cells = [heading, *[[str(c) for c in r] for r in rows]]
    width = [max(len(r[i]) for r in cells) for i in range(len(heading))]
    line = lambda r: "| " + " | ".join(c.ljust(w) for c, w in zip(r, width)) + " |"
    print(
        line(cells[0]),
        "|" + "|".join("-" * (w + 2) for w in width) + "|",
        *map(line, cells[1:]),
        sep="\n",
    )


def rate(r):
    return r["length"] * r["rows"] / (r["forward"] + r["backward"] + r["update"])


def steps(rows):
    peft = {
        (r["shape"], r["length"], r["recompute"], r["weights"]): r
        for r in rows
        if r["row"] == "peft"
    }
    key = lambda r: (r["shape"], r["length"], r["recompute"], r["weights"])
    one_by_one = {key(r): r for r in rows if r["row"] == "step" and not r.get("graphs", True)}
    out = []
    for r in rows:
        if r["row"] != "step" or not r.get("graphs", True):
            continue
        # the other program computes in bfloat16 whatever this one does
        other = peft.get(
            (
                r["shape"],
                r["length"],
                r["recompute"],
                r["weights"] if r["weights"] == "NF4" else "bfloat16",
            )
        )
        mine = [
            r["shape"],
            r["length"],
            r["weights"] + (", checkpointing" if r["recompute"] else ""),
        ]
        mine += (
            [
                f"{rate(r):.0f}",
                f"{100 * r['share_with_attention']:.0f} %",
                f"{r['memory'] / 2**30:.2f}",
            ]
            if r["fits"]
            else ["does not fit", "", ""]
        )
        off = one_by_one.get(key(r))
        mine.append(f"{rate(off):.0f}" if off and off["fits"] else "")
        if not other:
            mine += ["", "", ""]
        elif not other["fits"]:
            mine += ["does not fit", "", ""]
        else:
            mine += [
                f"{rate(other):.0f}",
                f"{other['memory'] / 2**30:.2f}" if other["memory"] else "",
                f"{rate(r) / rate(other):.2f} x" if r["fits"] else "",
            ]
        out.append(mine)
    table(
        [
            "shape",
            "tokens",
            "weights",
            "tokens/s",
            "of matrix rate",
            "peak GiB",
            "without graphs",
            "peft tokens/s",
            "peft peak GiB",
            "ratio",
        ],
        out,
    )


def kind(r):
    return (
        "attention" if r["row"].startswith("attn") else "product" if "gflop_per_s" in r else "moves"
    )


def ops(rows):
    seen = [r for r in rows if "share" in r and r["row"] not in ("step", "matmul", "copy")]
    below = [r for r in seen if r["share"] < AIMS[kind(r)]]
    print(
        f"\n{len(seen) - len(below)} of {len(seen)} products and kernels reach their aim (products"
        f" {AIMS['product']:.0%} of the matrix rate, attention {AIMS['attention']:.0%}, what moves"
        f" data {AIMS['moves']:.0%} of the copy bandwidth). Below it:\n"
    )
    table(
        ["of", "row", "shape", "dtype", "share"],
        [[r["of"], r["row"], r["shape"], r["dtype"], f"{r['share']:.0%}"] for r in below],
    )


def work(rows):
    """By the null device: the difference between one layer and two is a layer."""
    seen = {}
    for r in rows:
        if r["row"] == "work":
            seen.setdefault((r["of"], r["shape"], r["weights"]), {})[r["layers"]] = r
    out = []
    for (of, shape, weights), n in seen.items():
        if 1 in n and 2 in n:
            layer = lambda k: n[2][k] - n[1][k]
            out.append([of, shape, weights, layer("given"),
                        f"{layer('product_bytes') / 1e6:.1f}", f"{layer('copy_bytes') / 1e6:.1f}"])
    if out:
        print("\nWhat a layer asks of the card in a step, forward and backward:\n")
        table(["of", "shape", "weights", "kernels, products, copies", "MB of products",
               "MB of copies"], out)


def attention(rows):
    seen = [r for r in rows if r["row"].startswith("attn") and "share" in r]
    if seen:
        print("\nAttention, as a share of the best product in the same dtype:\n")
        table(["of", "row", "shape", "dtype", "GFLOP/s", "share"],
              [[r["of"], r["row"], r["shape"], r["dtype"], f"{r['gflop_per_s']:.0f}",
                f"{r['share']:.0%}"] for r in seen])


def main():
    rows = [json.loads(line) for line in open(sys.argv[1])]
    print(f"\n## {sys.argv[2]}\n")
    for r in rows:
        if r["row"] in ("matmul", "copy") and "step" not in r["of"]:
            print(
                f"- {r['of']}: {r['row']} {r['dtype'] if r['row'] == 'matmul' else ''}"
                f" {r.get('gflop_per_s', r.get('gbyte_per_s')):.0f}"
                f" {'GFLOP/s' if 'gflop_per_s' in r else 'GB/s'}"
            )
    print(
        *sorted({"- beside it: " + r["versions"] for r in rows if r["row"] == "peft"}), "", sep="\n"
    )
    steps(rows)
    work(rows)
    attention(rows)
    ops(rows)


main()
