#!/usr/bin/env bash
# Installs the packages that building and testing need on Debian 12, except those already installed.
#   tools/install_deps.sh        for building and testing
#   tools/install_deps.sh build  for building alone
#   tools/install_deps.sh dev    also what `make format` and `make tidy` need
#   tools/install_deps.sh fuzz   also what `make fuzz` needs
# Prints which packages it will install and how. On a terminal it then asks; elsewhere, and with CI set, it continues.
# With DEPS=skip in the environment it installs nothing.
set -euo pipefail

build_packages=(
  make cmake ninja-build g++ ccache pkg-config
  libdnnl-dev
  ocl-icd-opencl-dev # libdnnl-dev's CMake package needs it, but libdnnl-dev does not depend on it
  libfmt-dev libspdlog-dev nlohmann-json3-dev libsimdjson-dev libcli11-dev libyaml-cpp-dev libpcre2-dev libutf8proc-dev
  libedit-dev libsentencepiece-dev libcurl4-openssl-dev libssl-dev zlib1g-dev libzstd-dev libboost1.81-dev prometheus-cpp-dev
  libzmq3-dev # its library is loaded at run time by servers that publish events
  libpng-dev libjpeg62-turbo-dev libwebp-dev libgif-dev libtiff-dev
  patch # for sources from PyPI
  chrpath dpkg-dev # for the Debian package
  patchelf # for the Python package
)
test_packages=(libgtest-dev libgmock-dev lld python3 python3-jinja2 python3-jsonschema xz-utils chromium curl
  abigail-tools rustc # the C interface: its ABI, and a client in another language
  python3-venv mypy   # the Python package
  lintian systemd     # the Debian package
  debootstrap         # the image
  iproute2 openmpi-bin python3-yaml # several machines: their network, a launcher, manifests
  pocl-opencl-icd     # a driver of OpenCL that runs on the processor
)
fuzz_packages=(clang-19 libclang-rt-19-dev)
dev_packages=(clang-format clang-tidy-19 "${fuzz_packages[@]}") # asan-parsers uses the compiler of fuzzing

# tools/fetch_pypi.sh needs pip. Debian's pip is installed only if there is no other.
if ! python3 -m pip --version >/dev/null 2>&1; then
  build_packages+=(python3 python3-pip)
fi

packages=("${build_packages[@]}" "${test_packages[@]}")
case "${1:-}" in
  "") ;;
  build) packages=("${build_packages[@]}") ;;
  dev) packages+=("${dev_packages[@]}") ;;
  fuzz) packages+=("${fuzz_packages[@]}") ;;
  *)
    echo "usage: $0 [build|dev|fuzz]" >&2
    exit 2
    ;;
esac

case "${DEPS:-}" in
  "") ;;
  skip)
    echo "DEPS=skip: no package is looked for or installed."
    exit 0
    ;;
  *)
    echo "DEPS is \"$DEPS\"; accepted is skip" >&2
    exit 2
    ;;
esac

id=unknown
if [[ -r /etc/os-release ]]; then
  id=$(. /etc/os-release && echo "${ID:-unknown}")
fi
if [[ "$id" != debian ]] || ! command -v dpkg-query >/dev/null; then
  echo "This script installs packages of Debian 12; this system is '$id'. Install the like of these yourself:" >&2
  printf '  %s\n' "${packages[@]}" >&2
  exit 1
fi

is_installed() {
  [[ "$(dpkg-query -W -f='${db:Status-Status}' "$1" 2>/dev/null)" == installed ]]
}

missing=()
for package in "${packages[@]}"; do
  is_installed "$package" || missing+=("$package")
done
if ((${#missing[@]} == 0)); then
  echo "All ${#packages[@]} packages are installed."
  exit 0
fi

as_root=()
if ((EUID != 0)); then
  if ! command -v sudo >/dev/null; then
    echo "Packages are missing, and installing them needs root (there is no sudo): ${missing[*]}" >&2
    exit 1
  fi
  as_root=(sudo)
fi

echo "To be installed from Debian, with what they depend on${as_root[*]:+, through sudo}:"
printf '  %s\n' "${missing[@]}"
if [[ -t 0 && -z "${CI:-}" ]]; then
  read -rp "Go on? [y/N] (DEPS=skip goes on without them) " answer
  if [[ "$answer" != [yY]* ]]; then
    echo "Nothing was installed." >&2
    exit 1
  fi
fi
"${as_root[@]}" apt-get update -q
"${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends "${missing[@]}"
