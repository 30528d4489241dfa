# SPDX-License-Identifier: Apache-2.0
"""What tests/test_python.sh runs."""

import glob
import json
import os
import resource
import signal
import socket
import subprocess
import tempfile
import threading
import time

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
    r = hs.train(
        m,
        (x, y),
        held=297,
        max_steps=40,
        learning_rate=0.01,
        micro_batch_size=32,
        output_dir=tmp + "/run",
        callback=steps.append,
    )
    assert r.step == 40 and len(steps) == 40 and steps[0].loss == r.loss[0]
    assert r.loss[-1] < 0.5 * r.loss[0] and r.held_after < r.held_before
    again = hs.Model.load(tmp + "/run")
    assert (again["0.weight"] == m["0.weight"]).all() and (first != m["0.weight"]).any()
    logits = m.predict(x[:500])
    assert logits.shape == (500, 10)
    assert abs((logits.argmax(1) == y[:500]).mean() - m.evaluate(x[:500], y[:500]).accuracy) < 1e-6

    # whole numbers for floats, floats for classes; what does not fit
    assert (m.predict(digits[:9, :64]) == m.predict(digits[:9, :64].astype(np.float32))).all()
    assert m.evaluate(x[:99], y[:99].astype(float)) == m.evaluate(x[:99], y[:99])
    refused("whole numbers", lambda: m.evaluate(x[:9], y[:9] + 0.5))
    refused("whole numbers", lambda: m.evaluate(x[:9], y[:9].astype(np.int64) + 2**32))
    refused("the model reads 64", lambda: m.predict(digits[:9]))

    # the same data by index, and over two workers: the same bits
    runs = []
    for data, devices in (((x, y), ()), (list(zip(x, y)), ()), ((x, y), ("cpu", "cpu"))):
        with hs.Model(TEXT, seed=7) as n:
            runs.append(hs.train(n, data, max_steps=5, devices=devices).loss)
    assert (runs[0] == runs[1]).all() and (runs[0] == runs[2]).all()

    # numbers become what the model reads, whatever they are; what is none of it is refused
    for data in ((digits[:, :64], y), (x * 16, y.astype(float)), list(zip(digits[:, :64], y))):
        with hs.Model(TEXT, seed=7) as n:
            runs.append(hs.train(n, data, max_steps=5).loss)
            assert (n.predict(digits[:9, :64]) == n.predict(digits[:9, :64].astype(float))).all()
    assert (runs[3] == runs[4]).all() and (runs[3] == runs[5]).all()
    assert abs(runs[3][0] - np.log(10)) > 0.1, "pixels up to 16 are not zeros"
    with hs.Model("input 1; linear 1; mse") as n:
        r = hs.train(n, (np.ones((9, 1), int), np.full(9, 5)), max_steps=3, micro_batch_size=9)
        assert r.loss[0] > 9
    refused("whole numbers", lambda: hs.train(m, (x, y + 0.5), max_steps=1))
    refused("a sample has 63 numbers; the model reads 64", lambda: m.predict(x[:, 1:]))
    refused("a sample has 4 numbers; the model reads 64", lambda: m.predict(x[:, :4]))
    refused("no samples", lambda: hs.train(m, []))

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

# files, samples in turn, callbacks
with hs.Model(
    "input 3; linear 8; tanh; linear 3; cross_entropy"
) as m, tempfile.TemporaryDirectory() as tmp:
    table = hs.Files("tests/golden/arrays/table.csv", y_columns="class", held=20)
    told = []
    r = hs.train(
        m,
        table,
        max_steps=4,
        output_dir=tmp + "/run",
        save_steps=2,
        on_saved=told.append,
        on_evaluation=told.append,
    )
    assert any(isinstance(t, hs.Evaluation) and t.rows == 20 for t in told)
    assert any(isinstance(t, str) and "step-" in t for t in told)
    lines = [json.loads(line) for line in open(tmp + "/run/metrics.jsonl")]
    assert [v["loss"] for v in lines if "loss" in v] == list(r.loss)
    assert m.evaluate(table).rows == 600
    refused("has no column 'q'", lambda: hs.train(m, hs.Files(table.x, y_columns="q")))
    turn = (([i % 5, 1.0, i % 3], i % 3) for i in range(30))
    assert hs.train(m, turn, max_steps=2).step == 2
    refused("arbitrary Python code", lambda: hs.Model([lambda x: x]))

    with hs.Job(m, table, max_steps=1000) as job:
        for step in job:
            if step.step == 3:
                break
    assert 3 <= job.result.step < 1000
    try:
        with hs.Job(m, table, max_stps=1) as job:
            pass
        raise AssertionError("a job with a wrong key ended well")
    except hs.Error as e:
        assert "did you mean 'max_steps'" in str(e)

    # Ctrl-C ends a run after its step, saved, and is raised then
    def interrupted(folder, call):
        def press():
            while not glob.glob(f"{folder}/metrics.jsonl") or not open(
                f"{folder}/metrics.jsonl"
            ).read(9):
                time.sleep(0.01)
            os.kill(os.getpid(), signal.SIGINT)

        threading.Thread(target=press, daemon=True).start()
        try:
            call()
            raise AssertionError("nothing was raised")
        except KeyboardInterrupt:
            assert glob.glob(f"{folder}/checkpoints/step-*/trainer_state.json"), "it is not saved"

    long = {"max_steps": 20000, "save_steps": 20000}
    for name, call in (("silent", None), ("told", lambda s: None)):
        out = f"{tmp}/{name}"
        interrupted(out, lambda: hs.train(m, table, output_dir=out, callback=call, **long))
    job_of_a_file = {
        "base_model": "tests/golden/models/smollm2",
        "datasets": [{"path": "examples/primer.txt", "type": "text"}],
        "sequence_len": 32,
    }
    job = [f"output_dir={tmp}/command", "profile=none", "visualize=false"]
    json.dump(job_of_a_file | long, open(tmp + "/job.yaml", "w"))
    interrupted(tmp + "/command", lambda: hs.command("train", tmp + "/job.yaml", *job))

    # and what waits or measures before there is a step: nobody is called a second time
    door, calls = socket.create_server(("127.0.0.1", 0)), []

    def turn_away():
        while True:
            door.accept()[0].close()
            calls.append(1)
            if len(calls) == 1:
                os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=turn_away, daemon=True).start()
    far = dict(
        job_of_a_file, output_dir=f"{tmp}/far", join_timeout=15, transport="tls", profile="auto"
    )
    far["coordinator"] = {"ip": "127.0.0.1"}
    far["workers"] = [{"id": "w", "ip": "127.0.0.1", "port": door.getsockname()[1]}]
    far["shard_plan"] = [{"id": "w", "start": 0, "end": 3}]
    json.dump(far, open(f"{tmp}/far.json", "w"))
    for call in (hs.profile, hs.train, hs.plan):
        calls.clear()
        try:
            call(f"{tmp}/far.json")
            raise AssertionError("nothing was raised")
        except KeyboardInterrupt:
            assert len(calls) < 3, calls


# a block and an optimizer of NumPy functions: those of the library, and what they raise
def soft(p):
    p.y[:] = np.tanh(p.x) * p.params[0]


def soft_back(p):
    t = np.tanh(p.x)
    if p.dx is not None:
        p.dx[:] = p.dy * (1 - t * t) * p.params[0]
    if p.dparams[0] is not None:
        p.dparams[0] += (p.dy * t).sum(0)


def ones(dims):
    return {"weight": (dims, "ones")}


def momentum(u):
    u.state[0][:] = 0.9 * u.state[0] + u.grad * u.scale
    u.value[:] -= np.float32(u.learning_rate) * u.state[0]


hs.register_block("soft", version="1", forward=soft, backward=soft_back, params=ones)
hs.register_optimizer("rolling", momentum, version="1", states=["sum"])
runs = []
for text, optimizer in (("soft", "rolling"), ("tanh", "sgd")):
    with hs.Model(["input 64", "linear 32", text, "linear 10", "cross_entropy"]) as m:
        settings = dict(max_steps=8, momentum=0.9, weight_decay=0, learning_rate=0.05)
        settings["lr_scheduler"] = "constant"
        runs.append(hs.train(m, (x, y), optimizer=optimizer, devices=["cpu"], **settings).loss)
        if text == "soft":
            assert (m["1.weight"] != 1).any()
assert abs(runs[0][0] - runs[1][0]) < 1e-5 and runs[0][-1] < 0.8 * runs[0][0], runs
with hs.Model("input 64; linear 10; soft; cross_entropy") as m:
    hs.register_block("bad", version="1", forward=lambda p: p.nothing, backward=soft_back)
    with hs.Model("input 64; linear 10; bad; cross_entropy") as n:
        try:
            hs.train(n, (x, y), max_steps=1, devices=["cpu"])
            raise AssertionError("nothing was raised")
        except AttributeError as e:
            assert "nothing" in str(e)
refused("needs version, shape", lambda: hs.register_block("empty", version="1"))
refused("at most", lambda: hs.register_optimizer("many", momentum, version="1", states="abcde"))

# every command
ids = hs.command("tokenize", "tests/golden/models/smollm2", input="Hello world")
assert hs.command("tokenize", "--decode", "tests/golden/models/smollm2", input=ids) == "Hello world"
assert "learning_rate" in hs.command("help", "config")
refused("did you mean 'eval'", lambda: hs.command("evl"))

# a configuration: the bytes of the command line; plans; text
with tempfile.TemporaryDirectory() as tmp:
    data, config = tmp + "/data.jsonl", tmp + "/job.yaml"
    open(data, "w").write(json.dumps({"text": "one two three four five six seven"}) + "\n")
    open(config, "w").write(
        f"base_model: tests/golden/models/smollm2\ndatasets: [{{path: {data}, type: text}}]\n"
        f"adapter: lora\nsequence_len: 16\nmax_steps: 3\nlearning_rate: 0.001\ndevice: cpu\n"
        f"visualize: false\ncache_dir: {tmp}/cache\noutput_dir: {tmp}/python\n"
    )
    seen = []
    hs.train(config, callback=lambda s: seen.append(s.loss))
    program = os.environ.get("HS_BIN", "build/heteroshard")
    subprocess.run([program, "-q", "train", config, f"output_dir={tmp}/command"], check=True)
    for name in ("adapter_model.safetensors", "adapter_config.json"):
        a, b = (open(f"{tmp}/{k}/{name}", "rb").read() for k in ("python", "command"))
        assert a == b, name
    kept = [
        [v["loss"] for v in map(json.loads, open(f"{tmp}/{k}/metrics.jsonl")) if "loss" in v]
        for k in ("python", "command")
    ]
    assert kept[0] == kept[1] == seen and len(seen) == 3
    print("the Python job's adapter and losses are those of the command line")
    text = hs.generate(
        "tests/golden/models/smollm2",
        "one two",
        raw=True,
        most=5,
        temperature=0,
        device="cpu",
        adapter=tmp + "/python",
    )
    said = subprocess.run(
        [
            program,
            "-q",
            "generate",
            "tests/golden/models/smollm2",
            "--raw",
            "--prompt",
            "one two",
            "--max-new-tokens",
            "5",
            "--temperature",
            "0",
            "--device",
            "cpu",
            "--adapter",
            tmp + "/python",
        ],
        check=True,
        capture_output=True,
    ).stdout.decode(errors="replace")
    assert text.strip() == said.strip(), (text, said)
    measured = hs.profile(config)
    open(tmp + "/profile.json", "w").write(json.dumps(measured))
    assert hs.plan(config, profile=tmp + "/profile.json")["stages"]
given = "tests/golden/plan/zorse-llama1.3b-fp16-4gpu.profile.json"
assert len(hs.plan(profile=given)["stages"]) >= 1
refused("/nowhere.json", lambda: hs.plan(profile="/nowhere.json"))

# PyTorch there and back, where it is installed
try:
    import torch
except ImportError:
    torch = None
if torch:
    nn = torch.nn
    module = nn.Sequential(nn.Conv2d(1, 3, 3), nn.ReLU(), nn.Flatten(), nn.Linear(108, 2))
    with hs.Model("input 1 8 8; conv2d 3 3; relu; flatten; linear 2; mse") as m:
        m.load_state_dict(module)
        v = np.random.default_rng(1).normal(size=(5, 1, 8, 8)).astype(np.float32)
        want = module(torch.from_numpy(v)).detach().numpy()
        assert abs(m.predict(v) - want).max() < 1e-5
        m["3.bias"] = m["3.bias"] + 1
        m.save_to(module)
        assert abs(module(torch.from_numpy(v)).detach().numpy() - want - 1).max() < 1e-5
    print("PyTorch: there and back")

# the notebook
names = {}
for cell in json.load(open("examples/api/digits.ipynb"))["cells"]:
    if cell["cell_type"] == "code":
        exec("".join(cell["source"]), names)

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
