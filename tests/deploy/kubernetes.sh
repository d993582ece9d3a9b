#!/usr/bin/env bash
# Checks deploy/kubernetes by PyPI's kubernetes-validate, and its objects against each other. Outside CI: it needs Python's venv, and PyPI.
#   tests/deploy/kubernetes.sh
set -euo pipefail
cd "$(dirname "$0")/../.."
(($# == 0)) || { sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$0" && exit 2; }
venv=$(mktemp -d)
trap 'rm -rf "$venv"' EXIT
python3 -m venv "$venv"
"$venv/bin/pip" --quiet --disable-pip-version-check install kubernetes-validate
"$venv/bin/python" tests/deploy/kubernetes.py deploy/kubernetes/*.yaml
