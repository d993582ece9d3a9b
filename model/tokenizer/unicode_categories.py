"""Writes unicode_categories.inc: the general category of every code point, as Unicode 16 has it.

    python3 model/tokenizer/unicode_categories.py > model/tokenizer/unicode_categories.inc

Needs the Unicode Character Database 16.0.0: the standard library of Python 3.14 has it, and so has
the package unicodedata2, version 16.0.0, of PyPI.
"""

import sys

try:
  import unicodedata2 as unicodedata
except ImportError:
  import unicodedata

VERSION = "16.0.0"


def main():
  if unicodedata.unidata_version != VERSION:
    sys.exit(f"this Python has Unicode {unicodedata.unidata_version}, not {VERSION}")
  runs = []
  for code in range(0x110000):
    category = unicodedata.category(chr(code))
    if not runs or runs[-1][1] != category:
      runs.append((code, category))
  print(f"// Written by unicode_categories.py from Unicode {VERSION}: where each run of code points")
  print("// of one general category begins, and the category.")
  items = [f"{{0x{code:x},'{category[0]}','{category[1]}'}}," for code, category in runs]
  line = ""
  for item in items:
    if len(line) + len(item) > 100:
      print(line)
      line = ""
    line += item
  print(line)


main()
