#!/usr/bin/python3
"""Holds the dependencies of BUILD files and #include lines, or what visibility allows, against layers.txt.

  bazel query --output=xml --xml:default_values --noimplicit_deps //... >query.xml
  check_layers.py --query query.xml [--root DIR]...
  check_layers.py --visible FILE
  check_layers.py --folders

--root: where the sources of the queried packages lie (default: here). --visible: lines "USER USED", labels of a library and of
what it sees. Prints each forbidden edge; exits 1 if there is one. --folders: only prints the folders whose libraries may use
whatever third_party shows them.
"""

import argparse
import collections
import fnmatch
import os
import pathlib
import re
import sys
import xml.etree.ElementTree as ElementTree

Rule = collections.namedtuple("Rule", "label testonly inputs files")  # files: paths of its own sources
Table = collections.namedtuple("Table", "folders tests restricted")

INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]', re.MULTILINE)
SOURCES = (".h", ".cc", ".cu", ".cuh", ".inc")


def read_table(text):
    section, folders, tests, restricted = None, {}, [], []
    for line in text.splitlines():
        line = line.split("#")[0].strip()
        if not line:
            continue
        if line.startswith("["):
            section = line
        elif section == "[folders]":
            folder, *entries = line.split()
            folders[folder] = entries
        elif section == "[tests]":
            tests += line.split()
        else:
            things, _, users = line.partition(" : ")
            restricted.append((things.split(), users.split()))
    return Table(folders, tests, restricted)


def place(label):
    """The form of table entries: //a/b:c -> a/b:c, @x//:y -> @x:y."""
    return label.replace("//", "", 1)


def within(where, entry):
    """where: a/b:c (a target) or a/b (a folder)."""
    return entry == "*" or where == entry or where.startswith((entry + "/", entry + ":"))


def within_any(where, entries):
    return any(within(where, entry) for entry in entries)


def row_of(table, where):
    """(folder, entries) of the longest folder that holds it, or None."""
    rows = [(folder, entries) for folder, entries in table.folders.items() if within(where, folder)]
    return max(rows, key=lambda row: len(row[0]), default=None)


def may_use(table, user, testonly, used):
    """Why not, or None. user, used: targets or folders."""
    row = row_of(table, user)
    if row is None:
        return f"layers.txt has no row for {user}"
    folder, entries = row
    if not within_any(used, entries + [folder, "base"] + (table.tests if testonly else [])):
        return f"{folder} may not use {used}"
    for things, users in table.restricted:
        if not testonly and within_any(used, things) and not within_any(user, users):
            return f"{used} is for {', '.join(users)} only"
    return None


def may_include(table, user, testonly, header):
    for things, users in table.restricted:
        patterns = [thing[1:-1] for thing in things if thing.startswith("<")]
        if not testonly and any(fnmatch.fnmatch(header, p) for p in patterns) and not within_any(user, users):
            return f"<{header}> is for {', '.join(users)} only"
    return None


def read_query(text):
    # Bazel writes XML 1.1, which Python's parser refuses, though nothing in it needs 1.1.
    root = ElementTree.fromstring(text.replace('version="1.1"', 'version="1.0"', 1))
    for element in root.iter("rule"):
        label = element.get("name")
        inputs = [i.get("name") for i in element.iter("rule-input")]
        testonly = any(b.get("name") == "testonly" and b.get("value") == "true" for b in element.iter("boolean"))
        testonly = testonly or element.get("class").endswith("_test")
        package = place(label).split(":")[0] + ":"
        files = [place(i).replace(":", "/") for i in inputs if place(i).startswith(package) and i.endswith(SOURCES)]
        yield Rule(label, testonly, inputs, files)


def forbidden_edges(table, rules):
    for rule in rules:
        for used in rule.inputs:
            why = may_use(table, place(rule.label), rule.testonly, place(used))
            if why:
                yield f"{rule.label} -> {used}: {why}"


def forbidden_includes(table, rules, roots):
    # A file is a test's when only tests are made of it.
    owners = collections.defaultdict(list)
    for rule in rules:
        for path in rule.files:
            owners[path].append(rule)
    folders = {folder.split("/")[0] for folder in table.folders}
    for path, owned_by in sorted(owners.items()):
        source = next((root / path for root in roots if (root / path).is_file()), None)
        if source is None:
            continue  # generated
        testonly = all(rule.testonly for rule in owned_by)
        for quote, header in INCLUDE.findall(source.read_text(encoding="utf-8")):
            for user in sorted({place(rule.label) for rule in owned_by}):
                why = may_include(table, user, testonly, header)
                if not why and quote == '"' and header.split("/")[0] in folders:
                    why = may_use(table, user, testonly, os.path.dirname(header))
                if why:
                    yield f"{path}: #include {header}: {why}"
                    break


def forbidden_views(table, lines):
    for user, used in (line.split() for line in lines):
        why = may_use(table, place(user), False, place(used))
        if why:
            yield f"{used} is visible to {user}: {why}"


def main(argv):
    here = pathlib.Path(__file__).resolve().parent
    parser = argparse.ArgumentParser()
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--query", type=pathlib.Path)
    what.add_argument("--visible", type=pathlib.Path)
    what.add_argument("--folders", action="store_true")
    parser.add_argument("--root", action="append", type=pathlib.Path)
    args = parser.parse_args(argv)
    table = read_table((here / "layers.txt").read_text(encoding="utf-8"))
    if args.folders:
        print("\n".join(folder for folder, entries in table.folders.items() if "third_party" in entries))
        return 0
    if args.visible:
        checked = args.visible.read_text(encoding="utf-8").splitlines()
        found = list(forbidden_views(table, checked))
    else:
        checked = list(read_query(args.query.read_text(encoding="utf-8")))
        found = list(forbidden_edges(table, checked))
        found += forbidden_includes(table, checked, args.root or [pathlib.Path(".")])
    for edge in found:
        print(edge)
    if not checked:
        print("the query holds no target")
    return 1 if found or not checked else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
