#!/usr/bin/env bash
# Fetches nvcc for machines without the CUDA toolkit, from NVIDIA's wheels on PyPI, into
# target/cuda-toolkit, where the build script finds it. Needs python3 with venv; fetches about 100 MB.
set -euo pipefail
cd "$(dirname "$0")/.."
folder=target/cuda-toolkit
[ -x "$folder/nvidia/cu13/bin/nvcc" ] && exit 0

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet --no-deps --target "$work/site" \
    nvidia-cuda-nvcc==13.0.88 nvidia-cuda-crt==13.0.88 nvidia-nvvm==13.0.88 \
    nvidia-cuda-runtime==13.0.96 nvidia-cuda-cccl==13.0.85
chmod +x "$work"/site/nvidia/cu13/bin/* "$work"/site/nvidia/cu13/nvvm/bin/*
mkdir -p "$folder"
rm -rf "$folder/nvidia"
mv "$work/site/nvidia" "$folder/nvidia"
"$folder/nvidia/cu13/bin/nvcc" --version
