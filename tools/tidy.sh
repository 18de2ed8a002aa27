#!/usr/bin/env bash
# Runs clang-tidy over our sources (not the tests) as configured in build-tidy: tools/tidy.sh [FILE …]
# clang-tidy 14, Debian 12's default, does not parse g++ 12's C++20 headers; 19 is in Debian 12 too and does.
set -euo pipefail
cd "$(dirname "$0")/.."
if ! command -v clang-tidy-19 >/dev/null; then
  echo "clang-tidy-19 is missing: tools/install_deps.sh dev" >&2
  exit 1
fi
files=("$@")
if ((${#files[@]} == 0)); then
  mapfile -t files < <(find src -name '*.cpp' ! -name '*_test.cpp' ! -path '*/testing/*' | sort)
fi
# Kernels on g++'s vector types are beyond clang, which has no __builtin_shuffle.
mapfile -t files < <(grep -L 'ops/cpu_vector.h' "${files[@]}")
# Its count of warnings in system headers says nothing.
printf '%s\0' "${files[@]}" |
  xargs -0 -n 1 -P "$(nproc)" clang-tidy-19 -p build-tidy --quiet 2> >(grep -v ' generated\.$' >&2)
echo "clang-tidy: ${#files[@]} files are clean"
