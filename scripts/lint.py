#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The rules of STYLE that people forget, checked with file and line: folder ranks, registries,
banned functions, length and width of files, headers, licence.

Folder ranks (docs/design.md, section 4): a folder includes only from folders of lower rank, or from
itself. Registries: a .def file whose head says "one file PREFIX_<name>.c" has a file for each row,
and a row for each file that is not a part with a header of its own. Circles: no file refers to a
function or data of another that, directly or through others, refers back; nm says who refers to
whom, in the objects of the build folder that is the only argument. Width: 100 columns in code and
comments, in Markdown except tables and code blocks. Links of pages lead to files that are there.
Exit status 1 when anything was found."""

import ast
import os
import re
import subprocess
import sys

RANK = {
    "base": 0,
    "dev": 1,
    "data": 1,
    "file": 1,
    "net": 1,
    "hub": 1,
    "tensor": 2,
    "prefer": 2,
    "model": 3,
    "optim": 3,
    "sched": 3,
    "plan": 4,
    "runtime": 4,
    "config": 5,
    "report": 5,
    "job": 6,
    "crew": 7,
    "proto": 8,
    "engine": 9,
    "peers": 9,
    "pass": 10,
    "ops": 10,
    "worker": 11,
    "mesh": 12,
    "coord": 12,
    "survey": 13,
    "train": 14,
    "trial": 15,
    "api": 15,
    "cli": 16,
}
BANNED = {
    name: "unbounded or unchecked; use snprintf, buf.h, strtol and the like"
    for name in (
        "strcpy strcat sprintf vsprintf gets atoi atol atoll atof alloca strtok system popen"
        " tmpnam mktemp"
    ).split()
}
HEAP = {
    name: "use mem.h: nothing else calls malloc"
    for name in (
        "malloc calloc realloc reallocarray strdup strndup aligned_alloc posix_memalign asprintf"
        " vasprintf"
    ).split()
}
PRINT = {
    name: "libraries never print and never exit (only src/cli does)"
    for name in "printf puts putchar perror exit _exit abort".split()
}
LONGEST = 800
WIDEST = 100
TOUR_LONGEST = 3000
ROOMS = (
    "config job crew proto engine pass peers ops mesh worker coord survey train trial"
).split()
ROOM_LARGEST = 4000
CODE = (".c", ".h", ".def", ".k", ".py", ".sh", ".yaml")
LICENSE = "SPDX-License-Identifier: Apache-2.0"
found = 0


def complain(path, line, text):
    global found
    found += 1
    print(f"{path}:{line}: {text}")


def code_only(text):
    """Comments and the insides of strings become blanks, so that line and column stay."""
    pattern = re.compile(r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'', re.S)
    return pattern.sub(lambda m: re.sub(r"[^\n]", " ", m.group()), text)


def lines_of(text, pattern):
    for m in re.finditer(pattern, text):
        yield text.count("\n", 0, m.start()) + 1, m


def check_ranks(path, text):
    folder = path.split("/")[1]
    if folder not in RANK:
        complain(path, 1, f"folder '{folder}' has no rank (scripts/lint.py, docs/design.md)")
        return
    for line, m in lines_of(text, r'(?m)^[ \t]*#[ \t]*include[ \t]+"([^"]+)"'):
        target = m.group(1).split("/")
        if len(target) < 2:
            complain(
                path,
                line,
                f'"{m.group(1)}": includes are written from src/: "{folder}/{m.group(1)}"',
            )
        elif target[0] not in RANK:
            complain(path, line, f'"{m.group(1)}" is in no known folder')
        elif target[0] != folder and RANK[target[0]] >= RANK[folder]:
            complain(
                path,
                line,
                f"src/{folder} (rank {RANK[folder]}) must not include from src/{target[0]} (rank"
                f" {RANK[target[0]]})",
            )


def check_functions(path, text):
    code = code_only(text)
    folder = path.split("/")[1]
    banned = dict(BANNED)
    if path != "src/base/mem.c":
        banned.update(HEAP)
    if folder != "cli":
        banned.update(PRINT)
    for line, m in lines_of(
        code, r"(?<![\w>.])(" + "|".join(map(re.escape, banned)) + r")[ \t]*\("
    ):
        rest = code[m.end() :].split("\n", 1)[0]
        if (
            re.search(
                r"\*\s*$|\b(int|void|char|long|size_t)\s+$", code[: m.start()].rsplit("\n", 1)[-1]
            )
            and "(*" in rest
        ):
            continue  # a member of a table of functions
        complain(path, line, f"{m.group(1)}(): {banned[m.group(1)]}")
    if folder != "cli":
        for line, m in lines_of(code, r"\bfprintf[ \t]*\([ \t]*(stderr|stdout)\b"):
            complain(path, line, f"fprintf({m.group(1)}): {PRINT['printf']}")


def check_shape(path, text):
    n = text.count("\n")
    if n > LONGEST:
        complain(path, n, f"{n} lines; more than {LONGEST} is two subjects")
    if not text.split("\n", 1)[1].startswith("/*"):
        complain(path, 2, "a file opens with a comment that says what it holds")
    if not text.endswith("\n"):
        complain(path, n + 1, "no newline at the end")
    for line, m in lines_of(text, r"(?m)[ \t]+$"):
        complain(path, line, "blanks at the end of the line")
        break
    for line, m in lines_of(text, r"\b(TODO|FIXME|XXX)\b"):
        complain(path, line, f"{m.group(1)} left in the code")
    if path.endswith(".h"):
        guard = "HS_" + re.sub(r"[/.]", "_", path[4:]).upper()
        if f"#ifndef {guard}\n#define {guard}\n" not in text and "#pragma" not in text:
            complain(path, 1, f"include guard {guard} is missing")


def check_license(path):
    """Files that hold code say their licence in the first two lines."""
    name = os.path.basename(path)
    if not path.endswith(CODE) and name != "Makefile":
        return
    if path.startswith(("tests/golden/", "tests/fuzz/seeds/")):
        return
    with open(path, encoding="utf-8") as f:
        if LICENSE not in f.readline() + f.readline():
            complain(path, 1, f"the line '{LICENSE}' is missing")


def exempt_lines(path, text):
    """Lines that may be wide: texts that golden files are made from, Markdown's tables and
    code."""
    exempt = set()
    lines = text.split("\n")
    if path == "scripts/golden/tokenizer.py":
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                if node.col_offset > 0:  # not the docstring of the file
                    exempt.update(range(node.lineno, node.end_lineno + 1))
    elif path.endswith(".md"):
        fenced = False
        for i, s in enumerate(lines, 1):
            fence = s.lstrip().startswith("```")
            fenced ^= fence
            if fenced or fence or s.startswith(("|", "    ", "#")):
                exempt.add(i)
    return exempt


def check_width(path):
    name = os.path.basename(path)
    if path.startswith(("tests/golden/", "tests/fuzz/seeds/")):
        return
    if not path.endswith(CODE + (".md",)) and name != "Makefile" and "." in name:
        return
    if path in ("LICENSE", ".git-blame-ignore-revs"):
        return
    text = open(path, encoding="utf-8").read()
    exempt = exempt_lines(path, text)
    for line, s in enumerate(text.split("\n"), 1):
        width = len(s.expandtabs(8))
        if width > WIDEST and line not in exempt:
            complain(path, line, f"{width} columns; at most {WIDEST}")


def check_links(path):
    """What a page links to, or names as a source file, is there."""
    if not path.endswith(".md"):
        return
    for k, line in enumerate(open(path, encoding="utf-8"), 1):
        at = os.path.dirname(path)
        links = [os.path.join(at, x) for x in re.findall(r"\]\(([^)#: ]+)(?:#[^)]*)?\)", line)]
        names = re.findall(r"`((?:src|tests)/[a-z0-9_/]+\.(?:c|h|def|k|sh))`", line)
        for x in links + names:
            if not os.path.exists(x):
                complain(path, k, f"{x} is not there")


def check_registry(path, text):
    m = re.search(r"\b(\w+)_<\w+>\.c", text)
    if not m or "one file" not in text.lower():
        return
    prefix, folder = m.group(1) + "_", os.path.dirname(path)
    rows = {}
    for line, row in lines_of(code_only(text), r"(?m)^[ \t]*[A-Z_]+\([ \t]*(\w+)"):
        rows[row.group(1)] = line
    for name, line in rows.items():
        if not os.path.exists(f"{folder}/{prefix}{name}.c"):
            complain(path, line, f"row '{name}' has no file {folder}/{prefix}{name}.c")
    for f in sorted(os.listdir(folder)):
        stem = f[len(prefix) : -2]
        if (
            f.startswith(prefix)
            and f.endswith(".c")
            and not os.path.exists(f"{folder}/{f[:-2]}.h")
            and not any(stem == r or stem.startswith(r + "_") for r in rows)
        ):
            complain(f"{folder}/{f}", 1, f"no row '{stem}' in {path}")


def references(build):
    """{file: {file it refers to: a symbol}} of the objects in the build folder that have a source,
    files without src/ and .c. One source may have several objects (dev/cpu/mat.v3.o)."""
    source = {}
    for base, _, files in os.walk(build):
        for f in files:
            name = os.path.relpath(os.path.join(base, f.split(".")[0]), build)
            if f.endswith(".o") and os.path.exists(f"src/{name}.c"):
                source[os.path.join(base, f)] = name
    if not source:
        sys.exit(f"lint: no objects in {build}: run make first")
    out = subprocess.run(
        ["nm", "-A", "-P", *sorted(source)], capture_output=True, text=True, check=True
    ).stdout
    defines, wants = {}, {}
    for line in out.splitlines():
        path, symbol, kind = line.split()[:3]
        name = source[path.removesuffix(":")]
        if kind in "Uwv":
            wants.setdefault(name, set()).add(symbol)
        elif kind.isupper():
            defines[symbol] = name
    return {
        name: {defines[s]: s for s in sorted(wants.get(name, ())) if defines.get(s, name) != name}
        for name in source.values()
    }


def a_circle(start, members, refers):
    """A shortest way from a file through the others of its circle back to it."""
    before, queue = {}, [start]
    while start not in before:
        n = queue.pop(0)
        for m in sorted(refers[n]):
            if m in members and m not in before:
                before[m] = n
                queue.append(m)
    way, n = start, start
    while n != start or way == start:
        way, n = f"{before[n]} -> {refers[before[n]][n]} of {way}", before[n]
    return way


def check_circles(refers):
    """Files whose functions and data refer to each other in a circle."""
    order, low, on, stack = {}, {}, set(), []

    def visit(n):
        order[n] = low[n] = len(order)
        stack.append(n)
        on.add(n)
        for m in sorted(refers[n]):
            if m not in order:
                visit(m)
                low[n] = min(low[n], low[m])
            elif m in on:
                low[n] = min(low[n], order[m])
        if low[n] == order[n]:
            circle = set()
            while n not in circle:
                circle.add(stack.pop())
            on.difference_update(circle)
            first = min(circle)
            if len(circle) > 1:
                complain(
                    f"src/{first}.c", 1, "a circle of files: " + a_circle(first, circle, refers)
                )

    for n in sorted(refers):
        if n not in order:
            visit(n)


def check_tour():
    """docs/tour.md: the reading path is short, and what it points to is there."""
    page = "docs/tour.md"
    text = open(page, encoding="utf-8").read()
    path = text.split("<!-- reading path", 1)[1].split("<!-- end of the reading path", 1)[0]
    files = re.findall(r"\(\.\./(src/[^)]+)\)", path)
    lines = 0
    for f in files:
        if os.path.exists(f):
            lines += sum(1 for _ in open(f, encoding="utf-8"))
        else:
            complain(page, 1, f"the reading path names {f}, which does not exist")
    if lines > TOUR_LONGEST:
        complain(page, 1, f"the reading path has {lines} lines; at most {TOUR_LONGEST}")
    for line, m in lines_of(text, r"(?m)^\|[^|]+\| (src/\S+) \| `(\w+)` \|$"):
        f, name = m.group(1), m.group(2)
        if not os.path.exists(f) or not re.search(
            rf"(?m)^\w[^;\n]*\b{name}\(", open(f, encoding="utf-8").read()
        ):
            complain(page, line, f"{f} does not define {name}()")
    for line, m in lines_of(text, r"`((?:\w+/)+\w+\.[ch])`"):
        if not os.path.exists("src/" + m.group(1)):
            complain(page, line, f"src/{m.group(1)} does not exist")


def check_sizes():
    """A folder of the training itself stays small enough to be read."""
    for folder in ROOMS:
        lines = sum(
            sum(1 for _ in open(os.path.join("src", folder, f), encoding="utf-8"))
            for f in os.listdir(os.path.join("src", folder))
        )
        if lines > ROOM_LARGEST:
            complain(f"src/{folder}", 1, f"the folder has {lines} lines; at most {ROOM_LARGEST}")


def main():
    os.chdir(os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
    for base, folders, files in os.walk("src"):
        folders.sort()
        for f in sorted(files):
            path = os.path.join(base, f)
            if not f.endswith((".c", ".h", ".def")):
                continue
            text = open(path, encoding="utf-8").read()
            if f.endswith(".def"):
                check_registry(path, text)
            else:
                check_shape(path, text)
                check_functions(path, text)
            check_ranks(path, text)
    check_circles(references(sys.argv[1]))
    check_tour()
    check_sizes()
    for path in subprocess.run(["git", "ls-files"], capture_output=True, text=True).stdout.split():
        check_license(path)
        check_width(path)
        check_links(path)
    return 1 if found else 0


sys.exit(main())
