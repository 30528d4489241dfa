#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""check-yaml.py [SEED [CASES]] - random configurations as PyYAML writes them, and the same with
some characters changed, read by us and by PyYAML's BaseLoader: the same tree of texts. What we
refuse on purpose (anchors, tags, several documents, a key twice, a NUL) is left out."""

import os
import random
import sys

import yaml
from reader import Reader, Report

WORDS = [
    "",
    "1e-4",
    "010",
    "yes",
    "0x10",
    "null",
    "~",
    "a b",
    "a: b",
    "#x",
    "x #y",
    "'",
    '"',
    "\\n",
    "é",
    "日本",
    "👍",
    "- a",
    "[x]",
    "{",
    "%",
    "@",
    "`",
    "|",
    ">",
    "*a",
    "&a",
    "!x",
    "?",
    "12:30",
    ".5",
    "1_000",
    "2024-01-01",
    "line\nline\n",
    " lead",
    "trail ",
    "\ttab",
    "a\n\nb",
    "=",
    "<<",
    "off",
    "\x07",
    "\u2028",
    "\x85",
    "x" * 200,
    "{{ messages }}\n  {% if x %}\n",
    "on",
    "-",
    "- ",
    ": ",
    "...",
    "---",
    "\ufeff",
]


def tree(r, depth=3):
    k = r.random()
    if depth and k < 0.25:
        return [tree(r, depth - 1) for _ in range(r.randrange(4))]
    if depth and k < 0.6:
        return {
            r.choice(["base_model", "datasets", "path", "a b", "é", "k%d" % r.randrange(9)]): tree(
                r, depth - 1
            )
            for _ in range(r.randrange(5))
        }
    return r.choice(
        [None, True, 0, 12, 1e-4, 0.5, r.choice(WORDS), r.choice(WORDS) + r.choice(WORDS)]
    )


def plain(n):
    """Of ours: texts without the mark of quotes."""
    if isinstance(n, dict) and list(n) == [""] and isinstance(n[""], list):
        return [plain(x) for x in n[""]]
    return {k: plain(v) for k, v in n.items()} if isinstance(n, dict) else n[0]


def theirs(text):
    for t in yaml.scan(text, Loader=yaml.BaseLoader):
        if isinstance(t, (yaml.AnchorToken, yaml.AliasToken, yaml.TagToken, yaml.DirectiveToken)):
            raise NotImplementedError

    class Once(yaml.BaseLoader):
        def construct_mapping(self, node, deep=False):
            keys = [k.value for k, _ in node.value]
            if len(set(map(str, keys))) < len(keys) or any(not isinstance(k, str) for k in keys):
                raise NotImplementedError
            return super().construct_mapping(node, deep)

    out = yaml.load(text, Loader=Once)
    if "\0" in repr(out):
        raise NotImplementedError
    return out


def main():
    seed, cases = int((sys.argv[1:] + ["1"])[0]), int((sys.argv[2:] + ["3000"])[0])
    reader, report, both = Reader(), Report(int(os.environ.get("MOST", 20))), 0
    for n in range(cases):
        r = random.Random(f"{seed} {n}")
        style = dict(
            default_flow_style=r.choice([None, True, False]),
            default_style=r.choice([None, None, "'", '"', "|", ">"]),
            width=r.choice([20, 80, 1000]),
            allow_unicode=r.random() < 0.5,
            indent=r.choice([2, 4]),
            explicit_start=r.random() < 0.2,
            line_break=r.choice(["\n", "\r\n"]),
        )

        class Plain(yaml.SafeDumper):
            ignore_aliases = lambda self, data: True

        text = (
            yaml.dump({"a": tree(r)}, Dumper=Plain, **style)
            .replace("!!int ", "")
            .replace("!!float ", "")
            .replace("!!bool ", "")
            .replace("!!null ", "")
        )
        for _ in range(r.choice([0, 0, 1, 3])):
            at = r.randrange(len(text))
            text = (
                text[:at]
                + r.choice(
                    [
                        "",
                        " ",
                        "\n",
                        "#",
                        ":",
                        "-",
                        "'",
                        '"',
                        "  # note\n",
                        "\t",
                        ",",
                        "[",
                        "}",
                        "x",
                        "\r",
                    ]
                )
                + text[at + r.randrange(2) :]
            )
        got = reader.ask("yaml", text=text)
        try:
            want = theirs(text)
        except NotImplementedError:
            report.case(got.get("code") != -99, repr(text), got)
            continue
        except yaml.YAMLError as e:
            both += "error" in got
            report.case("error" in got or "out" in got, repr(text), got)
            if "error" not in got:
                print("only we read", repr(text)[:300], str(e).replace("\n", " ")[:150])
            continue
        report.case(
            "out" in got and plain(got["out"]) == want,
            f"--- {seed} {n} {text[:600]!r}",
            f"want {want!r}",
            f"got  {got.get('error') or plain(got['out'])!r}",
        )
    print(both, "refused by both")
    report.end()


main()
