#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""check-tokenizers.py [SEED [TOKENIZERS [TEXTS]]] - random tokenizer.json files (kinds, patterns,
normalizers, flags of added tokens, decoders) and random texts in our tokenizer and in `tokenizers`:
ids with and without special tokens, and the decoded text. What we refuse is listed by message."""

import collections
import copy
import json
import random
import sys

from reader import Reader, Report
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
UP, LOW = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
END = r"| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
TEKKEN = rf"[^\r\n\p{{L}}\p{{N}}]?{UP}*{LOW}+|[^\r\n\p{{L}}\p{{N}}]?{UP}+{LOW}*|\p{{N}}" + END
CON = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
O200K = (
    rf"[^\r\n\p{{L}}\p{{N}}]?{UP}*{LOW}+{CON}|[^\r\n\p{{L}}\p{{N}}]?{UP}+{LOW}*{CON}|\p{{N}}{{1,3}}"
    + END
)
PATTERNS = [
    [GPT2],
    [LLAMA3],
    [LLAMA3.replace("{1,3}", "")],
    [TEKKEN],
    [O200K],
    [
        r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}{1,3}"
        r"| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+"
    ],
    [
        r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+"
        r"| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$|\s*[\r\n]|\s+(?!\S)|\s"
    ],
    [
        LLAMA3.replace(r"\p{L}+", r"[\p{L}\p{M}]+")
        .replace(r"[^\s\p{L}\p{N}]", r"[^\s\p{L}\p{M}\p{N}]")
        .replace("{1,3}", "")
    ],
    [
        r"\p{N}{1,3}",
        "[一-龥぀-ゟ゠-ヿ]+",
        r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"""
        r"""| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+""",
    ],
    [r"[\r\n]", r"\s?[A-Za-zµÀ-ÖØ-öø-ƺ]+", r"\s?[!-/:-~！-／：-～‘-‟　-。]+", r"\s+$", r"\p{N}+"],
    [r"(?:\r?\n)+(?!\r?\n)", LLAMA3],
    [r"(?i)it's|\w+|\W", GPT2],
    [r"\d{1,3}(?=(?:\d{3})*\b)", LLAMA3],
    [r"[^\S\r\n]+|[\w]+|[^\w\s]"],
    [r"\p{Han}+|\p{Hiragana}+|\p{Latin}+|[[:alpha:]]+|[[:punct:]]|."],
    [r"\p{P}+|\h+|\S"],
    [r" ?\X"],
    [r"\A.|\z|^x|$"],
    [r"\bthe\b|\B'"],
    [r"[0-9]+"],
    [r"\s*[\r\n]+|\p{Zs}+|\p{Cc}|\p{Emoji}"],
    [r"(?<=[a-z])(?=[A-Z])"],
    [r"(\p{Lu}\p{Ll}+|\p{Lu}+(?!\p{Ll}))|[^\p{Lu}]+"],
]
SAMPLES = """Hello, World!|the quick brown fox|They'LL we've I'M it'S|  leading|trailing  |\
a\tb\n\n\nc\r\n \r\n d|1234567 12.5 ٣٤٥ ½ Ⅷ ²|日本語テキスト 漢字|한국어 텍스트|\

é|\
e\u0301|\u1e9b\u0323|ﬁ ﬀ ſ K Å|ǅ ß İ ı|👩‍👩‍👧‍👦|🏳️‍🌈 1️⃣|क़ ज़|\u00a0\u2003\u3000|\
\u200b\u200d\u2060\ufeff|\u0085\u2028\u2029|x_y __init__|camelCaseWordsHTTP|<|im_start|\
> <s> </s>|\

[INST] «»|\
mixed Привет мир|Ωμέγα ΣΑΣ|שלום|العربية ـٰ|\U0001d54f\U00020000|\x00\x01\x1f\x7f|ᄒ\u1161ᆫ 한|\
▁ ▁▁x|Ġ ĠĊ|don''t 'S 'LL 'Re|f(x)=y**2;//c\n\t\treturn|$100,000.00%|-- --- ...!!|\
http://a.b/c?d=e&f|\ud7ff\ue000\uffff\U0010ffff|ᠮᠣ\u180e|ไทย ລາວ|\u0345\u0301a|ŉ ŀ ㎏ ①""".split(
    "|"
)
FLAGS = ["lstrip", "rstrip", "single_word", "normalized", "special"]


def text(r):
    out = []
    for _ in range(r.randrange(1, 9)):
        k = r.random()
        if k < 0.65:
            out.append(r.choice(SAMPLES))
        elif k < 0.75:
            out.append(r.choice(ADDED))
        elif k < 0.85:
            out.append(r.choice([" ", "  ", "\n", "\t", "\r\n", "   "]))
        else:
            block = r.choice(
                [
                    0x20,
                    0x80,
                    0x300,
                    0x600,
                    0x900,
                    0x1100,
                    0x1E00,
                    0x2000,
                    0x3000,
                    0xAC00,
                    0xF900,
                    0xFE00,
                    0x1F300,
                    0x1D400,
                    0x10000,
                    0xE0000,
                ]
            )
            out.append("".join(chr(block + r.randrange(256)) for _ in range(r.randrange(1, 4))))
        out.append(r.choice(["", "", " ", "\n"]))
    return "".join(out)


ADDED = [
    "<s>",
    "</s>",
    "<|im_start|>",
    "<|im_end|>",
    "<|im",
    "user",
    "  ",
    "   ",
    "\n\n",
    "é",
    "e\u0301",
    "[INST]",
    "<mask>",
    "ing",
    "▁▁",
    "ab c",
    "<0x0A>",
    "\t",
    "A",
    "<unk>",
    "ﬁ",
]


def base(kind, size, seed):
    r = random.Random(seed)
    corpus = [" ".join(r.choice(SAMPLES) for _ in range(30)).replace("\0", "") for _ in range(60)]
    if kind == "bytebpe":
        t = Tokenizer(models.BPE())
        t.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        t.decoder = decoders.ByteLevel()
        alphabet = pre_tokenizers.ByteLevel.alphabet()
        trainer = trainers.BpeTrainer(
            vocab_size=size,
            initial_alphabet=alphabet if seed % 3 else alphabet[9:],
            show_progress=False,
        )
    else:
        t = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=True))
        t.pre_tokenizer = pre_tokenizers.Metaspace(split=seed % 2 == 0)
        special = ["<unk>", "<s>", "</s>"] + ["<0x%02X>" % i for i in range(256)]
        trainer = trainers.BpeTrainer(
            vocab_size=size,
            special_tokens=special,
            show_progress=False,
            limit_alphabet=60 + 40 * (seed % 3),
        )
    t.train_from_iterator(corpus, trainer)
    doc = json.loads(t.to_str())
    doc["added_tokens"] = []
    return doc


def normalizer(r, spm):
    forms = [{"type": k} for k in ("NFC", "NFD", "NFKC", "NFKD")]
    mark = [{"type": "Replace", "pattern": {"String": " "}, "content": "▁"}]
    if spm and r.random() < 0.5:
        return r.choice(
            [
                mark[0],
                {"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": "▁"}] + mark},
                {"type": "Sequence", "normalizers": mark},
            ]
        )
    some = forms + [
        {
            "type": "Replace",
            "pattern": {"String": r.choice(["b", "  ", "``", "É"])},
            "content": r.choice(["", "b", '"']),
        }
    ]
    some += [
        {"type": "Lowercase"},
        {"type": "Strip", "strip_left": True, "strip_right": r.random() < 0.5},
        {"type": "StripAccents"},
        {"type": "Nmt"},
    ] * (r.random() < 0.1)
    some += [{"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": " "}] * (
        r.random() < 0.2
    )
    return r.choice(
        [None, None, r.choice(some), {"type": "Sequence", "normalizers": r.sample(some, 2)}]
    )


def pretokenizer(r, spm):
    if spm:
        meta = {
            "type": "Metaspace",
            "replacement": "▁",
            "prepend_scheme": r.choice(["always", "first", "never"]),
            "split": r.random() < 0.5,
        }
        gemma = {
            "type": "Split",
            "pattern": {"String": " "},
            "behavior": "MergedWithPrevious",
            "invert": False,
        }
        return r.choice([None, meta, meta, gemma])
    steps = []
    behavior = lambda: r.choice(
        ["Isolated"] * 8 + ["Removed", "MergedWithPrevious", "MergedWithNext", "Contiguous"]
    )
    for p in r.choice(PATTERNS + [[]] * 6):
        steps.append(
            {
                "type": "Split",
                "pattern": {"Regex": p},
                "behavior": behavior(),
                "invert": r.random() < 0.1,
            }
        )
    if r.random() < 0.2:
        steps.insert(0, {"type": "Digits", "individual_digits": r.random() < 0.5})
    if r.random() < 0.1:
        steps.insert(
            0,
            {
                "type": "Split",
                "pattern": {"String": r.choice([" ", "a", "\n", "."])},
                "behavior": behavior(),
                "invert": r.random() < 0.2,
            },
        )
    if r.random() < 0.08:
        steps.insert(
            0,
            r.choice(
                [
                    {"type": "Punctuation", "behavior": behavior()},
                    {"type": "Whitespace"},
                    {"type": "WhitespaceSplit"},
                ]
            ),
        )
    steps.append(
        {
            "type": "ByteLevel",
            "add_prefix_space": r.random() < 0.2,
            "trim_offsets": True,
            "use_regex": not steps or r.random() < 0.15,
        }
    )
    if r.random() < 0.03:
        steps.append({"type": "Digits", "individual_digits": True})
    return steps[0] if len(steps) == 1 else {"type": "Sequence", "pretokenizers": steps}


def random_doc(r, bases):
    kind, doc = r.choice(bases)
    doc, spm = copy.deepcopy(doc), kind == "spm"
    doc["normalizer"], doc["pre_tokenizer"] = normalizer(r, spm), pretokenizer(r, spm)
    ids = len(doc["model"]["vocab"])
    for name in r.sample(ADDED[:9] + ADDED[10:], r.randrange(8)):
        flags = {f: r.random() < 0.35 for f in FLAGS}
        flags["special"] &= len(name) > 1  # text never becomes a special token here
        if r.random() < 0.5:
            flags["normalized"] = not flags["special"]
        if name.isspace() or "strip" in str(doc["added_tokens"]):  # `tokenizers` finds such tokens
            flags["lstrip"] = flags["rstrip"] = False  # again in white space that another one took
        new = doc["model"]["vocab"].get(name)
        doc["added_tokens"].append({"id": ids if new is None else new, "content": name, **flags})
        ids += new is None
    doc["added_tokens"].sort(key=lambda a: a["id"])
    m = doc["model"]
    m["ignore_merges"] = r.random() < 0.3
    if spm:
        m["fuse_unk"], m["byte_fallback"] = r.random() < 0.7, r.random() < 0.8
        tail = r.choice([[], [{"type": "Strip", "content": " ", "start": 1, "stop": 0}]])
        seq = [
            {"type": "Replace", "pattern": {"String": "▁"}, "content": " "},
            {"type": "ByteFallback"},
            {"type": "Fuse"},
        ]
        doc["decoder"] = {"type": "Sequence", "decoders": seq + tail}
        p = doc["pre_tokenizer"]
        if p and p["type"] == "Metaspace" and r.random() < 0.4:
            doc["decoder"] = {k: p[k] for k in ("type", "replacement", "prepend_scheme", "split")}
    first = next(iter(m["vocab"]))
    if r.random() < 0.5:
        one = lambda t: {"SpecialToken": {"id": t, "type_id": 0}}
        single = (
            [one(first)] * r.randrange(2)
            + [{"Sequence": {"id": "A", "type_id": 0}}]
            + [one(first)] * r.randrange(2)
        )
        doc["post_processor"] = {
            "type": "TemplateProcessing",
            "single": single,
            "pair": single + [{"Sequence": {"id": "B", "type_id": 1}}],
            "special_tokens": {first: {"id": first, "ids": [m["vocab"][first]], "tokens": [first]}},
        }
    else:
        doc["post_processor"] = r.choice(
            [
                None,
                {
                    "type": "ByteLevel",
                    "add_prefix_space": True,
                    "trim_offsets": False,
                    "use_regex": True,
                },
            ]
        )
    return doc


def main():
    seed, docs, texts = (int(x) for x in (sys.argv[1:] + ["1", "400", "40"][len(sys.argv) - 1 :]))
    reader, report, refused = Reader(), Report(), collections.Counter()
    bases = [(k, base(k, s, seed + s)) for k in ("bytebpe", "spm") for s in (400, 700, 1100)]
    for d in range(docs):
        r = random.Random(f"{seed} {d}")
        doc = random_doc(r, bases)
        try:
            theirs = Tokenizer.from_str(json.dumps(doc))
        except Exception as e:
            print(d, "tokenizers refuses:", str(e)[:100])
            continue
        got = reader.ask("tokenizer", doc=doc)
        if "error" in got:
            refused[got["error"][:110]] += 1
            continue
        for n in range(texts):
            t, parse, add, skip = text(r), r.random() < 0.7, r.random() < 0.3, r.random() < 0.5
            theirs.encode_special_tokens = not parse
            try:
                want = theirs.encode(t, add_special_tokens=add).ids
            except BaseException:  # it panics where one token strips the next
                continue
            got = reader.ask("encode", text=t, parse=parse, add=add, skip=skip)
            ids = got.get("out", {}).get("ids")
            if not report.case(
                ids == want,
                f"--- {seed} {d} ids of {t!r} parse {parse}",
                f"want {[theirs.id_to_token(i) for i in want]}",
                f"got  {[theirs.id_to_token(i) for i in ids] if ids is not None else got}",
                {
                    k: doc[k]
                    for k in ("normalizer", "pre_tokenizer", "added_tokens", "post_processor")
                },
                {k: v for k, v in doc["model"].items() if k not in ("vocab", "merges")},
            ):
                break
            back, ours = theirs.decode(want, skip_special_tokens=skip), got["out"]["text"]
            ours = ours if isinstance(ours, str) else bytes(ours).decode(errors="replace")
            if "\ufffd" not in ours and not report.case(
                ours == back,
                f"--- {seed} {d} text of {want} skip {skip}",
                f"want {back!r}",
                f"got  {ours!r}",
                f"{[theirs.id_to_token(i) for i in want]}",
                doc["decoder"],
                doc["added_tokens"],
            ):
                break
    for what, n in refused.most_common():
        print(f"refused {n}: {what}")
    report.end()


main()
