#!/usr/bin/env python3
"""Writes seeds for template_fuzz: each snippet of the table that Jinja2 answered, each template with conversations.

    tests/fuzz/template_seeds.py FOLDER
"""

import json
import pathlib
import sys

DATA = pathlib.Path(__file__).resolve().parents[2] / "model/template/testdata"
MOST_BYTES = 4096  # of an input, as scripts/fuzz.sh has it


def seeds():
    snippets = json.loads((DATA / "snippets.json").read_text(encoding="utf-8"))
    values = snippets["values"]
    for group in snippets["groups"].values():
        for text in group:
            yield text, {name: value for name, value in values.items() if name in text}
    conversations = json.loads((DATA / "conversations.json").read_text(encoding="utf-8"))
    for i, file in enumerate(sorted((DATA / "templates").iterdir())):
        text = file.read_text(encoding="utf-8")
        for conversation in conversations[i % 7::7]:
            yield text, conversation["user"]


def main():
    folder = pathlib.Path(sys.argv[1])
    for i, (text, user) in enumerate(seeds()):
        seed = text.encode() + b"\0" + json.dumps(user, ensure_ascii=False).encode()
        if len(seed) <= MOST_BYTES:
            (folder / f"seed{i:04}").write_bytes(seed)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main()
