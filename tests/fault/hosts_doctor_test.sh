#!/usr/bin/env bash
# What `skein doctor` says of hosts with names, networks and files of their own on one machine (namespaces): nothing where all
# is well, and each thing that is planted by its name.
set -euo pipefail
# shellcheck source=tests/fault/hosts.sh
. "$(dirname "$0")/hosts.sh"
enter_hosts "$@"

bin=$PWD
for i in 1 2 3; do
  host=host$i
  add_host "$host" "10.77.0.$((i + 1))"
  slow_cable "$host" 800mbit
done
# shellcheck source=scripts/env.sh
. "$bin/scripts/env.sh"
# Each host has its two slots here; Open MPI 5's oversubscription would fill the first host with all ranks.
unset PRTE_MCA_rmaps_default_mapping_policy

# Nothing; a name that stands for loopback; a /dev/shm that is too small; another copy of the model; another version; a network
# that reaches nobody, over which ranks do not even meet.
doctor() { # ARGUMENT OF MPIRUN...
  on host1 "$bin/client/skein" doctor --np=4 --port=0 --model="$PWD/checkpoints/bard" \
    --mpirun="--host host1:2,host2:2 -x TMPDIR $*" >"$work/doctor" 2>"$work/doctor.log"
}
doctor || fail "the doctor finds something: $(cat "$work/doctor")"
grep -q 'all hosts are in 10.77.0.0/24' "$work/doctor" || fail "the doctor does not see the network"
printf '127.0.0.1 localhost\n10.77.0.2 host1\n127.0.1.1 host2\n' >"$work/wrong_hosts"
on host2 mount --bind "$work/wrong_hosts" /etc/hosts
doctor || fail "a name of loopback is an error"
grep -q 'warning *host names *host2: its own name stands for 127.0.1.1' "$work/doctor" || fail "a name of loopback is not named"
on host2 umount /etc/hosts
on host2 mount -t tmpfs -o size=24m tmpfs /dev/shm
if doctor; then fail "a small /dev/shm is not found"; fi
grep -Eq 'error */dev/shm *host2: [0-9.]+ MiB free, for 2 ranks' "$work/doctor" || fail "a small /dev/shm is not named: $(cat "$work/doctor")"
on host2 umount /dev/shm
# One number of the copy that host2 has differs, of the same size.
sed 's/"rope_theta": 1/"rope_theta": 2/' checkpoints/bard/config.json >"$work/other_config.json"
if cmp -s checkpoints/bard/config.json "$work/other_config.json"; then fail "bard's config has no such number"; fi
config=$(readlink -f checkpoints/bard/config.json)
on host2 mount --bind "$work/other_config.json" "$config"
if doctor; then fail "another copy of the model is not found"; fi
grep -Eq 'error *model *rank [0-3] on host[12],.*/checkpoints/bard is another model than on rank [0-3] on host[12]' "$work/doctor" || fail "another copy of the model is not named: $(cat "$work/doctor")"
on host2 umount "$config"
version=$("$bin/worker/worker" --version | grep -oE '[0-9]+\.[0-9]+\.[0-9]+' | head -n 1)
python3 - "$bin/worker/worker" "$work/other_worker" "$version" <<'PYTHON'
import sys
program, other, version = sys.argv[1:]
was = version[:4].encode()  # compilers make numbers of four characters
text = open(program, "rb").read()
assert was in text, version
open(other, "wb").write(text.replace(was, b"9" + was[1:]))
PYTHON
chmod +x "$work/other_worker"
on host2 mount --bind "$work/other_worker" "$bin/worker/worker"
if doctor; then fail "another version is not found"; fi
grep -q "error *versions *.*: Skein 9.*, where the others have $version" "$work/doctor" || fail "another version is not named: $(cat "$work/doctor")"
on host2 umount "$bin/worker/worker"
if doctor -x OMPI_MCA_btl_tcp_if_include=lo; then fail "a wrong network is not found"; fi
grep -q 'error *network *host1: OMPI_MCA_btl_tcp_if_include=lo names loopback alone' "$work/doctor" || fail "a wrong network is not named"

# A slow cable among three is named, too.
three_hosts() {
  on host1 "$bin/client/skein" doctor --np=3 --port=0 --mpirun="--host host1,host2,host3 -x TMPDIR" \
    >"$work/doctor" 2>"$work/doctor.log" || fail "the doctor finds an error among three hosts: $(cat "$work/doctor")"
}
three_hosts
grep -q 'ok *messages *hosts exchange' "$work/doctor" || fail "three alike hosts are not: $(cat "$work/doctor")"
slow_cable host3 80mbit
three_hosts
grep -q 'warning *messages *host3 exchanges' "$work/doctor" || fail "a slow cable is not named: $(cat "$work/doctor")"
slow_cable host3 800mbit
