#!/usr/bin/env bash
# mpirun as the tests need it: with scripts/env.sh, and with every file of its own below one private folder.
#   mpirun.sh NP COMMAND...
# MPIRUN_DIR, if set, is that folder and stays; else it is made below TEST_TMPDIR and removed.
set -uo pipefail
np=$1
shift
# shellcheck source=scripts/env.sh
. scripts/env.sh
dir=${MPIRUN_DIR:-}
if [[ -z $dir ]]; then
  # A short name: sockets below it have at most 108 characters.
  dir=$(mktemp -d "${TEST_TMPDIR:-/tmp}/m.XXXXXX") || exit 1
  trap 'rm -rf "$dir"' EXIT
fi
export TMPDIR=$dir HOME=${HOME:-$dir} # Bazel's tests have no HOME, which Open MPI 5 asks for
if [[ -n ${MPIRUN_DIR:-} ]]; then exec mpirun -np "$np" "$@"; fi
mpirun -np "$np" "$@"
