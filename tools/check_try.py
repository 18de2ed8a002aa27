#!/usr/bin/env python3
"""Checks the places of TRY: tools/check_try.py [REPOSITORY]

g++ 12 has a defect: if a TRY returns from within a braced initialiser, a lambda's captures or `new X(…)`, it does not
destroy the members or captures that are already built, and does not free the allocated memory. Therefore a TRY within
braces or captures may only be in the first member, and never within `new X(…)`.
Prints each fault as "file:line: what", then "N passed, N failed" over the files looked at."""

import argparse
import pathlib
import re
import sys

FOLDERS = ["src", "tests", "plugins", "fuzz", "examples"]
CODE = {".h", ".cpp", ".cu", ".cuh"}

# Text that is not code: comments, raw strings, strings, characters (not the ' within a number), preprocessor lines.
NO_CODE = re.compile(r'//[^\n]*|/\*.*?\*/|R"(\w*)\(.*?\)\1"|"(?:\\.|[^"\\\n])*"|(?<!\w)\'(?:\\.|[^\'\\\n])*\'|'
                     r'^[ \t]*#(?:\\\n|[^\n])*', re.DOTALL | re.MULTILINE)
TOKEN = re.compile(r"\bTRY\(|\bnew [\w:<>, ]+[({]|[][(){},;]")
ADVICE = "give the TRY a statement of its own before"
FAULTS = {"{": f"a TRY behind another member of these braces, which leaks if the TRY returns: {ADVICE} them",
          "[": f"a TRY behind another capture, which leaks if the TRY returns: {ADVICE} the lambda",
          "new": f"a TRY within `new`, whose memory leaks if the TRY returns: {ADVICE} it"}


class Bracket:
    """An open bracket. Its kind is its character, or "new". A bracket that contains statements is a block."""

    def __init__(self, kind):
        self.kind, self.comma, self.block = kind, False, False


def check(text):
    """Yields the faults of a source as (line number, words)."""
    code = NO_CODE.sub(lambda match: "\n" * match.group().count("\n"), text)
    open_now, found = [], []
    for match in TOKEN.finditer(code):
        token = match.group()
        if token == "TRY(":
            # A brace opens a block if there is a ";" between it and its closing brace, so this is known only at the
            # closing brace.
            found.append((match.start(), [(bracket, bracket.comma) for bracket in reversed(open_now)]))
        if token[-1] in "({[":
            open_now.append(Bracket("new" if token.startswith("new") else token[-1]))
        elif token in ")}]":
            open_now = open_now[:-1]
        elif open_now:
            open_now[-1].comma |= token == ","
            open_now[-1].block |= token == ";" and open_now[-1].kind == "{"
    for start, around in found:
        for bracket, comma in around:
            if bracket.block:
                break
            if bracket.kind == "new" or (comma and bracket.kind in FAULTS):
                yield code.count("\n", 0, start) + 1, FAULTS[bracket.kind]
                break


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("repository", nargs="?", type=pathlib.Path, default=pathlib.Path(__file__).parent.parent)
    root = parser.parse_args().repository.resolve()
    passed = failed = 0
    for path in sorted(p for folder in FOLDERS for p in (root / folder).rglob("*") if p.suffix in CODE):
        faults = list(check(path.read_text()))
        for number, words in faults:
            print(f"{path.relative_to(root)}:{number}: {words}")
        failed += bool(faults)
        passed += not faults
    print(f"{passed} passed, {failed} failed")
    sys.exit(0 if passed > 0 and failed == 0 else 1)


if __name__ == "__main__":
    main()
