#!/usr/bin/env bash
# Writes the C interface of a built library, types and symbols, in the form that abidiff compares:
#   tests/abi/dump.sh LIBRARY HEADER_FOLDER >DUMP
# Run this to renew the stored dump after a compatible change (a new function, or a field at a struct's end):
#   tests/abi/dump.sh build/libtessera.so include >tests/abi/libtessera.abi
set -euo pipefail
headers=$(mktemp -d)
trap 'rm -rf "$headers"' EXIT
cp "$2/tessera.h" "$headers"  # the engine's own headers are private
abidw --headers-dir "$headers" --drop-private-types --exported-interfaces-only --no-show-locs --no-corpus-path --no-elf-needed \
  --no-comp-dir-path "$(realpath "$1")"
