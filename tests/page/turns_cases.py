"""What can be done to questions and answers. Catches: editing, answering again and deleting that send the wrong messages or lose what
should stay."""

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
