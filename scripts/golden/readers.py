#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes tests/golden/readers/: small Parquet files of pyarrow in every codec, version and encoding
that src/data/parquet.h reads, a table, packed JSONL, and beside each what Python reads from it
(NAME.want, a JSON object a line). Needs pyarrow (and its zstd).

    readers.py          all
    readers.py numbers  numbers.parquet only
    readers.py tools    tools*.parquet only: conversations with tools and calls, and beside each the
                        same records as JSONL, where a turn has no key that it does not need"""

import csv, gzip, json, os, sys
import pyarrow as pa
import pyarrow.parquet as pq

OUT = os.path.join(
    os.path.dirname(os.path.abspath(__file__)), "..", "..", "tests", "golden", "readers"
)
TEXTS = ["", "a", "Grüße 👍🏽", 'quote " and \\ and \n', "the same", "the same", "x" * 300]


def write(name, rows):
    with open(os.path.join(OUT, name + ".want"), "w") as f:
        for r in rows:
            f.write(json.dumps(r, ensure_ascii=False) + "\n")


def flat(n):
    return pa.table(
        {
            "instruction": pa.array([TEXTS[i % 7] + str(i // 7) for i in range(n)]),
            "output": pa.array([None if i % 5 == 0 else TEXTS[-i % 7] for i in range(n)]),
            "i32": pa.array([i * i - 7 for i in range(n)], pa.int32()),
            "i64": pa.array([(1 << 40) * (i - 3) for i in range(n)], pa.int64()),
            "f32": pa.array([None if i % 4 == 1 else i / 8 for i in range(n)], pa.float32()),
            "f64": pa.array([i / 7 for i in range(n)], pa.float64()),
            "yes": pa.array([None if i % 11 == 3 else i % 3 == 0 for i in range(n)]),
        }
    )


def nested(n):
    turn = pa.struct([("role", pa.string()), ("content", pa.string())])
    rows = []
    for i in range(n):
        turns = [
            {"role": ["user", "assistant"][k % 2], "content": TEXTS[(i + k) % 7] or None}
            for k in range(i % 4)
        ]
        if i % 6 == 5:
            turns = None
        rows.append(
            {
                "messages": turns,
                "tags": [["a", None], [], None, ["b"]][i % 4],
                "meta": None if i % 3 == 1 else {"id": i, "of": {"x": [i, i + 1][: i % 3]}},
                "deep": [[1, 2], [], None, [i]] if i % 2 else [],
            }
        )
    meta = pa.struct([("id", pa.int64()), ("of", pa.struct([("x", pa.list_(pa.int64()))]))])
    schema = pa.schema(
        [
            ("messages", pa.list_(turn)),
            ("tags", pa.list_(pa.string())),
            ("meta", meta),
            ("deep", pa.list_(pa.list_(pa.int64()))),
        ]
    )
    return pa.Table.from_pylist(rows, schema=schema)


def parquet(name, table, **options):
    path = os.path.join(OUT, name + ".parquet")
    pq.write_table(table, path, **options)
    write(name + ".parquet", pq.read_table(path).to_pylist())


def tool(name, about):
    properties = {"place": {"type": "string", "description": "a city, ü"}}
    parameters = {"type": "object", "properties": properties, "required": ["place"]}
    function = {"name": name, "description": about, "parameters": parameters}
    return {"type": "function", "function": function}


def call(i, name, place):
    return {"id": f"call{i:05}", "type": "function", "function": {"name": name, "arguments": place}}


def talks(text):
    """`text`: tools and the arguments of calls are JSON texts, as many published sets have them."""
    pack = lambda v: json.dumps(v, ensure_ascii=False) if text else v
    tools = [tool("weather", "The weather of a place."), tool("time", 'What "now" is there.')]
    rows = []
    for i in range(12):
        place = ["Köln", 'A "b"', "日本"][i % 3]
        turns = [{"role": "system", "content": "Be short."}] if i % 2 else []
        turns.append({"role": "user", "content": f"How is it in {place}?"})
        if i % 4 != 3:
            calls = [call(i, "weather", pack({"place": place}))]
            if i % 4 == 1:
                calls.append(call(i + 50, "time", pack({"place": place})))
            turns.append({"role": "assistant", "content": "", "tool_calls": calls})
            for c in calls:
                told = {"role": "tool", "content": '{"t": 21.5}', "name": c["function"]["name"]}
                turns.append({**told, "tool_call_id": c["id"]})
        turns.append({"role": "assistant", "content": f"21.5 °C in {place}"})
        record = {"messages": turns}
        if i % 4 != 3:
            record["tools"] = pack(tools)
        rows.append(record)
    return rows


def tools_files():
    """In a column of structs a turn without a key has null there."""
    for name, text in (("tools-text", True), ("tools-nested", False)):
        rows = talks(text)
        table = pa.Table.from_pylist(rows)
        pq.write_table(table, os.path.join(OUT, name + ".parquet"), row_group_size=5)
        write(name + ".parquet", table.to_pylist())
        with open(os.path.join(OUT, name + ".jsonl"), "w") as f:
            f.writelines(json.dumps(r, ensure_ascii=False) + "\n" for r in rows)


def numbers():
    """Whole floats stay floats, numbers without a sign are not negative."""
    kinds = [pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64(), pa.int8()]
    data = {str(k): pa.array([0, 2 ** (k.bit_width - 1) - 1, 7], k) for k in kinds}
    data["most"] = pa.array([2**32 - 1, 0, 2**31], pa.uint32())
    data["f32"] = pa.array([1.0, -0.0, 0.1], pa.float32())
    data["f64"] = pa.array([1.0, -3.0, 1e22], pa.float64())
    parquet("numbers", pa.table(data))


def main():
    os.makedirs(OUT, exist_ok=True)
    if sys.argv[1:] == ["numbers"]:
        return numbers()
    numbers()
    tools_files()
    if sys.argv[1:] == ["tools"]:
        return
    t = flat(60)
    parquet("plain", t, compression="none", use_dictionary=False)
    parquet("snappy", t, compression="snappy", row_group_size=25)
    parquet("gzip-v2", t, compression="gzip", data_page_version="2.0", row_group_size=40)
    parquet("zstd", t, compression="zstd", data_page_size=200)
    parquet("zstd-v2", t, compression="zstd", data_page_version="2.0", data_page_size=150)
    parquet(
        "delta",
        flat(300).select(["instruction", "output", "i32", "i64"]),
        compression="zstd",
        use_dictionary=False,
        column_encoding={
            "instruction": "DELTA_BYTE_ARRAY",
            "output": "DELTA_LENGTH_BYTE_ARRAY",
            "i32": "DELTA_BINARY_PACKED",
            "i64": "DELTA_BINARY_PACKED",
        },
    )
    parquet("nested", nested(40), compression="snappy", row_group_size=17)
    parquet("nested-v2", nested(40), compression="none", data_page_version="2.0")
    parquet("empty", flat(0))
    parquet("long", pa.table({"text": [f"row {i % 97}" for i in range(3000)]}))
    # columns that are left out
    other = pa.table(
        {
            "text": ["a", "b"],
            "raw": pa.array([b"\xff", b"x"]),
            "price": pa.array([1, 2], pa.decimal128(5, 2)),
        }
    )
    path = os.path.join(OUT, "other.parquet")
    pq.write_table(other, path)
    write("other.parquet", [{"text": "a"}, {"text": "b"}])

    rows = [
        {"instruction": "plain", "output": "1"},
        {"instruction": 'with "quotes", commas', "output": "two\nlines\r\nhere"},
        {"instruction": "", "output": " spaces "},
        {"instruction": "ü👍", "output": "last"},
    ]
    for name, kind in (("table.csv", "excel"), ("table.tsv", "excel-tab")):
        with open(os.path.join(OUT, name), "w", newline="") as f:
            w = csv.DictWriter(f, ["instruction", "output"], dialect=kind)
            w.writeheader()
            w.writerows(rows)
        write(name, rows)
    lines = "".join(json.dumps({"text": f"line {i}"}) + "\n" for i in range(500)).encode()
    half = len(lines) // 2
    with open(os.path.join(OUT, "lines.jsonl.gz"), "wb") as f:
        f.write(gzip.compress(lines[:half], mtime=0) + gzip.compress(lines[half:], mtime=0))
    with open(os.path.join(OUT, "lines.jsonl.zst"), "wb") as f:
        for part in (lines[:half], lines[half:]):
            f.write(pa.Codec("zstd").compress(part, asbytes=True))
    for name in ("lines.jsonl.gz", "lines.jsonl.zst"):
        write(name, [json.loads(x) for x in lines.splitlines()])


main()
