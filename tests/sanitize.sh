#!/usr/bin/env bash
# Runs compute-sanitizer's memcheck and racecheck on tests/cuda.rs, on a machine with a GPU: every
# candidate on the whole corpus, conversions, long rows, features and refusals. One process runs on
# each core; the script prints a line for each process and fails if one reports an error. Racecheck
# skips cuSPARSE's own kernels, in which it reports two threads that write to one address
# (csrmv_v3_kernel, CUDA 13.0).
#
# usage: tests/sanitize.sh [TEST-BINARY]
# Without TEST-BINARY, `cargo test --release --features cuda --test cuda --no-run` builds it.
# Environment: TOOLS="memcheck" runs only that tool, LIMIT=300 stops each process after 300 s, PARTS=16
# splits tests into 16 parts, LOGS is the folder for the output.
set -euo pipefail
tools=${TOOLS:-memcheck racecheck}
export LIMIT=${LIMIT:-3600} LOGS=${LOGS:-$(mktemp -d)}
export REQUIRE_GPU=1 ELLECT_TEST_ONCE=1 RAYON_NUM_THREADS=1 PATH=$PATH:/usr/local/cuda/bin
if [ $# -gt 0 ]; then
    BINARY=$(realpath "$1")
else
    cd "$(dirname "$0")/.."
    BINARY=$(cargo test --release --features cuda --test cuda --no-run --message-format=json |
        grep -o '"executable":"[^"]*"' | tail -n 1 | cut -d '"' -f 4)
fi
export BINARY

# Tests that run all candidates are split into parts.
parts=${PARTS:-32}
jobs=("features_from_the_gpu" "a_matrix_on_the_gpu" "long_rows")
for ((part = 1; part <= parts; part++)); do
    for test in conversions_on_the_gpu every_candidate_multiplies_right refusals_of_the_gpu; do
        jobs+=("$test $part/$parts")
    done
done
jobs+=("captured_products" "values_that_are_not_alike")

check() {
    local tool=$1 test part log code=0 others=()
    read -r test part <<<"$2"
    log="$LOGS/$tool.$test${part:+.${part%/*}}"
    export ELLECT_TEST_PART=${part:-1/1}
    [ "$tool" = racecheck ] && others=(--kernel-name-exclude kns=cusparse)
    timeout -s KILL "$LIMIT" compute-sanitizer --tool "$tool" "${others[@]}" --print-limit 5 \
        --error-exitcode 9 "$BINARY" --nocapture "$test" >"$log" 2>&1 || code=$?
    # A name that matches no test is an error, too.
    grep -q '^test result: ok. [1-9]' "$log" || code=1
    echo "$tool $2: code $code, $SECONDS s, $(grep SUMMARY "$log" | tail -n 1)"
    return "$code"
}
export -f check
for tool in $tools; do printf "$tool\n%s\n" "${jobs[@]}"; done |
    xargs -d '\n' -n 2 -P "$(nproc)" bash -c 'check "$@"' check
