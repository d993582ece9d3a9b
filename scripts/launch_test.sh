#!/usr/bin/env bash
# scripts/launch.sh with workers that pretend: when a dead job starts again, when its wait is reset, what signals and drains
# do, and that nothing is left. Waits are counted from below exactly, from above with room for a busy machine.
set -euo pipefail
cd "$(dirname "$0")/.."
root=$(mktemp -d "${TEST_TMPDIR:-/tmp}/launch_test.XXXXXX")
# What runs for this test, wherever it ended up.
started() { grep -lsz -- "^LAUNCH_TEST=$root\$" /proc/[0-9]*/environ | cut -d/ -f3 | grep -vx "$$"; }
trap 'started | xargs -r kill -KILL || true; rm -rf "$root"' EXIT
trap 'exit 143' TERM
bin=$root/bin
late_ms=1500
mkdir -p "$bin"/{coordinator,worker,mpi,hasty} "$root/tmp"

# A worker appends "begin TIME" and "end TIME" to $LAUNCH_TEST/events and takes its life from $LAUNCH_TEST/lives, a line
# each time: seconds before it is loaded (- for never), seconds after, exit status. Behind the last line it stays.
cat >"$bin/worker/worker" <<'PROGRAM'
#!/usr/bin/env bash
events=$LAUNCH_TEST/events
now() { echo $((${EPOCHREALTIME/[.,]/} / 1000)); }
trap 'echo "end $(now)" >>"$events"; exit 143' TERM
if [[ ${OMPI_COMM_WORLD_RANK:-0} != 0 ]]; then
  echo "host worker | loaded shard" && : >"$LAUNCH_TEST/second"
  until [[ -e $LAUNCH_TEST/drained ]]; do sleep 0.05; done
  exit 0
fi
[[ $1 == --coordinator ]] || exit 8
echo "begin $(now) $*" >>"$events"
life=$(grep -c begin "$events")
read -r load serve status < <(sed -n "${life}p" "$LAUNCH_TEST/lives") || load=0 serve=''
if [[ $load != - ]]; then sleep "$load"; echo "host worker | loaded shard"; fi
: >"$LAUNCH_TEST/loaded"
if [[ -z $serve ]]; then
  until [[ -e $LAUNCH_TEST/drained ]]; do sleep 0.05; done
  exit 0
fi
sleep "$serve"
echo "end $(now)" >>"$events"
exit "$status"
PROGRAM
cat >"$bin/coordinator/coordinator" <<'PROGRAM'
#!/usr/bin/env bash
trap 'sleep 0.3; echo "drain $*" >>"$LAUNCH_TEST/events"; : >"$LAUNCH_TEST/drained"; exit 0' TERM
echo "host coordinator | listening on 127.0.0.1:7"
echo $$ >"$LAUNCH_TEST/coordinator"
while :; do sleep 0.05; done
PROGRAM
# Without ranks' start-up times. Open MPI 5 cannot start where an earlier one was killed and left its session folder.
cat >"$bin/mpi/mpirun" <<'PROGRAM'
#!/usr/bin/env bash
mkdir "$TMPDIR/prterun.left" || : >"$LAUNCH_TEST/stale"
[[ $1 == -np ]] && shift 2 && exec "$@"
PROGRAM
# Sleeps no time, and notes the waits between lives, which are told to the millisecond.
cat >"$bin/hasty/sleep" <<'PROGRAM'
#!/usr/bin/env bash
[[ $1 != *.??? ]] || echo "$1" >>"$LAUNCH_TEST/slept"
PROGRAM
chmod +x "$bin"/{worker/worker,coordinator/coordinator,mpi/mpirun,hasty/sleep}

failures=0
fail() {
  echo "FAILED: $*; it said:"
  cat "$root/output"
  failures=$((failures + 1))
}

# usage: launch LIVES ARGUMENT...; $! is it
launch() {
  rm -f "$root"/{coordinator,events,loaded,second,drained,output,stale}
  : >"$root/events"
  printf '%b' "$1" >"$root/lives"
  shift
  set -m
  LAUNCH_TEST=$root TMPDIR=$root/tmp scripts/launch.sh --bin "$bin" "$@" >"$root/output" 2>&1 &
  set +m
}

appears() { until [[ -e $root/$1 ]]; do sleep 0.05; done; }

# Waits for the end, which is to have this status and to leave nothing. usage: ends NAME WANTED_STATUS PID
ends() {
  local status=0 left in_tmp
  wait "$3" || status=$?
  left=$(started | xargs -r ps -o pid=,args= -p) || true
  in_tmp=$(ls -A "$root/tmp")
  if [[ $status == "$2" && -z $left && -z $in_tmp ]]; then
    echo "ok: $1"
  else
    fail "$1: status $status (wanted $2), running: '$left', in /tmp: '$in_tmp'"
  fi
}

# The waits between an end and the next begin. usage: waits NAME MS...
waits() {
  local name=$1 event time before='' got=() i
  shift
  while read -r event time _; do
    [[ $event != begin || -z $before ]] || got+=($((time - before)))
    before=$time
  done <"$root/events"
  ((${#got[@]} == $#)) || { fail "$name: ${#got[@]} waits (${got[*]}), not $#" && return; }
  for ((i = 0; i < $#; ++i)); do
    local wanted=${*:i+1:1}
    ((got[i] >= wanted && got[i] < wanted + late_ms)) || fail "$name: wait $i took ${got[i]} ms, not $wanted"
  done
}

says() { grep -qE -- "$1" "$root/output" || fail "nothing like '$1' was said"; }

stub_path=$bin/mpi:$PATH

PATH=$stub_path launch '- 0 9\n- 0 9\n0 0 0\n'
ends "the waits that hold by default, until a job ends well" 0 $!
waits "by default" 500 1000
[[ ! -e $root/stale ]] || fail "an mpirun found the folder of the one before"
says '^[0-9:]{8}\.[0-9]{3} launch \| job 1 died with status 9 after 0\.000 s of service; starts again in 0\.500 s$'
says 'starts again in 1\.000 s'
says '^job 1: host worker \| loaded shard$'
says 'job 1 ended with status 0'

PATH=$bin/hasty:$stub_path launch '- 0 9\n- 0 9\n- 0 9\n- 0 9\n- 0 9\n- 0 9\n- 0 9\n- 0 9\n0 0 0\n'
ends "waits double up to half a minute by default" 0 $!
slept=$(paste -sd ' ' "$root/slept")
[[ $slept == '0.500 1.000 2.000 4.000 8.000 16.000 30.000 30.000' ]] || fail "the waits were $slept"

# The third life is long, but never loaded; the fifth has served.
PATH=$stub_path launch '- 0 9\n- 0 9\n- 0.7 9\n- 0 9\n0.1 0.6 9\n- 0 9\n0 0 0\n' \
  --first-wait 0.1 --longest-wait 0.4 --reset-after 0.5 --coordinator head:7 -- --model-root /models
ends "waits double up to the longest, and begin anew after service" 0 $!
waits "with flags" 100 200 400 400 100 200
grep -q -- '--coordinator head:7 --model-root /models$' "$root/events" || fail "workers' flags: $(<"$root/events")"

PATH=$stub_path launch '- 0 9\n0 10.1 9\n0 0 0\n'
ends "waits begin anew after ten seconds of service by default" 0 $!
waits "around service" 500 500
says 'died with status 9 after 1[0-9]\.[0-9]{3} s of service; starts again in 0\.500 s$'

PATH=$stub_path launch '- 0 9\n- 0 2\n' --first-wait 0.1
ends "flags that a worker refuses are not tried again" 2 $!
waits "before them" 100
says 'job 1 ended with status 2'

PATH=$stub_path launch '0 0 9\n' --first-wait 60 --longest-wait 60
appears loaded
until grep -qs 'starts again' "$root/output"; do sleep 0.05; done
kill -s TERM $!
ends "TERM during a wait" 143 $!

for signal in INT:130 TERM:143; do
  launch '' --jobs 2 --ranks 2
  appears loaded && appears second
  kill -s "${signal%:*}" $!
  ends "${signal%:*} ends two jobs of two ranks" "${signal#*:}" $!
done

launch '' --jobs 2 --ranks 2 --model /models/m --coordinator 127.0.0.1:7
appears loaded
kill -s TERM $!
ends "TERM drains an own coordinator" 143 $!
grep -q 'drain --model /models/m --listen 127.0.0.1:7' "$root/events" || fail "events: $(<"$root/events")"
says 'job 2 ended with status 0'

launch '0 0 9\n' --first-wait 60 --longest-wait 60 --model /models/m
until grep -qs 'starts again' "$root/output"; do sleep 0.05; done
before=$SECONDS
kill -s TERM $!
ends "TERM drains while a job waits to start again" 143 $!
((SECONDS - before < 8)) || fail "the drain waited for a job that is not there"

launch '' --jobs 2 --first-wait 60 --longest-wait 60 --model /models/m
appears loaded
until [[ -s $root/coordinator ]]; do sleep 0.05; done
kill -s KILL "$(<"$root/coordinator")"
until grep -qs 'coordinator died' "$root/output"; do sleep 0.05; done
before=$SECONDS
kill -s TERM $!
ends "TERM while the coordinator waits to start again" 143 $!
((SECONDS - before < 8)) || fail "the jobs were given time for a drain that nobody tells them of"

for wrong in '--jobs 0' '--ranks x' '--first-wait soon' '--jobs'; do
  # shellcheck disable=SC2086
  launch '' $wrong
  ends "wrong usage: $wrong" 2 $!
  says "${wrong%% *}"
done
launch '' --bin /nowhere
ends "programs that are not there" 1 $!
says '/nowhere/worker/worker is not there'
exit $((failures > 0))
