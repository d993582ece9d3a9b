#!/usr/bin/env bash
# Skein in one command: sets the machine up, builds, starts a coordinator and 4 workers on this host, asks them for one
# answer, shows the plan and the speed, and ends all that it started.
#   scripts/demo.sh [--bin DIR]
#   --bin: take the programs that lie in DIR (as in bazel-bin); no set-up, no build. In an unpacked package this is its bin.
set -euo pipefail
# shellcheck source=scripts/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

ranks=4
start_s=30  # for the coordinator to listen
stop_s=30   # for coordinator and workers to end when asked

bin=''
case ${1:-} in
  '') ;;
  --bin)
    bin=${2:-}
    [[ -n $bin ]] || misuse "--bin needs a folder"
    shift 2
    ;;
esac
(($# == 0)) || misuse "unknown argument '$1'"
[[ -n $bin || ! -f bin/worker ]] || bin=$PWD/bin

# What the programs said, when something went wrong: their logs go with the private folder.
fail() {
  local log
  for log in coordinator workers; do
    [[ ! -s $work/$log.log ]] || { say "--- the last words of the $log:" && tail -n 20 "$work/$log.log"; } >&2
  done
  die "$@"
}

# Waits until a file is there, as long as a process lives. usage: appears FILE PID SECONDS
appears() {
  local deadline=$((SECONDS + $3))
  until [[ -s $1 ]]; do
    kill -0 "$2" 2>/dev/null && ((SECONDS < deadline)) || return 1
    sleep 0.05
  done
}

# Waits for a child that should end by itself, with status 0. usage: ends NAME PID
ends() {
  local status=0
  gone "$2" "$stop_s" || fail "the $1 did not end within $stop_s s"
  finish "$2" || status=$?
  ((status == 0)) || fail "the $1 ended with status $status"
}

# Runs a client's command, as long as coordinator and workers live. usage: ask COMMAND FLAG...
ask() {
  local status=0 command=$1
  shift
  start "$skein" "$command" --coordinator "$address" "$@"
  finish "$child" "$coordinator" "$workers" || status=$?
  [[ $ended != "$coordinator" ]] || fail "the coordinator ended early, with status $status"
  [[ $ended != "$workers" ]] || fail "the workers ended early, with status $status"
  ((status == 0)) || fail "'skein $command' ended with status $status"
}

if [[ -z $bin ]]; then
  bin=bazel-bin
  scripts/setup.sh
  say "build: //coordinator //client:skein //worker (a first build takes minutes)"
  build //coordinator //client:skein //worker || die "the build failed"
fi
has_programs "$bin" coordinator/coordinator client/skein worker/worker
skein=$(program "$bin" client/skein)
worker_program=$(program "$bin" worker/worker)

export HOME=${HOME:-$work}  # Open MPI 5 asks for one
patience_s=5  # what runs from here on ends at once when it is asked
# shellcheck source=scripts/env.sh
. scripts/env.sh
# Open MPI's shared memory belongs to the private folder, too.
export OMPI_MCA_btl_vader_backing_directory=$work OMPI_MCA_btl_sm_backing_directory=$work

start "$(program "$bin" coordinator/coordinator)" --model=checkpoints/bard --listen=127.0.0.1:0 --port-file "$work/address" \
  >"$work/coordinator.log" 2>&1
coordinator=$child
appears "$work/address" "$coordinator" "$start_s" || fail "the coordinator did not listen"
address=$(<"$work/address")

say "run: coordinator on $address, mpirun with $ranks workers"
start mpirun -np "$ranks" "$worker_program" --coordinator "$address" >"$work/workers.log" 2>&1
workers=$child

ask status --wait 60s
say
ask generate --prompt "ROMEO:" --max-tokens 120 --seed 7

say
send TERM "$coordinator"
ends coordinator "$coordinator"
ends workers "$workers"
say "done: coordinator and workers ended"
