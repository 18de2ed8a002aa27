#!/usr/bin/env python3
"""The page of `tessera serve` in headless Chromium: tests/page/page_test.py PROGRAM [--screenshots FOLDER]

Catches: a page that does not draw one of its views, a chat whose answer does not stream in or cannot be stopped, errors
and keys that are not asked for, what a model writes becoming part of the page, a request that leaves the server, an error
on the console, sideways scrolling on a phone, a dark mode that is none, pictures that stay blank.
Needs Chromium; without it, it is skipped. The last line is "N passed, N failed"."""

import argparse
import pathlib
import sys
import traceback

from browser import Browser, find_chromium
from chat_cases import ChatCases, KeyCases
from engine_cases import EngineCases
from kept_cases import KeptCases
from markdown_cases import MarkdownCases
from pixels import colours
from settings_cases import SettingsCases
from turns_cases import TurnsCases

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1] / "server"))
from served import Served  # noqa: E402  (from the folder named above)

SKIPPED = 77
DESKTOP = {"width": 1280, "height": 860}
DARK = {**DESKTOP, "dark": True}
PHONE = {"width": 360, "height": 740, "touch": True}
# Costs are not measured, so that a busy machine does not decide that a prompt runs eagerly.
FLAGS = ["--random-seed", "1", "--disable-cost-measurement", "--served-model-name", "demo"]

class Tests:
    def __init__(self, browser, server, folder):
        self.browser, self.server, self.folder = browser, server, folder

    def open(self, look, path="/"):
        page = self.browser.open(self.server.url + path, **look)
        page.wait_for("document.querySelector('#suggestions button') || document.querySelector('#settings[open]')")
        return page

    def shot(self, page, name):
        return page.screenshot(self.folder and self.folder / f"{name}.png")

    def ask(self, page, text):
        page.evaluate("document.getElementById('input').focus()")
        page.type(text)
        page.press("Enter", 13)

    def chats(self, page, text):
        self.ask(page, text)
        page.wait_for("document.querySelector('.answer:last-child')?.getAttribute('aria-busy') === 'false'")

    def sound(self, page):
        """Nothing went wrong on the page, and it spoke to nobody but its server."""
        assert page.problems() == [], page.problems()
        strangers = [u for u in page.requested() if not u.startswith((self.server.url + "/", "data:"))]
        assert not strangers, strangers
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), "the page scrolls sideways"
        assert page.evaluate("document.documentElement.scrollHeight <= innerHeight"), "the bar scrolls away"

    def test_looks(self):
        light = None
        for name, look in (("desktop", DESKTOP), ("dark", DARK), ("phone", PHONE)):
            for view in ("chat", "engine"):
                page = self.open(look, "/" if view == "chat" else "/#live")
                if view == "engine":
                    page.wait_for("document.querySelector('#picture svg') && engine.history.length")
                seen = colours(self.shot(page, f"{view}-{name}"))
                assert len(seen) > 50, f"{view}, {name}: {len(seen)} colours"
                background = max(seen, key=seen.get)
                assert (max(background) < 60) == (name == "dark"), f"{view}, {name}: {background.hex()}"
                assert page.evaluate("document.querySelector('.bar').getBoundingClientRect().top") == 0, f"{view}, {name}: no bar"
                assert page.evaluate("[...document.querySelectorAll('main:not([hidden]) *')].every((e) => e.closest('pre, svg') || "
                                     "e.classList.contains('unseen') || e.getBoundingClientRect().right <= innerWidth + 1)"), f"{view}, {name}: sticks out"
                self.sound(page)
                if view == "chat":
                    page.evaluate("document.getElementById('open-settings').click()")
                    assert page.evaluate("document.getElementById('settings').getBoundingClientRect().left") >= 0
                    page.press("Escape", 27)

    def test_names_for_screen_readers(self):
        page = self.open(PHONE)
        nameless = page.evaluate("""[...document.querySelectorAll('button, input, textarea, [role=img]')].filter((e) =>
            !(e.getAttribute('aria-label') || e.textContent.trim() || e.labels?.length)).map((e) => e.outerHTML)""")
        assert nameless == [], nameless
        small = page.evaluate("""[...document.querySelectorAll('.bar button, .composer button')].filter((e) => e.offsetParent &&
            Math.min(e.offsetWidth, e.offsetHeight) < 30).map((e) => e.outerHTML)""")
        assert small == [], small


def run(tests, failed):
    passed = 0
    for name in vars(type(tests)):
        if not name.startswith("test_"):
            continue
        try:
            getattr(tests, name)()
            passed += 1
        except Exception:
            failed.append(name)
            print(f"FAILED {name}")
            traceback.print_exc()
    return passed


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("--screenshots", type=pathlib.Path, help="a folder for pictures of the page")
    arguments = parser.parse_args()
    chromium = find_chromium()
    if chromium is None:
        print("skipped: there is no chromium")
        return SKIPPED
    if arguments.screenshots:
        arguments.screenshots.mkdir(parents=True, exist_ok=True)
    program = pathlib.Path(arguments.program).resolve()
    passed, failed = 0, []
    with Browser(chromium) as browser:
        for kind, flags in ((Tests, []), (KeyCases, ["--api-key", "secret"])):
            with Served(program, [*FLAGS, *flags], environment={"OMP_NUM_THREADS": "2"}) as server:
                if kind is Tests:
                    passed += run(Tests(browser, server, arguments.screenshots), failed)
                for cases in (ChatCases, TurnsCases, SettingsCases, MarkdownCases, KeptCases, EngineCases) if kind is Tests else (KeyCases,):
                    passed += run(cases(browser, server), failed)
    print(f"{passed} passed, {len(failed)} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
