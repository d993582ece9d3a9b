#!/usr/bin/env bash
# Runs a gtest binary on NP ranks: run_mpi_test.sh NP BINARY. A run without a report has failed.
set -uo pipefail
np=$1 binary=$2
shift 2
rm -f "${XML_OUTPUT_FILE:?}"
# Ends before Bazel's own limit does, so that what the ranks printed is seen.
timeout -k 5 "$((${TEST_TIMEOUT:-60} - 10))" tests/mpi/mpirun.sh "$np" "$binary" "$@" </dev/null
status=$?
if [[ ! -s $XML_OUTPUT_FILE ]]; then
  echo "no report was written; mpirun ended with status $status" >&2
  exit 1
fi
exit $status
