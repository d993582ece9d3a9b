#!/usr/bin/env bash
# clang-tidy over all C++ sources.
#   scripts/tidy.sh [--changed] [--report FILE]
#   --changed: only over what changed since $SKEIN_TIDY_BASE (default: the commit before this one).
#   --report: append the line "passed clang-tidy" or "failed clang-tidy".
set -euo pipefail
# shellcheck source=scripts/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

changed='' report=/dev/null
while (($# > 0)); do
  case $1 in
    --changed) changed=1 ;;
    --report) report=${2:-} && shift ;;
    *) misuse "unknown argument '$1'" ;;
  esac
  [[ -n $report ]] || misuse "--report needs a file"
  shift
done

# Generated headers, and no more than these.
query --output=label 'kind(genrule, //...)' >"$work/generators"
mapfile -t generators <"$work/generators"
build "${generators[@]}" || die "the build failed"
scripts/compdb.sh

# CUDA sources are left to nvcc.
sources=('*.cc')
if [[ -n $changed ]]; then
  base=${SKEIN_TIDY_BASE:-HEAD~1}
  git rev-parse -q --verify "$base^{commit}" >/dev/null || die "there is no commit '$base' to compare with"
  git diff --name-only --diff-filter=d "$base" -- "${sources[@]}" >"$work/candidates"
else
  git ls-files -- "${sources[@]}" >"$work/candidates"
fi
# Only what this configuration compiles.
/usr/bin/python3 -c 'import json, sys
compiled = {command["file"] for command in json.load(open("compile_commands.json"))}
sys.stdout.writelines(line for line in sys.stdin if line.rstrip("\n") in compiled)' <"$work/candidates" >"$work/sources"

say "clang-tidy on $(wc -l <"$work/sources") files"
outcome=passed
run xargs -a "$work/sources" -d '\n' -r -n 1 -P "$(nproc)" clang-tidy-19 -p . --quiet \
  2> >(grep -v ' warnings* generated' >&2) || outcome=failed
say "$outcome clang-tidy" | tee -a "$report"
[[ $outcome == passed ]]
