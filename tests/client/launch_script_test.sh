#!/usr/bin/env bash
# What `skein plan --emit mpirun` prints starts as it stands, on this host: two replicas of two stages serve, other hosts reach
# ports of the range alone, and all ends when the script is told to. It sets what scripts/env.sh does.
set -euo pipefail

work=$(mktemp -d /tmp/skein-emit.XXXXXX)
fail() {
  echo "FAILED: $*" >&2
  tail -n 100 "$work"/* >&2
  exit 1
}
script=
trap '[[ -z $script ]] || pkill -KILL -s "$script" || true; rm -rf "$work"' EXIT

cat >"$work/topology.json" <<'JSON'
{"hosts": [{"name": "here", "cores": 4, "memory_bytes": 8e9,
  "core_rates": {"reads": [{"working_set_bytes": 1e9, "alone_bytes_per_s": 1e10, "together_bytes_per_s": 6e9}],
                 "products": [{"dtype": "BF16", "rows": 1, "operations_per_s": 1e10}]},
  "links": [{"path": "X", "latency_us": 20, "bytes_per_s": 4e9}]}]}
JSON
skein() { client/skein "$@"; }
first=$((20000 + RANDOM % 10000))
skein plan --model=checkpoints/bard --topology="$work/topology.json" --layout=tp=1,pp=2,dp=2 --max-num-seqs=4 \
  --emit=mpirun --port-range="$first-$((first + 8))" >"$work/start.sh" || fail "no script"
# A limit that fewer sequences keep reaches the coordinator as their number.
skein plan --model=checkpoints/bard --topology="$work/topology.json" --layout=tp=1,pp=1,dp=1 --tpot-limit=8ms --emit=mpirun >"$work/limited.sh" ||
  fail "no script within a limit"
grep -qE -- '--max-num-seqs=([1-9]|1[0-5]) ' "$work/limited.sh" || fail "the limit reaches no coordinator: $(grep -- --layout "$work/limited.sh")"
# A session of its own, so that nothing of it is left behind.
SKEIN_NO_PROBE=1 TMPDIR=$work HOME=$work setsid bash "$work/start.sh" >"$work/log" 2>&1 &
script=$!
address=127.0.0.1:$first
for _ in {1..300}; do
  skein status --coordinator="$address" 2>/dev/null | grep -q '^job .*: serving, 4 of 4 ranks' && break
  kill -0 "$script" 2>/dev/null || fail "the script has ended"
  sleep 0.2
done
skein status --coordinator="$address" >"$work/status" || fail "no status"
grep -q '^job .*: serving, 4 of 4 ranks' "$work/status" || fail "it does not serve"
grep -q '^plan tp=1,pp=2,dp=2 ' "$work/status" || fail "another layout"
skein generate --coordinator="$address" --prompt=ROMEO: --max-tokens=16 --temperature=0 >"$work/answer" || fail "no answer"
[[ -s $work/answer ]] || fail "an empty answer"

# What processes of the group listen on.
cat >"$work/listening.py" <<'PYTHON'
import os, sys
def print_listening(pid):
    inodes = set()
    for fd in os.listdir(f"/proc/{pid}/fd"):
        try:
            target = os.readlink(f"/proc/{pid}/fd/{fd}")
        except OSError:
            continue
        if target.startswith("socket:["):
            inodes.add(target[8:-1])
    for family in ("tcp", "tcp6"):
        for line in open(f"/proc/{pid}/net/{family}").readlines()[1:]:
            words = line.split()
            address = words[1].split(":")[0]
            inside = address.endswith("7F") if family == "tcp" else address == "0" * 24 + "01000000"
            if words[3] == "0A" and words[9] in inodes and (not inside or len(sys.argv) == 2):
                print(int(words[1].split(":")[1], 16), family, open(f"/proc/{pid}/comm").read().strip())

for pid in sys.argv[1:]:
    try:
        print_listening(pid)
    except OSError:
        # Shells within the script come and go.
        if os.path.exists(f"/proc/{pid}/exe"):
            raise
PYTHON
python3 "$work/listening.py" "$(pgrep -s "$script" coordinator)" | grep -q "^$first tcp coordinator" ||
  fail "the coordinator does not listen on $first"
# Within the host anything may be, as between mpirun and its ranks.
# shellcheck disable=SC2046
python3 "$work/listening.py" $(pgrep -s "$script") >"$work/ports"
grep -Eq "tcp (mpirun|prterun)" "$work/ports" || fail "no mpirun listens"
[[ $(mpirun --version) != *"Open MPI) 4"* ]] || while read -r port rest; do
  ((port >= first && port <= first + 8)) || fail "$rest listens on $port"
done <"$work/ports"

# usage: end STATUS
end() {
  local status=0
  for _ in {1..300}; do kill -0 "$script" 2>/dev/null || break; sleep 0.1; done
  wait "$script" || status=$?
  ((status == $1)) || fail "the script ended with $status"
  if pgrep -s "$script" >&2; then fail "processes are left"; fi
  script=
}
kill -TERM "$script"
end 0

# Told to end before its ranks have been heard of, it takes them along; they would wait for a coordinator.
sed 's/^mpirun.*/sleep 600 \&/; /^  -np /d' "$work/start.sh" >"$work/early.sh"
HOME=$work setsid bash "$work/early.sh" >"$work/early.log" 2>&1 &
script=$!
for _ in {1..300}; do grep -q 'listening on' "$work/early.log" && break; sleep 0.1; done
kill -TERM "$script"
end 0

# A script whose job has ended ends, too: its coordinator would wait for ever.
sed 's/^mpirun/false/' "$work/start.sh" >"$work/jobless.sh"
HOME=$work setsid bash "$work/jobless.sh" >"$work/jobless.log" 2>&1 &
script=$!
end 1
grep -q ': no job is left; ' "$work/jobless.log" || fail "it does not say why"

# The variables stand for the flags.
SKEIN_TLS_CERT=/c/cert SKEIN_TLS_KEY=/c/key SKEIN_TLS_CA=/c/ca skein plan --model=checkpoints/bard --topology="$work/topology.json" \
  --layout=tp=1,pp=1,dp=1 --emit=mpirun >"$work/tls.sh" || fail "no script"
(($(grep -c -- '--tls-cert=/c/cert --tls-key=/c/key --tls-ca=/c/ca' "$work/tls.sh") == 2)) || fail "no TLS for coordinator and worker"

# Of several hosts all of env.sh's settings are there.
skein plan --model=checkpoints/bard --topology=pcie-4 --nodes=2 --layout=tp=1,pp=8,dp=1 --emit=mpirun >"$work/many.sh" || fail "no script"
settings=$(grep -oE '(OMPI|PRTE)_[A-Za-z_]+=[^ ]+' scripts/env.sh)
(($(wc -l <<<"$settings") > 10)) || fail "env.sh has no settings"
while read -r setting; do grep -qF -- "$setting" "$work/many.sh" || fail "the script lacks $setting"; done <<<"$settings"
