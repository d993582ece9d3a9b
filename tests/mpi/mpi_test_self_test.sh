#!/usr/bin/env bash
# mpi_cc_test must fail when one rank does, whichever it is, and when a rank disappears.
set -uo pipefail
failed=0
# run FILTER: runs those cases as mpi_cc_test would; sets status, output, report.
run() {
  report=$TEST_TMPDIR/report.xml
  output=$(XML_OUTPUT_FILE=$report tests/mpi/run_mpi_test.sh 3 tests/mpi/failing_bin \
    --gtest_filter="$1" 2>&1)
  status=$?
}
check() {
  if ! eval "$2"; then
    printf 'FAILED: %s: %s\nstatus %s, output:\n%s\n' "$1" "$2" "$status" "$output"
    failed=1
  fi
}

run 'Failing.OnNoRank'
check 'a good case' '[[ $status == 0 ]]'
check 'a good case is reported once' '[[ $(grep -c "\[       OK \] Failing.OnNoRank" <<<"$output") == 1 ]]'
check 'the report has it' 'grep -q "tests=\"1\" failures=\"0\"" "$report"'

run 'Failing.On*'
check 'failures fail the test' '[[ $status != 0 ]]'
check 'rank 2 is named' 'grep -q "on rank 2:" <<<"$output"'
check 'its message is told' 'grep -q "planted on rank 2" <<<"$output"'
check 'the case failed' 'grep -q "\[  FAILED  \] Failing.OnRank2Only" <<<"$output"'
check 'so did that of rank 0' 'grep -q "\[  FAILED  \] Failing.OnRank0Only" <<<"$output"'
check 'the others are fine' 'grep -q "\[       OK \] Failing.OnNoRank" <<<"$output"'
check 'the report counts both' 'grep -q "tests=\"3\" failures=\"2\"" "$report"'

run 'Failing.Rank1Exits'
check 'a lost rank fails the test' '[[ $status != 0 ]]'

[[ -z $(ls -A /dev/shm | grep -E 'vader|sm_segment') ]] || { ls -A /dev/shm; failed=1; }
exit $failed
