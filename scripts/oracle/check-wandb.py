#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""check-wandb.py RUN: the client of Weights & Biases takes the offline run of output_dir RUN
(trained with `wandb_project`).

    scripts/oracle/check-wandb.py my-run [--wandb wandb]

`wandb sync` sends the run to a server on loopback that answers as little as the client asks for.
What arrives is compared with RUN/metrics.jsonl: the steps, their losses and learning rates, that
the run is complete. RUN/wandb is marked as synced by it."""

import argparse
import glob
import http.server
import json
import os
import subprocess
import sys
import tempfile
import threading

KEYS = {"train/loss": "loss", "train/learning_rate": "learning_rate"}


class Hub(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    history, run, done = [], {}, {}

    def log_message(self, *unused):
        pass

    def do_POST(self):
        said = json.loads(self.rfile.read(int(self.headers["content-length"])))
        answer = {}
        if "upsertBucket" in said.get("query", ""):
            v = said["variables"]
            self.run.update({k: x for k, x in v.items() if x})
            entity = dict(id="e", name=v["entity"])
            bucket = dict(id="b", name=v["name"], displayName=v["displayName"], config="{}")
            bucket.update(project=dict(id="p", name=v["project"], entity=entity))
            bucket.update(historyLineCount=0, description=None, sweepName=None)
            answer = dict(data=dict(upsertBucket=dict(bucket=bucket, inserted=True)))
        elif "file_stream" in self.path:
            lines = said.get("files", {}).get("wandb-history.jsonl", dict(content=[], offset=0))
            self.history[lines["offset"] :] = [json.loads(x) for x in lines["content"]]
            self.done.update({k: said[k] for k in ("complete", "exitcode") if k in said})
        elif "query" in said:
            answer = dict(data={})
        text = json.dumps(answer).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)


def main():
    a = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    a.add_argument("run")
    a.add_argument("--wandb", default="wandb")
    o = a.parse_args()
    folder = os.path.abspath(sorted(glob.glob(f"{o.run}/wandb/offline-run-*"))[-1])
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    with tempfile.TemporaryDirectory() as home:
        there = dict(
            os.environ,
            HOME=home,
            WANDB_BASE_URL=f"http://127.0.0.1:{server.server_port}",
            WANDB_API_KEY="0" * 40,
            WANDB_ERROR_REPORTING="false",
        )
        status = subprocess.run([o.wandb, "sync", folder], env=there, cwd=home).returncode
    with open(f"{o.run}/metrics.jsonl") as f:
        want = [x for x in map(json.loads, f) if "learning_rate" in x]
    got = [x for x in Hub.history if "train/loss" in x]
    same = [x["_step"] for x in got] == [x["step"] for x in want] and all(
        abs(g[k] - w[n]) <= 1e-15 * abs(w[n]) for g, w in zip(got, want) for k, n in KEYS.items()
    )
    print(
        f"{len(got)} of {len(want)} steps arrived, {'equal' if same else 'not equal'}; {Hub.done}"
    )
    config = json.loads(Hub.run.get("config", "{}"))
    print(f"run {Hub.run.get('displayName')!r} of {Hub.run.get('project')!r}, {len(config)} keys")
    ok = status == 0 and same and want and Hub.done == dict(complete=True, exitcode=0)
    return not (ok and "base_model" in config)


if __name__ == "__main__":
    sys.exit(main())
