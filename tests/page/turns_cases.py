"""Actions on questions and answers. Catches: editing, answering again and deleting that send the wrong messages or lose
others; wrong probabilities, and probabilities shown by colour alone."""

from page_case import PHONE, PageCase


class TurnsCases(PageCase):
    def messages(self, page, number):
        return [m["content"] for m in self.asked(page, number)["messages"]]

    def two(self, look=PHONE):
        page = self.open_fake(look)
        self.answer(page, "One?", "First.")
        self.answer(page, "Two?", "Second.")
        return page

    def said(self, page):
        return page.evaluate("[...document.querySelectorAll('.turn .said')].map((e) => e.textContent)")

    def test_answer_again(self):
        page = self.two()
        assert not page.evaluate("document.querySelector('.exchange:first-child .again').checkVisibility()"), "of an answer within"
        self.click(page, ".exchange:last-child .again")
        assert self.messages(page, 3) == ["One?", "First.", "Two?"]
        assert not page.evaluate("document.querySelector('.actions').checkVisibility({visibilityProperty: true})"), "changes while it answers"
        self.arrives(page, 3, "Again.")
        assert self.said(page) == ["One?", "First.", "Two?", "Again."]
        assert page.evaluate("document.activeElement.id") == "input"
        self.sound(page)

    def test_edit_a_question(self):
        page = self.two()
        self.click(page, ".exchange:first-child [aria-label=Edit]")
        assert page.evaluate("document.activeElement.value") == "One?"
        assert self.text(page, ".edit .note") == "Sending takes away the question after it, with its answer."
        page.press("Escape", 27)
        assert self.said(page) == ["One?", "First.", "Two?", "Second."] and page.evaluate("document.activeElement.getAttribute('aria-label')") == "Edit"
        self.click(page, ".exchange:first-child [aria-label=Edit]")
        page.evaluate("document.activeElement.value = ' '")
        self.click(page, ".edit .main")
        assert self.count(page, ".edit") == 1, "nothing is sent"
        page.evaluate("document.activeElement.closest('form').querySelector('textarea').value = 'Other?'")
        self.click(page, ".edit .main")
        assert self.messages(page, 3) == ["Other?"]
        self.arrives(page, 3, "New.")
        assert self.said(page) == ["Other?", "New."]
        self.answer(page, "More?", "Yes.")
        assert self.messages(page, 4) == ["Other?", "New.", "More?"]

    def test_edit_with_the_keyboard(self):
        page = self.two()
        self.click(page, ".exchange:last-child [aria-label=Edit]")
        page.evaluate("document.activeElement.select()")
        page.type("Typed?")
        page.press("Enter", 13)
        assert self.messages(page, 3) == ["One?", "First.", "Typed?"]

    def test_delete_and_undo(self):
        page = self.two()
        self.click(page, ".exchange:first-child [aria-label='Delete question and answer']")
        assert self.said(page) == ["Two?", "Second."] and page.evaluate("document.activeElement.textContent") == "Undo"
        self.click(page, ".gone button")
        assert self.said(page) == ["One?", "First.", "Two?", "Second."]
        self.click(page, ".exchange:first-child [aria-label='Delete question and answer']")
        self.answer(page, "Three?", "Third.")
        assert self.messages(page, 3) == ["Two?", "Second.", "Three?"]
        assert self.count(page, ".gone") == 0
        for _ in range(2):
            self.click(page, ".exchange:last-child [aria-label='Delete question and answer']")
            page.evaluate("document.querySelector('.gone').remove()")
        assert self.count(page, ".exchange") == 0 and page.evaluate("localStorage.length") == 0

    def test_texts_are_edited_and_deleted_too(self):
        page = self.open_fake()
        page.evaluate("showWelcome({name: 'plain', chat: false})")
        for number, (first, then) in enumerate((("Once", " upon"), ("Twice", " told")), 1):
            if number == 1:
                self.ask(page, first)
            else:
                self.click(page, "[aria-label=Edit]")
                page.evaluate(f"document.activeElement.value = '{first}'")
                self.click(page, ".edit .main")
            assert self.asked(page, number)["prompt"] == first
            page.evaluate(f"(async () => {{ await fake.arrive(1, fake.event({{choices: [{{text: '{then}'}}], usage: {{completion_tokens: 1}}}})); fake.end(1); }})()")
            self.ended(page)
            assert self.said(page) == [first + then]
        self.click(page, "[aria-label='Delete question and answer']")
        assert self.said(page) == []

    def test_probabilities(self):
        page = self.open()
        page.evaluate("document.getElementById('logprobs').click()")
        self.chats(page, "Where do foxes live?")
        text = self.text(page, ".answer .said")
        self.click(page, "[aria-label='Show probabilities']")
        assert not page.evaluate("document.querySelector('.answer .said').checkVisibility()")
        assert page.evaluate("[...document.querySelectorAll('.tokens .token')].slice(0, -1).map((t) => t.textContent).join('')").strip().startswith(text.strip()[:20])
        assert page.evaluate("[...document.querySelectorAll('.tokens .token')].every((t) => /^“.*” [<>]?\u202f?[\\d.]+\u202f%$/s.test(t.getAttribute('aria-label')))")
        self.click(page, "[aria-label='Show probabilities']")
        assert page.evaluate("document.querySelector('.answer .said').checkVisibility()") and self.count(page, ".tokens") == 0
        self.sound(page)

    def test_probabilities_are_told_exactly(self):
        page = self.open_fake()
        chances = (0.95, 0.6, 0.2, 0.05, 0.001)
        page.evaluate(f"window.logprobs = {{content: {list(chances)}.map((p, i) => ({{token: i === 1 ? '\\n' : `t${{i}}`, logprob: Math.log(p),"
                      "top_logprobs: [{token: 'other', logprob: Math.log(0.03)}, {token: `t${i}`, logprob: Math.log(p)}]}))}")
        self.answer(page, "How sure?", "t0\nt2t3t4", "{logprobs}")
        self.click(page, "[aria-label='Show probabilities']")
        labels = page.evaluate("[...document.querySelectorAll('.tokens .token')].map((t) => t.getAttribute('aria-label').replaceAll('\u202f', ' '))")
        assert labels == ["“t0” 95.0 %", "“⏎” 60.0 %", "“t2” 20.0 %", "“t3” 5.0 %", "“t4” 0.1 %"], labels
        assert page.evaluate("[...document.querySelectorAll('.tokens .token')].map((t) => t.className)") == [f"token p{i}" for i in range(5)]
        # The tokens are one Tab stop with arrow keys inside; the line below follows the focus.
        assert page.evaluate("[...document.querySelectorAll('.tokens .token')].filter((t) => t.tabIndex === 0).length") == 1
        page.evaluate("document.querySelector('.tokens .token').focus()")
        page.press("End", 35)
        page.press("ArrowLeft", 37)
        assert page.evaluate("document.activeElement.textContent") == "t3"
        assert self.text(page, ".token-read").replace("\u202f", " ") == "“t3” 5.0 % (log-probability −2.9957); instead: “other” 3.0 %"
        # Besides colour, less probable tokens are underlined, each level in its own style.
        lines = page.evaluate("[...document.querySelectorAll('.tokens .token')].map((t) => getComputedStyle(t).textDecorationLine + getComputedStyle(t).textDecorationStyle)")
        assert len(set(lines[2:])) == 3 and all(line.startswith("underline") for line in lines[2:]), lines
        page.evaluate("document.querySelectorAll('.tokens .token')[2].dispatchEvent(new PointerEvent('pointerover', {bubbles: true}))")
        assert self.text(page, ".token-read").startswith("“t2”")

    def test_probabilities_of_a_text(self):
        page = self.open()
        page.evaluate("showWelcome({...engine.state.model, chat: false})")
        page.evaluate("document.getElementById('logprobs').click()")
        self.fill(page, "max-tokens", "12")
        self.chats(page, "Once upon a time, in the forest, there lived")
        assert self.count(page, ".answer .fault") == 0, self.text(page, ".answer .fault")
        self.click(page, "[aria-label='Show probabilities']")
        assert self.count(page, ".tokens .token") > 2
        page.evaluate("document.querySelector('.tokens .token').focus()")
        assert "instead: " in self.text(page, ".token-read")
