#!/usr/bin/env bash
# Checks what no Bazel test can: formatting, layers, the scripts themselves.
#   scripts/check.sh [--self-test] [--report FILE]
#   --self-test: only show that the layer check finds what it forbids. Else that is one check of all.
#   --report: append a line "passed NAME" or "failed NAME" for each check.
set -euo pipefail
# shellcheck source=scripts/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

report=/dev/null self_test=''
while (($# > 0)); do
  case $1 in
    --self-test) self_test=1 ;;
    --report) report=${2:-} && shift ;;
    *) misuse "unknown argument '$1'" ;;
  esac
  [[ -n $report ]] || misuse "--report needs a file"
  shift
done

failures=0
# usage: check NAME FUNCTION, which prints what is wrong
check() {
  if "$2" >"$work/said" 2>&1; then
    say "ok: $1"
    say "passed $1" >>"$report"
  else
    say "FAILED: $1"
    cat "$work/said"
    say "failed $1" >>"$report"
    failures=$((failures + 1))
  fi
}

formatting() {
  git ls-files -z -- '*.h' '*.cc' '*.cu' '*.cuh' | xargs -0 clang-format-19 --dry-run -Werror 2>"$work/format" && return
  say "lines that clang-format-19 -i would change:"
  grep 'error:' "$work/format" | cut -d: -f1 | sort | uniq -c
  return 1
}

shell() { git ls-files -z -- '*.sh' '*.sbatch' .ci/run | xargs -0 shellcheck -x -S warning; }

# Default values tell which targets are testonly by their package.
query_layers() { query //... --noimplicit_deps --output=xml --xml:default_values "$@"; }

layers() { query_layers >"$work/query.xml" && scripts/check_layers.py --query "$work/query.xml"; }

# Plants a kernel that knows a model, MPI and the wire in a second root of packages; each must be found, and nothing else.
planted() {
  local plant=$work/plant
  mkdir -p "$plant/kernels/planted"
  cat >"$plant/kernels/planted/BUILD" <<'BUILD'
cc_library(name = "planted", srcs = ["planted.cc"], deps = ["//base:status", "//model/config:model_config"])
BUILD
  cat >"$plant/kernels/planted/planted.cc" <<'SOURCE'
#include "base/status_macros.h"
#include "model/config/model_config.h"
#include "proto/inference.pb.h"
#include <mpi.h>
SOURCE
  query_layers --package_path="%workspace%:$plant" >"$work/planted.xml" || return
  scripts/check_layers.py --query "$work/planted.xml" --root . --root "$plant" | grep -F kernels/planted | cut -d' ' -f1-3 >"$work/found"
  diff - "$work/found" <<'WANTED'
//kernels/planted:planted -> //model/config:model_config:
kernels/planted/planted.cc: #include model/config/model_config.h:
kernels/planted/planted.cc: #include proto/inference.pb.h:
kernels/planted/planted.cc: #include mpi.h:
WANTED
}

# What Bazel itself would let a library use that is planted in a folder.
visibility() {
  local plant=$work/views folder
  mapfile -t folders < <(scripts/check_layers.py --folders)
  for folder in "${folders[@]}"; do
    mkdir -p "$plant/$folder/planted"
    say 'cc_library(name = "planted")' >"$plant/$folder/planted/BUILD"
  done
  for folder in "${folders[@]}"; do
    query "visible(//$folder/planted, attr(testonly, 0, //...))" --package_path="%workspace%:$plant" >"$work/seen" || return
    sed "s|^|//$folder/planted:planted |" "$work/seen"
  done >"$work/visible"
  scripts/check_layers.py --visible "$work/visible"
}

# Tests and benches that need CUDA run only where someone runs them.
gpu_programs() {
  query 'attr(target_compatible_with, has_cuda, kind("cc_(test|binary)", //...)) except filter("[.]so$", //...)' >"$work/needs_cuda" || return
  awk '!/^#/ {print $2}' tests/gpu/programs.txt | sort -u >"$work/listed"
  sed 's|^//||; s|:|/|' "$work/needs_cuda" | sort | comm -23 - "$work/listed" | sed 's/$/: not in tests\/gpu\/programs.txt/' | { ! grep .; }
}

if [[ -z $self_test ]]; then
  check "formatting" formatting
  check "shell scripts" shell
  check "layers" layers
  check "programs that need a GPU: tests/gpu/run.sh knows each" gpu_programs
  check "layers: visibility shows no more than they allow" visibility
fi
check "layers: a planted forbidden edge is found" planted
exit $((failures > 0))
