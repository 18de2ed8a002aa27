#!/usr/bin/env bash
# Makes the Python wheels of a build, installs them into a new environment and uses them there:
#   tests/python/wheel_test.sh BUILD_FOLDER
# Catches: a file that is missing or wrong in RECORD, a library loaded from the system, wrong types, a
# program that does not start, the findings of engine_test.py and adapters_test.py, and a CUDA backend that is not found
# or does not find CUDA's libraries (checked where the build has one, even without a GPU).
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

pip_installs() { "$work/venv/bin/pip" install --quiet --no-index --disable-pip-version-check "$@"; }

installs() { python3 -m venv "$work/venv" && pip_installs "$work"/wheel/tessera_engine-*.whl; }

record_is_right() {
  python3 - "$work"/wheel/*.whl <<'PY'
import base64, csv, hashlib, sys, zipfile
for archive in sys.argv[1:]:
    wheel = zipfile.ZipFile(archive)
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

# Checks that all libraries are the wheel's, except glibc's and the compiler's. Symbols that are newer than the wheel's
# tag allows would show in their versions.
uses_its_own_libraries() {
  # shellcheck disable=SC2086
  ldd $package/lib/libtessera.so.1 $package/bin/tessera | grep "=>" | grep -vE "=> $work/|lib(c|m|dl|rt|pthread|resolv|util|stdc\+\+|gcc_s)\.so" && return 1
  # shellcheck disable=SC2086
  objdump -T $package/lib/*.so* | grep -oE 'GLIBC_2\.[0-9]+' | sort -uV | tail -n 1 | awk -F. '$2 > 36 {print; bad = 1} END {exit bad}'
}

# If other code in the process has loaded a library of the same name, the loader would use that library for the wheel.
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

# Downloads from port 9, where nothing listens; libcurl reports that.
downloads_with() { installed "$@" HF_ENDPOINT=http://127.0.0.1:9 tessera pull nobody/nothing 2>&1; }

# Checks that the system's libcurl is loaded, which the wheel does not contain.
loads_libcurl() {
  local said
  said=$(downloads_with) && return 1
  echo "$said"
  [[ "$said" == *"127.0.0.1"* && "$said" != *"libcurl cannot be started"* ]]
}

# Checks that the system's libcurl uses the system's libraries: its libssl must not use the wheel's libcrypto, which the
# program has loaded before.
keeps_libcurls_libraries_apart() {
  local log="$work/bindings"
  downloads_with LD_DEBUG=bindings >"$log" && return 1
  grep -qE "binding file /(usr/)?lib/[^ ]*/libcurl[^ ]* \[0\] to /(usr/)?lib/" "$log" || { echo "no bindings of libcurl" && return 1; }
  grep -E "binding file /(usr/)?lib/[^ ]*/lib(curl|ssl|crypto)[^ ]* \[0\] to [^ ]*-tessera[.]so" "$log" | head -n 5 | grep . && return 1
  return 0
}

# Simulates a system without libcurl: dlopen() does not find it.
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

# Runs the program on the device cuda and prints its output. The checks need no GPU.
asks_for_cuda() { installed "$@" tessera generate --model-path "$PWD/models/demo" --device cuda --prompt Once --max-new-tokens 4 2>&1; }

names_the_cuda_wheel() {
  local said
  said=$(asks_for_cuda) && return 1
  echo "$said"
  [[ "$said" == *"libtessera_cuda.so: cannot open shared object file"*"tessera-engine-cuda"* ]]
}

# Installs the extra: pip installs the other wheel of the same version. It also installs the wheels of NVIDIA that the
# other wheel needs; empty wheels replace them here.
installs_cuda() {
  local name
  for name in nvidia-cublas nvidia-cuda-nvrtc nvidia-cublas-cu12 nvidia-cuda-nvrtc-cu12; do
    python3 - "$name" "$1" "$work/wheel" <<'PY' || return 1
import pathlib, sys, tempfile
sys.path.insert(0, "tools")
import wheel
name, version, target = sys.argv[1:]
with tempfile.TemporaryDirectory() as folder:
    info = wheel.write_info(pathlib.Path(folder), name.replace("-", "_"), version, "stands in", [], "")
    wheel.write_wheel(pathlib.Path(folder), info, pathlib.Path(target))
PY
  done
  pip_installs --find-links "$work/wheel" "tessera-engine[cuda]" && installed pip show tessera-engine-cuda nvidia-cublas"$2"
}

# Checks that the backend and all its libraries are loaded; only a GPU's driver may be missing.
loads_cuda() {
  local said
  if said=$(asks_for_cuda "$@"); then
    [[ ${#said} -gt 4 ]]
    return
  fi
  echo "$said"
  [[ "$said" == *"no NVIDIA driver: libcuda.so.1"* || "$said" == *"NVIDIA driver serves CUDA"* ]]
}

# Checks which cuBLAS is loaded first: that of NVIDIA's wheels, of the system or of LD_LIBRARY_PATH.
takes_cublas_of() {
  local said
  said=$(asks_for_cuda LD_DEBUG=libs "${@:2}")
  grep -E "calling init: .*/libcublasLt[.]so" <<<"$said" | tee /dev/stderr | grep -qF "$1"
}

without_system_cuda() {
  local hidden
  hidden=$(readlink -f "$system_cuda")
  # shellcheck disable=SC2016
  unshare --mount bash -c 'mount -t tmpfs none "$0" && "$@"' "$hidden" "$@"
}

names_a_missing_cublas() {
  local said
  said=$(without_system_cuda env -i PATH="$work/venv/bin:/usr/bin:/bin" HOME="$work" \
    tessera generate --model-path "$PWD/models/demo" --device cuda --prompt Once 2>&1) && return 1
  echo "$said"
  [[ "$said" == *"libtessera_cuda.so needs CUDA's libraries: libcublasLt.so"*"nvidia-cublas"* ]]
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
check "adapters" installed python "$PWD/tests/python/adapters_test.py" "$PWD/tests/data"
# tools/clients_test.sh installs the harness and its dependencies here.
harness=$(echo "$build"/clients/lm_eval/lib/python*/site-packages)
if [[ -d "$harness/lm_eval" ]]; then
  check "lm-eval" installed PYTHONPATH="$harness" python "$PWD/tests/python/harness_test.py" tessera "$PWD/models/demo"
else
  echo "skipped: lm-eval is not installed (tools/clients_test.sh --only lm_eval brings it)"
fi
if [[ -e "$build/libtessera_cuda.so" ]]; then
  # shellcheck disable=SC2086
  cublas=$(ldd "$build/libtessera_cuda.so" | grep -oE '/[^ ]*/libcublasLt[.]so[.][0-9]+')
  system_cuda=${cublas%/*}
  major=${cublas##*.}
  wheels=nvidia/cu13/lib
  [[ "$major" == 13 ]] || wheels=nvidia/cublas/lib
  check "a missing CUDA backend is named" names_the_cuda_wheel
  check "CUDA extra" installs_cuda "$major.0" "$([[ "$major" == 13 ]] || echo -cu12)"
  check "CUDA backend loads with the system's libraries" loads_cuda
  # Debian's own libraries are in a common folder, so their path proves nothing.
  if [[ "$system_cuda" == */cuda* ]]; then
    check "which are the system's" takes_cublas_of /cuda
  else
    echo "skipped: the system's CUDA has no folder of its own"
  fi
  if [[ "$system_cuda" == */cuda* ]] && unshare --mount true 2>/dev/null; then
    check "a missing cuBLAS is named" names_a_missing_cublas
  else
    echo "skipped: hiding the system's CUDA needs root, and a folder of its own"
  fi
  # shellcheck disable=SC2086
  folder=$(dirname $package)/$wheels
  mkdir -p "$folder" "$work/other" && ln -s "$cublas" "$folder" && ln -s "$cublas" "$work/other"
  check "CUDA backend loads with NVIDIA's wheels" loads_cuda
  check "which come before the system's" takes_cublas_of "$wheels"
  check "LD_LIBRARY_PATH comes before both" takes_cublas_of "$work/other" LD_LIBRARY_PATH="$work/other"
else
  echo "skipped: the build has no CUDA backend"
fi
if command -v mypy >/dev/null; then
  check "types" mypy --strict --cache-dir="$work/mypy" python/tessera_engine
else
  echo "skipped: mypy is missing"
fi

report
