"""Kept chats. Catches: chats that are lost, or kept when they should not be; limits and full storage that are not
reported; files that change on export and import; files and entries of any content that damage existing data; two tabs
that overwrite each other."""

import json
import pathlib
import tempfile
import time

from page_case import PHONE, PageCase

TIMES = {"created": "2026-01-01T00:00:00.000Z", "updated": "2026-01-02T00:00:00.000Z"}
GOOD = {"title": "Named", **TIMES, "kind": "chat", "messages": [{"role": "user", "content": "Q"}, {"role": "assistant", "content": "A *b*", "reasoning_content": "hm"}]}


def exported(*chats, **changes):
    return json.dumps({"format": "tessera-chats", "version": 1, "chats": list(chats), **changes})


class KeptCases(PageCase):
    def put(self, page, **chats):
        for chat_id, chat in chats.items():
            page.evaluate(f"localStorage.setItem('tessera.chat.{chat_id}', {json.dumps(chat if isinstance(chat, str) else json.dumps(chat))})")

    def kept(self, page):
        return page.evaluate("keptChats().map(({json, wrong}) => json ? [Conversation.titleOf(json), ...json.messages.map((m) => m.content)] : wrong)")

    def bring(self, page, text):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "chats.json"
            path.write_text(text)
            page.evaluate("tellLibrary('')")
            page.choose_file("#import-file", path)
            page.wait_for("document.getElementById('kept-note').textContent")
        return self.text(page, "#kept-note")

    def test_chats_are_kept_and_opened(self):
        page = self.open_fake(PHONE)
        self.answer(page, "One?\nmore", "First **bold**.")
        self.answer(page, "Two?", "Second.")
        self.click(page, "#new-chat")
        self.answer(page, "Other?", "Third.")
        page.reload()
        page.wait_for("engine.state")
        assert sorted(self.kept(page)) == [["One?", "One?\nmore", "First **bold**.", "Two?", "Second."], ["Other?", "Other?", "Third."]]
        self.click(page, "#open-library")
        self.click(page, "#kept li:last-child .open")
        assert not page.evaluate("document.getElementById('library').open")
        assert page.evaluate("[...document.querySelectorAll('.said')].map((e) => e.textContent)") == ["One?\nmore", "First bold.", "Two?", "Second."]
        assert self.count(page, ".answer strong") == 1
        self.click(page, "#open-library")
        assert self.count(page, "#kept [aria-current]") == 1
        page.press("Escape", 27)
        self.sound(page)

    def test_a_question_is_kept_before_its_answer(self):
        page = self.open_fake()
        self.ask(page, "Still running?")
        self.asked(page, 1)
        page.evaluate("fake.arrive(1000, fake.chunk('Half', 1))")
        page.wait_for("chat.now.exchanges[0].answer.content === 'Half'")
        assert self.kept(page) == [["Still running?", "Still running?"]]
        self.click(page, "#new-chat")  # ends the answer, whose text so far is kept
        page.wait_for("keptChats()[0].json.messages.length === 2")
        assert self.kept(page) == [["Still running?", "Still running?", "Half"]]
        assert self.count(page, ".exchange") == 0

    def test_rename_and_delete(self):
        page = self.open()
        self.put(page, a={**GOOD, "updated": "2026-02-02T00:00:00.000Z"}, b={**GOOD, "title": "Second"})
        self.click(page, "#open-library")
        self.click(page, "#kept li:first-child [aria-label^=Rename]")
        page.type("Renamed <b>")
        page.press("Escape", 27)
        assert page.evaluate("document.getElementById('library').open") and self.text(page, "#kept .name") == "Named"
        self.click(page, "#kept li:first-child [aria-label^=Rename]")
        page.type("Renamed <b>")
        page.press("Enter", 13)
        assert self.text(page, "#kept .name") == "Renamed <b>"
        assert page.evaluate("document.activeElement.getAttribute('aria-label')") == "Rename “Renamed <b>”"
        self.click(page, "#kept li:last-child [aria-label^=Delete]")
        assert [k[0] for k in self.kept(page)] == ["Renamed <b>"]
        self.click(page, "#kept .gone button")
        assert [k[0] for k in self.kept(page)] == ["Renamed <b>", "Second"]
        self.click(page, "#delete-all")
        assert page.evaluate("document.activeElement.id") == "delete-no"
        self.click(page, "#delete-no")
        assert len(self.kept(page)) == 2
        self.click(page, "#delete-all")
        self.click(page, "#delete-yes")
        assert self.kept(page) == [] and page.evaluate("document.getElementById('kept-none').checkVisibility()")

    def test_files_come_back_as_they_went(self):
        page = self.open()
        text = {"title": "", **TIMES, "updated": "2026-01-01T12:00:00.000Z", "kind": "text", "messages": [{"role": "user", "content": "Once"}, {"role": "assistant", "content": " upon"}]}
        self.put(page, a=GOOD, b=text)
        with tempfile.TemporaryDirectory() as folder:
            page.downloads(folder)
            self.click(page, "#open-library")
            self.click(page, "#export-all")
            whole = self.downloaded(folder, "tessera-chats.json")
            self.click(page, "#kept [aria-label='Export “Named” as Markdown']")
            assert self.downloaded(folder, "Named.md") == "# Named\n\n## Question\n\nQ\n\n## Answer\n\nA *b*\n"
            self.click(page, "#kept [aria-label='Export “Once” as Markdown']")
            assert self.downloaded(folder, "Once.md") == "# Once\n\nOnce upon\n"
            self.click(page, "#kept [aria-label='Export “Named” as JSON']")
            assert json.loads(self.downloaded(folder, "Named.json")) == json.loads(exported(GOOD))
        assert json.loads(whole) == json.loads(exported(GOOD, text))
        page.evaluate("localStorage.clear()")
        assert self.bring(page, whole) == "2 chats imported from “chats.json”."
        assert page.evaluate("keptChats().map((c) => c.json)") == json.loads(whole)["chats"]
        self.click(page, "#kept [aria-label='Rename “Named”']")
        page.press("Escape", 27)
        page.evaluate("[...document.querySelectorAll('#kept .open')].find((b) => b.textContent.startsWith('Named')).click()")
        assert self.text(page, ".thought div") == "hm"
        self.sound(page)

    def downloaded(self, folder, name):
        """Returns the text of a file that the browser saves, which has another name until it is complete."""
        path = pathlib.Path(folder) / name
        deadline = time.monotonic() + 60
        while not path.exists():
            assert time.monotonic() < deadline, f"{name} did not come"
            time.sleep(0.02)
        return path.read_text()

    def test_bad_files_are_refused(self):
        page = self.open()
        self.put(page, a=GOOD)
        self.click(page, "#open-library")
        for text, said in (("{", "it is no JSON"), ("[]", '"format" is missing'), (exported(version=2), '"version" is 2; accepted: 1'), (exported(chats=3), '"chats" is no list'),
                           (exported(GOOD, None), "in chats[1], a chat is no object"), (exported({**GOOD, "title": 3}), 'in chats[0], "title" is wrong'),
                           (exported({**GOOD, "title": "x" * 201}), "at most 200 characters"), (exported({**GOOD, "updated": "soon"}), '"updated" is "soon"'),
                           (exported({**GOOD, "kind": "x"}), '"kind" is "x"'), (exported({**GOOD, "messages": [{"role": "system", "content": "x"}]}), 'the role of messages[0] is "system"'),
                           (exported({**GOOD, "messages": [{"role": "assistant", "content": "x"}]}), "messages[0] answers nothing"),
                           (exported({**GOOD, "messages": [{"role": "user", "content": None}]}), "messages[0] has no text")):
            note = self.bring(page, text)
            assert note.startswith("“chats.json” was not imported: ") and said in note, note
            assert "wrong" in page.evaluate("document.getElementById('kept-note').className")
            assert len(self.kept(page)) == 1
        self.sound(page)

    def test_limits_are_told(self):
        page = self.open_fake()
        for i in range(100):
            self.put(page, **{f"c{i}": GOOD})
        self.answer(page, "One more?", "Yes.")
        assert self.text(page, "#keep-note") == "This chat is not kept: 100 chats are kept already, and no more can be. Delete or export chats to make room."
        assert page.evaluate("document.getElementById('keep-note').checkVisibility()") and len(self.kept(page)) == 100
        self.click(page, "#open-library")
        assert self.text(page, "#kept-room").startswith("100 of 100 chats")
        note = self.bring(page, exported(GOOD))
        assert "100 chats are kept already" in note, note
        self.click(page, "#kept li:first-child [aria-label^=Delete]")
        assert self.bring(page, exported(GOOD, GOOD)).startswith("Only the first 1 of the chats in “chats.json” were imported: ")
        self.click(page, "#kept li:first-child [aria-label^=Delete]")
        page.press("Escape", 27)
        self.answer(page, "Now?", "Yes.")
        assert not page.evaluate("document.getElementById('keep-note').checkVisibility()") and len(self.kept(page)) == 100
        # The limit of the storage is counted in characters.
        self.click(page, "#new-chat")
        page.evaluate("localStorage.clear()")
        self.put(page, big={**GOOD, "messages": [{"role": "user", "content": "x" * 3999000}]})
        self.answer(page, "Long?", "y" * 2000)
        assert "of 4.00\u202fM" in self.text(page, "#keep-note").replace(" M", "\u202fM"), self.text(page, "#keep-note")
        assert "are left" in self.text(page, "#keep-note")

    def test_a_full_or_closed_storage_is_told(self):
        page = self.open_fake()
        page.evaluate("window.set = Storage.prototype.setItem; Storage.prototype.setItem = () => { throw new DOMException('full', 'QuotaExceededError'); }")
        self.answer(page, "Full?", "Yes.")
        assert self.text(page, "#keep-note") == "This chat is not kept: the browser has no more room for this page. Delete or export chats to make room."
        assert self.text(page, ".answer .said") == "Yes."
        page.evaluate("Storage.prototype.setItem = set")
        self.answer(page, "Now?", "Yes.")
        assert not page.evaluate("document.getElementById('keep-note').checkVisibility()") and len(self.kept(page)[0]) == 5
        page.evaluate("Object.defineProperty(window, 'localStorage', {get() { throw new DOMException('Access is denied', 'SecurityError'); }}); 0")
        self.answer(page, "Closed?", "Yes.")
        assert "Access is denied" in self.text(page, "#keep-note")
        self.click(page, "#open-library")
        assert "keeps nothing for this page: Access is denied" in self.text(page, "#kept-room")

    def test_unreadable_entries_are_shown(self):
        page = self.open()
        self.put(page, a="{oops", b=GOOD, c=json.dumps({"title": "half"}))
        self.click(page, "#open-library")
        assert self.count(page, "#kept li") == 3
        names = page.evaluate("[...document.querySelectorAll('#kept .name')].map((e) => e.textContent)")
        assert names == ["Named", "Unreadable chat", "Unreadable chat"], names
        self.click(page, "#kept li:last-child [aria-label=Delete]")
        self.click(page, "#kept li:nth-child(2) [aria-label=Delete]")
        assert len(self.kept(page)) == 1
        self.sound(page)

    def test_two_tabs_keep_both_chats(self):
        page = self.open_fake()
        self.answer(page, "Shared?", "Yes.")
        other = page.beside(self.server.url + "/")
        other.wait_for("engine.state")
        other.evaluate((pathlib.Path(__file__).resolve().parent / "fake_stream.js").read_text())
        other.evaluate("(({id}) => showConversation(Conversation.from(readKept(id), id)))(keptChats()[0])")
        self.answer(other, "From the other?", "Other.")
        self.answer(page, "From the first?", "First.")
        assert sorted(self.kept(page)) == [["Shared?", "Shared?", "Yes.", "From the other?", "Other."], ["Shared? (copy)", "Shared?", "Yes.", "From the first?", "First."]]
        # An open list shows changes that other tabs make.
        self.click(page, "#open-library")
        other.evaluate("localStorage.clear()")
        page.wait_for("document.querySelectorAll('#kept li').length === 0")
