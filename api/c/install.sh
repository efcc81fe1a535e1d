#!/usr/bin/env bash
# Builds the library and installs it, its headers, its Fortran module, and the files by which
# pkg-config and CMake find it.
#
# usage: api/c/install.sh PREFIX [CARGO-ARGUMENTS]
# The default is a release build without CUDA; `api/c/install.sh /usr/local --release --features cuda`
# adds the kernels, for which it needs nvcc (kernels/toolchain.sh fetches it).
set -euo pipefail
[ $# -gt 0 ] || { sed -n '2,/^set/{/^#/s/^# \{0,1\}//p}' "$0" && exit 2; }
mkdir -p "$1"
prefix=$(realpath "$1")
shift
[ $# -gt 0 ] || set -- --release
cd "$(dirname "$0")"
version=$(sed -n '/^\[workspace.package\]/,/^$/s/^version = "\(.*\)"/\1/p' ../../Cargo.toml)
major=${version%%.*}

built=$(mktemp)
trap 'rm -f "$built"' EXIT
cargo rustc -q -p ellect-c --lib --message-format=json-render-diagnostics "$@" -- \
    -C link-arg=-Wl,-soname,libellect.so."$major" >"$built"
artifact() {
    grep -o "\"[^\"]*/libellect_c\.$1\"" "$built" | tail -n 1 | tr -d '"'
}

mkdir -p "$prefix"/include "$prefix"/lib/pkgconfig "$prefix"/lib/cmake/ellect
install -m 644 include/ellect.h include/ellect.hpp fortran/ellect.f90 "$prefix/include"
install -m 755 "$(artifact so)" "$prefix/lib/libellect.so.$version"
ln -sf "libellect.so.$version" "$prefix/lib/libellect.so.$major"
ln -sf "libellect.so.$major" "$prefix/lib/libellect.so"
install -m 644 "$(artifact a)" "$prefix/lib/libellect.a"
fill() {
    sed -e "s|@PREFIX@|$prefix|; s|@VERSION@|$version|; s|@MAJOR@|$major|" "$1"
}
fill cmake/ellect.pc.in >"$prefix/lib/pkgconfig/ellect.pc"
fill cmake/ellect-config.cmake.in >"$prefix/lib/cmake/ellect/ellect-config.cmake"
fill cmake/ellect-config-version.cmake.in >"$prefix/lib/cmake/ellect/ellect-config-version.cmake"
