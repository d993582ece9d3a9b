"""Writes utf8_table.json: bytes in hex, what Python decodes them to with errors="replace", and the
offset of the first byte that it calls invalid (left out when there is none).

  python3 make_utf8_table.py > utf8_table.json
"""

import json
import random


def samples():
  yield b""
  for byte in range(0x100):
    yield bytes([byte])
    yield bytes([0x41, byte, 0x42])
  # Each lead byte with seconds around every bound, cut off and followed by more.
  seconds = (0x00, 0x41, 0x7f, 0x80, 0x8f, 0x90, 0x9f, 0xa0, 0xbf, 0xc0, 0xf0, 0xff)
  for lead in (0xc0, 0xc1, 0xc2, 0xdf, 0xe0, 0xe1, 0xec, 0xed, 0xee, 0xef, 0xf0, 0xf1, 0xf3, 0xf4,
               0xf5, 0xf8, 0xfc, 0xff):
    for second in seconds:
      for tail in (b"", b"\x80", b"\xbf\x80", b"\x80\x80\x80", b"\x80A", b"\xe2\x82\xac", b"\xff"):
        yield bytes([lead, second]) + tail
  rng = random.Random(7)
  pieces = [b"a", b"\n", b"\0", "é".encode(), "€".encode(), "漢".encode(), "👍".encode(),
            "\U0010ffff".encode(), "\ufffd".encode(), "\ufeff".encode(), b"\x80", b"\xc3", b"\xe2\x82",
            b"\xf0\x9f", b"\xf0\x9f\x91", b"\xed\xa0\x80", b"\xed\xb0\x80", b"\xc0\x80", b"\xf4\x90\x80\x80"]
  for _ in range(400):
    yield b"".join(rng.choice(pieces) for _ in range(rng.randrange(1, 9)))
  for _ in range(200):
    yield rng.randbytes(rng.randrange(1, 12))


def main():
  rows = []
  for data in dict.fromkeys(samples()):
    row = {"hex": data.hex(), "text": data.decode("utf-8", errors="replace")}
    try:
      data.decode("utf-8")
    except UnicodeDecodeError as error:
      row["invalid_at"] = error.start
    rows.append(json.dumps(row, separators=(",", ":")))
  print("[\n" + ",\n".join(rows) + "]")


main()
