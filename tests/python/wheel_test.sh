#!/usr/bin/env bash
# Makes the Python wheel of a build, installs it into a new environment and uses it there:
#   tests/python/wheel_test.sh BUILD_FOLDER
# Catches: a file that RECORD does not have or has otherwise, a library that comes from the system, types that are wrong, a
# program that does not start, and what engine_test.py says.
set -uo pipefail
cd "$(dirname "$0")/../.." || exit 1
if ! command -v patchelf >/dev/null; then
  echo "skipped: patchelf is missing"
  exit 77
fi
if ! python3 -c 'import venv, ensurepip' 2>/dev/null; then
  echo "skipped: Python's venv is missing (python3-venv)"
  exit 77
fi
. tests/checks.sh "$1"
package="$work/venv/lib/python*/site-packages/tessera_engine"

installed() { (cd "$work" && env -i PATH="$work/venv/bin:/usr/bin:/bin" HOME="$work" OMP_WAIT_POLICY=passive "$@"); }

installs() {
  python3 -m venv "$work/venv" && "$work/venv/bin/pip" install --quiet --no-index --disable-pip-version-check "$work"/wheel/*.whl
}

record_is_right() {
  python3 - "$work"/wheel/*.whl <<'PY'
import base64, csv, hashlib, sys, zipfile
wheel = zipfile.ZipFile(sys.argv[1])
name = next(n for n in wheel.namelist() if n.endswith("/RECORD"))
rows = {row[0]: row[1:] for row in csv.reader(wheel.read(name).decode().splitlines())}
assert set(rows) == set(wheel.namelist()), set(rows) ^ set(wheel.namelist())
for file, (digest, size) in rows.items():
    if file == name:
        continue
    data = wheel.read(file)
    assert int(size) == len(data), file
    assert digest == "sha256=" + base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode(), file
print(len(rows), "files")
PY
}

# All but glibc's and the compiler's libraries; newer symbols than the tag allows would show in their versions.
uses_its_own_libraries() {
  # shellcheck disable=SC2086
  ldd $package/lib/libtessera.so.1 $package/bin/tessera | grep "=>" | grep -vE "=> $work/|lib(c|m|dl|rt|pthread|resolv|util|stdc\+\+|gcc_s)\.so" && return 1
  # shellcheck disable=SC2086
  objdump -T $package/lib/*.so* | grep -oE 'GLIBC_2\.[0-9]+' | sort -uV | tail -n 1 | awk -F. '$2 > 36 {print; bad = 1} END {exit bad}'
}

# A name that others in the process load too would be theirs or ours, whichever came first.
has_names_of_its_own() {
  # shellcheck disable=SC2086
  find $package/lib -type f ! -name '*-tessera.so*' ! -name 'libtessera.so.1' | grep . && return 1
  installed python -c '
import ssl, tessera_engine
loaded = [line.split()[-1] for line in open("/proc/self/maps") if "libcrypto" in line]
assert any("tessera_engine" in name for name in loaded) and any("tessera_engine" not in name for name in loaded), set(loaded)
print(ssl.OPENSSL_VERSION)'
}

has_licenses() {
  local name
  for name in libdnnl2 libfmt9 libpcre2-8-0 common/Apache-2.0; do
    [[ -e "$(echo $package-*.dist-info/licenses/$name)" ]] || { echo "$name" && return 1; }
  done
}

program_writes() {
  local text
  text=$(installed tessera generate --model-path "$PWD/models/demo" --prompt "Once upon a time" --max-new-tokens 20) || return 1
  is_text "$text"
}

# Nothing listens on port 9: libcurl says so.
downloads_with() { installed "$@" HF_ENDPOINT=http://127.0.0.1:9 tessera pull nobody/nothing 2>&1; }

# The system's libcurl, which is not in the wheel.
loads_libcurl() {
  local said
  said=$(downloads_with) && return 1
  echo "$said"
  [[ "$said" == *"127.0.0.1"* && "$said" != *"libcurl cannot be started"* ]]
}

# What libcurl brings stays among itself: libssl of the system with its libcrypto, not with the wheel's, which the program
# has loaded before.
keeps_libcurls_libraries_apart() {
  local log="$work/bindings"
  downloads_with LD_DEBUG=bindings >"$log" && return 1
  grep -qE "binding file /(usr/)?lib/[^ ]*/libcurl[^ ]* \[0\] to /(usr/)?lib/" "$log" || { echo "no bindings of libcurl" && return 1; }
  grep -E "binding file /(usr/)?lib/[^ ]*/lib(curl|ssl|crypto)[^ ]* \[0\] to [^ ]*-tessera[.]so" "$log" | head -n 5 | grep . && return 1
  return 0
}

# As on a system without it: dlopen() finds none.
names_a_missing_libcurl() {
  local said
  cc -shared -fPIC -o "$work/without_libcurl.so" -x c - <<'C' || return 1
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stddef.h>
#include <string.h>
void* dlopen(const char* name, int flags) {
  void* (*found)(const char*, int) = (void* (*)(const char*, int))dlsym(RTLD_NEXT, "dlopen");
  return name != NULL && strstr(name, "libcurl") != NULL ? NULL : found(name, flags);
}
C
  said=$(downloads_with LD_PRELOAD="$work/without_libcurl.so") && return 1
  echo "$said"
  [[ "$said" == *"libcurl cannot be started: this system has no libcurl.so.4"* ]]
}

check "wheel" python3 tools/make_wheel.py "$build" "$work/wheel"
check "RECORD" record_is_right
check "install" installs
# shellcheck disable=SC2086
check "libraries" uses_its_own_libraries
check "names of libraries" has_names_of_its_own
check "licences" has_licenses
check "program" program_writes
check "downloads by the system's libcurl" loads_libcurl
check "libcurl's libraries are the system's" keeps_libcurls_libraries_apart
check "a missing libcurl is named" names_a_missing_libcurl
check "wrong words are exit code 2" bash -c "! $work/venv/bin/tessera nothing 2>/dev/null && [[ \$($work/venv/bin/tessera nothing 2>/dev/null; echo \$?) == 2 ]]"
check "engine" installed python "$PWD/tests/python/engine_test.py" "$PWD/models/demo"
if command -v mypy >/dev/null; then
  check "types" mypy --strict --cache-dir="$work/mypy" python/tessera_engine
else
  echo "skipped: mypy is missing"
fi

report
