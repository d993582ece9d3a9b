#!/usr/bin/env bash
# Each flag by which a program listens somewhere stands in docs/ports.md, and no port is a default, or chosen by a file of deploy/,
# that the page does not name.
set -euo pipefail

page=docs/ports.md
# What names a place to connect to, or a file that a port is written to, opens no port.
other='^--(coordinator|config|.*-file)$'
found=0
for help in "coordinator/coordinator" "worker/worker" "supervisor/supervisor" "client/skein serve" "client/skein plan"; do
  # shellcheck disable=SC2086
  $help --help >"$TEST_TMPDIR/help"
  while read -r flag value _; do
    [[ $flag =~ $other ]] && continue
    [[ $value == *HOST:PORT* || $flag == *-port* ]] || continue
    found=$((found + 1))
    grep -q -e "$flag\b" "$page" || { echo "$page does not say what listens by $flag of $help" >&2 && exit 1; }
    port=${value##*:}
    [[ $value != *=*:* ]] || grep -q "\b$port\b" "$page" || { echo "$page does not name $port, the default of $flag of $help" >&2 && exit 1; }
  done < <(grep -E '^ +--' "$TEST_TMPDIR/help")
done
((found >= 6)) || { echo "only $found flags were found: does --help look otherwise?" >&2 && exit 1; }

# Of containers, SSH and settings.
ports=$(grep -RhoE '(containerPort: |^ *Port |^ *(http|metrics|listen) = [^ ]*:)[0-9]+' deploy | grep -oE '[0-9]+$' | sort -u)
for port in $ports; do
  grep -q "\b$port\b" "$page" || { echo "$page does not name $port, which a file of deploy/ chooses" >&2 && exit 1; }
done
(($(wc -w <<<"$ports") >= 3)) || { echo "deploy/ chooses only these ports: $ports" >&2 && exit 1; }
