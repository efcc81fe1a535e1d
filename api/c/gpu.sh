#!/usr/bin/env bash
# Runs the CUDA example on this machine's GPU, for matrices of three sizes, and the C tests with a
# library that has CUDA kernels.
#
# usage: api/c/gpu.sh [PREFIX]
# PREFIX is a folder of install.sh that also holds the programs cg_cuda, products and refusals; without
# it, library and programs are built, which needs nvcc.
set -euo pipefail
cd "$(dirname "$0")"
prefix=${1:-}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
if [ -z "$prefix" ]; then
    prefix=$work/installed
    ./install.sh "$prefix" --release --features cuda
    ./gpu_programs.sh "$prefix"
fi
export LD_LIBRARY_PATH=$prefix/lib ELLECT_DATA=$work/data
mkdir "$work/folders"
"$prefix/products" ../../tests/data/elasticity.mtx
"$prefix/refusals" "$work/folders"
echo "the C tests pass with CUDA kernels"
for side in 20 100 200; do "$prefix/cg_cuda" $side; done
