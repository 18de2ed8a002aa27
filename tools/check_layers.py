#!/usr/bin/env python3
"""Checks the folders of src/ as layers, or shows their rooms: tools/check_layers.py [--rooms] [REPOSITORY]

- A file includes headers of its own layer and of lower ones only.
- The DEPS of a layer's CMakeLists.txt list all layers that its sources include.
- No source is longer than 400 lines, tests and scripts included.
- No folder has more than 60 sources, tests included.
- Rooms of a layer do not include each other in a cycle.
Prints each fault as "file:line: what", then "N passed, N failed" over the files looked at.

The folders within a layer are its rooms; a folder within a room is a part of it. --rooms checks nothing. For each layer
with rooms it prints a table of them: files and lines, tests included, and the other rooms that their sources include,
tests left out. "." is the layer's own folder."""

import argparse
import pathlib
import re
import sys

# The layers, the highest one first.
LAYERS = ["cli", "load", "capi", "options", "server", "engine", "plugin", "runner", "piecewise", "compile", "model", "ops", "comm", "ir", "device", "text", "image", "net", "base"]
MAX_LINES = 400
MAX_SOURCES = 60
# The layers in which no room may include files that lie directly in the layer's own folder, because these files include
# rooms. In the other layers such files also hold code that rooms share, so the check for cycles leaves them out.
OWN_FOLDER_ON_TOP = {"ops"}
CODE = {".h", ".cpp", ".cu", ".cuh"}
# The folders beside src/ in which only line counts are checked.
FOLDERS = ["tests", "fuzz", "examples", "plugins", "tools"]
SCRIPTS = {".py", ".sh"}

HEADER = re.compile(r'^\s*#\s*include\s+"tessera/([^"]+)"', re.MULTILINE)
INCLUDE = re.compile(r'^\s*#\s*include\s+"tessera/([^/"]+)/[^"]*"')
LAYER_CALL = re.compile(r"tessera_layer\s*\(\s*(\w+)(.*?)\)", re.DOTALL)
KEYWORDS = {"SRCS", "ALONE", "TESTS", "ROOMS", "DEPS", "PRIVATE_DEPS"}


def read_deps(cmake_file):
    """Returns the DEPS of the folder's tessera_layer(…) calls, or None if there is no such call yet."""
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


def crowded_folders(layer):
    """Yields the folders of a layer that have too many sources, as (folder, words)."""
    for folder in [layer, *(p for p in sorted(layer.rglob("*")) if p.is_dir())]:
        count = sum(p.suffix in CODE for p in folder.iterdir())
        if count > MAX_SOURCES:
            yield folder, f"{count} sources: give some of them a room (at most {MAX_SOURCES})"


def rooms_of(layer):
    """Returns {room: (files, lines, rooms of the layer that it includes)} of a layer's folder, its own folder first."""
    found = {}
    for path in sorted(p for p in layer.rglob("*") if p.suffix in CODE):
        room = path.parent.relative_to(layer).as_posix()
        files, lines, included = found.get(room, (0, 0, set()))
        text = path.read_text()
        if not is_test(path) and not path.stem.endswith("_test_util"):
            headers = [pathlib.PurePosixPath(name) for name in HEADER.findall(text)]
            included |= {header.parent.relative_to(layer.name).as_posix() for header in headers
                         if header.parts[0] == layer.name}
        found[room] = (files + 1, lines + len(text.splitlines()), included - {room})
    return dict(sorted(found.items()))


def parts_of(rooms):
    """Returns {room: rooms that it includes}, with the folders within a room joined to it."""
    parts = {}
    for room, (_, _, included) in rooms.items():
        top = room.split("/")[0]
        parts[top] = parts.get(top, set()) | ({name.split("/")[0] for name in included} - {top})
    return parts


def way_between(parts, start, end):
    """Returns the shortest list of rooms from start to end in which each includes the next, or None."""
    ways, seen = [[start]], {start}
    for way in ways:
        if way[-1] == end:
            return way
        for room in sorted(parts.get(way[-1], set()) - seen):
            seen.add(room)
            ways.append([*way, room])
    return None


def cycles_of(layer):
    """Yields a description of each cycle in which a room includes itself through others."""
    parts = parts_of(rooms_of(layer))
    if layer.name not in OWN_FOLDER_ON_TOP:
        parts = {room: included - {"."} for room, included in parts.items() if room != "."}
    for room in sorted(parts):
        ways = [way for other in sorted(parts[room]) if (way := way_between(parts, other, room))]
        if ways:
            yield f"room {room} includes itself: {' → '.join([room, *min(ways, key=len)])}"


def print_rooms(root):
    for name in LAYERS:
        rooms = rooms_of(root / "src" / name)
        if len(rooms) < 2:
            continue
        print(f"{name}: {sum(files for files, _, _ in rooms.values())} files, "
              f"{sum(lines for _, lines, _ in rooms.values())} lines")
        for room, (files, lines, included) in rooms.items():
            print(f"  {room:14}{files:4}{lines:7}  {' '.join(sorted(included))}".rstrip())


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rooms", action="store_true")
    parser.add_argument("repository", nargs="?", type=pathlib.Path, default=pathlib.Path(__file__).parent.parent)
    args = parser.parse_args()
    root = args.repository.resolve()
    if args.rooms:
        print_rooms(root)
        return
    passed = failed = 0
    for folder in sorted(p for p in (root / "src").iterdir() if p.is_dir()):
        layer = folder.name
        if layer not in LAYERS:
            print(f"src/{layer}: no layer of this name; it belongs in LAYERS of tools/check_layers.py, in its place")
            failed += 1
            continue
        for crowded, words in crowded_folders(folder):
            print(f"{crowded.relative_to(root)}: {words}")
            failed += 1
        for words in cycles_of(folder):
            print(f"src/{layer}: {words}")
            failed += 1
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
