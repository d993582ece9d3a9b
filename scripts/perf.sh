#!/usr/bin/env bash
# Measures what Skein promises in figures, beside this machine's ceilings in the same run; fails where a figure is missed.
# For a quiet machine with two cores or more; takes minutes, 8 GiB of memory and 3 GiB of disk (quant: 6 GiB).
#   scripts/perf.sh [--bin DIR] [--llama DIR] [FIGURE...]
#   --bin: take the programs that lie in DIR (as in bazel-bin); no build
#   --llama: the folder of llama.cpp's llama-bench, which quant needs
#   FIGURE: read, batching, prefix, host, pipeline, plan, quant; all but quant when none is named
set -euo pipefail
# shellcheck source=scripts/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

start_s=30  # for the coordinator to listen
rounds=5    # of what is compared, one after the other: what a shared machine gives changes; the median counts
short=101   # where a round takes a second or two: neighbours slow down one core or the other for seconds
bin=''
llama=''
while [[ ${1:-} == --bin || ${1:-} == --llama ]]; do
  [[ -n $(given "${2:-}") ]] || misuse "$1 needs a folder"
  if [[ $1 == --bin ]]; then bin=$(given "$2"); else llama=$(given "$2"); fi
  shift 2
done
figures=("$@")
((${#figures[@]} > 0)) || figures=(read batching prefix host pipeline plan)
for figure in "${figures[@]}"; do
  [[ $figure =~ ^(read|batching|prefix|host|pipeline|plan|quant)$ ]] || misuse "unknown figure '$figure'"
  [[ $figure != quant || -x $llama/llama-bench ]] || misuse "quant needs --llama, the folder of llama-bench"
done
if [[ -z $bin ]]; then
  bin=bazel-bin
  build //coordinator //client:skein //tests/perf:write_model //worker || die "the build failed"
fi
has_programs "$bin" coordinator/coordinator client/skein tests/perf/write_model worker/worker
skein=$bin/client/skein
bard=checkpoints/bard
large=$work/llama3-1b  # synthetic

export HOME=${HOME:-$work}  # Open MPI 5 asks for one
# shellcheck source=scripts/env.sh
. scripts/env.sh
export OMPI_MCA_btl_vader_backing_directory=$work OMPI_MCA_btl_sm_backing_directory=$work

missed=0
reached=''  # by the last measurement

# usage: compare NAME REACHED at-least|below ASKED
compare() {
  local verdict=reached
  awk -v a="$2" -v b="$4" -v how="$3" 'BEGIN { exit !(how == "below" ? a < b : a >= b) }' || verdict=MISSED
  printf '%-8s %-64s %10s (asked: %s %s)\n' "$verdict:" "$1" "$2" "${3/-/ }" "$4"
  [[ $verdict == reached ]] || missed=$((missed + 1))
}

# usage: calculate EXPRESSION
calculate() { awk "BEGIN { printf \"%.4g\", $1 }"; }

fail() {
  tail -n 20 "$work"/*.log >&2
  die "$@"
}

# Makes the large model's folder, once.
need_large() {
  [[ -d $large ]] || run "$bin/tests/perf/write_model" synthetic:llama3-1b "$large" "$bard" || die "cannot write $large"
}

# Starts a coordinator; sets $worker, the command of its ranks. usage: coordinate MODEL FLAG...
coordinate() {
  local deadline=$((SECONDS + start_s))
  rm -f "$work/address"
  start "$bin/coordinator/coordinator" --model="$1" --listen=127.0.0.1:0 --port-file "$work/address" "${@:2}" \
    >"$work/coordinator.log" 2>&1
  coordinator=$child
  until [[ -s $work/address ]]; do
    [[ -d /proc/$coordinator ]] && ((SECONDS < deadline)) || fail "the coordinator did not listen"
    sleep 0.05
  done
  address=$(<"$work/address")
  worker=("$bin/worker/worker" --coordinator "$address")
}

# Starts a job, and waits until it serves. usage: serve MPIRUN_ARGUMENT...
serve() {
  start mpirun "$@" >"$work/workers.log" 2>&1
  workers=$child
  run "$skein" status --coordinator "$address" --wait 300s >"$work/status.log" || fail "no replica serves"
}

stop() {
  send TERM "$coordinator"
  finish "$coordinator" || fail "the coordinator ended with status $?"
  finish "$workers" || fail "the workers ended with status $?"
}

# A load test; its JSON lies in $work/load.json. usage: load FLAG...
load() {
  run "$skein" bench serve --coordinator "$address" --seed "$RANDOM" --json "$work/load.json" "$@" >"$work/load.log" 2>&1 ||
    fail "the load test failed"
}

# usage: median NUMBER...
median() { printf '%s\n' "$@" | sort -g | sed -n "$((($# + 1) / 2))p"; }

# A value of a JSON file by its keys and indices. usage: value FILE KEY...
value() {
  python3 - "$@" <<'PYTHON'
import json, sys
value = json.load(open(sys.argv[1]))
for key in sys.argv[2:]:
    value = value[int(key) if isinstance(value, list) else key]
print(value)
PYTHON
}

# usage: tokens_per_second FLAG...
tokens_per_second() {
  load "$@"
  value "$work/load.json" tokens_per_second
}

# Decoding a bf16 model on 2 threads reads at this share of the memory's read bandwidth, or more.
figure_read() {
  run "$bin/worker/worker" bench decode --threads=2 --prompt-tokens=128 --min-fraction=0.70 || missed=$((missed + 1))
}

# Sets $reached to the median of what 8 streams give over one. usage: gain MODEL ANSWER_TOKENS REQUESTS_OF_ONE_STREAM ROUNDS FLAG...
gain() {
  local one eight ratios=() _
  for _ in $(seq "$4"); do
    one=$(tokens_per_second --concurrency 1 --warmup 1 --requests "$3" --prompt-tokens 8 --answer-tokens "$2" "${@:5}")
    eight=$(tokens_per_second --concurrency 8 --warmup 8 --requests "$(($3 * 8))" --prompt-tokens 8 --answer-tokens "$2" "${@:5}")
    ratios+=("$(calculate "$eight / $one")")
    say "${1##*/}${5:+, ${5#--}}: $(calculate "$one") tokens/s of 1 stream, $(calculate "$eight") of 8"
  done
  reached=$(median "${ratios[@]}")
}

# usage: batching MODEL ANSWER_TOKENS REQUESTS_OF_ONE_STREAM ROUNDS
batching() {
  local separate
  coordinate "$1" --context-length=512 --max-num-seqs=8
  serve -np 1 "${worker[@]}"
  gain "${@:1:3}" "$(($4 < 25 ? $4 : 25))" --separate-calls
  separate=$reached
  gain "$@"
  stop
  say "${1##*/}: $separate times the tokens/s by 8 streams in separate calls, which pay for a message a token"
  compare "${1##*/}: tokens/s of 8 streams over those of one, in one call" "$reached" at-least 2.5
}

figure_batching() {
  batching "$bard" 128 8 $short
  # What its steps alone give, beside the ceilings of both: bard stays in the cache (docs/performance.md).
  run "$bin/worker/worker" bench decode --model="$bard" --batch=1,8 --prompt-tokens=8 --decode-tokens=128
  need_large
  batching "$large" 32 1 $rounds
}

# usage: prefix MODEL REQUESTS
prefix() {
  local cold warm
  coordinate "$1" --context-length=512 --max-num-seqs=4
  serve -np 1 "${worker[@]}"
  load --concurrency 1 --warmup 1 --requests "$2" --prompt-tokens 401 --answer-tokens 1
  cold=$(value "$work/load.json" ttft p50)
  load --concurrency 1 --warmup 1 --requests "$2" --prompt-tokens 401 --answer-tokens 1 --shared-prefix 400
  warm=$(value "$work/load.json" ttft p50)
  stop
  say "${1##*/}: first token after $(calculate "$cold * 1000") ms cold, $(calculate "$warm * 1000") ms warm"
  compare "${1##*/}: time to first token, cold over a warm 400-token prefix" "$(calculate "$cold / $warm")" at-least 10
}

figure_prefix() {
  prefix "$bard" 16
  need_large
  prefix "$large" 3
}

# The leader's CPU seconds of scheduling and the steps, so far. usage: host_load; sets $host_s and $host_steps
host_load() {
  run "$skein" status --coordinator "$address" --json >"$work/status.json"
  host_s=$(value "$work/status.json" jobs 0 replicas 0 load host_seconds)
  host_steps=$(value "$work/status.json" jobs 0 replicas 0 load steps)
}

# usage: host LAYOUT RANKS
host() {
  local before_s before_steps
  coordinate "$bard" --context-length=512 --max-num-seqs=64 --layout="$1"
  serve -np "$2" "${worker[@]}"
  load --concurrency 64 --requests 64 --prompt-tokens 8 --answer-tokens 32
  host_load
  before_s=$host_s before_steps=$host_steps
  load --concurrency 64 --requests 64 --prompt-tokens 8 --answer-tokens 256
  host_load
  stop
  compare "bard, $1: host us per step at 64 sequences" \
    "$(calculate "($host_s - $before_s) / ($host_steps - $before_steps) * 1e6")" below 200
}

figure_host() {
  host tp=1,pp=1 1
  host tp=2,pp=1 2  # steps are sent, too
}

# Sets $reached, the tokens per second of one rank or of two, pinned to a core each. usage: pinned RANKS WORKER_FLAG...
pinned() {
  coordinate "$large" --context-length=256 --max-num-seqs=16 --layout=tp=1,pp="$1"
  if (($1 == 1)); then
    serve -np 1 taskset -c 0 "${worker[@]}" "${@:2}"
  else
    serve -np 1 taskset -c 0 "${worker[@]}" "${@:2}" : -np 1 taskset -c 1 "${worker[@]}" "${@:2}"
  fi
  reached=$(tokens_per_second --concurrency 16 --warmup 16 --requests 16 --prompt-tokens 8 --answer-tokens 32)
  stop
}

figure_pipeline() {
  local one two ratios=() _
  need_large
  for _ in $(seq $rounds); do
    pinned 1
    one=$reached
    pinned 2
    two=$reached
    ratios+=("$(calculate "$two / $one")")
    say "llama3-1b, 16 streams: $(calculate "$one") tokens/s of one rank, $(calculate "$two") of pp=2"
  done
  pinned 2 --no-overlap
  say "llama3-1b, 16 streams: $(calculate "$reached") tokens/s of pp=2 without overlap ($(calculate "$reached / $one") times one rank)"
  compare "llama3-1b: tokens/s of pp=2 over one rank, a core each" "$(median "${ratios[@]}")" at-least 1.6
}

# What planning knows of this host's cores: how long a probe takes, and how far its predictions of bard are from what is measured.
figure_plan() {
  local took runs=() middle worst wrong _
  for _ in 1 2 3; do
    run mpirun -np 4 "$bin/worker/worker" probe --device=cpu --json="$work/topology.json" >"$work/probe.log" 2>&1 || fail "the probe failed"
    took=$(sed -n 's/^measured in \([0-9.]*\) s$/\1/p' "$work/probe.log")
    [[ -n $took ]] || fail "the probe does not say how long it took"
    runs+=("$took")
  done
  compare "seconds that a probe of 4 ranks takes" "$(median "${runs[@]}")" below 5
  run "$skein" bench scale --worker "$bin/worker/worker" --model="$bard" --np=1,2,4 --batch=1,2,4,8 --all --rounds=10 \
    --json="$work/scale.json" 2>"$work/scale.log" || fail "the scaling experiment failed"
  # Errors are of steps' times: of tokens/s, predicted over measured, they are these.
  python3 - "$work/scale.json" >"$work/errors" <<'PYTHON'
import json, statistics, sys
found = json.load(open(sys.argv[1]))
errors = [abs(1 / (1 + run["error"]) - 1) for run in found["runs"]]
print(100 * statistics.median(errors), 100 * max(errors), found["order"]["wrong"])
PYTHON
  read -r middle worst wrong <"$work/errors"
  say "bard: tokens/s of layouts of 1, 2 and 4 ranks are predicted with an error of $(calculate "$middle")% at the median"
  compare "bard: error of predicted tokens/s at worst, in percent" "$(calculate "$worst")" below 25
  compare "bard: pairs of layouts that are predicted the wrong way round" "$wrong" below 1
}

# Tokens/s of both programs on one file, round by round: sets $ratio, $reached (tokens/s) and $share (of the ceiling), each the
# median. usage: beside_llama FILE decode|prefill
beside_llama() {
  local ours theirs ratios=() rates=() shares=() tests=(-p 128 -n 0) flags=(--prompt-tokens=128) _
  if [[ $2 == decode ]]; then
    tests=(-p 0 -n 32)
    flags=(--prompt-tokens=1 --decode-tokens=32)
  fi
  for _ in $(seq $rounds); do
    run "$bin/worker/worker" bench "$2" --device=cpu --threads=2 --model="$1" "${flags[@]}" --json="$work/ours.json" \
      >"$work/bench.log" 2>&1 || fail "worker bench failed"
    run "$llama/llama-bench" -m "$1" -t 2 -r 3 "${tests[@]}" -o json >"$work/theirs.json" 2>"$work/llama.log" ||
      fail "llama-bench failed"
    ours=$(value "$work/ours.json" rows 0 tokens_per_s)
    theirs=$(value "$work/theirs.json" 0 avg_ts)
    ratios+=("$(calculate "$ours / $theirs")")
    rates+=("$ours")
    shares+=("$(value "$work/ours.json" rows 0 fraction)")
  done
  ratio=$(median "${ratios[@]}") reached=$(median "${rates[@]}") share=$(median "${shares[@]}")
}

# Either is enough. usage: either NAME ASKED_RATIO ASKED_SHARE
either() {
  say "$1: $reached tokens/s, $ratio times llama.cpp's, $share of its ceiling"
  if awk -v r="$ratio" -v a="$2" 'BEGIN { exit !(r < a) }'; then
    compare "$1: share of its ceiling (llama.cpp: $ratio, asked $2)" "$share" at-least "$3"
  else
    compare "$1: tokens/s over llama.cpp's" "$ratio" at-least "$2"
  fi
}

# Quantised weights on 2 threads, beside llama.cpp on the same files.
figure_quant() {
  local type file ratio share loads=() _
  need_large
  run "$bin/client/skein" convert "$large" "$work/BF16.gguf" >"$work/convert.log" || fail "skein convert failed"
  rm -r "$large"
  for type in BF16 Q8_0 Q4_0 Q4_K_S Q6_K; do
    file=$work/$type.gguf
    [[ -f $file ]] || run "$bin/client/skein" quantize "$work/BF16.gguf" "$file" --type="$type" >"$work/quantize.log" ||
      fail "skein quantize failed"
    beside_llama "$file" decode
    either "1B $type, decode" 1.1 0.85
    if [[ $type =~ ^(BF16|Q8_0|Q4_K_S)$ ]]; then
      beside_llama "$file" prefill
      either "1B $type, prefill of 128" 1.0 0.80
    fi
    [[ $type =~ ^(BF16|Q8_0)$ ]] || rm "$file"
  done
  for _ in $(seq $rounds); do
    run "$bin/worker/worker" bench prefill --device=cpu --threads=2 --model="$work/Q8_0.gguf" --prompt-tokens=1 \
      --json="$work/ours.json" >"$work/bench.log" 2>&1 || fail "worker bench failed"
    loads+=("$(value "$work/ours.json" load_seconds)")
  done
  compare "1B Q8_0: seconds to load from the page cache" "$(median "${loads[@]}")" below 1.0
}

for figure in "${figures[@]}"; do "figure_$figure"; done
((missed == 0)) || die "$missed figures were missed"
