#!/usr/bin/env bash
# Builds the wheel of the Python package into target/wheels. It holds the CUDA kernels if nvcc is
# found: in NVCC, on the search path, in /usr/local/cuda, or where kernels/toolchain.sh puts it.
# Arguments go to maturin, `--profile dev` for instance; the default is a stripped release build.
set -euo pipefail
cd "$(dirname "$0")"
root=$(cd ../.. && pwd)
target=${CARGO_TARGET_DIR:-$root/target}

venv=$target/python-build
[ -x "$venv/bin/maturin" ] || { python3 -m venv "$venv" && "$venv/bin/pip" install -q 'maturin>=1.9,<2'; }

features=()
if [ -n "${NVCC:-}" ] || command -v nvcc >/dev/null || [ -x /usr/local/cuda/bin/nvcc ] ||
    [ -d "$target/cuda-toolkit" ]; then
    features=(--features cuda)
fi
[ $# -gt 0 ] || set -- --release --strip
"$venv/bin/maturin" build --out "$target/wheels" ${features[@]+"${features[@]}"} "$@"
