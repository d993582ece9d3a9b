# Settings of Open MPI for `. scripts/env.sh`: more ranks than cores, no binding, root may start them.
# OMPI_* is read by Open MPI 4 (and by 5's library), PRTE_* by the launcher of Open MPI 5.
# Open MPI 5 does not start where $TMPDIR holds the session folder (prterun.HOST.PID.UID) of a killed mpirun of the same pid,
# as in a container that was started again: give every start a TMPDIR of its own, as scripts/launch.sh does.
# shellcheck shell=sh
export OMPI_MCA_rmaps_base_oversubscribe=1
export OMPI_MCA_hwloc_base_binding_policy=none
# mpirun notices a host that fell silent after some 3 s instead of 8 minutes; Open MPI 5 a second later, so that the coordinator, which names it, comes first.
export OMPI_MCA_oob_tcp_keepalive_time=1 OMPI_MCA_oob_tcp_keepalive_intvl=1 OMPI_MCA_oob_tcp_keepalive_probes=2
export PRTE_MCA_oob_tcp_keepalive_time=1 PRTE_MCA_oob_tcp_keepalive_intvl=1 PRTE_MCA_oob_tcp_keepalive_probes=3
export PRTE_MCA_rmaps_default_mapping_policy=:oversubscribe
export PRTE_MCA_hwloc_default_binding_policy=none
if [ "$(id -u)" -eq 0 ]; then
  export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
  export PRTE_ALLOW_RUN_AS_ROOT=1 PRTE_ALLOW_RUN_AS_ROOT_CONFIRM=1
fi
