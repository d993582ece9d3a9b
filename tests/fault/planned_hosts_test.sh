#!/usr/bin/env bash
# Hosts with names and networks of their own on one machine (network namespaces), whose cables are slow. Two are measured and
# planned for: shards stay on a host, stages go over the cable, and the printed scripts start that as they stand. Then four
# serve two jobs, a cable is pulled in the middle of answers, and all answers come out as ever.
set -euo pipefail
# shellcheck source=tests/fault/hosts.sh
. "$(dirname "$0")/hosts.sh"
enter_hosts "$@"

bin=$PWD
for i in 1 2 3 4; do
  host=host$i
  add_host "$host" "10.77.0.$((i + 1))"
  # Some 100 MB/s: far less than what ranks of a host exchange by shared memory.
  slow_cable "$host" 800mbit
done
# shellcheck source=scripts/env.sh
. "$bin/scripts/env.sh"
# Each host has its two slots here; Open MPI 5's oversubscription would fill the first host with all ranks.
unset PRTE_MCA_rmaps_default_mapping_policy
settings=(-x TMPDIR)

start_coordinator() { # NAME FLAGS...
  rm -f "$work/port"
  "$bin/coordinator/coordinator" --model=checkpoints/bard --listen=10.77.0.1:0 --insecure --port-file="$work/port" "${@:2}" >"$work/$1.log" 2>&1 &
  coordinator=$!
  for _ in {1..200}; do [[ -s $work/port ]] && break; sleep 0.05; done
  address=$(cat "$work/port")
}
skein() { "$bin/client/skein" "$@" --coordinator="$address"; }
generate() { skein generate --prompt="$1" --max-tokens="$2" --temperature=0; }
stop() {
  kill -TERM "$coordinator"
  wait "$coordinator" || fail "a coordinator ended with $?"
}

# What a lone rank answers.
start_coordinator alone
on host1 mpirun -np 1 "${settings[@]}" "$bin/worker/worker" --no-probe --coordinator="$address" >"$work/lone.log" 2>&1 &
lone=$!
skein status --wait=60s >"$work/status.log" 2>&1 || fail "a lone rank does not serve"
generate ROMEO: 32 >"$work/want"
generate ROMEO: 900 >"$work/want.long"
generate JULIET: 900 >"$work/want.other"
stop
wait "$lone" || fail "the lone rank ended with $?"

# Two hosts, as they are measured.
on host1 mpirun --host host1:2,host2:2 -np 4 "${settings[@]}" "$bin/worker/worker" probe >"$work/hosts.json" 2>"$work/probe.log" || fail "no probe"
cat >"$work/check.py" <<'PYTHON'
import json, sys
hosts = json.load(open(sys.argv[1]))
names = [host["name"] for host in hosts["hosts"]]
assert names == ["host1", "host2"], names
rate = float(hosts["fabric"]["link"]["bytes_per_s"])
# The cable carries 100 MB/s.
assert 60e6 < rate < 110e6, rate
across = [curve for curve in hosts["hosts"][0]["exchanges"] if curve.get("across")]
assert {curve["exchange"] for curve in across} == {"all_reduce", "all_gather", "send_receive"}, across
layouts = json.load(open(sys.argv[2]))["layouts"]
def spans(layout):
    return any(len({shard["host"] for shard in stage["shards"]}) > 1
               for replica in layout["replicas"] for stage in replica["stages"])
# No layout that was looked at has shards on two hosts while there are others; bard has two at most.
assert not any(spans(layout) for layout in layouts), layouts
order = [layout["layout"] for layout in layouts]
stages = layouts[order.index("tp=2,pp=2,dp=1")]["replicas"][0]["stages"]
assert [[shard["host"] for shard in stage["shards"]] for stage in stages] == [["host1"] * 2, ["host2"] * 2], stages
PYTHON
# Of three, one of which has a slow cable, each knows what a message takes at most.
slow_cable host3 240mbit
on host1 mpirun --host host1,host2,host3 -np 3 "${settings[@]}" "$bin/worker/worker" probe >"$work/three.json" 2>"$work/probe.log" || fail "no probe of three"
cat >"$work/three.py" <<'PYTHON'
import json, sys
hosts = json.load(open(sys.argv[1]))
rate = float(hosts["fabric"]["link"]["bytes_per_s"])
# One way of the slow pair has 30 MB/s, the other one 100.
assert 20e6 < rate < 55e6, rate
for host in hosts["hosts"]:
    across = {curve["exchange"]: curve["times"] for curve in host["exchanges"] if curve.get("across")}
    assert all(time["us"] > 1 for time in across["send_receive"]), host
PYTHON
python3 "$work/three.py" "$work/three.json" || fail "a host does not know what a message takes"
slow_cable host3 800mbit
plan=("$bin/client/skein" plan --model=checkpoints/bard --topology="$work/hosts.json")
"${plan[@]}" --json >"$work/plan.json" || fail "no plan"
python3 "$work/check.py" "$work/hosts.json" "$work/plan.json" || fail "another plan"
ready_ranks() { grep -cE '^ +[0-9]+ +host[0-9] .* ready ' "$work/status.log"; }
# A printed script serves as it stands. Its replicas may be jobs of their own.
# usage: start_script LAYOUT "HOST_OF_A_RANK..." FLAG...
start_script() {
  local host layout=${1%,dp=*} ranks
  ranks=$(wc -w <<<"$2")
  "${plan[@]}" "${@:3}" --emit mpirun --interface=eth0 >"$work/start.sh" || fail "no script for $1"
  # The network between hosts is what the script says, not what this test has set for its own jobs.
  on host1 env -u OMPI_MCA_btl_tcp_if_include -u OMPI_MCA_oob_tcp_if_include -u PRTE_MCA_prte_if_include SKEIN_NO_PROBE=1 \
    bash "$work/start.sh" >"$work/start.log" 2>&1 &
  script=$!
  address=10.77.0.2:41000
  for _ in {1..300}; do
    skein status --wait=1s >"$work/status.log" 2>&1 && [[ $(ready_ranks) -eq $ranks ]] && break
    kill -0 "$script" 2>/dev/null || fail "the script of $1 has ended"
    sleep 0.1
  done
  [[ $(ready_ranks) -eq $ranks ]] || fail "not $ranks ranks serve $1"
  grep -q "plan $layout" "$work/status.log" || fail "$1 does not serve"
  for host in $2; do grep -qE "^ +[0-9]+ +$host .* ready " "$work/status.log" || fail "$1 does not serve on $host"; done
  generate ROMEO: 32 >"$work/answer" || fail "no answer of $1"
  cmp "$work/want" "$work/answer" || fail "$1 answers differently than a lone rank"
}
stop_script() {
  # The newest is bash itself, behind what enters the host.
  pkill -TERM -n -f "bash $work/start.sh"
  wait "$script" || fail "the script ended with $?"
}
# What the plan chose itself, of whatever was measured just now.
python3 - "$work/plan.json" >"$work/best" <<'PYTHON'
import json, sys
best = json.load(open(sys.argv[1]))["layouts"][0]
print(best["layout"], *[shard["host"] for replica in best["replicas"] for stage in replica["stages"] for shard in stage["shards"]])
PYTHON
read -r best hosts <"$work/best"
start_script "$best" "$hosts" --port-range=41000-41199
stop_script
# Again and again, while the kernel keeps the ports of the last time: mpirun needs another one each time, ranks may.
start_across() { start_script tp=2,pp=2 "host1 host1 host2 host2" --layout=tp=2,pp=2 --port-range=41000-41028; }
for _ in {1..3}; do
  start_across
  stop_script
done
start_across
for host in host1 host2; do
  # shellcheck disable=SC2016
  on "$host" sh -c 'tr "\0" "\n" </proc/$(pgrep -nx worker)/environ' | grep -x 'NCCL_SOCKET_IFNAME==eth0' >/dev/null || fail "NCCL would take any network on $host"
done
# Each connection between them, the control channel's, too, came to a port of the range.
on host1 ss -tnH state established >"$work/connections.log"
grep -q '10.77.0.3' "$work/connections.log" || fail "no connections between the hosts"
[[ $(mpirun --version) != *"Open MPI) 4"* ]] || ! grep '10.77.0.3' "$work/connections.log" | grep -vE ':410([01][0-9]|2[0-8])( |$)' >"$work/beyond.log" ||
  fail "connections beyond the range: $(cat "$work/beyond.log")"
stop_script

# Two jobs on four hosts, slow enough that answers are in their middle when a cable is pulled.
start_coordinator four --layout=tp=2,pp=2
start_job() { # HOSTS LOG FLAGS OF MPIRUN...
  on "${1%%:*}" mpirun --host "$1" "${@:3}" -np 4 "${settings[@]}" "$bin/tests/fault/faulty_worker" --slow=8ms --coordinator="$address" \
    --orphan-timeout=8s >"$work/$2.log" 2>&1 &
}
start_job host1:2,host2:2 first
first=$!
# Its ranks are dealt to hosts in turn; shards are on one nevertheless.
start_job host3:2,host4:2 second --map-by node
second=$!
for _ in {1..600}; do
  [[ $(skein status 2>/dev/null | grep -c '^job .*: serving, 4 of 4 ranks') -eq 2 ]] && break
  sleep 0.1
done
[[ $(skein status 2>/dev/null | grep -c '^job .*: serving, 4 of 4 ranks') -eq 2 ]] || fail "two jobs do not serve"
grep -Eq '\| +2 +0 +0 +1 ' "$work/four.log" || fail "the second shard is not rank 2: $(cat "$work/four.log")"
pids=()
for i in 1 2 3 4; do
  prompt=ROMEO: && ((i % 2)) || prompt=JULIET:
  generate "$prompt" 900 >"$work/long$i" 2>"$work/long$i.log" &
  pids+=($!)
done
for i in 1 2 3 4; do
  for _ in {1..200}; do [[ -s $work/long$i ]] && break; sleep 0.05; done
  [[ -s $work/long$i ]] || fail "answer $i does not begin"
done
unplug host2
start=$EPOCHREALTIME
for _ in {1..200}; do grep -q 'on host2.* is lost' "$work/four.log" && break; sleep 0.05; done
seconds=$(awk "BEGIN { print $EPOCHREALTIME - $start }")
grep -q 'on host2.* is lost' "$work/four.log" || fail "the coordinator does not name the lost host"
awk "BEGIN { exit !($seconds < 5) }" || fail "the loss was found after $seconds s"
for pid in "${pids[@]}"; do wait "$pid" || fail "an answer was lost with a cable"; done
for i in 1 2 3 4; do
  want=want.long && ((i % 2)) || want=want.other
  cmp "$work/$want" "$work/long$i" || fail "answer $i is another one"
done
skein status >"$work/status.log" || fail "no status"
grep -q '^job .*: serving, 4 of 4 ranks' "$work/status.log" || fail "the other job does not serve"
# Open MPI 5 waits for its daemon behind the cut.
[[ $(mpirun --version) == *"Open MPI) 4"* ]] || pkill -KILL -f -- "--host host1:2" || true
wait "$first" && fail "the lost job ended with 0"
stop
wait "$second" || fail "the second job ended with $?"
for _ in {1..300}; do pgrep -x faulty_worker >/dev/null || break; sleep 0.1; done
if pgrep -ax faulty_worker >&2; then fail "ranks outlived their job"; fi
echo "a pulled cable was found after $seconds s"
