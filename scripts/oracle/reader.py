# SPDX-License-Identifier: Apache-2.0
"""reader.py - what the checks with random inputs share: the program reader.c, cases, a report."""

import json
import os
import subprocess
import sys

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")


class Reader:
    """reader.c over build/libheteroshard.a (`make` first). A crash is an answer, too."""

    def __init__(self, build="build"):
        os.chdir(ROOT)
        self.exe = f"{build}/oracle-reader"
        libs = subprocess.run(["make", "-s", "print-libs"], capture_output=True, text=True).stdout
        subprocess.run(
            ["cc", "-std=gnu11", "-g", "-D_GNU_SOURCE", "-fopenmp", "-Isrc", "-Iinclude"]
            + os.environ.get("READER_CFLAGS", "").split()
            + [
                os.path.join(os.path.dirname(os.path.abspath(__file__)), "reader.c"),
                f"{build}/libheteroshard.a",
            ]
            + [*libs.split(), "-o", self.exe],
            check=True,
        )
        self.start()

    def start(self):
        self.p = subprocess.Popen(
            [self.exe], stdin=subprocess.PIPE, stdout=subprocess.PIPE, encoding="utf-8"
        )

    def ask(self, what, **request):
        self.p.stdin.write(json.dumps({"what": what, **request}, ensure_ascii=False) + "\n")
        self.p.stdin.flush()
        line = self.p.stdout.readline()
        if not line:
            status = self.p.wait()
            self.start()
            return {"error": f"crashed with status {status}", "code": -99}
        return json.loads(line)


class Report:
    """Counts cases and prints the first `most` that differ."""

    def __init__(self, most=20):
        self.most, self.cases, self.bad = most, 0, 0

    def case(self, same, *what):
        self.cases += 1
        if not same:
            self.bad += 1
            if self.bad <= self.most:
                print(*what, sep="\n   ", flush=True)
        return same

    def end(self):
        sys.exit(
            f"{self.bad} of {self.cases} cases differ" if self.bad else print(f"{self.cases} ok")
        )
