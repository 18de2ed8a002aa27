#!/usr/bin/env bash
# Compares the C interface of a built libtessera.so with the stored one: tests/abi_test.sh BUILD_FOLDER
# Catches: a struct, function or number of include/tessera.h that differs from what programs were compiled with, a symbol
# that is missing, and engine symbols that could collide with those of other libraries. Also shows that the comparison
# finds such changes.
set -uo pipefail
cd "$(dirname "$0")/.." || exit 1
if ! command -v abidw >/dev/null; then
  echo "skipped: abidw is missing (abigail-tools)"
  exit 77
fi
. tests/checks.sh "$1"
stored=tests/abi/libtessera.abi

same() {
  abidiff "$@" && return
  echo "The C interface is another. Where the change is compatible, tests/abi/dump.sh says how to renew $stored;"
  echo "where it is not, programs break: keep the symbol and add another."
  return 1
}

shows_its_functions_alone() {
  nm -D --defined-only "$build/libtessera.so" | awk '$2 != "A" {print $3}' | sed 's/@.*//' | sort >"$work/symbols"
  grep -oE '\btessera_[a-z_]+\(' include/tessera.h | tr -d '(' | sort -u >"$work/functions"
  diff "$work/functions" "$work/symbols"
}

# Builds a library of two functions from the header and code, both edited by `sed -E SCRIPT`: build_with NAME SCRIPT
build_with() {
  mkdir -p "$work/$1"
  sed -E "$2" include/tessera.h >"$work/$1/tessera.h"
  sed -E "$2" >"$work/$1/library.c" <<'C'
#include "tessera.h"
tessera_code tessera_submit(tessera_engine* engine, const tessera_submission* submission, tessera_request** request,
                            tessera_error** error) {
  return engine && submission && request && error ? TESSERA_OK : TESSERA_INTERNAL;
}
tessera_code tessera_request_next(tessera_request* request, int64_t timeout_ms, tessera_event* event,
                                  tessera_error** error) {
  return request && timeout_ms && event && error ? TESSERA_OK : TESSERA_INTERNAL;
}
C
  cc -g -shared -fPIC -o "$work/$1/library.so" "$work/$1/library.c" &&
    tests/abi/dump.sh "$work/$1/library.so" "$work/$1" >"$work/$1.abi"
}

finds() {
  build_with changed "$1" || return 1
  ! cmp -s include/tessera.h "$work/changed/tessera.h" || return 1
  ! abidiff "$work/same.abi" "$work/changed.abi"
}

check "dump" bash -c "tests/abi/dump.sh '$build/libtessera.so' include >'$work/built.abi'"
check "the interface is the stored one" same "$stored" "$work/built.abi"
check "the library shows the header's functions and nothing else" shows_its_functions_alone
check "an unchanged header compares equal" bash -c "$(declare -f build_with); work='$work'; build_with same '' && abidiff '$work/same.abi' '$work/same.abi'"
check "a removed field is found" finds '/const char\* path;/d'
check "fields in another order are found" finds 's/int32_t kind; /int32_t code; /; t; s/int32_t code; /int32_t kind; /'
check "a field of another type is found" finds 's/size_t json_size;/uint32_t json_size;/'
check "another number of a code is found" finds 's/TESSERA_TIMEOUT = 10/TESSERA_TIMEOUT = 11/'
check "another parameter is found" finds 's/int64_t timeout_ms, tessera_event/int32_t timeout_ms, tessera_event/'

report
