# For scripts that try what deploy/ holds on a bare Debian: systems in folders, as debootstrap makes them. Sourced, by root.
#
#   $work                        a folder that goes with the script, and with it all that was started
#   copy_root FROM NAME          $work/NAME, a copy of a system, which may be changed
#   install_in NAME PACKAGE...   from where FROM's own sources.list says
#   in_root NAME COMMAND...      in a root, a mount and a PID namespace of its own; what it leaves running ends with it
#   boot NAME                    systemd as its first process, on a network of its own
#   booted COMMAND...            in the system that was booted
# shellcheck shell=bash

fail() {
  echo "FAILED: $*" >&2
  exit 1
}

[[ $(id -u) -eq 0 ]] || fail "only root may have systems in folders"
work=$(mktemp -d "${TMPDIR:-/var/tmp}/skein-deploy.XXXXXX")
init=''
end() {
  local started
  mapfile -t started < <(jobs -p)
  kill -KILL ${init:+"$init"} "${started[@]}" 2>/dev/null || true
  wait 2>/dev/null || true
  rm -rf --one-file-system "$work"
}
trap end EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

copy_root() {
  [[ -x $1/usr/bin/apt-get ]] || fail "'$1' is no system of Debian; one is made by: debootstrap --variant=minbase bookworm FOLDER"
  cp -a --reflink=auto "$1" "$work/$2"
  # Daemons of packages are started by nobody.
  printf '#!/bin/sh\nexit 101\n' >"$work/$2/usr/sbin/policy-rc.d"
  chmod +x "$work/$2/usr/sbin/policy-rc.d"
}

# What a system needs of its machine, below $1.
# shellcheck disable=SC2016
mounts='
  root=$1
  shift
  mount --make-rprivate / && mount --bind "$root" "$root" && cd "$root"
  mount -t proc proc proc
  mount -t sysfs sysfs sys 2>/dev/null || mount --rbind /sys sys
  mount -t tmpfs -o mode=755 tmpfs dev
  mkdir dev/pts dev/shm
  for device in null zero full random urandom tty; do touch "dev/$device" && mount --bind "/dev/$device" "dev/$device"; done
  mount -t devpts -o newinstance,ptmxmode=0666 devpts dev/pts && ln -s pts/ptmx dev/ptmx
  ln -s /proc/self/fd dev/fd
  mount -t tmpfs -o mode=1777 tmpfs dev/shm
  mount -t tmpfs -o mode=1777 tmpfs tmp
  move() { mkdir -p .old && pivot_root . .old && umount -l .old && cd /; }
'
# A clean environment: the machine'\''s own is none of its business.
clean=(env -i HOME=/root LANG=C.UTF-8 PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin)

in_root() {
  unshare --mount --pid --uts --ipc --fork --kill-child bash -c "set -e; $mounts move; exec \"\$@\"" in-root "$work/$1" "${clean[@]}" "${@:2}"
}

install_in() {
  in_root "$1" env DEBIAN_FRONTEND=noninteractive sh -c 'apt-get -qq update && apt-get -qq -o Dpkg::Use-Pty=0 install -y --no-install-recommends "$@"' \
    install "${@:2}" >"$work/apt.log" 2>&1 || { tail -n 20 "$work/apt.log" >&2 && fail "apt-get install ${*:2}"; }
}

boot() {
  # shellcheck disable=SC2016
  unshare --mount --pid --uts --ipc --net --cgroup --fork --kill-child bash -c "set -e; $mounts"'
    mount -t tmpfs -o mode=755 tmpfs run
    umount -R sys/fs/cgroup 2>/dev/null || true
    mount -t cgroup2 cgroup2 sys/fs/cgroup
    hostname bare
    move
    ip link set lo up
    exec env -i container=skein PATH=/usr/sbin:/usr/bin:/sbin:/bin /lib/systemd/systemd --show-status=no' boot "$work/$1" \
    >"$work/boot.log" 2>&1 </dev/null &
  local outer=$!
  for _ in {1..100}; do
    init=$(pgrep -P "$outer" -x systemd) && break
    kill -0 "$outer" 2>/dev/null || break
    sleep 0.1
  done
  [[ -n $init ]] || { cat "$work/boot.log" >&2 && fail "systemd does not start here"; }
  for _ in {1..300}; do
    [[ $(booted systemctl is-system-running 2>/dev/null) =~ running|degraded ]] && return
    sleep 0.1
  done
  booted systemctl --no-pager list-jobs >&2 || true
  fail "the system does not come up"
}

booted() { nsenter --target "$init" --mount --uts --ipc --net --pid --cgroup -- "${clean[@]}" "$@"; }
