#!/usr/bin/env bash
# Header-only libraries that the CUDA kernels use, from PyPI at pinned versions and hashes (tools/cuda_headers.txt):
#   tools/fetch_cuda_headers.sh FOLDER
# leaves flashinfer/include, flashinfer/cutlass and cudnn_frontend/include there, and does nothing where they are.
set -euo pipefail
if (($# != 1)); then
  echo "usage: $0 FOLDER" >&2
  exit 2
fi
pins=$(cd "$(dirname "$0")" && pwd)/cuda_headers.txt
folder=$1
mkdir -p "$folder"
# Fetched by this very script and these pins.
cat "$pins" "$0" | cmp -s - "$folder/pins" && exit 0

scratch=$(mktemp -d "$folder/fetch.XXXXXX")
trap 'rm -rf "$scratch"' EXIT
# Wheels of one Python, whichever runs here: only their headers are used, and the hashes are theirs.
python3 -m pip download --quiet --disable-pip-version-check --no-deps --require-hashes --only-binary=:all: \
  --python-version 3.11 --implementation cp --platform manylinux_2_27_x86_64 --platform manylinux_2_28_x86_64 \
  --platform any --dest "$scratch" -r "$pins"
for wheel in "$scratch"/*.whl; do python3 -m zipfile -e "$wheel" "$scratch/unpacked"; done

rm -rf "$folder/flashinfer" "$folder/cudnn_frontend"
mkdir -p "$folder/flashinfer" "$folder/cudnn_frontend"
mv "$scratch/unpacked/flashinfer/data/include" "$folder/flashinfer/include"
mv "$scratch/unpacked/flashinfer/data/cutlass/include" "$folder/flashinfer/cutlass"
cp -R "$scratch/unpacked/flashinfer/data/cutlass/tools/util/include/." "$folder/flashinfer/cutlass"
mv "$scratch/unpacked/include" "$folder/cudnn_frontend/include"
cat "$pins" "$0" >"$folder/pins"
echo "CUDA header libraries are in $folder."
