#!/usr/bin/env bash
# Freezes the protocol as proto/ has it: schemas and messages of the version become what every later program must understand.
#   scripts/freeze_protocol.sh [VERSION]     (1)
# Before a release, and after fields came to a version that is frozen already (docs/protocol.md). It writes proto/frozen/vVERSION;
# what changes there besides additions is an error that //proto/frozen:frozen_test tells.
set -euo pipefail
# shellcheck source=scripts/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

version=${1:-1}
[[ $version =~ ^[0-9]+$ ]] || misuse "unknown argument '$version'"
(($# <= 1)) || misuse "unknown argument '$2'"
folder=proto/frozen/v$version
mkdir -p "$folder/proto" "$folder/messages"
cp proto/*.proto "$folder/proto/"
sed -n 's/.*kVersion = "\(.*\)".*/\1/p' base/version.h >"$folder/program"

# Hand-written conversations; the first line of each names its type.
for text in "$folder"/messages/*.txtpb; do
  type=$(sed -n '1s/^# //p' "$text")
  protoc -I"$folder" --experimental_allow_proto3_optional --deterministic_output --encode="$type" proto/cluster.proto \
    proto/inference.proto <"$text" | od -An -v -tx1 | tr -d ' ' >"${text%.txtpb}.hex"
done

bazel_limits
run bazel build "${bazel_flags[@]}" //proto/frozen:fill_messages "//proto/frozen:v${version}_descriptors"
bazel-bin/proto/frozen/fill_messages "bazel-bin/proto/frozen/v$version.descriptors" >"$folder/every_field.txt"
