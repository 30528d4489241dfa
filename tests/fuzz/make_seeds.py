#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the seeds of the network's fuzz targets: tests/fuzz/make_seeds.py [TARGET ...].

Each seed is one way through a reader, its errors among them; the names say which. Files named
otherwise in tests/fuzz/seeds were found by fuzzing and are left alone.
"""

import base64
import hashlib
import itertools
import json
import os
import re
import struct
import sys

HERE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "seeds")


def u8(v):
    return struct.pack("<B", v)


def u16(v):
    return struct.pack("<H", v)


def u32(v):
    return struct.pack("<I", v & 0xFFFFFFFF)


def u64(v):
    return struct.pack("<Q", v & 0xFFFFFFFFFFFFFFFF)


def f64(v):
    return struct.pack("<d", v)


def text(s):
    s = s.encode() if isinstance(s, str) else s
    return u32(len(s)) + s


def blob(b):
    return u64(len(b)) + b


# ---- frames ----


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def frame(kind=1, dtype=0, dims=(), payload=b"", magic=b"HSF1", version=2, **odd):
    dim = list(dims) + [0] * (4 - len(dims))
    for k, v in odd.get("dim", {}).items():
        dim[k] = v
    head = magic + u16(version) + u8(kind) + u8(dtype) + u64(7) + u64(1) + u32(2)
    head += u16(0) + u8(odd.get("ndim", len(dims))) + u8(odd.get("zero", 0)) + u64(0)
    head += u32(1) + u32(2) + b"".join(u64(d) for d in dim)
    head += u64(odd.get("size", len(payload))) + u32(odd.get("zeros", 0))
    return head + u32(crc32c(head + payload) ^ odd.get("crc", 0)) + payload


def frames():
    tensor = dict(kind=10, dtype=0, dims=(2, 3), payload=bytes(24))
    yield "hello", frame(payload=b"x" * 20)
    yield "tensor", frame(**tensor)
    yield "short", b"HSF1"
    yield "magic", frame(magic=b"HSF2")
    yield "version", frame(version=1)
    yield "kind", frame(kind=16)
    yield "kind-far", frame(kind=200)
    yield "dtype", frame(**{**tensor, "dtype": 8})
    yield "ndim", frame(ndim=5, **tensor)
    yield "large", frame(size=1 << 40)
    yield "fields-with-shape", frame(kind=1, dims=(2,), payload=bytes(8))
    yield "no-shape", frame(kind=10)
    yield "overflow", frame(kind=10, dims=(1 << 63, 4), size=0)
    yield "shape-and-size", frame(**{**tensor, "dims": (2, 4)})
    yield "dim-behind-ndim", frame(dim={3: 1}, **tensor)
    yield "zero", frame(zero=1)
    yield "zeros", frame(zeros=1)
    yield "more-than-there-is", frame(size=30, payload=b"x" * 20)
    yield "checksum", frame(crc=1)


# ---- fields ----


def wires():
    every = u8(1) + u32(2) + u64(3) + f64(4) + text("five") + text("six") + blob(b"seven") + u32(0)
    yield "all-kinds", bytes([8, 1, 2, 3, 4, 5, 6, 7, 0]) + every
    yield "nothing", b"\x08\x00"
    yield "left-over", b"\x08\x00" + u16(1)
    yield "long-text", b"\x04\x08\x00" + text("x" * 20)
    yield "no-text", b"\x04\x08\x00" + u32(9)
    yield "nul", b"\x05\x08\x00" + text(b"a\0b")
    yield "controls", b"\x04\x00" + text(b"\x1b[1m\xc2\x9b")
    yield "count-over-limit", b"\x07\x08\x00" + u32(1001) + bytes(9)
    yield "count-over-bytes", b"\x07\x08\x00" + u32(9) + bytes(9)
    yield "count-missing", b"\x07\x08\x00" + u16(0)
    yield "count", b"\x07\x00" + u32(2) + bytes(8)
    yield "bytes-missing", b"\x06\x08\x00" + u64(1 << 60)


# ---- what the frames between coordinator and workers carry ----

CONFIG = (
    '{"model_type":"llama","hidden_size":8,"intermediate_size":12,"num_hidden_layers":3,'
    '"num_attention_heads":2,"num_key_value_heads":1,"head_dim":4,"vocab_size":32,'
    '"rms_norm_eps":1e-5,"rope_theta":10000.0,"max_position_embeddings":64,'
    '"tie_word_embeddings":%s,"hidden_act":"silu"}'
)


def source(path):
    with open(os.path.join(HERE, "..", "..", "..", "src", path)) as f:
        return f.read()


# LIN_COUNT of model/model.h: names at the beginning of a line before it
LINEAR = len(re.findall(r"^\tLIN_(?!COUNT)\w+,", source("model/model.h"), re.M))


def work(act=0, rank=2, dropout=0.0, optimizer="adamw", train_all=0, rate=1.0, noise=0.0, rl=""):
    out = u8(act) + u8(0) + u8(0) + u8(train_all) + u8(0) + u64(1) + u8(1) + u32(rank) + f64(1)
    out += f64(dropout) + f64(rate) + f64(noise) + f64(0) * 2 + u64(1)
    out += bytes([1] * 7 + [0] * (LINEAR - 7))
    out += (u32(0) + f64(0)) * LINEAR + bytes(128 + 3)
    out += text(rl) + b"".join(f64(v) for v in (0.1, 0, 0, 0, 1, 1)) + text(optimizer)
    return out + b"".join(f64(v) for v in (0.9, 0.99, 1e-8, 0, 0))


def member(stage=0, place=0, share=1, gone=0, state=0, only=0):
    words = ("a", "cpu", "m", "name", "127.0.0.1:7000", "", "")
    out = b"".join(text(w) for w in words)
    out += u32(stage + 1) + u32(place + 1) + u32(share) + u32(state) + u8(gone)
    return out + u8(only)


def plan(**o):
    members = o.get("members", [member(0), member(1), member(2)])
    stages, chunks = o.get("stages", 3), o.get("chunks", 1)
    out = u32(stages) + u32(chunks) + u8(o.get("parts", 1)) + u8(o.get("tied", 0))
    out += u32(o.get("n", len(members)))
    out += b"".join(members) + u32(o.get("self", 0))
    out += b"".join(u32(v) for v in o.get("first", range(stages * chunks + 1)))
    out += text(o.get("schedule", "1f1b")) + u8(o.get("wire", 0))
    out += text(o.get("config", CONFIG % o.get("same", "false")))
    out += work(**o.get("work", {})) + u8(o.get("order", 1)) + u8(o.get("sums", 0))
    out += text(o.get("reducer", "direct")) + u8(o.get("sharding", 0))
    out += u8(o.get("offload", 0)) + u64(0) + u8(0) + u8(0)
    out += f64(o.get("progress", 1)) + text(o.get("model", "model"))
    return out + u32(o.get("experts", 0)) + blob(o.get("deal", b"")) + o.get("more", b"")


MIXTURE = CONFIG.replace(
    '"llama"', '"qwen3_moe","num_experts":2,"num_experts_per_tok":1,"moe_intermediate_size":12'
)


def plans_of_experts():
    """A home, a member behind it that has experts alone, and two stages without dealt experts."""
    home, alone = member(0), member(0, 1, 0, only=1)
    rest = [member(1), member(2)]
    own = dict(
        config=MIXTURE % "false",
        members=[home, alone] + rest,
        schedule="zebra",
        experts=2,
        deal=bytes([0, 1, 255, 255, 255, 255]),
    )
    yield "", plan(**own)
    yield "-all-away", plan(**{**own, "deal": bytes([1, 1] + [255] * 4), "self": 1})
    yield "-nowhere", plan(**{**own, "deal": bytes([0, 2] + [255] * 4)})
    yield "-half-a-layer", plan(**{**own, "deal": bytes([255, 1] + [255] * 4)})
    yield "-other-layers", plan(**{**own, "deal": bytes([0, 1])})
    yield "-other-number", plan(**{**own, "experts": 3})
    yield "-no-number", plan(**{**own, "experts": 0})
    yield "-many", plan(**{**own, "experts": 1 << 20, "deal": bytes(64)})
    yield "-not-dealt", plan(**{**own, "deal": b""})
    yield "-none-dealt", plan(**{**own, "deal": bytes([255] * 6)})
    yield "-of-no-mixture", plan(**{**own, "config": CONFIG % "false"})
    yield "-with-passes", plan(**{**own, "members": [home, member(0, 1, 1, only=1)] + rest})
    yield "-home-behind", plan(**{**own, "members": [member(0, 0, 0, only=1), member(0, 1)] + rest})
    yield "-offload", plan(**{**own, "offload": 8})
    yield "-cache", plan(config=MIXTURE % "false", offload=8)
    dense = MIXTURE.replace('"hidden_act"', '"mlp_only_layers":[0],"hidden_act"')
    yield "-of-an-mlp", plan(**{**own, "config": dense % "false"})


def plans():
    three = [member(0), member(1), member(2)]
    yield "plan", plan()
    yield "plan-group", plan(members=three + [member(1, 1)])
    yield "plan-tied", plan(same="true", tied=1, work={"train_all": 1})
    yield "plan-fast", plan(order=0, progress=0)
    yield "plan-no-stages", plan(stages=0)
    yield "plan-many-stages", plan(stages=5000)
    yield "plan-end", plan(more=b"x")
    yield "plan-cut", plan()[:30]
    yield "plan-place-of-stage", plan(members=[member(7)])
    yield "plan-gone", plan(members=three + [member(-1, -1, 0, 1)])
    yield "plan-gone-holds", plan(members=[member(0, 0, 1, 1)])
    yield "plan-share", plan(members=[member(0, 0, 2000000)])
    yield "plan-share-of-nothing", plan(members=[member(-1, -1, 3)])
    yield "plan-self", plan(self=9)
    yield "plan-for-nobody", plan(members=three + [member(-1, -1, 0)], self=3)
    yield "plan-empty-stage", plan(members=three[:2])
    yield "plan-place-twice", plan(members=three + [member(1, 0)])
    yield "plan-place-left-out", plan(members=three + [member(1, 2)])
    yield "plan-progress", plan(progress=-1)
    yield "plan-order", plan(order=9)
    yield "plan-sums-bf16", plan(sums=1, parts=4)
    yield "plan-sums-dtype", plan(sums=2)
    yield "plan-no-parts", plan(parts=0)
    yield "plan-many-parts", plan(parts=255)
    yield "plan-not-tied", plan(tied=1)
    shared = [member(0, state=1000000), member(1, state=1000000), member(2, state=1000000)]
    yield "plan-shared", plan(members=shared, sharding=1)
    yield "plan-shared-group", plan(
        members=[member(0, 0, 1, 0, 300000), member(0, 1, 1, 0, 700000)] + shared[1:], sharding=1
    )
    yield "plan-shared-sum", plan(members=shared[:2] + [member(2, state=7)], sharding=1)
    yield "plan-shared-share", plan(members=[member(0, state=1000001)] + shared[1:], sharding=1)
    yield "plan-shared-nothing", plan(members=shared + [member(-1, -1, 0, 0, 5)], sharding=1)
    yield "plan-sharding", plan(sharding=9)
    yield "plan-offload", plan(offload=3)
    yield "plan-offload-parameters", plan(offload=4)
    yield "plan-offload-unknown", plan(offload=8)
    yield "plan-schedule", plan(schedule="none such")
    yield "plan-reducer", plan(reducer="none such")
    yield "plan-exact-ring", plan(reducer="ring", order=2)
    yield "plan-should-be-tied", plan(same="true", work={"train_all": 1})
    yield "plan-layers", plan(first=[0, 1, 2, 9])
    yield "plan-no-layer", plan(first=[0, 2, 2, 3])
    yield "plan-dtype", plan(wire=7)
    yield "plan-act", plan(work={"act": 7})
    yield "plan-rank", plan(work={"rank": 70000})
    yield "plan-rate", plan(work={"rate": -1.0})
    yield "plan-noise", plan(work={"noise": 1e9})
    yield "plan-optimizer", plan(work={"optimizer": "none such"})
    yield "plan-prefer", plan(work={"rl": "dpo"})
    yield "plan-prefer-unknown", plan(work={"rl": "ppo"})
    for name, p in plans_of_experts():
        yield "plan-experts" + name, p
    yield "plan-json", plan(config="{")
    yield "plan-config", plan(config="{}")


def batch(**o):
    n, ids = o.get("n", 4), o.get("ids", b"")
    start, row = o.get("start", [0, 2, 4]), o.get("row", [0, 2, 4])
    out = u8(o.get("round", 1)) + u64(1) + u32(o.get("microbatches", 2)) + f64(o.get("scale", 1))
    if "draw" in o:
        out += f64(o["draw"][0]) + f64(o["draw"][1]) + u64(42)
    out += u32(n) + u32(o.get("nseq", len(start) - 1))
    out += u32(o.get("first", 0)) + u32(o.get("nrows", len(row) - 1))
    out += blob(b"".join(u32(v) for v in row)) + blob(b"".join(u32(v) for v in start))
    out += blob(ids) + blob(o.get("labels", b""))
    answer, good, ref = o.get("pairs", ((), (), ()))
    out += blob(b"".join(u32(v) for v in answer)) + blob(b"".join(u32(v) for v in good))
    return out + blob(b"".join(f64(v) for v in ref))


def batches():
    four = b"".join(u32(v) for v in (1, 2, 3, 4))
    yield 4, "batch-ids", batch(ids=four)
    yield 5, "batch-labels", batch(labels=four)
    yield 6, "batch-middle", batch()
    yield 6, "batch-round", batch(round=9)
    yield 6, "batch-scale", batch(scale=-1)
    yield 4, "batch-sample", batch(round=2, draw=(0.7, 0.9), ids=four)
    yield 6, "batch-sample-cold", batch(round=2, draw=(-1, 1))
    yield 6, "batch-sample-no-top", batch(round=2, draw=(1, 2))
    yield 6, "batch-no-tokens", batch(n=0)
    yield 4, "batch-no-ids", batch()
    yield 6, "batch-not-from-0", batch(start=[1, 2, 4])
    yield 6, "batch-not-to-the-end", batch(start=[0, 2, 3])
    yield 6, "batch-backwards", batch(start=[0, 3, 2, 4])
    yield 6, "batch-beyond", batch(start=[0, 2000, 4])
    yield 6, "batch-one-row", batch(row=[0, 4], first=7)
    yield 6, "batch-no-row", batch(row=[0], nrows=0)
    yield 6, "batch-row-backwards", batch(row=[0, 0, 4])
    yield 6, "batch-rows-not-to-the-end", batch(row=[0, 2, 3])
    yield 6, "batch-row-far", batch(first=1 << 31)
    yield 6, "batch-cut", batch()[:20]
    two = dict(labels=four, row=[0, 4])
    good = ((0, 2), (1,), (-1.0, -2.0))
    yield 5, "batch-pairs", batch(pairs=good, **two)
    yield 5, "batch-pairs-refer", batch(round=3, pairs=good, **two)
    yield 6, "batch-pairs-in-the-middle", batch(pairs=good, row=[0, 4])
    yield 5, "batch-pairs-odd", batch(pairs=good, labels=four)
    yield 5, "batch-pairs-cut", batch(pairs=((0, 2), (1,), (-1.0,)), **two)
    yield 5, "batch-pairs-outside", batch(pairs=((0, 4), (1,), (0, 0)), **two)
    yield 5, "batch-pairs-good", batch(pairs=((0, 2), (7,), (0, 0)), **two)
    yield 5, "batch-pairs-reference", batch(pairs=((0, 2), (1,), (0, float("nan"))), **two)
    unlabelled = {**two, "labels": b"".join(u32(-100) for _ in range(4))}
    yield 5, "batch-pairs-untrained", batch(pairs=good, **unlabelled)


def stepped(**o):
    out = u64(o.get("busy", 5)) + u64(1) + u64(2) + u64(1 << 20) + u64(1 << 10)
    out += u64(o.get("hits", 3)) + u64(1) + u64(7) + u64(8)
    for _ in range(o.get("flows", 6)):
        out += u64(100) + u64(3) + u32(len(o.get("at", (1, 2))))
        out += b"".join(u64(v) for v in o.get("at", (1, 2)))
    spans = o.get("spans", [(1, 2, 3)])
    return (
        out
        + u32(len(spans))
        + b"".join(u64(a) + u64(b) + u64(c) + u32(0) + u8(1) + u8(0) for a, b, c in spans)
    )


def spoken():
    """HELLO_PROTOCOL of this program."""
    return int(re.search(r"HELLO_PROTOCOL = (\d+)", source("proto/hello.h")).group(1))


def hello(**o):
    out = u32(o.get("protocol", spoken())) + u8(o.get("role", 1)) + u32(2) + u32(0) + u64(7)
    out += u64(o.get("epoch", 0)) + u64(o.get("run", 5))
    return out + text("model") + text("to") + text("host") + o.get("more", b"")


def welcome(**o):
    out = text("a") + text("host") + text("cpu") + text("device") + u64(1 << 30) + u8(1) + u8(1)
    out += u8(1) + text("cpu avx512") + u64(5) + u8(o.get("keeps", 1)) + u8(0) + u32(1)
    out += u64(9) + u64(1 << 32) + u64(1 << 32) + text("machine") + u32(o.get("port", 7000))
    ways = o.get("ways", ["10.0.0.1"])
    return out + u32(len(ways)) + b"".join(text("eth0") + text(w) + text("00ff") for w in ways)


def record(**o):
    count = (5, o.get("step", 9), 1 << 32, 8, 1, 2, 4096, 0, 0, 0, 0, 0, 512, 500)
    out = b"".join(u64(v) for v in count) + f64(0) * 12
    out += b"".join(u8(v) for v in o.get("rules", (2, 2, 2))) + u8(0) + u8(o.get("flags", 1))
    passes = o.get("passes", ())
    return out + text("ab" * 32) + u32(len(passes)) + b"".join(u32(v) for v in passes)


def order(mode=1, seconds=1.0, ways=("127.0.0.1:7000",), relayed=0):
    out = u8(mode) + u32(1) + u8(relayed) + text("b") + text("key") + f64(seconds) + u32(len(ways))
    return out + b"".join(text(w) for w in ways)


def way(rounds=2, rate=1e9, latency=1e-5, reached=1):
    rates = b"".join(u32(rounds) + f64(rate) + f64(0.1) for _ in range(3))
    return u8(reached) + text("why not") + f64(latency) + rates + rates


def tensor_head(**o):
    out = text(o.get("name", "model.norm.weight")) + u8(o.get("storage", 0)) + u8(0) + u32(0)
    out += u8(o.get("ndim", 1)) + u64(8) + u64(1) + u64(o.get("bytes", 32))
    return out + blob(bytes(o.get("hash", 32)))


def protocols():
    yield "hello-read", 0, hello()
    yield "hello-protocol", 0, hello(protocol=6)
    yield "hello-role", 0, hello(role=99)
    yield "hello-epoch", 0, hello(epoch=1 << 32 | 3)
    yield "hello-more", 0, hello(more=b"x")
    yield "welcome-read", 1, welcome()
    yield "welcome-port", 1, welcome(port=70000)
    yield "welcome-name", 1, welcome(ways=["name"])
    yield "welcome-keeps", 1, welcome(keeps=2)
    yield "welcome-cut", 1, welcome()[:40]
    yield "refuse-why", 2, text("busy")
    yield "refuse-nothing", 2, b""
    for name, p in plans():
        yield name, 3, p
    for which, name, p in batches():
        yield name, which, p
    yield "loss-read", 7, f64(1) + u64(2) + u64(1) + (f64(3) + u64(1)) * 2
    yield "norm-read", 8, u32(2) + (u32(1) + f64(2)) * 2
    yield "norm-many", 8, u32(17) + (u32(1) + f64(2)) * 17
    yield "step-read", 9, u8(1) + u64(5) + f64(0.1) + f64(1) + blob(record())
    yield "record-read", 23, record()
    yield "record-passes", 23, record(passes=(3, 5))
    yield "record-rows", 23, record(passes=(3, 0))
    yield "record-rules", 23, record(rules=(2, 2, 9))
    yield "record-step", 23, record(step=0)
    yield "record-cut", 23, record()[:150]
    yield "stepped-read", 10, stepped()
    yield "stepped-times", 10, stepped(busy=1 << 63)
    yield "stepped-spans", 10, stepped(spans=[(3, 2, 1)])
    yield "stepped-many-spans", 10, stepped(spans=[(1, 2, 3)] * 20)
    yield "stepped-flows", 10, stepped(at=(1, 2, 3, 4))
    yield "state-read", 11, text("name") + text("value") + u64(0) + blob(bytes(8))
    yield "state-odd", 11, text("name") + text("value") + u64(0) + blob(bytes(7))
    yield "offer-read", 12, u32(1) + tensor_head()
    yield "offer-bytes", 12, u32(1) + tensor_head(bytes=31)
    yield "offer-storage", 12, u32(1) + tensor_head(storage=9)
    yield "abort-read", 13, text("because") + u32(3)
    yield "abort-nothing", 13, b""
    yield "abort-unknown", 13, text("because") + u32(9999)
    yield "clock-read", 14, u64(1) + u64(2)
    yield "clock-odd", 14, u64(1 << 63) + u64(2)
    yield "probe-read", 15, order()
    yield "probe-mode", 15, order(mode=9)
    yield "probe-seconds", 15, order(seconds=1e9)
    yield "probe-relayed", 15, order(relayed=9)
    yield "probed-read", 16, u32(2) + way() * 2
    yield "probed-count", 16, u32(1) + way()
    yield "probed-figures", 16, u32(2) + way(rate=-1) * 2
    yield "probed-not-reached", 16, u32(2) + way(rounds=0, rate=0, latency=0, reached=0) * 2
    yield "probed-cut", 16, (u32(2) + way() * 2)[:60]
    yield "token-read", 21, u32(5)
    yield "token-large", 21, u32(1 << 31)
    yield "progress-read", 22, u32(1) + u32(5) + u64(1) + u64(2)
    yield "progress-state", 22, u32(9) + u32(5) + u64(1) + u64(2)


# ---- measuring ----


def request(**o):
    sizes = o.get("sizes", (1, 2))
    out = u8(0) + text(o.get("config", CONFIG % "false")) + u8(0) + work(**o.get("work", {}))
    out += u32(o.get("tokens", 64)) + u32(o.get("sequences", 2)) + f64(o.get("trained", 0.5))
    out += f64(o.get("budget", 1)) + u32(1) + u32(2) + u32(len(sizes))
    return out + b"".join(u32(v) for v in sizes)


def point(**o):
    out = u32(o.get("m", 1)) + u32(o.get("runs", 3))
    for k in range(POINT_TIMES):
        out += f64(o.get("seconds", 0.1) if k == 0 else 0.1)
    out += f64(o.get("spread", 0.1)) + f64(0) + u64(o.get("kept", 100)) + u64(10) + u64(10)
    out += u64(o.get("end", 5))
    return out


POINT_TIMES = 13  # MEASURE_TIMES of runtime/measure.h


def result(**o):
    points = o.get("points", [point(), point(m=2)])
    out = text("cpu") + text(o.get("driver", "driver")) + u32(o.get("units", 2)) + u32(2) + u8(0)
    out += u64(o.get("memory", 1 << 30)) + u64(o.get("used", 1 << 20)) + u64(1 << 10)
    for _ in range(3):
        out += f64(o.get("optimizer", 0.1)) + u64(o.get("weights", 1000)) + u64(1000)
    out += f64(o.get("residual", 0)) + u32(len(points)) + b"".join(points)
    out += u64(1 << 30) + f64(o.get("rounding", 0.01))
    out += text(o.get("cores", "0-3,8")) + f64(o.get("processors", 2))
    return out + f64(o.get("host_update", 0.2))


def measures():
    yield "request-read", 1, request()
    yield "request-no-optimizer", 1, request(work={"optimizer": ""})
    yield "request-work", 1, request(work={"rank": 70000})
    yield "request-tokens", 1, request(tokens=0)
    yield "request-trained", 1, request(trained=2)
    yield "request-size", 1, request(sizes=(0,))
    yield "request-no-size", 1, request(sizes=())
    yield "request-json", 1, request(config="[")
    yield "request-config", 1, request(config="{}")
    yield "request-cut", 1, request()[:50]
    yield "result-read", 0, result()
    yield "result-text", 0, result(driver=b"dr\xf0\xae\x94z")
    yield "result-units", 0, result(units=1 << 30)
    yield "result-memory", 0, result(memory=0)
    yield "result-weights", 0, result(weights=0)
    yield "result-residual", 0, result(residual=1e9)
    yield "result-rounding", 0, result(rounding=-1)
    yield "result-no-points", 0, result(points=[])
    yield "result-order", 0, result(points=[point(m=2), point(m=1)])
    yield "result-seconds", 0, result(points=[point(seconds=-1)])
    yield "result-spread", 0, result(points=[point(spread=-1)])
    yield "result-kept", 0, result(points=[point(kept=0)])
    yield "result-cut", 0, result()[:50]
    yield "result-cores", 0, result(cores="all")
    yield "result-processors", 0, result(processors=-1)
    yield "result-end", 0, result(points=[point(end=11)])
    yield "result-host", 0, result(host_update=-1)


# ---- connections: orders of fuzz_link.c ----

HELLO, MESSAGE, CREDIT, PING, ALIVE, BYE, REFUSE = range(1, 8)
H_PARALLEL, H_JOIN, H_PIECE = range(12, 15)
KEYS, DIALS, SHAKES, GREETS, NEAR, WAITS, STARVES, STRANGE = (1 << k for k in range(8))


def raw(b):
    return bytes([0, len(b)]) + b


def past(b):
    return bytes([1, len(b)]) + b


def head(kind, a=0):
    return bytes([2, kind, a])


def several(kind, a, b):
    """PIECE: `a` 0 none, 1 one byte, 2 200 bytes, 3 the most, 4 and 5 too many."""
    return bytes([2, 192 + kind - H_PARALLEL, a, b])


def message(n):
    return bytes([3, n // 32])


def sends(n):
    return bytes([4, n // 128])


def extreme(kind, less=0, both=0):
    return bytes([6, kind + (72 if both else 0), less])


def memory(pages, number=0, more=0, seals=1):
    return bytes([8, pages | (8 if more else 0) | number << 4, seals])


def shared(number, n):
    return bytes([9, number, n // 128])


def drop(number):
    return bytes([10, number])


LEAVE, SHUT, TAKES, TAKE, CREDITS, PUSHES_CREDIT = (
    bytes(v) for v in ([5, 0], [7, 0], [11, 0], [12, 0], [14, 0], [14, 1])
)


def pushes(n):
    return bytes([13, n // 128])


def starve(k):
    return bytes([15, k])


def several_scenes(flags):
    """Several connections of one link."""
    begins = several(H_PARALLEL, 2, 7 if flags & DIALS else 0)
    yield "several", flags, [
        begins, several(H_PIECE, 1, 0), raw(b"x"), TAKES, several(H_PIECE, 2, 1), message(320),
        sends(128), head(CREDIT, 1), several(H_PIECE, 1, 2), raw(b"y"), head(PING), CREDITS,
    ]  # fmt: skip
    yield "several-bye", flags, [begins, several(H_PIECE, 1, 0), raw(b"x"), head(BYE)]
    yield "several-bye-waits", flags, [begins, several(H_PIECE, 1, 0), raw(b"x"),
                                       several(H_PIECE, 1, 1), head(BYE), SHUT]  # fmt: skip
    yield "several-leave", flags, [begins, several(H_PIECE, 2, 0), raw(b"x" * 90), LEAVE,
                                   raw(b"x" * 110), several(H_PIECE, 1, 1),
                                   several(H_PIECE, 2, 2), raw(b"z" * 200), head(BYE)]  # fmt: skip
    yield "several-twice", flags, [begins, begins]
    yield "several-one", flags, [several(H_PARALLEL, 1, 0)]
    yield "several-nine", flags, [several(H_PARALLEL, 9, 0)]
    yield "several-wrong-end", flags, [several(H_PARALLEL, 2, 0 if flags & DIALS else 7)]
    yield "several-single", flags, [several(H_PIECE, 2, 0)]
    for a in (0, 4, 5):
        yield "several-size-%d" % a, flags, [begins, several(H_PIECE, a, 0)]
    yield "several-turn", flags, [begins, several(H_PIECE, 2, 1)]
    yield "several-window", flags, [begins] + [several(H_PIECE, 3, 2 * k + 1) for k in range(3)]
    yield "several-waits", flags | WAITS, [begins, message(320), TAKE, several(H_PIECE, 1, 0)]
    yield "several-starved", flags, [starve(0), begins, starve(1), several(H_PIECE, 3, 0)]
    yield "joins-late", flags, [several(H_JOIN, 1, 1)]
    if flags & DIALS:
        return
    joins = flags & ~GREETS
    one = several(H_JOIN, 1, 1)
    yield "joins", joins, [
        one, several(H_PIECE, 2, 1), raw(b"x" * 200), sends(1280), several(H_PIECE, 2, 4), TAKE,
        TAKE, TAKE, raw(b"y" * 200), TAKES, head(PING), head(ALIVE), head(BYE),
    ]  # fmt: skip
    yield "joins-third", joins, [
        several(H_JOIN, 1, 2), TAKE, several(H_PIECE, 2, 2), raw(b"x" * 99),
    ]  # fmt: skip
    yield "joins-leave", joins, [
        one, several(H_PIECE, 2, 1), raw(b"x" * 20), LEAVE, raw(b"x" * 180),
        several(H_PIECE, 2, 4), raw(b"z" * 200), head(BYE),
    ]  # fmt: skip
    yield "joins-held", joins, [one, several(H_PIECE, 2, 7), LEAVE, raw(b"z" * 200), SHUT]
    yield "joins-cut", joins, [one, several(H_PIECE, 2, 1), raw(b"x" * 20), SHUT]
    yield "joins-again", joins, [one, one]
    for place in (0, 3, 255):
        yield "joins-place-%d" % place, joins, [several(H_JOIN, 1, place)]
    yield "joins-other", joins, [several(H_JOIN, 2, 1)]
    for a, number in ((0, 1), (4, 1), (5, 1), (1, 1), (2, 0), (2, 255)):
        yield "joins-piece-%d-%d" % (a, number), joins, [one, several(H_PIECE, a, number)]
    yield "joins-back", joins, [
        one, several(H_PIECE, 2, 1), raw(b"x" * 200), several(H_PIECE, 2, 1),
    ]  # fmt: skip
    for kind in (MESSAGE, CREDIT, HELLO, 0):
        yield "joins-says-%d" % kind, joins, [one, head(kind, 0)]
    for k in range(4):
        yield "joins-starved-%d" % k, joins, [starve(k), one]


def scenes(flags):
    """What happens on a connection that comes up."""
    if flags & NEAR:
        yield "several-near", flags, [several(H_PARALLEL, 2, 7 if flags & DIALS else 0)]
    else:
        yield from several_scenes(flags)
    yield "talk", flags, [
        message(320), message(0), TAKES, CREDITS, sends(128), sends(32000), head(PING), head(ALIVE),
        pushes(256), pushes(30000), message(6400), TAKES, PUSHES_CREDIT, head(BYE),
    ]  # fmt: skip
    yield "leave", flags, [message(640), sends(25600), LEAVE, message(320), head(PING), head(BYE)]
    yield "leave-cut", flags, [message(320), LEAVE, SHUT, message(32)]
    yield "cut", flags, [head(MESSAGE, 200), raw(b"x" * 20), SHUT]
    yield "many", flags, [sends(128)] * 60
    yield "window", flags, [message(8000)] * 12
    yield "credit", flags, [sends(128), head(CREDIT, 255), head(CREDIT, 255)]
    yield "no-magic", flags, [raw(b"x" * 24)]
    yield "type", flags, [head(0)]
    yield "type-large", flags, [head(11)]
    yield "hello-twice", flags, [extreme(HELLO, 0, 1)]
    yield "refused", flags, [head(REFUSE, 1)]
    yield "refused-why", flags, [head(REFUSE, 9)]
    yield "large", flags, [extreme(MESSAGE)]
    yield "not-zero", flags, [extreme(PING)]
    yield "not-zero-b", flags, [extreme(MESSAGE, 0, 1)]
    yield "credit-large", flags, [extreme(CREDIT)]
    yield "waits", flags | WAITS, [message(640)] * 4 + [head(PING), TAKE, message(320), TAKES]
    yield "waits-large", flags | WAITS, [message(6400), TAKE, TAKES]
    yield "waits-leaves", flags | WAITS, [message(6400), message(320), LEAVE, message(32)]
    yield "waits-taken", flags | WAITS, [TAKE, TAKE, message(6400)]
    yield "waits-starved", flags | WAITS, [starve(0), TAKE, message(320)]
    for k in range(4):
        yield "starved-%d" % k, flags, [starve(k), message(6400), starve(k), sends(6400)]
    for k in range(8):
        yield "meets-starved-%d" % k, flags | STARVES, [bytes([k]), message(320)]
    yield "stranger", flags | STRANGE, [message(320)]
    yield "silent", flags & ~GREETS, [SHUT]
    yield "says-else", flags & ~GREETS, [head(PING)]
    yield "says-refused", flags & ~GREETS, [head(REFUSE, 1)]
    yield "says-garbage", flags & ~GREETS, [raw(b"y" * 24)]
    yield "before-shaking", flags & ~(SHAKES | GREETS), [past(b"HSL2" + bytes(20)), SHUT]
    yield "tls-for-plain", flags & ~(SHAKES | GREETS), [
        past(b"\x16\x03\x01\x00\x05\x01\x00\x00\x01\x03" + bytes(20)), SHUT,
    ]  # fmt: skip
    yield "alert", flags & ~(SHAKES | GREETS), [past(b"\x15\x03\x03\x00\x02\x02\x50"), SHUT]
    yield "greets-twice", flags, [head(HELLO, 9)]
    if flags & NEAR:
        yield "memory", flags, [
            memory(4), shared(0, 1280), TAKES, shared(0, 128), sends(25600), sends(30000),
            pushes(28000), TAKES, drop(0), memory(2, 1), shared(1, 128), drop(1), LEAVE,
            memory(1, 2), shared(2, 128),
        ]  # fmt: skip
        yield "memory-waits", flags | WAITS, [memory(2), shared(0, 128), TAKE, TAKES]
        yield "memory-size", flags, [memory(4, 0, 1)]
        yield "memory-unsealed", flags, [memory(2, 0, 0, 0)]
        yield "memory-again", flags, [memory(2), memory(2)]
        yield "memory-empty", flags, [memory(0)]
        yield "memory-none", flags, [head(8, 64)]
        yield "shared-none", flags, [shared(5, 128)]
        yield "shared-large", flags, [memory(1), shared(0, 8064)]
        yield "shared-twice", flags, [memory(2), shared(0, 128), shared(0, 128)]
        yield "drop-none", flags, [drop(5)]
        yield "shared-starved", flags, [memory(2), starve(0), shared(0, 128)]
        first = b"HSP1" + bytes(68)
        yield "proof-magic", flags & ~(SHAKES | GREETS), [past(b"HSP2" + bytes(68)), SHUT]
        yield "proof-no-key", flags & ~(SHAKES | GREETS), [past(first + bytes(64)), SHUT]
        yield "proof-refused", flags & ~(SHAKES | GREETS), [past(b"HSP1\3" + bytes(131)), SHUT]
        yield "proof-key", flags & ~(SHAKES | GREETS), [past(b"HSP1\1" + bytes(131)), SHUT]
        yield "proof-cut", flags & ~(SHAKES | GREETS), [past(first[:30]), SHUT]
    else:
        first = past(b"\x16\x03\x01\x40\x00\x01\x01\xff\xff\x03\x03" + bytes(240))
        yield "long", flags & ~(SHAKES | GREETS), [first] + [past(bytes(250))] * 62
        yield "memory-far", flags, [head(8, 1)]


def connections():
    for near in (0, NEAR):
        for keys in (0, KEYS):
            for dials in (0, DIALS):
                flags = near | keys | dials | GREETS | (SHAKES if near or keys else 0)
                base = ("near" if near else "tls" if keys else "tcp") + (
                    "-keys" if near and keys else ""
                )
                for name, how, orders in scenes(flags):
                    yield base + ("-dials-" if dials else "-") + name, bytes([how]) + b"".join(
                        orders
                    )


# ---- a coordinator: messages of fuzz_session.c ----

SECOND, NEXT = 128, 64  # from worker b; when the coordinator has taken all before, the next step
NO_WELCOME, NO_READY, WRONG_JOB = 1, 4, 64  # shifted by one for worker b
PROGRESS, CLOCK, REFUSE_FRAME, BATCH, LOSS = 31, 30, 3, 9, 12


def loss(m, who=SECOND, value=0):
    return bytes([3 | who, m << 4 | value])


def norm(who, entries):
    return bytes([5 | who, entries])


def stepped_by(who, how=0):
    return bytes([7 | who, how])


def state_by(who, what, first, count, how=0):
    return bytes([9 | who, (1 if who & SECOND else 0) | what << 3 | how, first, count])


def saved(who):
    return bytes([11 | who])


def stops(who, code, refuse=False):
    return bytes([13 | who, code, 0 if refuse else 1])


def kind_by(who, kind, payload=b"", m=0):
    return bytes([14 | who, 0, kind, len(payload)]) + payload + bytes([m])


def no_frame(who, b):
    return bytes([15 | who, len(b)]) + b


def sessions():
    losses = [loss(0), loss(1)]
    norms = [norm(0, 2), norm(SECOND, 3)]
    done = [stepped_by(0), stepped_by(SECOND)]
    step = losses + norms + done
    first = [state_by(k, w, 0, 16) for w in range(3) for k in (0,)]
    first[0] = bytes([first[0][0] | NEXT]) + first[0][1:]
    state = first + [saved(0)] + [state_by(SECOND, w, 0, 16) for w in range(3)] + [saved(SECOND)]
    good = u32(1) + u32(3) + u64(1) + u64(5)
    kept = [state_by(0, w, 0, 16) for w in range(3)]
    again = [state_by(SECOND, w, 0, 16) for w in range(3)]
    for name, how, more in (
        ("all", 0, kept + [bytes([8, 8]), saved(0)] + again + [bytes([8 | SECOND, 8])]),
        ("parts", 16, kept + [bytes([8, 8]), saved(0)] + again + [bytes([8 | SECOND, 8])]),
        ("twice", 16, kept + kept + [bytes([8, 10]), bytes([8, 8]), saved(0)] + again),
        ("some", 16, [state_by(0, 0, 4, 8), state_by(0, 0, 0, 16), bytes([8, 8]), saved(0)]),
        ("other-run", 16, kept + [bytes([8, 9]), saved(0)]),
        ("other-step", 16, kept + [bytes([8, 12]), saved(0)]),
        ("cut", 16, kept + [bytes([8, 72]), saved(0)]),
        ("scale", 16, kept + [bytes([8, 248]), saved(0)]),
        ("no-record", 16, kept + [saved(0)] + again + [saved(SECOND)]),
        ("nothing", 0, [saved(0), saved(SECOND)]),
        ("loss", 0, losses),
        ("beyond", 0, [state_by(0, 0, 0, 17)]),
        ("hangs-up", 16, kept),
    ):
        end = [] if name == "hangs-up" else [saved(SECOND)]
        yield "kept-" + name, 128 | 12 | how, more + end
    yield "all", 0, step + state
    yield "slow", 0, [kind_by(0, PROGRESS, good)] * 2 + [kind_by(SECOND, PROGRESS, good)] + step
    yield "progress", 0, [kind_by(0, PROGRESS, u32(9) + bytes(20))] + step
    yield "progress-cut", 0, [kind_by(0, PROGRESS, b"x")] + step
    yield "leaves", 0, losses + [bytes([12])] + norms + done + state
    yield "leaves-at-once", 0, [bytes([12 | SECOND])] + step + state
    for code in (0, 1, 2, 6, 200):
        yield "aborts-%d" % code, 0, losses + [stops(0, code)]
        yield "aborts-b-%d" % code, 0, losses + norms + [stops(SECOND, code)]
    lost = text("b closed it") + u32(7)
    yield "broken", 0, losses + [kind_by(0, 39, lost)] + norms
    yield "broken-b", 0, [kind_by(SECOND, 39, lost), kind_by(0, 39, lost)]
    yield "broken-cut", 0, losses + [kind_by(0, 39, b"x")]
    yield "forgot-unasked", 0, losses + [kind_by(0, 38)]
    yield "both-abort", 0, [stops(0, 5), stops(SECOND, 2)]
    yield "refuses", 0, losses + [stops(0, 2, True)]
    yield "loss-of-the-front", 0, [loss(0, 0)]
    yield "loss-twice", 0, [loss(0), loss(0)]
    yield "loss-beyond", 0, [loss(7)]
    yield "loss-early", 0, [bytes([3 | SECOND | NEXT, 0])]
    yield "norm-twice", 0, losses + [norm(0, 2), norm(0, 2)]
    yield "norm-layers", 0, losses + [norm(0, 4), norm(SECOND, 4)]
    yield "norm-none", 0, losses + [norm(0, 0), norm(SECOND, 0)]
    yield "stepped-twice", 0, losses + norms + [stepped_by(0), stepped_by(0)]
    yield "stepped-odd", 0, losses + norms + [stepped_by(0, 6)]
    yield "stepped-early", 0, losses + [stepped_by(0)]
    yield "state-early", 0, [state_by(0, 0, 0, 16)]
    for name, how in (
        ("other", state_by(NEXT, 0, 0, 16, 4)),
        ("what", state_by(NEXT, 3, 0, 16)),
        ("beyond", state_by(NEXT, 0, 0, 17)),
        ("far", state_by(NEXT, 0, 0, 16, 128)),
        ("gap", state_by(NEXT, 0, 1, 4)),
        ("not-its-own", bytes([9 | NEXT, 1, 0, 16])),
        ("missing", saved(NEXT)),
        ("loss", bytes([3 | NEXT, 0])),
        ("cut", kind_by(NEXT, 20, b"x")),
        ("again", first[0] + state_by(0, 0, 0, 16)),
    ):
        yield "state-" + name, 0, step + [how, saved(SECOND), saved(0)]
    yield "no-frame", 0, losses + [no_frame(0, b"none")]
    yield "no-frame-b", 0, losses + norms + [no_frame(SECOND, b"none")]
    yield "other-frame", 0, [kind_by(0, BATCH)]
    yield "hello-again", 0, losses + [bytes([0, 5])]
    yield "needs", 0, [bytes([2, 2, 1, 2])]
    yield "clock-twice", 0, [bytes([1 | SECOND])] + step
    yield "clock-odd", NO_READY, [bytes([1])] + [kind_by(0, CLOCK, u64(1 << 63) + u64(1))]
    yield "no-welcome", NO_WELCOME, [bytes([0, 1])]
    yield "no-welcome-b", NO_WELCOME * 2, [kind_by(SECOND, REFUSE_FRAME, text("busy"))]
    yield "no-ready", NO_READY, [bytes([1])] + step
    yield "no-ready-loss", NO_READY * 2, [loss(0)]
    yield "no-ready-needs", NO_READY, [bytes([2, 3, 0, 1, 31])]
    yield "no-ready-aborts", NO_READY * 2, [stops(SECOND, 3)]
    yield "no-ready-progress", NO_READY, [kind_by(0, PROGRESS, good), bytes([1])] + step + state
    yield "no-ready-leaves", NO_READY, [bytes([12]), bytes([1])] + step + state
    yield "wrong-job", WRONG_JOB, step
    yield "nothing", 0, []


# ---- a worker: messages of fuzz_worker.c ----

F32, BF16, F16 = range(3)
QUANTIZE, DOUBLE, TRAIN_ALL, RECOMPUTE, TRACE, DROPOUT = (4 << k for k in range(6))
PREFER = RECOMPUTE | TRACE | DROPOUT
GPIPE, SEQUENTIAL, INTERLEAVED, OFFERED, SGD = 16, 32, 48, 64, 128


def place_of(stage, stages, more=0, same=False):
    """The first byte: where the worker is, with these bits, whether head and embedding are one."""
    for b in range(256):
        where = 1 + b % 3 == stages and b // 4 % 4 % stages == stage
        if where and b & 240 == more and (b % 4 == 3) == same:
            return b
    raise ValueError(stage, stages, more, same)


# The last byte: what group the stage is. It is also a message, one that says nothing.
ALONE, ALONE_FAST = 8, 52
TWO_EXACT, TWO_FAST, TWO_TREE, TWO_RING, TWO_BEHIND = 74, 30, 118, 206, 162
THREE_EXACT, THREE_DIRECT, THREE_TREE, THREE_RING, THREE_BEHIND = 19, 63, 151, 239, 107
NAMES = (0, 1, 2, 3, 4, 5, 6)


def code(kind, value=0, mask=0, later=False):
    """A byte for a kind of message, with these bits, in the next step or not."""
    for b in range(128, 256) if later else range(128):
        if b % 11 == kind and b & mask == value and b // 10 != 11:
            return bytes([b])
    raise ValueError(kind)


def batch_to(m, of, ids, labels, train=1, n=4, how=0, tokens=None, later=False):
    some = train | (of - 1) * 2 | ids * 16 | labels * 32 | m << 6
    tokens = tokens or bytes(range(1, n + 1))
    return code(0, later=later) + bytes([how, n - 1, some]) + tokens


def tensor_from(kind, m, dtype=F32, n=4, chunk=0, wrong=0, later=False):
    how = m | dtype << 2 | chunk << 4 | wrong
    return code(kind, later=later) + bytes([how, n - 1]) + b"abcd"


def tied(value, n=1):
    return bytes([114 if value else 113, 0, n - 1]) + b"abcd"


STEP, SKIP, SAVE = code(2, 16, 16), code(2, 0, 16), code(6)


def load(name, what, first=0, count=16):
    return code(5) + bytes([name | what << 3, first, count]) + b"abcd"


def offer_one(how, piece=31):
    return code(7) + bytes([how, piece - 1]) + b"abcd"


def any_frame(kind, payload=b"", link=0, how=0, later=False):
    for b in range(128, 256) if later else range(128):
        if b % 11 == 8 and b // 16 % 5 == link:
            return bytes([b, kind, len(payload), how]) + payload
    raise ValueError(link)


def broken(link, b=b"none"):
    for k in range(128):
        if k % 11 == 9 and k // 16 % 5 == link:
            return bytes([k, len(b)]) + b
    raise ValueError(link)


def part(how, number, more=0):
    return code(10) + bytes([how, number, more])


def round_of(stage, stages, of=2, train=1, dtype=F32, later=False):
    """All that a worker of one stage hears in a round."""
    front, end = stage == 0, stage == stages - 1
    out = [batch_to(m, of, front, end, train, later=later and m == 0, how=m & 1) for m in range(of)]
    out += [tensor_from(3, m, dtype) for m in range(of) if not front]
    out += [tensor_from(4, m, dtype) for m in range(of) if train and not end]
    return out + ([STEP] if train else [])


def workers():
    for stages in (1, 2, 3):
        for stage in range(stages):
            name = "%d-of-%d-" % (stage, stages)
            for how, extra in (
                ("plain", 0),
                ("all", TRAIN_ALL | TRACE),
                ("bf16", BF16 | RECOMPUTE),
                ("nf4", F16 | QUANTIZE | DOUBLE | DROPOUT),
            ):
                schedule = {"plain": 0, "all": GPIPE, "bf16": SEQUENTIAL, "nf4": SGD}[how]
                rounds = round_of(stage, stages, dtype=extra & 3)
                rounds += round_of(stage, stages, 1, 0, dtype=extra & 3, later=True)
                place = place_of(stage, stages, schedule)
                yield name + how, place, extra, rounds + [SAVE], ALONE
    one = round_of(0, 1)
    yield "chunks", INTERLEAVED, TRAIN_ALL, one + [SAVE], ALONE
    yield "fast", 0, 0, one, ALONE_FAST
    yield "sample", 0, 0, [batch_to(0, 1, 1, 1, 0, how=64)], ALONE
    yield "sample-drawn", 0, 0, [batch_to(0, 1, 1, 1, 0, how=192)], ALONE
    yield "skip", 0, 0, one[:2] + [SKIP, SAVE], ALONE
    yield "step-first", 0, 0, [one[0], STEP, one[1]], ALONE
    yield "step-twice", 0, 0, [one[0], STEP, STEP, one[1]], ALONE
    yield "batch-twice", 0, 0, [one[0], one[0]], ALONE
    yield "batch-of-later", 0, 0, [one[0], batch_to(1, 2, 1, 1, later=True)], ALONE
    yield "batch-without-ids", 0, 0, [batch_to(0, 1, 0, 1)], ALONE
    yield "batch-token", 0, 0, [batch_to(0, 1, 1, 1, tokens=b"\1\2\3\xff"), STEP], ALONE
    yield "batch-label", 0, 0, [batch_to(0, 1, 1, 1, tokens=b"\1\2\3\xfe"), STEP], ALONE
    yield "batch-scaled", 0, 0, [batch_to(0, 1, 1, 1, how=128), STEP, SAVE], ALONE
    for name, how, tokens in (
        ("pairs", 36, None),
        ("pairs-refer", 52, None),
        ("pairs-missing", 0, None),
        ("pairs-untrained", 36, b"\x40" * 6),
        ("pairs-odd", 32, None),
    ):
        for train in (0, 1):
            say = [batch_to(0, 1, 1, 1, train, n=6, how=how, tokens=tokens), STEP, SAVE]
            yield "%s-%d" % (name, train), 0, PREFER, say, ALONE
    yield "pairs-not-planned", 0, 0, [batch_to(0, 1, 1, 1, n=6, how=36), STEP], ALONE
    yield "no-step", 0, 0, one[:2], ALONE
    yield "one-batch", 0, 0, one[:1], ALONE
    yield "save-in-round", 0, 0, [one[0], SAVE], ALONE
    yield "abort-in-round", 0, 0, [one[0], any_frame(22, text("stop") + u32(3))], ALONE
    yield "abort", 0, 0, [any_frame(22, text("stop") + u32(3))], ALONE
    yield "forget", 0, 0, one + [any_frame(37, how=16)], ALONE
    yield "forget-in-round", 0, 0, [one[0], any_frame(37, how=16)], ALONE
    yield "forget-twice", 0, 0, [one[0]] + [any_frame(37, how=16)] * 2, ALONE
    yield "forget-old", 0, 0, [one[0], any_frame(37)], ALONE
    yield "later-epoch", 0, 0, [any_frame(30, how=16)], ALONE
    yield "clock", 0, 0, [any_frame(30), any_frame(30), *one], ALONE
    yield "other-job", 0, 0, [any_frame(30, how=1)], ALONE
    yield "other-job-in-round", 0, 0, [one[0], any_frame(9, how=1)], ALONE
    yield "finish-early", 0, 0, [any_frame(23)], ALONE
    yield "hello", 0, 0, [any_frame(1)], ALONE
    yield "no-frame", 0, 0, [broken(0)], ALONE
    yield "no-frame-in-round", 0, 0, [one[0], broken(0)], ALONE
    for n in NAMES:
        for w in range(4):
            yield "load-%d-%d" % (n, w), 0, TRAIN_ALL, [load(n, w)], ALONE
            yield "load-lora-%d-%d" % (n, w), 0, 0, [load(n, w)], ALONE
    yield "load-far", 0, 0, [load(0, 0, 255, 64)], ALONE
    # a middle stage, and what its neighbours say wrongly
    middle, place = round_of(1, 3), place_of(1, 3)
    two = middle[:2]
    yield "late", place, 0, two, ALONE
    yield "act-wrong-size", place, 0, two + [tensor_from(3, 0, n=5)], ALONE
    yield "act-wrong-dtype", place, 0, two + [tensor_from(3, 0, BF16)], ALONE
    yield "act-of-somebody", place, 0, two + [tensor_from(3, 0, wrong=64)], ALONE
    yield "act-chunk", place, 0, two + [tensor_from(3, 0, chunk=2)], ALONE
    yield "act-many", place, 0, two + [tensor_from(3, 3)] * 12, ALONE
    yield "act-of-later", place, 0, two + [tensor_from(3, 0, later=True)], ALONE
    yield "act-broken", place, 0, two + [broken(1)], ALONE
    yield "act-other-kind", place, 0, two + [any_frame(12, link=1)], ALONE
    yield "act-other-job", place, 0, two + [any_frame(11, link=1, how=1)], ALONE
    yield "grad-from-before", place, 0, two + [tied(0)], ALONE
    yield "grad-wrong-size", place, 0, middle[:4] + [tensor_from(4, 0, n=6)], ALONE
    yield "grad-wrong-dtype", place, BF16, round_of(1, 3, dtype=BF16)[:4] + [
        tensor_from(4, 0, F32)
    ], ALONE
    yield "act-first", place, 0, middle[2:4] + two + middle[4:], ALONE
    yield "abort-while-waiting", place, 0, two + [any_frame(22, text("x") + u32(1))], ALONE
    yield "step-while-waiting", place, 0, two + [STEP] + middle[2:6], ALONE
    yield "full", place_of(0, 2, INTERLEAVED), 0, round_of(0, 2, 3, 0), ALONE
    yield "full-trains", place_of(0, 2, INTERLEAVED), 0, round_of(0, 2, 3), ALONE
    yield "full-middle", place_of(1, 3, INTERLEAVED), 0, round_of(1, 3, 3), ALONE
    full_abort = round_of(0, 2, 3, 0) + [any_frame(22, text("x") + u32(1))]
    yield "full-abort", place_of(0, 2, INTERLEAVED), 0, full_abort, ALONE
    yield "leaves", place_of(0, 1, SGD), 0, one + [SAVE], ALONE
    # the embedding is the head: front and end exchange it
    for stages in (2, 3):
        for stage in range(stages):
            rounds, t = round_of(stage, stages), TRAIN_ALL
            place = next(
                b
                for b in range(48)
                if 1 + b % 3 == stages and b // 4 % 4 % stages == stage and b % 4 == 3
            )
            name = "tied-%d-of-%d-" % (stage, stages)
            yield name + "none", place, t, rounds + [SAVE], ALONE
            yield name + "grad", place, t, rounds + [tied(0), SAVE], ALONE
            yield name + "value", place, t, rounds + [tied(1), SAVE], ALONE
            yield name + "part", place, t, rounds + [tied(0, 16), tied(1, 16)], ALONE
            yield name + "twice", place, t, rounds + [tied(0)] * 2 + [tied(1)] * 2, ALONE
            yield name + "first", place, t, [tied(0), tied(1)] + rounds, ALONE
            evaluates = round_of(stage, stages, 1, 0)
            yield name + "eval", place, t, [tied(0), tied(1)] + evaluates, ALONE
            yield name + "frozen", place, 0, rounds + [tied(0), tied(1)], ALONE
    yield "tied-alone", 3, TRAIN_ALL, one + [SAVE], ALONE
    # parameters over the link
    offered = place_of(0, 1, OFFERED)
    for how in (0, 1, 2, 3, 4, 8, 16, 17, 48, 80, 112, 144):
        for piece in (32, 7):
            yield "offer-%d-%d" % (how, piece), offered, 0, [offer_one(how, piece)] + one, ALONE
    yield "offer-cached", offered, TRACE, [offer_one(48, 32)] + one, ALONE
    yield "offer-limit", offered, DROPOUT, [offer_one(48, 32)], ALONE
    yield "offer-all-nf4", offered, QUANTIZE, [offer_one(16, 32)] + one, ALONE
    yield "offer-all-doubled", offered, QUANTIZE | DOUBLE, [offer_one(16, 32)] + one, ALONE
    yield "offer-abort", offered, 0, [any_frame(22, text("x") + u32(1))], ALONE
    yield "offer-finish", offered, 0, [any_frame(23)], ALONE
    yield "offer-none", offered, 0, [], ALONE
    yield "offer-other", offered, 0, [SAVE], ALONE
    yield "offer-broken", offered, 0, [any_frame(5, b"x")], ALONE
    yield "offer-lost", offered, 0, [broken(0)], ALONE
    for name, m in (
        ("probe", any_frame(27)),
        ("probe-odd", any_frame(27, b"x")),
        ("batch", any_frame(9)),
        ("act", tensor_from(3, 0)),
        ("plan", any_frame(4, b"x")),
        ("abort", any_frame(22, text("x") + u32(1))),
        ("finish", any_frame(23)),
        ("lost", broken(0)),
    ):
        yield "before-plan-" + name, 0, 0, [m], 255
    # groups
    for g, group in (
        ("two-exact", TWO_EXACT), ("two-fast", TWO_FAST), ("two-tree", TWO_TREE),
        ("two-ring", TWO_RING), ("two-behind", TWO_BEHIND), ("three-exact", THREE_EXACT),
        ("three-direct", THREE_DIRECT), ("three-tree", THREE_TREE), ("three-ring", THREE_RING),
        ("three-behind", THREE_BEHIND),
    ):  # fmt: skip
        for number in range(3):
            yield "sum-%s-%d" % (g, number), 0, 0, one + [
                part(0, number), part(1, number), part(32, number + 1), part(33, number), SAVE,
            ], group  # fmt: skip
        yield "sum-%s-parts" % g, 0, 0, one + [
            part(how, number) for how in (0, 1, 8, 9, 16, 17) for number in range(4)
        ], group
        yield "sum-%s-wrong" % g, 0, 0, one + [part(64, 0, 5)], group
        yield "sum-%s-dtype" % g, 0, 0, one + [part(128, 0, 1)], group
        yield "sum-%s-chunk" % g, 0, 0, one + [part(6, 0)], group
        yield "sum-%s-twice" % g, 0, 0, one + [part(0, 0)] * 2, group
        yield "sum-%s-eval" % g, 0, 0, round_of(0, 1, 3, 0) + [part(0, 0), SAVE], group
        yield "sum-%s-none" % g, 0, 0, one, group
        yield "sum-%s-other" % g, 0, 0, one + [any_frame(10, link=3)], group


# ---- plans as files ----


def plan_files():
    one = '{"stages":[{"layers":[0,6],"devices":[{"id":"a"}]}]%s}'
    two = '{"stages":[{"layers":[0,6],"devices":[{"id":"a"%s},{"id":"b"%s}]}]%s}'
    yield "passes", one % ',"passes":[4,4]'
    yield "passes-uneven", one % ',"passes":[5,3]'
    yield "passes-of-the-job", one % "" + " "
    yield "passes-of-both", one % ',"passes":[5,3]' + " "
    yield "passes-unlike", one % ',"passes":[4,4]' + " "
    for k, v in enumerate(("7", "[]", "[3,4]", "[0,8]", '["x"]', "[1.5]", "[9]")):
        yield "passes-wrong-%d" % k, one % (',"passes":' + v)
    own = (',"microbatch":2,"microbatches":2', ',"microbatch":1,"microbatches":4', "")
    yield "passes-of-members", two % own
    yield "passes-of-members-and-job", two % own + " "
    dealt = '{"stages":[{"layers":[0,6],"homes":%s,"experts":%s,"devices":['
    dealt += '{"id":"a","microbatch":1,"microbatches":8},'
    dealt += '{"id":"b","microbatch":1,"microbatches":0}]}]'
    dealt += ',"schedule":"%s","microbatch":1,"microbatches":8}'
    for k, v in enumerate(("[0,0,1,1]", "[1,1,1,1]", "[0,0,0,0]", "[0,1,2,1]", "[0,1]", "[]", "7")):
        yield "experts-%d" % k, dealt % (1, v, "zebra")
    for k, v in enumerate((0, 2, 3, '"x"')):
        yield "experts-homes-%d" % k, dealt % (v, "[0,0,1,1]", "zebra")
    yield "experts-of-layers", dealt % (1, [[0, 0, 1, 1]] * 6, "zebra")
    yield "experts-of-unlike-layers", dealt % (1, [[0, 0, 1, 1], [1, 1, 1, 0]] * 3, "zebra")
    yield "experts-of-few-layers", dealt % (1, [[0, 0, 1, 1]], "zebra")
    yield "experts-behind", dealt.replace('"microbatches":0', '"microbatches":1') % (
        1, "[0,0,1,1]", "zebra")  # fmt: skip
    yield "offload", one % ',"offload":3'
    yield "reduce", two % (*own[:2], ',"reduce":"ring"')
    yield "reduce-unknown", two % (*own[:2], ',"reduce":"none such"')
    yield "experts-gpipe", dealt % (1, "[0,1,1,1]", "gpipe")
    yield "experts-1f1b", dealt % (1, "[0,1,1,1]", "1f1b")
    yield "members", two % ("", "", "")
    yield "members-microbatches", two % (',"microbatches":3', ',"microbatches":5', "")


# ---- profiles ----


def profile(device=None, model=None, link=None, **more):
    """A mixture of 2 layers on two devices that is small enough for every planner."""
    curve = {"linear": [1, 0.5], "residual": 0.1}
    one = {
        "id": "a", "host": "x", "memory_gib": 8, "cores": "0-1,4", "processors": 2, "watts": 90,
        "on_host": True, "estimated": True, "host_memory_gib": 4, "host_update_s": 0.1,
        "rounding": 0.01, "forward_ms": curve, "backward_ms": {"table": [1, 2]},
        "experts_forward_ms": curve, "experts_backward_ms": curve,
        "measured": {"driver": "d", "units": 2, "threads": 2, "residual": 0.1, "samples": []},
        **(device or {}),
    }  # fmt: skip
    two = {"id": "b", "host": "y", "memory_gib": 8, "forward_ms": curve, "backward_ms": curve,
           "experts_forward_ms": curve, "experts_backward_ms": curve}  # fmt: skip
    doc = {
        "version": 1, "sequence_len": 8, "global_batch": 2, "devices": [one, two],
        "model": {"layers": 2, "hidden": 8, "parameters_per_layer": 1e6, "experts": 2, "top_k": 1,
                  "expert_parameters": 1e5, "expert_gib": 0.001, "gradient_share": 0.5,
                  "routing": [[1, 2], []], **(model or {})},
        "links": [{"hosts": ["x", "y"], "bandwidth_gbytes_per_s": 0.1, "relay": "x",
                   **(link or {})}],
        **more,
    }  # fmt: skip
    return json.dumps(doc)


def profiles():
    yield "all", profile()
    yield "no-object", "[]"
    wrong = ([[1, 2]], [[1, 2], [1]], [[1, 2], [1, -1]], [[1, 2], [1, "x"]], 7, [])
    for k, v in enumerate(wrong):
        yield "routing-%d" % k, profile(model={"routing": v})
    yield "routing-of-no-mixture", profile(model={"experts": 0})
    yield "cores", profile(device={"cores": "all"})
    yield "table", profile(device={"forward_ms": {"table": 7}})
    yield "neither", profile(device={"forward_ms": {}})
    sample = {"m": 1, "rows": 1, "forward_ms": 1, "backward_ms": 1}
    yield "samples", profile(device={"measured": {"samples": [sample] * 1000}})
    yield "no-list", profile(devices=7)
    yield "many-devices", profile(devices=[{}] * 5000)
    yield "much-work", profile(global_batch=1 << 20)
    yield "many-layers", profile(model={"layers": 1 << 20})
    yield "addresses", profile(link={"addresses": [7, 8]})


# ---- configurations ----


def configurations():
    job = "# job\nbase_model: m\ndatasets: [{path: d, type: text}]\nadapter: lora\n"
    job += "sequence_len: 64\noutput_dir: o\nmicro_batch_size: 1\n%s"
    for name, more in (
        ("plain", ""),
        ("jinja-without", "chat_template: jinja\n"),
        ("jinja", "chat_template: jinja\nchat_template_jinja: x\n"),
        ("jinja-alone", "chat_template_jinja: x\n"),
        ("jinja-and-name", "chat_template: chatml\nchat_template_jinja: x\n"),
        ("evals", "eval_steps: 5\nevals_per_epoch: 2\nval_set_size: 0.1\n"),
        ("evals-missing", "load_best_model_at_end: true\n"),
        ("patience", "early_stopping_patience: 3\n"),
        ("saves", "save_steps: 5\nsaves_per_epoch: 2\n"),
        ("no-saves", "save_strategy: 'no'\n"),
        ("workers-text", "workers: 5\n"),
        ("workers-mixed", "workers: [a, {id: b, ip: 127.0.0.2, port: 7000}]\n"),
        ("workers-named", "workers: [a, b]\n"),
        ("workers-not-maps", "workers: [[1]]\n"),
        ("workers-many", "workers: [" + "a, " * 5000 + "a]\n"),
        ("shards-text", "shard_plan: 5\n"),
        ("experts", "shard_plan: [{id: a, experts: [b, c], start: 0, end: 4}]\n"),
        ("experts-own", 'shard_plan: [{id: a, experts: ["a=0", "b=1-3,5"], start: 0, end: 4}]\n'),
        ("experts-twice", 'shard_plan: [{id: a, experts: ["b=0", "b=1"], start: 0, end: 4}]\n'),
        ("experts-some", 'shard_plan: [{id: a, experts: ["b=0", c], start: 0, end: 4}]\n'),
        ("experts-nobody", 'shard_plan: [{id: a, experts: ["=0"], start: 0, end: 4}]\n'),
        ("experts-cache", "offload: [experts]\nexpert_cache: 2\n"),
        ("shards-not-maps", "shard_plan: [5]\n"),
        ("twins", "workers: [{id: a, ip: 127.0.0.2}, {id: a, ip: 127.0.0.3}]\n"),
        ("no-device", "workers: [{id: a, ip: 127.0.0.2, device: ''}]\n"),
        ("no-key", "workers: [{id: a, ip: 127.0.0.2, public_key: x}]\n"),
        ("init-unknown", "peft_init_lora_weights: x\n"),
        ("init-true", "peft_init_lora_weights: 'true'\n"),
        ("init-pissa", "peft_init_lora_weights: pissa_niter_16\n"),
        ("init-pissa-dora", "peft_init_lora_weights: pissa\npeft_use_dora: true\n"),
        ("init-loftq", "peft_init_lora_weights: loftq\n"),
        ("held-out-twice", "val_set_size: 0.1\ntest_datasets: [{path: t}]\n"),
        ("evals-of-nothing", "evals_per_epoch: 2\nval_set_size: 0\n"),
        ("patience-alone", "early_stopping_patience: 3\nval_set_size: 0.1\n"),
        ("offload", "offload: [activations, optimizer, parameters]\n"),
        ("offload-unknown", "offload: [activations, x]\n"),
        ("offload-1f1b", "offload: [parameters]\nschedule: 1f1b\n"),
        ("shard-1f1b", "shard: parameters\nschedule: 1f1b\n"),
        ("shard-dora", "shard: parameters\npeft_use_dora: true\n"),
        ("tokens", "special_tokens: {bos_token: a, pad_token: b}\n"),
        ("tokens-unknown", "special_tokens: {x_token: a}\n"),
        ("dpo", "rl: dpo\n"),
        ("dpo-packed", "rl: dpo\nsample_packing: true\n"),
        ("dpo-inputs", "rl: dpo\ntrain_on_inputs: true\n"),
        ("orpo-twice", "rl: orpo\nrl_beta: 0.2\norpo_alpha: 0.1\n"),
        ("kto", "rl: kto\n"),
        ("invited", "workers: [{id: a}, {id: b}]\n"),
        ("invited-cards", "workers: [{id: a, num_gpus: 2}]\n"),
        ("addresses-mixed", "workers: [{id: a, ip: 127.0.0.2}, {id: b}]\n"),
        ("mesh-empty", "mesh:\n"),
        ("mesh-map", "mesh: {}\n"),
    ):
        yield name, job % more
    yield "dpo-wide", job.replace("size: 1", "size: 5000") % "rl: dpo\n"
    pair = "workers: [{id: a, ip: 127.0.0.2}, {id: b, ip: 127.0.0.3}]\nshard: %s\n"
    pair += "shard_plan: [{id: [a, b], share: [1, 1], state_share: %s, start: 0, end: 2}]\n"
    for name, shard, state in (
        ("states", "optimizer", "[0.25, 0.75]"),
        ("states-none", "none", "[0.25, 0.75]"),
        ("states-few", "optimizer", "[1]"),
        ("states-sum", "optimizer", "[0.5, 0.75]"),
        ("states-text", "optimizer", "[0.5, x]"),
    ):
        yield name, job % (pair % (shard, state))
    many = ", ".join(f"w{i}" for i in range(80))
    yield "group-wide", job % f"shard_plan: [{{id: [{many}], start: 0, end: 2}}]\n"
    yield "ranks", job % "shard_plan: [{id: 0, start: 0, end: 1}, {id: 1, start: 1, end: 2}]\n"
    yield "yaml-tag", job % "a: !!x [1\n"
    yield "yaml-anchor", "a: [1]\nb: &x [1]\nc: *x\n"


# ---- records ----


def records():
    kinds = ("auto", "messages", "sharegpt", "alpaca", "completion", "text")
    alpaca = '{"instruction":"a b","input":"c","output":"d e","system":"f"}\n'
    chat = '{"messages":[{"role":"user","content":"a"},{"role":"assistant","content":"b c"}]}\n'
    turns = '{"prompt":[{"role":"user","content":"a"}],'
    turns += '"completion":[{"role":"assistant","content":"b","name":null}]}\n'
    data = {
        (1, "alpaca"): ['{"q":"a","i":"b","s":"c","a":"d"}\n', '{"q":"a"}\n', alpaca],
        (1, "messages"): ['{"m":[{"r":"user","c":"a"},{"r":"assistant","c":"b"},7]}\n',
                          '{"m":[{"x":1}]}\n', chat],
        (1, "text"): ['{"t":"a b c"}\n'],
        (1, "completion"): ['{"q":"a","a":"b"}\n',
                            '{"p":[{"r":"user","c":"a"}],"n":[{"r":"assistant","c":"b"},7]}\n'],
        (0, "completion"): [turns, turns.replace("[{", "{").replace("}]", "}")],
        (2, "alpaca"): [alpaca * 2, '{"instruction":"a","output":"b"}\n', '{"instruction":1}\n',
                        '{"output":"b"}\n', '{"instruction":"a","output":"b","system":""}\n'],
        (2, "completion"): [alpaca, '{"instruction":"a","input":"b","output":"c","system":7}\n'],
        (3, "alpaca"): ['instruction,output\na,"b ""c"\n\nd,e', "", "\n", 'a,a\n1,2\n', 'a\n"b'],
        (3, "text"): ["text\none two\r\nthree four\n"],
        (4, "alpaca"): ["instruction\toutput\na\tb\n"],
        (5, "auto"): [alpaca * 5, alpaca, "", chat],
        (5, "messages"): [chat * 5],
        (0, "messages"): [
            '{"messages":[{"role":"user","content":"a"},{"role":"assistant","content":"b",'
            '"train_detail":[]}]}\n',
            '{"tools":7,"messages":[{"role":"user","content":"a"}]}\n',
            '{"tools":"{}","messages":[{"role":"user","content":"a"}]}\n',
            '{"tools":"[]","messages":[{"role":"user","content":"a"},'
            '{"role":"assistant","content":"b"}]}\n',
            '{"messages":[{"role":"user","content":"a"},{"role":"assistant","tool_calls":'
            '[{"function":{"name":"f","arguments":{}}}]}]}\n',
        ],
        (0, "auto"): ["PAR1" + "x" * 20, "PK\3\4xxxx", "BZhxxxxx", chat],
    }  # fmt: skip
    for (form, kind), texts in data.items():
        for k, t in enumerate(texts):
            for flags in (0, 1):
                choice = (form * 6 + kinds.index(kind)) << 3 | flags
                yield "%d-%s-%d-%d" % (form, kind, k, flags), bytes([choice & 255]) + t.encode()
    tables = os.path.join(HERE, "..", "..", "golden", "readers")
    for name in ("zstd-v2", "nested-v2"):
        with open(os.path.join(tables, name + ".parquet"), "rb") as f:
            yield "parquet-" + name, b"\0" + f.read()
    pair = '{"prompt":"a","system":"s","chosen":"b","rejected":"c","completion":"d","label":%s}\n'
    for k in range(8):
        for label in ("true", "false", "7"):
            yield "prefer-%d-%s" % (k, label), bytes([31 << 3 | k]) + (pair % label).encode() * 2
    yield "prefer-without", bytes([31 << 3 | 5]) + b'{"prompt":"a"}\n'


# ---- invitations and lists of peers: fuzz_peers.c ----

FOREVER = 4102444800


def base32(b):
    bits = "".join(format(v, "08b") for v in b)
    bits += "0" * (-len(bits) % 5)
    letters = "abcdefghijklmnopqrstuvwxyz234567"
    return "".join(letters[int(bits[k : k + 5], 2)] for k in range(0, len(bits), 5)).encode()


def checked(word, b):
    return b + hashlib.sha256(word + b).digest()[:3]


def key_text(k):
    return b"hs1-" + base32(checked(b"hs1-", bytes([k]) * 32))


def token(addresses=(b"127.0.0.1",), port=9998, **o):
    raw = struct.pack(">H", port) + bytes(32) + bytes(range(16)) + u8(o.get("n", len(addresses)))
    raw += b"".join(u8(len(a)) + a for a in addresses) + o.get("more", b"")
    raw = checked(b"hsi1-\0", raw)
    return b"hsi1-" + base32(raw[: len(raw) - o.get("cut", 0)])


def deeds(*v):
    return b"\xff" + b"".join(bytes(d) for d in v)


WG = b"QNcyBYVaBxtzvDhKXTAUBFUdIQTyR1ULxrfaNPbRvk8="
RENAME, REMOVE, OPEN, USE, CLOSE, FIND, SERVE, READ = range(8)


def peers():
    for name, t in (
        ("token", token()),
        ("token-eight", token([b"10.0.0.%d" % k for k in range(7)] + [b"fd00::1"])),
        ("token-capitals", token().upper()),
        ("token-blanks", token()[:20] + b"\n " + token()[20:]),
        ("token-cut", token()[:-3]),
        ("token-cut-inside", token(cut=4)),
        ("token-short", b"hsi1-aaaa"),
        ("token-letter", token() + b"1"),
        ("token-mistyped", token().replace(b"a", b"b", 1)),
        ("token-no-word", token()[5:]),
        ("token-port", token(port=0)),
        ("token-no-address", token([])),
        ("token-nine", token([b"a"] * 9)),
        ("token-more-than-there-are", token([b"a"], n=2)),
        ("token-empty", token([b""])),
        ("token-nul", token([b"a\0b"])),
        ("token-address", token([b"a b"])),
        ("token-address-long", token([b"a" * 64])),
        ("token-behind", token(more=b"x")),
        ("token-long", b"hsi1-" + b"a" * 2000),
    ):
        yield name, b"\0" + t
    row = b"%s " + key_text(0) + b" 5\n"
    two = b"a " + key_text(0) + b" 5\nbox " + key_text(1) + b" 6\n"
    all_of = [
        (READ, 0),
        (RENAME, 0 | 7 << 3),
        (RENAME, 7 | 1 << 3),
        (RENAME, 7 | 3 << 3),
        (REMOVE, 1),
    ]
    all_of += [(REMOVE, 1), (REMOVE, 2), (READ, 0), (RENAME, 3)]
    for name, t in (
        ("list", two + deeds(*all_of)),
        ("list-mesh", b"a " + key_text(0) + b" 5 " + WG + b" 46\n" + deeds(*all_of)),
        ("list-mesh-key", b"a " + key_text(0) + b" 5 abc 4\n"),
        ("list-mesh-family", b"a " + key_text(0) + b" 5 " + WG + b" 5\n"),
        ("list-blank", b"\n\n \n" + two + b"\n\n"),
        ("list-unended", two[:-1] + deeds((READ, 0), (REMOVE, 0))),
        ("list-words", b"a b c d e f g h i j k l m n o p\n"),
        ("list-two-words", b"a " + key_text(0) + b"\n"),
        ("list-key", b"a hs1-aaaa 5\n"),
        ("list-name", row % b"local"),
        ("list-name-long", row % (b"x" * 100)),
        ("list-many", b"".join(row % (b"p%d" % k) for k in range(1001)) + deeds((READ, 0))),
        ("list-full", b"".join(row % (b"p%d" % k) for k in range(1000))
         + deeds((OPEN, 1), (USE, 1 | 1 << 2))),
        ("list-nothing", deeds((REMOVE, 0), (OPEN, 64), (OPEN, 0), (USE, 0), (READ, 0))),
        ("list-taken", two + deeds((OPEN, 64 | 1), (OPEN, 2), (USE, 2 | 0 << 2 | 1 << 5), (FIND, 2),
                                   (USE, 2 | 1 << 2 | 2 << 5), (USE, 2 | 2 << 2), (READ, 0))),
        ("list-again", two + deeds((OPEN, 2), (USE, 2 | 7 << 2), (FIND, 2), (CLOSE, 2), (READ, 0))),
    ):  # fmt: skip
        yield name, b"\1" + t
    secret = [bytes([k] * 16).hex().encode() for k in range(4)]
    row = b"%s %d %s %s\n"
    good = row % (secret[0], FOREVER, b"-", b"-") + row % (secret[1], FOREVER, b"box", b"-")
    good += row % (secret[2], FOREVER, b"-", b"used") + row % (secret[3], 5, b"-", b"-")
    for name, t in (
        ("open", good + deeds((FIND, 0), (FIND, 3), (USE, 0), (USE, 1), (USE, 1 | 1 << 5), (USE, 2),
                              (CLOSE, 0), (CLOSE, 2), (FIND, 1))),
        ("open-late", good + deeds((OPEN, 128), (OPEN, 64 | 3 << 2), (USE, 4 << 2), (USE, 3))),
        ("open-many", row % (secret[0], FOREVER, b"-", b"-") * 40 + deeds((OPEN, 1), (CLOSE, 0))),
        ("open-for-ever", row % (secret[0], (1 << 63) - 1, b"-", b"-") + deeds((USE, 0))),
        ("open-hex", row % (b"zz", FOREVER, b"-", b"-")),
        ("open-hex-short", row % (b"0011", FOREVER, b"-", b"-") + deeds((OPEN, 1), (USE, 1))),
        ("open-hex-long", row % (b"00" * 20, FOREVER, b"-", b"-") + deeds((CLOSE, 1), (FIND, 0))),
        ("open-words", b"a b c\n"),
        ("open-name", row % (secret[0], FOREVER, b"x" * 70, b"-")),
        ("open-used", row % (secret[0], FOREVER, b"-", b"x" * 70)),
        ("open-mesh", row[:-1] % (secret[1], FOREVER, b"box", b"-") + b" mesh\n"
         + deeds((USE, 1 | 7 << 2), (USE, 129 | 7 << 2), (READ, 0), (SERVE, 129),
                 (SERVE, 192 | 1))),
        ("open-mesh-word", row[:-1] % (secret[1], FOREVER, b"box", b"-") + b" tent\n"),
        ("open-mesh-new", deeds((OPEN, 64 | 32 | 1 << 2), (USE, 128), (SERVE, 128 | 9),
                                (SERVE, 128 | 16 | 2))),
        ("open-empty", deeds((CLOSE, 0), (FIND, 0))),
    ):  # fmt: skip
        yield name, b"\2" + t
    at = b"box " + key_text(2) + b" %s %s\n"
    for name, t in (
        ("served", at % (b"9998", b"10.0.0.1 fd00::1") + deeds((SERVE, 0), (SERVE, 0))),
        ("served-nothing", b""),
        ("served-port", at % (b"0", b"10.0.0.1")),
        ("served-port-large", at % (b"70000", b"10.0.0.1")),
        ("served-address", at % (b"9998", b"a" * 64)),
        ("served-many", at % (b"9998", b"a " * 9)),
        ("served-three", at % (b"9998", b"")),
        ("served-name", b"local " + key_text(2) + b" 9998 a\n"),
        ("served-key", b"box hs1- 9998 a\n"),
        ("served-words", b"a " * 20),
    ):
        yield name, b"\3" + t


# ---- a hub's answers: fuzz_hub.c ----

CONFIG_TEXT, LARGE_TEXT = b'{"model_type": "llama"}\n', b"0123456789abcdef"
OK, PART, MISSING, NO_TOKEN, FORBIDDEN, RANGE, BUSY, BROKEN = range(8)
UNREACHED, CUT, REDIRECTS, MEMORY, SLOW, CERTIFICATE = (k << 3 for k in range(2, 8))
AFTER_REDIRECT, SAYS_WHY = 64, 128
SENDS, HALF, ENDLESS_BODY, MANY_HEADERS = 1, 2, 3, 240
GATED, REVISION, ENTRY = 0, 4, 8


def answers(body=None, status=OK, more=SENDS):
    if body is None:
        return bytes([status, more])
    return bytes([status, more & ~3, len(body) >> 8, len(body) & 255]) + body


def hub_file(name, text, lfs=False, size=None, hash_=None):
    size = len(text) if size is None else size
    if lfs:
        of = hash_ or hashlib.sha256(text).hexdigest()
        of = '"lfs":{"sha256":"%s","size":%s}' % (of, size)
    else:
        of = hash_ or hashlib.sha1(b"blob %d\0" % len(text) + text).hexdigest()
        of = '"blobId":"%s"' % of
    return '{"rfilename":"%s","size":%s,%s}' % (name, size, of)


def hub_list(*files, sha="0123456789abcdef0123456789abcdef01234567"):
    return answers(('{"sha":"%s","siblings":[%s]}' % (sha, ",".join(files))).encode())


def hubs():
    config = hub_file("config.json", CONFIG_TEXT)
    large = hub_file("model.safetensors", LARGE_TEXT, True)
    both, sends = hub_list(config, large), answers()
    set_ = hub_list(hub_file("data/a.jsonl", LARGE_TEXT), hub_file("b.csv", LARGE_TEXT))
    half, not_all = answers(more=HALF), answers(status=OK | CUT, more=HALF)
    for name, how, which, said in (
        ("both", 0, 0, both + sends * 2 + both),
        ("both-token", 2 | 16, 0, both + sends * 2 + both),
        ("offline", 4, 0, both + sends * 2),
        ("offline-missing", 4, 2, answers(status=MISSING)),
        ("revision", 0, 1, both + sends * 2 + both),
        ("commit", 4, 3, both + sends * 2),
        ("one-file", 0, 2, both + sends + both),
        ("one-large", 4, 7, both + sends),
        ("set", 1, 4, set_ + sends + set_),
        ("set-file", 1 | 4, 5, set_ + sends),
        ("slash-in-revision", 4, 6, both + sends * 2),
        ("cut", 0, 0, both + not_all * 2 + answers(status=PART) * 2 + both),
        ("cut-whole-again", 0, 0, both + not_all * 2 + sends * 2 + both),
        ("cut-for-good", 0, 0, both + not_all * 20),
        ("half", 0, 7, both + half + answers(status=PART) + both),
        ("range", 0, 7, both + not_all + answers(status=RANGE, more=SENDS) + sends + both),
        ("wrong", 0, 7, both + answers(b"0123456789abcdeX") + both + sends),
        ("wrong-git", 0, 2, both + answers(b"x" * len(CONFIG_TEXT)) + both + sends),
        ("longer", 0, 7, both + answers(LARGE_TEXT + b"x")),
        ("endless", 0, 7, both + answers(more=ENDLESS_BODY)),
        ("endless-list", 0, 0, answers(more=ENDLESS_BODY)),
        ("endless-error", 0, 0, answers(status=MISSING, more=ENDLESS_BODY)),
        ("many-headers", 0, 0, answers(more=MANY_HEADERS)),
        ("busy", 0, 7, answers(status=BUSY) + both + answers(status=BROKEN) + sends + both),
        ("broken", 0, 0, answers(status=BROKEN) * 12),
        ("busy-for-good", 0, 0, answers(status=BUSY) * 12),
        ("unreached", 0, 0, answers(status=UNREACHED) * 12),
        ("slow", 0, 0, answers(status=SLOW) * 2 + both + sends * 2 + both),
        ("redirects", 0, 0, answers(status=REDIRECTS)),
        ("memory", 0, 0, answers(status=MEMORY)),
        ("certificate", 0, 0, answers(status=CERTIFICATE)),
        ("no-token", 0, 0, answers(status=NO_TOKEN) * 2),
        ("weak-token", 2, 0, answers(status=FORBIDDEN) * 2),
        ("gated", 0, 0, answers(status=NO_TOKEN | SAYS_WHY, more=GATED | SENDS) * 2),
        ("gated-token", 2, 0, answers(status=FORBIDDEN | SAYS_WHY, more=GATED | SENDS)),
        ("revision-none", 0, 1, answers(status=MISSING | SAYS_WHY, more=REVISION | SENDS)),
        ("entry-none", 0, 2, both + answers(status=MISSING | SAYS_WHY, more=ENTRY | SENDS)),
        ("redirected", 0, 0, answers(status=MISSING | SAYS_WHY | AFTER_REDIRECT, more=SENDS | 12)),
        ("file-missing", 0, 7, both + answers(status=MISSING)),
        ("list-text", 0, 0, answers(b"<html>")),
        ("list-empty", 0, 0, hub_list()),
        ("list-other", 0, 0, hub_list(hub_file("README.md", b"x"))),
        ("list-no-commit", 0, 0, hub_list(config, sha="main")),
        ("list-no-size", 0, 0, hub_list(hub_file("config.json", b"", size='"x"'))),
        ("list-negative", 0, 0, hub_list(hub_file("config.json", b"", size=-1))),
        ("list-huge", 0, 0, hub_list(hub_file("config.json", b"", size=1 << 60))),
        ("list-no-bytes", 0, 0, hub_list(hub_file("config.json", b"")) * 2),
        ("list-hash", 0, 0, hub_list(hub_file("config.json", b"", hash_="../../x"))),
        ("list-path", 1, 4, hub_list(hub_file("../a.json", LARGE_TEXT))),
        ("list-path-hidden", 1, 4, hub_list(hub_file("a/../../b.json", LARGE_TEXT))),
        ("list-path-root", 1, 4, hub_list(hub_file("/a.json", LARGE_TEXT))),
        ("list-path-control", 1, 4, hub_list(hub_file("a\\u0007.json", LARGE_TEXT))),
        ("list-twice", 1, 4, hub_list(hub_file("a.jsonl", LARGE_TEXT),
                                      hub_file("b/b.jsonl", LARGE_TEXT)) + sends),
        ("list-file-as-folder", 1, 4, hub_list(hub_file("a.jsonl", LARGE_TEXT),
                                               hub_file("a.jsonl/b.csv", LARGE_TEXT)) + sends),
        ("list-other-name", 1, 4, hub_list(hub_file("a.jsonl", LARGE_TEXT)) + sends
         + hub_list(hub_file("a.jsonl", CONFIG_TEXT)) + answers(CONFIG_TEXT)),
        ("list-escaped", 1, 4, hub_list(hub_file("a b+c.jsonl", LARGE_TEXT)) + sends * 2),
    ):  # fmt: skip
        yield name, bytes([how, which]) + said
    for k, name in enumerate(
        (
            "own/model@main:a/b.json",
            "own",
            "a/b@",
            "a/b:../c",
            "a/" + "b" * 99,
            "a/b@" + "c" * 300,
            "-a/b",
            "a/b:c//d",
            "a/b:/c",
            "a/b\\c",
            "./a",
        )
    ):
        yield "name-%d" % k, b"\x08" + name.encode()


# ---- who connects: deeds of fuzz_guests.c ----

CONNECT, GREET, SEND, RAW, JOIN, HEAR, HANG_UP, TAKE_ONE, SET_JOB, RELAY, REST = range(11)
IS_WORKER, IS_RELAY = 3, 5


def do(what, who=0, *more):
    return bytes([what << 2 | who, *more])


def relay_of(who, other, front=0, how=0):
    return do(GREET, who, IS_RELAY | how, front | other << 2)


def sends_frame(who, from_, to, size=0):
    return do(
        RELAY, who, (8 if from_ is None else from_) | (32 if to is None else to << 4) | size << 6
    )


def guests():
    a, b, c, x = range(4)
    here = do(CONNECT, a) + do(CONNECT, b) + do(SET_JOB, 0, 3)
    pair = here + relay_of(a, b) + relay_of(b, a) + do(REST) * 2 + do(HEAR, a) + do(HEAR, b)
    works = lambda who: do(GREET, who, IS_WORKER, 0)
    for name, t in (
        ("worker", do(CONNECT, a) + works(a) + do(REST) + do(TAKE_ONE, a)),
        ("worker-again", do(CONNECT, a) + works(a) + do(CONNECT, a) + works(a) + do(REST) * 2
         + do(TAKE_ONE, a) * 2),
        ("worker-leaves", do(CONNECT, a) + works(a) + do(REST) * 2 + do(HANG_UP, a) + do(REST) * 2
         + do(TAKE_ONE, a)),
        ("worker-says", do(CONNECT, a) + works(a) + do(RAW, a, 200, *bytes(200)) * 3 + do(REST)
         + do(TAKE_ONE, a)),
        ("other-roles", here + b"".join(do(GREET, a, r, 0) + do(REST) + do(HEAR, a)
                                        + do(CONNECT, a) for r in range(6))),
        ("protocol", do(CONNECT, a) + do(GREET, a, IS_WORKER, 192) + do(REST) + do(HEAR, a)),
        ("no-hello", do(CONNECT, a) + do(SEND, a, 2, 3, 1, 2, 3) + do(REST) + do(HEAR, a)),
        ("abort", do(CONNECT, a) + do(SEND, a, 22, 8, *text("bye"), 1, 0, 0, 0) + do(REST)),
        ("no-frame", do(CONNECT, a) + do(RAW, a, 5, *b"HSF1x") + do(REST) + do(HEAR, a)),
        ("leaves", do(CONNECT, a) + do(HANG_UP, a) + do(CONNECT, b) + works(b) + do(REST)),
        ("relay", pair + sends_frame(a, 0, 1) + do(HEAR, b) + sends_frame(b, 1, 0, 3) + do(HEAR, a)
         + sends_frame(a, None, None) + do(HEAR, b)),
        ("relay-raw", pair + do(RAW, a, 4, *b"abcd") + do(REST) + do(HEAR, b)),
        ("relay-from", pair + sends_frame(a, 1, 1) + do(REST) + do(HEAR, b)),
        ("relay-to", pair + sends_frame(a, 0, 2) + do(REST) + do(HEAR, b)),
        ("relay-leaves", pair + sends_frame(a, 0, 1) + do(HANG_UP, a) + do(HEAR, b) * 2),
        ("relay-again", pair + do(CONNECT, a) + relay_of(a, b) + do(REST) * 2 + do(HEAR, b)
         + do(CONNECT, b) + relay_of(b, a) + do(REST) * 2 + do(HEAR, a) + do(HEAR, b)),
        ("relay-half", here + relay_of(a, b) + do(REST) + do(CONNECT, a) + relay_of(a, b)
         + do(REST) + do(HANG_UP, a) + do(REST) * 2),
        ("relay-no-job", do(CONNECT, a) + relay_of(a, b) + do(REST) * 2 + do(HEAR, a)),
        ("relay-other-job", here + relay_of(a, b, 0, 8) + do(REST) * 2 + do(HEAR, a)),
        ("relay-other-key", here + do(GREET, a, IS_RELAY | 1 << 5, b << 2 | 48) + do(REST)
         + do(HEAR, a)),
        ("relay-nobody", here + relay_of(a, 3) + do(REST) + do(HEAR, a)),
        ("relay-itself", here + relay_of(a, a) + do(REST) + do(HEAR, a)),
        ("relay-front", here + relay_of(a, b, 2) + do(REST) + do(HEAR, a)),
        ("relay-measured", here + relay_of(a, b, 0, 16) + relay_of(b, a, 0, 16) + do(REST) * 2
         + sends_frame(a, 0, 1) + do(HEAR, b) * 2),
        ("joins", do(CONNECT, x) + do(JOIN, x, 16) + do(REST) * 2 + do(HEAR, x)),
        ("joins-named", do(CONNECT, x) + do(JOIN, x, 17 | 4) + do(REST) * 2 + do(HEAR, x)),
        ("joins-name-bad", do(CONNECT, x) + do(JOIN, x, 16 | 12) + do(REST) * 2 + do(HEAR, x)),
        ("joins-version", do(CONNECT, x) + do(JOIN, x, 0) + do(REST) * 2 + do(HEAR, x)),
        ("joins-proof", do(CONNECT, x) + do(JOIN, x, 16 | 64) + do(REST) * 2 + do(HEAR, x)),
        ("joins-mesh", do(CONNECT, x) + do(JOIN, x, 32 | 3) + do(REST) * 2 + do(HEAR, x)),
        ("joins-mesh-key", do(CONNECT, x) + do(JOIN, x, 48 | 3) + do(REST) * 2 + do(HEAR, x)),
        ("joins-mesh-none", do(CONNECT, x) + do(JOIN, x, 16 | 3) + do(REST) * 2 + do(HEAR, x)),
        ("joins-cut", do(CONNECT, x) + do(JOIN, x, 16 | 128) + do(REST) * 2 + do(HEAR, x)),
        ("joins-wrong", (do(CONNECT, x) + do(JOIN, x, 18) + do(REST)) * 7),
        ("joins-twice", do(CONNECT, x) + do(JOIN, x, 16) * 2 + do(REST) * 2 + do(HEAR, x)),
        ("joins-other", do(CONNECT, x) + do(SEND, x, 1, 3, 1, 2, 3) + do(REST)),
        ("joins-no-frame", do(CONNECT, x) + do(RAW, x, 3, 1, 2, 3) + do(REST)),
        ("joins-leaves", do(CONNECT, x) + do(HANG_UP, x) + do(REST)),
        ("joins-waits", do(CONNECT, x) + do(REST) * 3),
    ):  # fmt: skip
        yield "port-" + name, b"\0" + t
    calls, takes = do(GREET, a, 0, 0), do(TAKE_ONE, a, 0)
    for name, t in (
        ("coordinator", do(CONNECT, a) + calls + do(REST) + takes),
        ("refused", do(CONNECT, a) + calls + do(REST) + do(TAKE_ONE, a, 1) + do(HEAR, a)),
        ("refused-all", do(CONNECT, b) + do(GREET, b, 1, 0) + do(REST) + do(TAKE_ONE, a, 128 | 64)
         + do(HEAR, b)),
        ("refused-role", do(CONNECT, b) + do(GREET, b, 1, 0) + do(REST) + do(TAKE_ONE, a, 128 | 3)),
        ("many", do(CONNECT, a) + (do(CONNECT, b) + do(CONNECT, c)) * 10 + calls + takes),
        ("many-known", (do(CONNECT, b) + do(GREET, b, 1, 0)) * 18 + do(CONNECT, a) + calls + takes),
        ("many-calls", (do(CONNECT, a) + calls) * 18 + do(CONNECT, b) + takes),
        ("leaves", do(CONNECT, b) + do(GREET, b, 1, 0) + do(REST) + do(HANG_UP, b) + do(REST) * 2),
        ("calls-off", do(CONNECT, a) + do(SEND, a, 22, 11, *text("bye"), 1, 0, 0, 0) + do(REST)),
        ("no-frame", do(CONNECT, b) + do(RAW, b, 5, *b"HSF1x") + do(REST) * 2),
        ("no-hello", do(CONNECT, b) + do(SEND, b, 9, 3, 1, 2, 3) + do(REST) + do(HEAR, b)),
    ):  # fmt: skip
        yield "worker-" + name, b"\1\0" + t
    yield "worker-unproven", b"\1\1" + do(CONNECT, x) + do(JOIN, x, 16) + do(REST)
    for name, how, t in (
        ("name", 0, bytes([4]) + b"box"),
        ("no", 0, bytes([0]) + b"the name is taken"),
        ("mesh", 4, bytes([8]) + b"box" + struct.pack("<Q", 7) + b"port 1\n"),
        ("mesh-cut", 4, bytes([8]) + b"box" + struct.pack("<Q", 9) + b"port 1\n"),
        ("mesh-none", 0, bytes([8]) + b"box" + struct.pack("<Q", 7) + b"port 1\n"),
        ("name-bad", 0, bytes([4]) + b"a b"),
        ("empty", 0, bytes([4])),
        ("other-kind", 0, bytes([1 | 1 << 2, 1, 2, 3])),
        ("no-frame", 0, bytes([2]) + b"HSF1"),
        ("nothing", 0, bytes([2])),
        ("closed", 0, bytes([128])),
        ("other-key", 1, bytes([128])),
        ("interrupted", 2, bytes([128])),
    ):
        yield "joins-" + name, b"\2" + bytes([how]) + t


# ---- machines that ssh reaches, and a control socket: fuzz_fleet.c ----

FACTS = b"""machine x86_64
version 0.1.0
other 0.0.9 in /usr/bin/heteroshard
program /home/u/hs
pid 4711
space 1000000
joined 1
strange
last waits for the coordinator
"""
DEVICES = b"""devices
[{"device": "cpu:0", "backend": "cpu", "name": "EPYC", "memory_total": 8589934592,
  "memory_free": 1073741824}, {"device": "cuda:0", "backend": "cuda", "name": "RTX\u009b2J"}]
"""
JOB = b"""{"pid": 1, "output_dir": "runs/a", "step": 3, "steps": 10, "loss": 2.5, "eta": 100,
"workers": [{"id": "box2", "layers": "0-3"}, {"id": 5}]}"""
BAD_TEXT = b"a\x1b[2J\xc2\x9b31m\xe2\x80\xaetxt.\x07\x00\xc3"


def fleets():
    both = FACTS + DEVICES
    for how, name in enumerate(("status", "json", "logs", "up", "down")):
        yield name, bytes([how, 0]) + both
        yield name + "-bad", bytes([how, 0]) + both.replace(b"EPYC", BAD_TEXT) + BAD_TEXT
        yield name + "-facts-bad", bytes([how, 0]) + b"last " + BAD_TEXT + b"\nversion " + BAD_TEXT
        yield name + "-long", bytes([how, 0]) + b"last " + b"x" * 6000 + b"\n"
        yield name + "-status", bytes([how, 7]) + BAD_TEXT + b"\xff"
        yield name + "-ssh", bytes([how, 255]) + b"\xff"
        yield name + "-tar", bytes([how, 2]) + b"\xfferror: x\ntar: Error is not recoverable\n"
    for i, text in enumerate((b"REMOTE HOST IDENTIFICATION HAS CHANGED", b"Permission denied (",
                              b"Connection refused", b"No space left on device",
                              b"a\nerror: " + BAD_TEXT)):  # fmt: skip
        yield f"why-{i}", bytes([0, 1]) + b"\xff" + text
    for how in (8, 9):
        for name, job in (
            ("job", JOB), ("begins", b'{"output_dir": "x", "pid": 2}'), ("array", b"[]"),
            ("eta", JOB.replace(b"100", b"1e300")), ("cut", JOB[:40]), ("none", b""),
            ("bad", JOB.replace(b"runs", b"\\u001b[2J\\u009b\\u202e")),
            ("c1", JOB.replace(b"runs", b"\xc2\x9b2J\xe2\x80\xae")), ("strings", b'{"eta": "x"}'),
        ):  # fmt: skip
            yield f"control-{how}-{name}", bytes([how, 0]) + both + b"\xff\xff" + job
    for said in (b"running 12\n", b"none\n", b"stopped\n", b"pid 9\nlast " + BAD_TEXT):
        for how in (3, 4):
            yield f"said-{how}-{said[:4].decode()}", bytes([how, 0]) + said
    leave = (b"leave a\n", b"leave b", b"leave \n")
    for i, word in enumerate((b"status\n", b"status", b"stop\n", b"", b"x" * 90) + leave):
        yield f"asked-{i}", bytes([24, 0]) + b"\xff\xff" + word
    yield "devices-cut", bytes([0, 0]) + both[:-20]
    yield "devices-none", bytes([0, 0]) + FACTS + b"devices\n[]"
    yield "not-running", bytes([0, 0]) + b"machine riscv64\nlast error: x\n"


PLACE = b"""interface hsmesh
port 51820
mtu 1420
keepalive 6
hub rented
encrypt mesh
range 10.77.0.0/24
range fd77::/64
machine rented %s both listed 10.77.0.1 fd77::1 198.51.100.10 [2001:db8:1::10]:51821
machine home2 %s ipv4 listed 10.77.0.2 -
machine laptop - both invited 10.77.0.3 fd77::3
machine six %s ipv6 invited 10.77.0.4 fd77::4 six.example.org
""" % tuple(base64.b64encode(bytes([k]) * 32) for k in range(1, 4))


def places():
    yield "place", PLACE
    for word in (b"interface", b"port", b"mtu", b"keepalive", b"hub", b"encrypt", b"range",
                 b"machine"):  # fmt: skip
        yield "without-" + word.decode(), b"".join(
            line for line in PLACE.splitlines(True) if not line.startswith(word)
        )
        yield "bad-" + word.decode(), PLACE.replace(word + b" ", word + b" x$(id);", 1)
        yield "alone-" + word.decode(), PLACE.replace(word + b" ", word, 1)
    for name, old, new in (
        ("interface", b"hsmesh", b"a/b"),
        ("port", b"51820", b"0"),
        ("mtu", b"1420", b"99999"),
        ("hub", b"hub rented", b"hub nobody"),
        ("hub-other", b"hub rented", b"hub home2"),
        ("range", b"10.77.0.0/24", b"10.77.0.0/30"),
        ("range-third", b"range fd77::/64", b"range fd77::/64\nrange fd78::/64"),
        ("family", b" ipv4 ", b" ipv5 "),
        ("address", b"10.77.0.2", b"10.78.0.2"),
        ("address-twice", b"10.77.0.2", b"10.77.0.1"),
        ("endpoint", b"six.example.org", b"six;id"),
        ("endpoint-inside", b"198.51.100.10", b"10.77.0.9"),
        ("endpoints", b"six.example.org", b"a " * 9),
        ("words", b"six.example.org", b"a " * 90),
        ("name", b"machine home2", b"machine ../home2"),
        ("name-twice", b"machine home2", b"machine rented"),
        ("not-there", b"machine laptop", b"machine tablet"),
        ("not-invited", b"both invited", b"both listed"),
        ("no-way-in", b"198.51.100.10 [2001:db8:1::10]:51821", b""),
    ):
        yield name, PLACE.replace(old, new, 1)
    yield "many", PLACE + b"".join(
        b"machine p%d %s both listed - - 10.0.0.%d\n" % (k, base64.b64encode(bytes([k]) * 32), k)
        for k in range(4, 256)
    )
    yield "empty", b""


def prepared():
    """Changes of a file of prepared tokens: place, value, how (fuzz_prepared.c)."""
    head, spans = 4096, 1
    for kind in (0, 1):
        name = ("text", "pairs")[kind]
        for part, place, value, how in (
            ("as-it-is", 0, 72, 0),
            ("magic", 0, 1, 0),
            ("layout", 8, 9, 0),
            ("span", 12, 9, 0),
            ("key", 16, 9, 0),
            ("bytes", 56, 8, 0),
            ("bytes-far", 63, 255, 0),
            ("count", 64, 1, 0),
            ("none", 64, 0, 0),
            ("count-far", 71, 255, 0),
            ("id", head, 7, 0),
            ("id-large", head + 1, 255, 0),
            ("id-negative", head + 3, 255, 0),
            ("cut-off", head + 20, 0, 2),
            ("no-head", 100, 0, 2),
        ):
            yield f"{name}-{part}", struct.pack("<BHBB", kind, place, value, how)
            yield f"{name}-{part}-digest", struct.pack("<BHBB", kind | 4, place, value, how)
        for back in range(0, 40, 4):  # the last span, field by field
            for value in (1, 255):
                yield f"{name}-span-{back}-{value}", struct.pack(
                    "<BHBB", kind | 8, back, value, spans
                )
        yield f"{name}-whole", bytes([kind | 2]) + bytes(5000)


# ---- models of one's own ----


def own_texts():
    for i, text in enumerate((
        "input 4; linear 4 4", "input 4; linear x", "input 4; linear 1.5", "input 4; linear 0",
        "input 4; linear 2 width=3", "input 4; linear 2 n=3; mse", "input 4; linear; mse",
        "input 4; dropout; mse", "input 4; nothing 2; mse", "input 4; attention heads=1; mse",
        "input 4; linear 2; cross_entropy; relu", "input 4; residual { mse }; mse",
        "input 4; residual relu; mse", "input 4; residual {}; mse", "input 4; residual { relu; mse",
        "input 4; residual { linear 5 }; mse", "input 4; reshape 3 3; mse", "input; relu; mse",
        "tokens 4; relu; mse", "input 1 2 3 4; relu; mse", "input 20000000; relu; mse", "input 4",
        "input 4; relu", "", "input 4; }", "input 4; linear 16777216; linear 16777216; mse",
        "input 4; " + "residual { " * 20 + "relu" + " }" * 20 + "; mse",
        "input 4; " + "relu; " * 5000 + "mse", "input 4; linear bias=0 bias=1 2; mse",
        "input 4; linear 2 bias=0 bias=1; mse", "input 4 x; relu; mse", "tokens 5 6 7; mse",
        "input 4; relu 3; mse", "input 4; relu } ; mse", "input 4; mse; mse",
    )):  # fmt: skip
        yield f"{i:02}", text.encode()


# ---- adapters ----


def safetensors(tensors):
    head, data = {}, b""
    for name, shape, *kind in tensors:
        n = 1 if kind == ["U8"] else 4
        for d in shape:
            n *= d
        head[name] = dict(dtype=(kind or ["F32"])[0], shape=list(shape))
        head[name]["data_offsets"] = [len(data), len(data) + n]
        data += bytes(n)
    j = json.dumps(head).encode()
    return struct.pack("<Q", len(j)) + j + data


def adapters():
    module, saved = "base_model.model.model.layers.0.self_attn.q_proj", "base_model.model.lm_head"
    pair = [(module + ".lora_A.weight", (2, 4)), (module + ".lora_B.weight", (6, 2))]
    magnitude = [(module + ".lora_magnitude_vector", (6,))]
    module = "base_model.model.model.layers.0.mlp.experts"
    fused = [(module + ".lora_A.weight", (4, 4)), (module + ".lora_B.weight", (6, 4))]
    module += ".base_layer"
    inner = [(module + ".lora_A.weight", (4, 3)), (module + ".lora_B.weight", (4, 4))]
    base = dict(peft_type="LORA", r=2, target_modules=["q_proj"])
    for name, more, tensors in (
        ("plain", {}, pair),
        ("saved", dict(modules_to_save=["lm_head"]), pair + [(saved + ".weight", (3, 4))]),
        ("saved-vector", dict(modules_to_save=["lm_head"]), pair + [(saved + ".weight", (3,))]),
        ("saved-text", dict(modules_to_save="lm_head"), pair),
        ("saved-numbers", dict(modules_to_save=[1]), pair),
        ("dora", dict(use_dora=True), pair + magnitude),
        ("dora-none", dict(use_dora=True), pair),
        ("dora-not-said", {}, pair + magnitude),
        ("dora-twice", dict(use_dora=True),
         pair + magnitude + [("x.lora_magnitude_vector", (6,))]),
        ("ranks", dict(r=8, rank_pattern={"q_proj": 2}, alpha_pattern={"q_proj": 4}), pair),
        ("ranks-whole", dict(r=8, rank_pattern={"^model.layers.0.self_attn.q_proj": 2}), pair),
        ("ranks-expression", dict(rank_pattern={"q_.*": 2}), pair),
        ("ranks-text", dict(rank_pattern=["q_proj"]), pair),
        ("layers", dict(layers_to_transform=[0]), pair),
        ("layers-text", dict(layers_to_transform=["a"]), pair),
        ("silent", dict(fan_in_fan_out=True), pair),
        ("of-a-model", dict(base_model_name_or_path="m", bias="all"), pair),
        ("named", dict(base_model_name_or_path="m"), pair),
        ("fused", dict(target_parameters=["mlp.experts.gate_up_proj", "mlp.gate.weight"]), fused),
        ("fused-nested", dict(r=1), fused + inner),
        ("fused-half", dict(r=1), fused[:1]),
    ):  # fmt: skip
        c = json.dumps({**base, **more}).encode()
        yield name, bytes([1]) + struct.pack("<H", len(c)) + c + b"\0\0" + safetensors(tensors)


def mixtures():
    """Folders of gpt-oss, whose experts are one tensor a layer."""
    at = "model.layers.0.mlp.experts."
    shape = dict(model_type="gpt_oss", hidden_size=32, intermediate_size=32, num_hidden_layers=1,
                 num_attention_heads=2, vocab_size=4, num_local_experts=2, num_experts_per_tok=1,
                 max_position_embeddings=64, quantization_config=dict(quant_method="mxfp4"))
    plain = [(at + "gate_up_proj", (2, 32, 64)), (at + "gate_up_proj_bias", (2, 64)),
             (at + "down_proj", (2, 32, 32)), (at + "down_proj_bias", (2, 32))]
    blocks = [(at + "gate_up_proj_blocks", (2, 64, 1, 16)),
              (at + "down_proj_blocks", (2, 32, 1, 16))]
    scales = [(at + "gate_up_proj_scales", (2, 64, 1)), (at + "down_proj_scales", (2, 32, 1))]
    for name, more, tensors in (
        ("plain", {}, plain),
        ("blocks", {}, blocks + scales),
        ("blocks-alone", {}, blocks),
        ("scales-alone", {}, scales),
        ("scales-few", {}, blocks + [(at + "gate_up_proj_scales", (2, 32, 1)), scales[1]]),
        ("blocks-flat", {}, [(at + "gate_up_proj_blocks", (2, 64, 16))] + scales),
        ("blocks-odd", {}, [(at + "gate_up_proj_blocks", (2, 63, 1, 16))] + scales),
        ("plain-flat", {}, [(at + "gate_up_proj", (64, 64))]),
        ("other-kind", dict(model_type="qwen3_moe"), plain),
    ):  # fmt: skip
        c = json.dumps({**shape, **more}).encode()
        kind = lambda n: "U8" if n.endswith(("blocks", "scales")) else "F32"
        file = safetensors([(n, s, kind(n)) for n, s in tensors])
        yield "oss-" + name, bytes([0]) + struct.pack("<H", len(c)) + c + b"\0\0" + file


def pictures():
    """Folders whose language model lies beside a model for pictures."""
    TEMPLATE = 64  # the choice of chat_template.json
    whole = dict(model_type="gemma3", eos_token_id=[1, 2], torch_dtype="float32")
    text = dict(model_type="gemma3_text", hidden_size=8, head_dim=4, num_hidden_layers=1)
    names = ["language_model.model.norm.weight", "model.language_model.embed_tokens.weight",
             "language_model.lm_head.weight", "vision_tower.x.weight", "model.layers.0.x"]
    tensors = [(n, (8,), "F32") for n in names]
    twice = [("language_model.model.norm.weight", (8,), "F32"), ("model.norm.weight", (8,), "F32")]
    template = b'{"chat_template": "{{ x }}"}'
    for name, config, second, found in (
        ("gemma", dict(whole, text_config=text), template, tensors),
        ("mistral", dict(whole, model_type="mistral3", text_config={}), b"{}", tensors[:2]),
        ("ministral", dict(whole, model_type="mistral3",
                           text_config=dict(model_type="ministral3")), b"[]", tensors[:2]),
        ("qwen", dict(whole, model_type="qwen3_vl",
                      text_config=dict(rope_scaling=dict(mrope_section=[1]))), b"", tensors[:2]),
        ("no-text", whole, b"", tensors),
        ("twice", dict(whole, text_config=text), b"", twice),
        ("pictures-alone", dict(whole, text_config=text), b"", tensors[3:4]),
    ):  # fmt: skip
        c = json.dumps(config).encode()
        parts = struct.pack("<H", len(c)) + c + struct.pack("<H", len(second)) + second
        yield "pictures-" + name, bytes([TEMPLATE]) + parts + safetensors(found)


# ---- GGUF ----

U32, F32, BOOL, STR, ARRAY = 4, 6, 7, 8, 9


def gguf(arch, pairs, tensors):
    def string(t):
        return struct.pack("<Q", len(t)) + t.encode()

    def value(v):
        if isinstance(v, str):
            return struct.pack("<I", STR) + string(v)
        if isinstance(v, list) and isinstance(v[0], bool):
            return struct.pack("<IIQ", ARRAY, BOOL, len(v)) + bytes(v)
        if isinstance(v, list):
            return struct.pack("<IIQ", ARRAY, U32, len(v)) + struct.pack(f"<{len(v)}I", *v)
        if isinstance(v, float):
            return struct.pack("<If", F32, v)
        if isinstance(v, bool):
            return struct.pack("<IB", BOOL, v)
        return struct.pack("<II", U32, v)

    pairs = {"general.architecture": arch, **{f"{arch}.{k}": v for k, v in pairs.items()}}
    out = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(pairs))
    for k, v in pairs.items():
        out += string(k) + value(v)
    at, data = 0, b""
    for name, shape, kind, *numbers in tensors:
        out += string(name) + struct.pack("<I", len(shape)) + struct.pack(f"<{len(shape)}Q", *shape)
        out += struct.pack("<IQ", kind, at)
        n = 8 if kind in (27, 28) else 4
        for d in shape:
            n *= d
        data += struct.pack(f"<{len(numbers)}f", *numbers)
        at += (n + 31) // 32 * 32
        data += bytes(at - len(data))
    return out + bytes(-len(out) % 32) + data


def ggufs():
    shape = {"block_count": 1, "context_length": 64, "embedding_length": 8, "vocab_size": 4}
    shape.update({"feed_forward_length": 8, "attention.head_count": 2, "rope.freq_base": 1e4})
    shape.update({"attention.head_count_kv": 1, "attention.layer_norm_rms_epsilon": 1e-5})
    embed = [("token_embd.weight", (8, 4), 0), ("output_norm.weight", (8,), 0)]
    long = [("rope_factors_long.weight", (2,), 0), ("rope_factors_short.weight", (2,), 0)]
    scaling = {"rope.scaling.original_context_length": 32, "rope.scaling.attn_factor": 1.0}
    yarn = {"rope.scaling.factor": 2.0, "rope.scaling.original_context_length": 32}
    experts = {"expert_count": 2, "expert_used_count": 1, "expert_feed_forward_length": 8}
    gate = [("blk.0.ffn_gate_exps.weight", (8, 8, 2), 0), ("blk.0.ffn_gate_inp.weight", (8, 2), 0)]
    shared = gate + [("blk.0.ffn_gate_inp_shexp.weight", (8,), 0)]
    shared += [("blk.0.ffn_gate_shexp.weight", (8, 4), 0)]
    glm = {"expert_shared_count": 1, "leading_dense_block_count": 1, "nextn_predict_layers": 1}
    glm |= {"expert_gating_func": 2, "expert_weights_scale": 2.5, "expert_weights_norm": True}
    mtp = [("blk.1.exp_probs_b.bias", (2,), 0), ("blk.2.nextn.eh_proj.weight", (8, 8), 0)]
    oss = [("blk.0.ffn_gate_exps.weight", (32, 8, 2), 39), ("blk.0.attn_sinks.weight", (2,), 0)]
    two = {"block_count": 2, "attention.head_count_kv": [2, 1], "attention.sliding_window": 8}
    two |= {"attention.sliding_window_pattern": [True, False], "rope.freq_base_swa": 1e4}
    for behind, d in (("", 8), ("_swa", 4)):
        two |= {f"{k}{behind}": d for k in ("attention.key_length", "attention.value_length")}
        two |= {f"rope.dimension_count{behind}": d}
    freqs = [("rope_freqs.weight", (4,), 0, 1.0, 1e30, 1e30, 1e30)]
    layer = [("blk.0.layer_output_scale.weight", (1,), 0), ("blk.0.attn_v.weight", (8, 8), 0)]
    beside = [("blk.0.ffn_gate_up_exps.weight", (8, 16, 2), 0)]
    beside += [("blk.0.ffn_gate_inp.scale", (8,), 0)]
    beside += [("blk.0.ffn_down_exps.scale", (2,), 0), ("blk.0.pre_ffw_norm_2.weight", (8,), 0)]
    values = [("blk.1.attn_v.weight", (8, 8), 0)]
    odd = [("blk.0.ffn_gate_up_exps.weight", (8, 15, 2), 0)]

    def turn(*numbers):
        return [("rope_freqs.weight", (4,), 0, *numbers)]

    for name, arch, pairs, tensors in (
        ("gemma4", "gemma4", two, freqs + layer),
        ("gemma4-moe", "gemma4", {**two, **experts}, freqs + beside),
        ("gemma4-moe-odd", "gemma4", {**two, **experts}, freqs + odd),
        ("gemma4-small", "gemma4", {**two, "embedding_length_per_layer_input": 4}, freqs),
        ("gemma4-kinds", "gemma4", {**two, "attention.sliding_window_pattern": [True]}, freqs),
        ("gemma4-last", "gemma4", {**two, "attention.sliding_window_pattern": [False, True]},
         freqs),
        ("gemma4-alike", "gemma4", {**two, "attention.head_count_kv": 1}, freqs + values),
        ("gemma4-values", "gemma4", two, freqs + values),
        ("gemma4-heads", "gemma4", {**two, "attention.head_count_kv": [2]}, freqs),
        ("gemma4-width", "gemma4", {**two, "attention.value_length": 4}, freqs),
        ("gemma4-still", "gemma4", two, turn(1e30, 1e30, 1e30, 1e30)),
        ("gemma4-slow", "gemma4", two, turn(2.0, 2.0, 1e30, 1e30)),
        ("gemma4-mixed", "gemma4", two, turn(1.0, 2.0, 1e30, 1e30)),
        ("gemma4-none", "gemma4", two, []),
        ("llama", "llama", {}, []),
        ("longrope", "phi3", {**scaling, "rope.dimension_count": 4}, long),
        ("longrope-alone", "phi3", scaling, long[:1]),
        ("longrope-short", "phi3", scaling, [long[0], (long[1][0], (3,), 0)]),
        ("yarn", "qwen2", {**yarn, "rope.scaling.type": "yarn"}, []),
        ("linear", "llama", {**yarn, "rope.scaling.type": "linear"}, []),
        ("scaling", "llama", {**yarn, "rope.scaling.type": "x"}, []),
        ("freqs", "llama", {**yarn, "rope.scaling.type": "yarn"}, [("rope_freqs.weight", (2,), 0)]),
        ("freqs-alone", "llama", {}, [("rope_freqs.weight", (2,), 0)]),
        ("layers", "llama", {"feed_forward_length": [8, 8]}, []),
        ("half", "llama", {"block_count": 1.5}, []),
        ("gemma2", "gemma2", {"attn_logit_softcapping": 50.0, "attention.sliding_window": 8}, []),
        ("gemma3", "gemma3", {"rope.freq_base_swa": 1e4, "attention.sliding_window": 8}, []),
        ("granite", "granite", {"embedding_scale": 2.0, "logit_scale": 2.0}, []),
        ("part", "glm4", {"rope.dimension_count": 2, "attention.key_length": 4,
                          "attention.value_length": 4}, []),
        ("moe", "qwen3moe", experts, gate),
        ("moe-olmoe", "olmoe", experts, gate),
        ("moe-many", "qwen3moe", {**experts, "expert_used_count": 3}, gate),
        ("moe-other", "qwen3moe", {**experts, "expert_count": 3}, gate),
        ("moe-llama", "llama", experts, gate),
        ("moe-qwen2", "qwen2moe", {**experts, "expert_shared_feed_forward_length": 4}, shared),
        ("moe-glm", "glm4moe", {**experts, **glm, "block_count": 3}, gate + mtp),
        ("moe-glm-softmax", "glm4moe", {**experts, **glm, "expert_gating_func": 1}, gate),
        ("moe-glm-none", "glm4moe", {**experts, **glm}, gate),
        ("moe-oss", "gpt-oss", {**experts, "expert_feed_forward_length": 32}, oss),
        ("kinds", "llama", {}, [(f"blk.0.attn_{x}.weight", (8, 8), k) for x, k in
                                (("q", 28), ("k", 24), ("v", 26), ("output", 27))]),
    ):  # fmt: skip
        yield name, gguf(arch, {**shape, **pairs}, embed + tensors)


TARGETS = {
    "own_text": own_texts,
    "model_folder": lambda: itertools.chain(adapters(), mixtures(), pictures()),
    "gguf": ggufs,
    "prepared": prepared,
    "mesh": places,
    "peers": peers,
    "fleet": fleets,
    "hub": hubs,
    "guests": guests,
    "dataset": records,
    "config": lambda: ((n, t.encode()) for n, t in configurations()),
    "plan": lambda: ((n, t.encode()) for n, t in plan_files()),
    "profile": lambda: ((n, t.encode()) for n, t in profiles()),
    "worker": lambda: (
        (n, bytes([how, more]) + b"".join(m) + bytes([g])) for n, how, more, m, g in workers()
    ),
    "session": lambda: ((n, bytes([how]) + b"".join(m)) for n, how, m in sessions()),
    "link": connections,
    "frame": frames,
    "wire": wires,
    "protocol": lambda: ((n, u8(k) + p) for n, k, p in protocols()),
    "measure": lambda: ((n, u8(k) + p) for n, k, p in measures()),
}


def main():
    for target in sys.argv[1:] or TARGETS:
        folder = os.path.join(HERE, target)
        os.makedirs(folder, exist_ok=True)
        for old in os.listdir(folder):
            if old.startswith("gen-"):
                os.remove(os.path.join(folder, old))
        for name, data in TARGETS[target]():
            with open(os.path.join(folder, "gen-" + name), "wb") as f:
                f.write(data)


if __name__ == "__main__":
    main()
