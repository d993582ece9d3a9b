#!/usr/bin/env bash
# scripts/setup.sh on systems that it knows and on others, with an /etc/os-release, a dpkg and an apt-get that pretend.
set -euo pipefail
cd "$(dirname "$0")/.."
[[ ${1:-} == inside ]] || exec unshare --user --map-root-user --mount "$0" inside
root=$(mktemp -d "${TEST_TMPDIR:-/tmp}/setup_test.XXXXXX")
trap 'rm -rf "$root"' EXIT
# Set-up writes into the project, so that this is a copy.
mkdir -p "$root"/{project,path,tmp}
cp -rL scripts "$root/project"
: >"$root/os-release"
mount --bind "$root/os-release" /etc/os-release

# Nothing is installed.
printf '#!/bin/sh\n' | tee "$root/path/dpkg-query" "$root/path/dpkg" >/dev/null
# Notes what it is asked for.
cat >"$root/path/apt-get" <<PROGRAM
#!/bin/sh
echo "\$@" >>"$root/asked"
PROGRAM
chmod +x "$root"/path/*

failures=0
fail() {
  echo "FAILED: $*; it said:" && cat "$root/said"
  failures=$((failures + 1))
}

# usage: set_up OS_RELEASE ARGUMENT...
set_up() {
  rm -f "$root"/{said,asked}
  echo "$1" >"$root/os-release"
  status=0
  PATH=$root/path:$PATH TMPDIR=$root/tmp "$root/project/scripts/setup.sh" "${@:2}" >"$root/said" 2>&1 || status=$?
}

# usage: unknown ARGUMENT...: on systems that it does not know it lists the packages that it would install, and stops.
unknown() {
  local system installed
  for system in $'ID=debian\nVERSION_ID="12"' $'ID=debian\nVERSION_ID="13"' $'ID=ubuntu\nVERSION_ID="24.04"'; do
    set_up "$system" "$@"
    ((status == 0)) || fail "$system: status $status"
    [[ $system == *debian* ]] || grep -q 'untested' "$root/said" || fail "$system: not called untested"
    installed=$(sed -n 's/.* install .* -y //p' "$root/asked" | tr ' ' '\n')
    (($(wc -l <<<"$installed") >= 15)) || fail "$system: too little installed: $installed"
  done
  for system in $'ID=fedora\nVERSION_ID=40' $'ID=debian\nVERSION_ID="11"' $'ID=ubuntu\nVERSION_ID="22.04"' 'ID=debian' ''; do
    set_up "$system" "$@"
    ((status == 1)) || fail "$system: status $status"
    [[ ! -e $root/asked ]] || fail "$system: apt-get was asked for $(<"$root/asked")"
    grep -q "this system ('.*') is none of Debian 12, Debian 13" "$root/said" || fail "$system: not called unknown"
    [[ $(sed -n 's/^  //p' "$root/said") == "$installed" ]] || fail "$system: not the list $installed"
  done
}

unknown
unknown --checks
grep -qx '  clang-format-19' "$root/said" || fail "--checks lists no clang-format-19"
exit $((failures > 0))
