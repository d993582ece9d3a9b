#!/usr/bin/env bash
# Holds what plans count for each rank against what the system tells: the most that the process ever had of the host's memory
# (Pss, sampled from its start through loading to the end of a load) and, where ranks compute on GPUs, what NVML tells of
# theirs. Each rank needs a GPU of its own that nobody else uses. Fails where a rank has more than 3% more or less than was
# planned, and more than 16 MiB: of tiny models the rest is how many processes share the pages of libraries. Takes some 10 s
# for each layout, and as much memory as the models.
#   scripts/memory.sh [--bin DIR] [MODEL LAYOUT]...
#   --bin: where the programs are, as in bazel-bin
#   MODEL LAYOUT: a folder and a layout; without any, checkpoints/bard in several and, of a built tree, a model of 2.4 GiB
set -euo pipefail
# shellcheck source=scripts/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

most_percent=3
most_mib=16
wait_s=120  # for a model to be loaded
# Few enough tokens for each page to be written within seconds: pages that nobody wrote take nothing on cores.
sequences=4
context=256
bin=bazel-bin
[[ ! -d bin ]] || bin=bin  # of a package
cases=()
[[ -z ${CUDA_VISIBLE_DEVICES:-} ]] || die "CUDA_VISIBLE_DEVICES is set: which of NVML's GPUs are the ranks'? Unset it"
while (($# > 0)); do
  case $1 in
    --bin)
      [[ -n ${2:-} ]] || misuse "--bin needs a folder"
      bin=$(given "$2")
      ;;
    -*) misuse "unknown argument '$1'" ;;
    *)
      [[ -n ${2:-} ]] || misuse "'$1' needs a layout behind it, like tp=2"
      cases+=("$(given "$1") $2")
      ;;
  esac
  shift 2
done
has_programs "$bin" coordinator/coordinator client/skein worker/worker
skein=$(program "$bin" client/skein)
if ((${#cases[@]} == 0)); then
  models=(checkpoints/bard)
  if [[ -x $(program "$bin" tests/perf/write_model) ]]; then
    run "$(program "$bin" tests/perf/write_model)" synthetic:llama3-1b "$work/llama3-1b" checkpoints/bard >/dev/null || die "cannot write a model"
    models+=("$work/llama3-1b")
  fi
  for model in "${models[@]}"; do
    for layout in tp=1,pp=1 tp=2,pp=1 tp=1,pp=2; do cases+=("$model $layout"); done
  done
fi
export HOME=${HOME:-$work}  # Open MPI 5 asks for one
# shellcheck source=scripts/env.sh
. scripts/env.sh

# MiB that each GPU has used, one a line.
used_of_gpus() { nvidia-smi --query-gpu=memory.used --format=csv,noheader,nounits 2>/dev/null || true; }

# usage: watch_host MPIRUN FILE: the most Pss that each of its ranks has, until a signal; then "PID BYTES" lines.
watch_host() {
  exec python3 - "$1" "$2" <<'PYTHON'
import glob, signal, sys, time
mpirun, file = sys.argv[1:]
most, asked = {}, False
def stop(*_):
    global asked
    asked = True
signal.signal(signal.SIGTERM, stop)
def is_rank(stat):  # its parent is the second field behind the name
    return stat.rpartition(")")[2].split()[1] == mpirun
while not asked:
    for path in glob.glob("/proc/[0-9]*/stat"):
        pid = path.split("/")[2]
        try:
            if not is_rank(open(path, errors="replace").read()):
                continue
            for line in open(f"/proc/{pid}/smaps_rollup"):
                if line.startswith("Pss:"):
                    most[pid] = max(most.get(pid, 0), int(line.split()[1]) << 10)
        except OSError:
            pass  # it has ended
    time.sleep(0.05)
open(file, "w").writelines(f"{pid} {pss}\n" for pid, pss in most.items())
PYTHON
}

missed=0
printf '%-28s %-14s %5s %-5s %11s %11s %7s\n' model layout rank of planned used error
# usage: hold MODEL LAYOUT
hold() {
  local ranks=1 part before status=0
  for part in ${2//,/ }; do ranks=$((ranks * ${part#*=})); done
  before=$(used_of_gpus)
  rm -f "$work/address"
  start "$(program "$bin" coordinator/coordinator)" --model="$1" --layout="$2" --listen=127.0.0.1:0 --port-file="$work/address" \
    --max-num-seqs="$sequences" --context-length="$context" >"$work/coordinator.log" 2>&1
  local coordinator=$child
  until [[ -s $work/address ]]; do
    [[ -d /proc/$coordinator ]] || { cat "$work/coordinator.log" >&2 && die "the coordinator ended"; }
    sleep 0.05
  done
  address=$(<"$work/address")
  start mpirun -np "$ranks" "$(program "$bin" worker/worker)" --no-probe --coordinator="$address" >"$work/workers.log" 2>&1
  local workers=$child
  start watch_host "$workers" "$work/host"
  local watch=$child
  run "$skein" status --coordinator="$address" --wait="${wait_s}s" >"$work/status.log" 2>&1 || { cat "$work"/*.log >&2 && die "no replica serves"; }
  run "$skein" bench serve --coordinator="$address" --concurrency="$sequences" --requests="$((3 * sequences))" --prompt-tokens="$((context - 16))" --answer-tokens=16 \
    >"$work/load.log" 2>&1 || die "no load: $(cat "$work/load.log")"
  "$skein" status --coordinator="$address" --json >"$work/status.json"
  send TERM "$watch"
  finish "$watch" || die "nothing watches the host's memory"
  python3 - "$1" "$2" "$most_percent" "$most_mib" "$work/status.json" "$work/host" "$before" "$(used_of_gpus)" <<'PYTHON' || status=$?
import json, os, sys
model, layout, most, most_mib, status, host, before, after = sys.argv[1:]
of_host = dict(line.split() for line in open(host))
job = json.load(open(status))["jobs"][0]
pids = {rank.get("rank", 0): rank["pid"] for rank in job["ranks"]}
used = [(int(b) - int(a)) << 20 for a, b in zip(before.split(), after.split())]
missed = False
def show(rank, of, planned, found):
    global missed
    error = 100 * (planned / found - 1)
    off = abs(error) > float(most) and abs(planned - found) > int(most_mib) << 20
    missed = missed or off
    print("%-28s %-14s %5d %-5s %7.1f MiB %7.1f MiB %+6.1f%%%s" %
          (os.path.basename(model), layout, rank, of, planned / 2**20, found / 2**20, error, "  MISSED" if off else ""))
for rank in job["plan"]["ranks"]:
    number = rank.get("rank", 0)
    if rank["device"].get("kind") == "cuda":
        show(number, "GPU", int(rank["memory_bytes"]), used[number])
    pid = str(pids[number])
    if pid not in of_host:
        sys.exit(f"rank {number}, process {pid}, is no child of mpirun, or its /proc/{pid}/smaps_rollup cannot be read")
    show(number, "host", int(rank["host_bytes"]), int(of_host[pid]))
sys.exit(3 if missed else 0)
PYTHON
  ((status != 1)) || die "no figures of $1 with $2"
  ((status == 0)) || missed=$((missed + 1))
  send TERM "$coordinator"
  finish "$coordinator" || die "the coordinator ended with status $?"
  finish "$workers" || die "the workers ended with status $?"
}
for each in "${cases[@]}"; do hold "${each% *}" "${each##* }"; done
((missed == 0)) || die "$missed of ${#cases[@]} layouts need more or less than was planned"
say "all ranks have what was planned, within $most_percent% or $most_mib MiB"
