#!/usr/bin/env bash
# Serves a model on this machine, from nothing: installs the packages that are missing, builds, and becomes `skein serve`.
#   scripts/serve.sh MODEL [FLAG]...
#   MODEL: a model's folder, or a GGUF file; checkpoints/bard is there
#   FLAG: what `skein serve --help` tells
set -euo pipefail
tmpdir=${TMPDIR:-}
# shellcheck source=scripts/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

(($# > 0)) || misuse "a model is needed, as checkpoints/bard"
model=$(given "$1")
[[ -e $model ]] || misuse "'$1' is no model: neither a folder nor a file"

scripts/setup.sh
programs=(//client:skein //coordinator //supervisor //worker)
say "build: ${programs[*]} (a first build takes minutes)"
build "${programs[@]}" || die "the build failed"

# What was started for the build ends, and what is left of it is removed, as at the end of any script.
end_marked
trap - EXIT INT TERM HUP
rm -rf "$work"
unset SKEIN_RUN
if [[ -n $tmpdir ]]; then export TMPDIR=$tmpdir; else unset TMPDIR; fi
skein=$PWD/bazel-bin/client/skein
[[ $model == /* ]] || model=$PWD/$model
cd "$called_from"  # by which FLAGs name files
exec "$skein" serve "$model" "${@:2}"
