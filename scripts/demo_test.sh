#!/usr/bin/env bash
# scripts/demo.sh with programs that pretend: what it does, in order; and that it leaves nothing behind when it goes well,
# when a program fails, and when a signal ends it, in any phase. mpirun is the real one.
#   demo_test.sh set-up | answer
#   set-up: without --bin, where it sets up and builds first. answer: with --bin.
set -euo pipefail
cd "$(dirname "$0")/.."
# A /dev/shm of its own shows what is left there.
[[ ${2:-} == inside ]] || exec unshare --user --map-root-user --mount \
  sh -c 'mount -t tmpfs tmpfs /dev/shm && exec "$0" "$1" inside' "$0" "$1"
root=$(mktemp -d "${TEST_TMPDIR:-/tmp}/demo_test.XXXXXX")
trap 'rm -rf "$root"' EXIT
bin=$root/bin
# Set-up writes into the project, so that this is a copy.
project=$root/project
mkdir -p "$bin"/{client,coordinator,worker} "$root"/{tmp,path} "$project"
cp -rL scripts "$project"
ln -s "$bin" "$project/bazel-bin"

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
for backing in vader sm; do
  name=OMPI_MCA_btl_${backing}_backing_directory
  : >"${!name:-/dev/shm}/segment.$backing.$OMPI_COMM_WORLD_RANK"
done
if ((OMPI_COMM_WORLD_RANK == 0)); then event attach; fi
until [[ -e $DEMO_TEST/drained ]]; do sleep 0.1; done
PROGRAM
cat >"$bin/client/skein" <<'PROGRAM'
#!/usr/bin/env bash
. "$DEMO_TEST/bin/common"
until grep -q attach "$DEMO_TEST/events"; do sleep 0.05; done
event "$1"
echo "printed by $1"
PROGRAM
cat >"$root/path/dpkg-query" <<'PROGRAM'
#!/usr/bin/env bash
. "$DEMO_TEST/bin/common"
event dpkg-query
PROGRAM
cat >"$root/path/dpkg" <<'PROGRAM'
#!/usr/bin/env bash
PROGRAM
cat >"$root/path/sudo" <<'PROGRAM'
#!/usr/bin/env bash
. "$DEMO_TEST/bin/common"
while [[ ${1:-} == -* ]]; do shift; done
[[ $# == 1 ]] && event sudo
exec "$@"
PROGRAM
cat >"$root/path/apt-get" <<'PROGRAM'
#!/usr/bin/env bash
. "$DEMO_TEST/bin/common"
[[ $* == *update* ]] || event apt-get
PROGRAM
# Leaves a server, as Bazel does.
cat >"$root/path/bazel" <<'PROGRAM'
#!/usr/bin/env bash
. "$DEMO_TEST/bin/common"
setsid sleep 1000 </dev/null &>/dev/null &
event bazel
PROGRAM
chmod +x "$bin"/{coordinator/coordinator,client/skein,worker/worker} "$root"/path/*

failures=0
declare -A wanted=([INT]=130 [TERM]=143)
# usage: check NAME WANTED_STATUS STATUS
check() {
  local left in_tmp in_shm
  left=$(grep -lsz -- "^DEMO_TEST=$root\$" /proc/[0-9]*/environ | cut -d/ -f3 | grep -vx "$$" | xargs -r ps -o pid=,args= -p) || true
  in_tmp=$(ls -A "$root/tmp")
  in_shm=$(ls -A /dev/shm)
  if [[ $3 == "$2" && -z $left$in_tmp$in_shm ]]; then
    echo "ok: $1"
  else
    echo "FAILED: $1: status $3 (wanted $2), running: '$left', in /tmp: '$in_tmp', in /dev/shm: '$in_shm'; it said:"
    cat "$root/output"
    failures=$((failures + 1))
  fi
}

forget() { rm -f "$root"/{events,hangs,drained,output}; }

# Runs the demo as the leader of a group, as a shell with a terminal does. usage: demo FAIL HANG
demo() {
  forget
  set -m
  DEMO_TEST=$root FAIL=$1 HANG=$2 TMPDIR=$root/tmp "$project/scripts/demo.sh" --bin "$bin" >"$root/output" 2>&1 &
  set +m
}

finish() {
  status=0
  wait "$1" || status=$?
}

# Runs it without --bin; the status. usage: whole FAIL HANG [PREFIX...]
whole() {
  forget
  status=0
  DEMO_TEST=$root FAIL=$1 HANG=$2 PATH=$root/path:$PATH HOME=$root/home TMPDIR=$root/tmp \
    "${@:3}" "$project/scripts/demo.sh" >"$root/output" 2>&1 || status=$?
}

# usage: happened EVENT...
happened() {
  [[ $(<"$root/events") == "$(printf '%s\n' "$@")" ]] || { echo "FAILED: events: $(<"$root/events")" && failures=$((failures + 1)); }
}

as_user=(unshare --user --map-user=1000 --map-group=1000)

# Ctrl-C. usage: interrupt PHASE [PREFIX...]
interrupt() {
  local seconds
  # Once more where a busy machine takes longer to get there.
  for seconds in 2 20; do
    whole '' "$1" "${@:2}" timeout --preserve-status -s INT "$seconds"
    [[ ! -e $root/hangs ]] || break
  done
  [[ -e $root/hangs ]] || { echo "FAILED: $1 was not reached" && failures=$((failures + 1)); }
  check "${2:+as a user: }timeout -s INT during $1" 130 "$status"
}

set_up() {
  whole '' ''
  check "all goes well" 0 "$status"
  happened dpkg-query apt-get dpkg-query bazel listen attach status generate drain
  for phase in apt-get bazel; do
    whole "$phase" ''
    check "$phase fails" 1 "$status"
  done
  for phase in dpkg-query apt-get bazel; do interrupt "$phase"; done
  for phase in sudo apt-get; do interrupt "$phase" "${as_user[@]}"; done
}

answer() {
  demo '' '' && finish $!
  check "all goes well" 0 "$status"
  happened listen attach status generate drain
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
  # In an unpacked package: no set-up, no build, and the programs in one folder.
  mkdir "$project/bin"
  cp "$bin"/{coordinator/coordinator,client/skein,worker/worker} "$project/bin"
  rm "$project/bazel-bin"
  whole '' ''
  check "all goes well in a package" 0 "$status"
  happened listen attach status generate drain
}

case $1 in
  set-up) set_up ;;
  answer) answer ;;
  *) exit 2 ;;
esac
exit $((failures > 0))
