#!/usr/bin/env bash
# Fetches third-party sources from PyPI at pinned versions and hashes (tools/NAME.txt) into FOLDER:
#   tools/fetch_pypi.sh cuda_headers FOLDER   flashinfer/include, cudnn_frontend/include, licences
#   tools/fetch_pypi.sh xgrammar FOLDER       xgrammar/cpp, xgrammar/include, xgrammar/3rdparty; with tools/xgrammar.patch
# Does nothing if FOLDER has the sources already.
set -euo pipefail
if (($# != 2)) || [[ "$1" != cuda_headers && "$1" != xgrammar ]]; then
  echo "usage: $0 cuda_headers|xgrammar FOLDER" >&2
  exit 2
fi
name=$1
tools=$(cd "$(dirname "$0")" && pwd)
mkdir -p "$2"
folder=$(cd "$2" && pwd)
recipe() {
  cat "$tools/$name.txt"
  grep -v '^ *#' "$tools/fetch_pypi.sh"
  [[ ! -e "$tools/$name.patch" ]] || cat "$tools/$name.patch"
}
# Does nothing if these commands have already fetched the sources with these pins.
recipe | cmp -s - "$folder/$name.recipe" && exit 0

scratch=$(mktemp -d "$folder/fetch.XXXXXX")
trap 'rm -rf "$scratch"' EXIT
download() {
  python3 -m pip download --quiet --disable-pip-version-check --retries 1 --timeout 20 --no-deps --require-hashes --dest "$scratch" \
    -r "$tools/$name.txt" "$@"
}

fetch_cuda_headers() {
  # Always takes the wheels for Python 3.11, because the pinned hashes belong to them. Only headers are used, so the
  # version of this machine's Python does not matter.
  download --only-binary=:all: --python-version 3.11 --implementation cp --platform manylinux_2_27_x86_64 \
    --platform manylinux_2_28_x86_64 --platform any
  for wheel in "$scratch"/*.whl; do python3 -m zipfile -e "$wheel" "$scratch/unpacked"; done
  rm -rf "$folder/flashinfer" "$folder/cudnn_frontend"
  mkdir -p "$folder/flashinfer" "$folder/cudnn_frontend"
  mv "$scratch/unpacked/flashinfer/data/include" "$folder/flashinfer/include"
  mv "$scratch/unpacked/include" "$folder/cudnn_frontend/include"
  mv "$scratch"/unpacked/flashinfer_python-*.dist-info/licenses/LICENSE "$folder/flashinfer"
  mv "$scratch"/unpacked/nvidia_cudnn_frontend-*.dist-info/licenses/{LICENSE.txt,LICENSE-MIT.txt,NOTICE} "$folder/cudnn_frontend"
}

fetch_xgrammar() {
  # pip asks the build backend of a source archive for the archive's metadata, and the real backend would first need
  # many packages of PyPI. This replacement returns the metadata that is in the archive.
  mkdir -p "$scratch/backend/scikit_build_core"
  cat >"$scratch/backend/scikit_build_core/build.py" <<'END'
import email, pathlib, shutil

def prepare_metadata_for_build_wheel(metadata_directory, config_settings=None):
    about = email.message_from_string(pathlib.Path("PKG-INFO").read_text())
    folder = pathlib.Path(metadata_directory) / f"{about['Name']}-{about['Version']}.dist-info"
    folder.mkdir()
    shutil.copy("PKG-INFO", folder / "METADATA")
    return folder.name
END
  PYTHONPATH="$scratch/backend" download --no-binary=:all: --no-build-isolation
  mkdir "$scratch/unpacked"
  tar -xzf "$scratch"/xgrammar-*.tar.gz -C "$scratch/unpacked" --strip-components=1
  patch --quiet --forward -p1 -d "$scratch/unpacked" <"$tools/xgrammar.patch"
  rm -rf "$folder/xgrammar"
  mkdir "$folder/xgrammar"
  mv "$scratch/unpacked"/{cpp,include,3rdparty,LICENSE,NOTICE} "$folder/xgrammar"
}

"fetch_$name"
recipe >"$folder/$name.recipe"
echo "$name: in $folder."
