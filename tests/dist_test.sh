#!/usr/bin/env bash
# Packs a build folder as `make dist` and `make dist-tests` do, unpacks both archives elsewhere and runs their programs:
# tests/dist_test.sh BUILD_FOLDER
# Catches: a library that is not packed or is still loaded from the build, data that a program does not find elsewhere,
# and a component without its licence. The archives are not compressed, which would take most of the time.
set -uo pipefail
cd "$(dirname "$0")/.." || exit 1
. tests/checks.sh "$1"

# elsewhere COMMAND …: runs COMMAND in the unpacked archives' folder, without this environment. Other tests run beside
# this one, so waiting threads must not hold a core.
elsewhere() { (cd "$work" && env -i PATH=/usr/bin:/bin HOME="$work" OMP_WAIT_POLICY=passive "$@"); }

generates_text() {
  local text
  text=$(elsewhere program/bin/tessera generate --model-path program/models/demo --prompt "Once upon a time" \
    --max-new-tokens 20) || return 1
  is_text "$text"
}

# Checks that every library comes from the archive, except those of glibc, the compiler and CUDA.
uses_its_own_libraries() {
  local folder=$1 program
  shift
  for program in "$@"; do
    elsewhere ldd "$program" | grep -vE "=> $work/$folder/|linux-vdso|ld-linux|lib(c|m|dl|rt|pthread|resolv|util|stdc\+\+|gcc_s|cu[a-zA-Z]*|nv[a-zA-Z]*)\.so"
  done >"$work/foreign"
  cat "$work/foreign"
  [[ ! -s "$work/foreign" ]]
}

# Checks that files for linking are absent: they would need headers that the archive lacks.
has_nothing_to_link_with() {
  [[ -d "$work/program/lib" ]] || return 1
  find "$work/program" \( -name include -o -name cmake -o -name pkgconfig -o -name 'libtessera.so*' -o -name 'libtessera_cpp.so*' \) |
    grep . && return 1
  return 0
}

# Checks that there is a licence text for the package of each packed library and for each compiled-in component. The
# texts of common licences, to which these texts refer, must be there too.
has_licenses() {
  local folder=$1 name
  for name in libdnnl2 libfmt9 libpcre2-8-0 libgomp1 libboost1.81-dev common/Apache-2.0 common/LGPL-2.1; do
    [[ -s "$work/$folder/licenses/$name/copyright" || -s "$work/$folder/licenses/$name" ]] || { echo "$name" && return 1; }
  done
  [[ ! -d "$build/third_party/xgrammar" || -s "$work/$folder/licenses/xgrammar/LICENSE" ]] || { echo xgrammar && return 1; }
  [[ ! -d "$build/third_party/flashinfer" || -s "$work/$folder/licenses/flashinfer/LICENSE" ]] || { echo flashinfer && return 1; }
  find "$work/$folder/licenses" -mindepth 1 -type d -empty | grep . && return 1
  return 0
}

check "pack the program" tools/pack.py program "$build" "$work/program.tar"
check "pack the tests" tools/pack.py tests "$build" "$work/tests.tar"
for archive in program tests; do check "unpack $archive" tar -C "$work" -xf "$work/$archive.tar"; done
check "the program uses its own libraries" uses_its_own_libraries program program/bin/tessera
check "the tests use their own libraries" uses_its_own_libraries tests tests/bin/engine_test tests/bin/ops_test
check "the program has no libraries to link with" has_nothing_to_link_with
check "the program has its licences" has_licenses program
check "the tests have their licences" has_licenses tests
check "the program names its version" elsewhere program/bin/tessera --version
check "the program writes text" generates_text
check "the tests run" elsewhere DEVICE=cpu tests/tools/test_cuda.sh tests/bin steady_decode_test capture_guard_test

report
