#!/usr/bin/env bash
# What `skein plan --emit slurm` prints, submitted as it stands to a real Slurm: one controller and two hosts, each in
# network and UTS namespaces of its own. Needs root, Debian's slurmctld, slurmd and slurm-client, and built programs.
#   tests/slurm/run.sh
set -euo pipefail
cd "$(dirname "$0")/../.."
# shellcheck source=tests/fault/hosts.sh
. tests/fault/hosts.sh
# shellcheck source=tests/slurm/cluster.sh
. tests/slurm/cluster.sh
export PATH=$PATH:/usr/sbin:/sbin
[[ -x bazel-bin/client/skein ]] || { echo "$0: no programs: bazel build //coordinator //worker //client:skein" >&2; exit 1; }
enter_slurm "$@"
bin=$PWD/bazel-bin

# What a lone rank answers.
"$bin/coordinator/coordinator" --model=checkpoints/bard --listen=10.77.0.1:0 --insecure --port-file="$work/port" >"$work/alone.log" 2>&1 &
alone=$!
for _ in {1..200}; do [[ -s $work/port ]] && break; sleep 0.05; done
address=$(cat "$work/port")
skein() { "$bin/client/skein" "$@" --coordinator="$address"; }
generate() { skein generate --prompt=ROMEO: --max-tokens=64 --temperature=0; }
on host1 mpirun -np 1 "$bin/worker/worker" --no-probe --coordinator="$address" >"$work/lone.log" 2>&1 &
skein status --wait=60s >"$work/status.log" 2>&1 || fail "a lone rank does not serve"
generate >"$work/want"
kill -TERM "$alone"
wait "$alone"

# The hosts are measured, and the plan's script is submitted as it is printed, at a folder that both hosts see.
slurm host1 srun --mpi=pmix --nodes=2 --ntasks=4 --overcommit "$bin/worker/worker" probe \
  >"$work/hosts.json" 2>"$work/probe.log" || fail "no probe"
submit() { # FLAGS OF PLAN...
  "$bin/client/skein" plan --model="$PWD/checkpoints/bard" --topology="$work/hosts.json" --emit slurm "$@" >"$work/skein.sbatch" ||
    fail "no script"
  job=$(slurm host1 env SKEIN_NO_PROBE=1 sbatch --parsable --output="$work/job.log" "$work/skein.sbatch")
}
submit --layout=tp=2,pp=2 --interface=eth0 --port-range=41000-41020
address=10.77.0.2:41000
for _ in {1..300}; do skein status --wait=1s >"$work/status.log" 2>&1 && break; sleep 0.1; done
grep -q 'tp=2,pp=2' "$work/status.log" && grep -q host1 "$work/status.log" && grep -q host2 "$work/status.log" || fail "it does not serve"
generate >"$work/answer" || fail "no answer"
cmp "$work/want" "$work/answer" || fail "another answer"
for host in host1 host2; do
  on "$host" sh -c "ss -tlnH | awk '{print \$4}' | grep -E ':41[0-9]{3}$'" >"$work/ports.$host" || fail "no port of the range on $host"
done
scancel --batch --signal=TERM "$job"
ended "$job" COMPLETED

# A replica a host, each a job of its own; what kills a rank ends its job alone.
submit --layout=tp=2,pp=1,dp=2 --port-range=41000-41020
for _ in {1..300}; do [[ $(skein status 2>/dev/null | grep -c '^job .*: serving, 2 of 2 ranks') -eq 2 ]] && break; sleep 0.1; done
[[ $(skein status | grep -c '^job .*: serving, 2 of 2 ranks') -eq 2 ]] || fail "no two jobs: $(skein status)"
on host2 pkill -KILL -n -x worker
for _ in {1..100}; do [[ $(skein status | grep -c '^job .*: serving, 2 of 2 ranks') -eq 1 ]] && break; sleep 0.1; done
for _ in {1..50}; do on host2 pgrep -x worker >/dev/null || break; sleep 0.1; done
if on host2 pgrep -ax worker >&2; then fail "a rank outlives its job"; fi
generate >"$work/answer" || fail "no answer of the other job"
cmp "$work/want" "$work/answer" || fail "another answer of the other job"
scancel "$job"
ended "$job" CANCELLED
left() { pgrep -ax worker || pgrep -ax coordinator; }  # pgrep takes patterns of 15 characters at most
for _ in {1..100}; do left >/dev/null || break; sleep 0.1; done
if left >&2; then fail "something outlives Slurm's job"; fi
echo "passed: Slurm $(slurmctld -V | cut -d' ' -f2) starts what is printed, on two hosts"
