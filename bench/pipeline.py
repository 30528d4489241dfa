#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""pipeline.py RUNS MICROBATCHES WHERE... - the table of bench/pipeline from what its runs left:
metrics.jsonl and trace.json.

Measured: tokens of a step over its seconds, and its share of the bound; each is the median of all
steps but the first. Bound: the shortest time in which two stages can do that step when messages and
the optimizer take no time, from the times f and b that the forward and backward of a microbatch
took in the same steps; m is the number of microbatches:

    1f1b, eager, gpipe   max(f0 + m (f1 + b1) + b0, m (f0 + b0) + f1 + b1); with equal stages this
                         is (m + 1) (f + b), and the bubble is 1 / (m + 1)
    interleaved          the same, where each f0 + b0 and f1 + b1 that stands beside m is divided by
                         the two chunks that each worker holds
    sequential           m (f0 + b0 + f1 + b1)

Below each row: where the steps' time went on either stage."""

import json
import os
import statistics
import sys

COMPUTE = ("forward", "backward")


def spans(path):
    with open(path) as f:
        return [e for e in json.load(f)["traceEvents"] if e.get("ph") == "X"]


def bound(schedule, m, s0, s1):
    if schedule == "sequential":
        return m * (s0 + s1)
    pieces = 2 if schedule == "interleaved" else 1
    return max(s0 / pieces + m * s1, m * s0 + s1 / pieces)


def row(folder, schedule, m):
    with open(os.path.join(folder, "metrics.jsonl")) as f:
        steps = [r for r in map(json.loads, f) if "tokens" in r]
    events = spans(os.path.join(folder, "trace.json"))
    measured, bounds, where = [], [], {}
    for r in steps[1:]:
        work = [0.0, 0.0]
        for e in events:
            if e.get("args", {}).get("step") != r["step"]:
                continue
            name, stage, took = e["name"], e["pid"], e["dur"] * 1e-6
            stream = ("compute", "send", "receive", "wait")[e["tid"]]
            if stream == "compute" and not name.startswith(COMPUTE):
                stream = name
            key = "wait for " + name if stream == "wait" else stream
            if stream == "compute":
                work[stage] += took
            where.setdefault(stage, {}).setdefault(key, 0)
            where[stage][key] += took
        measured.append(r["tokens"] / r["seconds"])
        bounds.append(r["tokens"] / bound(schedule, m, work[0] / m, work[1] / m))
    total = sum(r["seconds"] for r in steps[1:])
    share = statistics.median(x / y for x, y in zip(measured, bounds))
    return statistics.median(measured), statistics.median(bounds), share, where, total


def main():
    runs, m, wheres = sys.argv[1], int(sys.argv[2]), sys.argv[3:]
    for where in wheres:
        print(f"\n{where}: 2 stages, {m} microbatches of 512 tokens")
        print(
            f"  {'schedule':12s} {'tokens/s':>9s} {'bound':>9s} {'of bound':>9s}"
            f" {'sequential':>11s}"
        )
        base = None
        for schedule in ("sequential", "gpipe", "1f1b", "eager", "interleaved"):
            got, best, share, parts, total = row(
                os.path.join(runs, f"{where}-{schedule}"), schedule, m
            )
            base = base or got
            print(
                f"  {schedule:12s} {got:9.1f} {best:9.1f} {100 * share:7.1f} % {got / base:10.2f}x"
            )
            for stage in sorted(parts):
                known = sum(parts[stage].values())
                text = ", ".join(
                    f"{k} {100 * v / total:.1f} %"
                    for k, v in sorted(parts[stage].items(), key=lambda x: -x[1])
                )
                print(
                    f"      stage {stage}: {text}, nothing of it {100 * (1 - known / total):.1f} %"
                )


main()
