#!/usr/bin/env bash
# Makes a package: a tarball that runs wherever it is unpacked, on Debian 12 and 13, Ubuntu 24.04 and newer ones, without root.
#   scripts/package.sh [--cuda] [--archs LIST] [--out FILE]
#   --cuda: build with --config=cuda; also libskein_cuda.so, by which workers compute on GPUs. The tests and benches of GPUs are
#     a tarball beside it (FILE-tests.tar.gz), to be unpacked over it
#   --archs: forms of the kernels, with --cuda: 90a (the default, Hopper), or 80,90a as a release has them
#   --out: the tarball (dist/skein-VERSION.tar.gz, or dist/skein-VERSION-cuda.tar.gz)
# In it: the programs, stripped; their man pages and completion; the libraries that a bare system lacks; scripts that start it; checkpoints/bard; pages; deploy/. Not in it,
# to be installed there: libc, libstdc++, Open MPI and hwloc, and for GPUs the driver, CUDA and cuBLAS (docs/install.md). The same
# commit, built with the same packages, gives the same bytes. Needs patchelf (scripts/setup.sh --checks).
set -euo pipefail
# shellcheck source=scripts/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

most_mib=40  # of a tarball, so that it can be sent anywhere; twice as many with two architectures
programs=(//client:skein //coordinator //supervisor //worker)

cuda='' archs=90a out=''
while (($# > 0)); do
  case $1 in
    --cuda) cuda=1 ;;
    --archs)
      [[ ${2:-} =~ ^(80|90a)(,(80|90a))?$ ]] || misuse "--archs: 90a or 80,90a, not '${2:-}'"
      archs=$2
      [[ $archs != *,* ]] || most_mib=$((2 * most_mib))
      shift
      ;;
    --out)
      out=${2:-}
      [[ -n $out ]] || misuse "--out needs a file"
      [[ $out == /* ]] || out=$called_from/$out
      shift
      ;;
    *) misuse "unknown argument '$1'" ;;
  esac
  shift
done
command -v patchelf >/dev/null || die "patchelf is not installed: scripts/setup.sh --checks"
version=$(sed -n 's/.*kVersion = "\(.*\)".*/\1/p' base/version.h)
[[ -n $version ]] || die "base/version.h tells no version"
name=skein-$version${cuda:+-cuda}
out=${out:-$PWD/dist/$name.tar.gz}
mkdir -p "$(dirname "$out")"
root=$work/$name

# --- What is built ---
config=()
gpu_programs=()
if [[ -n $cuda ]]; then
  config=(--config=cuda "--define=cuda_archs=$archs")
  mapfile -t gpu_programs < <(awk '!/^#/ && $2 !~ /^(worker\/worker|client\/skein)$/ && !seen[$2]++ {print $2}' tests/gpu/programs.txt)
  for program in "${gpu_programs[@]}"; do programs+=("//${program%/*}:${program##*/}"); done
  programs+=(//kernels/cuda:libskein_cuda.so)
fi
say "build: ${#programs[@]} targets"
build "${config[@]}" "${programs[@]}" || die "the build failed"

mkdir -p "$root"/{bin,lib,scripts,docs,checkpoints,licences,tests/gpu}
# usage: take FILE FOLDER RUNPATH: an ELF file, stripped, that looks for libraries in its own RPATH first, also for those
# that a library needs.
take() {
  local to=$root/$2/${1##*/}
  install -m 755 "$1" "$to"
  strip --strip-unneeded "$to"
  patchelf --force-rpath --set-rpath "$3" "$to"
}
# shellcheck disable=SC2016
beside='$ORIGIN' in_lib='$ORIGIN/../lib'
for program in client/skein coordinator/coordinator supervisor/supervisor worker/worker; do
  take "bazel-bin/$program" bin "$in_lib"
done
# Man pages and completion, which the programs make themselves.
dated=$(git log -1 --format=%cs 2>/dev/null) || dated=1970-01-01
mkdir -p "$root"/share/{man/man1,bash-completion/completions,zsh/site-functions}
for program in client/skein coordinator/coordinator supervisor/supervisor worker/worker; do
  name_of=${program##*/}
  "bazel-bin/$program" --help-man "$dated" >"$root/share/man/man1/$name_of.1"
  "bazel-bin/$program" --help-completion bash >"$root/share/bash-completion/completions/$name_of"
  "bazel-bin/$program" --help-completion zsh >"$root/share/zsh/site-functions/_$name_of"
done
if [[ -n $cuda ]]; then
  take bazel-bin/kernels/cuda/libskein_cuda.so lib "$beside:/usr/local/cuda/lib64"
  mkdir "$root/gpu"
  for program in "${gpu_programs[@]}"; do take "bazel-bin/$program" gpu "$in_lib"; done
fi

# --- The libraries ---
# What the machine has: libc and the compiler's, what belongs to a driver, a toolkit or MPI, and what we make.
theirs='^(ld-linux.*|lib(c|m|dl|rt|pthread|resolv|util|anl|stdc\+\+|gcc_s|mpi|open-[a-z]+|hwloc|cuda|cudart|cublas|cublasLt|nccl|skein_cuda))\.so'
needed_by() { readelf -d "$1" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p' | grep -vE "$theirs" || true; }

say "libraries: of the programs, and of one another"
shopt -s nullglob
files=("$root"/bin/* "$root"/lib/* "$root"/gpu/*)
for ((i = 0; i < ${#files[@]}; ++i)); do
  for library in $(needed_by "${files[i]}"); do
    [[ ! -e $root/lib/$library ]] || continue
    # The linker's own view of it: the programs were linked on this system.
    from=$(PATH=$PATH:/usr/sbin:/sbin ldconfig -p | sed -n "s|^\t${library//./\\.} (libc6,x86-64[^)]*) => ||p" | head -n 1)
    [[ -n $from ]] || die "$library, which ${files[i]##*/} needs, is not on this machine"
    install -m 644 "$from" "$root/lib/$library"
    patchelf --force-rpath --set-rpath "$beside" "$root/lib/$library"
    files+=("$root/lib/$library")
    real=$(realpath "$from")
    # dpkg may know it by the name before /lib became a link to /usr/lib.
    package=$(dpkg-query -S "$real" 2>/dev/null || dpkg-query -S "${real#/usr}" 2>/dev/null) || die "no package has $real"
    package=${package%%:*}
    [[ -e $root/licences/$package ]] || cp "/usr/share/doc/$package/copyright" "$root/licences/$package"
  done
done
for file in "${files[@]}"; do readelf -V "$file"; done | grep -oE 'GLIBC(XX)?_[0-9.]+' | sort -uV >"$work/versions"
needs="glibc $(sed -n 's/^GLIBC_//p' "$work/versions" | tail -n 1), libstdc++ of GLIBCXX $(sed -n 's/^GLIBCXX_//p' "$work/versions" | tail -n 1), or newer"
say "libraries: $(find "$root/lib" -name '*.so*' | wc -l); they need $needs"

# --- What is no program ---
cp -L scripts/{demo,env,launch,lib,make-certs,memory}.sh "$root/scripts"
cp -L tests/gpu/run.sh tests/gpu/profile.sh tests/gpu/programs.txt "$root/tests/gpu"
[[ -n $cuda ]] || rm -r "$root/tests"
cp -L docs/*.md "$root/docs"
cp -RL deploy "$root"
rm "$root/deploy/BUILD"
cp LICENSE CHANGELOG.md "$root"
mkdir "$root/checkpoints/bard"
find checkpoints/bard -maxdepth 1 -type f ! -name BUILD -exec cp -t "$root/checkpoints/bard" {} +
commit=$(git rev-parse HEAD 2>/dev/null) || commit=unknown
[[ -z $(git status --porcelain --untracked-files=no 2>/dev/null) ]] || commit+=", changed"
# shellcheck source=/dev/null
{
  say "Skein $version, of commit $commit"
  say "built on $(. /etc/os-release && say "$PRETTY_NAME"); needs $needs"
  [[ -z $cuda ]] || say "kernels of libskein_cuda.so, build $(grep -o '"[0-9a-f]*"' bazel-bin/kernels/cuda/build_identity.h | tr -d '"'): sm_90a"
} >"$root/PACKAGE"
find "$root" -type d -exec chmod 755 {} +
find "$root" -type f -exec chmod u=rwX,go=rX {} +

# --- The tarball ---
when=$(git log -1 --format=%ct 2>/dev/null) || when=0
# usage: pack FILE FOLDER...: a tarball of these
pack() {
  local to=$1 bytes
  shift
  tar -C "$work" --sort=name --mtime="@$when" --owner=0 --group=0 --numeric-owner --format=gnu -cf "$work/package.tar" "$@"
  gzip -9n "$work/package.tar"
  bytes=$(stat -c %s "$work/package.tar.gz")
  ((bytes <= most_mib << 20)) || die "${to##*/} has $((bytes >> 20)) MiB, more than $most_mib"
  mv "$work/package.tar.gz" "$to"
  say "done: $to, $(awk "BEGIN {printf \"%.1f\", $bytes / 1048576}") MiB"
}
if [[ -n $cuda ]]; then
  tests=${out%.tar.gz}-tests.tar.gz
  pack "$tests" "$name/gpu" "$name/tests"
  rm -r "$root/gpu" "$root/tests"
fi
pack "$out" "$name"
