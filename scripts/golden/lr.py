#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""lr.py - golden file of the learning-rate curves: what transformers' schedules give.

tests/golden/optim/lr.json: a list of {curve, steps, warmup, min_ratio, share}, share[s-1] being the
share of the base rate in step s, for s > warmup; in the warm-up transformers begins at 0 and this
program at 1/warmup.

Needs: pip install transformers. The functions are plain Python: torch need not be there."""
import ast
import importlib.metadata
import importlib.util
import json
import math
import os
import types

HERE = os.path.dirname(os.path.abspath(__file__))
OUT = os.path.join(HERE, "..", "..", "tests", "golden", "optim")


def schedules():
    """The functions behind the schedulers, from the package's source: importing it needs torch."""
    spec = importlib.util.find_spec("transformers")
    path = os.path.join(os.path.dirname(spec.origin), "optimization.py")
    with open(path, encoding="utf-8") as f:
        parts = ast.parse(f.read()).body
    ends = ("_lr_lambda", "_wsd_scheduler_lambda")
    wanted = [p for p in parts if isinstance(p, ast.FunctionDef) and p.name.endswith(ends)]
    o = types.ModuleType("schedules")
    o.__dict__["math"] = math
    for part in wanted:
        part.returns = None
        exec(compile(ast.Module([part], []), path, "exec"), o.__dict__)
    return o


def main():
    o = schedules()
    rows = []
    for steps, warmup in ((1, 0), (2, 0), (7, 0), (7, 3), (100, 10), (20, 19)):
        for curve, ratio, more in (
            ("cosine", 0.0, {}),
            ("cosine", 0.1, {}),
            ("linear", 0.0, {}),
            ("constant", 0.0, {}),
            ("cosine_with_restarts", 0.0, dict(cycles=1)),
            ("cosine_with_restarts", 0.0, dict(cycles=3)),
            ("polynomial", 0.1, dict(power=2.0)),
            ("polynomial", 0.0, dict(power=0.5)),
            ("warmup_stable_decay", 0.0, dict(decay_ratio=0.25)),
            ("warmup_stable_decay", 0.1, dict(decay_ratio=1.0)),
        ):
            share = []
            # the decay is a whole number of steps there and a share of them here
            decay = more.get("decay_ratio", 1) * (steps - warmup)
            if decay != int(decay):
                continue
            for s in range(1, steps + 1):
                if curve == "linear":
                    v = o._get_linear_schedule_with_warmup_lr_lambda(
                        s - 1, num_warmup_steps=warmup, num_training_steps=steps
                    )
                elif curve == "cosine":
                    v = o._get_cosine_schedule_with_warmup_lr_lambda(
                        s - 1,
                        num_warmup_steps=warmup,
                        num_training_steps=steps,
                        num_cycles=0.5,
                        min_lr_rate=ratio,
                    )
                elif curve == "cosine_with_restarts":
                    v = o._get_cosine_with_hard_restarts_schedule_with_warmup_lr_lambda(
                        s - 1,
                        num_warmup_steps=warmup,
                        num_training_steps=steps,
                        num_cycles=more["cycles"],
                    )
                elif curve == "polynomial":
                    v = o._get_polynomial_decay_schedule_with_warmup_lr_lambda(
                        s - 1,
                        num_warmup_steps=warmup,
                        num_training_steps=steps,
                        lr_end=ratio * 0.5,
                        power=more["power"],
                        lr_init=0.5,
                    )
                elif curve == "warmup_stable_decay":
                    v = o._get_wsd_scheduler_lambda(
                        s - 1,
                        num_warmup_steps=warmup,
                        num_stable_steps=steps - warmup - int(decay),
                        num_decay_steps=int(decay),
                        warmup_type="linear",
                        decay_type="cosine",
                        min_lr_ratio=ratio,
                        num_cycles=0.5,
                    )
                else:
                    v = o._get_constant_schedule_with_warmup_lr_lambda(
                        s - 1, num_warmup_steps=warmup
                    )
                share.append(v if s > warmup else None)
            rows.append(
                dict(curve=curve, steps=steps, warmup=warmup, min_ratio=ratio, share=share, **more)
            )
    os.makedirs(OUT, exist_ok=True)
    with open(os.path.join(OUT, "lr.json"), "w", encoding="utf-8") as f:
        json.dump(rows, f, indent=0)
        f.write("\n")
    with open(os.path.join(OUT, "versions.txt"), "w", encoding="utf-8") as f:
        f.write("made by scripts/golden/lr.py with\n")
        f.write(f"transformers {importlib.metadata.version('transformers')}\n")


main()
