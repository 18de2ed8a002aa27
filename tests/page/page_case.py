"""Helpers of the page's cases: opening it, asking, reading what it shows. A case waits for conditions, never for
time."""

import json
import pathlib

DESKTOP = {"width": 1280, "height": 860}
DARK = {**DESKTOP, "dark": True}
PHONE = {"width": 390, "height": 844, "touch": True}
FAKE = (pathlib.Path(__file__).resolve().parent / "fake_stream.js").read_text()


class PageCase:
    """Runs its methods with names that begin with "test_", in the order written."""

    flags = ()  # flags of the server

    def __init__(self, browser, server):
        self.browser, self.server = browser, server

    def open(self, look=DESKTOP, path="/"):
        page = self.browser.open(self.server.url + path, **look)
        page.wait_for("document.querySelector('#suggestions button') || document.querySelector('#settings[open]')")
        return page

    def open_fake(self, look=DESKTOP):
        """Opens a page with a fake server: answers arrive as the test sends them."""
        page = self.open(look)
        page.evaluate(FAKE)
        return page

    def ask(self, page, text):
        page.evaluate("document.getElementById('input').focus()")
        page.type(text)
        page.press("Enter", 13)

    def ended(self, page, count=None):
        """Waits until the last answer, or the `count`-th if given, is complete."""
        page.wait_for("[...document.querySelectorAll('.answer')].at(-1)?.getAttribute('aria-busy') === 'false' && !chat.running"
                      + (f" && document.querySelectorAll('.answer').length === {count}" if count else ""))

    def chats(self, page, text):
        """Asks, and waits for the whole answer."""
        before = self.count(page, ".answer")
        self.ask(page, text)
        page.wait_for(f"document.querySelectorAll('.answer').length > {before}")
        self.ended(page)

    def asked(self, page, number):
        """Waits for the `number`-th request to the fake server and returns its body."""
        page.wait_for(f"fake.requests.length >= {number} && fake.controller")
        return page.evaluate(f"fake.requests[{number - 1}].body")

    def answer(self, page, question, text, more="{}"):
        """Asks, and lets `text` arrive as the whole answer."""
        number = page.evaluate("fake.requests.length") + 1
        self.ask(page, question)
        self.arrives(page, number, text, more)

    def arrives(self, page, number, text, more="{}"):
        """Lets `text` arrive as the whole answer to the `number`-th request."""
        self.asked(page, number)
        page.evaluate(f"(async () => {{ await fake.arrive(fake.now, fake.chunk({json.dumps(text)}, 5, {more})); fake.end(fake.now); }})()")
        self.ended(page)

    def text(self, page, selector):
        return page.evaluate(f"document.querySelector({json.dumps(selector)})?.textContent ?? null")

    def count(self, page, selector):
        return page.evaluate(f"document.querySelectorAll({json.dumps(selector)}).length")

    def click(self, page, selector):
        """Clicks an element. Like a user, it cannot click hidden or unreachable elements."""
        page.evaluate(f"""(() => {{
            const element = document.querySelector({json.dumps(selector)});
            if (!element?.checkVisibility({{visibilityProperty: true}})) throw new Error("not to be seen: " + {json.dumps(selector)});
            element.focus();
            element.click();
        }})()""")

    def fill(self, page, element_id, text):
        page.evaluate(f"""(() => {{
            const field = document.getElementById({json.dumps(element_id)});
            field.focus();
            field.value = {json.dumps(text)};
            for (const kind of ["input", "change"]) field.dispatchEvent(new Event(kind, {{bubbles: true}}));
        }})()""")

    def sound(self, page):
        """Checks that the page has no errors, sent requests to its own server only, and does not scroll as a whole."""
        assert page.problems() == [], page.problems()
        strangers = [u for u in page.requested() if not u.startswith((self.server.url + "/", "data:", "blob:" + self.server.url))]
        assert not strangers, strangers
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), "the page scrolls sideways"
        assert page.evaluate("document.documentElement.scrollHeight <= innerHeight"), "the bar scrolls away"
