# SPDX-License-Identifier: Apache-2.0
"""What tests/test_python.sh runs."""

import os
import resource
import tempfile

import numpy as np

import heteroshard as hs

digits = np.fromfile("examples/api/digits.u8", np.uint8).reshape(-1, 65)
x, y = (digits[:, :64] / 16).astype(np.float32), digits[:, 64].astype(np.int32)


def refused(text, call):
    try:
        call()
    except hs.Error as e:
        assert text in str(e) and "\n" not in str(e), str(e)
        return
    raise AssertionError(f"not refused: {text}")


TEXT = ["input 64", "linear 32", "relu", "linear 10", "cross_entropy"]
with hs.Model(TEXT) as m, tempfile.TemporaryDirectory() as tmp:
    first = m["0.weight"]
    steps = []
    r = hs.train(m, (x, y), held=297, max_steps=40, learning_rate=0.01, micro_batch_size=32,
                 output_dir=tmp + "/run", callback=steps.append)
    assert r.step == 40 and len(steps) == 40 and steps[0].loss == r.loss[0]
    assert r.loss[-1] < 0.5 * r.loss[0] and r.held_after < r.held_before
    again = hs.Model.load(tmp + "/run")
    assert (again["0.weight"] == m["0.weight"]).all() and (first != m["0.weight"]).any()
    logits = m.predict(x[:500])
    assert logits.shape == (500, 10)
    assert abs((logits.argmax(1) == y[:500]).mean() - m.evaluate(x[:500], y[:500]).accuracy) < 1e-6

    # the same data by index, and over two workers: the same bits
    runs = []
    for data, devices in (((x, y), ()), (list(zip(x, y)), ()), ((x, y), ("cpu", "cpu"))):
        with hs.Model(TEXT, seed=7) as n:
            runs.append(hs.train(n, data, max_steps=5, devices=devices).loss)
    assert (runs[0] == runs[1]).all() and (runs[0] == runs[2]).all()

    # a callback stops, sets the rate, raises
    assert hs.train(m, (x, y), max_steps=9, callback=lambda s: s.step < 3).step == 3
    r = hs.train(m, (x, y), max_steps=3, callback=lambda s: 0.5)
    assert r.learning_rate[0] != 0.5 and (r.learning_rate[1:] == 0.5).all()
    for what in (lambda s: 1 / 0, None):
        try:
            data = (x, y) if what else [(x[0], y[0]), (x[0], "no")]
            hs.train(m, data, max_steps=2, micro_batch_size=2, callback=what)
            raise AssertionError("nothing was raised")
        except (ZeroDivisionError, ValueError):
            pass

    # from PyTorch's names
    m.load_state_dict({k: v * 0 for k, v in m.state_dict().items()})
    assert not m["2.bias"].any()
    refused("missing: ['0.bias', '2.bias'", lambda: m.load_state_dict({"0.weight": x}))
    refused("did you mean 'max_steps'", lambda: hs.train(m, (x, y), max_stps=2))
    refused("the model reads 64", lambda: hs.train(m, (x[:, :3], y)))
    refused("no kind of block 'lnear'", lambda: hs.Model("input 3; lnear 4; mse"))
    assert "cross_entropy" in m.summary() and "linear" in hs.blocks()
refused("closed", lambda: m.evaluate(x, y))

# 1 GiB of arrays is not copied
with hs.Model("input 1024; linear 1; mse") as m:
    big, target = np.zeros((1 << 18, 1024), np.float32), np.zeros((1 << 18, 1), np.float32)
    big += 1  # resident
    hs.train(m, (big[:64], target[:64]), max_steps=1)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    hs.train(m, (big, target), max_steps=1)
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    print(f"1 GiB of arrays passed in: resident set larger by {grown:.1f} MiB")
    assert grown < 16
