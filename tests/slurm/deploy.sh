#!/usr/bin/env bash
# The scripts of deploy/slurm, submitted to a real Slurm of two hosts (namespaces): HTTP answers, ranks that die, scancel. Outside CI: needs
# root, and Debian's slurmctld, slurmd, slurm-client, openmpi-bin, curl and, for Slurm's pmix, libpmix-dev.
#   tests/slurm/deploy.sh PACKAGE
#   PACKAGE: a tarball of scripts/package.sh
set -euo pipefail
cd "$(dirname "$0")/../.."
# shellcheck source=tests/fault/hosts.sh
. tests/fault/hosts.sh
# shellcheck source=tests/slurm/cluster.sh
. tests/slurm/cluster.sh
export PATH=$PATH:/usr/sbin:/sbin
if [[ ${1:-} != inside ]]; then
  [[ -f ${1:-} ]] || { sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$0" && exit 2; }
  SKEIN_PACKAGE=$(realpath "$1")
  export SKEIN_PACKAGE
fi
enter_slurm "$@"

# What every host sees by the same path.
export SKEIN=$work/skein SKEIN_NO_PROBE=1
mkdir "$SKEIN"
tar -xzf "$SKEIN_PACKAGE" -C "$SKEIN" --strip-components=1
"$SKEIN/scripts/make-certs.sh" "$work/certs" host1 host2 127.0.0.1 >/dev/null
key=$("$SKEIN/bin/skein" keys add "$work/keys.txt" alice 2>/dev/null | grep -o 'sk-skein-[A-Za-z0-9_-]*')

submit() { # SCRIPT FLAG... ; with $settings
  job=$(slurm host1 env "${settings[@]}" sbatch --parsable --output="$work/job.log" "$1" "$SKEIN/checkpoints/bard" "${@:2}")
}
http() { curl --silent --max-time 30 "http://10.77.0.2:8000$1" -H "Authorization: Bearer $key" "${@:2}"; }
ready() { # SECONDS
  local until=$((SECONDS + $1))
  while ((SECONDS < until)); do
    [[ $(http /ready --output /dev/null --write-out '%{http_code}') == 200 ]] && return
    sleep 0.2
  done
  fail "it is not ready after $1 s"
}
ask() { # TOKENS ANSWERS
  http /v1/completions --json "{\"prompt\": \"ROMEO:\", \"max_tokens\": $1, \"n\": $2, \"temperature\": 0.5, \"ignore_eos\": true}"
}
# Of all hosts, as this one sees them; the dead are none.
alive() { ps -eo stat=,comm= | awk '$1 !~ /^Z/ && $2 ~ /^(worker|coordinator|supervisor|mpirun|orted|prterun|prted)$/ {print $2}'; }
none_left() {
  for _ in {1..150}; do [[ -z $(alive) ]] && break; sleep 0.1; done
  [[ -z $(alive) ]] || { ps -ef >&2 && fail "$1 leaves something: $(alive | xargs)"; }
}
on_both() {
  local host
  for host in host1 host2; do on "$host" pgrep -x worker >/dev/null || fail "no worker on $host"; done
}
drains() { # SCRIPT
  ask 900 12 >"$work/long" &
  local asked=$!
  for _ in {1..200}; do http /metrics | grep -q '^skein_num_requests_running 1' && break; sleep 0.02; done
  [[ -d /proc/$asked ]] || fail "$1: the answers were over before the signal"
  scancel --batch --signal=TERM "$job"
  wait "$asked" || fail "$1: a signal broke answers"
  grep -q '"completion_tokens": *10800' "$work/long" || fail "$1: a signal cut answers: $(tail -c 300 "$work/long")"
  ended "$job" COMPLETED
  none_left "$1"
}

for script in skein supervised; do
  for settings in "SKEIN_KEYS=$work/keys.txt" "SKEIN_KEYS=$work/keys.txt SKEIN_CERTS=$work/certs"; do
    read -ra settings <<<"$settings"
    submit "deploy/slurm/$script.sbatch" --layout=tp=2,pp=2
    ready 60
    on_both
    ask 16 1 | grep -q '"text"' || fail "$script: no answer"
    [[ $(curl --silent --output /dev/null --write-out '%{http_code}' http://10.77.0.2:8000/v1/models) == 401 ]] || fail "$script: no key is asked for"
    drains "$script.sbatch"
    echo "$script.sbatch ${settings[*]%%=*}: serves on two hosts, drains"
  done
  # A dead rank: the plain job ends, the supervised one goes on.
  submit "deploy/slurm/$script.sbatch" --layout=tp=2,pp=2
  ready 60
  on host2 pkill -KILL -n -x worker
  if [[ $script == supervised ]]; then
    for _ in {1..100}; do [[ $(http /ready --output /dev/null --write-out '%{http_code}') == 503 ]] && break; sleep 0.1; done
    ready 60
    ask 16 1 | grep -q '"text"' || fail "$script: no answer after a rank's death"
    scancel "$job"
    ended "$job" CANCELLED
  else
    ended "$job" FAILED
  fi
  none_left "$script.sbatch"
  echo "$script.sbatch: a dead rank leaves nothing wrong"
done
# Cut short, while it answers.
settings=(SKEIN_KEYS="$work/keys.txt")
submit deploy/slurm/skein.sbatch --layout=tp=2,pp=2
ready 60
ask 900 12 >"$work/long" &
asked=$!
for _ in {1..200}; do http /metrics | grep -q '^skein_num_requests_running 1' && break; sleep 0.02; done
scancel "$job"
ended "$job" CANCELLED
wait "$asked" || true
none_left "scancel of skein.sbatch"
echo "passed: Slurm $(slurmctld -V | cut -d' ' -f2) runs the scripts of deploy/slurm on two hosts"
