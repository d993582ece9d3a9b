# shellcheck shell=bash
# What the scripts share; sourced first by each. Answers --help with the head of the script. Moves to the project's root, makes a
# private folder ($work, also $TMPDIR) and sees to it that, however the script ends, the folder is removed and no process that
# was started is left.
#
# Every process that a script starts has SKEIN_RUN=$work in its environment, Bazel's server and MPI's ranks too. That is how
# the end finds what is left, and spares what was there before. A script started by another one of these leaves this to it.

# --- The command line, still that of the script ---
for argument; do
  case $argument in
    --) break ;;
    -h | --help)
      sed -n '2,/^[^#]/{/^# shellcheck/d; s/^# \{0,1\}//p}' "$0"
      exit 0
      ;;
  esac
done
unset argument
called_from=$PWD
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit

# A path of the command line, which means what it meant to the caller. usage: given PATH
given() {
  if [[ -n $1 && $1 != /* && -e $called_from/$1 ]]; then printf '%s\n' "$called_from/$1"; else printf '%s\n' "$1"; fi
}

say() { printf '%s\n' "$*"; }
complain() { printf '%s: %s\n' "${0##*/}" "$*" >&2; }
die() {
  complain "$@"
  exit 1
}

# Of a command line that is wrong. $script: where this one lies, if not in scripts/.
misuse() {
  complain "$*; ${script:-scripts/${0##*/}} --help tells what there is"
  exit 2
}

# Where a program is that Bazel builds as PROGRAM: there, or, as in a package, in the folder itself. usage: program FOLDER PROGRAM
program() {
  if [[ ! -f $1/$2 && -f $1/${2##*/} ]]; then say "$1/${2##*/}"; else say "$1/$2"; fi
}

# usage: has_programs FOLDER PROGRAM...
has_programs() {
  local each
  for each in "${@:2}"; do
    [[ -x $(program "$1" "$each") ]] || die "$1/$each is not there; build it, or say --bin DIR"
  done
}


# --- The private folder, and the end ---
work=''
outermost=''
children=()      # process groups that were started and not yet waited for
end_signal=TERM  # what asks a child to end
patience_s=10    # how long a child that was asked may take before it is killed

# usage: send SIGNAL PID, or -PID for a group
send() { kill -s "$1" -- "$2" 2>/dev/null || true; }

# Waits until a process, or a group (-PID) and its leader, are gone. usage: gone PID SECONDS
gone() {
  local deadline=$((SECONDS + $2))
  while kill -0 -- "$1" 2>/dev/null || [[ -d /proc/${1#-} ]]; do
    ((SECONDS <= deadline)) || return 1
    sleep 0.1
  done
}

# Processes that carry this run's mark, wherever they ended up.
marked() {
  local files
  files=$(env -u SKEIN_RUN grep -lszxF -- "SKEIN_RUN=$work" /proc/[0-9]*/environ) || true
  [[ -z $files ]] || cut -d/ -f3 <<<"$files"
}

end_children() {
  local group
  for group in "${children[@]}"; do send "$end_signal" "-$group"; done
  for group in "${children[@]}"; do gone "-$group" "$patience_s" || send KILL "-$group"; done
}

end_marked() {
  local pid
  for pid in $(marked); do send TERM "$pid"; done
  for pid in $(marked); do gone "$pid" "$patience_s" || send KILL "$pid"; done
}

clean_up() {
  local status=$?
  trap '' INT TERM HUP
  trap - EXIT
  end_children
  [[ -z $outermost ]] || end_marked
  [[ -z $work ]] || rm -rf "$work"
  exit "$status"
}
trap clean_up EXIT
trap 'exit 129' HUP
trap 'exit 130' INT
trap 'exit 143' TERM

work=$(mktemp -d "${TMPDIR:-/tmp}/skein.XXXXXX")
export TMPDIR=$work
[[ -n ${SKEIN_RUN:-} ]] || { outermost=1 && export SKEIN_RUN=$work; }

# --- Children ---
# Starts a command as a process group of its own ($child), since bash runs no trap while it waits for a foreground command,
# and children that it starts with a bare '&' ignore SIGINT.
start() {
  set -m
  "$@" </dev/null &
  child=$!
  set +m
  children+=("$child")
}

# Waits until a child ends, or the first of several ($ended); its exit status. (`wait -n` forgets children that ended before.)
finish() {
  local status=0 rest=() pid
  ended=''
  until [[ -n $ended ]]; do
    for pid; do
      if (($# == 1)) || [[ ! -d /proc/$pid ]]; then ended=$pid && break; fi
    done
    [[ -n $ended ]] || sleep 0.05
  done
  wait "$ended" || status=$?
  for pid in "${children[@]}"; do [[ $pid == "$ended" ]] || rest+=("$pid"); done
  children=("${rest[@]}")
  return "$status"
}

run() {
  start "$@"
  finish "$child"
}

# --- Bazel ---
# The memory that may be used, in MiB: what is free, or less where a cgroup (v1 or v2) allows less.
memory_mib() {
  local key value controllers path dir file limit mib=1024
  while read -r key value _; do
    [[ $key != MemAvailable: ]] || mib=$((value / 1024))
  done </proc/meminfo
  while IFS=: read -r _ controllers path; do
    case $controllers in
      '') dir=/sys/fs/cgroup$path file=memory.max ;;
      memory) dir=/sys/fs/cgroup/memory$path file=memory.limit_in_bytes ;;
      *) continue ;;
    esac
    while [[ $dir == /sys/fs/cgroup* ]]; do
      limit=''
      [[ ! -r $dir/$file ]] || read -r limit <"$dir/$file"
      # No limit reads "max" (v2) or a number of 19 digits (v1).
      if [[ $limit =~ ^[0-9]{1,18}$ ]] && ((limit / 1048576 < mib)); then mib=$((limit / 1048576)); fi
      dir=${dir%/*}
    done
  done </proc/self/cgroup
  say "$mib"
}

# Flags of every command that builds, in $bazel_flags. The largest files take about 1 GiB to compile; a quarter of the memory
# stays for Bazel's server and everybody else. One more runs at once than there are cores, since tests that start programs mostly
# wait for them; a test of time is tagged cpu:4, and has a small machine for itself. Jobs are more, so that those that wait for
# cores keep none from others that are free.
bazel_limits() {
  local mib slots
  mib=$(memory_mib)
  slots=$(($(nproc) + 1))
  ((slots * 1024 <= mib)) || slots=$((mib / 1024 > 0 ? mib / 1024 : 1))
  bazel_flags=(
    "--jobs=$((slots * 4))" "--local_cpu_resources=$slots" "--local_ram_resources=$((mib * 3 / 4))"
    "--disk_cache=${SKEIN_BAZEL_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/skein-bazel}"
    --show_result=0 "--ui_event_filters=-info,-debug"
  )
  [[ -t 2 ]] || bazel_flags+=(--noshow_progress)
}

# Quiet on what goes well; progress on a terminal. usage: build TARGET...
build() {
  bazel_limits
  run bazel build "${bazel_flags[@]}" "$@"
}

# usage: query EXPRESSION FLAG... >FILE
query() { run bazel query --noshow_progress --ui_event_filters=-info,-debug "$@"; }
