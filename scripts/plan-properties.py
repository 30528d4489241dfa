#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""plan-properties.py - random clusters, and what must hold for the plans of each.

    scripts/plan-properties.py FIRST LAST [PROGRAM]

For each seed from FIRST to LAST a profile of 2 to 12 devices is drawn (speeds, memories, links,
model, batch) and planned, then changed and planned again, with PROGRAM (build/heteroshard where it
is not given). A seed takes from seconds to minutes. Lines of the output:

    seed 7: 4 devices, 24 layers, batch 16: 702.1 ms    the plan, or: nothing fits
    seed 7: BROKEN: WHAT                 a property that must hold does not: the exit status is 1
    seed 7: PROPERTY: 702.1 ms, then 710.2 ms: 1.15 % slower    no error, shown from 0.01 % on

What must hold: layers, rows of a step and shares are complete, memory is within its limits, the
step is not shorter than all work at full speed, its trace has nothing at the same time on one
device, the same figures come out when the plan is judged again, no plan of --compare (by more than
1 %) and no device alone is faster, other names change nothing, with all times doubled the step
takes twice as long, `--without` is the profile without that device. The search improves plans step
by step, so these are only counted: another order of the devices, more memory, a faster device, a
faster link, one device more (than drawn, or the drawn ones against one less). At the end stand, for
each of them, how many plans were more than 1 % slower, and the slowest."""

import copy
import itertools
import json
import math
import os
import random
import subprocess
import sys
import tempfile

GIB = 2**30
NO_ANSWER = 600  # seconds
JUDGED = "simulated_ms microbatch microbatches schedule chunks stages left_out fits".split()


# ---- a random profile ----


def curve(rng, slope, offset=0, points=0):
    """Milliseconds or GiB by rows: a line, and a table of so many points that lies above it."""
    table = [slope * n * (1 + 0.3 * rng.random()) + offset for n in range(1, points + 1)]
    return {"linear": [slope, offset]} | ({"table": table} if points else {})


def draw_profile(rng):
    count = rng.choice([2, 2, 3, 3, 4, 4, 5, 6, 8, 12])
    layers = rng.choice([1, 2, 3, 5, 8, 12, 16, 24, 32, 48, 80])
    width = rng.choice([64, 256, 576, 1024, 2048, 4096])
    tokens = rng.choice([32, 128, 512, 1024, 2048, 8192])
    batch = rng.choice([1, 2, 4, 6, 7, 8, 12, 16, 24, 32, 48, 64])
    dtype = rng.choice(["float32", "bfloat16", "float16"])
    training = rng.choice(["full", "lora", "qlora"])
    a_layer, embedding = 12 * width * width, rng.choice([1000, 32000, 128000]) * width
    tied = rng.random() < 0.3
    model = dict(name="drawn", layers=layers, hidden=width, parameters_per_layer=a_layer)
    model |= dict(embedding_parameters=embedding, head_parameters=embedding, tied=tied)
    model["parameters"] = a_layer * layers + embedding * (1 if tied else 2)
    if training != "full":
        value = 0.56 if training == "qlora" else 4 if dtype == "float32" else 2
        model["layer_gib"] = a_layer * value / GIB
        model["layer_state_gib"] = rng.choice([8, 16, 64]) * width * 14 * 12 / GIB
        model["embedding_state_gib"] = model["head_state_gib"] = 0
    profile = dict(version=1, source="drawn", model=model, sequence_len=tokens, dtype=dtype)
    profile |= dict(global_batch=batch, training=training, step_ms=rng.choice([0, 0, 0.1, 1, 10]))
    hosts = rng.randint(1, count)
    profile["devices"] = devices = []
    for i in range(count):
        place = {"id": f"d{i}", "host": f"h{rng.randrange(hosts)}"}
        if devices and rng.random() < 0.4:
            devices.append(copy.deepcopy(rng.choice(devices)) | place)
        else:
            devices.append({"kind": f"k{i}"} | place | draw_device(rng, profile, count))
    profile["links"] = draw_links(rng, sorted({d["host"] for d in devices}))
    return profile


def draw_device(rng, profile, count):
    """Times and memory of a device with a speed of its own."""
    model, tokens = profile["model"], profile["sequence_len"]
    full = profile["training"] == "full"
    a_layer, embedding = model["parameters_per_layer"], model["embedding_parameters"]
    width, device = model["hidden"], {}
    rate = rng.choice([0.2, 1, 1.5, 3, 5, 10, 30, 60, 100]) * 1e9 * math.exp(rng.gauss(0, 0.2))
    row = (2 * a_layer * tokens + 2 * tokens * tokens * width) / rate  # ms
    start = row * rng.choice([0, 0.1, 0.5]) + rng.choice([0, 0.02, 0.2])
    points = rng.choice([0, 0, 4])
    device["forward_ms"] = curve(rng, row, start, points)
    back = (2 if full else 1) * row * rng.uniform(0.9, 1.5)
    device["backward_ms"] = curve(rng, back, start, points)
    if rng.random() < 0.5:
        head = 2 * embedding * tokens / rate
        device["head_forward_ms"] = curve(rng, head)
        device["head_backward_ms"] = curve(rng, head * 1.5, 0.1)
        device["embedding_forward_ms"] = curve(rng, head * 0.01, 0.01)
    if rng.random() < 0.4:
        trained = a_layer if full else model["layer_state_gib"] * GIB / 12
        bytes_per_ms = rng.choice([5e6, 50e6, 500e6])
        device["optimizer_ms"] = trained * 28 / bytes_per_ms * rng.uniform(0.5, 1)
        device["embedding_optimizer_ms"] = embedding * 28 / bytes_per_ms if full else 0
        device["head_optimizer_ms"] = device["embedding_optimizer_ms"] + 0.1
    message = tokens * width * 2  # bytes
    if rng.random() < 0.4:
        device["upload_ms"] = device["download_ms"] = curve(rng, message / 5e6, 0.01)
        device["copy_ms"] = curve(rng, rng.choice([0, message / 8e6]))
    if rng.random() < 0.5:
        kept = 17 * message / GIB * rng.uniform(0.5, 1.5)
        device["kept_gib"] = curve(rng, kept)
        device["activation_gib"] = curve(rng, kept * rng.uniform(1, 1.5))
        logits = tokens * embedding / width * 4 / GIB
        device["head_gib"] = curve(rng, logits * rng.choice([0.1, 1]))
    sizes = dict(fixed=[0.1, 0.5, 1], used=[0.1, 0.5, 1], reserve=[0, 0.1, 1])
    for what, some in (sizes | dict(host_memory=[1, 16, 256])).items():
        if rng.random() < 0.25:
            device[what + "_gib"] = rng.choice(some)
    if rng.random() < 0.15:
        device["kind"] = "cpu"
    whole = a_layer * model["layers"] * (16 if full else 2) / GIB
    room = rng.choice([0.5, 1, 1.5, 3, 10, 100]) * whole / count + rng.choice([0, 0.5, 2, 16])
    taken = device.get("fixed_gib", 0) + device.get("used_gib", 0)
    device["memory_gib"] = room + taken if taken > 0.9 * room else room
    return device


def draw_links(rng, hosts):
    def link(a, b, rates, latencies):
        rate, latency = rng.choice(rates), rng.choice(latencies)
        return {"hosts": [a, b], "bandwidth_gbytes_per_s": rate, "latency_ms": latency}

    rates, latencies = [0.001, 0.0117, 0.117, 0.3, 1.17, 11, 50], [0.01, 0.05, 0.2, 1, 10, 30]
    links = [link("*", "*", [0.0117, 0.117, 1.17, 12], [0.05, 0.2, 5])]
    links += [link(a, a, [2, 4, 12, 100], [0.02, 0.05]) for a in hosts]
    if rng.random() < 0.67:
        pairs = itertools.combinations(hosts, 2)
        links += [link(a, b, rates, latencies) for a, b in pairs]
    for one in links:
        if rng.random() < 0.1 and one["hosts"][0] != one["hosts"][1]:
            back = one["bandwidth_gbytes_per_s"] * rng.choice([0.1, 0.5, 2])
            one["reverse_bandwidth_gbytes_per_s"] = back
    return links


def slow_down(entry, factor):
    """All times of a device, a link or the profile, that many times as long."""
    for key, value in entry.items():
        if key.endswith("gbytes_per_s"):
            entry[key] = value / factor
        elif key.endswith("_ms") and isinstance(value, dict):
            entry[key] = {form: [x * factor for x in values] for form, values in value.items()}
        elif key.endswith("_ms"):
            entry[key] = value * factor


# ---- what must hold for one plan ----


def close(a, b, within=1e-9):
    return abs(a - b) <= within * max(abs(a), abs(b))


def time_of(values, rows):
    table, (slope, offset) = values.get("table", []), values["linear"]
    return table[rows - 1] if rows <= len(table) else slope * rows + offset


def least_time(profile, ids):
    """Milliseconds of the layers alone, where these devices never wait."""
    batch, speed = profile["global_batch"], 0
    for d in (d for d in profile["devices"] if d["id"] in ids):
        both, rows = (d["forward_ms"], d["backward_ms"]), range(1, batch + 1)
        speed += 1 / min(sum(time_of(v, n) for v in both) / n for n in rows)
    return profile["model"]["layers"] * batch / speed


def faults(profile, plan):
    """What is wrong with a plan, in words."""
    step, stages = plan["simulated_ms"], plan["stages"]
    if not (math.isfinite(step) and step > 0):
        yield f"a step of {step} ms"
        return
    rows = profile["global_batch"]
    if not close(plan["tokens_per_second"], rows * profile["sequence_len"] / step * 1e3, 1e-6):
        yield f"{plan['tokens_per_second']} tokens/s at {step} ms"
    rounds = len(stages) if len(stages) % plan["chunks"] else plan["chunks"]
    ids, end = [], 0
    for number, stage in enumerate(stages):
        members = stage["devices"]
        if stage["layers"][0] != end or stage["layers"][1] <= end:
            yield f"layers {stage['layers']} behind {end}"
        end = stage["layers"][1]
        if sum(d["samples"] for d in members) != rows:
            yield f"stage {number} does not have {rows} rows"
        shares = sum(d["state_share"] for d in members)
        if not close(shares, 1, 1e-6) and not close(shares, len(members), 1e-6):
            yield f"state shares of stage {number} add up to {shares}"
        for d in members:
            if plan["fits"] and d["memory_gib"] > d["memory_limit_gib"] * (1 + 1e-12):
                yield f"{d['id']} has {d['memory_gib']} of {d['memory_limit_gib']} GiB"
            parts = [d[key] for key in ("busy", "copy", "wait", "bubble")]
            if not close(sum(parts), 1, 1e-6) or min(parts) < -1e-9:
                yield f"busy, copy, wait, bubble of {d['id']} are {parts}"
        if number < len(stages) // rounds:
            ids += [d["id"] for d in members]
    if end != profile["model"]["layers"]:
        yield f"layers end with {end}"
    if sorted(ids + plan["left_out"]) != sorted(d["id"] for d in profile["devices"]):
        yield f"devices {ids}, left out {plan['left_out']}"
    if step < least_time(profile, ids) * (1 - 1e-9):
        yield f"{step} ms, but the layers alone take {least_time(profile, ids)} ms"


def trace_faults(path, step):
    with open(path, encoding="utf-8") as f:
        events = json.load(f)["traceEvents"]
    names, spans = {}, {}
    for e in events:
        if e["ph"] == "M" and e["name"] == "thread_name":
            names[e["pid"], e["tid"]] = e["args"]["name"]
        if e["ph"] == "X":
            span = (e["ts"], e["ts"] + e["dur"], e["name"])
            spans.setdefault((e["pid"], e["tid"]), []).append(span)
    end = max(span[1] for row in spans.values() for span in row)
    if end > step * 1e3 * (1 + 1e-6) + 0.01:
        yield f"the trace ends at {end} us, the step at {step} ms"
    for row in (spans[k] for k in spans if names.get(k) in ("compute", "wait")):
        row.sort()
        for one, other in zip(row, row[1:]):
            if other[0] < one[1] - 1e-3 - 1e-6 * step:
                yield f"at the same time in the trace: {one} and {other}"
                break


def alike(a, b):
    """The same answer, but for the rounding of figures."""
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(alike(value, b[key]) for key, value in a.items())
    if isinstance(a, list):
        return len(a) == len(b) and all(map(alike, a, b))
    return a == b or isinstance(a, float) and close(a, b, 1e-6)


# ---- a seed ----


class Seed:
    def __init__(self, seed, program, folder):
        self.seed, self.program, self.folder = seed, program, folder
        self.rng = random.Random(seed)
        self.profile = draw_profile(self.rng)
        self.step, self.broken, self.slower = None, 0, {}

    def say(self, text):
        print(f"seed {self.seed}: {text}", flush=True)

    def must(self, what, wrong):
        for text in wrong:
            self.broken += 1
            self.say(f"BROKEN: {what}: {text}")

    def ask(self, profile, *options):
        """The program's answer, or None and why not."""
        path = f"{self.folder}/profile.json"
        with open(path, "w", encoding="utf-8") as f:
            json.dump(profile, f)
        words = [self.program, "plan", "--profile", path, "--json", *options]
        try:
            p = subprocess.run(words, capture_output=True, timeout=NO_ANSWER, check=False)
        except subprocess.TimeoutExpired:
            self.must("answer", [f"none within {NO_ANSWER} s with {options}"])
            return None, "no answer"
        if p.returncode == 0:
            return json.loads(p.stdout), None
        why = p.stderr.decode().strip()
        if "no plan fits" not in why:
            self.must("answer", [f"exit status {p.returncode} with {options}: {why}"])
        return None, why

    def need(self, what, profile, *options):
        """The answer where there must be one."""
        plan, why = self.ask(profile, *options)
        self.must(what, [] if plan else [why])
        return plan

    def changed(self):
        return copy.deepcopy(self.profile)

    def same(self, what, profile, times=1):
        """The step of this profile is that of the drawn one."""
        plan = self.need(what, profile)
        if plan and not close(plan["simulated_ms"], self.step * times):
            self.must(what, [f"{self.step} ms, then {plan['simulated_ms']} ms"])

    def count(self, what, before, after):
        percent = self.slower[what] = (after / before - 1) * 100
        if percent >= 0.01:
            self.say(f"{what}: {before:.6g} ms, then {after:.6g} ms: {percent:.2f} % slower")

    def better(self, what, profile):
        plan = self.need(what, profile)
        if plan:
            self.count(what, self.step, plan["simulated_ms"])

    def play(self):
        profile, devices = self.profile, self.profile["devices"]
        out = f"{self.folder}/out"
        plan, _ = self.ask(profile, "--out", out)
        self.step = plan and plan["simulated_ms"]
        sizes = f"{len(devices)} devices, {profile['model']['layers']} layers"
        result = f"{self.step:.6g} ms" if plan else "nothing fits"
        self.say(f"{sizes}, batch {profile['global_batch']}: {result}")
        self.compare()
        if not plan:
            return
        self.must("plan", faults(profile, plan))
        self.must("trace", trace_faults(f"{out}/trace.json", self.step))
        again = self.need("judged again", profile, "--plan", f"{out}/plan.json")
        for key in JUDGED if again else ():
            if not alike(plan[key], again[key]):
                self.must("judged again", [f"{key}: {plan[key]}, then {again[key]}"])
        self.rename()
        self.double()
        self.improve()
        self.without()

    def compare(self):
        answer, why = self.ask(self.profile, "--compare")
        if not answer:
            self.must("--compare", [why] if self.step else [])
            return
        for other in answer["plans"]:
            if "error" in other:
                continue
            name, step = other["planner"], other["simulated_ms"]
            self.must(name, faults(self.profile, other))
            if other["fits"] and other["executable"] and step * 1.010001 < (self.step or math.inf):
                self.must("--compare", [f"{name} takes {step} ms, best {self.step}"])
        for other in answer.get("alone", []):
            step = other.get("simulated_ms") or math.inf
            if step * 1.00001 < (self.step or math.inf):  # printed with six digits
                self.must("--compare", [f"{other['id']} alone takes {step} ms, best {self.step}"])

    def rename(self):
        profile = self.changed()
        for d in profile["devices"]:
            d["id"] = "zz" + d["id"][::-1] + "x" * self.rng.choice([0, 30])
            d["host"] = "H-" + d["host"]
        for link in profile["links"]:
            link["hosts"] = [h if h == "*" else "H-" + h for h in link["hosts"]]
        self.same("other names", profile)

    def double(self):
        profile = self.changed()
        for entry in [profile, *profile["devices"], *profile["links"]]:
            slow_down(entry, 2)
        self.same("doubled times", profile, 2)

    def improve(self):
        rng, profile = self.rng, self.changed()
        rng.shuffle(profile["devices"])
        plan = self.need("another order", profile)
        if plan:
            self.count("another order", *sorted([self.step, plan["simulated_ms"]]))
        profile = self.changed()
        rng.choice(profile["devices"])["memory_gib"] *= rng.choice([1.05, 1.5, 4])
        self.better("more memory", profile)
        profile = self.changed()
        slow_down(rng.choice(profile["devices"]), rng.choice([0.95, 0.7, 0.3]))
        self.better("faster device", profile)
        profile = self.changed()
        slow_down(rng.choice(profile["links"]), 1 / rng.choice([1.1, 2, 10]))
        self.better("faster link", profile)
        profile = self.changed()
        more = copy.deepcopy(rng.choice(profile["devices"])) | {"id": "new"}
        if rng.random() < 0.5:
            more["host"] = "newhost"
        profile["devices"].append(more)
        self.better("one device more", profile)

    def without(self):
        profile = self.changed()
        gone = profile["devices"].pop(self.rng.randrange(len(profile["devices"])))["id"]
        less, _ = self.ask(profile)
        option, _ = self.ask(self.profile, "--without", gone)
        steps = [p and p["simulated_ms"] for p in (less, option)]
        if steps[0] != steps[1] and not (all(steps) and close(*steps)):
            self.must(f"--without {gone}", [f"{steps[1]} ms, but {steps[0]} where it is not there"])
        if less:
            self.count("all devices, against one less", steps[0], self.step)


def main():
    if len(sys.argv) not in (3, 4):
        sys.exit("usage: scripts/plan-properties.py FIRST LAST [PROGRAM]")
    program = os.path.abspath(sys.argv[3] if len(sys.argv) > 3 else "build/heteroshard")
    seeds = []
    for number in range(int(sys.argv[1]), int(sys.argv[2]) + 1):
        with tempfile.TemporaryDirectory(prefix="hs-plan-") as folder:
            seeds.append(Seed(number, program, folder))
            seeds[-1].play()
    planned, broken = sum(s.step is not None for s in seeds), sum(s.broken for s in seeds)
    print(f"{len(seeds)} profiles, {planned} with a plan; broken properties: {broken}")
    for what in dict.fromkeys(what for s in seeds for what in s.slower):
        of = [(s.slower[what], s.seed) for s in seeds if what in s.slower]
        many, worst = sum(percent > 1 for percent, _ in of), max(of)
        text = f"at worst {max(worst[0], 0):.2f} % (seed {worst[1]})"
        print(f"{what}: {many} of {len(of)} more than 1 % slower, {text}")
    sys.exit(broken > 0)


if __name__ == "__main__":
    main()
