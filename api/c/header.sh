#!/usr/bin/env bash
# Writes include/ellect.h from the Rust sources with cbindgen, which is built once into the target
# folder. `header.sh --check` instead fails if the header is not the one that the sources give.
set -euo pipefail
cd "$(dirname "$0")"
target=${CARGO_TARGET_DIR:-$PWD/../../target}
version=0.29.4
cbindgen=$target/tools/bin/cbindgen
if [ "$("$cbindgen" --version 2>&1 || true)" != "cbindgen $version" ]; then
    CARGO_TARGET_DIR=$target/tools/build CARGO_PROFILE_DEV_DEBUG=0 \
        cargo install -q --locked --debug --root "$target/tools" --version "$version" cbindgen
fi
case ${1:-} in
--check) check=--verify ;;
'') check= ;;
*) echo "usage: header.sh [--check]" >&2 && exit 2 ;;
esac
# shellcheck disable=SC2086
"$cbindgen" --quiet --config cbindgen.toml $check --output include/ellect.h . || {
    echo "include/ellect.h is not what the sources give; run api/c/header.sh" >&2
    exit 1
}
