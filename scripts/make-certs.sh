#!/usr/bin/env bash
# Makes a certificate authority (CA), a server's certificate and a client's, in PEM: for tests and small clusters.
#   scripts/make-certs.sh DIR HOST...
#   DIR: made where it is not there; in it ca.crt, ca.key, server.crt, server.key, client.crt and client.key (mode 0600).
#   HOST: a name or an address by which clients come to the server, as in --coordinator; all of them stand in its certificate.
# The server's is for the coordinator, over HTTP and gRPC, and for `skein serve`; the client's for workers, skein, the supervisor and gRPC
# clients (docs/security.md).
# A CA that DIR holds already is taken again, so that who trusts it needs nothing new; the other files are replaced.
# Certificates hold for 825 days, a CA for ten years. Keep ca.key where nobody else reads it: it makes what all trust.
set -euo pipefail
# shellcheck source=scripts/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

dir=${1:-}
(($# >= 2)) || misuse "'${*:-nothing}' is no DIR HOST..."
[[ $dir == /* ]] || dir=$called_from/$dir
shift
command -v openssl >/dev/null || die "openssl is not there (Debian's package openssl)"

names=''
for host; do
  [[ $host =~ ^(\*\.)?[A-Za-z0-9:._-]+$ ]] || misuse "'$host' is no name and no address"
  kind=DNS
  if [[ $host == *:* || $host =~ ^[0-9.]+$ ]]; then kind=IP; fi
  names+=${names:+,}$kind:$host
done

# What openssl says is of use where it fails.
quietly() { "$@" >"$work/said" 2>&1 || { cat "$work/said" >&2 && die "openssl failed; its words are above"; }; }

new_key() { quietly openssl genpkey -algorithm EC -pkeyopt ec_paramgen_curve:P-256 -out "$1"; }

# usage: issue NAME SUBJECT EXTENSION...
issue() {
  new_key "$work/$1.key"
  printf '%s\n' "basicConstraints=critical,CA:FALSE" "keyUsage=critical,digitalSignature" "${@:3}" >"$work/$1.ext"
  quietly openssl req -new -key "$work/$1.key" -subj "/CN=$2" -out "$work/$1.csr"
  quietly openssl x509 -req -in "$work/$1.csr" -CA "$dir/ca.crt" -CAkey "$dir/ca.key" -set_serial "0x$(openssl rand -hex 16)" \
    -days 825 -sha256 -extfile "$work/$1.ext" -out "$work/$1.crt"
  mv "$work/$1.key" "$work/$1.crt" "$dir/"
}

umask 077
mkdir -p "$dir"
if [[ -s $dir/ca.crt && ! -s $dir/ca.key ]]; then
  die "$dir has ca.crt without its ca.key, which signs; put it back, or take another folder for a CA of its own"
fi
if [[ ! -s $dir/ca.key || ! -s $dir/ca.crt ]]; then
  new_key "$work/ca.key"
  quietly openssl req -x509 -new -key "$work/ca.key" -subj "/CN=Skein CA" -days 3650 -sha256 \
    -addext "keyUsage=critical,keyCertSign,cRLSign" -out "$work/ca.crt"
  mv "$work/ca.key" "$work/ca.crt" "$dir/"
fi
# `skein serve` has one certificate for its coordinator and for those who ask it.
issue server "skein server" "extendedKeyUsage=serverAuth,clientAuth" "subjectAltName=$names"
issue client "skein client" "extendedKeyUsage=clientAuth"
say "made in $dir: ca.crt, server.crt for $names, client.crt, and their keys"
