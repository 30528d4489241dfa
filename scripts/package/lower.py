#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Collects a program with its libraries so that it runs on any glibc from 2.28 on.

    scripts/package/lower.py PROGRAM OUT [--lib DIR ...] [--extra FILE=PLACE ...] --known FILE ...

PROGRAM becomes OUT/bin/heteroshard, every library that it needs (those of glibc and libgcc_s
excepted, which every such system has) OUT/lib/heteroshard/NAME. A symbol that asks for a version
of glibc above 2.28 asks for none afterwards: the loader then takes the one there is, in whichever
library an older glibc has it (before 2.34 libpthread and libdl were apart). The entry of the
version becomes that of an older one of the same library; where there is none it is marked as weak,
which the loader does not insist on. What an older glibc lacks altogether is in
libheteroshard-compat.so. --known: libraries that say which names glibc 2.28 has; a name that is
neither there nor in the compat library ends this with an error. Prints the packed files."""

import argparse
import os
import re
import shutil
import struct
import sys

LIMIT = (2, 28)
SYSTEM = re.compile(
    r"^(libc|libm|libpthread|libdl|librt|libresolv|libutil|libgcc_s|ld-linux[a-z0-9_-]*|"
    r"libnss_[a-z]+)\.so"
)
WEAK = 2


class Elf:
    """The dynamic part of a 64-bit little-endian ELF file (System V gABI, chapter 5)."""

    def __init__(self, path):
        self.path = path
        self.data = bytearray(open(path, "rb").read())
        if self.data[:6] != b"\x7fELF\x02\x01":
            raise ValueError(f"{path}: no 64-bit little-endian ELF file")
        self.machine = self.u("<H", 18)
        phoff, phsize, phnum = self.u("<Q", 32), self.u("<H", 54), self.u("<H", 56)
        self.loads, self.dynamic = [], {}
        at = size = 0
        for i in range(phnum):
            head = struct.unpack_from("<IIQQQQ", self.data, phoff + i * phsize)
            kind, _, off, addr, _, filesz = head
            if kind == 1:
                self.loads.append((addr, off, filesz))
            if kind == 2:
                at, size = off, filesz
        needed = []
        for i in range(at, at + size, 16):
            tag, value = struct.unpack_from("<qQ", self.data, i)
            if tag == 0:
                break
            if tag == 1:
                needed.append(value)
            self.dynamic[tag] = value
        self.strings = self.offset(self.dynamic[5])
        self.needed = [self.text(v) for v in needed]

    def u(self, form, at):
        return struct.unpack_from(form, self.data, at)[0]

    def offset(self, addr):
        for a, off, size in self.loads:
            if a <= addr < a + size:
                return addr - a + off
        raise ValueError(f"{self.path}: address {addr:#x} is in no segment")

    def text(self, index):
        at = self.strings + index
        return self.data[at : self.data.index(0, at)].decode()

    def symbols(self):
        """(offset, name, defined, index in versym) of each dynamic symbol."""
        if 4 in self.dynamic:
            count = self.u("<I", self.offset(self.dynamic[4]) + 4)
        else:
            count = self.gnu_count()
        base = self.offset(self.dynamic[6])
        for i in range(1, count):
            name, _, _, section = struct.unpack_from("<IBBH", self.data, base + 24 * i)
            yield i, self.text(name), section != 0

    def gnu_count(self):
        at = self.offset(self.dynamic[0x6FFFFEF5])
        buckets, first, bloom, _ = struct.unpack_from("<IIII", self.data, at)
        table = at + 16 + 8 * bloom
        last = max(struct.unpack_from(f"<{buckets}I", self.data, table), default=0)
        if last < first:
            # no symbol is defined: the table ends where the strings or the versions begin
            end = self.offset(self.dynamic[5])
            return (end - self.offset(self.dynamic[6])) // 24
        chain = table + 4 * buckets
        while not self.u("<I", chain + 4 * (last - first)) & 1:
            last += 1
        return last + 1

    def needs(self):
        """(offset of the entry, number, library, version) of each version that is asked for."""
        if 0x6FFFFFFE not in self.dynamic:
            return
        at = self.offset(self.dynamic[0x6FFFFFFE])
        for _ in range(self.dynamic[0x6FFFFFFF]):
            _, n, file, aux, step = struct.unpack_from("<HHIII", self.data, at)
            entry = at + aux
            for _ in range(n):
                _, _, other, name, follow = struct.unpack_from("<IHHII", self.data, entry)
                yield entry, other, self.text(file), self.text(name)
                entry += follow
            at += step


def newer(version):
    m = re.match(r"GLIBC_(\d+)\.(\d+)", version)
    return bool(m) and (int(m[1]), int(m[2])) > LIMIT


def lower(elf):
    """Takes the newer versions away; the names that asked for them."""
    taken, old = {}, {}
    needs = list(elf.needs())
    for entry, _, library, version in needs:
        if version.startswith("GLIBC_") and not newer(version):
            old[library] = entry
    for entry, number, library, version in needs:
        if not newer(version):
            continue
        taken[number] = version
        like = old.get(library)
        if like:  # hash, and at offset 8 the name: those of a version that every glibc has
            elf.data[entry : entry + 4] = elf.data[like : like + 4]
            elf.data[entry + 8 : entry + 12] = elf.data[like + 8 : like + 12]
        else:
            struct.pack_into("<H", elf.data, entry + 4, elf.u("<H", entry + 4) | WEAK)
    names = []
    if taken:
        versions = elf.offset(elf.dynamic[0x6FFFFFF0])
        base = elf.offset(elf.dynamic[6])
        for i, name, defined in elf.symbols():
            at = versions + 2 * i
            if not defined and elf.u("<H", at) & 0x7FFF in taken:
                struct.pack_into("<H", elf.data, at, 1)
                weak = elf.data[base + 24 * i + 4] >> 4 == 2
                if not weak:
                    names.append(name)
    return names


def find(name, folders):
    for folder in folders:
        path = os.path.join(folder, name)
        if os.path.exists(path):
            return path
    return None


def main():
    p = argparse.ArgumentParser()
    p.add_argument("program")
    p.add_argument("out")
    p.add_argument("--lib", action="append", default=[])
    p.add_argument("--extra", action="append", default=[])
    p.add_argument("--known", nargs="*", default=[])
    a = p.parse_args()
    place = os.path.join(a.out, "lib", "heteroshard")
    todo = [(a.program, os.path.join(a.out, "bin", "heteroshard"))]
    for e in a.extra:
        source, target = e.split("=")
        todo.append((source, os.path.join(a.out, target)))
    known, seen, asked = set(), {}, {}
    for path in a.known:
        known |= {name for _, name, defined in Elf(path).symbols() if defined}
    while todo:
        source, target = todo.pop(0)
        if target in seen:
            continue
        elf = Elf(source)
        seen[target] = source
        for name in lower(elf):
            asked.setdefault(name, os.path.basename(target))
        if os.path.basename(target).startswith("libheteroshard-compat"):
            known |= {name for _, name, defined in elf.symbols() if defined}
        os.makedirs(os.path.dirname(target), exist_ok=True)
        with open(target, "wb") as f:
            f.write(elf.data)
        os.chmod(target, 0o755 if target.endswith("bin/heteroshard") else 0o644)
        for name in elf.needed:
            if SYSTEM.match(name):
                continue
            path = find(name, a.lib)
            if not path:
                sys.exit(f"lower: {source} needs {name}, which is in none of {' '.join(a.lib)}")
            todo.append((path, os.path.join(place, name)))
    missing = sorted(n for n in asked if n not in known)
    if missing:
        text = ", ".join(f"{n} ({asked[n]})" for n in missing)
        sys.exit(f"lower: glibc 2.28 does not have {text}: write it into scripts/package/compat.c")
    for target, source in sorted(seen.items()):
        print(os.path.relpath(target, a.out), os.path.realpath(source))


if __name__ == "__main__":
    main()
