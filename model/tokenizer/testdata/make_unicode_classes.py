"""Writes unicode_classes.json: what each class matches by the `tokenizers` library (0.23.3 was used).

  python3 make_unicode_classes.py > unicode_classes.json

A class is told by the first code points of the runs that are in it and, in turns, out of it, in
hexadecimal; "\\p{L}" and its like are the unions of their categories, which is checked here.
"""

import json

from tokenizers import Regex, pre_tokenizers

CODES = [c for c in range(0x110000) if not 0xD800 <= c <= 0xDFFF]
CATEGORIES = ("Lu Ll Lt Lm Lo Mn Mc Me Nd Nl No Pc Pd Ps Pe Pi Pf Po Sm Sc Sk So Zs Zl Zp "
              "Cc Cf Cn Co").split()


def members(pattern):
  split = pre_tokenizers.Split(Regex(pattern), "removed")
  left = set()
  for piece, _ in split.pre_tokenize_str("".join(map(chr, CODES))):
    left.update(map(ord, piece))
  return set(CODES) - left


def edges(found):
  """No text has surrogates: they count as what is before them."""
  result, inside = [], False
  for code in CODES:
    if (code in found) != inside:
      result.append(f"{code:x}")
      inside = not inside
  return " ".join(result)


def main():
  classes = {r"\s": members(r"\s"), r"\d": members(r"\d")}
  for category in CATEGORIES:
    classes[rf"\p{{{category}}}"] = members(rf"\p{{{category}}}")
  for major in "LMNPSZC":
    parts = [classes[rf"\p{{{c}}}"] for c in CATEGORIES if c[0] == major]
    assert members(rf"\p{{{major}}}") == set().union(*parts), major
  lines = [f"{json.dumps(name)}: {json.dumps(edges(found))}" for name, found in classes.items()]
  print("{\n" + ",\n".join(lines) + "\n}")


main()
