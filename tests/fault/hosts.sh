# For tests: hosts with names, networks, processes and shared memory of their own on one machine (namespaces), so that
# what passes between them passes over TCP, and one cannot see the other's processes. Sourced.
#
#   enter_hosts "$@"             at a test's begin: runs the test again inside, where $work is a folder that goes with it;
#                                as root itself where $HOSTS_AS_ROOT is set
#   add_host NAME ADDRESS        of 10.77.0.0/24; the test itself is at 10.77.0.1
#   on NAME COMMAND...           as if logged in there
#   slow_cable NAME RATE         800mbit, say
#   unplug NAME, plug_in NAME    its cable
#   $work/agent HOST COMMAND...  what mpirun takes for ssh: it works from any host, as sshd does
# shellcheck shell=bash

enter_hosts() {
  if [[ ${1:-} == inside ]]; then
    work=$2
    mount -t tmpfs tmpfs "$work"
    mount -t proc proc /proc
    mount -t tmpfs tmpfs /dev/shm
    export TMPDIR=$work HOME=$work # Open MPI 5 asks for a HOME, which Bazel's tests lack
    ip link set lo up
    ip link add bridge0 type bridge
    ip addr add 10.77.0.1/24 dev bridge0
    ip link set bridge0 up
    printf '127.0.0.1 localhost\n10.77.0.1 head\n' >"$work/hosts"
    mount --bind "$work/hosts" /etc/hosts
    make_agent
    set -E
    trap 'echo "FAILED: ${BASH_SOURCE[0]}:$LINENO: $BASH_COMMAND" >&2; cat "$work"/*.log >&2 2>/dev/null || true' ERR
    return
  fi
  local user=(--user --map-root-user)
  # Slurm's daemons set groups, which a user's namespace does not let them.
  [[ -z ${HOSTS_AS_ROOT:-} ]] || user=()
  unshare "${user[@]}" --net true 2>/dev/null || { echo "this system lets its users make no network namespaces" >&2; exit 1; }
  local folder status=0
  folder=$(mktemp -d /tmp/skein-hosts.XXXXXX)
  local limit=${HOSTS_TIMEOUT:-175}
  timeout --signal=KILL "$limit" unshare "${user[@]}" --net --mount --uts --pid --fork --kill-child "$0" inside "$folder" || status=$?
  ((status != 137)) || echo "FAILED: it took longer than $limit s" >&2
  rmdir "$folder"
  exit "$status"
}

fail() {
  echo "FAILED: $*" >&2
  tail -n 200 "$work"/*.log >&2
  exit 1
}

# A stand-in for ssh and its daemons: one listens on each host, at a socket that all see.
make_agent() {
  cat >"$work/agentd" <<'PYTHON'
import socketserver, subprocess, sys
class Login(socketserver.StreamRequestHandler):
    def handle(self):
        command = self.rfile.readline().decode()
        out = self.connection.fileno()
        subprocess.run(["sh", "-c", command], stdin=subprocess.DEVNULL, stdout=out, stderr=out)
class Server(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    daemon_threads = True
Server(sys.argv[1], Login).serve_forever()
PYTHON
  cat >"$work/agent" <<AGENT
#!/usr/bin/env python3
import socket, sys
connection = socket.socket(socket.AF_UNIX)
connection.connect("$work/" + sys.argv[1] + ".socket")
connection.sendall((" ".join(sys.argv[2:]) + "\n").encode())
while data := connection.recv(65536):
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()
AGENT
  chmod +x "$work/agent"
  # Open MPI 4 (plm, btl, oob) and 5 (plm, btl, prte): this agent, and the hosts' network instead of loopback.
  export OMPI_MCA_plm_rsh_agent=$work/agent PRTE_MCA_plm_ssh_agent=$work/agent
  export OMPI_MCA_btl_tcp_if_include=10.77.0.0/24 OMPI_MCA_oob_tcp_if_include=10.77.0.0/24 PRTE_MCA_prte_if_include=10.77.0.0/24
}

add_host() { # NAME ADDRESS
  echo "$2 $1" >>"$work/hosts"
  # The first process of a host is a shell, which takes the ends of orphans, as any init does.
  # shellcheck disable=SC2016
  unshare --net --uts --mount --pid --fork --kill-child bash -c '
    mount -t proc proc /proc && mount -t tmpfs tmpfs /dev/shm && hostname "$1" && { python3 "$2/agentd" "$2/$1.socket" & wait; }' \
    host "$1" "$work" >"$work/$1.log" 2>&1 &
  for _ in {1..200}; do [[ -S $work/$1.socket ]] && break; sleep 0.05; done
  [[ -S $work/$1.socket ]] || fail "host $1 does not start"
  pgrep -P $! >"$work/$1.pid"
  ip link add "to-$1" type veth peer name eth0 netns "$(cat "$work/$1.pid")"
  ip link set "to-$1" master bridge0 up
  on "$1" ip link set lo up
  on "$1" ip addr add "$2/24" dev eth0
  on "$1" ip link set eth0 up
}

on() {
  local host=$1
  shift
  # shellcheck disable=SC2016
  nsenter --target "$(cat "$work/$host.pid")" --net --uts --mount --pid -- sh -c 'cd "$0" && exec "$@"' "$PWD" "$@"
}

# Its cable carries no more than RATE, as tc writes it, of what it sends.
slow_cable() { # NAME RATE
  PATH=$PATH:/usr/sbin:/sbin on "$1" tc qdisc replace dev eth0 root tbf rate "$2" burst 128kb latency 20ms
}
unplug() { ip link set "to-$1" down; }
plug_in() { ip link set "to-$1" up; }
