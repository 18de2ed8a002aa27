#!/usr/bin/env python3
"""Runs the tests of a configured and built folder: tools/run_tests.py [--known-skips FILE] [--slow-cases FILE [--quick]]
BUILD_FOLDER [CTEST_ARGUMENT …]

Prints the output of failing programs as they fail, then skipped and failed cases with their reasons. The last line is
"N passed, N failed". It counts each GoogleTest case, the cases that a script reports in a line of this form, and one case
for any other script. A program that crashes, times out or fails without a failed case counts as one failed case; so does a
program that runs no case. The exit status is 0 only if a case passed and none failed.

With --known-skips, a skipped case that FILE does not list counts as failed. A line of FILE is a pattern for "program: case:
reason", in which * stands for any text, then " # " and the reason why such a case may be skipped. A script prints a line
"skipped: CASE REASON" for each case that it skips.

A line of --slow-cases' FILE is "PROGRAM: PATTERN # SECONDS", with GoogleTest's patterns; the pattern * stands for the whole
program, which may be a script. --quick leaves these cases out. Without it all cases run. A line counts as failed if it
matches no case of its program although the program ran, or if it matches a case of another program."""

import argparse
import fnmatch
import os
import pathlib
import re
import shutil
import subprocess
import sys
import xml.etree.ElementTree as ElementTree

JOBS = 2
QUICK_JOBS = 3  # keeps two cores busy, because the quick cases spend a third of their time waiting
MOST_OUTPUT = 16 << 20  # bytes of one program


class Tally:
    def __init__(self):
        self.passed = 0
        self.failed = []  # "case: reason"
        self.skipped = []


def last_line(text):
    lines = (text or "").strip().splitlines()
    return lines[-1] if lines else "no reason given"


def count_googletest(program, report, succeeded, tally):
    """Counts the cases of one program from its report."""
    failed_before = len(tally.failed)
    ran = 0
    for case in ElementTree.parse(report).getroot().iter("testcase"):
        name = f"{program}: {case.get('classname')}.{case.get('name')}"
        failure = case.find("failure")
        skip = case.find("skipped")
        if failure is not None:
            reason = (failure.get("message") or "").replace("\n", "\n    ")
            tally.failed.append(f"{name}: {reason}")
        elif skip is not None:
            tally.skipped.append(f"{name}: {last_line(skip.get('message'))}")
        elif case.get("status") == "notrun":
            tally.skipped.append(f"{name}: disabled in the source")
        else:
            tally.passed += 1
        ran += 1
    if not succeeded and len(tally.failed) == failed_before:
        tally.failed.append(f"{program}: failed although every case passed (its output is above)")
    if succeeded and ran == 0:
        tally.failed.append(f"{program}: holds no test")


def count_script(name, output, succeeded, tally):
    tally.skipped += [f"{name}: {case}" for case in re.findall(r"^skipped: (.+)$", output, re.MULTILINE)]
    counts = re.findall(r"^(\d+) passed, (\d+) failed$", output, re.MULTILINE)
    passed, failed = (int(n) for n in counts[-1]) if counts else (int(succeeded), int(not succeeded))
    tally.passed += passed
    tally.failed += [f"{name}: {last_line(output)}"] * failed
    if not succeeded and failed == 0:
        tally.failed.append(f"{name}: {last_line(output)}")
    if succeeded and passed + failed == 0:
        tally.failed.append(f"{name}: ran nothing")


def count_program(case, reports, tally):
    name = case.get("name")
    status = case.get("status")
    output = case.findtext("system-out") or ""
    report = reports / f"{name}.xml"
    skip = case.find("skipped")
    if skip is not None and "SKIP_RETURN_CODE" in (skip.get("message") or ""):
        tally.skipped.append(f"{name}: {last_line(output)}")
    elif status not in ("run", "fail"):
        tally.failed.append(f"{name}: did not run ({status})")
    elif report.exists():
        try:
            count_googletest(name, report, status == "run", tally)
        except ElementTree.ParseError as error:
            tally.failed.append(f"{name}: its report is cut off: {error}")
    elif name.endswith("_script"):
        count_script(name, output, status == "run", tally)
    else:
        failure = case.find("failure")
        reason = failure.get("message") if failure is not None else "ended without a report"
        tally.failed.append(f"{name}: crashed, timed out or could not start: {reason or last_line(output)}")


def read_known_skips(file):
    """Returns the patterns of a list of known skips; ends the program at a line without a reason."""
    patterns = []
    for number, line in enumerate(file.read_text().splitlines(), 1):
        if not line or line.startswith("#"):
            continue
        pattern, _, reason = line.partition(" # ")
        if not reason.strip():
            sys.exit(f"{file}:{number}: no reason; a line is PATTERN # REASON")
        patterns.append(pattern.strip())
    return patterns


def fail_unknown_skips(patterns, tally):
    """Moves skipped cases that match no pattern to the failed ones."""
    known = [line for line in tally.skipped if any(fnmatch.fnmatchcase(line, pattern) for pattern in patterns)]
    tally.failed += [f"{line} (skipped, and not on the list of known skips)" for line in tally.skipped if line not in known]
    tally.skipped = known


def read_slow_cases(file):
    """Returns a list of slow cases as (program, pattern); ends the program at a line of another form."""
    slow = []
    for number, line in enumerate(file.read_text().splitlines(), 1):
        if not line or line.startswith("#"):
            continue
        match = re.fullmatch(r"(\w+): ([^\s:-]+) # [\d.]+", line)
        if match is None:
            sys.exit(f"{file}:{number}: {line!r} is not PROGRAM: PATTERN # SECONDS")
        slow.append(match.groups())
    return slow


def leave_out(slow, command, environment):
    """Leaves slow cases out of ctest's command: whole programs by name, cases by a filter that every program reads."""
    programs = [program for program, pattern in slow if pattern == "*"]
    patterns = [pattern for _, pattern in slow if pattern != "*"]
    if programs:
        command += ["-E", f"^({'|'.join(programs)})$"]
    if patterns:
        environment["GTEST_FILTER"] = "-" + ":".join(patterns)


def cases_of(report):
    """Returns the names of a program's cases by its report; [] without a readable one."""
    try:
        return [f"{case.get('classname')}.{case.get('name')}"
                for case in ElementTree.parse(report).getroot().iter("testcase")]
    except (OSError, ElementTree.ParseError):
        return []


def fail_stale_slow_cases(slow, ran, everything, tally):
    """Counts as failed the lines that match no case of their program, or a case of another program. `ran`: program →
    names of its cases; `everything`: whether every program ran."""
    for program, pattern in slow:
        if program not in ran:
            if everything:
                tally.failed.append(f"{program}: on the list of slow cases, but there is no such program")
            continue
        if pattern == "*":
            continue
        matching = {name for name, cases in ran.items() if fnmatch.filter(cases, pattern)}
        if program not in matching:
            tally.failed.append(f"{program}: {pattern}: on the list of slow cases, but no case has such a name")
        tally.failed += [f"{program}: {pattern}: on the list of slow cases, but {other} has such a case too"
                         for other in sorted(matching - {program})]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False)
    parser.add_argument("--known-skips", type=pathlib.Path, metavar="FILE")
    parser.add_argument("--slow-cases", type=pathlib.Path, metavar="FILE")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("build", type=pathlib.Path)
    arguments, ctest_arguments = parser.parse_known_args()
    known_skips = read_known_skips(arguments.known_skips) if arguments.known_skips else None
    if arguments.quick and not arguments.slow_cases:
        parser.error("--quick leaves out what --slow-cases lists, and no list is given")
    slow = read_slow_cases(arguments.slow_cases) if arguments.slow_cases else []
    build = arguments.build.resolve()
    reports = build / "test-results"
    shutil.rmtree(reports, ignore_errors=True)
    reports.mkdir(parents=True)
    summary = reports / "ctest.xml"
    environment = dict(os.environ)
    # Programs run at the same time, so waiting worker threads must not occupy a core.
    environment.setdefault("OMP_WAIT_POLICY", "passive")
    # By default ctest cuts a passing program's output to 1 KiB, so that the counts and the skipped cases are lost.
    command = ["ctest", "--test-dir", str(build), "-j", str(QUICK_JOBS if arguments.quick else JOBS), "--output-on-failure",
               "--test-output-size-passed", str(MOST_OUTPUT), "--no-tests=error", "--output-junit", str(summary)]
    command += ctest_arguments
    if arguments.quick:
        leave_out(slow, command, environment)
        print(f"Left out: {len(slow)} groups of slow cases, listed in {arguments.slow_cases}", flush=True)
    ctest_status = subprocess.run(command, env=environment, stdin=subprocess.DEVNULL, check=False).returncode

    tally = Tally()
    ran = {}
    if summary.exists():
        for case in ElementTree.parse(summary).getroot().iter("testcase"):
            count_program(case, reports, tally)
            ran[case.get("name")] = cases_of(reports / f"{case.get('name')}.xml")
    if not arguments.quick:
        fail_stale_slow_cases(slow, ran, not ctest_arguments, tally)
    if known_skips is not None:
        fail_unknown_skips(known_skips, tally)
    if ctest_status != 0 and not tally.failed:
        tally.failed.append(f"ctest ended with status {ctest_status}")
    if tally.passed == 0 and not tally.failed:
        tally.failed.append("no test ran")

    for title, lines in (("skipped", tally.skipped), ("failed", tally.failed)):
        if lines:
            print(f"\n{len(lines)} {title}:")
            for line in lines:
                print(f"  {line}")
    print(f"\n{tally.passed} passed, {len(tally.failed)} failed", flush=True)
    sys.exit(1 if tally.failed else 0)


if __name__ == "__main__":
    main()
