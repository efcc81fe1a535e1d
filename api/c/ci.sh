#!/usr/bin/env bash
# Builds the library without CUDA in the development profile, installs it in a temporary folder, and
# checks header, exported symbols and binary interface; runs the C tests with sanitizers and under
# valgrind, and the examples in C, C++, Fortran, with PETSc and with MPI. Tools that are missing are
# installed from Debian's packages; the script says what it skips where that fails (REQUIRE_ALL=1 makes
# that an error).
set -euo pipefail
cd "$(dirname "$0")"
data=$(realpath ../../tests/data)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export ELLECT_DATA=$work/data LD_LIBRARY_PATH=$work/lib

# Succeeds if a command exists, or a Debian package can be installed that brings it.
has() {
    command -v "$1" >/dev/null && return
    if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
        { apt-get update && apt-get install -y --no-install-recommends "$2"; } >"$work/apt" 2>&1 || true
    fi
    command -v "$1" >/dev/null && return
    echo "api/c/ci.sh skips $3: no $1, which Debian's package $2 brings"
    [ -z "${REQUIRE_ALL:-}" ]
    return 1
}

./header.sh --check
./install.sh "$work" --profile dev
warnings=(-Wall -Wextra -pedantic -Werror -Wshadow)
paths=(-I"$work/include" -L"$work/lib")

# The headers compile alone in every language version.
for standard in c99 c11; do
    cc -x c -std=$standard "${warnings[@]}" "${paths[@]}" -fsyntax-only - <<<'#include <ellect.h>'
done
for name in ellect.h ellect.hpp; do
    c++ -x c++ -std=c++17 "${warnings[@]}" "${paths[@]}" -fsyntax-only - <<<"#include <$name>"
done

# Nothing but the interface is exported, and it is the one that programs were built with.
./abi.sh "$work" >"$work/abi.txt"
diff abi.txt "$work/abi.txt" || {
    echo "the binary interface is not that of api/c/abi.txt; abi.sh says when it may change" >&2
    exit 1
}
others=$(nm -D --defined-only "$work/lib/libellect.so" | awk '$3 !~ /^ellect_/ { print $3 }')
[ -z "$others" ] || { echo "exported beside ellect_*: $others" >&2 && exit 1; }

version=$(sed -n 's/^Version: //p' "$work/lib/pkgconfig/ellect.pc")
for test in products refusals ranks; do
    build=(cc -std=c11 -g -O1 "${warnings[@]}" -DCUDA=0 -DVERSION="\"$version\"" "tests/$test.c"
        "${paths[@]}" -lellect -lpthread -lm)
    "${build[@]}" -o "$work/$test"
    "${build[@]}" -fsanitize=address,undefined -fno-sanitize-recover=all -o "$work/$test-sanitized"
done
mkdir "$work/folders" "$work/folders-valgrind"
"$work/products-sanitized" "$data/elasticity.mtx"
"$work/refusals-sanitized" "$work/folders"
"$work/ranks-sanitized"
if has valgrind valgrind "the memory check"; then
    check=(valgrind -q --leak-check=full --show-leak-kinds=definite
        --errors-for-leak-kinds=definite --error-exitcode=1)
    "${check[@]}" "$work/products"
    "${check[@]}" "$work/refusals" "$work/folders-valgrind"
    "${check[@]}" "$work/ranks"
fi

# Examples, found by pkg-config where it exists.
flags=("${paths[@]}" -lellect)
if has pkg-config pkg-config "the file for pkg-config"; then
    read -ra flags < <(PKG_CONFIG_PATH=$work/lib/pkgconfig pkg-config --cflags --libs ellect)
fi
cc -std=c99 "${warnings[@]}" examples/cg.c "${flags[@]}" -lm -o "$work/cg_c" && "$work/cg_c"
c++ -std=c++17 "${warnings[@]}" examples/cg.cpp "${flags[@]}" -o "$work/cg_cpp"
"$work/cg_cpp" "$data/elasticity.mtx"
if has gfortran gfortran "the Fortran example"; then
    gfortran -std=f2018 -Wall -Wextra -pedantic -Werror -J "$work" "$work/include/ellect.f90" \
        examples/cg.f90 "${flags[@]}" -o "$work/cg_fortran"
    "$work/cg_fortran"
fi
if has cmake cmake "the CMake package"; then
    cmake -S examples -B "$work/cmake" -DCMAKE_PREFIX_PATH="$work" >"$work/cmake.log" &&
        cmake --build "$work/cmake" >>"$work/cmake.log" || { cat "$work/cmake.log" && exit 1; }
    for program in cg_c cg_static; do "$work/cmake/$program" 30; done
fi
if has mpicc petsc-dev "the PETSc example" && pkg-config --exists petsc; then
    read -ra petsc < <(pkg-config --cflags --libs petsc)
    mpicc -std=c99 -Wall -Wextra -Werror examples/petsc_shell.c "${flags[@]}" "${petsc[@]}" \
        -o "$work/petsc"
    "$work/petsc" "$data/elasticity.mtx"
    "$work/petsc" "$data/convection_diffusion.mtx" -ksp_type gmres
fi
if has mpicc libopenmpi-dev "the MPI example" && has mpirun openmpi-bin "the MPI example"; then
    mpicc -std=c99 -Wall -Wextra -Werror examples/mpi_cg.c "${flags[@]}" -lm -o "$work/mpi_cg"
    for processes in 1 2 4; do
        mpirun --oversubscribe --allow-run-as-root -n $processes "$work/mpi_cg" 60
    done
fi
target=${CARGO_TARGET_DIR:-$PWD/../../target}
nvcc=$(command -v nvcc || echo "$target/cuda-toolkit/nvidia/cu13/bin/nvcc")
if [ -x "$nvcc" ]; then
    "$nvcc" -std=c++17 -arch=sm_80 -Werror all-warnings "${paths[0]}" -c examples/cg_cuda.cu \
        -o "$work/cg_cuda.o"
else
    echo "api/c/ci.sh skips the CUDA example: no nvcc"
fi
