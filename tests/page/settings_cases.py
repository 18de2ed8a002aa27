"""The page's settings. Catches: a sheet that closes over invalid values, messages without field, value or range,
invalid settings that are kept or sent, and valid ones that are not sent."""

import re

from page_case import PageCase

WRONG = {
    "temperature": (("abc", "-1", "1e3", "100.5", "1,5"), "Accepted: a number from 0 to 100."),
    "top-p": (("0", "1.01", "x"), "Accepted: a number above 0, up to 1."),
    "max-tokens": (("0", "2.5", "-3", "many", "2147483648"), "Accepted: a whole number from 1 to 2147483647."),
    "seed": (("1.5", "9007199254740993", "seed"), "Accepted: a whole number from −9007199254740991 to 9007199254740991."),
    "stop": (("a\\x", "\n".join(str(i) for i in range(33))), "Accepted: "),
    "schema": (("{", "[1]", "3", "null"), "Accepted: a JSON object"),
    "tool-list": (("{}", "[", "null"), "Accepted: a JSON list as in the API"),
    "api-key": (("two words", "ключ"), "Accepted: letters, digits and signs of ASCII, without blanks."),
}
NAMES = {"temperature": "Temperature", "top-p": "Top-p", "max-tokens": "Max tokens", "seed": "Seed", "stop": "Stop strings",
         "schema": "JSON schema", "tool-list": "Tools", "api-key": "API key"}


class SettingsCases(PageCase):
    def is_open(self, page):
        return page.evaluate("document.getElementById('settings').open")

    def test_wrong_values_keep_the_sheet_open(self):
        page = self.open()
        self.click(page, "#open-settings")
        for field, (values, accepted) in WRONG.items():
            for value in values:
                self.fill(page, field, value)
                self.click(page, "#settings .main")
                assert self.is_open(page), f"{field} {value!r} is closed over"
                note = self.text(page, f"#{field}-wrong")
                assert note.startswith(NAMES[field] + ": ") and accepted in note, note
                assert field == "api-key" or value.strip()[:10] in note, note
                assert self.text(page, "#settings-state") == note
                assert page.evaluate("document.activeElement.id") == field
                assert page.evaluate(f"document.getElementById('{field}').getAttribute('aria-invalid')") == "true"
                assert f"{field}-wrong" in page.evaluate(f"document.getElementById('{field}').getAttribute('aria-describedby')")
                assert page.evaluate(f"sessionStorage.getItem('tessera.{field}') || ''") != value, "it is kept"
            self.fill(page, field, "")
        self.click(page, "#settings .main")
        assert not self.is_open(page)
        self.sound(page)

    def test_no_way_out_but_discarding(self):
        page = self.open()
        self.fill(page, "temperature", "0.5")
        self.click(page, "#open-settings")
        self.fill(page, "temperature", "hot")
        for _ in range(3):  # a browser would by itself close it at the second Escape
            page.press("Escape", 27)
            assert self.is_open(page)
        self.click(page, "#settings .sheet-head button")
        assert self.is_open(page)
        page.evaluate("document.getElementById('settings').dispatchEvent(new MouseEvent('click', {bubbles: true}))")
        assert self.is_open(page)
        page.evaluate("document.getElementById('settings').close()")  # as a phone's back gesture does
        page.wait_for("document.getElementById('settings').open")
        self.click(page, "#discard-settings")
        assert not self.is_open(page)
        assert page.evaluate("document.getElementById('temperature').value") == "0.5"
        assert page.evaluate("settings.values.temperature") == 0.5

    def test_two_wrong_fields_are_both_named(self):
        page = self.open()
        self.click(page, "#open-settings")
        self.fill(page, "top-p", "7")
        self.fill(page, "seed", "x")
        page.press("Escape", 27)
        assert self.text(page, "#settings-state") == "Not accepted: Top-p, Seed."
        assert page.evaluate("document.activeElement.id") == "top-p"
        self.fill(page, "top-p", "0.7")
        assert self.text(page, "#top-p-wrong") == "" and not page.evaluate("document.querySelector('#top-p-wrong').checkVisibility()")

    def test_what_is_set_is_sent(self):
        page = self.open_fake()
        self.answer(page, "Plain.", "Yes.")
        body = page.evaluate("fake.requests[0].body")
        assert set(body) == {"model", "stream", "stream_options", "messages"}, body
        for field, value in {"system": "Be brief.", "temperature": " 0.25 ", "top-p": ".9", "max-tokens": "40", "seed": "−7", "stop": "END\n\\n\\n\na\\\\b",
                             "schema": '{"type": "object"}', "tool-list": '[{"type": "function", "function": {"name": "f"}}]'}.items():
            self.fill(page, field, value)
        page.evaluate("document.getElementById('logprobs').click()")
        self.answer(page, "Set.", "{}")
        body = page.evaluate("fake.requests[1].body")
        assert body["messages"][0] == {"role": "system", "content": "Be brief."}
        assert (body["temperature"], body["top_p"], body["max_tokens"], body["seed"]) == (0.25, 0.9, 40, -7), body
        assert body["stop"] == ["END", "\n\n", "a\\b"], body
        assert body["response_format"] == {"type": "json_schema", "json_schema": {"name": "answer", "strict": True, "schema": {"type": "object"}}}
        assert body["logprobs"] is True and body["top_logprobs"] == 5 and len(body["tools"]) == 1
        # The settings last as long as the tab.
        page.reload()
        page.wait_for("engine.state")
        assert page.evaluate("[settings.values.seed, settings.values['top-p'], settings.wantsLogprobs]") == [-7, 0.9, True]

    def test_the_server_takes_what_is_set(self):
        page = self.open()
        for field, value in {"temperature": "0.5", "top-p": "0.9", "max-tokens": "200", "seed": "11", "stop": "§\n\\n\\n\\n",
                             "schema": '{"type": "object", "properties": {"a": {"enum": [1, 2]}}, "required": ["a"], "additionalProperties": false}'}.items():
            self.fill(page, field, value)
        self.chats(page, "Where do foxes live?")
        assert self.count(page, ".answer .fault") == 0, self.text(page, ".answer .fault")
        assert re.match(r"\{\s*\"a\"\s*:\s*[12]", page.evaluate("chat.now.exchanges[0].answer.content")), self.text(page, ".answer .said")
        self.sound(page)
