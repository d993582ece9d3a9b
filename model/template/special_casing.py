"""Writes special_casing.inc: the characters that become several in upper or title case.

    python3 model/template/special_casing.py > model/template/special_casing.inc
"""


def literal(text):
  return '"' + "".join(f"\\x{byte:02X}" for byte in text.encode()) + '"'


def main():
  print("// Written by special_casing.py: code point, upper case, title case.")
  for code in range(0x110000):
    if 0xD800 <= code < 0xE000:
      continue
    text = chr(code)
    if len(text.upper()) > 1 or len(text.title()) > 1:
      print(f"{{0x{code:04X}, {literal(text.upper())}, {literal(text.title())}}},")


main()
