#!/usr/bin/env bash
# scripts/launch.sh on one host keeps a job up whose ranks are on two others. Whatever is stopped on them, the job is gone
# everywhere in seconds and another one serves, also after a host was cut off; with the supervisor goes all.
set -euo pipefail
# shellcheck source=tests/fault/hosts.sh
. "$(dirname "$0")/../fault/hosts.sh"
HOSTS_TIMEOUT=240 enter_hosts "$@"

bin=$PWD
add_host login 10.77.0.2
add_host hosta 10.77.0.3
add_host hostb 10.77.0.4
printf 'hosta slots=2\nhostb slots=2\n' >"$work/hostfile"

# Of all hosts' programs of this name, as this one sees them; the dead are none.
alive() { ps -eo pid=,stat=,comm= | awk -v name="$1" '$3 == name && $2 !~ /^Z/ { print $1 }'; }
of_job() { alive worker; alive mpirun; alive prterun; }
seconds_since() { awk "BEGIN { print $EPOCHREALTIME - $1 }"; }
# usage: gone_within SECONDS PID...
gone_within() {
  local until=$((SECONDS + $1)) pid
  shift
  while ((SECONDS <= until)); do
    for pid; do
      grep -qs '^State:[^Z]*$' "/proc/$pid/status" && { sleep 0.05 && continue 2; }
    done
    return 0
  done
  return 1
}
skein() { "$bin/client/skein" "$@" --coordinator="$address"; }

"$bin/coordinator/coordinator" --model=checkpoints/bard --listen=10.77.0.1:0 --insecure --port-file="$work/port" --layout=tp=2,pp=2 \
  >"$work/coordinator.log" 2>&1 &
coordinator=$!
for _ in {1..200}; do [[ -s $work/port ]] && break; sleep 0.05; done
address=$(cat "$work/port")

: >"$work/launch.log"
on login scripts/launch.sh --bin "$bin" --coordinator "$address" --ranks 4 --hostfile "$work/hostfile" --first-wait 0.2 --longest-wait 0.2 \
  --start-timeout 15 -- --orphan-timeout=8s >"$work/launch.log" 2>&1 &
launch=$!

serves() { # so many times so far, as the supervisor has it
  for _ in {1..450}; do
    (($(grep -c 'job 1 serves' "$work/launch.log") >= $1)) && return
    kill -0 "$launch" 2>/dev/null || fail "the supervisor is gone"
    sleep 0.1
  done
  fail "the job does not serve for the ${1}th time"
}
serves 1
skein status >"$work/status.log" 2>&1
[[ $(grep -c 'hosta .*ready' "$work/status.log") == 2 && $(grep -c 'hostb .*ready' "$work/status.log") == 2 ]] ||
  fail "the ranks are not two on each host"
skein generate --prompt=ROMEO: --max-tokens=32 --temperature=0 >"$work/answer" 2>"$work/generate.log" || fail "no answer"

segments() { on "$1" ls -A /dev/shm | wc -l; }
segments_a=$(segments hosta) segments_b=$(segments hostb)
starts=1
# usage: recovers WHAT PID...: these are stopped; those of the job are gone and another one serves. (Nobody reaches a
# daemon of mpirun that is stopped on another host: it ends when it goes on.)
recovers() {
  local what=$1 job start
  shift
  job=$(of_job)
  start=$EPOCHREALTIME
  kill -STOP "$@"
  starts=$((starts + 1))
  serves "$starts"
  echo "$what: another job serves after $(seconds_since "$start") s"
  # shellcheck disable=SC2086
  gone_within 10 $job || fail "$what: left of the job: $(for pid in $job; do ps -o pid=,stat=,args= "$pid"; done)"
  skein generate --prompt=ROMEO: --max-tokens=32 --temperature=0 >"$work/again" 2>"$work/again.log" || fail "$what: no answer"
  cmp "$work/answer" "$work/again" || fail "$what: another answer"
  # Segments of those that were killed while mpirun's daemon was stopped stay: nobody else knows them.
  [[ $(segments hosta) == "$segments_a" && ($what == all* || $(segments hostb) == "$segments_b") ]] ||
    fail "$what: left in /dev/shm: $(on hosta ls -A /dev/shm) $(on hostb ls -A /dev/shm)"
}
of_host() { local pid; while read -r pid; do [[ $(readlink "/proc/$pid/ns/uts") != "$(readlink "/proc/$(cat "$work/$1.pid")/ns/uts")" ]] || echo "$pid"; done; }

# shellcheck disable=SC2046
{
  recovers "a rank is stopped" "$(alive worker | of_host hostb | head -n 1)"
  recovers "every rank and mpirun are stopped" $(of_job)
  recovers "all of one host is stopped" $(alive worker | of_host hostb; alive orted; alive prted)
}

# A host is cut off: mpirun is gone in seconds, and the job serves again once the host is back. One that started meanwhile
# may wait for that host's daemon until --start-timeout.
job=$(of_job | of_host login)
unplug hostb
# shellcheck disable=SC2086
gone_within 15 $job || fail "mpirun waits for a host that is cut off"
plug_in hostb
starts=$((starts + 1))
serves "$starts"
echo "a host was cut off: another job serves"

job=$(of_job)
kill -KILL "$(alive supervisor | head -n 1)"
# shellcheck disable=SC2086
gone_within 10 $job || fail "left of the job when its supervisor was killed: $(ps -eo pid,stat,args)"
kill -TERM "$coordinator"
wait "$coordinator" || fail "the coordinator ended with $?"
for host in login hosta; do
  left=$(on "$host" ls -A /dev/shm)
  [[ -z $left ]] || fail "left in /dev/shm of $host: $left"
done
