#!/usr/bin/env bash
# Installs the Debian packages that Skein needs.
#   scripts/setup.sh [--checks]
#   --checks: also what scripts/check.sh, scripts/tidy.sh, scripts/package.sh and the network tests use.
# Says what it does; does nothing when nothing is missing. Works as root, or by sudo.
set -euo pipefail
# shellcheck source=scripts/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

# The one list. To build and to run:
build_packages=(
  bazel-bootstrap g++ python3
  libabsl-dev libcli11-dev libfmt-dev libgmock-dev libgrpc++-dev libgtest-dev libhwloc-dev libhwy-dev libopenmpi-dev
  libpcre2-dev libprotobuf-dev libpugixml-dev libspdlog-dev libsqlite3-dev libssl-dev libutf8proc-dev libxxhash-dev
  nlohmann-json3-dev openmpi-bin openssl procps prometheus-cpp-dev protobuf-compiler protobuf-compiler-grpc
)
# To check and to package:
check_packages=(clang-format-19 clang-tidy-19 git iproute2 patchelf shellcheck)

packages=("${build_packages[@]}")
(($# <= 1)) || misuse "unknown argument '$2'"
case ${1:-} in
  '') ;;
  --checks) packages+=("${check_packages[@]}") ;;
  *) misuse "unknown argument '$1'" ;;
esac

# What the machine is. Sets $system, and adds the Boost with coroutines that it has; or stops.
recognise() {
  local boost=libboost1.83-dev
  # shellcheck source=/dev/null
  system=$(. /etc/os-release 2>/dev/null && say "${ID:-} ${VERSION_ID:-}") || system=unknown
  case $system in
    'debian 12') boost=libboost1.81-dev ;;
    'debian 13') ;;
    'ubuntu 24.04') say "set-up: Ubuntu 24.04 has the same packages, but Skein is untested on it" ;;
    *)
      complain "this system ('$system') is none of Debian 12, Debian 13 and Ubuntu 24.04."
      complain "Install what these packages of Debian 13 hold, and build by hand as README.md says:"
      printf '  %s\n' "${packages[@]}" "$boost" >&2
      exit 1
      ;;
  esac
  [[ $(uname -m) == x86_64 ]] || die "Skein builds on x86-64 only so far; this machine is '$(uname -m)'"
  build_packages+=("$boost")
  packages+=("$boost")
}

# The packages that are not installed, one a line.
missing() {
  local installed package
  installed=$'\n'$(dpkg-query -W -f '${Package} ${db:Status-Status}\n' "${packages[@]}" 2>/dev/null || true)$'\n'
  for package in "${packages[@]}"; do
    [[ $installed == *$'\n'"$package installed"$'\n'* ]] || say "$package"
  done
}

# apt is root's, and so are signals to it; dpkg finishes the package that it is at.
as_root=()
end_signal=INT patience_s=120
send() { "${as_root[@]}" sh -c "kill -s $1 -- $2" 2>/dev/null || true; }

apt() {
  run "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -qq -o Dpkg::Use-Pty=0 -o DPkg::Lock::Timeout=300 \
    -o Acquire::Retries=3 "$@" >>"$work/apt.log" 2>&1 && return
  tail -n 20 "$work/apt.log" >&2
  die "apt-get $1 failed; its last words are above"
}

install() {
  if ((EUID != 0)); then
    command -v sudo >/dev/null || die "not root, and there is no sudo. As root: apt-get install --no-install-recommends $*"
    as_root=(sudo -n)
    # In the foreground, so that it may ask for the password.
    sudo -n true 2>/dev/null || sudo -v || die "sudo refused. As root: apt-get install --no-install-recommends $*"
  fi
  say "set-up: installing on $system:" "$@"
  # An earlier run may have been interrupted in the middle of a package. What this cannot mend, --fix-broken does.
  run "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive dpkg --configure -a >>"$work/apt.log" 2>&1 || true
  apt update
  apt install --no-install-recommends --fix-broken -y "$@"
}

# Headers of packages are no inputs that Bazel tracks; their versions, told to it, rebuild what an upgrade changes.
record_versions() {
  local versions line
  versions=$(dpkg-query -W -f '${Package} ${Version}\n' "${build_packages[@]}" 'g++-[0-9]*' libc6-dev 2>/dev/null) || true
  line="build --action_env=SKEIN_PACKAGES=$(sort -u <<<"$versions" | sha256sum | cut -c1-16)"
  [[ -f .bazelrc.packages && $(<.bazelrc.packages) == "$line" ]] || say "$line" >.bazelrc.packages
}

recognise
mapfile -t needed < <(missing)
if ((${#needed[@]} == 0)); then
  say "set-up: nothing to install"
else
  install "${needed[@]}"
  say "set-up: installed ${#needed[@]} packages and what they need, in $SECONDS s"
fi
record_versions
