#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes tests/golden/arrays: files of NumPy (2.4) and Pillow (13.0), and beside each the numbers
that it holds, as float32 in NAME.want.

    pip install numpy pillow; scripts/golden/arrays.py"""

import gzip
import json
import os
import struct

import numpy as np
from PIL import Image

here = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../tests/golden/arrays")
os.makedirs(here, exist_ok=True)
os.chdir(here)
rng = np.random.default_rng(7)
a = rng.normal(size=(7, 3, 2))


def want(name, values):
    np.ascontiguousarray(values, "<f4").tofile(name + ".want")


for name, v in {
    "f4": a.astype("<f4"),
    "f8": a.astype("<f8"),
    "f2": a.astype("<f2"),
    "big": a.astype(">f4"),
    "i2": (a * 1000).astype("<i2"),
    "u1": (a * 40 + 100).astype("u1"),
    "i8": (a * 1000).astype("<i8"),
    "bool": a > 0,
    "flat": a.reshape(-1).astype("<f4"),
}.items():
    np.save(name + ".npy", v)
    want(name + ".npy", v)
np.save("fortran.npy", np.asfortranarray(a.reshape(7, 6)))
np.save("complex.npy", a.astype(complex))
np.savez("stored.npz", x=a.astype("<f4"), y=np.arange(7))
np.savez_compressed("packed.npz", x=a.astype("<f4"), y=np.arange(7))
for name in ("stored.npz", "packed.npz"):
    want(name, a)

images = rng.integers(0, 256, (5, 4, 3)).astype("u1")
idx = struct.pack(">BBBB3I", 0, 0, 8, 3, 5, 4, 3) + images.tobytes()
open("images-idx3-ubyte", "wb").write(idx)
open("images-idx3-ubyte.gz", "wb").write(gzip.compress(idx, mtime=0))
open("labels-idx1-ubyte", "wb").write(struct.pack(">BBBBI", 0, 0, 8, 1, 5) + bytes(range(5)))
want("images-idx3-ubyte", images)
want("images-idx3-ubyte.gz", images)
want("labels-idx1-ubyte", np.arange(5))
four = rng.normal(size=(3, 2)).astype(">f4")
open("floats.idx", "wb").write(struct.pack(">BBBB2I", 0, 0, 13, 2, 3, 2) + four.tobytes())
want("floats.idx", four)

table = np.round(rng.normal(size=(600, 3)), 4)  # more rows than have a place of their own
with open("table.csv", "w") as f:
    f.write('a,"b ""q""",class,c\r\n')
    for i, (x, y, z) in enumerate(table):
        f.write(f'{x},"{y}",{i % 3},{z}\r\n' + ("\r\n" if i == 5 else ""))
want("table.csv", table)
with open("lines.jsonl", "w") as f:
    for i, (x, y, z) in enumerate(table):
        f.write(json.dumps({"v": [[x], [y]], "class": i % 3, "name": "row", "w": z}) + "\n")
want("lines.jsonl", table)

pixels = []
for k, kind in enumerate(("cat", "dog")):
    os.makedirs("images/" + kind, exist_ok=True)
    for i in range(2):
        v = rng.integers(0, 256, (6, 8, 3)).astype("u1")
        if k == 1:  # smooth: JPEG keeps it nearly
            v = (
                np.add.outer(np.arange(6) * 9, np.arange(8) * 7)[..., None]
                .repeat(3, 2)
                .astype("u1")
            )
            v[..., 1] += 20 * (1 + i)
        path = f"images/{kind}/{i}.{'png' if k == 0 else 'jpg'}"
        im = Image.fromarray(v)
        im.save(path, **({} if k == 0 else {"quality": 95}))
        pixels.append(np.asarray(Image.open(path).convert("RGB")).transpose(2, 0, 1))
pixels = np.stack(pixels)
want("images", pixels)
grey = [
    Image.open(f"images/{p}").convert("RGB").convert("L")
    for p in ("cat/0.png", "cat/1.png", "dog/0.jpg", "dog/1.jpg")
]
np.stack([np.asarray(g) for g in grey])[:, None].astype("<f4").tofile("grey.want")
# areas of 2 x 2 pixels: a half of the size
pixels.reshape(4, 3, 3, 2, 4, 2).mean((3, 5)).astype("<f4").tofile("half.want")
