#!/usr/bin/env bash
# tests/gpu/run.sh with programs that pretend: what it counts of those that pass, fail, skip, crash, hang, leave early, lie or
# are not there; which it runs, and where it finds them.
set -euo pipefail
cd "$(dirname "$0")/../.."
root=$(mktemp -d "${TEST_TMPDIR:-/tmp}/run_test.XXXXXX")
trap 'rm -rf "$root"' EXIT
cases=$PWD/tests/gpu/fake_cases
project=$root/project
mkdir -p "$project/tests/gpu" "$project/scripts" "$project/bazel-bin/kernels/cuda" "$root/tmp"
cp scripts/lib.sh scripts/env.sh "$project/scripts"
# A part takes 4 s at most.
sed 's/^part_s=[0-9]*/part_s=4/' tests/gpu/run.sh >"$project/tests/gpu/run.sh"
chmod +x "$project/tests/gpu/run.sh"
: >"$project/tests/gpu/programs.txt"

failures=0
fail() {
  echo "FAILED: $*; it said:"
  cat "$root/said"
  failures=$((failures + 1))
}

# A row of programs.txt and its program. usage: program PART NAME SECONDS BODY
program() {
  printf '#!/bin/sh\n%s\n' "$4" >"$project/bazel-bin/kernels/cuda/$2"
  chmod +x "$project/bazel-bin/kernels/cuda/$2"
  echo "$1 kernels/cuda/$2 $3" >>"$project/tests/gpu/programs.txt"
}
# usage: test_program PART NAME SECONDS CASES
test_program() { program "$1" "$2" "$3" "exec '$cases' --gtest_filter=$4 \"\$@\""; }

# usage: counts LAST_LINE ARGUMENT...
counts() {
  local status=0 want=0
  [[ $1 == *' 0 failed'* ]] || want=1
  TMPDIR=$root/tmp "$project/tests/gpu/run.sh" "${@:2}" >"$root/said" 2>&1 || status=$?
  [[ $(tail -n 1 "$root/said") == "$1" ]] || fail "${*:2}: wanted '$1'"
  ((status == want)) || fail "${*:2}: status $status, wanted $want"
}
says() { grep -qE -- "$1" "$root/said" || fail "nothing like '$1'"; }

test_program kernels good_test 60 'Fake.Passes*:Fake.Says*'
test_program kernels skip_test 60 'Fake.Passes:Fake.Skips*'
test_program kernels fail_test 60 'Fake.Passes:Fake.Fails:Fake.Skips:Values/*'
test_program kernels crash_test 60 'Fake.Passes:Fake.Crashes'
test_program kernels leave_test 60 'Fake.Passes:Fake.Leaves'
test_program kernels none_test 60 'Fake.Nonsense'
program faults variable_test 60 "test \"\$SKEIN_TEST_DEVICE\" = cuda && exec '$cases' --gtest_filter=Fake.Passes \"\$@\""
sed -i 's/variable_test 60/& SKEIN_TEST_DEVICE=cuda/' "$project/tests/gpu/programs.txt"
test_program engine hang_test 1 'Fake.Passes:Fake.Hangs'
program engine stubborn_test 1 "trap '' TERM; '$cases' --gtest_filter=Fake.Passes; while :; do sleep 1; done"
program kernels liar_test 60 "'$cases' --gtest_filter=Fake.Passes*:Fake.Says* | grep -v 'OK.*Fake.Passes '"
program kernels status_test 60 "'$cases' --gtest_filter=Fake.Passes; exit 3"
program kernels silent_test 60 ''
program bench bench_good 60 'echo 12 GB/s'
program bench bench_bad 60 'echo 13 GB/s; exit 1'
program bench bench_none 60 'echo no GPU'
program bench bench_slow 1 'exec sleep 1000'
echo "engine kernels/cuda/absent_test 60" >>"$project/tests/gpu/programs.txt"

counts '3 passed, 0 failed, 0 skipped' good_test
counts '1 passed, 0 failed, 2 skipped' skip_test
counts '3 passed, 2 failed, 1 skipped' fail_test
says 'FAILED.*Values/OfValues.FailsForTwo/1'
counts '1 passed, 0 failed, 0 skipped' --part faults
counts '1 passed, 1 failed, 0 skipped' crash_test
says 'FAILED crash_test: it did not come to its end: status 134, in Fake.Crashes'
counts '1 passed, 1 failed, 0 skipped' leave_test
says 'FAILED leave_test: it did not come to its end: status 0, in Fake.Leaves'
counts '0 passed, 1 failed, 0 skipped' none_test
counts '1 passed, 1 failed, 0 skipped' hang_test
says 'FAILED hang_test: it was ended after 1 s, in Fake.Hangs'
counts '1 passed, 1 failed, 0 skipped' stubborn_test
says 'FAILED stubborn_test: it was ended after 1 s'
counts '2 passed, 1 failed, 0 skipped' liar_test
says 'it says that 3 cases ran, and tells of 2'
counts '1 passed, 1 failed, 0 skipped' status_test
says 'status 3, and no case failed'
counts '0 passed, 1 failed, 0 skipped' silent_test
counts '0 passed, 1 failed, 0 skipped' absent_test
says 'FAILED absent_test: it is not in '
counts '1 passed, 2 failed, 1 skipped' --part bench
says '^12 GB/s' && says '^13 GB/s'
says 'FAILED bench_slow: it was ended after 1 s'
counts '4 passed, 0 failed, 2 skipped' good_test skip_test
counts '4 passed, 0 failed, 2 skipped' --part kernels good_test skip_test
# A part that takes too long is no part that passed.
test_program engine long_test 60 'Fake.Hangs'
test_program engine late_test 60 'Fake.Passes'
counts '0 passed, 2 failed, 0 skipped' --part engine long_test late_test
says 'FAILED long_test: it was ended after 4 s'
says 'FAILED late_test: the part had no time left for it'

# A sanitizer runs the tests; what it finds is a failure.
mkdir "$root/path"
cat >"$root/path/compute-sanitizer" <<'PROGRAM'
#!/bin/sh
tool=$2
while [ ! -x "$1" ]; do shift; done
"$@"
echo "========= $tool"
[ "$tool" = memcheck ] || exit 99
PROGRAM
chmod +x "$root/path/compute-sanitizer"
PATH=$root/path:$PATH
counts '3 passed, 0 failed, 0 skipped' --part memcheck good_test
counts '3 passed, 1 failed, 0 skipped' --part racecheck good_test
says 'status 99, and no case failed'
# A program may have a row of its own for that.
test_program kernels large_test 60 'Fake.Passes*'
test_program checks large_test 60 'Fake.Passes'
sed -i "s/'Fake/\"\$@\" '&/" "$project/bazel-bin/kernels/cuda/large_test"
counts '1 passed, 0 failed, 0 skipped' --part memcheck large_test

# As in a package, called from elsewhere.
mkdir "$project/gpu" && cp "$project/bazel-bin/kernels/cuda/good_test" "$project/gpu"
cd /
counts '3 passed, 0 failed, 0 skipped' good_test
counts '0 passed, 1 failed, 0 skipped' skip_test
counts '1 passed, 0 failed, 2 skipped' --bin "$project/bazel-bin" skip_test
cd "$root"
counts '3 passed, 0 failed, 0 skipped' --logs kept good_test
grep -q Fake.Passes "$root/kept/kernels.good_test.log" || fail "no log was kept"

# usage: refuses PATTERN ARGUMENT...
refuses() {
  local status=0
  "$project/tests/gpu/run.sh" "${@:2}" >"$root/said" 2>&1 || status=$?
  ((status == 2)) || fail "${*:2}: status $status, wanted 2"
  says "$1.*tests/gpu/run.sh --help tells"
}
refuses "'x' is none of kernels" --part x
refuses '--part needs a value' --part
refuses "unknown program 'x_test'" x_test
refuses "unknown argument '--nonsense'" --nonsense
"$project/tests/gpu/run.sh" --help >"$root/said"
says '^  tests/gpu/run.sh'
[[ -z $(ls -A "$root/tmp") ]] || fail "this was left: $(ls -A "$root/tmp")"
exit $((failures > 0))
