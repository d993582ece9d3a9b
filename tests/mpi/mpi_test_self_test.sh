#!/usr/bin/env bash
# mpi_cc_test must fail when one rank does, whichever it is, and when a rank disappears.
set -uo pipefail
failed=0
# run FILTER [RANKS]: runs those cases as mpi_cc_test would, on 3 ranks; sets status, output, report.
run() {
  report=$TEST_TMPDIR/report.xml
  output=$(XML_OUTPUT_FILE=$report tests/mpi/run_mpi_test.sh "${2:-3}" tests/mpi/failing_bin --gtest_filter="$1" 2>&1)
  status=$?
}
# check WHAT COMMAND...: the command must succeed.
check() {
  local what=$1
  shift
  "$@" && return
  printf 'FAILED: %s: %s\nstatus %s, output:\n%s\n' "$what" "$*" "$status" "$output"
  failed=1
}
says() { grep -qF -- "$1" <<<"$output"; }
says_once() { [[ $(grep -cF -- "$1" <<<"$output") == 1 ]]; }
reports() { grep -q -- "$1" "$report"; }

run 'Failing.OnNoRank'
check 'a good case' test "$status" = 0
check 'a good case is told once' says_once '[       OK ] Failing.OnNoRank'
check 'the report has it' reports 'tests="1" failures="0"'

run 'Failing.On*'
check 'failures fail the test' test "$status" != 0
check 'rank 2 is named' says 'on rank 2:'
check 'its message is told' says 'planted on rank 2'
check 'the case failed' says '[  FAILED  ] Failing.OnRank2Only'
check 'so did that of rank 0' says '[  FAILED  ] Failing.OnRank0Only'
check 'the others are fine' says_once '[       OK ] Failing.OnNoRank'
check 'the report counts both' reports 'tests="3" failures="2"'

run '*.OnNoRank:*.OnOneRank'
check 'suites of peers run on 3 ranks' reports 'tests="2" failures="0"'
for filter in '*.OnNoRank:*.OnOneRank' '*.OnNoRank:*.OnOneRank-*.Rank1Exits'; do
  run "$filter" 1
  check 'on one rank, too' test "$status" = 0
  check 'suites of peers are no cases there' reports 'tests="1" failures="0"'
done

run 'Failing.Rank1Exits'
check 'a lost rank fails the test' test "$status" != 0

exit $failed
