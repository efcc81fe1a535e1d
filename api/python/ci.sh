#!/usr/bin/env bash
# Builds the wheel without CUDA in the development profile, installs it in a fresh virtual
# environment, and runs its tests, examples and type checks.
set -euo pipefail
cd "$(dirname "$0")"

venv=$(mktemp -d)
trap 'rm -rf "$venv"' EXIT
python3 -m venv "$venv"
"$venv/bin/pip" install -q --disable-pip-version-check 'maturin>=1.9,<2'
"$venv/bin/maturin" build --profile dev --compatibility linux --out "$venv/wheels"
wheel=$(ls "$venv"/wheels/*.whl)
"$venv/bin/pip" install -q --disable-pip-version-check "$wheel[test]"

export ELLECT_DATA=$venv/data
# The installed package is tested, not the folder.
python=("$venv/bin/python" -P -m)
"${python[@]}" pytest -q --import-mode=importlib tests
installed=$("$venv/bin/python" -P -c 'import ellect; print(ellect.__path__[0])')
"${python[@]}" pytest -q --import-mode=importlib --doctest-modules -c pyproject.toml \
    --rootdir "$installed" "$installed"
"${python[@]}" mypy
allowed=$PWD/tests/stubtest.txt
cd "$venv"
"${python[@]}" mypy.stubtest ellect._ellect --allowlist "$allowed" --ignore-unused-allowlist
