#!/usr/bin/env bash
# Runs the steps of deploy/container/Containerfile in a bare Debian, without a container engine, and then what the image would: a model served by
# its ENTRYPOINT and CMD, as its user, on a root that cannot be written; and a job of two pods, to which mpirun comes by ssh. Outside CI: needs
# root, and apt's packages.
#   tests/deploy/container.sh ROOT [PACKAGE]
#   ROOT: a folder with a Debian 12, as `debootstrap --variant=minbase bookworm ROOT` makes it; it stays as it is
#   PACKAGE: a tarball of scripts/package.sh, instead of building one (half an hour on two cores)
set -euo pipefail
cd "$(dirname "$0")/../.."
(($# == 1 || $# == 2)) || { sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$0" && exit 2; }
base=$1 package=${2:-}
# shellcheck source=tests/deploy/root.sh
. tests/deploy/root.sh

git clone -q . "$work/context"
cp -rT deploy "$work/context/deploy"
arguments=()
if [[ -n $package ]]; then
  mkdir "$work/context/dist"
  cp "$package" "$work/context/dist/skein.tar.gz"
  arguments=(PACKAGE=given)
fi
mkdir "$work/stages"
tests/deploy/containerfile.py deploy/container/Containerfile "$work/context" "$base" "$work/stages" "${arguments[@]}" >"$work/image.json" 2>"$work/build.log" ||
  { tail -n 40 "$work/build.log" >&2 && fail "a step of the Containerfile"; }
setting() { python3 -c "import json, sys; image = json.load(open('$work/image.json')); print(eval(sys.argv[1], {'image': image, **image['settings']}))" "$1"; }
image=$(setting 'image["root"]')
echo "the image has $(du -sm "$image" | cut -f1) MiB"

touch "$image/etc/hosts"
mkdir -p "$image/model" "$work/pods"

# A pod: a network of its own, the root read-only but for /tmp, /dev/shm and the home, the image's user, folder and environment, and no capabilities.
# shellcheck disable=SC2016
pod='
  set -e
  image=$1 pod=$2 user=$3
  shift 3
  mount --make-rprivate / && mount --bind "$image" "$image" && cd "$image"
  mount -t proc proc proc && mount --rbind /dev dev
  mount --bind "$image/opt/skein/checkpoints/bard" model
  mount -t tmpfs -o mode=1777 tmpfs tmp
  mount -t tmpfs -o mode=1777 tmpfs dev/shm
  mount --bind "$pod/home" home/skein
  mount --bind "$pod/hosts" etc/hosts
  mount -t tmpfs tmpfs mnt && mkdir mnt/old && pivot_root . mnt/old && umount -l mnt/old && umount mnt
  mount -o remount,bind,ro /
  hostname "${pod##*/}"
  until [ -e /dev/shm/plugged-in ]; do sleep 0.05; done
  rm /dev/shm/plugged-in
  cd /home/skein
  exec setpriv --reuid="${user%:*}" --regid="${user#*:}" --clear-groups --bounding-set=-all --no-new-privs -- "$@"'
environment=(env -i HOME=/home/skein)
while read -r pair; do environment+=("$pair"); done < <(setting '"\n".join(f"{k}={v}" for k, v in env.items())')
user=$(setting user)

declare -A first outer  # of a pod: its first process, and what waits for it
# usage: start_pod NAME ADDRESS COMMAND...
start_pod() {
  local name=$1 address=$2 pid=''
  shift 2
  mkdir -p "$work/pods/$name/home/.ssh"
  printf '127.0.0.1 localhost\n10.88.0.2 pod1\n10.88.0.3 pod2\n' >"$work/pods/$name/hosts"
  # As a secret's volume has them: root's, and readable.
  cp "$work/id_rsa" "$work/id_rsa.pub" "$work/pods/$name/home/.ssh/"
  cp "$work/id_rsa.pub" "$work/pods/$name/home/.ssh/authorized_keys"
  chmod 644 "$work/pods/$name/home/.ssh"/*
  chown "$user" "$work/pods/$name/home"
  unshare --net --mount --uts --ipc --pid --fork --kill-child "${environment[@]}" bash -c "$pod" pod "$image" "$work/pods/$name" "$user" "$@" \
    >"$work/$name.log" 2>&1 </dev/null &
  outer[$name]=$!
  for _ in {1..100}; do pid=$(pgrep -P "${outer[$name]}") && break; sleep 0.05; done
  [[ -n $pid ]] || { cat "$work/$name.log" >&2 && fail "$name does not start"; }
  first[$name]=$pid
  on_switch ip link add "to-$name" type veth peer name eth0 netns "$pid"
  on_switch ip link set "to-$name" master bridge0 up
  nsenter --target "$pid" --net sh -c "ip link set lo up && ip addr add $address/24 dev eth0 && ip link set eth0 up"
  for _ in {1..100}; do nsenter --target "$pid" --mount touch /dev/shm/plugged-in && break; sleep 0.05; done
}
# usage: in_pod NAME COMMAND...: as `kubectl exec` does
in_pod() {
  nsenter --target "${first[$1]}" --net --mount --uts --ipc --pid -- setpriv --reuid="${user%:*}" --regid="${user#*:}" --clear-groups "${environment[@]}" "${@:2}"
}
ssh-keygen -q -t rsa -N '' -f "$work/id_rsa"
unshare --net --kill-child --fork sleep infinity &
for _ in {1..100}; do switch=$(pgrep -P $!) && break; sleep 0.05; done
on_switch() { nsenter --target "$switch" --net "$@"; }
on_switch ip link add bridge0 type bridge
on_switch ip link set bridge0 up

echo "--- ENTRYPOINT and CMD"
mapfile -t words < <(setting '"\n".join(entrypoint + cmd)')
start_pod pod1 10.88.0.2 "${words[@]}"
check=$(setting healthcheck)
healthy() { in_pod pod1 sh -c "$check" >"$work/health" 2>&1; }
for _ in {1..300}; do healthy && break; sleep 0.2; done
healthy || { cat "$work/health" "$work/pod1.log" >&2 && fail "HEALTHCHECK"; }
for _ in {1..300}; do in_pod pod1 curl -sfo /dev/null http://127.0.0.1:8000/ready && break; sleep 0.2; done
in_pod pod1 curl -s http://127.0.0.1:8000/v1/completions --json '{"prompt": "ROMEO:", "max_tokens": 8}' | grep -q '"text"' || fail "no answer"
# As `podman stop` and Kubernetes end it: SIGTERM to the first process.
kill -TERM "${first[pod1]}"
timeout 30 tail --pid="${outer[pod1]}" -f /dev/null || fail "it does not end"
status=0
wait "${outer[pod1]}" || status=$?
((status == 0)) || { cat "$work/pod1.log" >&2 && fail "it ends with $status"; }

echo "--- two pods"
start_pod pod1 10.88.0.2 sleep infinity
start_pod pod2 10.88.0.3 /usr/sbin/sshd -D -e -f /etc/ssh/skein_sshd_config
for _ in {1..100}; do in_pod pod1 ssh pod2 true 2>"$work/ssh.log" && break; sleep 0.1; done
in_pod pod1 ssh pod2 true || { cat "$work/ssh.log" "$work/pod2.log" >&2 && fail "no ssh to the other pod"; }
in_pod pod1 sh -c 'printf "pod1 slots=2\npod2 slots=2\n" >/tmp/hosts'
in_pod pod1 /opt/skein/scripts/launch.sh --model=/model --coordinator=pod1:50051 --ranks=4 --hostfile=/tmp/hosts \
  --coordinator-flag=--http=127.0.0.1:8000 --coordinator-flag=--insecure --coordinator-flag=--layout=tp=2,pp=2 -- --no-probe >"$work/launch.log" 2>&1 &
launch=$!
for _ in {1..300}; do in_pod pod1 curl -sfo /dev/null http://127.0.0.1:8000/ready && break; sleep 0.2; done
in_pod pod1 curl -s http://127.0.0.1:8000/v1/completions --json '{"prompt": "ROMEO:", "max_tokens": 8}' | grep -q '"text"' ||
  { cat "$work/launch.log" >&2 && fail "no answer of two pods"; }
in_pod pod2 pgrep -x worker >/dev/null || fail "no rank in the second pod"
in_pod pod1 pkill -TERM -x supervisor
wait "$launch" || true
for name in pod1 pod2; do
  for _ in {1..100}; do in_pod "$name" pgrep 'worker|orted' >/dev/null || break; sleep 0.1; done
  if in_pod "$name" pgrep -a 'worker|orted' >&2; then fail "the job leaves something in $name"; fi
done
kill -KILL "${first[@]}"
echo "passed: the image serves alone, and over two pods"
