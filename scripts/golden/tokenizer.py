#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Golden files for tests/test_data_tokenizer.c and tests/test_data_chat.c, in
tests/golden/tokenizer/.

Small tokenizers trained here, one for each published configuration (normaliser, pre-tokenizer,
post-processor, decoder), and what Hugging Face's `tokenizers` and `sentencepiece` make of about
1,100 lines in many scripts. Everything is seeded: the same versions give the same files.

  lines.json       the lines
  NAME.json        a tokenizer.json (for spm_gguf: the KV pairs of a GGUF)
  NAME.ids         a line each: ids | ids without recognising special tokens, where they differ. An
                   id is two characters of base 64.
  NAME.text.json   {"index": text} where decoding the ids does not give the line back
"""

import collections, json, os, random, sys, unicodedata
import tokenizers
from tokenizers import (
    Tokenizer,
    models,
    normalizers,
    pre_tokenizers,
    processors,
    decoders,
    trainers,
    AddedToken,
    Regex,
)

HERE = os.path.dirname(os.path.abspath(__file__))
OUT = os.path.join(HERE, "..", "..", "tests", "golden", "tokenizer")
DIGITS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"

SENTENCES = {
    "latin": (
        """The quick brown fox jumps over the lazy dog, didn't it? We'll see what they've done; I'm sure you'd agree.
It's 3.14159 o'clock and SHE'S NOT HERE: they'Ll be late, WE'VE waited since 1999-12-31T23:59:60Z.
Voilà, l'été déjà passé à Besançon, où l'œuvre naïve côtoie le maïs; ça coûte 12,50 € — très cher!
Größe und Maß: Übermäßig süße Äpfel aus Österreich kosten 7 Euro je Stück, sagte der Fußgänger.
El niño comió piñas en Cádiz mañana por la noche; ¿cuánto costó? ¡Nada! Dijo que sí, que volvería.
Příliš žluťoučký kůň úpěl ďábelské ódy, řekl pan Novák z Ústí nad Labem v pátek ráno.
Zażółć gęślą jaźń, powiedział Łukasz w Łodzi, a potem poszedł do domu przez most.
Şişli'de ışıklar söndü, ığdır İstanbul'a uzak; çay içmek güzeldir diyorlar.
Tôi nói tiếng Việt không được tốt lắm, nhưng Nguyễn Văn Ánh thì giỏi hơn nhiều.
Á á ế ä̈ Å ñ fi ﬁ ﬀ ſ K Å ½ ² ₃ ™ ① Ⅷ ㎏"""
    ),
    "cyrillic": (
        """Съешь же ещё этих мягких французских булок, да выпей чаю, сказал Пётр Иванович.
Жебракують філософи при ґанку церкви в Гадячі, ще й шатро їхнє п'яне знаємо.
Ђаче, уштеду плаћај жаљењем због џиновских цифара, рекао је Љубомир.
В 1961 году человек впервые полетел в космос; это заняло 108 минут."""
    ),
    "greek": (
        """Ξεσκεπάζω την ψυχοφθόρα βδελυγμία, είπε ο Γιώργος στην Αθήνα το πρωί.
Ἐν ἀρχῇ ἦν ὁ λόγος, καὶ ὁ λόγος ἦν πρὸς τὸν θεόν, καὶ θεὸς ἦν ὁ λόγος."""
    ),
    "arabic": (
        """نص حكيم له سر قاطع وذو شأن عظيم مكتوب على ثوب أخضر ومغلف بجلد أزرق.
بِسْمِ ٱللَّهِ ٱلرَّحْمَٰنِ ٱلرَّحِيمِ، السعر ١٢٣٤٫٥٠ ريال و٪٧ خصم؟
این یک جملهٔ فارسی است که می‌خواهم آن را آزمایش کنم، ۱۲۳ نفر آمدند."""
    ),
    "hebrew": (
        """דג סקרן שט בים מאוכזב ולפתע מצא חברה, אמר אבי בשנת 2024.
בְּרֵאשִׁית בָּרָא אֱלֹהִים אֵת הַשָּׁמַיִם וְאֵת הָאָרֶץ."""
    ),
    "devanagari": (
        """ऋषियों को सताने वाले दुष्ट राक्षसों के राजा रावण का सर्वनाश करने वाले विष्णुवतार भगवान श्रीराम।
मेरे पास १२३ किताबें हैं और क़लम भी; ज़रूर आइए, फ़ोन कीजिए।"""
    ),
    "indic": (
        """আমার সোনার বাংলা, আমি তোমায় ভালোবাসি। চিরদিন তোমার আকাশ।
தமிழ் மொழி மிகவும் பழமையான மொழி, கொடுத்தது யார் என்று கேட்டான்.
తెలుగు భాష చాలా మధురమైనది అని అందరూ అంటారు."""
    ),
    "thai": (
        """เป็นมนุษย์สุดประเสริฐเลิศคุณค่า กว่าบรรดาฝูงสัตว์เดรัจฉาน ราคา ๑๒๓ บาท
ສະບາຍດີ ຂ້ອຍຊື່ ກີ່ ແລະ ຂ້ອຍມາຈາກວຽງຈັນ"""
    ),
    "chinese": (
        """天地玄黃，宇宙洪荒。日月盈昃，辰宿列張。寒來暑往，秋收冬藏。
我在2024年学习了机器学习和深度学习，花了一万二千元。“好吗？”他问道：《红楼梦》怎么样？
𠮷野家的𡃁仔食𩷶魚，㐂㒵㝵。 豈 更 車"""
    ),
    "japanese": (
        """いろはにほへと ちりぬるを わかよたれそ つねならむ、うゐのおくやま。
東京タワーの高さは333メートルです。ガギグ と ガギグ はちがう？ｶﾀｶﾅ　全角スペース。"""
    ),
    "korean": (
        """키스의 고유조건은 입술끼리 만나야 하고 특별한 기술은 필요치 않다.
한국어 한국어 텍스트를 2024년에 토큰화합니다. ㅋㅋㅋ ㅠㅠ"""
    ),
    "other": (
        """ქართული ენა არის ძალიან ლამაზი; Հայերէն լեզու է հին: ኢትዮጵያ ታላቅ ሀገር ናት።
ᠮᠣᠩᠭᠣᠯ ᠪᠢᠴᠢᠭ ᚠᛇᚻ᛫ᛒᛦᚦ ᏣᎳᎩ ⵜⴰⵎⴰⵣⵉⵖⵜ ⠓⠑⠇⠇⠕ 𝔘𝔫𝔦𝔠𝔬𝔡𝔢 𝟙𝟚𝟛 𐍈𐌰𐌹"""
    ),
    "emoji": (
        """😀😃😄 👨‍👩‍👧‍👦 family 👩🏽‍💻 coding 🏳️‍🌈 🇩🇪🇫🇷🇯🇵 ❤️ ♥ 👍🏿👍 1️⃣2️⃣ ☎︎ ✌🏻
Party 🎉🎊!! Let's go🚀🚀🚀...🤔? \U0001fae0\U0001f979 ok ¯\\_(ツ)_/¯ (╯°□°)╯︵ ┻━┻"""
    ),
    "code": (
        """def f(x, *args, **kw):\n\treturn {k: v**2 for k, v in kw.items()}  # comment
for (int i = 0; i < n; ++i) { a[i] += b[i]->c * 0xFF; } /* ok */
SELECT * FROM users WHERE name LIKE '%o''brien%' AND id >= 10 LIMIT 5;
<div class="a b">&nbsp;<a href='http://example.com/?q=1&r=2#x'>link</a></div>
{"key": [1, 2.5e-10, null, true], "nested": {"a\\n": "b\\u00e9"}}
#include <stdio.h>\nint main(void)\n{\n    printf("%d\\n", 42);\n    return 0;\n}
$ sudo apt-get install -y foo_bar=1.2.3-4~deb12u1 && echo "done" | tee -a /var/log/x.log
x² + y³ ≠ ∑ᵢ √(αβ) ⇒ ∀ε>0 ∃δ: |f(x)−f(y)| < ε ±∞ → ℝⁿ"""
    ),
    "numbers": (
        """1 12 123 1234 12345 123456 1234567 1,234,567.89 -0.001 +49 (0)30 123456 50% 1st 2nd 3rd 10¹²
00:00 3.0 1e5 0b1010 ١٢٣ १२३ 一二三 ⅓ ¾ Ⅻ ⑳ 1_000_000 v2.10.3-rc1 192.168.0.1/24"""
    ),
}
SPECIALS = [
    "<|endoftext|>",
    "<|im_start|>",
    "<|im_end|>",
    "<|begin_of_text|>",
    "<|eot_id|>",
    "<|start_header_id|>",
    "<|end_header_id|>",
    "<s>",
    "</s>",
    "<unk>",
    "[INST]",
    "[/INST]",
    "<tool_call>",
    "</tool_call>",
    "<mask>",
    "word",
    "Ünï",
    "café",
    "<0x0A>",
    "<|im_start",
]
SPACES = [
    " ",
    "  ",
    "   ",
    "\t",
    "\t\t ",
    "\n",
    "\n\n",
    "\n\n\n",
    " \n",
    "\n ",
    "\r\n",
    "\r\n\r\n",
    "\r",
    " \t\n \r\n  ",
    "        ",
    "\u00a0",
    "\u2003\u2002",
    "\u3000",
    "\u200b",
    "\u2028",
    "\u2029",
    "\u0085",
    "\u1680",
    "\u180e",
    "\u202f",
    "\v",
    "\f",
    "\ufeff",
    " " * 33,
]
CONTROLS = [
    "\x00",
    "\x01\x02",
    "\x1b[31mred\x1b[0m",
    "\x1c\x1d\x1e\x1f",
    "\x7f",
    "\x80\x9f",
    "\ufffd",
    "\ufffe",
    "\U0010ffff",
    "\ue000",
    "\u00ad",
    "\u200d",
    "\u202e",
]


def make_lines():
    rnd = random.Random(20240607)
    lines = [
        "",
        " ",
        "a",
        "\n",
        "▁",
        "▁▁a ▁b",
        " a",
        "  a",
        "a ",
        "a  ",
        "'s",
        "'S 'LL 'rE",
        "ſ's'ſ",
        "it'ſ",
        "\u0301",
        "e\u0301",
        " \u0301x",
    ]
    base = [s for t in SENTENCES.values() for s in t.split("\n")]
    for s in base:
        lines.append(s)
        for form in ("NFD", "NFKC", "NFC"):
            n = unicodedata.normalize(form, s)
            if n != s and n not in lines:
                lines.append(n)
        lines += [s.upper(), s.title()] if s.upper() != s else []
    lines += SPECIALS + SPACES + CONTROLS
    words = {k: [w for s in t.split("\n") for w in s.split(" ") if w] for k, t in SENTENCES.items()}
    kinds = list(words)

    def some(n):
        k = rnd.choice(kinds)
        w = words[k]
        at = rnd.randrange(len(w))
        return w[at : at + n] or w[:1]

    while len(lines) < 1110:
        r, out = rnd.random(), ""
        if r < 0.35:  # words of one script
            out = " ".join(some(rnd.randint(2, 9)))
        elif r < 0.55:  # scripts mixed, odd white space
            for _ in range(rnd.randint(2, 4)):
                out += " ".join(some(rnd.randint(1, 3))) + rnd.choice(SPACES)
        elif r < 0.7:  # special tokens
            for _ in range(rnd.randint(1, 4)):
                out += (
                    rnd.choice(["", " ", "\n", "x"])
                    + rnd.choice(SPECIALS)
                    + rnd.choice(["", " ", "  ", "\n", "y", "é"])
                    + (" ".join(some(2)) if rnd.random() < 0.6 else "")
                )
        elif r < 0.78:  # numbers
            out = (
                rnd.choice(["", "$", "-", "n="])
                + "".join(rnd.choice("0123456789") for _ in range(rnd.randint(1, 14)))
                + rnd.choice(["", "%", " km", "."])
            )
        elif r < 0.85:  # white space
            out = "".join(
                rnd.choice(SPACES) + rnd.choice(["", "", "x", "7", "!"])
                for _ in range(rnd.randint(2, 5))
            )
        elif r < 0.92:  # anything
            out = "".join(
                chr(c)
                for c in (
                    rnd.choice(
                        [
                            rnd.randrange(32, 127),
                            rnd.randrange(0xA0, 0x250),
                            rnd.randrange(0x300, 0x370),
                            rnd.randrange(0x400, 0x3000),
                            rnd.randrange(0x4E00, 0x9FFF),
                            rnd.randrange(0xAC00, 0xD7A3),
                            rnd.randrange(0x1F300, 0x1F650),
                        ]
                    )
                    for _ in range(rnd.randint(2, 12))
                )
                if unicodedata.category(chr(c)) != "Cn"
            )
        elif r < 0.97:  # combining marks piled up
            out = "".join(
                rnd.choice("aeiouAOyn ")
                + "".join(
                    rnd.choice("\u0300\u0301\u0302\u0303\u0308\u0323\u0327\u0328\u0338")
                    for _ in range(rnd.randint(0, 3))
                )
                for _ in range(8)
            )
        else:  # controls
            out = (
                " ".join(some(2)) + rnd.choice(CONTROLS) + " ".join(some(1)) + rnd.choice(CONTROLS)
            )
        if out not in lines:
            lines.append(out)
    lines.append("word" * 60 + " " + "ä" * 150 + "한" * 40)
    lines.append("a b" * 100 + " " * 200 + "x" + "\n" * 70)
    return lines


LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|"
    r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
QWEN2 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}|"
    r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
TEKKEN = (
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|"
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|"
    r"\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
VOCAB = 1000


def split(pattern, behavior="isolated", invert=False):
    return pre_tokenizers.Split(Regex(pattern), behavior=behavior, invert=invert)


def byte_level(pre, norm=None, vocab=VOCAB, corpus=None):
    t = Tokenizer(models.BPE())
    if norm:
        t.normalizer = norm
    t.pre_tokenizer = pre
    t.decoder = decoders.ByteLevel()
    t.train_from_iterator(
        corpus,
        trainers.BpeTrainer(
            vocab_size=vocab,
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
            show_progress=False,
        ),
    )
    return t


def special(*names):
    return [AddedToken(n, special=True, normalized=False) for n in names]


def spm_like(corpus, norm, pre, dec, unk_fused=True):
    """Trained on words behind U+2581 so that no token reaches over a space; bytes and control
    tokens first, as Llama has them."""
    t = Tokenizer(models.BPE(unk_token="<unk>", byte_fallback=True, fuse_unk=unk_fused))
    t.pre_tokenizer = pre_tokenizers.Metaspace(replacement="▁", prepend_scheme="always", split=True)
    first = ["<unk>", "<s>", "</s>"] + ["<0x%02X>" % b for b in range(256)]
    # The alphabet is chosen here: among characters equally frequent the trainer's choice changes
    # from run to run.
    count = collections.Counter("▁".join([""] + corpus).replace(" ", "▁"))
    alphabet = sorted(count, key=lambda c: (-count[c], c))[:260]
    t.train_from_iterator(
        corpus,
        trainers.BpeTrainer(
            vocab_size=VOCAB,
            initial_alphabet=alphabet,
            limit_alphabet=260,
            special_tokens=first,
            show_progress=False,
        ),
    )
    doc = json.loads(t.to_str())
    doc["added_tokens"] = [a for a in doc["added_tokens"] if a["id"] < 3]
    vocab, merges = doc["model"]["vocab"], doc["model"]["merges"]
    for w in ("▁▁", "▁▁▁▁"):  # runs of spaces, as the published vocabularies have them
        vocab[w] = len(vocab)
        merges.append([w[: len(w) // 2]] * 2)
    t = Tokenizer.from_str(json.dumps(doc))
    if norm:
        t.normalizer = norm
    if pre:
        t.pre_tokenizer = pre
    else:
        doc = json.loads(t.to_str())
        doc["pre_tokenizer"] = None
        t = Tokenizer.from_str(json.dumps(doc))
    t.decoder = dec
    t.post_processor = processors.TemplateProcessing(
        single="<s> $A", pair="<s> $A <s>:1 $B:1", special_tokens=[("<s>", vocab["<s>"])]
    )
    return t


def build(corpus):
    BL = pre_tokenizers.ByteLevel
    made = {}
    t = byte_level(BL(add_prefix_space=False), corpus=corpus)
    t.post_processor = processors.ByteLevel(trim_offsets=False)
    t.add_special_tokens(special("<|endoftext|>"))
    made["gpt2"] = t, True
    t = byte_level(
        pre_tokenizers.Sequence(
            [pre_tokenizers.Digits(individual_digits=True), BL(add_prefix_space=False)]
        ),
        corpus=corpus,
    )
    t.add_special_tokens(special("<|endoftext|>", "<|im_start|>", "<|im_end|>"))
    made["smollm2"] = t, False
    t = byte_level(
        pre_tokenizers.Sequence([split(LLAMA3), BL(add_prefix_space=False, use_regex=False)]),
        corpus=corpus,
    )
    # What ignore_merges is for: whole words that no sequence of merges makes.
    doc = json.loads(t.to_str())
    doc["model"]["ignore_merges"] = True
    for w in ("Ġjumps", "ĠStück", "é"):
        w = w if w.startswith("Ġ") else "Ã©"
        doc["model"]["vocab"].setdefault("".join(w), len(doc["model"]["vocab"]))
    doc["model"]["vocab"].setdefault("Ġpiñas", len(doc["model"]["vocab"]))
    doc["model"]["vocab"].setdefault("ĠFuÃŁgÃ¤nger", len(doc["model"]["vocab"]))
    t = Tokenizer.from_str(json.dumps(doc))
    t.add_special_tokens(
        special(
            "<|begin_of_text|>",
            "<|end_of_text|>",
            "<|start_header_id|>",
            "<|end_header_id|>",
            "<|eot_id|>",
        )
    )
    b = t.token_to_id("<|begin_of_text|>")
    t.post_processor = processors.Sequence(
        [
            processors.ByteLevel(trim_offsets=False),
            processors.TemplateProcessing(
                single="<|begin_of_text|> $A",
                pair="<|begin_of_text|> $A <|begin_of_text|>:1 $B:1",
                special_tokens=[("<|begin_of_text|>", b)],
            ),
        ]
    )
    made["llama3"] = t, False
    t = byte_level(
        pre_tokenizers.Sequence([split(QWEN2), BL(add_prefix_space=False, use_regex=False)]),
        normalizers.NFC(),
        corpus=corpus,
    )
    t.post_processor = processors.ByteLevel(trim_offsets=False)
    t.add_special_tokens(special("<|endoftext|>", "<|im_start|>", "<|im_end|>"))
    t.add_tokens(
        [AddedToken(n, special=False, normalized=False) for n in ("<tool_call>", "</tool_call>")]
    )
    made["qwen2"] = t, True
    t = byte_level(
        BL(add_prefix_space=True), normalizers.Sequence([normalizers.NFC()]), corpus=corpus
    )
    t.post_processor = processors.ByteLevel(trim_offsets=True)
    t.add_special_tokens(
        [
            AddedToken("<mask>", special=True, lstrip=True, normalized=False),
            AddedToken("</s>", special=True, rstrip=True, normalized=False),
            AddedToken("<s>", special=True, normalized=True),
        ]
    )
    t.add_tokens(
        [
            AddedToken("word", single_word=True),
            AddedToken("Ünï", single_word=True, normalized=False),
            AddedToken("café", lstrip=True, rstrip=True),
        ]
    )
    made["flags"] = t, False
    t = byte_level(
        pre_tokenizers.Sequence(
            [
                pre_tokenizers.Digits(individual_digits=False),
                split(LLAMA3, "removed", True),
                split(r"\u3000|q", "removed"),
                BL(add_prefix_space=False, use_regex=False),
            ]
        ),
        normalizers.NFKC(),
        corpus=corpus,
    )
    t.add_special_tokens(special("<|endoftext|>"))
    made["removed"] = t, False
    t = byte_level(
        pre_tokenizers.Sequence([split(TEKKEN), BL(add_prefix_space=False, use_regex=False)]),
        corpus=corpus,
    )
    t.add_special_tokens(special("<s>", "</s>", "[INST]", "[/INST]"))
    made["tekken"] = t, False
    seq = decoders.Sequence(
        [
            decoders.Replace("▁", " "),
            decoders.ByteFallback(),
            decoders.Fuse(),
            decoders.Strip(" ", 1, 0),
        ]
    )
    t = spm_like(
        corpus,
        normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]),
        None,
        seq,
    )
    made["llama2"] = t, True
    t = spm_like(
        corpus,
        None,
        pre_tokenizers.Metaspace(replacement="▁", prepend_scheme="first", split=False),
        seq,
    )
    t.add_special_tokens(special("[INST]", "[/INST]"))
    made["mistral"] = t, False
    t = spm_like(
        corpus[:40],
        None,
        pre_tokenizers.Metaspace(replacement="▁", prepend_scheme="always", split=True),
        decoders.Metaspace(replacement="▁", prepend_scheme="always"),
        False,
    )
    doc = json.loads(t.to_str())
    doc["model"]["byte_fallback"] = False
    made["metaspace"] = Tokenizer.from_str(json.dumps(doc)), False
    return made


def pack(ids):
    assert all(i < 4096 for i in ids)
    return "".join(DIGITS[i >> 6] + DIGITS[i & 63] for i in ids)


def write(name, doc, lines, encode, decode):
    ids_path, texts = os.path.join(OUT, name + ".ids"), {}
    with open(ids_path, "w") as f:
        for i, line in enumerate(lines):
            full, inner, plain = encode(line)
            f.write(pack(full) + ("" if plain == inner else "|" + pack(plain)) + "\n")
            text = decode(inner)
            if text != line:
                texts[str(i)] = text
    with open(os.path.join(OUT, name + ".text.json"), "w") as f:
        json.dump(texts, f, ensure_ascii=False, separators=(",", ":"))
        f.write("\n")
    with open(os.path.join(OUT, name + ".json"), "w") as f:
        json.dump(doc, f, ensure_ascii=False, separators=(",", ":"))
        f.write("\n")


def hf(t, name, strings, lines):
    def encode(line):
        t.encode_special_tokens = False
        full, inner = t.encode(line).ids, t.encode(line, add_special_tokens=False).ids
        t.encode_special_tokens = True
        plain = t.encode(line, add_special_tokens=False).ids
        return full, inner, plain

    doc = json.loads(t.to_str())
    if strings:  # the older way to write merges
        doc["model"]["merges"] = [" ".join(m) for m in doc["model"]["merges"]]
        t = Tokenizer.from_str(json.dumps(doc))
    write(name, doc, lines, encode, lambda ids: t.decode(ids, skip_special_tokens=False))


def spm_gguf(corpus, lines):
    """A model of SentencePiece's own, as a GGUF's KV pairs hold it; the ids are sentencepiece's."""
    import io, sentencepiece as sp

    model = io.BytesIO()
    sp.SentencePieceTrainer.train(
        sentence_iterator=iter([s.replace("\x00", "") for s in corpus]),
        model_writer=model,
        vocab_size=1600,
        model_type="bpe",
        byte_fallback=True,
        normalization_rule_name="identity",
        remove_extra_whitespaces=False,
        add_dummy_prefix=True,
        split_digits=True,
        allow_whitespace_only_pieces=True,
        character_coverage=0.98,
        unk_id=0,
        bos_id=1,
        eos_id=2,
        pad_id=-1,
        user_defined_symbols=["<tool_call>"],
        num_threads=1,
        minloglevel=2,
    )
    p = sp.SentencePieceProcessor(model_proto=model.getvalue())
    n = p.get_piece_size()
    kind = lambda i: (
        2
        if p.is_unknown(i)
        else (
            3
            if p.is_control(i)
            else (
                6
                if p.is_byte(i)
                else 4 if p.id_to_piece(i) == "<tool_call>" else 5 if p.is_unused(i) else 1
            )
        )
    )
    kv = {
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.pre": "default",
        "tokenizer.ggml.tokens": [p.id_to_piece(i) for i in range(n)],
        "tokenizer.ggml.scores": [p.get_score(i) for i in range(n)],
        "tokenizer.ggml.token_type": [kind(i) for i in range(n)],
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 2,
        "tokenizer.ggml.unknown_token_id": 0,
        "tokenizer.ggml.add_bos_token": True,
    }

    def encode(line):
        # SentencePiece has no special tokens in text, and takes a mark in the text for a space; a
        # line with a user-defined symbol gets no space before the text behind the symbol, where the
        # GGUF way puts one: such lines are not compared (empty).
        if (
            "<tool_call>" in line
            or any(s in line for s in ("<s>", "</s>", "<unk>"))
            or "\x00" in line
        ):
            return [], [], []
        ids = p.encode(line)
        return [1] + ids, ids, ids

    write("spm_gguf", kv, lines, encode, lambda ids: p.decode(ids) if ids else "")


def main():
    os.makedirs(OUT, exist_ok=True)
    lines = make_lines()
    corpus = [s for s in lines if not any(x in s for x in SPECIALS)]
    with open(os.path.join(OUT, "lines.json"), "w") as f:
        json.dump(lines, f, ensure_ascii=False, separators=(",\n", ":"))
        f.write("\n")
    for name, (t, strings) in build(corpus).items():
        hf(t, name, strings, lines)
    spm_gguf(corpus, lines)
    import sentencepiece

    with open(os.path.join(OUT, "versions.txt"), "w") as f:
        f.write(
            "made by scripts/golden/tokenizer.py with tokenizers %s, sentencepiece %s, Python"
            " %d.%d\n" % (tokenizers.__version__, sentencepiece.__version__, *sys.version_info[:2])
        )
    print(len(lines), "lines")


if __name__ == "__main__":
    main()
