#!/usr/bin/env bash
# Writes what the C interface of a built library is, types and symbols, as abidiff compares it:
#   tests/abi/dump.sh LIBRARY HEADER_FOLDER >DUMP
# To renew the stored one after a compatible change (a function, or a field at a struct's end):
#   tests/abi/dump.sh build/libtessera.so include >tests/abi/libtessera.abi
set -euo pipefail
headers=$(mktemp -d)
trap 'rm -rf "$headers"' EXIT
cp "$2/tessera.h" "$headers"  # the engine's own headers are private
abidw --headers-dir "$headers" --drop-private-types --exported-interfaces-only --no-show-locs --no-corpus-path --no-elf-needed \
  --no-comp-dir-path "$(realpath "$1")"
