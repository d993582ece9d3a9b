#!/usr/bin/env bash
# Keeps a model served: starts N jobs (an mpirun each), and a dead one again, after a wait that doubles until the job
# has served for a while. A job that the coordinator names as lost, or that does not come to it, is ended by force first. A
# job that ends with status 0, as after the coordinator's drain, stays ended; flags that a program refuses (status 2) end
# all of this.
#   scripts/launch.sh [--jobs N] [--ranks R] [--coordinator HOST:PORT] [--model DIR] [--bin DIR]
#                     [--first-wait S] [--longest-wait S] [--reset-after S] [--start-timeout S]
#                     [--mpirun PROGRAM] [--hostfile FILE] [--mpirun-arg=ARGUMENT]... [--coordinator-flag=FLAG]...
#                     [--require-start] [--log-level LEVEL] [-- WORKER FLAGS...]
#   --jobs, --ranks: so many jobs (1) of so many ranks each (1)
#   --coordinator: where it listens (127.0.0.1:50051); with --model, one is started there and kept up in the same way, also
#     when it runs and does not answer for 10 s
#   --bin: where the programs are (bazel-bin, or the bin of an unpacked package)
#   --first-wait, --longest-wait, --reset-after: seconds (0.5, 30, 10)
#   --start-timeout: seconds (60) for all ranks of a job to come to the coordinator, and for a coordinator's first answer
#   --mpirun, --hostfile, --mpirun-arg: what starts the ranks, on which hosts (this one), and what else it is told
#   --coordinator-flag: a flag more for the coordinator
#   --require-start: end all when a program fails before any job has served
#   --log-level: how much this logs about itself (info)
# TERM or Ctrl-C ends all that was started, by a drain where the coordinator is one of it; a second one ends it at once. The
# status is 0 only when all jobs have ended with 0, and 128 + the signal after a signal.
# It is the program supervisor/supervisor, which does the work, with the settings of scripts/env.sh.
set -euo pipefail

misuse() {
  echo "launch.sh: $*; scripts/launch.sh --help tells what there is" >&2
  exit 2
}

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
bin=''
for ((i = 1; i <= $#; ++i)); do
  case ${!i} in
    --) break ;;
    -h | --help)
      sed -n '2,/^[^#]/s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"
      exit 0
      ;;
  esac
done
# Each flag has a value.
for ((i = 1; i <= $#; ++i)); do
  flag=${!i}
  case $flag in
    --) break ;;
    --require-start) continue ;;
    --*=*) value=${flag#*=} ;;
    --*)
      i=$((i + 1))
      value=${!i:-}
      ;;
    *) misuse "unknown argument '$flag'" ;;
  esac
  [[ -n $value ]] || misuse "${flag%%=*} needs a value"
  [[ ${flag%%=*} != --bin ]] || bin=$value
done
if [[ -z $bin ]]; then
  bin=$root/bazel-bin
  [[ ! -f $root/bin/worker ]] || bin=$root/bin
  set -- --bin "$bin" "$@"
fi
supervisor=$bin/supervisor/supervisor
[[ ! -f $bin/supervisor ]] || supervisor=$bin/supervisor
for program in worker/worker supervisor/supervisor; do
  [[ -f $bin/${program%/*} || -x $bin/$program ]] && continue
  echo "launch.sh: $bin/$program is not there; build it, or say --bin DIR" >&2
  exit 1
done

# shellcheck source=scripts/env.sh
. "$root/scripts/env.sh"
exec "$supervisor" "$@"
