#!/usr/bin/env bash
# Formats our C++ and CUDA sources in place. With --check it changes no file, says which files are not formatted, and
# fails if there are any.
set -euo pipefail
cd "$(dirname "$0")/.."
if ! command -v clang-format >/dev/null; then
  echo "clang-format is missing: tools/install_deps.sh dev" >&2
  exit 1
fi
mode=(-i)
[[ "${1:-}" == --check ]] && mode=(--dry-run -Werror)
folders=()
for folder in src tests fuzz examples plugins tools; do
  [[ -d "$folder" ]] && folders+=("$folder")
done
find "${folders[@]}" \( -name '*.h' -o -name '*.cpp' -o -name '*.cu' -o -name '*.cuh' \) -print0 |
  xargs -0 clang-format "${mode[@]}"
