#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""check-templates.py [SEED [CASES [FOLDER]]] - random templates and conversations in our Jinja and
in jinja2, set up by transformers itself. FOLDER/NAME.jinja are published templates, which get
random conversations. A text that differs, or that only jinja2 writes, is a finding; what only we
write is counted."""

import collections
import datetime
import json
import os
import random
import sys

os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
from reader import Reader, Report
from transformers.utils import chat_template_utils as ctu

TEXTS = [
    "",
    " ",
    "\n",
    "Hello",
    "ß",
    "ŉ",
    "ǆx",
    "İi",
    "ﬁn",
    "Σας ΣΑΣ",
    "\u00a0x\u3000",
    "a,b;c",
    "<b>&'\"",
]
TEXTS += [
    "x\u200dy",
    "e\u0301",
    "👩‍👩‍👧",
    "\x1cq\x85",
    "they're Bill's",
    "a\r\nb\rc\n\nd",
    "12",
    "٣",
    "-5",
    "1e3",
]
TEXTS += [
    "½²",
    " 4.7 ",
    "{{ x }}",
    "a'b",
    'a"b',
    "\\n\t\x00\x7f\ufeff",
    "<think>\nq\n</think>\n\nz",
    "%s {}",
    "日本 語",
]
TEXTS += [
    "<|im_end|>",
    '<tool_call>{"a": 1}</tool_call>',
    "AbC dEf",
    "\u2028",
    "\U0001d54f",
    "\u01c5",
    "1_000",
    "ΌΣΟΣ",
]


def scalar(r):
    return r.choice(
        [None, True, False, 0, 1, -3, 7, 2**40, 2**63 - 1, 0.5, -2.5, 1e22, 1e-7, 3.0, 100.0, 0.1]
        + r.sample(TEXTS, 12)
    )


def value(r, depth=3):
    k = r.random()
    if depth and k < 0.2:
        return [value(r, depth - 1) for _ in range(r.randrange(4))]
    if depth and k < 0.4:
        return {
            r.choice(["a", "b", "type", "é", "x y", "items", "0", ""]): value(r, depth - 1)
            for _ in range(r.randrange(4))
        }
    return scalar(r)


def text(r):
    return "".join(r.choice(TEXTS) for _ in range(r.randrange(1, 3)))


def data(r):
    rows = [
        {"n": text(r), "k": r.randrange(-3, 9), "on": r.random() < 0.5}
        for _ in range(r.randrange(4))
    ]
    return {
        "s": text(r),
        "t": text(r),
        "i": r.randrange(-9, 99),
        "f": r.choice([0.5, -2.5, 1e16, 3.0, 1 / 3]),
        "b": r.random() < 0.5,
        "nil": None,
        "v": value(r),
        "l": [scalar(r) for _ in range(r.randrange(5))],
        "w": [text(r) for _ in range(r.randrange(5))],
        "q": [r.randrange(-5, 9) for _ in range(r.randrange(5))],
        "d": {k: value(r, 2) for k in r.sample(["a", "B", "c", "n", "ü"], r.randrange(5))},
        "rows": rows,
    }


LIT = """\
''¦'a'¦' '¦'\\n'¦'ab'¦'ß'¦0¦1¦2¦-1¦3.0¦0.5¦none¦true¦false¦\
[]¦{}¦[1, 'a']¦(1, 2)¦{'a': 1}¦undefd""".split(
    "¦"
)
VARS = ["s", "t", "i", "f", "b", "nil", "v", "l", "w", "q", "d", "rows"]
UNARY = """
trim upper lower capitalize title string length count first last list reverse sort unique min
max sum int float abs round e escape safe items tojson default join dictsort indent string
wordcount""".split()
ARGF = """\
default('z')¦default('z', true)¦d(7)¦join(', ')¦join('|', attribute='n')¦replace('a', 'X')¦\
replace(' ', '')¦replace('', '-')¦replace('a','b',1)¦indent(2)¦indent(3, true)¦\
indent(2, blank=true)¦round(1)¦round(2, 'floor')¦int(5)¦float(1.5)¦tojson(indent=2)¦\
tojson(indent=4)¦tojson(ensure_ascii=true)¦tojson(separators=(',', ':'))¦tojson(sort_keys=true)¦\
tojson(indent=0)¦tojson(indent='  ')¦map(attribute='n')|list¦map('upper')|list¦map('trim')|join¦\
map('length')|list¦map(attribute='zz', default=1)|list¦select|list¦reject('none')|list¦\
select('string')|list¦selectattr('on')|list¦selectattr('k', 'gt', 2)|list¦\
selectattr('n', 'equalto', 'a')|list¦rejectattr('on')|list|length¦\
selectattr('zz', 'undefined')|list¦sort(reverse=true)¦sort(attribute='k')¦sort(attribute='n,k')¦\
sort(case_sensitive=true)¦unique|list¦unique(attribute='k')|list¦sum(attribute='k')¦\
min(attribute='k')¦dictsort(by='value')¦dictsort(reverse=true)¦trim('a ')¦trim(chars='\\n')¦\
first¦last¦list¦attr('a')¦batch(2)|list¦batch(2, 'x')|list¦slice(2)|list¦groupby('k')|list¦\
truncate(5)¦truncate(5, true, '')¦center(9)¦wordwrap(5)¦map('int')|list¦map('string')|list|sort¦\
reverse|list¦striptags¦urlencode¦filesizeformat¦pprint¦xmlattr¦items|list¦format(1, 2)¦\
select('in', [1,2])|list¦map('tojson')|join(',')¦map('default', 'n')|list¦map('first')|list¦\
map('replace', 'a', 'b')|list¦select('mapping')|list¦max(case_sensitive=true)""".split("¦")
TESTS = """
defined undefined none boolean true false integer float number string mapping sequence iterable
callable odd even lower upper escaped""".split()
ARGT = """\
equalto 1¦eq('a')¦ne 2¦in [1, 'a']¦in s¦in d¦sameas true¦sameas none¦divisibleby 2¦gt 1¦lt(3)¦\
ge 2¦le 2¦filter¦test¦== 1¦greaterthan 2""".split("¦")
METHODS = """\
strip()¦lstrip()¦rstrip('a')¦strip('\\n')¦split()¦split('a')¦split(' ', 1)¦split(maxsplit=1)¦\
rsplit(none, 1)¦rsplit(' ', 1)¦rsplit('a')¦splitlines()¦splitlines(true)¦startswith('a')¦\
startswith(('a','H'))¦endswith('b')¦endswith('')¦replace('a','b')¦replace('', '.')¦\
replace('l', 'L', 1)¦upper()¦lower()¦title()¦capitalize()¦find('a')¦find('a', 1)¦find('')¦\
rfind('a')¦index('a')¦count('a')¦count('')¦join(w)¦join(['a','b'])¦isdigit()¦isalpha()¦isspace()¦\
isalnum()¦isupper()¦islower()¦isnumeric()¦isdecimal()¦istitle()¦isidentifier()¦isascii()¦\
zfill(5)¦ljust(5)¦rjust(5, '*')¦center(7)¦swapcase()¦casefold()¦removeprefix('a')¦\
removesuffix('b')¦partition('a')¦rpartition(' ')¦format(1, x=2)¦encode()¦expandtabs()¦\
translate({})¦items()¦items()|list¦keys()|list¦values()|list¦get('a')¦get('zz', 'y')¦\
get('a', {})¦copy()¦index(1)¦count(1)¦append(1)¦pop()¦a¦a.b¦zz¦n¦0¦items¦get('a').b¦length¦\
startswith('<', 1)¦endswith('b', 0, 3)¦count('a', 1)""".split("¦")
SLICES = """\
[0]¦[-1]¦[1:]¦[:-1]¦[::-1]¦[::2]¦['a']¦[i]¦['zz']¦[0:2]¦\
[-3:]¦[5:1:-2]¦[none:1]¦[b]¦[:i]¦[s]""".split(
    "¦"
)
BIN = """\
+¦-¦*¦/¦//¦%¦**¦~¦==¦!=¦<¦>¦<=¦>=¦in¦not in¦and¦or""".split("¦")


def expr(r, depth=3):
    k = r.random()
    if depth <= 0 or k < 0.12:
        return r.choice(VARS if r.random() < 0.7 else LIT)
    e = lambda: expr(r, depth - 1 - r.randrange(2))
    if k < 0.3:
        return f"{e()}|{r.choice(UNARY)}"
    if k < 0.45:
        return f"{e()}|{r.choice(ARGF)}"
    if k < 0.65:
        return (
            f"({e()}).{r.choice(METHODS)}"
            if r.random() < 0.3
            else f"{r.choice('stwdlv')}.{r.choice(METHODS)}"
        )
    if k < 0.72:
        return f"({e()}){r.choice(SLICES)}"
    if k < 0.8:
        return f"({e()} is {r.choice(['', 'not '])}{r.choice(TESTS + ARGT)})"
    if k < 0.92:
        return f"({e()} {r.choice(BIN)} {e()})"
    if k < 0.94:
        return f"({e()} if {e()} else {e()})"
    if k < 0.95:
        return f"({e()} if {e()})"
    if k < 0.97:
        return f"[{e()}, {e()}]"
    if k < 0.98:
        return f"{{'k': {e()}, 'a': {e()}}}"
    return f"(not {e()})"


def block(r, depth=3):
    o, c = r.choice(["{%", "{%-", "{%+", "{%-"]), r.choice(["%}", "-%}", "%}", "+%}"])
    T = lambda s: f"{o if r.random() < .6 else '{%-'} {s} {c if r.random() < .6 else '-%}'}"
    k, e = r.random(), lambda: expr(r, 2)
    raw = r.choice(
        [
            "",
            " ",
            "\n",
            "  \n  ",
            "x",
            " x ",
            "\nx\n",
            "\t",
            "\n\n",
            "<|im_start|>",
            "{ ",
            "}",
            "\r\n",
            "%",
            "#",
        ]
    )
    if depth <= 0 or k < 0.2:
        return raw
    if k < 0.35:
        return f"{r.choice(['{{', '{{-'])} {e()} {r.choice(['}}', '-}}'])}"
    B = lambda: "".join(block(r, depth - 1) for _ in range(r.randrange(1, 4)))
    if k < 0.45:
        return (
            T(f"if {e()}")
            + B()
            + (T(f"elif {e()}") + B() if r.random() < 0.3 else "")
            + (T("else") + B() if r.random() < 0.5 else "")
            + T("endif")
        )
    if k < 0.6:
        it = r.choice(
            [
                "w",
                "q",
                "rows",
                "d",
                "range(3)",
                "l",
                "q[1:]",
                "rows|selectattr('on')",
                "s",
                "q if q else []",
                "w|reverse",
                "d.items()|list",
            ]
        )
        body = r.choice(
            [
                "",
                "{{ loop.index }}",
                "{{ loop.first }}{{ loop.last }}",
                "{{ m }}",
                "{{ loop.length - loop.index0 }}",
                "{{ loop.previtem }}",
                "{{ loop.nextitem is defined }}",
                "{{ loop.cycle('a', 'b') }}",
                "{{ loop.revindex0 }}",
                "{{ loop.changed(m) }}",
                "{{ loop.depth }}",
            ]
        )
        return (
            T(
                f"for m in {it}"
                + (
                    f" if {r.choice(['m', 'm is string', 'loop is defined', 'm is not none', 'i'])}"
                    if r.random() < 0.2
                    else ""
                )
            )
            + body
            + B()
            + (
                T(r.choice(["if m", "if loop.index > 1"]))
                + T(r.choice(["break", "continue"]))
                + T("endif")
                if r.random() < 0.3
                else ""
            )
            + B()
            + (T("else") + B() if r.random() < 0.2 else "")
            + T("endfor")
        )
    if k < 0.68:
        return T(f"set {r.choice(['y', 's', 'x, y', 'ns.a'])} = {e()}") + "{{ y }}"
    if k < 0.74:
        return (
            T("set ns = namespace(a=1, b=s)")
            + T(f"for m in q")
            + T("set ns.a = ns.a ~ m")
            + T("endfor")
            + "{{ ns.a }}{{ ns.c }}"
        )
    if k < 0.8:
        return (
            T("macro f(a, b='z')")
            + "{{ a }}|{{ b }}"
            + B()
            + "{{ caller() if caller }}" * (r.random() < 0.3)
            + T("endmacro")
            + "{{ f(%s) }}{{ f(1, b=%s) }}" % (e(), e())
        )
    if k < 0.84:
        return T("set z") + B() + T("endset") + "{{ z }}{{ z|length }}"
    if k < 0.87:
        return r.choice(["{#", "{#-"]) + raw.replace("#", "") + r.choice(["#}", "-#}"])
    if k < 0.9:
        return T("generation") + B() + T("endgeneration")
    if k < 0.93:
        return (
            T(f"filter {r.choice(['trim', 'upper', 'indent(2)', 'replace(chr, 1)', 'e'])}")
            + B()
            + T("endfilter")
        )
    if k < 0.96:
        return T("with y = 1") + B() + T("endwith")
    return T("raw") + "{{ x }}" + T("endraw")


def call(r):
    arguments = {r.choice(["city", "n", "é", "o"]): value(r) for _ in range(r.randrange(3))}
    c = {"name": r.choice(["f", "get_weather"]), "arguments": arguments}
    if r.random() < 0.15:
        c["arguments"] = json.dumps(arguments)
    f = {"type": "function", "function": c} if r.random() < 0.8 else c
    return {"id": "call%05d" % r.randrange(9999), **f} if r.random() < 0.7 else f


def content(r):
    k = r.random()
    if k < 0.12:
        return [{"type": "text", "text": text(r)} for _ in range(r.randrange(3))]
    return None if k < 0.15 else text(r) + r.choice(["", "\n", " and so on", "<think>a</think>b"])


def conversation(r):
    out = (
        [{"role": r.choice(["system", "developer"]), "content": content(r)}]
        if r.random() < 0.4
        else []
    )
    for _ in range(r.randrange(1, 4)):
        out.append({"role": "user", "content": content(r)})
        if r.random() < 0.9:
            m = {"role": "assistant", "content": content(r)}
            if r.random() < 0.3:
                m["tool_calls"] = [call(r) for _ in range(r.randrange(3))]
                out.append(m)
                for c in m["tool_calls"]:
                    t = {
                        "role": r.choice(["tool", "tool", "ipython"]),
                        "content": r.choice([text(r), value(r)]),
                        "name": "f",
                    }
                    out.append({**t, "tool_call_id": c["id"]} if "id" in c else t)
                if r.random() < 0.7:
                    out.append({"role": "assistant", "content": content(r)})
            else:
                if r.random() < 0.2:
                    m[r.choice(["reasoning_content", "thinking", "reasoning"])] = r.choice(
                        [None, text(r)]
                    )
                out.append(m)
    if r.random() < 0.05:
        r.shuffle(out)
    return out


def tool(r):
    kind = lambda: r.choice(["string", "integer", ["string", "null"], "object", "array", "boolean"])
    props = {
        k: {
            "type": kind(),
            "description": text(r),
            **r.choice(
                [
                    {},
                    {"enum": ["a", 1, None]},
                    {"default": scalar(r)},
                    {"items": {"type": "string"}},
                    {"properties": {"z": {"type": "number"}}},
                ]
            ),
        }
        for k in r.sample(["city", "n", "é"], r.randrange(3))
    }
    f = {
        "name": r.choice(["f", "g"]),
        "description": text(r),
        "parameters": {"type": "object", "properties": props, "required": list(props)[:1]},
    }
    if r.random() < 0.2:
        f["return"] = {"type": "string", "description": text(r)}
    return {"type": "function", "function": f}


class Now(datetime.datetime):
    @classmethod
    def now(cls, *a):
        return cls(2024, 7, 26)


ctu.datetime = Now  # strftime_now's, as src/data/jinja.h has it


def theirs(template, variables):
    try:
        return ctu._compile_jinja_template(template).render(**variables)
    except Exception as e:
        return e


def main():
    seed, cases = int((sys.argv[1:] + ["1"])[0]), int((sys.argv[2:] + ["3000"])[0])
    folder, reader, report = (
        (sys.argv[3:] or [None])[0],
        Reader(),
        Report(int(os.environ.get("MOST", 20))),
    )
    published = (
        [open(os.path.join(folder, f), newline="").read() for f in sorted(os.listdir(folder))]
        if folder
        else []
    )
    kinds = collections.Counter()
    for n in range(cases):
        r = random.Random(f"{seed} {n}")
        if published and n % 3 == 0:
            template = r.choice(published)
            v = {
                "messages": conversation(r),
                "tools": [tool(r) for _ in range(r.randrange(1, 3))] if r.random() < 0.4 else None,
                "documents": None,
                "add_generation_prompt": r.random() < 0.5,
                "bos_token": "<s>",
                "eos_token": "</s>",
            }
            v.update(r.choice([{}, {}, {"enable_thinking": r.random() < 0.5}]))
        else:
            v = data(r)
            template = (
                "{{ %s }}" % expr(r)
                if r.random() < 0.6
                else "".join(block(r) for _ in range(r.randrange(1, 6)))
            )
        want = theirs(template, v)
        got = reader.ask("jinja", text=template, vars=v)
        if isinstance(want, Exception):
            kinds["both refuse" if "error" in got else "only we write"] += 1
            report.case(
                got.get("code") != -99 and got.get("code") != -10, template[:3000], repr(v), got
            )
            continue
        kind = "same" if got.get("out") == want else "refused" if "error" in got else "differs"
        kinds[kind] += 1
        report.case(
            kind == "same",
            f"--- {seed} {n} {kind}: {template if len(template) < 900 else template[:60]}",
            f"want {want!r}",
            f"got  {got.get('out', got.get('error'))!r}",
            *([repr(v)] if os.environ.get("VARS") else []),
        )
    print(dict(kinds))
    report.end()


main()
