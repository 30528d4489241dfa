#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes tests/golden/own/losses.txt: PyTorch's losses of the first 20 steps of models of one's
own; and tests/golden/own/accuracy.txt: how many of 297 digits that they never saw (the last ones of
examples/api/digits.u8) an MLP and a CNN read after steps of AdamW over the other 1,500.

Values and data come from formulas, which tests/test_api.c has too, in float32: element i of
parameter k is 0.7 sin(1.3 i + 0.7 k) / sqrt(columns), plus 1 where it is the weight of a norm;
number j of the input of sample i is sin(0.37 (i + 1) (j + 1)); a target of floats is
cos(0.5 i + j), a class i mod classes; an id is (7 i + 3 j + j j) mod ids. Every step sees all
samples, so their order does not matter.
"""

import math
import os

import torch
from torch import nn

SAMPLES = 48
STEPS = 20


def fill(model):
    with torch.no_grad():
        for k, (name, p) in enumerate(model.named_parameters()):
            cols = p.numel() // p.shape[0] if p.ndim > 1 else 1
            i = torch.arange(p.numel(), dtype=torch.float64)
            v = 0.7 * torch.sin(1.3 * i + 0.7 * k) / math.sqrt(cols)
            if getattr(p, "of_norm", False):
                v = v + 1
            p.copy_(v.reshape(p.shape).float())


def mark_norms(model):
    for m in model.modules():
        if isinstance(m, (nn.LayerNorm, RMSNorm, nn.BatchNorm1d, nn.BatchNorm2d)):
            m.weight.of_norm = True


class RMSNorm(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(n))

    def forward(self, x):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * self.weight


class Residual(nn.Module):
    def __init__(self, *inside):
        super().__init__()
        self.inside = nn.Sequential(*inside)

    def forward(self, x):
        return x + self.inside(x)


class Concat(nn.Module):
    def __init__(self, *inside):
        super().__init__()
        self.inside = nn.Sequential(*inside)

    def forward(self, x):
        return torch.cat([x, self.inside(x)], 1)


class Attention(nn.Module):
    """Causal, rotary positions (pairs i, i + D/2)."""

    def __init__(self, c, heads, kv):
        super().__init__()
        d = c // heads
        self.heads, self.kv, self.d = heads, kv, d
        self.q = nn.Linear(c, c, bias=False)
        self.k = nn.Linear(c, kv * d, bias=False)
        self.v = nn.Linear(c, kv * d, bias=False)
        self.o = nn.Linear(c, c, bias=False)

    def turn(self, x):
        t, d = x.shape[2], self.d
        angle = (
            torch.arange(t).float()[:, None]
            * 10000 ** (-2 * torch.arange(d // 2).double() / d).float()
        )
        sin, cos = angle.sin(), angle.cos()
        a, b = x[..., : d // 2], x[..., d // 2 :]
        return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)

    def forward(self, x):
        b, t, c = x.shape
        q = self.turn(self.q(x).view(b, t, self.heads, self.d).transpose(1, 2))
        k = self.turn(self.k(x).view(b, t, self.kv, self.d).transpose(1, 2))
        v = self.v(x).view(b, t, self.kv, self.d).transpose(1, 2)
        k = k.repeat_interleave(self.heads // self.kv, 1)
        v = v.repeat_interleave(self.heads // self.kv, 1)
        y = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.o(y.transpose(1, 2).reshape(b, t, c))


def floats(n, shape):
    i = torch.arange(n, dtype=torch.float64)[:, None]
    j = torch.arange(math.prod(shape), dtype=torch.float64)[None]
    return torch.sin(0.37 * (i + 1) * (j + 1)).float().reshape(n, *shape)


def targets(n, w):
    i = torch.arange(n, dtype=torch.float64)[:, None]
    return torch.cos(0.5 * i + torch.arange(w, dtype=torch.float64)[None]).float()


def ids(n, length, most):
    i, j = torch.arange(n)[:, None], torch.arange(length + 1)[None]
    all = (7 * i + 3 * j + j * j) % most
    return all[:, :-1], all[:, 1:]


def run(name, model, x, y, loss, optimizer):
    mark_norms(model)
    fill(model)
    opt = optimizer(model.parameters())
    out = []
    for _ in range(STEPS):
        opt.zero_grad()
        value = loss(model(x), y)
        value.backward()
        opt.step()
        out.append(value.item())
    print(name, *(f"{v:.9g}" for v in out), file=FILE)


def sgd(p):
    return torch.optim.SGD(p, lr=0.05)


def adamw(p):
    return torch.optim.AdamW(p, lr=0.01, betas=(0.9, 0.999), eps=1e-8, weight_decay=0)


torch.manual_seed(0)
here = os.path.dirname(os.path.abspath(__file__))
FILE = open(os.path.join(here, "../../tests/golden/own/losses.txt"), "w")
cross = nn.CrossEntropyLoss()
classes = torch.arange(SAMPLES) % 10
run(
    "mlp",
    nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10)),
    floats(SAMPLES, [64]),
    classes,
    cross,
    sgd,
)
run(
    "regression",
    nn.Sequential(
        nn.Linear(5, 24),
        nn.Tanh(),
        nn.LayerNorm(24),
        nn.Linear(24, 24),
        nn.GELU(),
        nn.Linear(24, 24),
        nn.SiLU(),
        nn.Linear(24, 24),
        nn.GELU("tanh"),
        nn.Linear(24, 24),
        nn.Sigmoid(),
        nn.Linear(24, 3),
    ),
    floats(SAMPLES, [5]),
    targets(SAMPLES, 3),
    nn.MSELoss(),
    adamw,
)
x, y = ids(12, 16, 17)
run(
    "charlm",
    nn.Sequential(
        nn.Embedding(17, 32),
        Residual(RMSNorm(32), Attention(32, 4, 2)),
        Residual(nn.LayerNorm(32), nn.Linear(32, 64), nn.GELU(), nn.Linear(64, 32)),
        RMSNorm(32),
        nn.Linear(32, 17),
    ),
    x,
    y.reshape(-1),
    lambda a, b: cross(a.reshape(-1, 17), b),
    adamw,
)
run(
    "cnn",
    nn.Sequential(
        nn.Conv2d(2, 6, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(6, 8, 3, stride=2),
        nn.GELU(),
        nn.AvgPool2d(2, 1),
        nn.Flatten(),
        nn.Linear(8, 10),
    ),
    floats(SAMPLES, [2, 12, 11]),
    classes,
    cross,
    sgd,
)
run(
    "line",
    nn.Sequential(
        nn.Conv1d(2, 6, 5, stride=2, padding=2), nn.Tanh(), nn.Flatten(), nn.Linear(60, 3)
    ),
    floats(SAMPLES, [2, 20]),
    targets(SAMPLES, 3),
    nn.MSELoss(),
    adamw,
)
run(
    "batch",
    nn.Sequential(
        nn.Conv2d(2, 6, 3, padding=1),
        nn.BatchNorm2d(6, eps=0.1, track_running_stats=False),
        nn.GELU(),
        Concat(nn.Conv2d(6, 4, 3, padding=1), nn.Tanh()),
        nn.AvgPool2d(4),
        nn.Flatten(),
        nn.BatchNorm1d(60, eps=0.1, track_running_stats=False),
        nn.Linear(60, 10),
    ),
    floats(SAMPLES, [2, 12, 11]),
    classes,
    cross,
    sgd,
)
FILE.close()


def accuracy(file, name, model, steps, shape):
    fill(model)
    raw = torch.frombuffer(bytearray(open(DIGITS, "rb").read()), dtype=torch.uint8)
    raw = raw.reshape(-1, 65)
    x, y = raw[:, :64].float().reshape(-1, *shape) / 16, raw[:, 64].long()
    opt = adamw(model.parameters())
    for _ in range(steps):
        opt.zero_grad()
        loss = cross(model(x[:1500]), y[:1500])
        loss.backward()
        opt.step()
    right = (model(x[1500:]).argmax(1) == y[1500:]).sum().item()
    print(name, steps, f"{loss.item():.9g}", right, file=file)


DIGITS = os.path.join(here, "../../examples/api/digits.u8")
with open(os.path.join(here, "../../tests/golden/own/accuracy.txt"), "w") as f:
    accuracy(f, "mlp", nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10)), 120, [64])
    cnn = nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(8, 16, 3, padding=1),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(256, 10),
    )
    accuracy(f, "cnn", cnn, 60, [1, 8, 8])
