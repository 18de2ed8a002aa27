#!/usr/bin/env python3
"""Checks the folders of src/ as layers: tools/check_layers.py [REPOSITORY]

- A file includes headers of its own layer and of lower ones only.
- What a layer's sources include stands in the DEPS of its CMakeLists.txt.
- No source is longer than 400 lines, tests and scripts included.
Prints each fault as "file:line: what", then "N passed, N failed" over the files looked at."""

import pathlib
import re
import sys

# Highest first.
LAYERS = ["cli", "load", "capi", "options", "server", "engine", "plugin", "runner", "piecewise", "compile", "model", "ops", "ir", "device", "text", "image", "net", "base"]
MAX_LINES = 400
CODE = {".h", ".cpp", ".cu", ".cuh"}
# Folders beside src/ in which only line counts are checked.
FOLDERS = ["tests", "fuzz", "examples", "plugins", "tools"]
SCRIPTS = {".py", ".sh"}

INCLUDE = re.compile(r'^\s*#\s*include\s+"tessera/([^/"]+)/[^"]*"')
LAYER_CALL = re.compile(r"tessera_layer\s*\(\s*(\w+)(.*?)\)", re.DOTALL)
KEYWORDS = {"SRCS", "ALONE", "TESTS", "ROOMS", "DEPS", "PRIVATE_DEPS"}


def read_deps(cmake_file):
    """Returns the DEPS of the folder's tessera_layer(…) calls, or None where there is no such call yet."""
    text = re.sub(r"#.*", "", cmake_file.read_text()) if cmake_file.exists() else ""
    calls = LAYER_CALL.findall(text)
    if not calls:
        return None
    deps, keyword = set(), None
    for word in " ".join(arguments for _, arguments in calls).split():
        if word in KEYWORDS:
            keyword = word
        elif keyword == "DEPS":
            deps.add(word)
    return deps


def is_test(path):
    return path.stem.endswith("_test") or "testing" in path.parts


def check_includes(path, layer, deps, lines):
    """Yields the faults of one file as (line number, words)."""
    for number, line in enumerate(lines, 1):
        match = INCLUDE.match(line)
        if not match or match.group(1) == layer:
            continue
        included = match.group(1)
        if included not in LAYERS:
            yield number, f"'{included}' is no layer"
        elif LAYERS.index(included) < LAYERS.index(layer):
            yield number, f"layer {layer} includes {included}, which is above it"
        elif deps is not None and included not in deps and not is_test(path):
            yield number, f"layer {layer} includes {included}: add it to DEPS in src/{layer}/CMakeLists.txt"


def too_long(lines):
    if len(lines) > MAX_LINES:
        yield MAX_LINES, f"{len(lines)} lines: split it (at most {MAX_LINES})"


def main():
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parent.parent).resolve()
    passed = failed = 0
    for folder in sorted(p for p in (root / "src").iterdir() if p.is_dir()):
        layer = folder.name
        if layer not in LAYERS:
            print(f"src/{layer}: no layer of this name; it belongs in LAYERS of tools/check_layers.py, in its place")
            failed += 1
            continue
        deps = read_deps(folder / "CMakeLists.txt")
        for path in sorted(p for p in folder.rglob("*") if p.suffix in CODE):
            lines = path.read_text().splitlines()
            faults = [*check_includes(path, layer, deps, lines), *too_long(lines)]
            for number, words in faults:
                print(f"{path.relative_to(root)}:{number}: {words}")
            failed += bool(faults)
            passed += not faults
    for path in sorted(p for folder in FOLDERS for p in (root / folder).rglob("*") if p.suffix in CODE | SCRIPTS):
        faults = list(too_long(path.read_text().splitlines()))
        for number, words in faults:
            print(f"{path.relative_to(root)}:{number}: {words}")
        failed += bool(faults)
        passed += not faults
    print(f"{passed} passed, {failed} failed")
    sys.exit(0 if passed > 0 and failed == 0 else 1)


if __name__ == "__main__":
    main()
