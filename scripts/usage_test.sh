#!/usr/bin/env bash
# Every script that people run tells with --help how it is used, and refuses with status 2 what it does not know.
set -euo pipefail
cd "$(dirname "$0")/.."
TMPDIR=$(mktemp -d "${TEST_TMPDIR:-/tmp}/usage_test.XXXXXX")
export TMPDIR
trap 'rm -rf "$TMPDIR"' EXIT

failures=0
# usage: answers STATUS PATTERN SCRIPT ARGUMENT...
answers() {
  local status=0 said
  said=$(cd / && "$root/$3" "${@:4}" 2>&1 </dev/null) || status=$?
  if ((status == $1)) && grep -qE -- "$2" <<<"$said"; then return; fi
  echo "FAILED: $3 ${*:4}: status $status (wanted $1), nothing like '$2' in: $said"
  failures=$((failures + 1))
}

root=$PWD
count=0
for script in scripts/*.sh; do
  case ${script##*/} in env.sh | lib.sh | *_test.sh) continue ;; esac
  count=$((count + 1))
  answers 0 "^  $script" "$script" --help
  answers 0 "^  $script" "$script" first --help
  ! "$script" --help | grep -E 'shellcheck|^#|^set ' || { echo "FAILED: $script --help shows code" && failures=$((failures + 1)); }
  # What test.sh does not know is Bazel's.
  [[ $script == scripts/test.sh ]] || answers 2 "^${script##*/}: .*'?nonsense.*$script --help" "$script" nonsense
done
((count >= 13)) || { echo "FAILED: only $count scripts were found" && failures=$((failures + 1)); }

answers 2 '--bin needs a folder' scripts/demo.sh --bin
answers 2 "unknown argument 'x'" scripts/demo.sh --bin /nowhere x
answers 1 '/nowhere/coordinator/coordinator is not there' scripts/demo.sh --bin /nowhere
answers 2 '--report needs a file' scripts/check.sh --report
answers 2 '--report needs a file' scripts/tidy.sh --changed --report
answers 2 "unknown argument 'x'" scripts/setup.sh --checks x
answers 2 '--bin needs a folder' scripts/perf.sh --bin ''
answers 1 '/nowhere/coordinator/coordinator is not there' scripts/perf.sh --bin /nowhere
answers 2 '--bin needs a folder' scripts/memory.sh --bin ''
answers 1 '/nowhere/coordinator/coordinator is not there' scripts/memory.sh --bin /nowhere
answers 2 "'checkpoints/bard' needs a layout behind it" scripts/memory.sh checkpoints/bard
answers 2 "unknown argument 'x'" scripts/sanitize.sh asan x
answers 2 "'0' is not a number" scripts/fuzz.sh 0
answers 2 '--out needs a file' scripts/package.sh --cuda --out
answers 2 'a model is needed' scripts/serve.sh
answers 2 '--coordinator needs a value' scripts/launch.sh --coordinator
answers 1 '/nowhere/worker/worker is not there' scripts/launch.sh --bin /nowhere -- --help
answers 2 "'here' is no DIR HOST" scripts/make-certs.sh here
answers 2 "'a/b' is no name and no address" scripts/make-certs.sh here node7 a/b
[[ -z $(ls -A "$TMPDIR") ]] || { echo "FAILED: this was left: $(ls -A "$TMPDIR")" && failures=$((failures + 1)); }
exit $((failures > 0))
