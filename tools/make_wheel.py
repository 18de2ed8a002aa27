#!/usr/bin/env python3
"""Makes the Python wheel of a built Tessera: tools/make_wheel.py BUILD_FOLDER FOLDER

FOLDER gets tessera_engine-VERSION-py3-none-manylinux_2_36_x86_64.whl: the package of python/, libtessera.so, the program and
every library that they need beside glibc and the compiler's run-time library, with the licence of each. It is written here
from the wheel's format (packaging.python.org, "Binary distribution format") because nothing is compiled for it: the package
calls the library by ctypes and serves every Python 3. Fails where it is larger than LIMIT_MB."""

import base64
import hashlib
import pathlib
import re
import subprocess
import sys
import tempfile
import zipfile

import licenses
import pack

NAME = "tessera_engine"
TAG = "py3-none-manylinux_2_36_x86_64"
LIMIT_MB = 25  # what it may be; close above what it is, so that a library that comes in unnoticed shows
ROOT = pathlib.Path(__file__).resolve().parent.parent
# The same bytes from the same build.
DATE = (2020, 1, 1, 0, 0, 0)

METADATA = """Metadata-Version: 2.1
Name: tessera-engine
Version: {version}
Summary: LLM inference engine built around piecewise CUDA graphs
License: Apache-2.0
Requires-Python: >=3.9
Classifier: Operating System :: POSIX :: Linux
Classifier: Programming Language :: Python :: 3 :: Only
Classifier: Typing :: Typed
Description-Content-Type: text/markdown

{description}"""


def version():
    return re.search(r"^project\(tessera VERSION ([\d.]+)", (ROOT / "CMakeLists.txt").read_text(), re.MULTILINE).group(1)


def stage(build, folder):
    """Lays out what the wheel has of the package."""
    package = folder / NAME
    for source in sorted((ROOT / "python" / NAME).rglob("*")):
        if source.suffix == ".py" or source.name == "py.typed":
            target = package / source.relative_to(ROOT / "python" / NAME)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(source.read_bytes())
    library = build / "libtessera.so.1"
    pack.copy_stripped(library, package / "lib" / library.name)
    pack.copy_stripped(build / "launcher" / "tessera", package / "bin" / "tessera")
    libraries = pack.copy_libraries([library], package / "lib")
    rename_libraries(package / "lib", library.name)
    return libraries


def rename_libraries(folder, ours):
    """Gives each library but `ours` a name that nobody else in a process loads: two of one name are one to the loader, so
    that Python's own ssl would get our libcrypto, and the other way round."""
    files = sorted(folder.iterdir())
    names = {file.name: file.name.replace(".so", "-tessera.so", 1) for file in files if file.name != ours}
    for file in files:
        needed = subprocess.run(["patchelf", "--print-needed", file], check=True, capture_output=True, text=True).stdout.split()
        edits = [["--replace-needed", name, names[name]] for name in needed if name in names]
        if file.name != ours:
            edits.append(["--set-soname", names[file.name]])
        for edit in edits:  # one by one: patchelf 0.14 mixes up the names of versions where it makes several
            subprocess.run(["patchelf", *edit, file], check=True)
        file.rename(folder / names.get(file.name, file.name))


def write_info(build, libraries, folder):
    info = folder / f"{NAME}-{version()}.dist-info"
    info.mkdir()
    description = (ROOT / "docs" / "python.md").read_text()
    (info / "METADATA").write_text(METADATA.format(version=version(), description=description))
    (info / "WHEEL").write_text(f"Wheel-Version: 1.0\nGenerator: tools/make_wheel.py\nRoot-Is-Purelib: false\nTag: {TAG}\n")
    (info / "entry_points.txt").write_text(f"[console_scripts]\ntessera = {NAME}._program:main\n")
    licenses.collect(build, libraries, info / "licenses", with_tests=False)
    (info / "licenses" / "LICENSE").write_bytes((ROOT / "LICENSE").read_bytes())
    return info


def digest(data):
    return "sha256=" + base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()


def write_wheel(folder, info, path):
    record = []
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as wheel:
        def add(name, data, mode):
            entry = zipfile.ZipInfo(name, DATE)
            entry.external_attr = (0o100000 | mode) << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            wheel.writestr(entry, data, compresslevel=9)

        for file in sorted(path for path in folder.rglob("*") if path.is_file()):
            name, data = file.relative_to(folder).as_posix(), file.read_bytes()
            add(name, data, 0o755 if "/bin/" in name else 0o644)
            record.append(f"{name},{digest(data)},{len(data)}")
        name = f"{info.name}/RECORD"
        add(name, "\n".join([*record, f"{name},,"]).encode() + b"\n", 0o644)


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    build, target = pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2])
    target.mkdir(parents=True, exist_ok=True)
    path = target / f"{NAME}-{version()}-{TAG}.whl"
    with tempfile.TemporaryDirectory() as scratch:
        folder = pathlib.Path(scratch)
        info = write_info(build, stage(build, folder), folder)
        write_wheel(folder, info, path)
    size = path.stat().st_size / 1e6
    print(f"{path}: {size:.1f} MB")
    if size > LIMIT_MB:
        sys.exit(f"{path.name} is larger than the {LIMIT_MB} MB that it may be")


if __name__ == "__main__":
    main()
