#!/usr/bin/env bash
# Sets the machine up, checks, builds and tests everything. The last line is `N passed, N failed, N skipped`.
#   scripts/test.sh [--tidy] [BAZEL FLAG or TARGET]...
#   --tidy: clang-tidy, too, on what the last commit changed.
#   with arguments, targets and flags beside them: only these tests, no checks.
set -euo pipefail
# shellcheck source=scripts/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

tidy=''
[[ ${1:-} != --tidy ]] || { tidy=1 && shift; }

: >"$work/checks"
# usage: checks NAME COMMAND...: its report counts; without one, its exit status does.
checks() {
  local name=$1
  shift
  run "$@" || grep -q '^failed' "$work/checks" || say "failed $name" >>"$work/checks"
}

scripts/setup.sh --checks
(($# > 0)) || checks "scripts/check.sh" scripts/check.sh --report "$work/checks"

test_flags=() count_flags=()
if [[ -d ../shared ]]; then
  test_flags+=("--test_env=SKEIN_SHARED=$(cd ../shared && pwd -P)")
  count_flags+=(--shared)
fi
build_cuda() {
  say "bazel build --config=cuda //..."
  bazel build "${bazel_flags[@]}" --config=cuda //... && say "passed bazel build --config=cuda" >>"$work/checks"
}

all=$(($# == 0))
(($# > 0)) || set -- //...
say "bazel test $*"
bazel_limits
status=0
run bazel test --keep_going --test_summary=none "--build_event_json_file=$work/events" "${bazel_flags[@]}" "${test_flags[@]}" "$@" || status=$?

# What needs CUDA is built where nvcc is; tests that need a GPU are tests/gpu/run.sh's.
if ((all)) && [[ -x /usr/local/cuda/bin/nvcc ]]; then
  checks "bazel build --config=cuda" build_cuda
fi
[[ -z $tidy ]] || checks "clang-tidy" scripts/tidy.sh --changed --report "$work/checks"

say "took $SECONDS s"
scripts/count_tests.py --events "$work/events" --checks "$work/checks" --bazel-status "$status" "${count_flags[@]}"
