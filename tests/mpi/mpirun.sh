#!/usr/bin/env bash
# mpirun as the tests need it, with Open MPI 4 or 5, as root too: more ranks than cores, no binding,
# and every file of its own below one private folder.
#   mpirun.sh NP COMMAND...
# MPIRUN_DIR, if set, is that folder and stays; else it is made below TEST_TMPDIR and removed.
set -uo pipefail
np=$1
shift
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
export PRTE_ALLOW_RUN_AS_ROOT=1 PRTE_ALLOW_RUN_AS_ROOT_CONFIRM=1
export OMPI_MCA_rmaps_base_oversubscribe=1 PRTE_MCA_rmaps_default_mapping_policy=:oversubscribe
export OMPI_MCA_hwloc_base_binding_policy=none PRTE_MCA_hwloc_default_binding_policy=none
export OMPI_MCA_mpi_yield_when_idle=1
if [[ -n ${MPIRUN_DIR:-} ]]; then
  TMPDIR=$MPIRUN_DIR exec mpirun -np "$np" "$@"
fi
# A short name: sockets below it have at most 108 characters.
dir=$(mktemp -d "${TEST_TMPDIR:-/tmp}/m.XXXXXX") || exit 1
trap 'rm -rf "$dir"' EXIT
TMPDIR=$dir mpirun -np "$np" "$@"
