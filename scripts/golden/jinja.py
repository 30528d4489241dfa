#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes tests/golden/tokenizer/jinja.json: what jinja2 makes of templates, in the environment that
transformers gives chat templates (ImmutableSandboxedEnvironment, trim_blocks, lstrip_blocks, loop
controls, its tojson, raise_exception, strftime_now at the fixed date of src/data/jinja.h).

    jinja.py                   the snippets and templates below; needs jinja2 only
    jinja.py FOLDER OUT.json   templates of published models, FOLDER/NAME.jinja, which belong to the
                               models and are not kept here: build/tests/test_data_jinja OUT.json

The templates below are ours, written with the constructs of the published ones. null: jinja2 gives
an error, and so must we."""

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

SNIPPETS = r"""
{{ n }} {{ x }} {{ big }} {{ t }} {{ nil }} {{ s }} {{ l }} {{ d }} {{ (1,) }} {{ (1, 'a') }}
{{ 1 + 2 * 3 - 4 // 3 % 5 ** 2 }}|{{ 7 / 2 }}|{{ -7 // 2 }}|{{ -7 % 3 }}|{{ 2 ** -1 }}|{{ 1_000 }}
{{ 2 ** 10 }}|{{ (-1) ** 7 }}|{{ 0 ** 0 }}|{{ 2 ** 3 ** 2 }}|{{ -2 ** 2 }}
{{ 9223372036854775807 - 1 }} {{ 7.0 // 2 }} {{ -7.5 % 2 }} {{ 1e5 }} {{ 1.5e-7 }} {{ 1e16 }} {{ 123456789.125 }}
{{ 1/0 }}
{{ 1.5 // 0 }}
{{ 'a' ~ 1 ~ none ~ 2.0 ~ [1] }}|{{ 'a' 'b' }}|{{ 'ab' * 3 }}|{{ [1] + [2] }}|{{ [1, 2] * 2 }}
{{ 'a' + 1 }}
{{ undefined_name + 'x' }}
{{ undefined_name }}|{{ undefined_name is defined }}|{{ undefined_name is undefined }}|{{ not undefined_name }}
{{ undefined_name.foo }}
{{ undefined_name() }}
{{ d.nothing }}|{{ d.nothing is defined }}|{{ nil.foo is defined }}|{{ l[9] is defined }}
{{ d.b }} {{ d['b'] }} {{ d.a[1].x }} {{ d.a.0 }} {{ l[-1] }} {{ s[0] }} {{ s[-1] == '🏽' }} {{ s[7:12] }}
{{ s[::-1] }}|{{ s[2:] }}|{{ s[:-3] }}|{{ s[::2] }}|{{ l[1:] }}|{{ l[::-1] }}|{{ l[-2:] }}|{{ l[5:] }}|{{ (1,2,3)[:2] }}
{{ s[3:1] }}|{{ s[-100:100] }}|{{ l[2:0:-1] }}|{{ l[:-5:-1] }}
{{ l[0:2:0] }}
{{ 1 < 2 < 3 }} {{ 1 < 3 < 2 }} {{ 1 == 1.0 }} {{ true == 1 }} {{ 'a' < 'b' }} {{ [1] == [1] }} {{ {'a': 1} == {'a': 1} }} {{ none == false }}
{{ 'a' < 1 }}
{{ 1 in l }} {{ 'b' in d }} {{ 'W' in s }} {{ 9 not in l }} {{ not 9 in l }} {{ '' in s }} {{ 1 in undefined_name }}
{{ 1 in s }}
{{ true and 'x' }}|{{ '' or 'y' }}|{{ not true }}|{{ 1 and 0 or 3 }}|{{ 'a' if false }}|{{ 'a' if 0 else 'b' if 0 else 'c' }}
{{ s.upper() }} {{ s.lower() }} {{ 'heLLo wOrld-foo' | title }} {{ "they're Bill's" .title() }} {{ 'éa' | capitalize }} {{ 'ABC dE'.capitalize() }}
[{{ sp.strip() }}][{{ sp.lstrip() }}][{{ sp.rstrip() }}][{{ sp | trim }}][{{ 'xxaxx'.strip('x') }}][{{ 'abcXcba'.strip('abc') }}][{{ 'üaü'.strip('ü') }}][{{ 'xax' | trim('x') }}]
{{ 'a,b,,c'.split(',') }} {{ 'a,b,c'.split(',', 1) }} {{ ' a  b c '.split() }} {{ ' a  b c '.split(none, 1) }} {{ 'a,b,c'.rsplit(',', 1) }} {{ ''.split(',') }} {{ ''.split() }}
{{ 'a'.split('') }}
{{ lines.splitlines() }} {{ lines.splitlines(true) }} {{ 'a\vb\x1cc\u2028d'.splitlines() }}
{{ 'abc'.startswith('ab') }} {{ 'abc'.endswith(('x', 'bc')) }} {{ 'abc'.find('c') }} {{ 'äbc'.find('c') }} {{ 'abcabc'.rfind('b') }} {{ 'abc'.find('x') }} {{ 'aXaXa'.count('X') }}
{{ 'a-b-c'.replace('-', '+') }} {{ 'a-b-c'.replace('-', '', 1) }} {{ 'aaa' | replace('a', 'bb') }} {{ 'a-b' | replace('-', '__', 1) }}
{{ 'abc'.removeprefix('a') }} {{ 'abc'.removesuffix('bc') }} {{ 'a=b=c'.partition('=') }} {{ 'a=b=c'.rpartition('=') }} {{ 'abc'.partition('=') }} {{ 'abc'.rpartition('=') }}
{{ '12'.isdigit() }} {{ 'a1'.isdigit() }} {{ 'ab'.isalpha() }} {{ ' \t'.isspace() }} {{ ''.isdigit() }}
{{ '-'.join(['a', 'b']) }} {{ '{} {} {{}}'.format('a', 1) }} {{ '{1} {0} {k}'.format(1, 2, k='v') }}
{{ '%s=%d %5s' % ('a', 3) }}
{{ '%s=%d%% %.2f %r' % ('a', 3, 2.5, 'q') }} {{ '%s' % 'x' }} {{ '%s %s' | format('a', 'b') }}
{{ '%s %s' % ('a',) }}
{{ l | length }} {{ s | length }} {{ d | length }} {{ empty | length }} {{ undefined_name | length }} {{ l | count }}
{{ 5 | length }}
{{ l | first }} {{ l | last }} {{ 'ab' | last }} {{ d | first }} [{{ empty | first }}]
{{ l | sort }} {{ l | sort(reverse=true) }} {{ words | sort }} {{ words | sort(case_sensitive=true) }} {{ rows | sort(attribute='k') | map(attribute='name') | list }} {{ l }}
{{ d | dictsort }} {{ {'a': 2, 'b': 1} | dictsort(by='value') }} {{ {'a': 2, 'B': 1} | dictsort(reverse=true) }}
{{ words | unique | list }} {{ [1, 1, 2] | unique | join('-') }} {{ l | min }} {{ l | max }} {{ l | sum }} {{ rows | sum(attribute='k') }} {{ l | sum(start=10) }} {{ [1.5, 2] | sum }}
{{ l | reverse | list }} {{ 'abc' | reverse }} {{ l | join }} {{ l | join(', ') }} {{ rows | join('|', attribute='name') }}
{{ words | map('upper') | join }} {{ words | map('replace', 'a', 'x') | list }} {{ rows | map(attribute='on', default='no') | list }} {{ ['1', 'x'] | map('int', 5) | list }}
{{ l | select('gt', 1) | list }} {{ l | reject('odd') | list }} {{ [0, 1, '', 'a'] | select | list }} {{ rows | selectattr('on') | map(attribute='name') | list }} {{ rows | rejectattr('k', 'equalto', 2) | map(attribute='name') | list }} {{ rows | selectattr('name', 'in', ['p', 'Q']) | list | length }} {{ rows | selectattr('on', 'defined') | list | length }}
{{ l | nofilter }}
{{ l is notest }}
{{ nil | default('x') }} {{ undefined_name | default('x') }} {{ '' | default('x', true) }} {{ nil | d('y', boolean=true) }} {{ undefined_name | default }}
{{ '42' | int }} {{ '4.7' | int }} {{ 'x' | int }} {{ 'x' | int(9) }} {{ 3.9 | int }} {{ ' 5 ' | int }} {{ '2.5' | float }} {{ 'y' | float }} {{ true | int }} {{ 3 | float }}
{{ 2.567 | round(2) }} {{ 2.5 | round }} {{ 3.5 | round }} {{ 2.1 | round(0, 'ceil') }} {{ 2.9 | round(method='floor') }} {{ -5 | abs }} {{ 2.5 | abs }} {{ 5 | round }}
{{ lines | indent }}|{{ lines | indent(2, true) }}|{{ lines | indent('> ', blank=true) }}|{{ '' | indent(2, true) }}|{{ 'a' | indent }}
{{ '<a href="x">\'&' | e }} {{ 'x' | string }} {{ 5 | string + 'a' }} {{ [1] | string | length }}
{{ d | tojson }} {{ d | tojson(indent=2) }} {{ s | tojson }} {{ s | tojson(ensure_ascii=true) }} {{ [] | tojson(indent=2) }} {{ {} | tojson }} {{ {'b': 1, 'a': {'d': 1, 'c': 2}} | tojson(sort_keys=true) }} {{ [1, 2.5, none, true, 'x/y', 1e22] | tojson(separators=(',', ':')) }} {{ {1: 2, true: 3, none: 4} | tojson }}
{{ undefined_name | tojson }}
{{ d.items() | list }} {{ d.keys() | list }} {{ d.values() | list | length }} {{ d.get('b') }} {{ d.get('no') }} {{ d.get('no', 5) }} {{ d | items | list | length }} {{ dict(a=1, b=2) }} {{ dict({'q': 1}, w=2) }}
{{ [1, 2, 1].count(1) }} {{ [1, 2].index(2) }} {{ range(3) | list }} {{ range(5, 1, -2) | list }} {{ range(2, 4) | join }}
{{ l.append(4) }}
{{ d.update({'x': 1}) }}
{{ range(1000000) }}
{{ strftime_now('%d %b %Y, %A %H:%M') }}
{{ raise_exception('no ' ~ s) }}
{% for i in l %}{{ loop.index }}{{ loop.index0 }}{{ loop.revindex }}{{ loop.revindex0 }}{{ loop.first }}{{ loop.last }}{{ loop.length }}{{ loop.previtem }}{{ loop.nextitem }}{{ loop.cycle('a', 'b') }};{% endfor %}
{% for i in l if i > 1 %}{{ i }}{{ loop.length }}{% else %}none{% endfor %}{% for i in empty %}x{% else %}none{% endfor %}{% for i in undefined_name %}x{% endfor %}
{% for k, v in d.items() %}{{ k }}={{ v }};{% endfor %}{% for k in d %}{{ k }}{% endfor %}{% for c in 'äb' %}{{ c }}.{% endfor %}{% for a, (b) in [[1, 2]] %}{{ a }}{{ b }}{% endfor %}
{% for a, b in [[1, 2, 3]] %}{{ a }}{% endfor %}
{% for i in 5 %}{% endfor %}
{% for i in range(9) %}{% if i == 2 %}{% continue %}{% endif %}{% if i == 5 %}{% break %}{% endif %}{{ i }}{% endfor %}
{% set a = 1 %}{% for i in l %}{% set a = a + i %}{{ a }}{% endfor %}{{ a }}{% if true %}{% set a = 5 %}{% endif %}{{ a }}
{% set ns = namespace(a=0, b='') %}{% for i in l %}{% set ns.a = ns.a + i %}{% set ns.b = ns.b ~ i %}{% endfor %}{{ ns.a }}{{ ns.b }}{{ ns.c is defined }}{% set ns.c = 1 %}{{ ns.c }}
{% set d.x = 1 %}
{% set a, b = 1, 'q' %}{{ a }}{{ b }}{% set t3 = 1, 2, 3 %}{{ t3 }}{% set (u, v) = [4, 5] %}{{ u + v }}
{% set block %}in {{ n }} {% set inner = 3 %}{% endset %}[{{ block }}]{{ inner }}{% set f | upper | trim %} abc {% endset %}[{{ f }}]
{% macro m(a, b=2, c=a) %}{{ a }}{{ b }}{{ c }}{% endmacro %}{{ m(1) }}|{{ m(1, c=5) }}|{{ m('x', 'y', 'z') }}{% macro w() %}{{ late }}{% endmacro %}{% set late = 'L' %}{{ w() }}{{ m is callable }}
{% macro m(a, b=2, c) %}{% endmacro %}
{% macro m(a) %}{% endmacro %}{{ m(1, 2) }}
{% macro m(a) %}{% endmacro %}{{ m(b=2) }}
{% macro m(a, b=2) %}{{ a }}{{ b }}{% endmacro %}{{ m(*[1, 3]) }}{{ m(4, **{'b': 5}) }}{{ range(*[1, 4]) | list }}{{ m(*undefined_name) }}
{% macro fact(k) %}{% if k > 1 %}{{ k }}*{{ fact(k - 1) }}{% else %}1{% endif %}{% endmacro %}{{ fact(5) }}
{% macro box(t) %}[{{ t }}:{{ caller() }}]{% endmacro %}{% call box('T') %}body {{ n }}{% endcall %}{% macro each(xs) %}{% for q in xs %}{{ caller(q) }}{% endfor %}{% endmacro %}{% call(i) each(l) %}<{{ i }}>{% endcall %}
{% macro forever() %}{{ forever() }}{% endmacro %}{{ forever() }}
{% filter upper %}abc {{ n }}{% endfilter %}{% filter replace('a', 'b') | upper %}aaa{% endfilter %}{% with q = 1, r = n %}{{ q + r }}{% endwith %}{{ q }}
{% if n > 5 %}big{% elif n > 3 %}mid{% else %}small{% endif %}{% if not n %}a{% elif none %}b{% else %}c{% endif %}{% if n == 1 %}x{% elif n == 7 %}y{% endif %}
  {% if true %}  a  {% endif %}  b
 {%- if true -%}   a   {%- endif -%}   b
  {%+ if true %}a{% endif +%}  b
x {#- c -#} y {# d #} z{# e #}
{% raw %}{{ raw }} {% if %}{% endraw %}|{%- raw -%} x {%- endraw -%} y
{{ '{{' }}{{ "a\tb\\n\x41\u00e9\"'" }}{{ 'it\'s' }}{{ "q\q" }}
{{ {'a': {'b': 1}}['a']['b'] }}{{ [[1, 2], [3]][0][1] }}{{ ({'k': 'v'}).k }}{{ {'a': 1}.a }}
{{ n is number }}{{ x is float }}{{ n is integer }}{{ t is boolean }}{{ s is string }}{{ d is mapping }}{{ l is sequence }}{{ l is iterable }}{{ n is iterable }}{{ nil is none }}{{ n is odd }}{{ n is even }}{{ n is divisibleby 7 }}{{ n is divisibleby(2) }}{{ t is true }}{{ t is false }}{{ n is eq 7 }}{{ n is ne(7) }}{{ n is lt 8 }}{{ n is ge 7 }}{{ n is in [7] }}{{ nil is sameas none }}{{ 'a' is lower }}{{ 'A' is upper }}{{ n is not none }}{{ l is mapping }}{{ t is number }}{{ t is integer }}{{ s is sequence }}
{{ s is string and n is defined or false }}{{ (n is defined) if x is not none else 'no' }}
{% generation %}answer {{ n }}{% endgeneration %}!
{{ nil }}{{ [none, true, 1.0, 'q\'"', "it's", '\x00\x7f\xa0é'] }}{{ {'a': (1, 2), 2: []} }}
{{ n | tojson | length }}{{ -n | abs }}{{ -x }}{{ +n }}{{ - - n }}{{ not not n }}
{{ l[n] if n < 3 }}{{ l | length > 2 }}{{ 'x' * (n - 5) }}{{ ('a' ~ 'b') | upper }}{{ 'a' ~ 'b' | upper }}
{{ [1, 2, 3,] }}{{ {'a': 1,} }}{{ () }}{{ [] }}{{ {} }}
{{ ns_missing.x if false }}{{ d.b.c is defined }}
{% if x is defined and x > 2 and (d.a is defined and d.a is not string) %}ok{% endif %}
{% set messages = [{'role': 'a'}] + [{'role': 'b'}] %}{{ messages | map(attribute='role') | list }}{% set messages = messages[1:] %}{{ messages | length }}
{{ rows | map(attribute='name') | map('lower') | unique | join(',') }}{{ rows[0]['name'] ~ rows[-1].name }}
{% for r in rows %}{%- if not loop.first %}, {% endif %}{{- r.name -}}{% endfor %}
{% break %}
{{ }}
{% if %}
{% foo %}
{{ 'abc }}
{{ (1, 2 }}
{{ a.b.c( }}
{% for x in l %}
{{ 1 if }}
{% endfor %}
{# never
{{ x | }}
{% include 'x' %}
""".strip("\n").split(
    "\n"
)



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

# Our own templates, one for each way in which published ones are written.
CHATS = {
    "marks": """{{ bos_token }}{% for m in messages %}{% if m['role'] == 'user' %}{{ '<|u|>' + m['content'] + '<|end|>\\n' }}{% elif m['role'] == 'system' %}{{ '<|s|>' + m['content'] + '<|end|>\\n' }}{% else %}{{ '<|a|>' + m['content'] + eos_token + '\\n' }}{% endif %}{% endfor %}{% if add_generation_prompt %}{{ '<|a|>' }}{% endif %}""",
    "trimmed": """{%- for message in messages %}
    {%- if loop.first and message.role == 'system' %}
        {%- set system = message.content | trim %}
    {%- elif message.role == 'user' %}
        {%- set text = message.content | trim -%}
        [Q] {{ text }} [/Q]
    {%- else %}
        {{- ' ' ~ message.content | trim ~ eos_token }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{ ' [A]' }}{% endif -%}
""",
    "alternate": """{% if messages[0]['role'] == 'system' %}{% set loop_messages = messages[1:] %}{% set system_message = messages[0]['content'] %}{% else %}{% set loop_messages = messages %}{% set system_message = false %}{% endif %}{% for message in loop_messages %}{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('Roles must alternate user/assistant') }}{% endif %}{% if loop.index0 == 0 and system_message != false %}{% set content = '<<S>>' + system_message + '<</S>>' + message['content'] %}{% else %}{% set content = message['content'] %}{% endif %}{% if message['role'] == 'user' %}{{ bos_token + '[I] ' + content.strip() + ' [/I]' }}{% else %}{{ ' ' + content.strip() + ' ' + eos_token }}{% endif %}{% endfor %}""",
    "model": """{{ bos_token }}{%- set ns = namespace(prefix='') -%}
{%- for message in messages -%}
  {%- if message['role'] == 'assistant' -%}{%- set role = 'model' -%}
  {%- elif message['role'] == 'system' -%}{%- set ns.prefix = message['content'] + '\\n\\n' -%}{%- continue -%}
  {%- else -%}{%- set role = message['role'] -%}{%- endif -%}
  {{ '<turn>' + role + '\\n' + (ns.prefix if role == 'user' else '') }}
  {%- if message['content'] is string -%}{{ message['content'] | trim }}
  {%- elif message['content'] is iterable -%}
    {%- for item in message['content'] -%}{%- if item['type'] == 'text' -%}{{ item['text'] | trim }}{%- endif -%}{%- endfor -%}
  {%- endif -%}{{ '</turn>\\n' }}{%- if role == 'user' -%}{%- set ns.prefix = '' -%}{%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}{{ '<turn>model\\n' }}{%- endif -%}
""",
    "end": """{% for message in messages %}{% if message['role'] == 'system' and message['content'] %}{{'<|system|>\\n' + message['content'] + '<|end|>\\n'}}{% elif message['role'] == 'user' %}{{'<|user|>\\n' + message['content'] + '<|end|>\\n'}}{% elif message['role'] == 'assistant' %}{{'<|assistant|>\\n' + message['content'] + '<|end|>\\n'}}{% endif %}{% endfor %}{% if add_generation_prompt %}{{ '<|assistant|>\\n' }}{% else %}{{ eos_token }}{% endif %}""",
    "think": """{%- set ns = namespace(multi=true, last=messages|length - 1) %}
{%- for message in messages[::-1] %}
    {%- set index = (messages|length - 1) - loop.index0 %}
    {%- if ns.multi and message.role == "user" and not(message.content.startswith('<tr>') and message.content.endswith('</tr>')) %}
        {%- set ns.multi = false %}
        {%- set ns.last = index %}
    {%- endif %}
{%- endfor %}
{%- for message in messages %}
    {%- if message.role in ["user", "system"] %}
        {{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>' + '\\n' }}
    {%- elif message.role == "assistant" %}
        {%- set content = message.content %}
        {%- set reasoning = '' %}
        {%- if message.reasoning_content is defined and message.reasoning_content is not none %}
            {%- set reasoning = message.reasoning_content %}
        {%- elif '</think>' in message.content %}
            {%- set content = message.content.split('</think>')[-1].lstrip('\\n') %}
            {%- set reasoning = message.content.split('</think>')[0].rstrip('\\n').split('<think>')[-1].lstrip('\\n') %}
        {%- endif %}
        {%- if loop.index0 > ns.last and (loop.last or reasoning) %}
            {{- '<|im_start|>assistant\\n<think>\\n' + reasoning.strip('\\n') + '\\n</think>\\n\\n' + content.lstrip('\\n') }}
        {%- else %}
            {{- '<|im_start|>assistant\\n' + content }}
        {%- endif %}
        {%- if message.tool_calls %}
            {%- for call in message.tool_calls %}
                {%- if (loop.first and content) or (not loop.first) %}{{- '\\n' }}{%- endif %}
                {%- if call.function %}{%- set call = call.function %}{%- endif %}
                {{- '<call>\\n{"name": "' }}{{- call.name }}{{- '", "arguments": ' }}
                {%- if call.arguments is string %}{{- call.arguments }}{%- else %}{{- call.arguments | tojson }}{%- endif %}
                {{- '}\\n</call>' }}
            {%- endfor %}
        {%- endif %}
        {{- '<|im_end|>\\n' }}
    {%- elif message.role == "tool" %}
        {%- if loop.first or (messages[loop.index0 - 1].role != "tool") %}{{- '<|im_start|>user' }}{%- endif %}
        {{- '\\n<tr>\\n' }}{{- message.content }}{{- '\\n</tr>' }}
        {%- if loop.last or (messages[loop.index0 + 1].role != "tool") %}{{- '<|im_end|>\\n' }}{%- endif %}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
    {%- if enable_thinking is defined and enable_thinking is false %}{{- '<think>\\n\\n</think>\\n\\n' }}{%- endif %}
{%- endif %}""",
    "tools": """{{- bos_token }}
{%- if not date_string is defined %}
    {%- if strftime_now is defined %}{%- set date_string = strftime_now("%d %b %Y") %}{%- else %}{%- set date_string = "01 Jan 2024" %}{%- endif %}
{%- endif %}
{%- if messages[0]['role'] == 'system' %}{%- set system = messages[0]['content'] | trim %}{%- set messages = messages[1:] %}{%- else %}{%- set system = "" %}{%- endif %}
{{- "<|h|>system<|/h|>\\n\\n" }}{{- "Today: " + date_string + "\\n\\n" }}
{%- if tools is not none %}
    {{- "You have these functions:\\n\\n" }}
    {%- for t in tools %}{{- t | tojson(indent=4) }}{{- "\\n\\n" }}{%- endfor %}
{%- endif %}
{{- system }}{{- "<|eot|>" }}
{%- for message in messages %}
    {%- if not (message.role == 'ipython' or message.role == 'tool' or 'tool_calls' in message) %}
        {{- '<|h|>' + message['role'] + '<|/h|>\\n\\n' + message['content'] | trim + '<|eot|>' }}
    {%- elif 'tool_calls' in message %}
        {%- if not message.tool_calls | length == 1 %}{{- raise_exception("one call at a time") }}{%- endif %}
        {%- set call = message.tool_calls[0].function %}
        {{- '<|h|>assistant<|/h|>\\n\\n' -}}
        {{- '{"name": "' + call.name + '", ' }}{{- '"parameters": ' }}{{- call.arguments | tojson }}{{- "}" }}{{- "<|eot|>" }}
    {%- else %}
        {{- "<|h|>ipython<|/h|>\\n\\n" }}
        {%- if message.content is mapping or message.content is iterable %}{{- message.content | tojson }}{%- else %}{{- message.content }}{%- endif %}
        {{- "<|eot|>" }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|h|>assistant<|/h|>\\n\\n' }}{%- endif %}
""",
    "types": """{%- macro type_of(p, required) -%}
  {%- if p.type == 'array' -%}{{ type_of(p['items'], required) }}[]
  {%- elif p.type is sequence and p.type is not string -%}{{ p.type | join(' | ') }}
  {%- elif p.enum -%}{{ p.enum | map('tojson') | join(' | ') }}
  {%- elif p.type == 'object' and p.properties -%}{
    {%- for name, v in p.properties.items() -%}{{ name }}{{ '' if name in (p.required or []) else '?' }}: {{ type_of(v, p.required or []) }}{{ ', ' if not loop.last }}{%- endfor -%}}
  {%- else -%}{{ p.type | default('any') }}{%- endif -%}
{%- endmacro -%}
{%- macro list_tools(tools) -%}
namespace functions {
{% for t in tools %}
{%- set f = t.function %}
// {{ f.description | default('') | indent(3) }}
type {{ f.name }} = (_: {{ type_of(f.parameters, []) }}) => any;
{% endfor %}
}
{%- endmacro -%}
{%- if tools -%}{{ '<|sys|>' }}{{ list_tools(tools) }}{{ '<|end|>' }}{%- endif -%}
{%- for m in messages | rejectattr('role', 'equalto', 'system') -%}
{{ '<|' ~ m.role ~ '|>' }}{% generation %}{{ m.content | default('', true) }}{% endgeneration %}{% for c in m.tool_calls | default([]) %}<c>{{ c.function | tojson(separators=(',', ':')) }}</c>{% endfor %}{{ '<|end|>' }}
{%- endfor -%}
{%- if add_generation_prompt -%}<|assistant|>{%- endif -%}
""",
    "last": """{%- set last = (messages | selectattr('role', 'equalto', 'user') | list | last).content -%}
{%- set users = messages | selectattr("role", "equalto", "user") | list -%}
{%- for m in messages -%}
{%- if m.role == 'user' and m == users[-1] and tools -%}[T] {{ tools | map(attribute='function') | list | tojson }} [/T]{%- endif -%}
{{ {'user': '[U]', 'assistant': '[A]', 'system': '[S]', 'tool': '[R]'}[m.role] }} {{ m.content or '' }}
{%- if m.role == 'assistant' -%}{{ eos_token }}{%- endif -%}
{%- endfor -%}
{# the last question: #}{%- if add_generation_prompt -%}[A] {{ last[:3] }}{%- endif -%}
""",
}

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
                    call("call00001", "weather", place="A\"b"),
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


def main():
    here = os.path.dirname(os.path.abspath(__file__))
    out = {
        "made_by": "scripts/golden/jinja.py with jinja2 " + jinja2.__version__,
        "conversations": [{"messages": m, "tools": t} for m, t in CONVERSATIONS],
    }
    if len(sys.argv) == 3:
        folder, path = sys.argv[1:]
        names = [f[:-6] for f in os.listdir(folder) if f.endswith(".jinja")]
        out["chats"] = chats(
            {n: open(os.path.join(folder, n + ".jinja"), newline="").read() for n in names}
        )
        out["snippets"] = []
    else:
        path = os.path.join(here, "..", "..", "tests", "golden", "tokenizer", "jinja.json")
        out["data"] = DATA
        out["chats"] = chats(CHATS)
        out["snippets"] = [[t, render(t, DATA)] for t in SNIPPETS + BLOCKS]
        print(sum(x[1] is None for x in out["snippets"]), "snippets refused of", len(out["snippets"]))
    with open(path, "w") as f:
        json.dump(out, f, ensure_ascii=False, separators=(",", ":"))
        f.write("\n")


main()
