#!/usr/bin/env python3
"""Makes an archive that runs on another Linux (glibc 2.36 or newer) without installing anything:

    tools/pack.py program BUILD_FOLDER ARCHIVE.tar.xz   the installed files, and the libraries that they need
  tools/pack.py tests BUILD_FOLDER ARCHIVE.tar.xz     the programs that tools/test_cuda.sh runs, with their data

Libraries are in the programs' folder or in lib/, where $ORIGIN finds them. licenses/ has the licence of each, and of the
components that are compiled in (tools/licenses.py). glibc, the compiler's run-time library and CUDA's own libraries are not
packed: they come from the system. A build without the CUDA backend gives archives for CPUs. Fails if the archive is larger
than LIMIT_MIB. With the name ARCHIVE.tar it is not compressed and may have any size."""

import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

import licenses

LIMIT_MIB = {"program": 50, "tests": 56}
# The compression window (64 MiB) holds several test programs of some 15 MiB, which share most of their code.
COMPRESS = "xz --lzma2=preset=6,dict=64MiB"
SYSTEM = re.compile(r"^(ld-linux.*|linux-vdso|lib(c|m|dl|rt|pthread|resolv|util|stdc\+\+|gcc_s|"
                    r"cublas\w*|cudart|cudnn\w*|cuda|nvrtc\S*))\.so")
TEST_DATA = ["tests/data/adapters", "tests/data/goldens", "tests/data/demo", "tests/data/text", "models/demo", "tools/test_cuda.sh"]
DOCUMENTS = ["README.md", "LICENSE", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md"]
ROOT = pathlib.Path(__file__).resolve().parent.parent


def needed_libraries(program):
    """Returns the paths of shared libraries that are neither the system's nor ours, by the name under which they are loaded."""
    listing = subprocess.run(["ldd", program], check=True, capture_output=True, text=True).stdout
    found = {}
    for line in listing.splitlines():
        match = re.match(r"\s*(\S+) => (\S+|not found)", line)
        if not match or SYSTEM.match(match.group(1)):
            continue
        if match.group(2) == "not found":
            sys.exit(f"{program} needs {match.group(1)}, which is not found")
        found[match.group(1)] = pathlib.Path(match.group(2)).resolve()
    return found


def copy_stripped(source, target):
    target.parent.mkdir(parents=True, exist_ok=True)
    subprocess.run(["strip", "--strip-unneeded", "-o", target, source], check=True)
    shutil.copymode(source, target)


def copy_libraries(programs, folder):
    """Returns the libraries' paths on this machine."""
    libraries = {}
    for program in programs:
        libraries |= needed_libraries(program)
    for name, path in libraries.items():
        copy_stripped(path, folder / name)
    return libraries.values()


def stage_program(build, stage):
    subprocess.run(["cmake", "--install", build, "--prefix", stage, "--strip"], check=True, stdout=subprocess.DEVNULL)
    shutil.rmtree(stage / "include")
    shutil.rmtree(stage / "lib" / "cmake")
    shutil.rmtree(stage / "lib" / "pkgconfig")
    for folder in ("share/doc", "share/tessera"):  # examples, a second model
        shutil.rmtree(stage / folder)
    shutil.rmtree(stage / "lib" / "tessera", ignore_errors=True)  # plugins need drivers; only OpenCL builds have them
    for name in ("libtessera.so*", "libtessera_cpp.so*"):  # for programs that link them; this archive has none
        for library in (stage / "lib").glob(name):
            library.unlink()
    shutil.copytree(ROOT / "models" / "demo", stage / "models" / "demo")
    return copy_libraries([stage / "bin" / "tessera", *(stage / "lib").glob("*.so")], stage / "lib")


def test_programs(build):
    for name in (build / "gpu_tests.txt").read_text().split():
        found = [path for path in build.rglob(name) if path.is_file()]
        if not found:
            sys.exit(f"{build} has no {name}: build all tests first")
        yield found[0]


def stage_tests(build, stage):
    programs = [build / "tessera", *test_programs(build)]
    if (build / "libtessera_cuda.so").exists():
        programs.append(build / "libtessera_cuda.so")
    for program in programs:
        copy_stripped(program, stage / "bin" / program.name)
    shutil.copy(build / "gpu_tests.txt", stage / "bin")
    for name in TEST_DATA:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, stage / name)
        else:
            (stage / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, stage / name)
    return copy_libraries(programs, stage / "bin")


def main():
    if len(sys.argv) != 4 or sys.argv[1] not in LIMIT_MIB:
        sys.exit(__doc__)
    kind, build, archive = sys.argv[1], pathlib.Path(sys.argv[2]).resolve(), pathlib.Path(sys.argv[3]).resolve()
    with tempfile.TemporaryDirectory() as scratch:
        stage = pathlib.Path(scratch) / archive.name.removesuffix(".xz").removesuffix(".tar")
        stage.mkdir()
        libraries = (stage_program if kind == "program" else stage_tests)(build, stage)
        for name in DOCUMENTS:
            shutil.copy(ROOT / name, stage / name)
        licenses.collect(build, libraries, stage / "licenses", with_tests=kind == "tests")
        compress = ["-I", COMPRESS] if archive.suffix == ".xz" else []
        subprocess.run(["tar", "-C", scratch, *compress, "-cf", archive, stage.name], check=True)
    size = archive.stat().st_size / 2**20
    device = "GPUs and CPUs" if (build / "libtessera_cuda.so").exists() else "CPUs, without the CUDA backend"
    print(f"{archive.name}: for {device}, {size:.1f} MiB")
    if archive.suffix == ".xz" and size > LIMIT_MIB[kind]:
        sys.exit(f"{archive.name} is larger than the {LIMIT_MIB[kind]} MiB that it may be")


if __name__ == "__main__":
    main()
