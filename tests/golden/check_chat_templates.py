#!/usr/bin/env python3
"""Holds Skein's chat templates against Jinja2, as transformers sets it up, on published templates.

    pip install transformers jinja2
    bazel build //model/template:render_template
    check_chat_templates.py bazel-bin/model/template/render_template DIR

DIR holds *.jinja, as llama-cpp-python's source distribution does in vendor/llama.cpp/models/templates. Each is rendered over
each conversation of model/template/testdata; the texts are to be equal byte for byte, or both have to refuse, with the same
message if the template raised one.
"""

import argparse
import json
import os
import pathlib
import subprocess
import sys

import chat_template_oracle

CONVERSATIONS = pathlib.Path(__file__).resolve().parent.parent.parent / "model/template/testdata/conversations.json"


def ours(binary, source, conversations):
    lines = [json.dumps({"template": source, "user": c["user"], "trusted": c["trusted"], "now": chat_template_oracle.NOW})
             for c in conversations]
    done = subprocess.run([binary], input="\n".join(lines), capture_output=True, text=True, check=True,
                          env=os.environ | {"TZ": "UTC"})
    return [json.loads(line) for line in done.stdout.split("\n") if line]


def agrees(wanted, found):
    if "text" in wanted:
        return found.get("text") == wanted["text"]
    return "error" in found and found["error"] == wanted.get("raised", found["error"])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("binary", type=pathlib.Path)
    parser.add_argument("folder", type=pathlib.Path)
    args = parser.parse_args()
    conversations = json.loads(CONVERSATIONS.read_text())
    paths = sorted(args.folder.glob("*.jinja"))
    if not paths:
        sys.exit(f"no *.jinja in {args.folder}")
    wrong = texts = 0
    for path in paths:
        source = path.read_bytes().decode()
        differing = []
        for conversation, found in zip(conversations, ours(args.binary, source, conversations), strict=True):
            wanted = chat_template_oracle.outcome(source, conversation["user"] | conversation["trusted"])
            texts += "text" in wanted
            if not agrees(wanted, found):
                differing.append((conversation["name"], wanted, found))
        wrong += len(differing)
        print(f"{'WRONG' if differing else 'ok   '} {path.name}: {len(conversations) - len(differing)} of {len(conversations)}", flush=True)
        for name, wanted, found in differing[:3]:
            print(f"      {name}: {str(wanted)[:500]}\n      but {str(found)[:500]}")
    total = len(paths) * len(conversations)
    print(f"{len(paths)} templates: {total - wrong} of {total} agree, {texts} of them are texts")
    sys.exit(wrong > 0)


if __name__ == "__main__":
    main()
