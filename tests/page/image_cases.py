"""Images in a question. Catches: a way to add one (drop, paste, choose) that does not work, or that leaves the page for
the file; images that are not shown, not sent, sent in another order, or lost by editing, keeping or exporting; files
that are accepted and are not images."""

import json

from page_case import PHONE, PageCase

# Makes files for the page. Their bytes are not images, which only the server would notice.
FILES = """
window.file = (name, type, size = 3) => new File([new Uint8Array(size).fill(65)], name, {type});
window.transfer = (...files) => { const made = new DataTransfer(); for (const f of files) made.items.add(f); return made; };
window.drop = (...files) => ["dragover", "drop"].map((kind) => {
    const event = new DragEvent(kind, {bubbles: true, cancelable: true, dataTransfer: transfer(...files)});
    document.getElementById("input").dispatchEvent(event);
    return event.defaultPrevented;
});
"""
PNG = "data:image/png;base64,QUFB"
JPEG = "data:image/jpeg;base64,QUFB"


def image(url):
    return {"type": "image_url", "image_url": {"url": url}}


class ImageCases(PageCase):
    def open_seeing(self, reads=True, look=PHONE):
        """Opens a page that believes that its model reads images."""
        page = self.open_fake(look)
        page.evaluate(FILES)
        if reads:
            page.evaluate("showWelcome({...engine.state.model, images: true})")
        return page

    def attached(self, page, count):
        page.wait_for(f"document.querySelectorAll('.attachment').length === {count}")

    def content(self, page, number):
        return self.asked(page, number)["messages"][-1]["content"]

    def test_dropped_images_are_sent_before_the_text(self):
        page = self.open_seeing()
        assert page.evaluate("drop(file('a.png', 'image/png'), file('b.jpg', 'image/jpeg'))") == [True, True]
        self.attached(page, 2)
        self.ask(page, "What is it?")
        assert self.content(page, 1) == [image(PNG), image(JPEG), {"type": "text", "text": "What is it?"}]
        assert self.count(page, ".turn.user .thumbnail") == 2
        assert self.count(page, ".attachment") == 0
        self.arrives(page, 1, "A cat.")
        self.answer(page, "Sure?", "Yes.")
        assert self.asked(page, 2)["messages"][0]["content"] == [image(PNG), image(JPEG), {"type": "text", "text": "What is it?"}]
        assert self.asked(page, 2)["messages"][-1]["content"] == "Sure?"
        self.sound(page)

    def test_pasted_images(self):
        page = self.open_seeing()
        page.evaluate("document.getElementById('input').dispatchEvent(new ClipboardEvent('paste', "
                      "{bubbles: true, cancelable: true, clipboardData: transfer(file('a.png', 'image/png'))}))")
        self.attached(page, 1)
        self.click(page, "#send")
        assert self.content(page, 1) == [image(PNG)], "a question may be an image alone"
        self.arrives(page, 1, "A cat.")
        assert page.evaluate("chat.now.toJson().messages[0]") == {"role": "user", "content": "", "images": [PNG]}

    def test_an_image_can_be_removed(self):
        page = self.open_seeing()
        page.evaluate("drop(file('a.png', 'image/png'), file('b.jpg', 'image/jpeg'))")
        self.attached(page, 2)
        self.click(page, "[aria-label='Remove image 1']")
        self.attached(page, 1)
        self.ask(page, "And?")
        assert self.content(page, 1) == [image(JPEG), {"type": "text", "text": "And?"}]

    def test_what_is_no_image_is_named(self):
        page = self.open_seeing()
        page.evaluate("drop(file('a.svg', 'image/svg+xml'), file('b.png', 'image/png', (20 << 20) + 1), file('c.png', 'image/png'))")
        self.attached(page, 1)
        note = self.text(page, "#image-note")
        assert "a.svg is not taken; PNG, JPEG, WebP, GIF and BMP are" in note and "b.png has 20.0 MiB" in note, note
        page.evaluate("drop(...Array.from({length: 17}, () => file('c.png', 'image/png')))")
        self.attached(page, 16)
        assert "up to 16 images" in self.text(page, "#image-note")
        self.sound(page)

    def test_a_model_of_texts_takes_none(self):
        page = self.open_seeing(reads=False)
        assert not page.evaluate("document.getElementById('attach').checkVisibility()")
        assert page.evaluate("drop(file('a.png', 'image/png'))") == [True, True], "or the browser leaves the page"
        page.wait_for("!document.getElementById('image-note').hidden")
        assert "this model reads no images" in self.text(page, "#image-note")
        assert self.count(page, ".attachment") == 0

    def test_images_stay_with_their_question(self):
        page = self.open_seeing()
        page.evaluate("drop(file('a.png', 'image/png'))")
        self.attached(page, 1)
        self.answer(page, "What?", "A cat.")
        self.click(page, ".exchange:last-child [aria-label=Edit]")
        page.evaluate("document.querySelector('.edit textarea').value = 'Who?'")
        self.click(page, ".edit .main")
        assert self.content(page, 2) == [image(PNG), {"type": "text", "text": "Who?"}]
        self.arrives(page, 2, "A cat.")
        kept = page.evaluate("Conversation.from(readKept(chat.now.id), chat.now.id).toJson()")
        assert kept["messages"][0] == {"role": "user", "content": "Who?", "images": [PNG]}
        assert f"![Image 1]({PNG})\n\nWho?" in page.evaluate(f"exportedMarkdown({json.dumps(kept)})")
        for wrong in ("http://example.com/a.png", "data:image/svg+xml;base64,QUFB", 5):
            kept["messages"][0]["images"] = [wrong]
            told = page.evaluate(f"(() => {{ try {{ checkChat({json.dumps(kept)}); }} catch (error) {{ return error.message; }} }})()")
            assert "\"images\" of messages[0]" in told, told
