#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""chaos.py - random events over the members of a job, and a table of what they cost.

    scripts/chaos.py [--pieces 1] [--steps 150] [--workers 4] [--seed 1] [--gap 3] [--only KIND,...]

Each piece is one job over 3 to 5 workers, each in a network namespace of its own (root; without it
on loopback, with fewer kinds of events). Every few seconds something happens: a worker is killed,
stopped for a while, its cable is pulled, its link or its processor gets slow, it is asked to leave,
it comes back with an older version, the coordinator is killed, its disk is full, a stranger talks
to every port, or two of these at once. Whatever ends is started again, as systemd would. At the end
the adapter and every loss must be those of one process in which nothing happened. It ends with
status 1 when a job hangs, ends with an error, or has another result.
Nothing but Python and iproute2 is needed."""

import argparse
import hashlib
import json
import os
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

HANG = 150  # seconds without a step
PLANS = (  # stages of the workers, by number; layers are divided evenly
    lambda n: [[i] for i in range(n)],
    lambda n: [[0, 1], list(range(2, n))],
    lambda n: [list(range(n))],
    lambda n: [[0], list(range(1, n))],
)
LAYERS = 8


def run(*words, check=True):
    p = subprocess.run(words, check=False, capture_output=True, text=True)
    if check and p.returncode:
        sys.exit(f"{' '.join(words)}: {p.stderr.strip() or p.stdout[-500:]}")
    return p.stdout


class Net:
    """A bridge, and a namespace for each box; box 0 is the coordinator's."""

    def __init__(self, boxes, tag):
        self.tag, self.boxes = tag, boxes
        self.real = os.geteuid() == 0 and shutil.which("ip") is not None
        if self.real:
            add = ["ip", "link", "add", tag, "type", "bridge"]
            self.real = subprocess.run(add, stderr=subprocess.DEVNULL, check=False).returncode == 0
        for i in range(boxes if self.real else 0):
            if i == 0:
                run("ip", "link", "set", tag, "up")
            space, cable = f"{tag}-{i}", f"{tag}.{i}"
            run("ip", "netns", "add", space)
            run("ip", "link", "add", cable, "type", "veth", "peer", "name", "eth0", "netns", space)
            run("ip", "link", "set", cable, "master", tag, "up")
            run("ip", "-n", space, "addr", "add", f"10.88.0.{i + 1}/24", "dev", "eth0")
            run("ip", "-n", space, "link", "set", "lo", "up")
            run("ip", "-n", space, "link", "set", "eth0", "up")

    def address(self, i):
        return f"10.88.0.{i + 1}" if self.real else f"127.0.0.{i + 1}"

    def inside(self, i, words):
        return ["ip", "netns", "exec", f"{self.tag}-{i}", *words] if self.real else list(words)

    def cable(self, i, plugged):
        run("ip", "link", "set", f"{self.tag}.{i}", "up" if plugged else "down")

    def slow(self, i, on):
        words = ["tc", "qdisc", "add" if on else "del", "dev", f"{self.tag}.{i}", "root"]
        run(*words, *(("tbf rate 2mbit burst 16k latency 50ms".split()) if on else ()))

    def apart(self, i, k, on):
        """Two boxes that do not reach each other, but all others."""
        for a, b in ((i, k), (k, i)):
            words = ["ip", "-n", f"{self.tag}-{a}", "route", "add" if on else "del"]
            run(*words, "blackhole", f"{self.address(b)}/32")

    def close(self):
        for i in range(self.boxes if self.real else 0):
            run("ip", "netns", "del", f"{self.tag}-{i}", check=False)
        if self.real:
            run("ip", "link", "del", self.tag, check=False)


class Box:
    """A program that is started again whenever it ends, until `done`."""

    def __init__(self, name, words, env, heard=None):
        self.name, self.words, self.env, self.heard = name, words, env, heard
        self.process, self.again, self.lines, self.ended = None, 0.0, [], []
        self.busy = False  # something happens to it
        self.killed = False

    def start(self):
        self.process = subprocess.Popen(
            self.words,
            env=self.env,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        )
        self.again = 0.0
        threading.Thread(target=self.listen, args=(self.process,), daemon=True).start()

    def listen(self, process):
        for line in process.stdout:
            self.lines.append((time.monotonic(), line.rstrip()))
            if self.heard:
                self.heard(*self.lines[-1])

    def signal(self, number):
        if self.process and self.process.poll() is None:
            self.process.send_signal(number)

    def look(self, now, after):
        """Starts it again `after` seconds after it has ended."""
        if not self.process or self.process.poll() is None:
            return
        if not self.again:
            self.ended.append((self.process.returncode, self.killed, now))
            self.again = now + after
            self.killed = False
        if now >= self.again:
            self.start()


class Event:
    def __init__(self, kind, who):
        self.kind, self.who, self.began = kind, who, time.monotonic()
        self.noticed = self.next_step = None
        self.steps_again = 0


class Piece:
    def __init__(self, o, number, work, want, mounted):
        self.o, self.number, self.want, self.mounted = o, number, want, mounted
        self.rng = random.Random(f"{o.seed} {number}")
        self.n = o.workers or self.rng.randint(3, 5)
        self.work, self.net = work, Net(self.n + 1, f"h{os.getpid()}x{number % 100}")
        self.events, self.later, self.step, self.stepped = [], [], 0, time.monotonic()
        self.two_apart = self.older = False
        self.lost = []  # events noticed, without a step since

    # ---- the job ----

    def configuration(self):
        keys = [
            run(self.o.bin, "keygen", f"{self.work}/key{i}").split()[-1] for i in range(self.n + 1)
        ]
        plan = self.rng.choice(PLANS)(self.n)
        borders = [round(LAYERS * k / len(plan)) for k in range(len(plan) + 1)]
        shards = ", ".join(
            f"{{id: [{', '.join(f'w{i + 1}' for i in ids)}], start: {a}, end: {b}}}"
            for ids, a, b in zip(plan, borders, borders[1:])
        )
        lines = [
            open(f"{self.work}/base.yaml", encoding="utf-8").read(),
            f"output_dir: {self.work}/disk/run\ncache_dir: {self.work}/cache",
            "peer_timeout: 4\nstall_timeout: 15\njoin_timeout: 60\nrejoin_timeout: 100",
            "coordinator_timeout: 100\nsnapshot_steps: 10\nreduce_order: exact",
            f"auto_resume: true\nshard_plan: [{shards}]",
            f"coordinator: {{hostname: c, ip: {self.net.address(0)}, port: 9700, device: none, "
            f"public_key: '{keys[0]}'}}\nworkers:",
        ]
        for i in range(1, self.n + 1):
            lines.append(
                f"- {{id: w{i}, hostname: h{i}, ip: {self.net.address(i)}, port: {9700 + i}, "
                f"device: cpu, public_key: '{keys[i]}'}}"
            )
        path = f"{self.work}/job.yaml"
        with open(path, "w", encoding="utf-8") as f:
            f.write("\n".join(lines) + "\n")
        return path

    def begin(self):
        path = self.configuration()
        env = dict(os.environ, XDG_RUNTIME_DIR=f"{self.work}/run")
        self.box = []
        for i in range(self.n + 1):
            words = [self.o.bin, "worker", "--worker", f"w{i}"] if i else [self.o.bin, "train"]
            words += [path, f"key_file={self.work}/key{i}"]
            name = f"w{i}" if i else "coordinator"
            heard = None if i else self.hear
            self.box.append(Box(name, self.net.inside(i, words), env, heard))
        # one worker comes late
        self.late = self.rng.randint(1, self.n)
        for i in range(self.n, -1, -1):
            if i != self.late:
                self.box[i].start()
        self.at(self.rng.uniform(1, 4), self.box[self.late].start)
        self.env = env

    def hear(self, when, line):
        """A line of the coordinator."""
        step = re.match(r"step +(\d+)/", line)
        if step:
            self.step, self.stepped = int(step[1]), when
            for e in self.lost:
                e.next_step = when
            self.lost = []
            return
        if "the job goes on without it" in line:
            named = re.search(r"'(w\d+)'", line)
            self.notice(named[1] if named else None, when)
        again = re.search(r"; steps? (\d+)(?: (?:and|to) (\d+))? (?:is|are) computed again", line)
        if again and self.events:
            first, last = int(again[1]), int(again[2] or again[1])
            named = re.search(r"'(w\d+)' is gone", line)
            self.last_of(named[1] if named else None).steps_again += last - first + 1

    def last_of(self, who):
        for e in reversed(self.events):
            if who is None or e.who == who:
                return e
        return self.events[-1]

    def notice(self, who, when):
        if not self.events:
            return
        e = self.last_of(who)
        if e.noticed is None:
            e.noticed = when
        self.lost.append(e)

    # ---- events ----

    def at(self, seconds, what):
        self.later.append((time.monotonic() + seconds, what))

    def free(self, box):
        box.busy = False

    def kinds(self):
        kinds = ["kill", "kill", "stop", "leave", "coordinator", "stranger", "two"]
        kinds += ["older version"] if os.path.exists(self.o.older) else []
        if self.net.real:
            kinds += ["cable", "slow link", "apart"]
            kinds += ["disk full"] if self.mounted else []
            if os.path.isdir("/sys/fs/cgroup/cpu"):
                kinds.append("slow worker")
        return [k for k in kinds if not self.o.only or k in self.o.only]

    def happen(self, kind=None):
        kind = kind or self.rng.choice(self.kinds())
        if kind == "two":
            rest = [k for k in self.kinds() if k != "two"]
            for _ in range(2 if rest else 0):
                self.happen(self.rng.choice(rest))
            return
        i = self.rng.randint(1, self.n)
        if kind in ("coordinator", "disk full", "stranger"):
            i = 0
        box = self.box[i]
        if box.busy or not box.process or box.process.poll() is not None:
            return
        # at its start a coordinator ends with one line where a worker has another version
        if self.older and kind in ("older version", "coordinator"):
            return
        if kind == "older version" and any(e.kind == "coordinator" for e in self.lost):
            return
        e = Event(kind, box.name)
        self.events.append(e)
        seconds = self.rng.uniform(1, 8)
        getattr(self, "do_" + kind.replace(" ", "_"))(i, box, seconds, e)
        if self.o.verbose:
            print(f"  step {self.step}: {kind} {box.name} {seconds:.1f} s", flush=True)

    def do_kill(self, i, box, seconds, e):
        box.killed = True
        box.signal(signal.SIGKILL)

    def do_older_version(self, i, box, seconds, e):
        """A worker comes back as an older program; later as the right one."""
        box.busy = self.older = True
        words, old = box.words, [self.o.older if w == self.o.bin else w for w in box.words]

        def change(to, busy):
            box.words, box.busy, self.older, box.killed = to, busy, busy, True
            box.signal(signal.SIGKILL)

        change(old, True)
        self.at(3 + seconds, lambda: change(words, False))

    def do_coordinator(self, i, box, seconds, e):
        box.killed = True
        box.signal(signal.SIGKILL)
        e.noticed = time.monotonic()
        self.lost.append(e)

    def do_stop(self, i, box, seconds, e):
        box.busy = True
        process = box.process
        process.send_signal(signal.SIGSTOP)

        def go_on():
            box.busy = False
            if process.poll() is None:
                process.send_signal(signal.SIGCONT)

        self.at(seconds, go_on)

    def do_cable(self, i, box, seconds, e):
        box.busy = True
        self.net.cable(i, False)
        self.at(seconds, lambda: (self.net.cable(i, True), self.free(box)))

    def do_apart(self, i, box, seconds, e):
        if self.two_apart:
            return
        k = self.rng.choice([k for k in range(1, self.n + 1) if k != i])
        self.two_apart = True
        self.net.apart(i, k, True)

        def together():
            self.net.apart(i, k, False)
            self.two_apart = False

        self.at(8 + 2 * seconds, together)

    def do_slow_link(self, i, box, seconds, e):
        box.busy = True
        self.net.slow(i, True)
        self.at(seconds, lambda: (self.net.slow(i, False), self.free(box)))

    def do_slow_worker(self, i, box, seconds, e):
        box.busy = True
        group = f"/sys/fs/cgroup/cpu/{self.net.tag}-{i}"
        os.makedirs(group, exist_ok=True)
        for name, value in (("cpu.cfs_quota_us", 20000), ("cgroup.procs", box.process.pid)):
            with open(f"{group}/{name}", "w", encoding="utf-8") as f:
                f.write(str(value))

        def back():
            box.busy = False
            with open(f"{group}/cpu.cfs_quota_us", "w", encoding="utf-8") as f:
                f.write("-1")

        self.at(seconds, back)

    def do_leave(self, i, box, seconds, e):
        box.killed = True  # it ends, and that is right
        subprocess.Popen(
            self.net.inside(0, [self.o.bin, "leave", box.name]),
            env=self.env,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        ).wait()

    def do_disk_full(self, i, box, seconds, e):
        box.busy = True
        path = f"{self.work}/disk/filler"
        try:
            with open(path, "wb", buffering=0) as f:
                while f.write(bytes(1 << 12)):
                    pass
        except OSError:
            pass

        def room():
            if os.path.exists(path):
                os.unlink(path)
            self.free(box)

        self.at(seconds, room)

    def do_stranger(self, i, box, seconds, e):
        code = (
            "import os,socket,sys\n"
            "for a in sys.argv[1:]:\n"
            "    h, p = a.split(':')\n"
            "    try:\n"
            "        with socket.create_connection((h, int(p)), 1) as s:\n"
            "            s.sendall(os.urandom(3000))\n"
            "    except OSError: pass\n"
        )
        to = [f"{self.net.address(k)}:{9700 + k}" for k in range(1, self.n + 1)]
        subprocess.Popen(self.net.inside(0, [sys.executable, "-c", code, *to])).wait()

    # ---- the run ----

    def done(self):
        box = self.box[0]
        return box.process and box.process.poll() == 0

    def failed(self):
        now = time.monotonic()
        if now - self.stepped > HANG:
            return f"no step for {HANG} s after step {self.step}"
        for status, killed, _ in self.box[0].ended:
            if not killed:
                return f"the coordinator ended with status {status}"
        return None

    def look(self):
        now = time.monotonic()
        for when, what in list(self.later):
            if when <= now:
                self.later.remove((when, what))
                what()
        for i, box in enumerate(self.box):
            if i or not self.done():
                box.look(now, self.rng.uniform(0.2, 3) if i else 0.5)

    def play(self):
        self.begin()
        next_event, why = None, None
        while not self.done() and not why:
            time.sleep(0.02)
            self.look()
            why = self.failed()
            if not self.step:
                continue
            if next_event is None or time.monotonic() > next_event:
                if next_event:
                    self.happen()
                next_event = time.monotonic() + self.rng.expovariate(1 / self.o.gap)
        return why or self.compare()

    def compare(self):
        got = result_of(f"{self.work}/disk/run")
        if got[0] != self.want[0]:
            return "another adapter"
        for a in got[1]:
            if a not in self.want[1]:
                return f"another loss: {a}"
        # what a full disk did not take may be missing, or be there twice
        full = any(e.kind == "disk full" for e in self.events)
        return None if full or got[1] == self.want[1] else "metrics.jsonl has other lines"

    def show(self, boxes=None):
        for box in boxes or self.box:
            lines = [x for x in box.lines if not x[1].startswith("step ")]
            print(f"---- {box.name}, ended: {box.ended}")
            first = box.lines[0][0] if box.lines else 0
            for when, line in lines[-60:]:
                print(f"{when - first:8.2f} {line}")

    def close(self):
        for box in getattr(self, "box", []):
            if box.process and box.process.poll() is None:
                box.process.send_signal(signal.SIGCONT)
                box.process.kill()
            if box.process:
                box.process.wait()
        for i in range(self.n + 1):
            group = f"/sys/fs/cgroup/cpu/{self.net.tag}-{i}"
            if os.path.isdir(group):
                try:
                    os.rmdir(group)
                except OSError:
                    pass
        self.net.close()


def result_of(folder):
    with open(f"{folder}/adapter_model.safetensors", "rb") as f:
        adapter = hashlib.sha256(f.read()).hexdigest()
    with open(f"{folder}/metrics.jsonl", encoding="utf-8") as f:
        lines = [json.loads(x) for x in f]
    return adapter, [(x["step"], x["loss"], x["grad_norm"]) for x in lines if "loss" in x]


def prepare(o, work):
    """Model, data, configuration, and the result that every piece must have."""
    make = os.path.join(os.path.dirname(__file__), "make-model.py")
    run(sys.executable, make, "--shape", "tiny", "--layers", str(LAYERS), "--dtype", "f32",
        "--out", f"{work}/model")  # fmt: skip
    rng = random.Random(5)
    with open(f"{work}/data.jsonl", "w", encoding="utf-8") as f:
        for _ in range(60):
            text = " ".join(rng.choice("one two three four five six".split()) for _ in range(5))
            f.write(json.dumps({"prompt": text, "completion": text[::-1]}) + "\n")
    with open(f"{work}/base.yaml", "w", encoding="utf-8") as f:
        f.write(
            f"base_model: {work}/model\nadapter: lora\nlora_r: 8\nlora_alpha: 16\n"
            "lora_target_linear: true\nlora_dropout: 0.1\ncompute_dtype: float32\n"
            f"datasets: [{{path: {work}/data.jsonl, type: completion}}]\nsequence_len: 64\n"
            "micro_batch_size: 1\ngradient_accumulation_steps: 6\nlearning_rate: 0.001\n"
            f"max_steps: {o.steps}\nsave_steps: 40\nsave_total_limit: 3\n"
            "val_set_size: 0\nvisualize: false\n"
            "tensorboard: false\ntrace: false\nwire_dtype: float32\nprofile: none\n"
        )
    run(o.bin, "train", f"{work}/base.yaml", f"output_dir={work}/one", f"cache_dir={work}/cache",
        "reduce_order=exact")  # fmt: skip
    return result_of(f"{work}/one")


def table(events):
    kinds = sorted({e.kind for e in events})
    print("| event | how many | noticed as a loss | to the next step, median s | worst s "
          "| steps computed again |")  # fmt: skip
    print("|---|---|---|---|---|---|")
    for kind in [*kinds, "all"]:
        of = [e for e in events if kind in (e.kind, "all")]
        took = sorted(e.next_step - e.noticed for e in of if e.noticed and e.next_step)
        middle = f"{took[len(took) // 2]:.1f}" if took else "-"
        worst = f"{took[-1]:.1f}" if took else "-"
        noticed = sum(e.noticed is not None for e in of)
        print(f"| {kind} | {len(of)} | {noticed} | {middle} | {worst} | "
              f"{sum(e.steps_again for e in of)} |")  # fmt: skip


def main():
    a = argparse.ArgumentParser(description="Random events over a job, and what they cost.")
    a.add_argument("--pieces", type=int, default=1)
    a.add_argument("--events", type=int, default=0, help="pieces until there were so many")
    a.add_argument("--steps", type=int, default=150)
    a.add_argument("--workers", type=int, default=0, help="3 to 5 at random where not given")
    a.add_argument("--seed", type=int, default=int(os.environ.get("HS_SEED", "1")))
    a.add_argument("--gap", type=float, default=3, help="seconds from one event to the next, mean")
    a.add_argument("--only", type=lambda s: s.split(","), default=[])
    a.add_argument("--bin", default=os.environ.get("HS_BIN", "build/heteroshard"))
    a.add_argument("--older", help="the program in an older version; beside --bin otherwise")
    a.add_argument("--verbose", action="store_true")
    o = a.parse_args()
    o.bin = os.path.abspath(o.bin)
    o.older = os.path.abspath(o.older or f"{o.bin}-older")
    os.environ.update(OMP_NUM_THREADS="1", GOMP_SPINCOUNT="1000")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    events, status, pieces = [], 0, 0
    with tempfile.TemporaryDirectory(prefix="hs-chaos-", ignore_cleanup_errors=True) as top:
        want = prepare(o, top)
        while pieces < o.pieces or len(events) < o.events:
            pieces += 1
            work = f"{top}/{pieces}"
            os.makedirs(f"{work}/disk")
            os.makedirs(f"{work}/run", mode=0o700)
            shutil.copy(f"{top}/base.yaml", work)
            mounted = os.geteuid() == 0 and (
                subprocess.run(
                    ["mount", "-t", "tmpfs", "-o", "size=24m", "chaos", f"{work}/disk"],
                    stderr=subprocess.DEVNULL,
                    check=False,
                ).returncode
                == 0
            )
            piece, began = None, time.monotonic()
            try:
                piece = Piece(o, pieces, work, want, mounted)
                why = piece.play()
                if why:
                    piece.show()
                    status = 1
                elif o.verbose:
                    piece.show(piece.box[:1])
            finally:
                if piece:
                    piece.close()
                if mounted:
                    run("umount", f"{work}/disk", check=False)
            events += piece.events
            print(f"piece {pieces} (seed {o.seed}): {piece.n} workers, {len(piece.events)} events, "
                  f"{time.monotonic() - began:.0f} s: {why or 'the same result'}",
                  flush=True)  # fmt: skip
            if why:
                break
    table(events)
    sys.exit(status)


if __name__ == "__main__":
    main()
