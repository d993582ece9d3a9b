#!/usr/bin/env bash
# mpirun as the tests need it: with scripts/env.sh, and with every file of its own below one private folder.
#   mpirun.sh NP COMMAND...
# MPIRUN_DIR, if set, is that folder and stays; else it is made below TEST_TMPDIR and removed.
set -uo pipefail
np=$1
shift
# shellcheck source=scripts/env.sh
. scripts/env.sh
if [[ -n ${MPIRUN_DIR:-} ]]; then
  TMPDIR=$MPIRUN_DIR exec mpirun -np "$np" "$@"
fi
# A short name: sockets below it have at most 108 characters.
dir=$(mktemp -d "${TEST_TMPDIR:-/tmp}/m.XXXXXX") || exit 1
trap 'rm -rf "$dir"' EXIT
TMPDIR=$dir mpirun -np "$np" "$@"
