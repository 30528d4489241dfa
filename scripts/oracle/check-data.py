#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""check-data.py [SEED [FILES]] - random data files read by us and by pyarrow, json and csv: Parquet
(types, nesting, nulls, encodings, compressions, page versions, row groups), JSON and JSONL in many
layouts, tables, each packed or not."""

import collections
import csv
import datetime
import decimal
import gzip
import io
import json
import math
import os
import random
import sys
import tempfile

import pyarrow as pa
import pyarrow.parquet as pq
from reader import Reader, Report

WORDS = [
    "",
    "a",
    "é",
    "日本語",
    "👍🏽",
    '"',
    "\\",
    "\n",
    "\r\n",
    "\t",
    "\x01\x7f",
    "\u2028\u0085",
    "null",
    "NaN",
    ",",
    ";",
    "{",
    "]",
    "'",
    "\ufeff",
    "x" * 300,
    " a ",
    "\u200d",
    "\ufffd\uffff",
    "</s>",
]
KEYS = [
    "text",
    "messages",
    "é",
    "a b",
    "",
    "data",
    "role",
    '"q"',
    "content",
    "n",
    "items",
    "list",
    "element",
    "x.y",
]


def word(r):
    return "".join(r.choice(WORDS) for _ in range(r.randrange(4)))


def number(r):
    return r.choice(
        [
            0,
            1,
            -1,
            2**31 - 1,
            -(2**31),
            2**53 + 1,
            2**63 - 1,
            -(2**63),
            r.randrange(-(10**6), 10**6),
        ]
    )


def real(r):
    return r.choice(
        [
            0.0,
            -0.0,
            0.1,
            1e300,
            5e-324,
            1 / 3,
            -2.5,
            1e22,
            123456789.125,
            r.gauss(0, 1),
            1e-7,
            2.0**70,
        ]
    )


def value(r, depth=3):
    k = r.random()
    if depth and k < 0.15:
        return [value(r, depth - 1) for _ in range(r.randrange(4))]
    if depth and k < 0.35:
        return {r.choice(KEYS): value(r, depth - 1) for _ in range(r.randrange(4))}
    return r.choice([None, True, False, number(r), real(r), word(r), word(r), word(r)])


# ---- Parquet

LEAVES = [
    pa.string(),
    pa.string(),
    pa.string(),
    pa.large_string(),
    pa.int64(),
    pa.int32(),
    pa.int16(),
    pa.int8(),
    pa.uint8(),
    pa.uint16(),
    pa.uint32(),
    pa.uint64(),
    pa.float64(),
    pa.float32(),
    pa.bool_(),
    pa.date32(),
    pa.timestamp("us"),
    pa.string_view() if hasattr(pa, "string_view") else pa.string(),
    pa.dictionary(pa.int32(), pa.string()),
    pa.null(),
]
LEFT_OUT = [pa.binary(), pa.decimal128(9, 2), pa.binary(4), pa.float16()]


def kind(r, depth=3):
    k = r.random()
    if depth and k < 0.2:
        return r.choice([pa.list_, pa.large_list])(
            pa.field("item", kind(r, depth - 1), r.random() < 0.8)
        )
    if depth and k < 0.4:
        names = r.sample(KEYS, r.randrange(1, 4))
        return pa.struct([pa.field(n, kind(r, depth - 1), r.random() < 0.8) for n in names])
    if depth and k < 0.42:
        return pa.list_(kind(r, 0), 2)
    return r.choice(LEAVES if r.random() < 0.95 else LEFT_OUT)


def item(r, t, null=True):
    if pa.types.is_null(t) or (null and r.random() < 0.15):
        return None
    if pa.types.is_fixed_size_list(t):
        return [item(r, t.value_type) for _ in range(2)]
    if pa.types.is_list(t) or pa.types.is_large_list(t):
        return [
            item(r, t.value_type, t.value_field.nullable)
            for _ in range(r.choice([0, 0, 1, 2, 3, 9]))
        ]
    if pa.types.is_struct(t):
        return {f.name: item(r, f.type, f.nullable) for f in t}
    if pa.types.is_dictionary(t):
        return r.choice(["user", "assistant", "é", ""])
    if pa.types.is_boolean(t):
        return r.random() < 0.5
    if pa.types.is_unsigned_integer(t):
        return r.choice([0, 1, 2**t.bit_width - 1, r.randrange(2**t.bit_width)])
    if pa.types.is_integer(t):
        return r.choice(
            [0, 1, -1, 2 ** (t.bit_width - 1) - 1, -(2 ** (t.bit_width - 1)), r.randrange(100)]
        )
    if t == pa.float32():
        return r.choice([0.0, 0.1, -2.5, 3e38, math.nan, math.inf])
    if pa.types.is_float16(t):
        return 0.5
    if pa.types.is_floating(t):
        return r.choice([real(r), math.nan, -math.inf])
    if pa.types.is_date(t):
        return datetime.date(2024, 7, 26)
    if pa.types.is_timestamp(t):
        return datetime.datetime(2024, 7, 26, 1, 2, 3, 4)
    if pa.types.is_decimal(t):
        return decimal.Decimal("1.25")
    if pa.types.is_fixed_size_binary(t):
        return b"abcd"
    return word(r).encode() if pa.types.is_binary(t) else word(r)


def shown(v, t):
    """As JSON has it: no raw bytes, days and microseconds as numbers."""
    if v is None:
        return None
    if pa.types.is_struct(t):
        return {f.name: shown(v[f.name], f.type) for f in t if readable(f.type)}
    if hasattr(t, "value_type") and not pa.types.is_dictionary(t):
        return [shown(x, t.value_type) for x in v]
    if isinstance(v, datetime.datetime):
        return int((v - datetime.datetime(1970, 1, 1)) / datetime.timedelta(microseconds=1))
    if isinstance(v, datetime.date):
        return (v - datetime.date(1970, 1, 1)).days
    if isinstance(v, float) and not math.isfinite(v):
        return None
    return v


def readable(t):
    if pa.types.is_struct(t):
        return any(readable(f.type) for f in t)
    if hasattr(t, "value_type") and not pa.types.is_dictionary(t):
        return readable(t.value_type)
    return t not in LEFT_OUT


def parquet(r, path):
    schema = pa.schema(
        [pa.field(n, kind(r), r.random() < 0.8) for n in r.sample(KEYS, r.randrange(1, 5))]
    )
    n = r.choice([1, 2, 7, 50, 300])
    few = [
        {f.name: item(r, f.type, f.nullable) for f in schema} for _ in range(r.choice([1, 3, n]))
    ]
    rows = [r.choice(few) for _ in range(n)]
    table = pa.Table.from_pylist(rows, schema)
    options = dict(
        compression=r.choice(["snappy", "gzip", "zstd", "none"]),
        data_page_version=r.choice(["1.0", "2.0"]),
        data_page_size=r.choice([1, 100, 1000, 1 << 20]),
        row_group_size=r.choice([1, 3, 100, 1000]),
        version=r.choice(["1.0", "2.4", "2.6"]),
        write_statistics=r.random() < 0.5,
        write_page_index=r.random() < 0.3,
        write_page_checksum=r.random() < 0.3,
        store_schema=r.random() < 0.7,
        use_compliant_nested_type=r.random() < 0.7,
        dictionary_pagesize_limit=r.choice([1, 100, 1 << 20]),
        use_dictionary=r.random() < 0.6,
    )
    if not options["use_dictionary"] and r.random() < 0.8:
        flat = {f.name: f.type for f in schema if not pa.types.is_nested(f.type)}
        pick = {}
        for name, t in flat.items():
            if pa.types.is_string(t) or pa.types.is_large_string(t):
                pick[name] = r.choice(["PLAIN", "DELTA_LENGTH_BYTE_ARRAY", "DELTA_BYTE_ARRAY"])
            elif pa.types.is_integer(t):
                pick[name] = r.choice(["PLAIN", "DELTA_BINARY_PACKED"])
            elif pa.types.is_boolean(t):
                pick[name] = r.choice(["PLAIN", "RLE"])
        if pick:
            options["column_encoding"] = pick
    if "." in "".join(schema.names):
        options.pop("column_encoding", None)
    pq.write_table(table, path, **options)
    back = pq.read_table(path).to_pylist()
    if len(back) != n:
        raise ValueError("pyarrow reads other rows than it wrote")
    return [
        {f.name: shown(row[f.name], f.type) for f in schema if readable(f.type)} for row in back
    ], (schema, options)


# ---- JSON and tables


def squeeze(r):
    return dict(
        ensure_ascii=r.random() < 0.4, separators=r.choice([None, (",", ":"), (" ,\t", " : ")])
    )


def json_text(r):
    rows = [
        {r.choice(KEYS): value(r) for _ in range(r.randrange(1, 5))}
        for _ in range(r.choice([1, 2, 9, 60]))
    ]
    end, form = r.choice(["\n", "\r\n"]), r.random()
    if form < 0.5:
        lines = [json.dumps(x, **squeeze(r)) for x in rows]
        text = end.join(x + r.choice(["", " ", end]) for x in lines) + r.choice(
            ["", end, end + end + " "]
        )
    else:
        style = {**squeeze(r), "indent": r.choice([None, 0, 2, "\t"])}
        if form < 0.8:
            text = json.dumps(rows, **style)
        else:
            doc = {
                **r.choice([{}, {"version": "1", "meta": {"data": [1]}}]),
                "data": rows,
                **r.choice([{}, {"end": [{"}": "]"}]}]),
            }
            text = json.dumps(doc, **style)
        text = r.choice(["", "\n", " "]) + text + r.choice(["", "\n"])
    return rows, text


def table(r, ending):
    names = r.sample(KEYS, r.randrange(2, 6))
    rows = [{k: word(r) for k in names} for _ in range(r.choice([1, 2, 30]))]
    f = io.StringIO(newline="")
    w = csv.DictWriter(
        f,
        names,
        delimiter="\t" if ending == ".tsv" else ",",
        lineterminator=r.choice(["\n", "\r\n"]),
        quoting=r.choice([csv.QUOTE_MINIMAL, csv.QUOTE_ALL]),
    )
    w.writeheader()
    w.writerows(rows)
    text = f.getvalue()
    back = list(
        csv.DictReader(io.StringIO(text, newline=""), delimiter="\t" if ending == ".tsv" else ",")
    )
    return back, text


def same(a, b):
    if isinstance(a, list):
        return isinstance(b, list) and len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, dict):
        return isinstance(b, dict) and list(a) == list(b) and all(same(a[k], b[k]) for k in a)
    if isinstance(a, int) and not isinstance(a, bool) and a >= 2**63:
        a = float(a)
    return a == b and type(a) is type(b)


def pack(r, data, path):
    k = r.random()
    if k < 0.15:
        cut = r.randrange(len(data) + 1)  # members one behind the other
        return gzip.compress(data[:cut]) + gzip.compress(data[cut:]), path + r.choice([".gz", ""])
    if k < 0.3:
        c = pa.Codec("zstd")
        return c.compress(data, asbytes=True), path + r.choice([".zst", ""])
    return data, path


def main():
    seed, files = int((sys.argv[1:] + ["1"])[0]), int((sys.argv[2:] + ["2000"])[0])
    reader, report = Reader(), Report(int(os.environ.get("MOST", 20)))
    skipped = collections.Counter()
    with tempfile.TemporaryDirectory() as d:
        for n in range(files):
            r = random.Random(f"{seed} {n}")
            which = r.random()
            if which < 0.5:
                path = os.path.join(d, "x.parquet")
                try:
                    want, note = parquet(r, path)
                except (
                    pa.ArrowException,
                    NotImplementedError,
                    ValueError,
                    TypeError,
                    OverflowError,
                ) as e:
                    skipped[str(e)[:60]] += 1
                    continue
            else:
                ending = (
                    r.choice([".json", ".jsonl", ".json"])
                    if which < 0.8
                    else r.choice([".csv", ".tsv"])
                )
                want, text = json_text(r) if which < 0.8 else table(r, ending)
                data, path = pack(
                    r,
                    r.choice([b"", b"", b"\xef\xbb\xbf"]) + text.encode(),
                    os.path.join(d, "x" + ending),
                )
                open(path, "wb").write(data)
                note = text[:1500]
            got = reader.ask("records", path=path)
            out = got.get("out")
            if out is not None and len(out) == len(want):
                bad = [i for i, (a, b) in enumerate(zip(want, out)) if not same(a, b)]
                report.case(
                    not bad,
                    f"--- {seed} {n} row {bad[:1]}",
                    *(
                        ("want " + repr(want[bad[0]]), "got  " + repr(out[bad[0]]), repr(note))
                        if bad
                        else ()
                    ),
                )
            else:
                report.case(
                    False,
                    f"--- {seed} {n}: {len(want)} rows, {got.get('error') or len(out)}",
                    repr(note)[:1200],
                )
            os.remove(path)
    print(dict(skipped))
    report.end()


main()
