#!/usr/bin/env python3
"""Makes the Python wheels of a built Tessera: tools/make_wheel.py BUILD_FOLDER FOLDER

Writes tessera_engine-VERSION-py3-none-manylinux_2_36_x86_64.whl to FOLDER. It has the package of python/, libtessera.so, the program,
and all libraries that they need except glibc and the compiler's run-time library, with the licence of each. If the build has the CUDA
backend, also writes tessera_engine_cuda-…, which has this library alone. CUDA's own libraries come from NVIDIA's wheels, on which it
depends, or from the system. Nothing is compiled here: the package calls the library by ctypes and works with every Python 3.
Fails if a wheel is larger than LIMIT_MB."""

import pathlib
import re
import subprocess
import sys
import tempfile

import licenses
import pack
import wheel

NAME = "tessera_engine"
CUDA_NAME = "tessera_engine_cuda"
CUDA_LIBRARY = "libtessera_cuda.so"
# The first limit is just above that wheel's size, so that a library added by accident is noticed. The second limit is
# PyPI's.
LIMIT_MB = {NAME: 26, CUDA_NAME: 100}
ROOT = pathlib.Path(__file__).resolve().parent.parent
# For each major version of CUDA: NVIDIA's wheels, and their library folders in site-packages. cuDNN is an extra.
NVIDIA = {
    "12": (("nvidia-cublas-cu12", "nvidia-cuda-nvrtc-cu12"), "nvidia-cudnn-cu12", ("cublas", "cuda_nvrtc", "cudnn")),
    "13": (("nvidia-cublas", "nvidia-cuda-nvrtc"), "nvidia-cudnn-cu13", ("cu13", "cudnn")),
}
TOOLKIT = "/usr/local/cuda/lib64"

CUDA_DESCRIPTION = """The CUDA backend of tessera-engine: with this package beside it, `Engine(model, device="cuda")` and
`tessera serve --device cuda` run on NVIDIA GPUs. CUDA's libraries are those of NVIDIA's wheels, else the system's, and those in
LD_LIBRARY_PATH come before both.
"""


def version():
    return re.search(r"^project\(tessera VERSION ([\d.]+)", (ROOT / "CMakeLists.txt").read_text(), re.MULTILINE).group(1)


def patch(file, *edits):
    """Applies edits one by one, because patchelf 0.14 mixes up version names when it makes several at once."""
    for edit in edits:
        subprocess.run(["patchelf", *edit, file], check=True)


def needed_names(file):
    return subprocess.run(["patchelf", "--print-needed", file], check=True, capture_output=True, text=True).stdout.split()


def own_name(name):
    """Returns a name that no other library in a process has. The loader treats libraries of the same name as one, so
    Python's own ssl would get our libcrypto, or we would get its."""
    return name.replace(".so", "-tessera.so", 1)


def rename_libraries(folder, ours):
    files = sorted(file for file in folder.iterdir() if file.name != ours)
    theirs = {file.name for file in files}
    for file in [*files, folder / ours]:
        patch(file, *(["--replace-needed", name, own_name(name)] for name in needed_names(file) if name in theirs))
    for file in files:
        patch(file, ["--set-soname", own_name(file.name)])
        file.rename(folder / own_name(file.name))


def write_licenses(build, libraries, info):
    licenses.collect(build, libraries, info / "licenses", with_tests=False)
    (info / "licenses" / "LICENSE").write_bytes((ROOT / "LICENSE").read_bytes())


def make_engine(build, folder, target):
    package = folder / NAME
    wheel.copy_package(ROOT / "python" / NAME, package)
    library = build / "libtessera.so.1"
    pack.copy_stripped(library, package / "lib" / library.name)
    pack.copy_stripped(build / "launcher" / "tessera", package / "bin" / "tessera")
    libraries = pack.copy_libraries([library], package / "lib")
    rename_libraries(package / "lib", library.name)
    # Uses RPATH, like the build: the loader applies this library's RPATH also to the libraries beside it, which have
    # none.
    patch(package / "lib" / library.name, ["--force-rpath", "--set-rpath", f"$ORIGIN:$ORIGIN/../../{CUDA_NAME}/lib"])
    info = wheel.write_info(
        folder, NAME, version(), "LLM inference engine built around piecewise CUDA graphs",
        ["Classifier: Typing :: Typed", "Provides-Extra: cuda",
         f'Requires-Dist: {CUDA_NAME.replace("_", "-")} (=={version()}) ; extra == "cuda"'],
        (ROOT / "docs" / "python.md").read_text())
    (info / "entry_points.txt").write_text(f"[console_scripts]\ntessera = {NAME}._program:main\n")
    write_licenses(build, libraries, info)
    return wheel.write_wheel(folder, info, target)


def cuda_major(library):
    """Returns the major version of the CUDA that it was built with, from the cuBLASLt that it loads."""
    for name in needed_names(library):
        match = re.match(r"libcublasLt\.so\.(\d+)$", name)
        if match and match.group(1) in NVIDIA:
            return match.group(1)
    sys.exit(f"{library} needs no libcublasLt of CUDA {' or '.join(NVIDIA)}, by which NVIDIA's wheels are chosen")


def make_cuda(build, folder, target, engine):
    """Makes the CUDA backend's wheel. `engine` is the folder with the other wheel's files, which include the libraries
    that both wheels need."""
    package = folder / CUDA_NAME
    wheel.copy_package(ROOT / "python" / CUDA_NAME, package)
    source = build / CUDA_LIBRARY
    shared = engine / NAME / "lib"
    lacking = [name for name in pack.needed_libraries(source) if not (shared / own_name(name)).exists()]
    if lacking:
        sys.exit(f"{CUDA_LIBRARY} needs {', '.join(lacking)}, which {NAME} does not bring")
    library = package / "lib" / CUDA_LIBRARY
    pack.copy_stripped(source, library)
    major = cuda_major(library)
    wheels, cudnn, folders = NVIDIA[major]
    # Uses RUNPATH, so that LD_LIBRARY_PATH takes precedence.
    places = [f"$ORIGIN/../../{NAME}/lib", *(f"$ORIGIN/../../nvidia/{name}/lib" for name in folders), TOOLKIT]
    patch(library, *(["--replace-needed", name, own_name(name)] for name in needed_names(library)
                     if (shared / own_name(name)).exists()), ["--set-rpath", ":".join(places)])
    newer = int(major) + 1
    info = wheel.write_info(
        folder, CUDA_NAME, version(), "The CUDA backend of tessera-engine",
        [f"Requires-Dist: {NAME.replace('_', '-')} (=={version()})",
         *(f"Requires-Dist: {name} (>={major},<{newer})" for name in wheels),
         "Provides-Extra: cudnn", f'Requires-Dist: {cudnn} (>=9.7,<10) ; extra == "cudnn"'], CUDA_DESCRIPTION)
    write_licenses(build, [], info)
    return wheel.write_wheel(folder, info, target)


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    build, target = pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2])
    target.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as engine, tempfile.TemporaryDirectory() as cuda:
        made = {NAME: make_engine(build, pathlib.Path(engine), target)}
        if (build / CUDA_LIBRARY).exists():
            made[CUDA_NAME] = make_cuda(build, pathlib.Path(cuda), target, pathlib.Path(engine))
    for name, path in made.items():
        size = path.stat().st_size / 1e6
        print(f"{path}: {size:.1f} MB")
        if size > LIMIT_MB[name]:
            sys.exit(f"{path.name} is larger than the {LIMIT_MB[name]} MB that it may be")


if __name__ == "__main__":
    main()
