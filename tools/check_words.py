#!/usr/bin/env python3
"""Checks the words of lines that a change adds: tools/check_words.py [REVISION]

- A comment must not begin with one of the words in OPENINGS. A comment behind code must not begin with one of TRAILING
  either.
- The name of a test has at most nine words, counted by capitals and underscores.
Only lines that differ from the merge base with REVISION are looked at. "auto", the default, is origin/main, or the
commit before this one if this is origin/main. Without that much history it says so and succeeds.
Prints each fault as "file:line: what"."""

import pathlib
import re
import subprocess
import sys

OPENINGS = ["Of", "That", "Those", "Such", "The same", "As", "None", "Whoever"]
TRAILING = ["of", "that", "those", "such"]
MOST_WORDS = 9

SLASHES = {".h", ".cpp", ".cu", ".cuh", ".c", ".js"}
HASHES = {".py", ".sh", ".cmake"}
OPENING = re.compile(r"(?:%s)\b" % "|".join(OPENINGS))
OPENING_BEHIND_CODE = re.compile(r"(?:%s)\b" % "|".join(OPENINGS + TRAILING))
# A comment on its own line or behind code; a "//" in a string usually has no blank before it ("http://").
COMMENTS = {"//": re.compile(r"(?:^|\s)//[/!<]*\s+(.*)"), "#": re.compile(r"(?:^|\s{2})#\s+(.*)")}
CPP_TEST = re.compile(r"^\s*(?:TYPED_)?TEST(?:_[FP])?\s*\(\s*\w+\s*,\s*(\w+)")
PYTHON_TEST = re.compile(r"^\s*def (?:test_)(\w+)\s*\(")
HUNK = re.compile(r"^@@ -\S+ \+(\d+)(?:,\d+)? @@")


def mark_of(path):
    """Returns the mark that begins a comment in the file, or None for an unknown type."""
    suffix = pathlib.PurePath(path).suffix
    return "//" if suffix in SLASHES else "#" if suffix in HASHES else None


def words_of(name):
    """Returns the words of a test's name: "ANamedCall_of_2Bytes" has six."""
    return re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+", name)


def comment_of(line, mark):
    match = COMMENTS[mark].search(line)
    return match.group(1) if match else None


def faults_of(path, line, before):
    """Yields the faults of a line, given the line above it."""
    mark = mark_of(path)
    if mark is None:
        return
    comment = comment_of(line, mark)
    # If the line above is a comment too, this comment begins in the middle of a sentence, unless that line ended a
    # sentence.
    above = comment_of(before, mark) if before.lstrip().startswith(mark) else None
    begins = above is None or above.rstrip().endswith((".", ":", "?")) or not above.strip()
    opening = OPENING if line.lstrip().startswith(mark) else OPENING_BEHIND_CODE
    if comment and begins and (match := opening.match(comment)):
        yield f'a comment begins with "{match.group(0)}": begin with what it is about'
    test = (CPP_TEST if mark == "//" else PYTHON_TEST).match(line)
    if test and len(words := words_of(test.group(1))) > MOST_WORDS:
        yield f"the test's name {test.group(1)} has {len(words)} words; at most {MOST_WORDS} are accepted"


def added_lines(diff):
    """Yields the lines that a diff without context adds, as (file, number)."""
    path = number = None
    for line in diff.splitlines():
        if line.startswith("+++ "):
            path = line[6:] if line.startswith("+++ b/") else None
        elif hunk := HUNK.match(line):
            number = int(hunk.group(1))
        elif line.startswith("+") and path is not None:
            yield path, number
            number += 1


def git(root, *arguments):
    """Returns git's output, or None if it fails."""
    done = subprocess.run(["git", "-C", root, *arguments], capture_output=True, text=True, errors="replace", check=False)
    return done.stdout if done.returncode == 0 else None


def base_of(root, revision):
    """Returns the commit to compare with, or None."""
    if revision != "auto":
        base = git(root, "merge-base", revision, "HEAD")
    else:
        base = git(root, "merge-base", "origin/main", "HEAD")
        if base is None or base == git(root, "rev-parse", "HEAD"):
            base = git(root, "rev-parse", "--verify", "--quiet", "HEAD~1")
    return base.strip() if base else None


def main():
    revision = sys.argv[1] if len(sys.argv) > 1 else "auto"
    root = pathlib.Path(sys.argv[2] if len(sys.argv) > 2 else pathlib.Path(__file__).parent.parent)
    base = base_of(root, revision)
    if base is None:
        print(f'words are not checked: git has no history back to "{revision}"')
        return
    diff = git(root, "diff", "--unified=0", "--no-color", "--no-ext-diff", "--diff-filter=d", base, "--")
    texts, looked_at, failed = {}, 0, 0
    for path, number in added_lines(diff or ""):
        if mark_of(path) is None:
            continue
        if path not in texts:
            texts[path] = (root / path).read_text(errors="replace").splitlines()
        lines = texts[path]
        looked_at += 1
        for fault in faults_of(path, lines[number - 1], lines[number - 2] if number > 1 else ""):
            print(f"{path}:{number}: {fault}")
            failed += 1
    print(f"{looked_at} lines looked at, {failed} faults")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
