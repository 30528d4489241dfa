#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes tests/golden/tokenizer/jinja.json: what jinja2 makes of templates, in the environment that
transformers gives chat templates (ImmutableSandboxedEnvironment, trim_blocks, lstrip_blocks, loop
controls, its tojson, raise_exception, strftime_now at the fixed date of src/data/jinja.h).

    jinja.py                   tests/golden/jinja/: snippets.txt, one a line, and whole templates;
                               needs jinja2 only
    jinja.py FOLDER OUT.json   templates of published models, FOLDER/NAME.jinja, which belong to the
                               models and are not kept here: build/tests/test_data_jinja OUT.json

The templates in tests/golden/jinja are ours, written with the constructs of the published ones.
    jinja.py --names FOLDER    tests/golden/tokenizer/axolotl.json: what axolotl's templates of the
                               names in src/data/axolotl_chat.c write (its folder chat_templates/
                               templates); the texts only, without the templates
null: jinja2 gives an error, and so must we."""

import datetime, json, os, sys
import jinja2
from jinja2.ext import Extension, loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment


class Generation(Extension):
    """{% generation %}: only its body, as for transformers when no mask is asked for."""

    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        call = jinja2.nodes.CallBlock(self.call_method("_text"), [], [], body)
        return call.set_lineno(line)

    def _text(self, caller):
        return caller()


def environment():
    def refuse(message):
        raise jinja2.exceptions.TemplateError(message)

    def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(
            x,
            ensure_ascii=ensure_ascii,
            indent=indent,
            separators=separators,
            sort_keys=sort_keys,
        )

    env = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, loopcontrols]
    )
    env.filters["tojson"] = tojson
    env.globals["raise_exception"] = refuse
    env.globals["strftime_now"] = lambda f: datetime.datetime(2024, 7, 26).strftime(f)
    return env


ENV = environment()


def render(text, variables):
    try:
        return ENV.from_string(text).render(**variables)
    except Exception:  # whatever jinja2 refuses
        return None


DATA = {
    "n": 7,
    "x": 2.5,
    "big": 1e300,
    "neg": -7,
    "t": True,
    "nil": None,
    "s": "Hello, Wörld 👍🏽",
    "sp": " \t pad\u3000\n",
    "l": [3, 1, 2],
    "words": ["b", "A", "c", "a"],
    "d": {"b": 1, "a": [1, {"x": None}], "z": "ü\"\\\n\u0001'"},
    "rows": [
        {"name": "q", "k": 2, "on": True},
        {"name": "p", "k": 1, "on": False},
        {"name": "Q", "k": 3},
    ],
    "empty": [],
    "lines": "one\n\n  two\r\nthree\n",
}

BLOCKS = [
    "{{ s\n   | upper\n}}{%\nset v = 1\n%}{{ v }}\n",
    "{%- for r in rows -%}\n    {{ r.name }}\n{%- endfor -%}\n\nend\n\n",
    "a\n  {% if n %}\n  b\n  {% endif %}\nc\n",
    "a\n  {%- if n %}\n  b\n  {%- endif %}\nc\n",
    "a\r\n  {% if n -%}\r\n  b\r\n  {% endif -%}\r\nc\r\n",
    "a\n  {# note #}\n  {{ n }}\n\t{% set q = 1 %}  {{ q }}\n{{ n }}\n\nend",
    "{% set x %}\n  a\n{% endset %}[{{ x }}]\n  {%+ if n %}b{% endif %}\n",
    "{%- macro m(a) -%}\n  {{ a }}\n  {%- for i in range(2) %}\n  - {{ i }}\n  {% endfor -%}\n"
    "{%- endmacro -%}\n{{- m('q') -}}\nx\n",
    "{% raw %}\n {{ a }}\n{% endraw %}\nb\n  {%- raw -%}  c  {%- endraw %}\nd",
    "{% for i in l %}\n  {{ i }}\n  {%- if not loop.last %},{% endif %}\n{% endfor %}\n",
    "\n\n{{ n }}\n\n\n",
]

TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "weather",
            "description": "The weather of a place.\nIn °C.",
            "parameters": {
                "type": "object",
                "properties": {
                    "place": {"type": "string", "description": "a city"},
                    "days": {"type": "array", "items": {"type": "integer"}},
                    "unit": {"enum": ["C", "F"]},
                },
                "required": ["place"],
            },
        },
    }
]


def turn(role, content, **more):
    return {"role": role, "content": content, **more}


def call(i, name, **arguments):
    return {"id": i, "type": "function", "function": {"name": name, "arguments": arguments}}


S, U, A, T = "system", "user", "assistant", "tool"
CONVERSATIONS = [
    ([turn(U, "Hello")], None),
    ([turn(U, "Hello"), turn(A, "Hi there!")], None),
    ([turn(S, "You are terse."), turn(U, "Was ist das?"), turn(A, "Ein Test.")], None),
    (
        [turn(S, " Be\n kind. "), turn(U, "One"), turn(A, "1"), turn(U, "Two"), turn(A, "2")],
        None,
    ),
    ([turn(U, "One"), turn(A, "1"), turn(U, "Two"), turn(A, "2"), turn(U, "Three")], None),
    ([turn(U, "  spaces \n\n"), turn(A, "\n\n  answer with space around \t\n")], None),
    ([turn(U, "\u001cé日本語👍🏽\u2003"), turn(A, "\u0301 combining first\x85")], None),
    (
        [
            turn(U, "Think"),
            turn(A, "<think>\nold thought\n</think>\n\nold answer"),
            turn(U, "Again"),
            turn(A, "<think>\nnew thought\n</think>\n\nnew answer"),
        ],
        None,
    ),
    (
        [
            turn(U, "Weather in Köln?"),
            turn(A, "", tool_calls=[call("call00001", "weather", place="Köln", days=[1, 2])]),
            turn(T, '{"t": 21.5}', name="weather", tool_call_id="call00001"),
            turn(A, "21.5 °C"),
        ],
        TOOLS,
    ),
    (
        [
            turn(S, "Use tools."),
            turn(U, "Both?"),
            turn(
                A,
                "I look.",
                tool_calls=[
                    call("call00001", "weather", place='A"b'),
                    call("call00002", "weather", place="B", unit="C"),
                ],
            ),
            turn(T, "sunny", name="weather", tool_call_id="call00001"),
            turn(T, "rain", name="weather", tool_call_id="call00002"),
            turn(A, "Sun and rain."),
            turn(U, "Thanks"),
            turn(A, "Any time.", reasoning_content="polite"),
        ],
        TOOLS,
    ),
    ([turn(U, "Empty answer"), turn(A, "")], None),
    ([turn(A, "first"), turn(A, "second")], None),
]


def chats(templates):
    out = []
    for name, text in sorted(templates.items()):
        cases = []
        for i, (messages, tools) in enumerate(CONVERSATIONS):
            for gen in (False, True):
                v = {
                    "messages": messages,
                    "tools": tools,
                    "documents": None,
                    "add_generation_prompt": gen,
                    "bos_token": "<s>",
                    "eos_token": "</s>",
                }
                cases.append(render(text, v))
        refused = sum(c is None for c in cases)
        print(f"{name}: {len(cases)} texts, {refused} refused")
        out.append({"name": name, "template": text, "texts": cases})
    return out


def read_templates(folder):
    names = [f[:-6] for f in os.listdir(folder) if f.endswith(".jinja")]
    return {n: open(os.path.join(folder, n + ".jinja"), newline="").read() for n in names}


NAMES = "gemma gemma3 mistral_v1 mistral_v2v3 mistral_v3_tekken phi_3 phi_35 qwen_25 qwen3".split()


def by_name(folder, path):
    """Tools are refused but by Qwen's; axolotl's `qwen3` begins an answer with a thought."""
    have = read_templates(folder)
    out = {"conversations": [], "chats": chats({n: have[n] for n in NAMES})}
    out["conversations"] = [{"messages": m, "tools": t} for m, t in CONVERSATIONS]
    for c in out["chats"]:
        del c["template"]
        for i, text in enumerate(c["texts"]):
            tools = CONVERSATIONS[i // 2][1]
            if tools and not c["name"].startswith("qwen"):
                c["texts"][i] = None
            elif i % 2 and c["name"] == "qwen3":
                c["texts"][i] = text.removesuffix("<think>\n\n")
    with open(path, "w") as f:
        json.dump(out, f, ensure_ascii=False, separators=(",", ":"))
        f.write("\n")


def main():
    golden = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "tests", "golden")
    own = os.path.join(golden, "jinja")
    if sys.argv[1:2] == ["--names"]:
        return by_name(sys.argv[2], os.path.join(golden, "tokenizer", "axolotl.json"))
    folder, path = sys.argv[1:] or (own, os.path.join(golden, "tokenizer", "jinja.json"))
    out = {
        "made_by": "scripts/golden/jinja.py with jinja2 " + jinja2.__version__,
        "conversations": [{"messages": m, "tools": t} for m, t in CONVERSATIONS],
        "chats": chats(read_templates(folder)),
    }
    if folder == own:
        snippets = open(os.path.join(own, "snippets.txt")).read().rstrip("\n").split("\n") + BLOCKS
        out["data"] = DATA
        out["snippets"] = [[t, render(t, DATA)] for t in snippets]
        print(sum(x[1] is None for x in out["snippets"]), "snippets refused of", len(snippets))
    with open(path, "w") as f:
        json.dump(out, f, ensure_ascii=False, separators=(",", ":"))
        f.write("\n")


main()
