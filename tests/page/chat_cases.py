"""The page's chat. Catches: answers that do not stream in or cannot be stopped; wrong token counts, times and rates,
above all when bytes arrive together; errors before and within a stream that are not shown; settings that are not
sent."""

import re

from page_case import DESKTOP, PageCase

# The speed of answers depends on how server and browser share the machine, so these scripts control the page's pace.
# The first draws each event before it takes the next one:
ONE_EVENT_A_FRAME = """{const made = postEvents; postEvents = async function* (...request) {
    for await (const event of made(...request)) {
        yield event;
        await new Promise(requestAnimationFrame);
    }
}}"""
# Holds back an answer after its 30th event until the answer is stopped:
HOLD_UNTIL_STOPPED = """{const made = postEvents; postEvents = async function* (path, body, signal) {
    const stopped = new Promise((resolve) => signal.addEventListener("abort", resolve));
    let taken = 0;
    for await (const event of made(path, body, signal)) {
        yield event;
        if (++taken === 30) await stopped;
    }
}}"""


class ChatCases(PageCase):
    def facts(self, page):
        return self.text(page, ".exchange:last-child .facts").replace("\u202f", " ")

    def test_chat_streams_an_answer(self):
        page = self.open()
        assert self.text(page, "#welcome-title") == "Chat with demo"
        # Collects the lengths of the growing answer.
        page.evaluate("""window.lengths = new Set(); new MutationObserver(() =>
            lengths.add(document.querySelector('.answer .said')?.textContent.length)).observe(
            document.getElementById('log'), {subtree: true, childList: true, characterData: true})""")
        page.evaluate(ONE_EVENT_A_FRAME)
        self.chats(page, "Tell me a story about a clever otter.")
        assert self.text(page, ".turn.user .said") == "Tell me a story about a clever otter."
        assert len(self.text(page, ".answer .said")) > 20
        assert page.evaluate("lengths.size") > 10, "the answer came at once"
        assert re.fullmatch(r"\d+ tokens · first after \S+ \S+ · [\d ]+(\.\d)? tokens/s", self.facts(page)), self.facts(page)
        self.chats(page, "Where do foxes live?")
        assert self.count(page, ".turn") == 4
        assert page.evaluate("document.getElementById('announcer').textContent.length") > 5, "screen readers hear nothing"
        self.sound(page)
        self.click(page, "#new-chat")
        assert page.evaluate("document.getElementById('log').childElementCount === 0 && !document.getElementById('welcome').hidden")

    def test_tokens_that_come_together_have_one_time(self):
        page = self.open_fake()
        self.ask(page, "Count.")
        self.asked(page, 1)
        # The first bytes have 3 tokens. Two groups of 10 follow half a second apart, and each is read together with its
        # last event.
        page.evaluate("""(async () => {
            await fake.arrive(1200, fake.chunk("a", 1) + fake.chunk("b", 2) + fake.chunk("c", 3));
            await fake.arrive(1700, fake.chunk("d", 12) + fake.chunk("e", 13));
            await fake.arrive(2200, fake.chunk("f", 23, {finish_reason: "stop"}) + fake.event({choices: [], usage: {completion_tokens: 23}}));
            fake.end(9000);
        })()""")
        self.ended(page)
        assert self.facts(page) == "23 tokens · first after 200 ms · 20 tokens/s", self.facts(page)
        assert self.text(page, ".answer .said") == "abcdef"

    def test_answers_show_how_many_drafts_were_kept(self):
        page = self.open_fake()
        self.ask(page, "Count.")
        self.asked(page, 1)
        page.evaluate("""(async () => {
            await fake.arrive(1200, fake.chunk("a", 1));
            await fake.arrive(2200, fake.chunk("b", 11, {finish_reason: "stop"}) + fake.event({choices: [], usage: {completion_tokens: 11,
                completion_tokens_details: {reasoning_tokens: 0, accepted_prediction_tokens: 7, rejected_prediction_tokens: 5}}}));
            fake.end(2200);
        })()""")
        self.ended(page)
        assert self.facts(page) == "11 tokens · first after 200 ms · 10 tokens/s · 7 of 12 drafts kept", self.facts(page)

    def test_rates_are_never_in_exponent_form(self):
        page = self.open_fake()
        for number, (tokens, shown) in enumerate(((123456, "123 455 tokens/s"), (1235, "1 234 tokens/s"), (3, "2.0 tokens/s"), (1000001, "1.00 M tokens/s")), 1):
            page.evaluate("fake.now = 1000")
            self.ask(page, "Count.")
            self.asked(page, number)
            page.evaluate(f"(async () => {{ await fake.arrive(1000, fake.chunk('a', 1)); await fake.arrive(2000, fake.chunk('b', {tokens})); fake.end(2000); }})()")
            self.ended(page, number)
            assert self.facts(page).endswith(" · " + shown), self.facts(page)
        texts = page.evaluate("[0, 0.04, 9.96, 999, 999499, 999999, 1e6, 999.9e6, 12345678901, 1e15].flatMap((n) => [countText(n), rateText(n), axisText(n)])")
        assert not [text for text in texts if re.search(r"\de", text)], texts

    def test_short_answers_have_the_rate_of_their_whole_time(self):
        page = self.open_fake()
        for number, (end, shown) in enumerate(((1300, "40 tokens · first after 300 ms · 133 tokens/s in all"), (1320, "40 tokens · first after 300 ms · 125 tokens/s in all"),
                                               (1350, "40 tokens · first after 300 ms · 780 tokens/s")), 1):
            page.evaluate("fake.now = 1000")
            self.ask(page, "Quick.")
            self.asked(page, number)
            first = 40 if end == 1300 else 1
            page.evaluate(f"""(async () => {{
                await fake.arrive(1300, fake.chunk('a', {first}));
                if ({end} > 1300) await fake.arrive({end}, fake.chunk('b', 40));
                fake.end({end});
            }})()""")
            self.ended(page, number)
            assert self.facts(page) == shown, self.facts(page)

    def test_events_cut_anywhere_are_put_together(self):
        page = self.open_fake()
        self.ask(page, "Cut.")
        self.asked(page, 1)
        # Sends every byte by itself: cuts are within "data:", within JSON, and within a letter of several bytes.
        page.evaluate("""(async () => {
            for (const byte of new TextEncoder().encode(fake.chunk("grüße 🦊", 1))) await fake.arrive(1000, new Uint8Array([byte]));
            fake.end(1000);
        })()""")
        self.ended(page)
        assert self.text(page, ".answer .said") == "grüße 🦊"

    def test_escape_stops_an_answer(self):
        page = self.open()
        # The model continues if end-of-text tokens do not end a text. With log-probabilities an answer is longer than
        # the browser's buffers, so a part of it is still unread when Escape is pressed.
        page.evaluate("{const made = requestBody; requestBody = (...given) => ({...made(...given), ignore_eos: true, max_tokens: 1500, "
                      "logprobs: true, top_logprobs: 20})}")
        page.evaluate(HOLD_UNTIL_STOPPED)
        self.ask(page, "Tell me a story about a brave fox.")
        page.wait_for("document.querySelector('.answer .said')?.textContent.length > 20")
        page.press("Escape", 27)
        page.wait_for("document.querySelector('.facts')?.textContent.includes('stopped')")
        assert not page.evaluate("document.getElementById('send').classList.contains('stop')")
        self.sound(page)
        self.click(page, "#tab-engine")
        page.wait_for("engine.state?.requests.running === 0")

    def test_errors_are_shown(self):
        page = self.open()
        self.fill(page, "max-tokens", "999999")
        self.chats(page, "Hello")
        assert "999999" in self.text(page, ".fault[role=alert]:not(#keep-note)")
        assert "context_length_exceeded" in self.text(page, ".answer .fault small")
        self.fill(page, "max-tokens", "")
        # The failed question stays and can be asked again. It is not sent along with later questions.
        self.click(page, "[aria-label='Answer again']")
        page.wait_for("document.querySelector('.exchange:last-child .fault') == null")
        self.ended(page)
        assert len(self.text(page, ".answer .said")) > 2
        assert self.count(page, ".exchange") == 1

    def test_a_failed_question_is_not_sent_again(self):
        page = self.open_fake()
        page.evaluate("fake.refusal = [429, {message: 'Too many requests wait.', type: 'overloaded', code: 'queue_full'}]")
        self.chats(page, "First")
        assert self.text(page, ".answer .fault") == "Too many requests wait.overloaded · queue_full"
        self.answer(page, "Second", "Yes.")
        assert page.evaluate("fake.requests[1].body.messages") == [{"role": "user", "content": "Second"}]

    def test_errors_within_a_stream_are_shown(self):
        page = self.open_fake()
        for number, (ending, shown) in enumerate((
                ("await fake.arrive(1000, fake.event({error: {message: 'The device is lost.', type: 'server_error'}}))", "The device is lost.server_error"),
                ("fake.end(1000, false)", "The answer broke off: the connection ended before the server was done."),
                ("fake.controller.error(new TypeError('network error'))", "network error"),
                ("await fake.arrive(1000, 'data: {oops\\n\\n')", "The server sent an event that is no JSON: {oops")), 1):
            self.ask(page, f"Question {number}")
            self.asked(page, number)
            # When the page gives up, it reads no more bytes, so the test does not await the last arrival.
            page.evaluate(f"(async () => {{ await fake.arrive(1000, fake.chunk('So far', 2)); {ending.replace('await ', '')}; }})()")
            self.ended(page, number)
            assert self.text(page, ".exchange:last-child .fault") == shown, self.text(page, ".exchange:last-child .fault")
            assert self.text(page, ".exchange:last-child .answer .said") == "So far", "what came is lost"
            page.evaluate("fake.controller = null")

    def test_thoughts_and_calls_are_shown(self):
        page = self.open_fake()
        self.ask(page, "Think.")
        self.asked(page, 1)
        page.evaluate("""(async () => {
            const delta = (json, tokens) => fake.event({choices: [{index: 0, delta: json}], usage: {completion_tokens: tokens}});
            await fake.arrive(2000, delta({reasoning_content: "Let me <b>see</b>"}, 3));
            await fake.arrive(4000, delta({content: "Done."}, 5));
            await fake.arrive(4000, delta({tool_calls: [{index: 0, function: {name: "look", arguments: '{"a"'}}]}, 7));
            await fake.arrive(4000, delta({tool_calls: [{index: 0, function: {arguments: ': 1}'}}]}, 9));
            fake.end(4000);
        })()""")
        self.ended(page)
        assert self.text(page, ".thought summary") == "Thought for 2.00 s"
        assert self.text(page, ".thought div") == "Let me <b>see</b>"
        assert self.text(page, ".call strong") == "look" and self.text(page, ".call pre") == '{\n  "a": 1\n}'
        self.ask(page, "And?")
        assert self.asked(page, 2)["messages"] == [{"role": "user", "content": "Think."}, {"role": "assistant", "content": "Done."},
                                                   {"role": "user", "content": "And?"}], "thoughts are sent"

    def test_a_model_without_a_template_continues_a_text(self):
        page = self.open_fake()
        page.evaluate("showWelcome({name: 'plain', chat: false})")
        self.ask(page, "Once upon")
        body = self.asked(page, 1)
        assert page.evaluate("fake.requests[0].path") == "/v1/completions"
        assert body["prompt"] == "Once upon" and body["max_tokens"] == 256 and "messages" not in body
        page.evaluate("""(async () => {
            await fake.arrive(1000, fake.event({choices: [{index: 0, text: " a time *", logprobs: null}], usage: {completion_tokens: 3}}));
            fake.end(1000);
        })()""")
        self.ended(page)
        assert self.text(page, ".answer .said") == "Once upon a time *"
        self.sound(page)


class KeyCases(PageCase):
    """With --api-key."""

    flags = ("--api-key", "secret")

    def test_the_key_is_asked_for(self):
        page = self.open(DESKTOP)
        assert page.evaluate("document.activeElement.id") == "api-key"
        page.type("secret")
        page.press("Escape", 27)
        page.wait_for("document.querySelector('#suggestions button')")
        self.chats(page, "Where do foxes live?")
        assert len(self.text(page, ".answer .said")) > 5
        assert page.evaluate("sessionStorage.getItem('tessera.api-key')") == "secret"
        assert page.evaluate("localStorage.length") == 1, "the chat is not kept"
        assert "secret" not in page.evaluate("JSON.stringify({...localStorage})"), "the key outlives its tab"
