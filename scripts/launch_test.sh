#!/usr/bin/env bash
# scripts/launch.sh with workers and coordinators that pretend: when a dead job starts again, when its wait is reset, what is
# ended by force, what signals and drains do, and that nothing is left. Waits are counted from below exactly, from above with
# room for a busy machine.
set -euo pipefail
cd "$(dirname "$0")/.."
root=$(mktemp -d "${TEST_TMPDIR:-/tmp}/launch_test.XXXXXX")
# What runs for this test, wherever it ended up.
started() { grep -lsz -- "^LAUNCH_TEST=$root\$" /proc/[0-9]*/environ | cut -d/ -f3 | grep -vx "$$"; }
head=''
trap 'kill -KILL $head $(started) 2>/dev/null || true; rm -rf "$root"' EXIT
trap 'exit 143' TERM
bin=$root/bin
late_ms=1500
mkdir -p "$bin"/{coordinator,worker,mpi,supervisor} "$root/tmp"
ln -s "$PWD/supervisor/supervisor" "$bin/supervisor/supervisor"
fake=$PWD/tests/supervisor/fake_coordinator

# A worker appends "begin TIME" and "end TIME" to $LAUNCH_TEST/events and takes its life from $LAUNCH_TEST/lives, a line
# each time: seconds before it is loaded (- for never), seconds after, exit status. Behind the last line it stays. The
# status "lost" is no end: the coordinator names the job, and the worker takes no TERM. With "gone" it ends with 0, but was
# named; with "unnoticed" it ends with 0 and the coordinator says nothing new, with "forgotten" it knows it no more; with 0 the
# coordinator says that it has ended.
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
state() { echo "$*" >"$LAUNCH_TEST/new" && mv "$LAUNCH_TEST/new" "$LAUNCH_TEST/job.$SKEIN_JOB_ID"; }
if [[ $load != - ]]; then sleep "$load"; echo "host worker | loaded shard"; state serving; fi
: >"$LAUNCH_TEST/loaded"
if [[ -z $serve ]]; then
  until [[ -e $LAUNCH_TEST/drained ]]; do sleep 0.05; done
  exit 0
fi
sleep "$serve"
if [[ $status == lost ]]; then
  trap 'echo "no, not now"' TERM
  echo "end $(now)" >>"$events"
  state $'lost\nrank 0 fell silent'
  while :; do sleep 0.05; done
fi
echo "end $(now)" >>"$events"
case $status in
  0) state ended ;;
  gone) state $'lost\nrank 1 is cut off' && status=0 ;;
  unnoticed) status=0 ;;
  forgotten) rm "$LAUNCH_TEST/job.$SKEIN_JOB_ID" && status=0 ;;
esac
[[ $status != KILL ]] || kill -s KILL $$
exit "$status"
PROGRAM
ln -s "$fake" "$bin/coordinator/coordinator"
# Without ranks' start-up times. Open MPI 5 cannot start where an earlier one was killed and left its session folder.
cat >"$bin/mpi/mpirun" <<'PROGRAM'
#!/usr/bin/env bash
mkdir "$TMPDIR/prterun.left" || : >"$LAUNCH_TEST/stale"
[[ $1 == -np ]] || echo "mpirun $*"
[[ $1 == -np ]] && shift 2 && exec "$@"
PROGRAM
chmod +x "$bin"/{worker/worker,mpi/mpirun}

failures=0
fail() {
  echo "FAILED: $*; it said:"
  cat "$root/output"
  failures=$((failures + 1))
}

launcher=(scripts/launch.sh --bin "$bin")
# usage: launch LIVES ARGUMENT...; $! is it
launch() {
  rm -f "$root"/{coordinator,events,loaded,second,drained,output,stale,job.*}
  : >"$root/events"
  printf '%b' "$1" >"$root/lives"
  shift
  set -m
  LAUNCH_TEST=$root TMPDIR=$root/tmp "${launcher[@]}" "$@" >"$root/output" 2>&1 &
  set +m
}

# Waits until a command succeeds. usage: until_it COMMAND...
until_it() {
  local until_s=$((SECONDS + 40))
  until "$@"; do
    ((SECONDS < until_s)) || { fail "waited in vain for: $*" && return; }
    sleep 0.05
  done
}
appears() { until_it test -e "$root/$1"; }
said() { until_it grep -qsE -- "$1" "$root/output"; }
# usage: said_times COUNT TEXT
said_times() { [[ $(grep -cF -- "$2" "$root/output") == "$1" ]]; }

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
# A coordinator that none of this starts; by the dot in its folder it is not taken for what is left.
LAUNCH_TEST=$root/. "$fake" --listen 127.0.0.1:0 >"$root/head" 2>&1 &
head=$!
appears port
port=$(<"$root/port")
elsewhere=127.0.0.1:$port
own=127.0.0.2:$port

PATH=$stub_path launch '- 0 9\n- 0 9\n0 0 0\n' --coordinator "$elsewhere"
ends "the waits that hold by default, until a job ends well" 0 $!
waits "by default" 500 1000
[[ ! -e $root/stale ]] || fail "an mpirun found the folder of the one before"
says '^[0-9:]{8}\.[0-9]{3} W [^ ]+ supervisor \| job 1 died with status 9 after 0\.000 s of service; starts again in 0\.500 s$'
says 'starts again in 1\.000 s'
says '^job 1: host worker \| loaded shard$'
says 'job 1 ended with status 0'

# Where waits end by default is told here, and shown with a clock of its own by //supervisor:keeper_test.
for default in --first-wait:500ms --longest-wait:30s --reset-after:10s --start-timeout:1m; do
  "$bin/supervisor/supervisor" --help | grep -qE -- "^ +${default%:*} SECONDS(=| \\[)${default#*:}" || fail "not the default: $default"
done

# The third life is long, but never loaded; the fifth has served.
PATH=$stub_path launch '- 0 9\n- 0 9\n- 0.7 9\n- 0 9\n0.1 1.5 9\n- 0 9\n0 0 0\n' \
  --first-wait 0.1 --longest-wait 0.4 --reset-after 0.5 --coordinator "$elsewhere" -- --model-root /models
ends "waits double up to the longest, and begin anew after service" 0 $!
waits "with flags" 100 200 400 400 100 200
grep -q -- "--coordinator $elsewhere --model-root /models\$" "$root/events" || fail "workers' flags: $(<"$root/events")"

PATH=$stub_path launch '- 0 9\n0 11.5 9\n0 0 0\n' --coordinator "$elsewhere"
ends "waits begin anew after ten seconds of service by default" 0 $!
waits "around service" 500 500
says 'died with status 9 after 1[0-9]\.[0-9]{3} s of service; starts again in 0\.500 s$'

PATH=$stub_path launch '- 0 9\n- 0 2\n' --first-wait 0.1 --coordinator "$elsewhere"
ends "flags that a worker refuses are not tried again" 2 $!
waits "before them" 100
says 'job 1 ended with status 2'

PATH=$stub_path launch '0 0 9\n' --first-wait 60 --longest-wait 60 --coordinator "$elsewhere"
appears loaded
said 'starts again'
kill -s TERM $!
ends "TERM during a wait" 143 $!

for signal in INT:130 TERM:143; do
  launch '' --jobs 2 --ranks 2 --coordinator "$elsewhere"
  appears loaded && appears second
  kill -s "${signal%:*}" $!
  ends "${signal%:*} ends two jobs of two ranks" "${signal#*:}" $!
done

launch '' --jobs 2 --ranks 2 --model /models/m --coordinator "$own"
appears loaded
kill -s TERM $!
ends "TERM drains an own coordinator" 143 $!
grep -q "drain --model /models/m --listen $own" "$root/events" || fail "events: $(<"$root/events")"
says 'job 2 ended with status 0'

launch '0 0 9\n' --first-wait 60 --longest-wait 60 --model /models/m --coordinator "$own"
said 'starts again'
before=$SECONDS
kill -s TERM $!
ends "TERM drains while a job waits to start again" 143 $!
((SECONDS - before < 8)) || fail "the drain waited for a job that is not there"

launch '' --jobs 2 --first-wait 60 --longest-wait 60 --model /models/m --coordinator "$own"
appears loaded
until_it test -s "$root/coordinator"
kill -s KILL "$(<"$root/coordinator")"
said 'coordinator was killed by SIGKILL after'
before=$SECONDS
kill -s TERM $!
ends "TERM while the coordinator waits to start again" 143 $!
((SECONDS - before < 8)) || fail "the jobs were given time for a drain that nobody tells them of"

# --- What does not end by itself ---
PATH=$stub_path launch '0 0.5 lost\n0 0 0\n' --first-wait 0.1 --coordinator "$elsewhere"
ends "a job that the coordinator names, and that takes no TERM, is killed" 0 $!
says 'job 1 is to end, by force in 3s: the coordinator names it as lost: rank 0 fell silent$'
says 'job 1: no, not now'
says 'job 1 was killed by SIGKILL after [0-9.]+ s of service; starts again in 0\.100 s'
read -r named again < <(awk '$1 == "end" { end = $2 } $1 == "begin" && end { print end, $2; exit }' "$root/events")
((again - named >= 5000 && again - named < 10000)) || fail "it was back after $((again - named)) ms"

PATH=$stub_path launch '- 99 0\n- 0 0\n' --first-wait 0.1 --start-timeout 1 --coordinator "$elsewhere"
ends "a job of which no rank comes to the coordinator is ended" 0 $!
says 'no rank of it has come to the coordinator for 1\.[0-9]+s \(--start-timeout\)'

PATH=$stub_path launch '0 0 KILL\n0 0 0\n' --first-wait 0.1 --coordinator "$elsewhere"
ends "a job that was killed starts again" 0 $!
says 'job 1 was killed by SIGKILL after 0\.[0-9]{3} s of service; starts again in 0\.100 s'

launch '' --model /models/m --coordinator "$own"
appears loaded
before=$SECONDS
: >"$root/exhaust"
said 'the coordinator runs, but has not taken a connection for 1[0-9]'
said 'coordinator was killed by SIGKILL after [1-9]'
((SECONDS - before >= 9)) || fail "it took $((SECONDS - before)) s only"
[[ $(grep -c begin "$root/events") == 1 ]] || fail "the job did not stay"
until_it said_times 2 'coordinator: host coordinator | listening'
kill -s TERM $!
ends "a coordinator without descriptors is started again, and its jobs stay" 143 $!

launch '' --model /models/m --coordinator "$own"
appears loaded
until_it test -s "$root/coordinator"
kill -s STOP "$(<"$root/coordinator")" # it goes on for the TERM of the drain
before=$SECONDS
kill -s TERM $!
ends "TERM drains a coordinator that is stopped" 143 $!
((SECONDS - before < 8)) || fail "the drain took $((SECONDS - before)) s"

PATH=$stub_path launch '0 0 lost\n' --model /models/m --coordinator "$own"
appears loaded
until_it test -s "$root/coordinator"
kill -s TERM "$(<"$root/coordinator")"
ends "no zero where a job does not end after its coordinator's drain" 1 $!

PATH=$stub_path launch '0 0 lost\n' --coordinator "$elsewhere"
until_it grep -q end "$root/events"
kill -s TERM $!
said 'job 1: no, not now'
kill -s INT $!
before=$SECONDS
ends "a second signal ends at once what takes none" 130 $!
((SECONDS - before < 5)) || fail "the second signal took $((SECONDS - before)) s"

launch '' --mpirun "$root/nowhere/mpirun" --first-wait 60 --longest-wait 60 --coordinator "$elsewhere"
said "job 1 cannot start: cannot execute $root/nowhere/mpirun: No such file"
kill -s TERM $!
ends "an mpirun that is not there is told" 143 $!

PATH=$stub_path launch '0 0 0\n' --coordinator "$elsewhere" --mpirun-arg=-x --mpirun-arg=A=b --hostfile hosts
said "^job 1: mpirun --hostfile hosts -x SKEIN_JOB_ID -x SKEIN_JOB_SECRET -x SKEIN_JOB_SLOT -x A=b -np 1 $bin/worker/worker --coordinator $elsewhere$"
kill -s TERM $!
ends "arguments of mpirun" 143 $!

for status in gone unnoticed forgotten; do
  PATH=$stub_path launch "0 0.5 $status\\n0 0 0\\n" --first-wait 0.1 --coordinator "$elsewhere"
  ends "a job that ends with 0 without having drained ($status) starts again" 0 $!
  (($(grep -c begin "$root/events") == 2)) || fail "it did not start twice"
done

# Nobody is there to say so; later somebody is.
kill -s STOP $head
PATH=$stub_path launch '0 0.5 0\n0 2 0\n' --first-wait 0.1 --coordinator "$elsewhere"
said 'job 1 ended with status 0, but was not drained'
kill -s CONT $head
ends "a job that ends with 0 while its coordinator is cut off starts again" 0 $!
(($(grep -c begin "$root/events") == 2)) || fail "it did not start twice"

LAUNCH_TEST=$root/. "$fake" --listen 127.0.0.3:0 >"$root/short" 2>&1 &
short=$!
until_it grep -q listening "$root/short"
PATH=$stub_path launch '0 1 unnoticed\n' --coordinator "127.0.0.3:$(<"$root/port")"
appears loaded
kill -s KILL $short
ends "a job that ends with 0 after its coordinator's host says that nobody listens has drained" 0 $!
echo "$port" >"$root/port"

PATH=$stub_path launch '0 1 unnoticed\n' --first-wait 60 --longest-wait 60 --model /models/m --coordinator "$own"
appears loaded
until_it test -s "$root/coordinator"
kill -s KILL "$(<"$root/coordinator")"
said 'job 1 ended with status 0, but was not drained'
kill -s TERM $!
ends "no drain while an own coordinator waits to start again" 143 $!

PATH=$stub_path launch '0 0.5 unnoticed\n' --first-wait 60 --longest-wait 60 --model /models/m --coordinator "$own"
until_it test -s "$root/coordinator"
said 'starts again'
kill -s TERM "$(<"$root/coordinator")"
ends "no zero where a job that was lost waits when its coordinator drains" 1 $!

# --- What surrounds it ---
trap '' HUP
PATH=$stub_path launch '0 4 0\n' --coordinator "$elsewhere"
trap - HUP
appears loaded
kill -s HUP $!
ends "a hang-up that is ignored is ignored" 0 $!

# The reader of its output is its child.
launch_into_a_reader() {
  LAUNCH_TEST=$root TMPDIR=$root/tmp exec scripts/launch.sh --bin "$bin" --coordinator "$elsewhere" > >(
    unset LAUNCH_TEST
    sed -u '/ended with status 0/{s/$/, and more/;q}' >"$root/output"
    sleep 1
    echo "the reader lives" >>"$root/output"
  ) 2>&1
}
rm -f "$root"/{events,loaded,job.*}
: >"$root/events"
echo '0 0 0' >"$root/lives"
(PATH=$stub_path launch_into_a_reader) &
ends "a reader of the output stays" 0 $!
said 'ended with status 0, and more$'
said 'the reader lives'

launch '' --mpirun "$root/nowhere/mpirun" --first-wait 0 --coordinator "$elsewhere"
said "job 1 cannot start"
kill -s TERM $!
ends "TERM where a job can never start, and there is no wait" 143 $!

launch '' --first-wait 0.1 --coordinator "$elsewhere"
appears loaded
rm -r "$root"/tmp/skein.*
pkill -KILL -g "$(pgrep -n -f "^$bin/worker/worker|bash $bin/worker/worker")" || true
said 'starts again'
begun_twice() { (($(grep -c begin "$root/events") == 2)); }
until_it begun_twice
kill -s TERM $!
ends "a folder that was cleaned away is made again" 143 $!

# --- Wrong usage ---
for wrong in '--jobs 0' '--ranks x' '--first-wait soon' '--jobs' '--unknown x' '--coordinator=x' '--log-level loud'; do
  # shellcheck disable=SC2086
  launch '' $wrong
  ends "wrong usage: $wrong" 2 $!
  says "${wrong%%[ =]*}"
done
# As in an unpacked package, where nobody says --bin.
mkdir -p "$root/package/bin"
cp -rL scripts "$root/package"
cp -L "$bin"/{coordinator/coordinator,worker/worker,supervisor/supervisor} "$root/package/bin"
launcher=("$root/package/scripts/launch.sh")
PATH=$stub_path launch '' --coordinator "$elsewhere"
appears loaded
kill -s TERM $!
ends "the programs of a package" 143 $!
launcher=(scripts/launch.sh --bin "$bin")
launch '' --bin /nowhere
ends "programs that are not there" 1 $!
says '/nowhere/worker/worker is not there'
exit $((failures > 0))
