"""Collects the licences of the contents of an archive made by tools/pack.py."""

import pathlib
import re
import shutil
import subprocess
import sys

# Debian packages whose headers are compiled in. Linked packages are found by their libraries.
COMPILED_IN = ["libboost1.81-dev", "libcli11-dev", "nlohmann-json3-dev"]
COMPILED_INTO_TESTS = ["libgtest-dev", "libgmock-dev"]
# The licence files of the components that tools/fetch_pypi.sh puts into third_party/. If a header is listed, its first
# comment is the licence.
FETCHED = {
    "xgrammar": ["xgrammar/LICENSE", "xgrammar/NOTICE"],
    "dlpack": ["xgrammar/3rdparty/dlpack/LICENSE"],
    "picojson": ["xgrammar/3rdparty/picojson/picojson.h"],
    "flashinfer": ["flashinfer/LICENSE"],
    "cudnn-frontend": ["cudnn_frontend/LICENSE.txt", "cudnn_frontend/LICENSE-MIT.txt", "cudnn_frontend/NOTICE"],
}
DOC = pathlib.Path("/usr/share/doc")
COMMON = pathlib.Path("/usr/share/common-licenses")


def owner(library):
    """Returns the Debian package of a file. dpkg may list the file under its path without /usr."""
    for path in (library, pathlib.Path("/") / library.relative_to("/usr")) if library.is_relative_to("/usr") else (library,):
        done = subprocess.run(["dpkg-query", "--search", path], capture_output=True, text=True, check=False)
        if done.returncode == 0:
            return done.stdout.split(":")[0]
    sys.exit(f"{library} belongs to no Debian package, so that its licence is not known")


def copy_package(package, folder):
    source = DOC / package / "copyright"
    if not source.exists():
        sys.exit(f"{source} is missing: the licence of {package} cannot be packed (is it installed?)")
    (folder / package).mkdir(parents=True, exist_ok=True)
    shutil.copy(source, folder / package / "copyright")
    return set(re.findall(rf"{COMMON}/([\w.-]*\w)", source.read_text(errors="replace")))


def copy_fetched(third_party, name, files, folder):
    (folder / name).mkdir(parents=True)
    for file in files:
        source = third_party / file
        if source.suffix == ".h":
            comment = re.match(r"\s*/\*.*?\*/", source.read_text(), re.DOTALL)
            if comment is None or "Redistribution" not in comment.group():
                sys.exit(f"{source} does not begin with a licence")
            (folder / name / "LICENSE").write_text(comment.group().strip() + "\n")
        else:
            shutil.copy(source, folder / name / source.name)


def collect(build, libraries, folder, with_tests):
    """Fills `folder` with one folder for each component: the packages of `libraries` (paths), the components that are
    compiled in, and those in BUILD/third_party. Licences that Debian's files refer to go to common/. Ends the program if
    a licence is missing."""
    packages = {owner(library) for library in libraries} | set(COMPILED_IN) | set(COMPILED_INTO_TESTS if with_tests else [])
    referred = set()
    for package in sorted(packages):
        referred |= copy_package(package, folder)
    (folder / "common").mkdir(parents=True, exist_ok=True)
    for name in sorted(referred):
        shutil.copy(COMMON / name, folder / "common" / name)
    third_party = build / "third_party"
    for name, files in FETCHED.items():
        if (third_party / files[0].split("/")[0]).exists():
            copy_fetched(third_party, name, files, folder)
