"""Writes published_table.json: pipelines as DeepSeek and StarCoder publish them, by `tokenizers`.

  python3 make_published_table.py ../../../checkpoints/bard/tokenizer.json > published_table.json

0.23.3 was used. The pipelines have bard's vocabulary and merges; the form is tokenizer_table.json's.
"""

import json
import random
import sys

import tokenizers

import make_tokenizer_table as table

# DeepSeek-LLM and -Coder; the letters of its first class are a few of the published ranges.
DEEPSEEK_LETTERS = ("\\s?[A-Za-zµÀ-ÖØ-öø-ƺƼ-ƿǄ-ʓʕ-ʯͰ-ͳͶͷͻ-ͽͿΆΈ-ΊΌΎ-ΡΣ-ϵϷ-ҁҊ-ԯԱ-ՖႠ-Ⴥ"
                    "Ꭰ-Ᏽᏸ-ᏽᲐ-ᲺᲽ-Ჿᴀ-ᴫᵫ-ᵷᵹ-ᶚḀ-ἕἘ-Ἕ\u1f60-\u1f7dＡ-Ｚａ-ｚ𐐀-𐑏𞤀-𞥃]+")
DEEPSEEK_PUNCTUATION = "\\s?[!-/:-~！-／：-～‘-‟　-。]+"
DEEPSEEK_HAN = "[一-龥ࠀ-一가-퟿]+"
DEEPSEEK_V3 = (r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|"""
               r"""[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|"""
               r"""\s*[\r\n]+|\s+(?!\S)|\s+""")
CL100K = (r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]++[\r\n]*|"
          r"\s*[\r\n]|\s+(?!\S)|\s+")

TEXTS = """
ab12cd 345 6  78\\n9 0 x1y22z333
٣٤ १२३ Ⅷⅷ ① ㊿ ²³ ½ 10⁻⁹ 〇一二三 𝟘𝟙 1\u0660\u0966 १٣4
\U00010d40\U00010d41 \U00011f50\U00011f51\U00011f52 \U0001d2c0\U0001d2c1 \U0001e4f0\U0001e4f1
\U000105c0\U000105c1 \U00031350\U00031351 \u0897 \U00010d4a\U00010d70 \u1c89\u1c8a \ua7cb\ua7dc
Todhri \U000105c0\U000105c1\U000105c2x, Garay \U00010d50\U00010d51, Kawi \U00011f04\U00011f05\u0301
  leading and trailing  
tabs\\t\\t \\n \\n\\n  x   \\r\\n end \\t 
漢字かな交じり文、テスト。１２３　全角 한국어 텍스트 12월
def f(x):\\n    return x**2 + 10  # 0x1F\\n\\n\\n
I'LL we've IT'ſ don'T 'ſ 'K o'K they'RE x'Vey
¿Qué? ¡No! «Oui» „Ja“ ‚x‘ ‹y› … — – 50% €20 £7 a_b $x ^y `z` a+b<c>=d|e~f
ⓐⓑ 🅰 ☃ ♫ ∀x∈ℝ 👍🏽 ﷽ ꙳ ꩜
""".strip("\n").split("\n")

CHARACTERS = ("aZ'09 \n\r\t.,-_(é́ßſКΩ漢、。！字가ٓ٣Ⅷ½²€∑👍\u3000\xa0\u0085"
              "\u0897\U000105c0\U00010d40\U00011f50\U00031350\U0001d2c0\ua7dc")


def random_texts():
  rng = random.Random(16)
  for _ in range(40):
    yield "".join(rng.choice(CHARACTERS) for _ in range(rng.randrange(1, 40)))


def digits(individual):
  return {"type": "Digits", "individual_digits": individual}


def variants():
  def regex(pattern): return table.split({"Regex": pattern})
  empty = {"/normalizer": {"type": "Sequence", "normalizers": []}}
  deepseek = [regex("[\r\n]"), regex(DEEPSEEK_LETTERS), regex(DEEPSEEK_PUNCTUATION),
              regex("\\s+$"), regex(DEEPSEEK_HAN)]
  return {
      "StarCoder": {"/pre_tokenizer": table.sequence(digits(True), table.byte_level(False, True))},
      "whole numbers": {"/pre_tokenizer": table.sequence(digits(False),
                                                         table.byte_level(True, True)), **empty},
      "DeepSeek-Coder": {"/pre_tokenizer": table.sequence(*deepseek, digits(True),
                                                          table.byte_level()), **empty},
      "DeepSeek-V3": {"/pre_tokenizer": table.sequence(
          regex(r"\p{N}{1,3}"), regex("[一-龥぀-ゟ゠-ヿ]+"), regex(DEEPSEEK_V3), table.byte_level()),
          **empty},
      "cl100k": {"/pre_tokenizer": table.sequence(regex(CL100K), table.byte_level())},
      "space at the ends of lines": {"/pre_tokenizer": table.sequence(
          regex("\\s+$"), table.byte_level())},
      "GPT-4o": {"/pre_tokenizer": table.sequence(regex(table.GPT4O), table.byte_level())},
  }


def main():
  base = json.load(open(sys.argv[1], encoding="utf-8"))
  texts = [table.unescape(t) for t in TEXTS] + list(random_texts()) + [
      table.unescape(t) for t in table.SENTENCES[:20]]
  lines = []
  for name, patch in variants().items():
    tokenizer = tokenizers.Tokenizer.from_str(json.dumps(table.patched(base, patch)))
    rows = ",\n".join(json.dumps(table.make_row(tokenizer, text, False, False),
                                 separators=(",", ":")) for text in texts)
    lines.append(f'{{"name": {json.dumps(name)}, "patch": {json.dumps(patch)}, "rows": [\n{rows}]}}')
  print('{"tokenizers": [\n' + ",\n".join(lines) + "]}")


if __name__ == "__main__":
  main()
