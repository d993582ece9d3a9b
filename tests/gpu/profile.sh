#!/usr/bin/env bash
# Shows that `worker bench --profile` marks kernels by layer and operation: Nsight Compute, asked for the range "attention" of
# one layer and for the draws, sees the kernels of these and no others, and none of steps behind the profile.
#   tests/gpu/profile.sh [--bin DIR]
#   --bin: where the worker is (the package's bin, or bazel-bin)
# For a machine with a GPU whose counters this user may read; takes a minute.
set -euo pipefail
script=tests/gpu/profile.sh
# shellcheck source=scripts/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/../../scripts/lib.sh"

bin=''
case ${1:-} in
  '') ;;
  --bin) bin=$(given "${2:-}") && [[ -n $bin ]] || misuse "--bin needs a folder" ;;
  *) misuse "unknown argument '$1'" ;;
esac
[[ -n $bin ]] || { [[ -d bin ]] && bin=$PWD/bin; } || bin=$PWD/bazel-bin
worker=$(program "$bin" worker/worker)
[[ -f $worker ]] || die "there is no worker in $bin"
ncu=$(PATH=$PATH:/usr/local/cuda/bin command -v ncu) || die "ncu, of the CUDA toolkit, is neither in PATH nor in /usr/local/cuda/bin"

# The kernels that ran in a range, with their counts: one prompt of 64 tokens, then decode steps. usage: kernels STEPS RANGE
kernels() {
  run "$ncu" --clock-control none --metrics gpu__time_duration.sum --csv --nvtx --nvtx-include "$2" \
    "$worker" bench decode --device=cuda --model=synthetic:llama3-1b --prompt-tokens=64 --decode-tokens=8 --profile="$1" \
    >"$work/ncu.csv" 2>"$work/ncu.log" || { tail -n 5 "$work/ncu.csv" "$work/ncu.log" >&2 && die "ncu failed"; }
  python3 - "$work/ncu.csv" <<'PYTHON'
import csv, re, sys
lines = [line for line in open(sys.argv[1], encoding="utf-8") if line.startswith('"')]
names = [row["Kernel Name"] for row in csv.DictReader(lines)]
names = [(re.findall(r"\w+Kernel\b", name) or [name])[0] for name in names]
print(", ".join(f"{names.count(name)} {name}" for name in sorted(set(names))) or "none")
PYTHON
}

# usage: expect STEPS RANGE PATTERN
failures=0
expect() {
  local seen
  seen=$(kernels "$1" "$2")
  if grep -qxE "$3" <<<"$seen"; then
    say "range '$2' of $1 step(s): $seen"
  else
    say "FAILED range '$2' of $1 step(s): $seen; wanted $3"
    failures=$((failures + 1))
  fi
}

attention='(Decode|CombineFew|CombineMany|Prefill|Warpgroup)Kernel'
expect 3 'layer 3/attention' "[0-9]+ $attention(, [0-9]+ $attention)*"
expect 3 'draws/' '3 GreedyDrawsKernel'
expect 1 'layer 3/attention' '1 (Prefill|Warpgroup)Kernel'
((failures == 0)) || die "$failures ranges hold other kernels"
