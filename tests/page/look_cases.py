"""The page's look and accessibility. Catches: views that stay blank, sideways scrolling, a dark mode that is not dark,
text or lines of too little contrast, lines that colour-blind people cannot tell apart, controls without a name or out
of the keyboard's reach, and motion for users who asked for none."""

import re

from page_case import DARK, DESKTOP, PHONE, PageCase
from pixels import BLINDNESS, colours, contrast, distance

RICH = "Text with `code`, $x_1$ and [a link](https://example.com).\n\n| a | b |\n|---|---|\n| 1 | 2 |\n\n```py\ndef f(x):  # note\n    return 'a' + str(1)\n```"
INTERACTIVE = "a[href], button, input, textarea, summary, [tabindex]"


class LookCases(PageCase):
    def test_looks(self):
        for name, look in (("desktop", DESKTOP), ("dark", DARK), ("phone", PHONE)):
            for view in ("chat", "engine"):
                page = self.open(look, "/" if view == "chat" else "/#live")
                if view == "engine":
                    page.wait_for("document.querySelector('#picture svg') && engine.history.length")
                seen = colours(page.screenshot())
                assert len(seen) > 50, f"{view}, {name}: {len(seen)} colours"
                background = max(seen, key=seen.get)
                assert (max(background) < 60) == (name == "dark"), f"{view}, {name}: {background.hex()}"
                assert page.evaluate("document.querySelector('.bar').getBoundingClientRect().top") == 0, f"{view}, {name}: no bar"
                assert page.evaluate("[...document.querySelectorAll('main:not([hidden]) *, .bar *')].every((e) => e.closest('pre, svg') || "
                                     "e.classList.contains('unseen') || e.getBoundingClientRect().right <= innerWidth + 1)"), f"{view}, {name}: sticks out"
                for sheet in ("settings", "library"):
                    self.click(page, f"#open-{sheet}")
                    assert page.evaluate(f"document.getElementById('{sheet}').scrollWidth <= document.getElementById('{sheet}').clientWidth"), f"{sheet}, {name}"
                    page.press("Escape", 27)
                    assert page.evaluate(f"document.activeElement.id === 'open-{sheet}'"), "the focus is lost"
                self.sound(page)

    def rgb(self, page, selector, style="color"):
        """Returns the drawn colour of the first element that matches `selector`."""
        text = page.evaluate(f"getComputedStyle(document.querySelector(`{selector}`)).{style}")
        return [float(v) for v in re.findall(r"[\d.]+", text)][:3]

    def test_text_can_be_read(self):
        for look in (DESKTOP, DARK):
            page = self.open_fake(look)
            self.answer(page, "Rich?", RICH, "{logprobs: {content: [0.95, 0.6, 0.2, 0.05, 0.001].map((p) => ({token: 'a', logprob: Math.log(p), top_logprobs: []}))}}")
            self.click(page, "#open-settings")
            self.fill(page, "seed", "x")
            page.evaluate("document.getElementById('settings').close()")
            page.wait_for("document.getElementById('settings').open")
            for selector, ground in ((".said p", "body"), (".said a", "body"), (".maths", "body"), (".facts", "body"), (".code-comment", ".block"), (".code-keyword", ".block"),
                                     (".code-string", ".block"), (".code-number", ".block"), (".code-call", ".block"), (".block-head span", ".block-head"), (".table th", ".table th"),
                                     (".user .said", ".user .said"), ("#seed-wrong", "#settings"), (".setting .note", "#settings"), ("#tab-engine", ".tabs"), ("#settings .main", "#settings .main")):
                ratio = contrast(self.rgb(page, selector), self.rgb(page, ground, "backgroundColor"))
                assert ratio >= 4.5, f"{selector}: {ratio:.2f}"
            self.click(page, "#discard-settings")
            self.click(page, "[aria-label='Show probabilities']")
            for level in range(1, 5):
                ratio = contrast(self.rgb(page, f".tokens .p{level}"), self.rgb(page, f".tokens .p{level}", "backgroundColor"))
                assert ratio >= 4.5, f"p{level}: {ratio:.2f}"

    def test_lines_can_be_told_apart(self):
        for look in (DESKTOP, DARK):
            page = self.open(look, "/#live")
            page.wait_for("engine.history.length")
            first, second = (self.rgb(page, f".sample .line{i}", "stroke") for i in (0, 1))
            ground = self.rgb(page, ".tile", "backgroundColor")
            for colour in (first, second):
                assert contrast(colour, ground) >= 3, f"{colour} on {ground}: {contrast(colour, ground):.2f}"
            for blindness in BLINDNESS:
                apart = distance(first, second, blindness)
                assert apart >= 20, f"{blindness}: {apart:.1f}"

    def test_names_for_screen_readers(self):
        page = self.open_fake(PHONE)
        self.answer(page, "Rich?", RICH, "{logprobs: {content: [{token: 'a', logprob: -1, top_logprobs: []}]}}")
        self.click(page, "#open-library")
        nameless = page.evaluate("""[...document.querySelectorAll('button, input, textarea, a, dialog, [role=img], [role=region], [role=listbox]')].filter((e) =>
            !(e.getAttribute('aria-label') || e.getAttribute('aria-labelledby') || e.textContent.trim() || e.labels?.length)).map((e) => e.outerHTML)""")
        assert nameless == [], nameless
        ids = page.evaluate("[...document.querySelectorAll('[id]')].map((e) => e.id)")
        assert len(ids) == len(set(ids)), "an id twice"
        referred = page.evaluate("[...document.querySelectorAll('[aria-labelledby], [aria-describedby], [aria-controls], [for]')].flatMap((e) => "
                                 "['aria-labelledby', 'aria-describedby', 'aria-controls', 'for'].flatMap((a) => (e.getAttribute(a) || '').split(' ').filter(Boolean)))")
        assert set(referred) <= set(ids), set(referred) - set(ids)
        small = page.evaluate("""[...document.querySelectorAll('.bar button, .composer button, .actions button, .row-actions button, .sheet button')].filter((e) => e.offsetParent &&
            Math.min(e.offsetWidth, e.offsetHeight) < 24).map((e) => e.outerHTML)""")
        assert small == [], small

    def reached(self, page, root):
        """Presses Tab from the start of `root` until it comes round. Returns the visible interactive elements that were not
        reached."""
        page.evaluate(f"""window.left = new Set([...document.querySelectorAll(`{root}`)].flatMap((r) => [...r.querySelectorAll('{INTERACTIVE}')])
            .filter((e) => e.tabIndex >= 0 && !e.disabled && e.checkVisibility({{visibilityProperty: true}})));
            window.unmarked = [];""")
        count = page.evaluate("left.size")
        for _ in range(2 * count + 8):
            page.press("Tab", 9)
            page.evaluate("""(() => { const e = document.activeElement; left.delete(e);
                const style = getComputedStyle(e);
                if (e !== document.body && e.localName !== 'textarea' && e.type !== 'text' && e.type !== 'password' && style.outlineStyle === 'none') unmarked.push(e.outerHTML); })()""")
            if not page.evaluate("left.size"):
                break
        assert count > 3 and page.evaluate("[...left].map((e) => e.outerHTML)") == [], page.evaluate("[...left].map((e) => e.outerHTML)")
        assert page.evaluate("unmarked") == [], page.evaluate("unmarked")

    def test_everything_is_reached_by_keyboard(self):
        page = self.open_fake()
        self.answer(page, "Rich?", RICH, "{logprobs: {content: [{token: 'a', logprob: -1, top_logprobs: []}, {token: 'b', logprob: -1, top_logprobs: []}]}}")
        self.click(page, "[aria-label='Show probabilities']")
        self.reached(page, "body > header, #chat")
        for sheet in ("settings", "library"):
            self.click(page, f"#open-{sheet}")
            self.reached(page, f"#{sheet}")
            page.press("Escape", 27)
        self.click(page, "#tab-engine")
        page.wait_for("engine.history.length")
        self.reached(page, "#engine")

    def test_less_motion(self):
        moves = "[getComputedStyle(document.querySelector('.waiting'), '::after').animationName, getComputedStyle(document.querySelector('.turn.user .actions')).transitionDuration]"
        for still in (False, True):
            page = self.open_fake({**DESKTOP, "still": still})
            self.ask(page, "Wait.")
            self.asked(page, 1)
            animation, _ = page.evaluate(moves)
            assert (animation == "none") == still, animation
            if still:
                running = page.evaluate("document.getAnimations().length")
                assert running == 0, running
