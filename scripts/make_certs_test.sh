#!/usr/bin/env bash
# What scripts/make-certs.sh makes is valid, for its hosts alone, and its keys are private.
set -euo pipefail
cd "$(dirname "$0")/.."
TMPDIR=$(mktemp -d "${TEST_TMPDIR:-/tmp}/make_certs_test.XXXXXX")
export TMPDIR
trap 'rm -rf "$TMPDIR"' EXIT
certs=$TMPDIR/new/certs

failures=0
fail() {
  echo "FAILED: $*"
  failures=$((failures + 1))
}
verifies() { openssl verify -x509_strict -CAfile "$certs/ca.crt" "$@" >/dev/null 2>&1; }

scripts/make-certs.sh "$certs" node7 10.0.0.7 ::1 '*.skein.example' >/dev/null
[[ $(cd "$certs" && echo *) == 'ca.crt ca.key client.crt client.key server.crt server.key' ]] || fail "other files: $(ls "$certs")"
for key in "$certs"/*.key; do [[ $(stat -c %a "$key") == 600 ]] || fail "$key is not private"; done

for host in '-verify_hostname node7' '-verify_ip 10.0.0.7' '-verify_ip ::1' '-verify_hostname a.skein.example'; do
  # shellcheck disable=SC2086
  verifies -purpose sslserver $host "$certs/server.crt" || fail "the server is not verified: $host"
done
for host in '-verify_hostname node8' '-verify_ip 10.0.0.8' '-verify_hostname skein.example'; do
  # shellcheck disable=SC2086
  ! verifies -purpose sslserver $host "$certs/server.crt" || fail "the server passes for another: $host"
done
verifies -purpose sslclient "$certs/client.crt" || fail "the client is not verified"
! verifies -purpose sslserver "$certs/client.crt" || fail "the client passes for a server"
verifies -purpose sslclient "$certs/server.crt" || fail "the server cannot ask itself"
for name in ca server client; do
  [[ $(openssl x509 -in "$certs/$name.crt" -noout -pubkey) == "$(openssl pkey -in "$certs/$name.key" -pubout)" ]] ||
    fail "$name.key is not that of $name.crt"
done

# A second call keeps the CA, and nothing else.
cp -r "$certs" "$TMPDIR/before"
scripts/make-certs.sh "$certs" node8 >/dev/null
cmp -s "$certs/ca.crt" "$TMPDIR/before/ca.crt" || fail "the CA is another one"
verifies -verify_hostname node8 "$certs/server.crt" || fail "the new server is not verified"
! cmp -s "$certs/server.key" "$TMPDIR/before/server.key" || fail "the server's key is the old one"
exit $((failures > 0))
