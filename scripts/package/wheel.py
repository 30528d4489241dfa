#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes a Python wheel from the tarball of `make dist`, so that pip installs the program.

    scripts/package/wheel.py FOLDER VERSION ARCH

FOLDER holds the tarball (it is made when it is not there) and gets the wheel. The wheel has
the program, with a start that replaces itself by it, and the package of python/heteroshard with the
library that it needs; cffi and NumPy are its extra `python`. The tag says glibc 2.28 (PEP 600)."""

import base64
import csv
import hashlib
import io
import os
import subprocess
import sys
import tarfile
import time
import zipfile

START = '''#!python
"""Starts the program heteroshard that this package holds, without importing the package."""

import importlib.util
import os
import sys

found = importlib.util.find_spec("heteroshard")
program = os.path.join(found.submodule_search_locations[0], "bin", "heteroshard")
if not os.access(program, os.X_OK):
    os.chmod(program, 0o755)
os.execv(program, ["heteroshard"] + sys.argv[1:])
'''


def main():
    folder, version, arch = sys.argv[1:4]
    here = os.path.dirname(os.path.abspath(__file__))
    name = f"heteroshard-{version}-linux-{arch}"
    tarball = os.path.join(folder, name + ".tar.xz")
    if not os.path.exists(tarball):
        subprocess.run(
            [os.path.join(here, "dist.sh"), arch, folder, version],
            check=True,
            stdout=subprocess.DEVNULL,
        )
    info = f"heteroshard-{version}.dist-info"
    files = {f"heteroshard-{version}.data/scripts/heteroshard": (START.encode(), 0o755)}
    package = os.path.join(here, "../../python/heteroshard")
    for f in ("__init__.py", "_kinds.py", "_library.py", "py.typed"):
        files["heteroshard/" + f] = (open(os.path.join(package, f), "rb").read(), 0o644)
    with tarfile.open(tarball) as t:
        for m in t.getmembers():
            path = m.name.split("/", 1)[-1]
            if m.isfile() and path.split("/")[0] in ("bin", "lib", "licences", "LICENCES"):
                files["heteroshard/" + path] = (t.extractfile(m).read(), m.mode & 0o777)
    tag = f"py3-none-manylinux_2_28_{arch}"
    meta = (
        f"Metadata-Version: 2.1\nName: heteroshard\nVersion: {version}\n"
        "Summary: fine-tune large language models across unlike devices\n"
        "License: Apache-2.0\nRequires-Python: >=3.9\nProvides-Extra: python\n"
        'Requires-Dist: cffi; extra == "python"\nRequires-Dist: numpy; extra == "python"\n'
    )
    wheel = f"Wheel-Version: 1.0\nGenerator: heteroshard\nRoot-Is-Purelib: false\nTag: {tag}\n"
    files[f"{info}/METADATA"] = (meta.encode(), 0o644)
    files[f"{info}/WHEEL"] = (wheel.encode(), 0o644)
    rows = io.StringIO()
    table = csv.writer(rows, lineterminator="\n")
    for path in sorted(files):
        data = files[path][0]
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        table.writerow([path, f"sha256={digest}", len(data)])
    table.writerow([f"{info}/RECORD", "", ""])
    files[f"{info}/RECORD"] = (rows.getvalue().encode(), 0o644)
    when = time.gmtime(max(int(os.environ["SOURCE_DATE_EPOCH"]), 315532800))[:6]
    out = os.path.join(folder, f"heteroshard-{version}-{tag}.whl")
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as z:
        for path in sorted(files):
            entry = zipfile.ZipInfo(path, when)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = (0o100000 | files[path][1]) << 16
            z.writestr(entry, files[path][0])
    print(out)


if __name__ == "__main__":
    main()
