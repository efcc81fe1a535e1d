#!/usr/bin/env bash
# Builds the programs that gpu.sh runs into an installed library's folder.
# usage: api/c/gpu_programs.sh PREFIX
set -euo pipefail
cd "$(dirname "$0")"
prefix=$1
target=${CARGO_TARGET_DIR:-$PWD/../../target}
nvcc=$(command -v nvcc || echo "$target/cuda-toolkit/nvidia/cu13/bin/nvcc")
version=$(sed -n 's/^Version: //p' "$prefix/lib/pkgconfig/ellect.pc")
paths=(-I"$prefix/include" -L"$prefix/lib")
for test in products refusals; do
    cc -std=c11 -O1 -DCUDA=1 -DVERSION="\"$version\"" tests/$test.c "${paths[@]}" \
        -lellect -lpthread -lm -o "$prefix/$test"
done
"$nvcc" -std=c++17 -arch=sm_80 -O2 -cudart static "${paths[0]}" -c examples/cg_cuda.cu \
    -o "$prefix/cg_cuda.o"
c++ "$prefix/cg_cuda.o" "${paths[1]}" -lellect \
    "$(find "$(dirname "$nvcc")/.." -name libcudart_static.a | head -n 1)" -ldl -lrt -lpthread \
    -o "$prefix/cg_cuda"
rm "$prefix/cg_cuda.o"
