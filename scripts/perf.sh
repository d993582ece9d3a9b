#!/usr/bin/env bash
# Measures what Skein promises in figures, beside this machine's ceilings in the same run; fails where a figure is missed.
# For a quiet machine.
#   scripts/perf.sh
set -euo pipefail
# shellcheck source=scripts/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

# Decoding a bf16 model on 2 threads reads at this share of the memory's read bandwidth, or more.
min_read_fraction=0.70

build //worker || die "the build failed"
missed=0
run bazel-bin/worker/worker bench --model=synthetic:llama3-1b --threads=2 "--min-read-fraction=$min_read_fraction" || missed=1
((missed == 0)) || die "a figure was missed"
