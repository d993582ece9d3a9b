#!/usr/bin/env bash
# Keeps a model served: starts N jobs (an mpirun each), and a dead one again, after a wait that doubles until the job
# has served for a while. A job that ends with status 0, as after the coordinator's drain, stays ended; flags that a
# program refuses (status 2) end all of this.
#   scripts/launch.sh [--jobs N] [--ranks R] [--coordinator HOST:PORT] [--model DIR] [--bin DIR]
#                     [--first-wait S] [--longest-wait S] [--reset-after S] [-- WORKER FLAGS...]
#   --jobs, --ranks: so many jobs (1) of so many ranks each (1)
#   --coordinator: where it listens (127.0.0.1:50051); with --model, one is started there and kept up in the same way
#   --bin: where the programs are (bazel-bin)
#   --first-wait, --longest-wait, --reset-after: seconds (0.5, 30, 10)
# TERM or Ctrl-C ends all that was started, by a drain where the coordinator is one of it; a second one ends it at once.
# A job serves when its ranks have logged that they are loaded: leave their --log-level at info.
# shellcheck disable=SC2317  # functions that `start` and traps call
set -euo pipefail
# shellcheck source=scripts/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

jobs=1
ranks=1
address=127.0.0.1:50051
model=''
bin=bazel-bin
first_wait_ms=500
longest_wait_ms=30000
reset_after_ms=10000

# usage: count TEXT FLAG
count() {
  [[ $1 =~ ^[1-9][0-9]{0,3}$ ]] || misuse "$2: '$1' is not a number from 1 to 9999"
  say "$1"
}

# Seconds with up to three decimals, in ms. usage: milliseconds TEXT FLAG
milliseconds() {
  [[ $1 =~ ^([0-9]{1,6})(\.([0-9]{1,3}))?$ ]] || misuse "$2: '$1' is not a number of seconds, like 0.5"
  local thousandths=${BASH_REMATCH[3]}000
  say $((10#${BASH_REMATCH[1]} * 1000 + 10#${thousandths:0:3}))
}

seconds() { printf '%d.%03d' $(($1 / 1000)) $(($1 % 1000)); }

now_ms() { say $((${EPOCHREALTIME/[.,]/} / 1000)); }

tell() {
  local ms
  ms=$(now_ms)
  printf '%(%H:%M:%S)T.%03d launch | %s\n' $((ms / 1000)) $((ms % 1000)) "$*"
}

# Passes on what a program says, and writes down when it said for the COUNTth time that it serves. It ends with the program,
# not by the signal that ends this one. usage: pass_on NAME MARK COUNT FILE
pass_on() {
  local line missing=$3
  trap '' TERM INT HUP
  while IFS= read -r line || [[ -n $line ]]; do
    printf '%s: %s\n' "$1" "$line"
    [[ $line == *"$2"* ]] || continue
    missing=$((missing - 1))
    ((missing != 0)) || now_ms >"$4"
  done
}

# Runs a command until it ends with 0, or with 2: it refuses its flags, as it would the next time. Runs in a group of its
# own with it, so that a signal reaches both.
# usage: keep_up NAME MARK COUNT COMMAND...
keep_up() {
  local name=$1 mark=$2 times=$3 since_file=$work/$1.since wait_ms=$first_wait_ms served_ms status stop='' own
  shift 3
  trap 'stop=1' TERM INT HUP
  while [[ -z $stop ]]; do
    rm -f "$since_file"
    tell "$name starts"
    # A folder of its own: Open MPI 5 fails where an mpirun of the same pid was killed and left one of the same name.
    own=$(mktemp -d "$work/XXXXXX")
    if TMPDIR=$own "$@" 2>&1 | pass_on "$name" "$mark" "$times" "$since_file"; then status=0; else status=${PIPESTATUS[0]}; fi
    rm -rf "$own"
    if ((status == 0 || status == 2)) || [[ -n $stop ]]; then
      tell "$name ended with status $status"
      return "$status"
    fi
    served_ms=0
    [[ ! -s $since_file ]] || served_ms=$(($(now_ms) - $(<"$since_file")))
    ((served_ms < reset_after_ms)) || wait_ms=$first_wait_ms
    tell "$name died with status $status after $(seconds "$served_ms") s of service; starts again in $(seconds "$wait_ms") s"
    sleep "$(seconds "$wait_ms")" &
    wait "$!" || true  # a signal ends it
    wait_ms=$((wait_ms * 2 < longest_wait_ms ? wait_ms * 2 : longest_wait_ms))
  done
  return 1  # told to end while it was down
}

# Until a child ends, with its status; with it where it was misused. usage: await CHILD
await() {
  local status
  while true; do
    status=0
    wait "$1" || status=$?
    [[ -d /proc/$1 ]] || break  # else a signal ended the waiting
  done
  ((status != 2)) || exit 2
  return "$status"
}

# The first signal, where there is a coordinator to drain: it tells the jobs to end, and no dead one starts again.
signalled=''
started=()
drain() {
  local job
  signalled=$1
  trap 'exit 129' HUP
  trap 'exit 130' INT
  trap 'exit 143' TERM
  tell "draining; a second signal ends all at once"
  for job in "${started[@]}"; do send TERM "$job"; done  # not its group, in which the job goes on
  send TERM "-$coordinator"
}

while (($# > 0)); do
  [[ $1 != -- ]] || { shift && break; }
  value=${2:-}
  case $1 in
    --jobs) jobs=$(count "$value" "$1") ;;
    --ranks) ranks=$(count "$value" "$1") ;;
    --coordinator) address=$value ;;
    --model) model=$(given "$value") ;;
    --bin) bin=$(given "$value") ;;
    --first-wait) first_wait_ms=$(milliseconds "$value" "$1") ;;
    --longest-wait) longest_wait_ms=$(milliseconds "$value" "$1") ;;
    --reset-after) reset_after_ms=$(milliseconds "$value" "$1") ;;
    *) misuse "unknown argument '$1'" ;;
  esac
  [[ -n $value ]] || misuse "$1 needs a value"
  shift 2
done
has_programs "$bin" worker/worker ${model:+coordinator/coordinator}

export HOME=${HOME:-$work}  # Open MPI 5 asks for one
# shellcheck source=scripts/env.sh
. scripts/env.sh
# Open MPI's shared memory belongs to the private folder, too.
export OMPI_MCA_btl_vader_backing_directory=$work OMPI_MCA_btl_sm_backing_directory=$work

coordinator=''
if [[ -n $model ]]; then
  start keep_up coordinator ' | listening on ' 1 "$bin/coordinator/coordinator" --model "$model" --listen "$address"
  coordinator=$child
  trap 'drain 129' HUP
  trap 'drain 130' INT
  trap 'drain 143' TERM
fi
for ((job = 1; job <= jobs; ++job)); do
  start keep_up "job $job" ' | loaded ' "$ranks" mpirun -np "$ranks" "$bin/worker/worker" --coordinator "$address" "$@"
  started+=("$child")
done

# What no drain reaches is ended with this script: all jobs, where the coordinator was down or broke off.
drained=1
[[ -z $coordinator ]] || await "$coordinator" || drained=''
until_s=$((SECONDS + patience_s))
for job in "${started[@]}"; do
  if [[ -z $signalled ]]; then
    await "$job" || true
  elif [[ -n $drained ]]; then
    gone "$job" $((until_s - SECONDS)) || true
  fi
done
exit "${signalled:-0}"
