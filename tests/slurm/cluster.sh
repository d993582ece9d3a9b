# For tests: a real Slurm of one controller ("head", 10.77.0.1) and two hosts ("host1", "host2"), each in network and UTS namespaces of
# its own. Sourced, behind tests/fault/hosts.sh. Needs root, and Debian's slurmctld, slurmd and slurm-client.
#
#   enter_slurm "$@"       at a test's begin
#   slurm HOST COMMAND...  on a host, with Slurm's settings
#   ended JOB STATE        waits for that
# shellcheck shell=bash disable=SC2154

enter_slurm() {
  local program
  for program in slurmctld slurmd sbatch; do
    command -v "$program" >/dev/null || { echo "$0: no $program: apt-get install slurmctld slurmd slurm-client" >&2; exit 1; }
  done
  [[ $(id -u) -eq 0 ]] || { echo "$0: Slurm's daemons are root's" >&2; exit 1; }
  HOSTS_TIMEOUT=${HOSTS_TIMEOUT:-300} HOSTS_AS_ROOT=1 enter_hosts "$@"
  export SLURM_CONF=$work/slurm.conf OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
  local i host
  for i in 1 2; do add_host "host$i" "10.77.0.$((i + 1))"; done
  hostname head
  mkdir "$work/state" "$work/tmp-host1" "$work/tmp-host2"
  cat >"$SLURM_CONF" <<CONF
ClusterName=skein
SlurmctldHost=head(10.77.0.1)
AuthType=auth/none
CredType=cred/none
SlurmUser=root
StateSaveLocation=$work/state
SlurmdSpoolDir=$work/spool-%n
TmpFS=$work/tmp-%n
SlurmctldPidFile=$work/slurmctld.pid
SlurmdPidFile=$work/slurmd-%n.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
SelectType=select/linear
KillWait=5
NodeName=host1 NodeAddr=10.77.0.2 CPUs=2
NodeName=host2 NodeAddr=10.77.0.3 CPUs=2
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
CONF
  slurmctld -D >"$work/slurmctld.log" 2>&1 &
  for host in host1 host2; do
    slurm "$host" slurmd -D -N "$host" >"$work/slurmd-$host.log" 2>&1 &
  done
  for _ in {1..300}; do [[ $(sinfo --noheader --format=%T%D 2>/dev/null) == idle2 ]] && break; sleep 0.1; done
  [[ $(sinfo --noheader --format=%T%D) == idle2 ]] || fail "Slurm has no two hosts: $(sinfo)"
}

slurm() { on "$1" env SLURM_CONF="$SLURM_CONF" "${@:2}"; }

ended() {
  local state
  for _ in {1..200}; do
    state=$(scontrol show job "$1" | sed -n 's/.*JobState=\([A-Z]*\).*/\1/p')
    [[ $state == "$2" ]] && return
    sleep 0.1
  done
  fail "the job is $state, not $2"
}
