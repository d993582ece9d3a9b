#!/usr/bin/env bash
# The tests under sanitizers: everything under asan and ubsan; under tsan the unit tests and what is tagged "tsan".
#   scripts/sanitize.sh [asan | tsan]    (default: both)
set -euo pipefail
# shellcheck source=scripts/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

# A sanitized test takes several times as long.
slow=("--test_timeout=300,900,1800,3600")

asan() { run scripts/test.sh --config=asan --config=ubsan "${slow[@]}" //...; }

tsan() {
  # Open MPI and its launcher are not instrumented, so that tests over mpirun show nothing.
  query --output=label 'kind(cc_test, //... except //tests/...) union attr(tags, "\btsan\b", //tests/...)' >"$work/targets"
  mapfile -t targets <"$work/targets"
  run scripts/test.sh --config=tsan "${slow[@]}" \
    "--test_env=TSAN_OPTIONS=ignore_noninstrumented_modules=1 suppressions=$PWD/scripts/tsan.supp" "${targets[@]}"
}

(($# <= 1)) || misuse "unknown argument '$2'"
case ${1:-both} in
  both) asan && tsan ;;
  asan | tsan) "$1" ;;
  *) misuse "unknown argument '$1'" ;;
esac
