#!/usr/bin/env python3
"""Tests chat formats of plugins through the server: tests/plugin/chat_formats_test.py TESSERA PLUGINS

PLUGINS is the folder of the test plugins and of the examples' plugins, as the build made them. scripted_sampler makes
the model say a given text, one token for each byte, so that a stream is cut after every byte. Catches: a format that is
not called, or is called for parts that it cannot parse; a call, argument or reasoning that is lost, doubled or put into
the wrong field when the text is cut; and a broken format that ends the server or whose error does not reach the client.

The last line is "N passed, N failed"."""

import asyncio
import json
import pathlib
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "server"))
from served import MODEL, Served, run_cases  # noqa: E402  (the folder is known now)

FLAGS = ["--piecewise-cuda-graph-tokens", "16", "--cuda-graph-bs", "1", "--context-length", "512", "--chat-template",
         "{% for m in messages %}{{ m.content }}{% endfor %}{% if tools and false %}tools{% endif %}"]
PROMPT_TOKENS = 2  # length of QUESTION
OPENED_TOKENS = 8  # length of "hi[[why "
QUESTION = [{"role": "user", "content": "hi"}]
TOOLS = [{"type": "function", "function": {"name": name, "parameters": {"type": "object"}}} for name in ("get_weather", "f")]
TEXT = '[[why ünïcode, and [[1]]I [[call me. [[call get_weather {"city": "Øslo [[]]", "days": [[1], [2]]}]] [[call f {}]]Wait.'
REASONING, CONTENT = "ünïcode, and [[1", "I [[call me.  Wait."
CALLS = [("get_weather", {"city": "Øslo [[]]", "days": [[1], [2]]}), ("f", {})]


def bytes_of_tokens():
    """Returns the vocabulary's character for each byte in byte-level BPE."""
    shown = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    hidden = [byte for byte in range(256) if byte not in shown]
    return {**{byte: chr(byte) for byte in shown}, **{byte: chr(256 + n) for n, byte in enumerate(hidden)}}


def script_of(text):
    """Returns the ids of one token for each byte, followed by the one that ends the text."""
    vocabulary = json.loads((MODEL / "tokenizer.json").read_text())["model"]["vocab"]
    letters = bytes_of_tokens()
    end = json.loads((MODEL / "generation_config.json").read_text())["eos_token_id"][0]
    return [*(vocabulary[letters[byte]] for byte in text.encode()), end]


class Cases:
    def __init__(self, tessera, plugins):
        self.tessera, self.plugins = tessera, pathlib.Path(plugins)

    def _served(self, text, format_plugin, *flags, **environment):
        plugins = [word for name in (format_plugin, "scripted_sampler")
                   for word in ("--plugin", str(self.plugins / f"{name}.so"))]
        script = {"TESSERA_TEST_SCRIPT": ",".join(map(str, script_of(text))),
                  "TESSERA_TEST_SCRIPT_FROM": str(PROMPT_TOKENS)}
        return Served(self.tessera, [*FLAGS, *plugins, *flags], environment={**script, **environment})

    def _ask(self, server, **members):
        status, answer = server.post("/v1/chat/completions", {"messages": QUESTION, "max_tokens": 400, **members})
        assert status == 200, answer
        assert answer["usage"]["prompt_tokens"] == PROMPT_TOKENS, f"the script begins elsewhere: {answer}"
        return answer["choices"][0]

    def _stream(self, server, **members):
        """Returns (reasoning, content, [(name, arguments)], finish reason, number of chunks)."""
        events = asyncio.run(server.stream("/v1/chat/completions", {"messages": QUESTION, "max_tokens": 400, **members}))
        chunks = [event["choices"][0] for event in events]
        reasoning, content, calls, ids = "", "", [], set()
        for chunk in chunks:
            delta = chunk["delta"]
            reasoning += delta.get("reasoning_content") or ""
            content += delta.get("content") or ""
            for call in delta.get("tool_calls", []):
                if "id" in call:
                    assert call["index"] == len(calls) and call["id"] not in ids, chunks
                    ids.add(call["id"])
                    calls.append([call["function"]["name"], ""])
                calls[call["index"]][1] += call["function"]["arguments"]
        return reasoning, content, [tuple(call) for call in calls], chunks[-1]["finish_reason"], len(chunks)

    def both_parts_are_found_in_whole_texts_and_in_streams(self):
        with self._served(TEXT, "bracket", "--reasoning-parser", "bracket", "--tool-call-parser", "bracket") as server:
            choice = self._ask(server, tools=TOOLS)
            message = choice["message"]
            assert (message["reasoning_content"], message["content"]) == (REASONING, CONTENT), message
            called = [(call["function"]["name"], json.loads(call["function"]["arguments"])) for call in message["tool_calls"]]
            assert called == CALLS and choice["finish_reason"] == "tool_calls", message
            reasoning, content, calls, finish, chunks = self._stream(server, tools=TOOLS)
            assert (reasoning, content, finish) == (REASONING, CONTENT, "tool_calls"), (reasoning, content, finish)
            assert [(name, json.loads(arguments)) for name, arguments in calls] == CALLS, calls
            assert chunks > len(REASONING) + len(CONTENT), "the pieces come as they are written"
            # If only the reasoning or only the calls are parsed, the text of the other part stays in the content.
            assert self._ask(server)["message"]["content"].startswith("I [[call me. [[call get_weather {"), "no tools"
            plain = self._ask(server, tools=TOOLS, separate_reasoning=False)["message"]
            assert plain["content"] == TEXT[:TEXT.index("[[call g")] + " Wait." and len(plain["tool_calls"]) == 2, plain
            alone = self._ask(server, tools=TOOLS, parallel_tool_calls=False)["message"]
            assert [call["function"]["name"] for call in alone["tool_calls"]] == ["get_weather"], alone
            # Cuts texts in the middle of a part.
            for most in range(1, len(TEXT.encode()), 7):
                whole = self._ask(server, tools=TOOLS, max_tokens=most)["message"]
                reasoning, content, calls, _, _ = self._stream(server, tools=TOOLS, max_tokens=most)
                assert (whole["reasoning_content"] or "", whole["content"] or "") == (reasoning, content), most
                given = [(c["function"]["name"], c["function"]["arguments"]) for c in whole.get("tool_calls", [])]
                assert given == calls, (most, given, calls)
            info = json.loads(server.get("/get_server_info")[1])
            assert (info["tool_call_parser"], info["reasoning_parser"]) == ("bracket", "bracket"), info

    def a_format_goes_with_one_of_the_servers_own(self):
        text = '<think>so</think>[[call f {"x": 1}]]'
        with self._served(text, "bracket", "--reasoning-parser", "qwen3", "--tool-call-parser", "bracket") as server:
            message = self._ask(server, tools=TOOLS)["message"]
            assert message["reasoning_content"] == "so" and message["content"] is None, message
            assert message["tool_calls"][0]["function"] == {"name": "f", "arguments": '{"x": 1}'}, message

    def a_text_may_begin_inside_the_reasoning(self):
        template = "{{ messages[0].content }}[[why "
        with self._served("so]]I see.", "bracket", "--reasoning-parser", "bracket",
                          TESSERA_TEST_SCRIPT_FROM=str(OPENED_TOKENS)) as server:
            asked = {"messages": QUESTION, "chat_template": template}
            status, answer = server.post("/v1/chat/completions", {**asked, "max_tokens": 400})
            assert status == 200 and answer["usage"]["prompt_tokens"] == OPENED_TOKENS, answer
            message = answer["choices"][0]["message"]
            assert (message["reasoning_content"], message["content"]) == ("so", "I see."), message
            assert answer["usage"]["completion_tokens_details"]["reasoning_tokens"] >= len("so"), answer["usage"]
            # Ends a stream inside the reasoning.
            events = asyncio.run(server.stream("/v1/chat/completions", {**asked, "max_tokens": 2}))
            deltas = [event["choices"][0]["delta"] for event in events]
            assert "".join(delta.get("reasoning_content") or "" for delta in deltas) == "so", deltas

    def what_is_no_call_is_content(self):
        for text in ("[[call nobody {}]]", "[[call f", '[[call f {"x": oops}]]', "[[call [[call f {}]]"):
            with self._served(text, "bracket", "--tool-call-parser", "bracket") as server:
                message = self._ask(server, tools=TOOLS)["message"]
                if text.startswith("[[call f {"):  # invalid arguments: valid up to the fault, content from there on
                    assert message["tool_calls"][0]["function"]["arguments"] == '{"x": ', message
                    assert message["content"] == "oops}", message
                elif text.startswith("[[call [["):
                    assert message["content"] == "[[call " and len(message["tool_calls"]) == 1, message
                else:
                    assert message["content"] == text and "tool_calls" not in message, message

    def a_faulty_format_ends_its_request_alone(self):
        words = {"begin": "the format does not begin", "finish": "the format does not end",
                 "error": "the format has had enough", "throws": "threw an exception, which it must not: out of the blue",
                 "long": "it gave a piece of 1099511627776 bytes", "ignores": "it gave a piece of 1099511627776 bytes",
                 "null": "it gave a piece of 7 bytes at null", "kind": "it gave a piece of kind 9; accepted are content",
                 "reasons": "it gave a piece of kind 1; accepted are content", "latin": "that is no UTF-8 at byte",
                 "no_call": "it gave arguments before a call", "no_name": "it gave a call without a name",
                 "unknown": "it called \"nobodys_function\", which is not a function of the request",
                 "half": "it began a call of \"f\" before the arguments of \"f\" were a whole object"}
        for fault, said in words.items():
            with self._served("A text of more than twenty bytes.", "faulty_format", "--tool-call-parser", "faulty",
                              TESSERA_TEST_FAULT=fault) as server:
                status, answer = server.post("/v1/chat/completions", {"messages": QUESTION, "max_tokens": 60, "tools": TOOLS})
                assert status == 500, (fault, status, answer)
                assert "chat format faulty: " in answer["error"]["message"] and said in answer["error"]["message"], answer
                streamed = {"messages": QUESTION, "max_tokens": 60, "tools": TOOLS}
                if fault == "begin":  # fails before the stream begins, so it has its own status
                    status, answer = server.post("/v1/chat/completions", {**streamed, "stream": True})
                    assert status == 500 and said in answer["error"]["message"], (status, answer)
                else:
                    events = asyncio.run(server.stream("/v1/chat/completions", streamed))
                    assert events and said in events[-1]["error"]["message"], (fault, events)
                assert "more than" in self._ask(server)["message"]["content"], "a request without tools is answered"
                assert server.get("/health")[0] == 200, fault

    def names_are_checked_at_the_start(self):
        def refused(*flags):
            ended = subprocess.run([self.tessera, "serve", "--model-path", str(MODEL), "--port", "0", *flags],
                                   capture_output=True, text=True, timeout=60, check=False)
            assert ended.returncode != 0 and ended.stdout == "", ended
            return ended.stderr
        bracket = ["--plugin", str(self.plugins / "bracket.so")]
        assert "\"bracket\" is not accepted" in refused("--tool-call-parser", "bracket"), "without its plugin"
        assert "glm45, " in refused(*bracket, "--tool-call-parser", "racket"), "the server's own are named"
        assert "bracket, none is" in refused(*bracket, "--tool-call-parser", "racket"), "and the plugin's"
        assert "\"faulty\" is not accepted" in refused("--plugin", str(self.plugins / "faulty_format.so"),
                                                       "--reasoning-parser", "faulty"), "it finds calls alone"


if __name__ == "__main__":
    passed, failed = run_cases(Cases(*sys.argv[1:]))
    print(f"{passed} passed, {failed} failed")
    sys.exit(0 if failed == 0 else 1)
