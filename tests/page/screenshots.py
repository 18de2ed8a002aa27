#!/usr/bin/env python3
"""Makes the pictures of docs/serving.md: tests/page/screenshots.py PROGRAM [FOLDER]

Draws the page of a server of the demo model in headless Chromium, at 390 × 844 and 1440 × 900, light and dark. The demo model
writes simple stories only, so the chat shows a scripted answer with everything that the page can draw. The engine's view
shows real forwards of a short load. A picture above 150 KB is an error."""

import json
import pathlib
import sys
import threading

from browser import Browser, find_chromium
from page_case import FAKE, PageCase

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1] / "server"))
from served import ROOT, Served  # noqa: E402  (from the folder named above)

LOOKS = {"1440-light": {"width": 1440, "height": 900}, "1440-dark": {"width": 1440, "height": 900, "dark": True},
         "390-light": {"width": 390, "height": 844, "touch": True}, "390-dark": {"width": 390, "height": 844, "touch": True, "dark": True}}
MAX_BYTES = 150_000
QUESTION = "How do I estimate π with random points?"
ANSWER = r"""Throw points at the unit square. The share that lands in the quarter circle is $\pi / 4$, so **four times the share** estimates π:

```python
import random

def estimate_pi(points: int, seed: int = 7) -> float:
    draw = random.Random(seed).random  # one stream of numbers
    inside = sum(draw() ** 2 + draw() ** 2 <= 1 for _ in range(points))
    return 4 * inside / points
```

The error shrinks with the root of the number of points:

| points | standard error | right digits |
|-------:|---------------:|:-------------|
| 1 000 | 0.0519 | 1 |
| 100 000 | 0.0052 | 2 |
| 10 000 000 | 0.0005 | 3 |

More on the method: [Monte Carlo method](https://en.wikipedia.org/wiki/Monte_Carlo_method)."""


def shoot(page, folder, name):
    png = page.screenshot()
    (folder / f"{name}.png").write_bytes(png)
    print(f"{name}.png: {len(png)} bytes")
    return len(png) <= MAX_BYTES


def shoot_chat(cases, look, folder, name):
    page = cases.open(look)
    page.evaluate(FAKE)
    cases.ask(page, QUESTION)
    cases.asked(page, 1)
    words = json.dumps(ANSWER)
    page.evaluate(f"""(async () => {{
        await fake.arrive(1046, fake.chunk({words}.slice(0, 5), 1));
        await fake.arrive(6180, fake.chunk({words}.slice(5), 214));
        fake.end(6180);
    }})()""")
    cases.ended(page)
    page.evaluate("document.activeElement.blur(); document.getElementById('chat-scroll').scrollTop = 0")
    page.wait_for("document.getElementById('chat-scroll').scrollTop === 0")
    return shoot(page, folder, name)


class Load:
    """Sends requests with prompts of many lengths, twelve at a time, until the context ends."""

    def __init__(self, server):
        self.server, self.over, self.statuses = server, threading.Event(), set()

    def ask(self, number):
        while not self.over.is_set():
            number = (number * 29 + 7) % 101
            words = "The fox and the otter went to the river. " * (1 + number % 23)
            request = {"prompt": words, "max_tokens": 20 + number, "seed": number, "ignore_eos": True}
            self.statuses.add(self.server.post("/v1/completions", request)[0])

    def __enter__(self):
        self.threads = [threading.Thread(target=self.ask, args=[i]) for i in range(12)]
        for thread in self.threads:
            thread.start()

    def __exit__(self, *_):
        self.over.set()
        for thread in self.threads:
            thread.join()
        assert self.statuses == {200}, self.statuses


def shoot_engine(cases, look, folder, name):
    page = cases.open(look, "/#live")
    page.wait_for("engine.history.length >= 4")
    with Load(cases.server):
        page.wait_for("engine.history.length >= 16")
        page.evaluate("document.activeElement.blur()")
        return shoot(page, folder, name)


def main():
    program = pathlib.Path(sys.argv[1]).resolve()
    folder = pathlib.Path(sys.argv[2]) if len(sys.argv) > 2 else ROOT / "docs" / "images"
    folder.mkdir(parents=True, exist_ok=True)
    small = True
    with Browser(find_chromium()) as browser, Served(program, ["--random-seed", "1", "--served-model-name", "demo"]) as server:
        cases = PageCase(browser, server)
        for name, look in LOOKS.items():
            small &= shoot_chat(cases, look, folder, f"page-chat-{name}")
            small &= shoot_engine(cases, look, folder, f"page-engine-{name}")
    if not small:
        print(f"a picture has more than {MAX_BYTES} bytes")
    return 0 if small else 1


if __name__ == "__main__":
    sys.exit(main())
