#!/usr/bin/env python3
"""Writes the two tables of model/template/testdata: what Jinja2, as transformers sets it up, makes of templates.

    pip install transformers jinja2
    tests/golden/make_chat_templates.py        # CPU, a minute

templates_expected.json: each of templates/*.jinja over every other conversation of conversations.json (the first template
has the even ones, the second the odd ones, and so on). snippets_expected.json: each snippet of snippets.json over its values.
A row is {"text"}, {"raised": the message of raise_exception}, or {"refused": "parse" or "render"}.
"""

import json
import pathlib

import jinja2
import transformers

import chat_template_oracle

DATA = pathlib.Path(__file__).resolve().parent.parent.parent / "model/template/testdata"
MADE_WITH = {"jinja2": jinja2.__version__, "transformers": transformers.__version__}


def write(name, table):
    head = json.dumps({"made_with": MADE_WITH, "now": chat_template_oracle.NOW})[1:-1]
    rows = ",\n".join(json.dumps(row) for row in table)
    (DATA / name).write_text("{" + head + ', "rows": [\n' + rows + "\n]}\n")
    print(f"{name}: {len(table)} rows, {sum('text' in row for row in table)} of them texts")


def template_rows():
    conversations = json.loads((DATA / "conversations.json").read_text())
    for i, path in enumerate(sorted((DATA / "templates").glob("*.jinja"))):
        source = path.read_bytes().decode()
        for conversation in conversations[i % 2::2]:
            values = conversation["user"] | conversation["trusted"]
            yield {"template": path.stem, "conversation": conversation["name"]} | chat_template_oracle.outcome(source, values)


def snippet_rows():
    snippets = json.loads((DATA / "snippets.json").read_text())
    for group, sources in snippets["groups"].items():
        for source in sources:
            yield {"group": group, "source": source} | chat_template_oracle.outcome(source, snippets["values"])


if __name__ == "__main__":
    write("templates_expected.json", list(template_rows()))
    write("snippets_expected.json", list(snippet_rows()))
