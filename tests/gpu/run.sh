#!/usr/bin/env bash
# Runs the tests and benches of GPUs, those of an unpacked package or of a built tree. The last line is
# `N passed, N failed, N skipped`; the status is 1 where something failed.
#   tests/gpu/run.sh [--part NAME]... [--bin DIR] [--logs DIR] [--list] [PROGRAM...]
#   --part: kernels, engine, comm, faults, bench (these five when none is named), memcheck or racecheck (the tests of kernels
#     and engine under compute-sanitizer); each of the first five ends within 8 minutes
#   --bin: where the programs are (the package's gpu and bin, or bazel-bin)
#   --logs: keep what each program said there
#   --list: only say what would run, with deadlines in seconds
#   PROGRAM: only these, by name, like linear_test
# A program that crashes, that is ended at its deadline, that runs no case, or ends with another status than its cases tell,
# is a failure more. A case that is skipped is never one that passed: without a GPU all are skipped.
set -euo pipefail
script=tests/gpu/run.sh
# shellcheck source=scripts/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/../../scripts/lib.sh"

export SKEIN_NO_PROBE=1  # jobs of tests measure nothing
part_s=470            # for a part: 8 minutes, less what starting and counting take
sanitizer_factor=10   # what a sanitizer may make of a program's deadline; racecheck is the slowest
sanitizer_part_s=3000

parts=() bin='' logs='' list='' only=()
while (($# > 0)); do
  case $1 in
    --part | --bin | --logs)
      [[ -n ${2:-} ]] || misuse "$1 needs a value"
      case $1 in
        --part) parts+=("$2") ;;
        --bin) bin=$(given "$2") ;;
        --logs) logs=$2 && [[ $logs == /* ]] || logs=$called_from/$logs ;;
      esac
      shift
      ;;
    --list) list=1 ;;
    -*) misuse "unknown argument '$1'" ;;
    *) only+=("$1") ;;
  esac
  shift
done
((${#parts[@]} > 0)) || parts=(kernels engine comm faults bench)
for part in "${parts[@]}"; do
  [[ $part =~ ^(kernels|engine|comm|faults|bench|memcheck|racecheck)$ ]] ||
    misuse "--part: '$part' is none of kernels, engine, comm, faults, bench, memcheck, racecheck"
done
table=tests/gpu/programs.txt
for name in "${only[@]}"; do
  grep -qE "^[a-z]+ +([^ ]*/)?$name " "$table" || misuse "unknown program '$name'"
done
[[ -n $bin || -d gpu ]] || bin=$PWD/bazel-bin
[[ -n $logs ]] || logs=$work/logs
mkdir -p "$logs"

folders=("$bin")
[[ -n $bin ]] || folders=("$PWD/gpu" "$PWD/bin")
# usage: find_program PROGRAM
find_program() {
  local folder found
  for folder in "${folders[@]}"; do
    found=$(program "$folder" "$1")
    [[ ! -f $found ]] || { say "$found" && return; }
  done
  return 1
}

# The rows of a part, "PROGRAM SECONDS [NAME=VALUE]... ARGUMENT...".
rows() {
  local part program seconds arguments
  while read -r part program seconds arguments; do
    case $1 in
      memcheck | racecheck)
        if [[ $part != checks ]]; then
          [[ $part =~ ^(kernels|engine)$ ]] || continue
          ! grep -qE "^checks +$program " "$table" || continue
          seconds=$((seconds * sanitizer_factor))
        fi
        ;;
      "$part") ;;
      *) continue ;;
    esac
    ((${#only[@]} == 0)) || [[ " ${only[*]} " == *" ${program##*/} "* ]] || continue
    say "$program $seconds $arguments"
  done < <(grep -v '^#' "$table")
}

passed=0 failed=0 skipped=0
# A failure that no case tells of. usage: fault TEXT
fault() {
  faults+=("$1")
  bad=$((bad + 1))
}

# ", in CASE", the one that began last.
last_case() { grep -oE '\[ RUN +\] .*' "$1" | tail -n 1 | sed 's/^\[ RUN *\]/, in/'; }

# Of what a program of gtest said. A line that ends in "(N ms)" is a case; the lists at the end have no such.
count_cases() {
  local said=$1 cases ran told
  cases=$(grep -oE '\[ +(OK|FAILED|SKIPPED) +\] .* \([0-9]+ ms\)$' "$said") || true
  good=$(grep -cE '^\[ +OK' <<<"$cases") || true
  bad=$(grep -cE '^\[ +FAILED' <<<"$cases") || true
  left=$(grep -cE '^\[ +SKIPPED' <<<"$cases") || true
  ran=$(sed -nE 's/^\[=+\] ([0-9]+) tests? from .* ran\..*/\1/p' "$said" | tail -n 1)
  if [[ -z $ran ]]; then
    ((status == 124)) || fault "it did not come to its end: status $status$(last_case "$said")"
    return
  fi
  told=$((good + bad + left))
  ((status == 0 || status == 124 || bad > 0)) || fault "status $status, and no case failed"
  ((ran > 0)) || fault "it has no case"
  ((told == ran)) || fault "it says that $ran cases ran, and tells of $told"
}

# A bench is one case.
count_bench() {
  local said=$1
  good=0 left=0
  if grep -qE '^no GPU$|sees 0 GPUs' "$said"; then
    left=1
  elif ((status == 0)); then
    good=1
  elif ((status != 124)); then
    fault "status $status"
  fi
}

# usage: run_program PART PROGRAM SECONDS [NAME=VALUE]... ARGUMENT...
run_program() {
  local part=$1 file=$2 name=${2##*/} seconds=$3 program variables=() sanitize=() arguments said begin=$SECONDS status=0
  local good=0 bad=0 left=0 faults=()
  shift 3
  while [[ ${1:-} =~ ^[A-Z_]+= ]]; do variables+=("$1") && shift; done
  said=$logs/$part.$name${2:+.$2}.log  # of each command of a program
  case $part in
    memcheck) sanitize=("$sanitizer" --tool memcheck --leak-check no --error-exitcode 99) ;;
    racecheck) sanitize=("$sanitizer" --tool racecheck --error-exitcode 99) ;;
  esac
  arguments=("$@")
  [[ $name != *_test ]] || arguments+=(--gtest_color=no)
  ((seconds <= deadline - SECONDS)) || seconds=$((deadline - SECONDS))
  if ! program=$(find_program "$file"); then
    fault "it is not in ${folders[*]}; build it with --config=cuda, or say --bin DIR"
  elif ((seconds <= 0)); then
    fault "the part had no time left for it"
  else
    run env "${variables[@]}" timeout --kill-after=5 "$seconds" "${sanitize[@]}" "$program" "${arguments[@]}" >"$said" 2>&1 || status=$?
    ((status != 137 || SECONDS - begin < seconds)) || status=124  # it took no TERM
    if [[ $name == *_test ]]; then count_cases "$said"; else count_bench "$said"; fi
    ((status != 124)) || fault "it was ended after $seconds s$(last_case "$said")"
  fi
  say "$part: $name: $good passed, $bad failed, $left skipped, $((SECONDS - begin)) s"
  if ((bad > 0)); then
    ((${#faults[@]} == 0)) || printf "FAILED $name: %s\n" "${faults[@]}"
    [[ ! -s $said ]] || { grep -oE '\[ +FAILED +\] .* \([0-9]+ ms\)$' "$said" || true; tail -n 40 "$said" | cut -c 1-600; }
  elif [[ $part == bench ]]; then
    cat "$said"
  fi
  passed=$((passed + good)) failed=$((failed + bad)) skipped=$((skipped + left))
}

sanitizer=''
find_sanitizer() {
  sanitizer=$(PATH=$PATH:/usr/local/cuda/bin command -v compute-sanitizer) ||
    die "compute-sanitizer, of the CUDA toolkit, is neither in PATH nor in /usr/local/cuda/bin"
}

# shellcheck source=scripts/env.sh
. scripts/env.sh
export HOME=${HOME:-$work}
for part in "${parts[@]}"; do
  mapfile -t chosen < <(rows "$part")
  [[ -z $list ]] || { ((${#chosen[@]} == 0)) || printf "$part %s\n" "${chosen[@]}" && continue; }
  deadline=$((SECONDS + part_s))
  [[ $part != *check ]] || { deadline=$((SECONDS + sanitizer_part_s)) && find_sanitizer; }
  for row in "${chosen[@]}"; do
    # shellcheck disable=SC2086
    run_program "$part" $row
  done
done
[[ -z $list ]] || exit 0
((passed + failed + skipped > 0)) || die "none of these programs is in the parts asked for"
say "$passed passed, $failed failed, $skipped skipped"
((failed == 0))
