#!/usr/bin/env bash
# Builds every fuzz target with clang 19 (14 has no _Float16), libFuzzer, asan and ubsan, and runs each for some time from its committed corpus
# (and, where there are some, with the words of NAME.dict and the seeds of NAME_seeds.py).
# A finding fails, and its input is kept in dist/fuzz/ (run the printed command on it to see it again).
#   scripts/fuzz.sh [SECONDS]    (default: 60, for each target)
set -euo pipefail
# shellcheck source=scripts/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

(($# <= 1)) || misuse "unknown argument '$2'"
seconds=${1:-60}
[[ $seconds =~ ^[1-9][0-9]*$ ]] || misuse "'$seconds' is not a number of seconds"
# A package of its own has the sanitizers' runtimes: link with them to know.
say 'extern "C" int LLVMFuzzerTestOneInput(const unsigned char*, unsigned long) { return 0; }' |
  clang++-19 -fsanitize=fuzzer,address,undefined -x c++ - -o "$work/probe" 2>"$work/said" || {
  tail -n 3 "$work/said" >&2
  die "needs clang and its sanitizers: apt-get install clang-19 libclang-rt-19-dev"
}

query 'attr(tags, "\bfuzz\b", //tests/fuzz/...)' >"$work/targets"
mapfile -t targets <"$work/targets"
((${#targets[@]} > 0)) || die "no target of //tests/fuzz has the tag 'fuzz'"

sanitizers=-fsanitize=fuzzer,address,undefined
export CC=clang-19 CXX=clang++-19
# Own links: bazel-bin stays what it was.
build "--repo_env=CC=$CC" "--repo_env=CXX=$CXX" "--symlink_prefix=$work/links/" --strip=never \
  "--copt=$sanitizers" --copt=-fno-sanitize-recover=undefined --copt=-g "--linkopt=$sanitizers" \
  --linkopt=-fsanitize-link-c++-runtime "${targets[@]}"

mkdir -p dist/fuzz
for target in "${targets[@]}"; do
  name=${target##*:}
  corpus=tests/fuzz/${name%_fuzz}_corpus
  mkdir "$work/$name"
  options=()
  [[ ! -f tests/fuzz/${name%_fuzz}.dict ]] || options+=("-dict=tests/fuzz/${name%_fuzz}.dict")
  [[ ! -f tests/fuzz/${name%_fuzz}_seeds.py ]] || python3 "tests/fuzz/${name%_fuzz}_seeds.py" "$work/$name"
  say "$name for $seconds s"
  # A reader that allocates what a file claims would pass 256 MiB; one input takes far less than 10 s.
  if run "$work/links/bin/tests/fuzz/$name" "-max_total_time=$seconds" -timeout=10 -max_len=4096 -rss_limit_mb=1024 \
    -malloc_limit_mb=256 -print_final_stats=1 "-artifact_prefix=dist/fuzz/$name-" "${options[@]}" "$work/$name" "$corpus" \
    >"$work/said" 2>&1; then
    grep -E '^stat::number_of_executed_units|^stat::peak_rss_mb|cov:' "$work/said" | tail -n 3
  else
    tail -n 60 "$work/said"
    die "$name found something: see dist/fuzz/"
  fi
done
say "${#targets[@]} targets, nothing found"
