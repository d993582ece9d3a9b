#!/usr/bin/env bash
# Two hosts with names and networks of their own on one machine (network namespaces), so that TCP between ranks is real:
# steps are predicted and measured on one and on both, a job of 2 x 2 ranks serves, then one host's cable is pulled.
set -euo pipefail
# shellcheck source=tests/fault/hosts.sh
. "$(dirname "$0")/hosts.sh"
enter_hosts "$@"

bin=$PWD
add_host hosta 10.77.0.2
add_host hostb 10.77.0.3

"$bin/coordinator/coordinator" --model=checkpoints/bard --listen=10.77.0.1:0 --insecure --port-file="$work/port" --layout=tp=2,pp=2 --replica-wait=0s \
  >"$work/coordinator.log" 2>&1 &
coordinator=$!
for _ in {1..200}; do [[ -s $work/port ]] && break; sleep 0.05; done
address=$(cat "$work/port")

# shellcheck source=scripts/env.sh
. "$bin/scripts/env.sh"
# Each host has its two slots here; Open MPI 5's oversubscription would fill the first host with all ranks.
unset PRTE_MCA_rmaps_default_mapping_policy

on hosta "$bin/client/skein" bench scale --model=checkpoints/bard --np=1,2,4 --prompt-tokens=16 --decode-tokens=8 --json="$work/scale.json" \
  --svg="$work/scale.svg" --mpirun="--host hosta:2,hostb:2 -x TMPDIR" >"$work/scale.log" 2>&1 || fail "no scaling experiment"
cat >"$work/scale.py" <<'PYTHON'
import json, sys, xml.dom.minidom
runs = json.load(open(sys.argv[1]))["runs"]
assert [run["ranks"] for run in runs] == [1, 2, 4], runs
for run in runs:
    assert run["predicted_ms"] > 0 and run["measured_ms"] > 0 and run["tokens_per_s"] > 0, run
    assert abs(run["efficiency"] * run["ranks"] - run["speedup"]) < 1e-6, run
    assert abs(run["predicted_ms"] / run["measured_ms"] - 1 - run["error"]) < 1e-6, run
assert runs[0]["speedup"] == 1, runs
xml.dom.minidom.parse(sys.argv[2])
PYTHON
python3 "$work/scale.py" "$work/scale.json" "$work/scale.svg" || fail "another scaling experiment: $(cat "$work/scale.json")"

# Hosts with unlike numbers of ranks measure what each can hold, and nobody waits for those that have no part.
start=$EPOCHREALTIME
on hosta mpirun --host hosta:1,hostb:3 -np 4 -x TMPDIR "$bin/worker/worker" probe >"$work/unlike.json" 2>"$work/unlike.log" ||
  fail "no probe of unlike hosts"
awk "BEGIN { exit !($EPOCHREALTIME - $start < 40) }" || fail "unlike hosts wait for each other"
cat >"$work/unlike.py" <<'PYTHON'
import json, sys
hosts = {host["name"]: host for host in json.load(open(sys.argv[1]))["hosts"]}
def curves(name, exchange):
    return sorted({curve["ranks"] for curve in hosts[name]["exchanges"] if curve["exchange"] == exchange and not curve.get("across")})
for exchange in ("all_reduce", "all_gather"):
    assert curves("hosta", exchange) == [] and curves("hostb", exchange) == [2, 3], hosts
assert curves("hosta", "send_receive") == [] and curves("hostb", "send_receive") == [2], hosts
for host in hosts.values():
    assert {curve["ranks"] for curve in host["exchanges"] if curve.get("across")} == {2}, host
    assert all(time["us"] > 0 for curve in host["exchanges"] for time in curve["times"]), host
PYTHON
python3 "$work/unlike.py" "$work/unlike.json" || fail "unlike hosts tell something else: $(cat "$work/unlike.json")"

start_job() {  # HOSTS LOG COMMAND...
  on hosta mpirun --host "$1" -np 4 -x TMPDIR \
    "${@:3}" --coordinator="$address" --orphan-timeout=8s >"$work/$2.log" 2>&1 &
}
skein() { "$bin/client/skein" "$@" --coordinator="$address"; }

# Slow enough that a long answer takes half a minute, and is in its middle when a host is lost.
start_job hosta:2,hostb:2 job "$bin/tests/fault/faulty_worker" --slow=20ms
job=$!
skein status --wait=60s >"$work/status.log" 2>&1 || fail "the job does not serve"
grep -q hosta "$work/status.log" && grep -q hostb "$work/status.log" || fail "the status names no two hosts"
skein generate --prompt=ROMEO: --max-tokens=32 --temperature=0 >"$work/answer" 2>"$work/generate.log" || fail "no answer"

# Activations that TCP does not carry without their sender's help, and no later step that gives it.
printf 'ROMEO:\nIs the day so young? %.0s' {1..60} >"$work/prompt"
skein generate --prompt-file="$work/prompt" --max-tokens=1 --timeout=20s >"$work/one" 2>"$work/one.log" || fail "no answer to a long prompt"

skein generate --prompt=ROMEO: --max-tokens=900 --temperature=0 >"$work/long" 2>"$work/long.log" &
long=$!
for _ in {1..200}; do [[ -s $work/long ]] && break; sleep 0.05; done
[[ -s $work/long ]] || fail "no long answer begins"
unplug hostb
start=$EPOCHREALTIME
if wait "$long"; then fail "an answer survived the loss of half its replica"; fi
seconds=$(awk "BEGIN { print $EPOCHREALTIME - $start }")
awk "BEGIN { exit !($seconds < 5) }" || fail "the client learnt of the loss after $seconds s"
grep -q 'on hostb.* is lost' "$work/coordinator.log" || fail "the coordinator does not name the lost host"
# Open MPI 5 waits for its daemon behind the cut, or ends with 0: tests/supervisor/two_hosts_test.sh ends it as users do.
if [[ $(mpirun --version) == *"Open MPI) 4"* ]]; then
  if timeout 10 tail --pid="$job" -f /dev/null; then :; else fail "mpirun still runs"; fi
  if wait "$job"; then fail "mpirun ended with 0"; fi
else
  pkill -KILL prterun || true
fi
# The ranks behind the cut end by themselves when they have no coordinator.
for _ in {1..300}; do pgrep -x faulty_worker >/dev/null || break; sleep 0.1; done
if pgrep -ax faulty_worker >&2; then fail "ranks outlived their job"; fi

start_job hosta:4 second "$bin/worker/worker"
second=$!
for _ in {1..600}; do skein status --wait=1s >"$work/status.log" 2>&1 && break; done
skein generate --prompt=ROMEO: --max-tokens=32 --temperature=0 >"$work/again" 2>"$work/again.log" || fail "no second answer"
cmp "$work/answer" "$work/again" || fail "one host answers differently than two"
kill -TERM "$coordinator"
wait "$coordinator" || fail "the coordinator ended with $?"
wait "$second" || fail "the second job ended with $?"
left=$(ls -A /dev/shm)
[[ -z $left ]] || fail "left in /dev/shm: $left"
echo "lost a host: the client knew after $seconds s"
