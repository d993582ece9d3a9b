#!/usr/bin/env bash
# Runs the units of deploy/systemd under a real systemd, in a bare Debian of namespaces: what they start is asked, killed, reloaded,
# drained, and refused. Outside CI: needs root, and apt's packages.
#   tests/deploy/systemd.sh ROOT PACKAGE
#   ROOT: a folder with a Debian 12 or 13, as `debootstrap --variant=minbase bookworm ROOT` makes it; it stays as it is
#   PACKAGE: a tarball of scripts/package.sh
set -euo pipefail
cd "$(dirname "$0")/../.."
(($# == 2)) || { sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$0" && exit 2; }
root=$1 package=$2
# shellcheck source=tests/deploy/root.sh
. tests/deploy/root.sh

copy_root "$root" bare
install_in bare systemd systemd-sysv dbus openmpi-bin libhwloc15 curl procps iproute2
cp "$package" "$work/bare/root/skein-0.1.0.tar.gz"
boot bare
trap 'booted journalctl --no-pager --lines=60 >&2 || true' ERR

as_skein() { booted setpriv --reuid=skein --regid=skein --clear-groups "$@"; }
keys=/var/lib/skein/keys.txt
new_key() { as_skein /opt/skein/bin/skein keys add "$keys" "$1" 2>/dev/null | grep -o 'sk-skein-[A-Za-z0-9_-]*'; }
http() { booted curl --silent --max-time 60 "http://127.0.0.1:8000$1" "${@:2}"; }
status_of() { http "$1" --output /dev/null --write-out '%{http_code}' "${@:2}" || true; }
ready() { # SECONDS
  local until=$((SECONDS + $1))
  while ((SECONDS < until)); do
    [[ $(status_of /ready) == 200 ]] && return
    sleep 0.2
  done
  booted journalctl --no-pager --lines=60 >&2
  fail "it is not ready after $1 s"
}
ask() { # KEY TOKENS ANSWERS
  http /v1/completions -H "Authorization: Bearer $1" \
    --json "{\"prompt\": \"ROMEO:\", \"max_tokens\": $2, \"n\": ${3:-1}, \"ignore_eos\": true}"
}
property() { booted systemctl show --property="$2" --value "$1"; }
none_left() {
  local left
  left=$(booted ps -eo pid=,comm= | grep -E ' (skein|supervisor|coordinator|worker|mpirun)$' || true)
  [[ -z $left ]] || fail "something is left: $left"
}

# Long answers are asked for, and the unit is stopped meanwhile: they come whole.
drains() { # KEY UNIT
  ask "$1" 900 12 >"$work/long" &
  local asked=$! start=$SECONDS
  for _ in {1..100}; do
    booted curl --silent http://127.0.0.1:9000/metrics | grep -q '^skein_num_requests_running 1' && break
    sleep 0.02
  done
  [[ -d /proc/$asked ]] || fail "$2: an answer was over before the stop"
  booted systemctl stop "$2"
  wait "$asked" || fail "$2: a stop broke an answer"
  grep -q '"completion_tokens": *10800' "$work/long" || fail "$2: a stop cut an answer: $(tail -c 300 "$work/long")"
  echo "$2: 12 answers of 900 tokens outlive a stop, which took $((SECONDS - start)) s"
}

# As docs/operating.md says, word for word. The model comes late, as on a disk of another host.
sed -n '/^```sh$/,/^```$/p' docs/operating.md | sed '1d; /^```$/,$d' >"$work/bare/root/install.sh"
grep -q 'systemctl enable --now skein' "$work/bare/root/install.sh" || fail "docs/operating.md does not begin with what installs"
booted sh -ec 'cd /root && . ./install.sh' >"$work/installed" 2>&1 || { cat "$work/installed" >&2 && fail "what docs/operating.md says"; }
key=$(grep -o 'sk-skein-[A-Za-z0-9_-]*' "$work/installed")
booted systemd-analyze verify --man=no skein.service skein-coordinator.service skein-workers@workers.service >"$work/verify.log" 2>&1 || fail "systemd-analyze verify: $(<"$work/verify.log")"
[[ ! -s $work/verify.log ]] || fail "systemd-analyze verify: $(<"$work/verify.log")"
sleep 3
booted cp -r /opt/skein/checkpoints/bard /var/lib/skein/model
booted chown -R skein:skein /var/lib/skein/model

echo "--- skein.service"
ready 60
booted systemctl restart skein  # the counts of restarts begin anew
ready 60
[[ $(status_of /v1/models) == 401 ]] || fail "it asks for no key"
ask "$key" 16 | grep -q '"text"' || fail "no answer"
[[ $(booted ps -o user= -C worker | sort -u) == skein ]] || fail "workers are not the user skein's"
bob=$(new_key bob)
[[ $(status_of /v1/models -H "Authorization: Bearer $bob") == 401 ]] || fail "a key is known before it was read"
booted systemctl reload skein
for _ in {1..50}; do [[ $(status_of /v1/models -H "Authorization: Bearer $bob") == 200 ]] && break; sleep 0.1; done
[[ $(status_of /v1/models -H "Authorization: Bearer $bob") == 200 ]] || fail "a reload reads no keys"
[[ $(property skein NRestarts) == 0 ]] || fail "a reload is a restart"
booted pkill -KILL --exact worker
sleep 0.5
ready 30
[[ $(property skein NRestarts) == 0 ]] || fail "a dead rank ends the unit"
drains "$key" skein
[[ $(property skein Result) == success ]] || fail "a stop is no success: $(property skein Result)"
none_left
booted test -s /var/lib/skein/usage.db || fail "no database of what keys have used"
# What fails is started again; what is misconfigured is not.
booted systemctl start skein
ready 30
booted pkill -KILL --exact skein
for _ in {1..100}; do [[ $(property skein NRestarts) == 1 ]] && break; sleep 0.1; done
ready 30
booted systemctl stop skein
none_left
booted sed -i 's/^metrics = .*/metricz = x/' /etc/skein/skein.toml
booted systemctl start skein || true
for _ in {1..50}; do [[ $(property skein ActiveState) == failed ]] && break; sleep 0.1; done
sleep 3
[[ $(property skein ActiveState) == failed && $(property skein NRestarts) -le 1 ]] || fail "a wrong file is tried again: $(property skein NRestarts)"
booted sed -i 's/^metricz = .*/metrics = 127.0.0.1:9000/' /etc/skein/skein.toml
booted systemctl reset-failed skein

echo "--- skein-coordinator.service, skein-workers@workers.service"
booted systemctl start skein-coordinator skein-workers@workers
ready 60
ask "$key" 16 | grep -q '"text"' || fail "no answer"
carol=$(new_key carol)
booted systemctl reload skein-coordinator
for _ in {1..50}; do [[ $(status_of /v1/models -H "Authorization: Bearer $carol") == 200 ]] && break; sleep 0.1; done
[[ $(status_of /v1/models -H "Authorization: Bearer $carol") == 200 ]] || fail "a reload reads no keys"
# A new coordinator, as after an upgrade: the workers that its drain sent home come back.
booted systemctl restart skein-coordinator
ready 60
ask "$carol" 16 | grep -q '"text"' || fail "no answer after a restart of the coordinator"
booted pkill -KILL --exact coordinator
sleep 0.5
ready 60
booted systemctl stop skein-workers@workers
[[ $(property skein-workers@workers Result) == success ]] || fail "a stop is no success: $(property skein-workers@workers Result)"
[[ $(status_of /ready) == 503 ]] || fail "it is ready without workers"
booted systemctl start skein-workers@workers
ready 60
drains "$key" skein-coordinator
booted systemctl stop skein-workers@workers
none_left

for unit in skein skein-coordinator skein-workers@workers; do
  booted systemd-analyze security --no-pager "$unit" | tail -n 1
done
echo "passed: the units run under systemd $(booted systemctl --version | awk 'NR == 1 {print $2}')"
