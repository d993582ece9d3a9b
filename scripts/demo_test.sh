#!/usr/bin/env bash
# scripts/demo.sh with programs that pretend: what it does, in order; and that it leaves nothing behind when it goes well,
# when a program fails, and when a signal ends it, in any phase. mpirun is the real one.
set -euo pipefail
cd "$(dirname "$0")/.."
root=$(mktemp -d "${TEST_TMPDIR:-/tmp}/demo_test.XXXXXX")
trap 'rm -rf "$root"' EXIT
bin=$root/bin
mkdir -p "$bin"/{coordinator/client,worker} "$root/tmp"

# Each program writes what happens to $DEMO_TEST/events, fails where $FAIL names it, and hangs where $HANG does.
cat >"$bin/common" <<'PROGRAM'
event() {
  echo "$1" >>"$DEMO_TEST/events"
  [[ $FAIL != "$1" ]] || exit 9
  [[ $HANG != "$1" ]] || { : >"$DEMO_TEST/hangs"; while :; do sleep 1; done; }
}
PROGRAM
cat >"$bin/coordinator/coordinator" <<'PROGRAM'
#!/usr/bin/env bash
. "$DEMO_TEST/bin/common"
trap 'event drain; : >"$DEMO_TEST/drained"; exit 0' TERM
event listen
while (($# > 0)); do [[ $1 != --port-file ]] || echo "127.0.0.1:7" >"$2"; shift; done
while :; do sleep 0.1; done
PROGRAM
cat >"$bin/worker/worker" <<'PROGRAM'
#!/usr/bin/env bash
. "$DEMO_TEST/bin/common"
[[ $* == "--coordinator 127.0.0.1:7" ]] || exit 8
if ((OMPI_COMM_WORLD_RANK == 0)); then event attach; fi
until [[ -e $DEMO_TEST/drained ]]; do sleep 0.1; done
PROGRAM
cat >"$bin/coordinator/client/skein" <<'PROGRAM'
#!/usr/bin/env bash
. "$DEMO_TEST/bin/common"
until grep -q attach "$DEMO_TEST/events"; do sleep 0.05; done
event "$1"
echo "printed by $1"
PROGRAM
chmod +x "$bin"/*/{coordinator,worker,client/skein} 2>/dev/null || true

failures=0
declare -A wanted=([INT]=130 [TERM]=143)
# usage: check NAME WANTED_STATUS STATUS
check() {
  local left in_tmp
  left=$(grep -lsz -- "^DEMO_TEST=$root\$" /proc/[0-9]*/environ | cut -d/ -f3 | grep -vx "$$" | xargs -r ps -o pid=,args= -p) || true
  in_tmp=$(ls -A "$root/tmp")
  if [[ $3 == "$2" && -z $left && -z $in_tmp ]]; then
    echo "ok: $1"
  else
    echo "FAILED: $1: status $3 (wanted $2), running: '$left', in /tmp: '$in_tmp'; it said:"
    cat "$root/output"
    failures=$((failures + 1))
  fi
}

# Runs the demo as the leader of a group, as a shell with a terminal does. usage: demo FAIL HANG
demo() {
  rm -f "$root"/{events,hangs,drained,output}
  set -m
  DEMO_TEST=$root FAIL=$1 HANG=$2 TMPDIR=$root/tmp scripts/demo.sh --bin "$bin" >"$root/output" 2>&1 &
  set +m
}

finish() {
  status=0
  wait "$1" || status=$?
}

demo '' '' && finish $!
check "all goes well" 0 "$status"
[[ $(<"$root/events") == $'listen\nattach\nstatus\ngenerate\ndrain' ]] || {
  echo "FAILED: events: $(<"$root/events")" && failures=$((failures + 1))
}
grep -q "printed by generate" "$root/output" || { echo "FAILED: the answer was not shown" && failures=$((failures + 1)); }

for phase in listen attach status generate drain; do
  demo "$phase" '' && finish $!
  check "$phase fails" 1 "$status"
  for signal in INT TERM; do
    demo '' "$phase"
    until [[ -e $root/hangs ]]; do sleep 0.05; done
    # Ctrl-C reaches the terminal's foreground group; kill and systemd reach the script alone.
    if [[ $signal == INT ]]; then kill -s INT -- -$!; else kill -s TERM $!; fi
    finish $!
    check "$signal during $phase" "${wanted[$signal]}" "$status"
  done
done
exit $((failures > 0))
