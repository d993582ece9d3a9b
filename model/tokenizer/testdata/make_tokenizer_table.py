"""Writes tokenizer_table.json: texts and their ids by the `tokenizers` library (0.23.3 was used).

  python3 make_tokenizer_table.py ../../../checkpoints/bard/tokenizer.json > tokenizer_table.json

The file holds one entry a tokenizer: JSON pointers with the values that replace bard's own, and
rows. A row has the text, its ids, the options that are true, and what the ids decode to where that
is not the text. "invalid" are bytes that are not UTF-8, with the offset that Python names.
"""

import copy
import functools
import json
import random
import sys
import unicodedata

import tokenizers

GPT2 = (r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+")
LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|"
          r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
QWEN2 = LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")
GPT4O = (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+"
         r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"
         r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*"
         r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|"
         r"\s*[\r\n]+|\s+(?!\S)|\s+")

SENTENCES = """
To be, or not to be: that is the question.
ROMEO:\\nBut, soft! what light through yonder window breaks?
JULIET:\\nO Romeo, Romeo! wherefore art thou Romeo?\\n\\n
I'll, we've, they're, he'd, it's, don't, I'm: CAN'T, WE'LL, IT'S, I\u2019m
'tis 'twas ''s ''' 'll'll 's't're've'm'll'd
Der schnelle braune Fuchs springt über den faulen Hund. Straße, GROẞ, ſ
Le cœur a ses raisons que la raison ne connaît point ; Noël, naïve, œuvre
El pingüino Wenceslao hizo kilómetros bajo exhaustiva lluvia. ¿Sí? ¡No!
Zażółć gęślą jaźń. Příliš žluťoučký kůň úpěl ďábelské ódy.
Þórður ænti á Íslandi; smørrebrød, ångström, çatalhöyük, İstanbul ıIiİ
Mèo con chạy qua đường Nguyễn Huệ vào buổi tối
Ξεσκεπάζω την ψυχοφθόρα βδελυγμία. ΟΔΥΣΣΕΥΣ ὀδυσσεύς
Съешь же ещё этих мягких французских булок, да выпей чаю.
Щастям б'єш жук їх глицю в фон й ґедзь пріч.
Հայաստանի Հանրապետություն։ Երևան
საქართველოს დედაქალაქი თბილისი ᲗᲑᲘᲚᲘᲡᲘ
דג סקרן שט בים מאוכזב ולפתע מצא לו חברה. שָׁלוֹם
نص حكيم له سر قاطع وذو شأن عظيم مكتوب على ثوب أخضر. مُحَمَّد ١٢٣
زبان فارسی می\u200cخواهم ۴۵۶ اردو ہے
ऋषियों को सताने वाले दुष्ट राक्षसों के राजा रावण का सर्वनाश १२३
আমার সোনার বাংলা, আমি তোমায় ভালোবাসি। ৭৮৯
ਸਤਿ ਸ੍ਰੀ ਅਕਾਲ ਗੁਜਰਾતી ଓଡ଼ିଆ
யாமறிந்த மொழிகளிலே தமிழ்மொழி போல் இனிதாவது எங்கும் காணோம்
తెలుగు భాష చాలా అందమైనది. ಕನ್ನಡ ನಾಡು മലയാളം ഭാഷ සිංහල
เป็นมนุษย์สุดประเสริฐเลิศคุณค่า กว่าบรรดาฝูงสัตว์เดรัจฉาน
ພາສາລາວ မြန်မာဘာသာ ភាសាខ្មែរ བོད་སྐད་ ᠮᠣᠩᠭᠣᠯ ᠬᠡᠯᠡ ᠎x\u180ey
አማርኛ ትግርኛ ᏣᎳᎩ ᐃᓄᒃᑎᑐᑦ ⵜⴰⵎⴰⵣⵉⵖⵜ ߒߞߏ ꕙꔤ
我能吞下玻璃而不伤身体。臺灣繁體字，測試「引號」！ 𠜎𠜱𠝹
いろはにほへと ちりぬるを。カタカナ ﾊﾝｶｸ 日本語　全角スペース
키스의 고유조건은 입술끼리 만나야 하고 \u1112\u1161\u11ab\u1100\u1173\u11af
cafe\u0301 e\u0301\u0327\u0323 a\u0300\u0301\u0302\u0303 Z\u0351\u036b\u0343\u036a\u0302 \u0301alone
👍 👍🏽 👨‍👩‍👧‍👦 👩🏾‍🚀 🏳️‍🌈 🏴‍☠️ 🇩🇪🇫🇷🇯🇵 1️⃣2️⃣ ❤️‍🔥 ☺︎☺️ 🫠 🫶🏿
🏴\U000e0067\U000e0062\U000e0065\U000e006e\U000e0067\U000e007f tag 🧑🏻‍❤️‍💋‍🧑🏿
∀x∈ℝ: ⌈x⌉ = −⌊−x⌋, α ∧ ¬β, ∑∫∂√∞≠≈, 10⁻⁹ x² ½ ¾ Ⅷ ⅷ ① ㊿ ²³ ৴ ௧௨௩ ๑๒ 〇一二三
\u202eright to left override\u202c \u2066isolate\u2069 abc\u200fאבג\u200edef \u061c
def f(x: int) -> str:\\n    return f"{x!r}\\\\n"  # comment\\n\\n\\tif (a && b || !c) { d[i]++; }
<html><body class="x">&amp;&nbsp;</body></html> <!-- c -->
SELECT * FROM t WHERE a >= 1.5e-10 AND b LIKE '%x_%';
https://example.com/a/b?c=d&e=%20f#g user@example.org C:\\\\Users\\\\x
{"key": [1, 2.5, -3e10, null, true], "s": "\\\\u00e9"}
3.14159 1,000,000 0x1F 2024-11-21T20:15:00Z +1 (555) 010-9999 100% $5 €6 £7 ¥8 ₹9 ₿1
$HOME ${x} `ls` ~/.bashrc !important @media #hash ^caret | pipe; a&&b <<EOF >>out
""".strip("\n").split("\n")

SPECIALS = """
<|endoftext|>
<|endoftext|><|endoftext|>
a<|endoftext|>b
 <|endoftext|> 
hello <|endoftext|> world
<|endoftext|>\\n<|endoftext|>
<|endoftext
|endoftext|>
<|endo<|endoftext|>ftext|>
<<|endoftext|>>
<|ENDOFTEXT|>
ROMEO:<|endoftext|>JULIET:
né<|endoftext|>é👍<|endoftext|>
""".strip("\n").split("\n")

# Texts for what normalizers change, and for tokens that are looked for behind them. The library's
# Unicode is of 2020: later letters are left out.
NORMALIZED_TEXTS = """
a Ｎorm Norm b norm
norm it
 norm it
x norm it y  norm it
  two  spaces   three 
▁ mark ▁▁marks
ﬁ ﬀ Å Å Å ① ½ ㎏ ﷺ カﾞ ｶﾞ ガ 각 각 各 İSTANBUL ΑΣ
q̣̇ q̣̇ ẛ̣ ̈́ क़ ⫝̸ 𝅗𝅥 각
thou art thou
　wide　
<|endoftext|>a <|endoftext|> b<|endoftext|>plain it
🤗  􏿿
""".strip("\n").split("\n")

# Texts for the tokens that ADDED adds.
ADDED_TEXTS = """
x  <L>  y
x\\t\\n<L>\\n y<L><L>  <L>
x  <R>  y <R>
<R> \\u3000\\u00a0\\u2028z \\u200b<R>\\u200bz
a \\u0085 <LR> \\u1680 b<LR><LR> <LR>
<L> <R> <L><R>  <R>  <L>  <LR>
  <R>     <L>
x <|a|> y <|a|b|> z <|a|b
<|a|>b<|a|b|>c
say plain and plainer and plainest
plainplain PLAIN pla in
norm normal <|norm|> <|a|norm|>
emoji 🙂🙂 and 🙂 🙂
tab\\tend\\t\\tend
a\\r\\nb\\r\\n\\r\\nc
Héllo Ünïcode
<|endoftext|>plain<|endoftext|> <L><|endoftext|> <R>
""".strip("\n").split("\n")

ADDED = [
    # content, special, lstrip, rstrip, normalized
    ("<|endoftext|>", True, False, False, False),
    ("<L>", True, True, False, False),
    ("<R>", True, False, True, False),
    ("<LR>", True, True, True, False),
    ("<|a|>", True, False, False, False),
    ("<|a|b|>", True, False, False, False),
    ("plain", False, False, False, False),
    ("plainer", False, False, False, True),
    ("norm", False, False, False, True),
    ("normal", False, False, False, True),
    ("🙂", False, False, False, True),
    ("\t", False, False, False, False),
    ("\r\n", False, False, True, True),
]


def unescape(line):
  return line.replace("\\\\", "\0").replace("\\n", "\n").replace("\\t", "\t").replace(
      "\\r", "\r").replace("\\u3000", "\u3000").replace("\\u00a0", "\u00a0").replace(
          "\\u2028", "\u2028").replace("\\u200b", "\u200b").replace("\\u0085", "\u0085").replace(
              "\\u1680", "\u1680").replace("\0", "\\")


def letters_by_script():
  """Letters, marks and numbers of every script, told by the first words of their names."""
  two_words = ("OLD", "MEETEI", "TAI", "NEW", "SYLOTI", "OL", "PSALTER", "INSCRIPTIONAL", "LINEAR",
               "NYIAKENG")
  scripts = {}
  for code in range(0x110000):
    c = chr(code)
    words = unicodedata.name(c, "").split(" ")
    if unicodedata.category(c)[0] not in "LMN" or not words[0]:
      continue
    key = " ".join(words[:2]) if words[0] in two_words else words[0].split("-")[0]
    scripts.setdefault(key, []).append(c)
  return scripts


def whitespace_and_controls():
  spaces = "\t\n\v\f\r \x1c\x1d\x1e\x1f\x85\xa0\u1680\u180e" + "".join(
      chr(c) for c in range(0x2000, 0x2010)) + "\u2028\u2029\u202f\u205f\u2060\u3000\ufeff"
  for c in spaces:
    yield f"a{c}b {c} c{c}{c}d{c}"
  for c in list(range(0x20)) + [0x7f] + list(range(0x80, 0xa1)):
    yield chr(c)
  yield "".join(chr(c) for c in range(0x20))
  yield "".join(chr(c) for c in range(0x7f, 0xa1))
  yield "".join(chr(c) for c in range(0x20, 0x7f))
  yield "".join(chr(c) for c in range(0xa0, 0x180))
  yield "nul\0inside\0\0 and at the end\0"


def long_runs():
  for unit in ["a", "A", " ", "\n", "\t", "\r\n", "e", "th", "the ", " the", "'", "'s", "0", "=",
               "-", "é", "漢", "👍", "\0", "\u0301", "ab", "o\n"]:
    for count in (2, 3, 17, 256):
      yield unit * count
  yield " " * 300 + "x"
  yield "x" + " " * 300
  yield "\n" * 50 + " " * 50 + "\t" * 50 + "x" + " \n" * 50


def random_texts(count, seed):
  rng = random.Random(seed)
  words = ["the", "king", "Romeo", "I'll", "love", "don't", "O", "thou", "and", "élan", "你好", "שלום",
           "مرحبا", "привет", "👍", "👨‍👩‍👧", "123", "4", "٣", "½", "<|endoftext|>", "--", "...", "!?", "e\u0301"]
  joins = [" ", "  ", "\n", "\n\n", "\t", "", ",", ", ", " \n ", "\r\n", "\u3000", "\xa0", "'", ". ", "-"]
  for _ in range(count):
    kind = rng.randrange(4)
    if kind == 0:
      yield "".join(rng.choice(words) + rng.choice(joins) for _ in range(rng.randrange(1, 12)))
    elif kind == 1:
      yield "".join(chr(rng.randrange(0x20, 0x7f)) for _ in range(rng.randrange(1, 40)))
    elif kind == 2:
      yield "".join(rng.choice(" \n\t'stredmvlDLS.a1\r\u2028") for _ in range(rng.randrange(1, 40)))
    else:
      assigned = []
      while len(assigned) < 12:
        c = chr(rng.choice((rng.randrange(0x80, 0x3000), rng.randrange(0x3000, 0x20000))))
        if unicodedata.category(c) not in ("Cn", "Cs", "Co"):
          assigned.append(c)
      yield "".join(assigned)


def all_texts():
  texts = ["", "a", " ", "  ", "\n", "Hello, world!", " Hello", "Hello ", "\U0010ffff\ue000\ufffd\ufffe"]
  texts += [unescape(s) for s in SENTENCES + SPECIALS + ADDED_TEXTS]
  rng = random.Random(1)
  for script, letters in sorted(letters_by_script().items()):
    sample = letters if len(letters) <= 10 else rng.sample(letters, 10)
    texts.append("".join(sample[:5]) + " " + "".join(sample[5:]))
  texts += whitespace_and_controls()
  texts += long_runs()
  texts += random_texts(120, 2)
  return list(dict.fromkeys(texts))


def split(pattern, behavior="Isolated", invert=False):
  return {"type": "Split", "pattern": pattern, "behavior": behavior, "invert": invert}


def byte_level(add_prefix_space=False, use_regex=False):
  return {"type": "ByteLevel", "add_prefix_space": add_prefix_space, "trim_offsets": True,
          "use_regex": use_regex}


def sequence(*members):
  return {"type": "Sequence", "pretokenizers": list(members)}


def template(before, after):
  def token(name): return {"SpecialToken": {"id": name, "type_id": 0}}
  single = [*map(token, before), {"Sequence": {"id": "A", "type_id": 0}}, *map(token, after)]
  return {"type": "TemplateProcessing", "single": single,
          "pair": single + [{"Sequence": {"id": "B", "type_id": 1}}],
          "special_tokens": {"<|endoftext|>": {"id": "<|endoftext|>", "ids": [0],
                                               "tokens": ["<|endoftext|>"]},
                             "two": {"id": "two", "ids": [5, 6], "tokens": ["a", "b"]}}}


def variants(size):
  added = [{"id": 0 if i == 0 else size + i - 1, "content": content, "single_word": False,
            "lstrip": lstrip, "rstrip": rstrip, "normalized": normalized, "special": special}
           for i, (content, special, lstrip, rstrip, normalized) in enumerate(ADDED)]
  whole = {"/model/ignore_merges": True,
           **{f"/model/vocab/{token}": size + i
              for i, token in enumerate(["ĠWenceslao", "ĠðŁĳį", "ĊĊĊ", "zzzz"])}}
  return {
      "bard": {},
      "Llama-3": {"/pre_tokenizer": sequence(split({"Regex": LLAMA3}), byte_level()),
                  "/post_processor": {"type": "Sequence", "processors": [
                      byte_level(), template(["<|endoftext|>"], [])]}, **whole},
      "Qwen2": {"/pre_tokenizer": sequence(split({"Regex": QWEN2}), byte_level()),
                "/post_processor": byte_level()},
      "GPT-4o": {"/pre_tokenizer": sequence(split({"Regex": GPT4O}, "Removed", True), byte_level()),
                 "/post_processor": None},
      "added tokens": {"/added_tokens": added, "/post_processor": template(
          ["<|endoftext|>", "two"], ["two", "<|endoftext|>"])},
      "added tokens, prefix space": {"/added_tokens": added,
                                     "/pre_tokenizer": byte_level(True, True)},
      "no pattern, prefix space": {"/pre_tokenizer": byte_level(True, False)},
      "several splits": {"/pre_tokenizer": sequence(
          split({"String": "the "}), split({"Regex": r"\p{N}"}), split({"Regex": r"\S*"}),
          split({"String": "."}, "Removed"), byte_level(False, True)),
          "/post_processor": {"type": "Sequence", "processors": [
              template(["two"], ["<|endoftext|>"]), byte_level()]}},
      "prefix space in each piece": {"/pre_tokenizer": sequence(
          split({"Regex": GPT2}), byte_level(True, False))},
  }


def replace(pattern, content):
  return {"type": "Replace", "pattern": pattern, "content": content}


def normalizers(*members):
  return {"type": "Sequence", "normalizers": list(members)}


def metaspace(scheme, split):
  return {"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": scheme, "split": split}


@functools.cache
def of_characters():
  """BPE as SentencePiece's, with a token for each byte, trained on the sentences."""
  tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE(byte_fallback=True, unk_token="<unk>"))
  tokenizer.normalizer = tokenizers.normalizers.Replace(" ", "\u2581")
  trainer = tokenizers.trainers.BpeTrainer(
      vocab_size=900, special_tokens=["<unk>", "<|endoftext|>", *(f"<0x{i:02X}>" for i in range(256))],
      show_progress=False, limit_alphabet=120)
  tokenizer.train_from_iterator([unescape(s) for s in SENTENCES for _ in range(3)], trainer)
  model = json.loads(tokenizer.to_str())["model"]
  return {**model, "fuse_unk": True, "byte_fallback": True}


def sentence_pieces():
  model = of_characters()
  added = [{"id": i, "content": content, "single_word": False, "lstrip": False, "rstrip": False,
            "normalized": normalized, "special": special}
           for i, content, special, normalized in [
               (0, "<unk>", True, False), (1, "<|endoftext|>", True, False),
               (len(model["vocab"]), "plain", False, False),
               (len(model["vocab"]) + 1, "norm it", False, True)]]
  marks = [{"type": "ByteFallback"}, {"type": "Fuse"}]
  common = {"/model": model, "/added_tokens": added, "/post_processor": None,
            "/decoder": {"type": "Sequence",
                         "decoders": [replace({"String": "\u2581"}, " "), *marks]}}
  to_mark = replace({"String": " "}, "\u2581")
  return {
      "Llama-2": {**common, "/pre_tokenizer": None, "/normalizer": normalizers(
          {"type": "Prepend", "prepend": "\u2581"}, to_mark)},
      "Gemma": {**common, "/normalizer": to_mark,
                "/pre_tokenizer": split({"String": " "}, "MergedWithPrevious")},
      "Mistral": {**common, "/normalizer": None, "/pre_tokenizer": metaspace("first", False)},
      "Metaspace of words": {**common, "/normalizer": None,
                             "/pre_tokenizer": metaspace("always", True)},
      "Metaspace without prefix": {**common, "/normalizer": None,
                                   "/pre_tokenizer": metaspace("never", True)},
  }


WORDS = ["plain", "offal", "\u0301", "Romeos", "_x", "97", "\u24d0", "'q"]


def single_words(size):
  """Added tokens that must be words, among letters, marks, digits, joiners and circled letters."""
  added = [{"id": 0, "content": "<|endoftext|>", "single_word": True, "lstrip": False,
            "rstrip": False, "normalized": False, "special": True}]
  added += [{"id": size + i, "content": content, "single_word": True, "lstrip": i % 3 == 1,
             "rstrip": i % 3 == 2, "normalized": i % 2 == 1, "special": False}
            for i, content in enumerate(WORDS)]
  return {"single words": {"/added_tokens": added, "/normalizer": {"type": "NFC"}}}


def word_texts():
  beside = ["", " ", "a", "\u0301", "_", "-", "\u200d", "\u200b", "4", "\u0664", "\u24d0", "\u2160", "\u00bd", "\U0001f130",
            "\u6f22", "\u00b2", ".", "\n"]
  rng = random.Random(5)
  for word in WORDS + ["<|endoftext|>"]:
    for one in beside:
      yield one + word + rng.choice(beside)
      yield rng.choice(beside) + word + one + word


def unknowns():
  """Characters that are no token: one each, one a run, none; and without bytes for them."""
  model = {**of_characters(), "byte_fallback": False}
  some_bytes = {**model, "byte_fallback": True,
                "vocab": {k: v for k, v in model["vocab"].items() if k != "<0x9F>"}}
  decoder = {"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": "never", "split": False}
  with_bytes = {"type": "Sequence", "decoders": [decoder, {"type": "ByteFallback"}, {"type": "Fuse"}]}
  specials = [{"id": i, "content": content, "single_word": False, "lstrip": False, "rstrip": False,
               "normalized": False, "special": True}
              for i, content in enumerate(["<unk>", "<|endoftext|>"])]
  common = {"/added_tokens": specials, "/post_processor": None, "/normalizer": None,
            "/pre_tokenizer": metaspace("never", True), "/decoder": decoder}
  return {
      "unknown, one each": {**common, "/model": {**model, "fuse_unk": False}},
      "unknown, one a run": {**common, "/model": model},
      "unknown, none": {**common, "/model": {**model, "unk_token": None}},
      "unknown, or bytes": {**common, "/model": some_bytes, "/decoder": with_bytes},
      "whole words": {**common, "/model": {**model, "ignore_merges": True}},
  }


def unigrams():
  tokenizer = tokenizers.Tokenizer(tokenizers.models.Unigram())
  tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Metaspace()
  trainer = tokenizers.trainers.UnigramTrainer(
      vocab_size=600, unk_token="<unk>", special_tokens=["<unk>", "<|endoftext|>"],
      show_progress=False, initial_alphabet=[])
  latin = [unescape(s) for s in SENTENCES[:9] + SENTENCES[-9:]]
  tokenizer.train_from_iterator(latin * 3, trainer)
  model = json.loads(tokenizer.to_str())["model"]
  # What no sentence has is unknown, and so is what is left out.
  rare = set("\u00e9\u00df\u0142\u6f22\u0431\u03b1\U0001f44dQ")
  model["vocab"] = [[piece, round(score, 4)] for piece, score in model["vocab"]
                    if not rare & set(piece)]
  bytes_too = {**model, "byte_fallback": True, "vocab": model["vocab"] + [
      [f"<0x{i:02X}>", -20.0] for i in range(256)]}
  some_bytes = {**bytes_too, "vocab": [v for v in bytes_too["vocab"] if v[0] != "<0x9F>"]}
  # Ties: every cut has the same sum.
  even = {**model, "vocab": [[piece, -float(len(piece))] for piece, _ in model["vocab"]]}
  decoder = {"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": "never", "split": False}
  with_bytes = {"type": "Sequence", "decoders": [decoder, {"type": "ByteFallback"}, {"type": "Fuse"}]}
  specials = [{"id": i, "content": content, "single_word": False, "lstrip": False, "rstrip": False,
               "normalized": False, "special": True}
              for i, content in enumerate(["<unk>", "<|endoftext|>"])]
  common = {"/added_tokens": specials, "/post_processor": None, "/normalizer": {"type": "NFKC"}}
  return {
      "Unigram": {**common, "/model": model, "/pre_tokenizer": metaspace("always", True),
                  "/decoder": decoder},
      "Unigram of whole texts": {**common, "/model": model, "/decoder": decoder,
                                 "/pre_tokenizer": metaspace("first", False)},
      "Unigram with bytes": {**common, "/model": bytes_too, "/decoder": with_bytes,
                             "/pre_tokenizer": metaspace("never", True)},
      "Unigram with some bytes": {**common, "/model": some_bytes, "/decoder": with_bytes,
                                  "/pre_tokenizer": metaspace("never", False)},
      "Unigram of equal sums": {**common, "/model": even, "/decoder": decoder,
                                "/pre_tokenizer": metaspace("never", False)},
  }


def first_behind_normalizers():
  """Whether a text's begin is still there decides whether it gets a mark."""
  base = sentence_pieces()["Mistral"]
  strip = {"type": "Strip", "strip_left": True, "strip_right": True}
  to_prepend = {"type": "Prepend", "prepend": " "}
  steps = {
      "Strip": [strip],
      "Lowercase, Strip": [{"type": "Lowercase"}, strip],
      "Prepend, Strip": [to_prepend, strip],
      "Strip, Prepend": [strip, to_prepend],
      "Replace one": [replace({"String": "n"}, "no")],
      "Replace two": [replace({"String": "no"}, "n")],
      "Replace by nothing": [replace({"String": "n"}, "")],
      "Replace a run": [replace({"Regex": " +"}, "_")],
      "Replace, Strip": [replace({"String": "n"}, " "), strip],
  }
  return {f"first behind {name}": {**base, "/normalizer": normalizers(*members)}
          for name, members in steps.items()}


def normalized(size):
  plain = {"/added_tokens": [
      {"id": 0, "content": "<|endoftext|>", "single_word": False, "lstrip": False, "rstrip": False,
       "normalized": False, "special": True},
      {"id": size, "content": "Ｎorm", "single_word": False, "lstrip": False, "rstrip": False,
       "normalized": True, "special": False}]}
  by_words = {"/pre_tokenizer": sequence(split({"Regex": QWEN2}), byte_level())}
  return {
      **{form: {**plain, **by_words, "/normalizer": {"type": form}}
         for form in ("NFC", "NFD", "NFKC", "NFKD")},
      "several normalizers": {**plain, **by_words, "/normalizer": normalizers(
          {"type": "Strip", "strip_left": True, "strip_right": True}, {"type": "NFKC"},
          {"type": "Lowercase"}, replace({"Regex": r"\s+"}, " "), replace({"String": "thou"}, "you"),
          {"type": "Prepend", "prepend": ">"})},
      "strips the left": {**plain, "/normalizer": {
          "type": "Strip", "strip_left": True, "strip_right": False}},
  }


def behaviors():
  return {f"splits {behavior}{', inverted' if invert else ''}": {"/pre_tokenizer": sequence(
              split({"Regex": r"\p{P}|\s"}, behavior, invert), byte_level())}
          for invert in (False, True)
          for behavior in ("MergedWithPrevious", "MergedWithNext", "Contiguous")}


def patched(base, patch):
  result = copy.deepcopy(base)
  for pointer, value in patch.items():
    *parents, key = pointer[1:].split("/")
    parent = result
    for name in parents:
      parent = parent[name]
    parent[key] = value
  return result


def make_row(tokenizer, text, parse_special, add_special_tokens):
  tokenizer.encode_special_tokens = not parse_special
  ids = tokenizer.encode(text, add_special_tokens=add_special_tokens).ids
  row = {"text": text, "ids": ids}
  if parse_special:
    row["parse_special"] = True
  if add_special_tokens:
    row["add_special_tokens"] = True
  decoded = tokenizer.decode(ids, skip_special_tokens=True)
  if decoded != text:
    row["decoded"] = decoded
  return row


def make_rows(tokenizer, texts):
  for text in texts:
    has_token = any(content in text for content, *_ in ADDED)
    for parse_special in ((False, True) if has_token else (False,)):
      yield make_row(tokenizer, text, parse_special, False)
  for text in ["", "Hello, world!", "a<|endoftext|>b", "<|endoftext|>"]:
    for parse_special in (False, True):
      yield make_row(tokenizer, text, parse_special, True)


def invalid_rows():
  bad = ["80", "bf", "c0", "c1", "c080", "c1bf", "f5", "ff", "fe", "c3", "e2", "e282", "f0", "f09f",
         "f09f91", "e08080", "e09fbf", "eda080", "edbfbf", "f0808080", "f08fbfbf", "f4908080",
         "f7bfbfbf", "f8808080", "c328", "e28228", "f09f9128", "e228a1", "f0288cbc", "f0908028"]
  for text in bad:
    for before in ("", "abc ", "é👍 ", "<|endoftext|>"):
      data = before.encode() + bytes.fromhex(text) + (b"" if before == "abc " else b" tail")
      try:
        data.decode("utf-8")
      except UnicodeDecodeError as error:
        yield {"hex": data.hex(), "offset": error.start}


def main():
  extra = int(sys.argv[2]) if len(sys.argv) > 2 else 0  # more random rows, for a longer look
  base = json.load(open(sys.argv[1], encoding="utf-8"))
  texts = all_texts() + list(random_texts(extra, 3))
  lines = []
  size = len(base["model"]["vocab"])
  all_variants = {**variants(size), **behaviors(), **normalized(size), **sentence_pieces(),
                  **single_words(size), **unknowns(), **unigrams(), **first_behind_normalizers()}
  for name, patch in all_variants.items():
    tokenizer = tokenizers.Tokenizer.from_str(json.dumps(patched(base, patch)))
    if name == "bard":
      mine = texts
    else:
      mine = [unescape(s) for s in SENTENCES + SPECIALS + ADDED_TEXTS + NORMALIZED_TEXTS]
      mine += [t for t in long_runs() if len(t) < 40] + list(random_texts(20 + extra, 4))
    if name == "single words":
      mine += list(word_texts())
    if name.startswith(("Unigram", "unknown")):
      mine += ["<unk>", "\u00e9<unk>x", "<unk>\u00e9\u00df<unk> \u6f22", "a<unk>\U0001f44d"]
    if name.startswith("first behind"):
      mine = NORMALIZED_TEXTS + ["", " ", "n", "no", "nno nno", "  n n", "<|endoftext|>n", "x", " x"]
    if patch.get("/normalizer"):
      mine = [t for t in mine if not any("\U00010780" <= c <= "\U000107bf" for c in t)]
    rows = ",\n".join(json.dumps(row, separators=(",", ":")) for row in make_rows(tokenizer, mine))
    lines.append(f'{{"name": {json.dumps(name)}, "patch": {json.dumps(patch)}, "rows": [\n{rows}]}}')
  invalid = ",\n".join(json.dumps(row) for row in invalid_rows())
  print('{"tokenizers": [\n' + ",\n".join(lines) + f'],\n"invalid": [\n{invalid}]}}')


if __name__ == "__main__":
  main()
