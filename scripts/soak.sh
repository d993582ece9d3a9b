#!/usr/bin/env bash
# The soaks at full size: 2,000 requests of 64 clients; 64 streams over ten kills and two stops.
#   scripts/soak.sh
set -euo pipefail
# shellcheck source=scripts/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

(($# == 0)) || misuse "unknown argument '$1'"
bazel_limits
soak() { run bazel test "${bazel_flags[@]}" --test_output=streamed --cache_test_results=no --test_timeout=3600 "$@"; }
soak //tests/soak:load_soak_test --test_arg=--requests=2000
soak //tests/soak:recovery_soak_test --test_arg=--kills=10 --test_arg=--stops=2
