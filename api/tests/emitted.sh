#!/usr/bin/env bash
# Builds and runs the CUDA programs that `ellect convert --emit cuda` writes, on this machine's GPU:
# each multiplies on the GPU and compares every row with the host's product of the CSR matrix.
#
# api/tests/emitted.sh [PROGRAM]   the program is target/release/ellect unless it is named
set -uo pipefail
cd "$(dirname "$0")/../.."

program=$(realpath "${1:-${CARGO_TARGET_DIR:-target}/release/ellect}")
export PATH=$PATH:/usr/local/cuda/bin program
command -v nvcc >/dev/null || { echo "install nvcc, of the CUDA toolkit" >&2 && exit 1; }

# Converts, builds and runs one case: class, candidate, precision and basis.
one() {
    local folder
    folder=$(mktemp -d)
    cd "$folder" || return 1
    {
        "$program" convert --generate "$1" --to "$2" --device h200 --precision "$3" --basis "$4" \
            -o m.npz --emit cuda && nvcc -O3 -std=c++17 -arch=native m.cu -o m && ./m m.bin
    } >log 2>&1
    local status=$?
    echo "$([ $status = 0 ] && echo ok || echo FAILED): $*: $(tail -n 2 log | tr '\n' ' ')"
    rm -rf "$folder"
    return $status
}
export -f one

xargs -P "$(nproc)" -L 1 bash -c 'one "$@"' one <<'CASES'
stencil7:1000000 dia f64 original
stencil7:1000000 hdia f64 original
constant7:1000000 cdia f64 original
heat:500000 ellg f64 original
elasticity:600000 hll:col=16 f64 original
elasticity:600000 hll:sort=512,col=16 f32 permuted
elasticity:600000 bhll f64 original
elasticity:600000 best f32 original
elasticity:200000 ehyb f64 permuted
power_law:500000 pjds f64 permuted
circuit:500000 hyb f64 original
rmat:500000 csr f64 original
rmat:500000 csr:kernel=adaptive f64 original
rmat:500000 pcsr:kernel=two,tile=1024 f64 original
rmat:500000 st_csr f64 original
rmat:500000 column_sweep f32 original
rmat:500000 hub_ell f64 original
laplacian:500000 st_csr_vi f32 original
uniform:6000000 cache_blocked f64 original
CASES
