#!/usr/bin/env bash
# Writes compile_commands.json for clangd and clang-tidy.
#   scripts/compdb.sh
set -euo pipefail
# shellcheck source=scripts/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

(($# == 0)) || misuse "unknown argument '$1'"
run bazel aquery --noshow_progress "--ui_event_filters=-info,-debug" --output=jsonproto 'mnemonic("CppCompile", //...)' \
  >"$work/actions.json"
base=$(bazel info --noshow_progress output_base 2>/dev/null)
/usr/bin/python3 - "$work/actions.json" "$base" >compile_commands.json <<'PYTHON'
import json
import os
import sys

GCC_ONLY = ("-fno-canonical-system-headers", "-Wno-free-nonheap-object", "-Wunused-but-set-parameter")
actions, base = sys.argv[1:]
commands = {}
for action in json.load(open(actions, encoding="utf-8")).get("actions", []):
    arguments = [base + "/" + a if a.startswith("external/") else a for a in action["arguments"] if a not in GCC_ONLY]
    file = arguments[arguments.index("-c") + 1]
    if not file.startswith("bazel-out/"):
        commands.setdefault(file, {"directory": os.getcwd(), "file": file, "arguments": arguments})
json.dump(list(commands.values()), sys.stdout, indent=1)
PYTHON
