#!/usr/bin/env python3
"""Tests the page of `tessera serve` in headless Chromium: tests/page/page_test.py PROGRAM [CLASS …]

The cases are in the files *_cases.py beside this file. Each of these says what it catches. Without Chromium the test is
skipped. The last line is "N passed, N failed"."""

import pathlib
import sys
import time
import traceback

from browser import Browser, find_chromium
from chat_cases import ChatCases, KeyCases
from engine_cases import EngineCases
from image_cases import ImageCases
from kept_cases import KeptCases
from look_cases import LookCases
from markdown_cases import MarkdownCases
from settings_cases import SettingsCases
from turns_cases import TurnsCases

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1] / "server"))
from served import Served  # noqa: E402  (from the folder named above)

SKIPPED = 77
CASES = (ChatCases, TurnsCases, ImageCases, SettingsCases, MarkdownCases, KeptCases, EngineCases, LookCases, KeyCases)
# Costs are not measured, because on a busy machine they could make a prompt run eagerly.
FLAGS = ["--random-seed", "1", "--disable-cost-measurement", "--served-model-name", "demo"]


def run(cases, failed):
    passed = 0
    for name in vars(type(cases)):
        if not name.startswith("test_"):
            continue
        begin = time.monotonic()
        try:
            getattr(cases, name)()
            passed += 1
        except Exception:  # pylint: disable=broad-except  (any exception is the case's result)
            failed.append(name)
            print(f"FAILED {name}")
            traceback.print_exc()
        print(f"{time.monotonic() - begin:6.2f} s  {name}")
    return passed


def main():
    chromium = find_chromium()
    if chromium is None:
        print("skipped: there is no chromium")
        return SKIPPED
    program = pathlib.Path(sys.argv[1]).resolve()
    chosen = [kind for kind in CASES if kind.__name__ in sys.argv[2:] or not sys.argv[2:]]
    passed, failed = 0, []
    with Browser(chromium) as browser:
        for flags in dict.fromkeys(kind.flags for kind in chosen):
            with Served(program, [*FLAGS, *flags], environment={"OMP_NUM_THREADS": "2"}) as server:
                for kind in chosen:
                    if kind.flags == flags:
                        passed += run(kind(browser, server), failed)
    print(f"{passed} passed, {len(failed)} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
