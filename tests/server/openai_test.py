#!/usr/bin/env python3
"""Tests the server with OpenAI's own client: tests/server/openai_test.py TESSERA BUILD_FOLDER [--record]

Catches: answers that the widely used client cannot read, missing fields or fields of another type, and errors that do
not become its exceptions.

The client is installed from PyPI at the versions of openai_requirements.txt, into BUILD_FOLDER/openai-client. If it
cannot be installed, the requests recorded in tests/data/server/openai_exchanges.json (--record) are sent again, and the
answers are compared with the recorded ones: status, fields and types. The last line is "N passed, N failed"."""

import argparse
import contextlib
import json
import pathlib
import subprocess
import sys

from served import ROOT, Served, run_cases

RECORD = ROOT / "tests" / "data" / "server" / "openai_exchanges.json"
REQUIREMENTS = pathlib.Path(__file__).with_name("openai_requirements.txt")
HERMES = ROOT / "tests" / "data" / "server" / "hermes.jinja"
KEY = "a-key"
NAME = "demo"
SERVERS = {
    "plain": ["--api-key", KEY, "--served-model-name", NAME, "--enable-deterministic-inference"],
    "tools": ["--served-model-name", NAME, "--chat-template", str(HERMES), "--enable-deterministic-inference"],
    "embeddings": ["--api-key", KEY, "--served-model-name", NAME, "--is-embedding", "--enable-deterministic-inference"],
}
WEATHER = {"type": "function", "function": {"name": "weather", "description": "of a city", "parameters": {
    "type": "object", "properties": {"city": {"enum": ["Oslo"]}}, "required": ["city"], "additionalProperties": False}}}


def shape(value):
    """Returns the fields and types of an answer, which do not depend on the machine's arithmetic."""
    if isinstance(value, dict):
        if value and all(isinstance(item, float) for item in value.values()):
            return "numbers by token"  # top_logprobs of completions
        return {key: shape(item) for key, item in value.items()}
    if isinstance(value, list):
        shapes = []
        for item in map(shape, value):
            if item not in shapes:
                shapes.append(item)
        return sorted(shapes, key=json.dumps)
    return "number" if isinstance(value, (int, float)) and not isinstance(value, bool) else type(value).__name__


def shape_of_body(body):
    text = body.decode()
    if not text.startswith("data: "):
        return shape(json.loads(text))
    events = [line[len("data: "):] for line in text.splitlines() if line.startswith("data: ")]
    return shape([json.loads(event) for event in events if event != "[DONE]"])


def import_client(build):
    """Returns the module openai, or None and the reason."""
    home = pathlib.Path(build) / "openai-client"
    try:
        if not (home / "openai").is_dir():
            subprocess.run([sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps",
                            "--require-hashes", "--target", str(home), "-r", str(REQUIREMENTS)],
                           check=True, capture_output=True, timeout=180)
        sys.path.insert(0, str(home))
        import openai
        return openai, ""
    except (ImportError, OSError, subprocess.SubprocessError) as error:
        reason = getattr(error, "stderr", b"") or str(error).encode()
        return None, reason.decode(errors="replace").strip().splitlines()[-1:]


class Exchanges:
    """Records the exchanges on the wire through an event hook of the client's transport."""

    def __init__(self):
        self.kept = []

    def hook(self, server):
        def keep(response):
            response.read() if not response.request.extensions.get("stream") else None
            request = response.request
            body = request.content.decode() if request.content else None
            self.kept.append({"server": server, "method": request.method, "path": request.url.path, "body": body,
                              "key": "Authorization" in request.headers and KEY in request.headers["Authorization"],
                              "status": response.status_code})
        return keep


class Cases:
    def __init__(self, openai, plain, tools, embeddings):
        self.openai = openai
        self.plain = plain
        self.tools = tools
        self.embedding_server = embeddings

    def completion(self):
        done = self.plain.completions.create(model=NAME, prompt="Once upon a time", max_tokens=8, temperature=0)
        assert done.object == "text_completion" and done.model == NAME
        assert len(done.choices[0].text) > 5 and done.choices[0].finish_reason == "length"
        assert done.usage.completion_tokens == 8
        assert done.usage.total_tokens == done.usage.prompt_tokens + 8

    def completion_of_many_prompts_and_choices(self):
        done = self.plain.completions.create(model=NAME, prompt=["Once upon a time", "The cat"], n=2, max_tokens=6,
                                             temperature=1, seed=3)
        assert [c.index for c in done.choices] == [0, 1, 2, 3]
        assert len({c.text for c in done.choices}) == 4
        again = self.plain.completions.create(model=NAME, prompt=["Once upon a time", "The cat"], n=2, max_tokens=6,
                                              temperature=1, seed=3)
        assert [c.text for c in again.choices] == [c.text for c in done.choices], "same seed, same texts"

    def completion_logprobs_and_echo(self):
        done = self.plain.completions.create(model=NAME, prompt="Once upon a time", max_tokens=4, temperature=0,
                                             logprobs=3, echo=True)
        told = done.choices[0].logprobs
        assert done.choices[0].text.startswith("Once upon a time")
        assert "".join(told.tokens) == done.choices[0].text
        assert told.token_logprobs[0] is None and all(x <= 0 for x in told.token_logprobs[1:])
        assert all(len(top) >= 3 for top in told.top_logprobs[1:])
        assert told.text_offset == [len("".join(told.tokens[:i])) for i in range(len(told.tokens))]

    def completion_stream(self):
        whole = self.plain.completions.create(model=NAME, prompt="The dog", max_tokens=12, temperature=0)
        chunks = list(self.plain.completions.create(model=NAME, prompt="The dog", max_tokens=12, temperature=0,
                                                    stream=True, stream_options={"include_usage": True}))
        assert "".join(c.choices[0].text for c in chunks if c.choices) == whole.choices[0].text
        assert chunks[-1].usage.completion_tokens == 12 and not chunks[-1].choices
        assert [c.choices[0].finish_reason for c in chunks if c.choices][-1] == "length"

    def stop_strings(self):
        whole = self.plain.completions.create(model=NAME, prompt="Once upon a time", max_tokens=30, temperature=0)
        stop = whole.choices[0].text[12:16]
        done = self.plain.completions.create(model=NAME, prompt="Once upon a time", max_tokens=30, temperature=0,
                                             stop=[stop])
        assert done.choices[0].finish_reason == "stop"
        assert done.choices[0].text == whole.choices[0].text[:whole.choices[0].text.index(stop)]

    def logit_bias(self):
        done = self.plain.completions.create(model=NAME, prompt="The", max_tokens=3, temperature=0,
                                             logit_bias={"300": 100}, extra_body={"return_token_ids": True})
        only = self.plain.completions.create(model=NAME, prompt="The", max_tokens=1, temperature=0,
                                             logit_bias={"300": 100})
        assert done.choices[0].text == only.choices[0].text * 3

    def cached_tokens(self):
        prompt = "There was a little fox who lived in a wood with many friends, and " * 3
        for _ in range(2):
            done = self.plain.completions.create(model=NAME, prompt=prompt, max_tokens=1, temperature=0)
        assert done.usage.prompt_tokens_details.cached_tokens >= 16

    def chat(self):
        done = self.plain.chat.completions.create(
            model=NAME, temperature=0, max_tokens=20,
            messages=[{"role": "system", "content": "You tell stories."},
                      {"role": "user", "content": [{"type": "text", "text": "Tell me about foxes."}]}])
        assert done.object == "chat.completion"
        assert done.choices[0].message.role == "assistant" and len(done.choices[0].message.content) > 5
        assert done.choices[0].finish_reason in ("stop", "length")

    def chat_stream(self):
        ask = {"model": NAME, "temperature": 0, "max_tokens": 16,
               "messages": [{"role": "user", "content": "Tell me about cats."}]}
        whole = self.plain.chat.completions.create(**ask)
        chunks = list(self.plain.chat.completions.create(**ask, stream=True))
        assert chunks[0].choices[0].delta.role == "assistant"
        assert "".join(c.choices[0].delta.content or "" for c in chunks) == whole.choices[0].message.content
        assert chunks[-1].choices[0].finish_reason == whole.choices[0].finish_reason
        assert len({c.id for c in chunks}) == 1

    def chat_logprobs(self):
        done = self.plain.chat.completions.create(model=NAME, temperature=0, max_tokens=5, logprobs=True, top_logprobs=2,
                                                  messages=[{"role": "user", "content": "Tell me about dogs."}])
        told = done.choices[0].logprobs.content
        assert "".join(t.token for t in told) == done.choices[0].message.content
        for token in told:
            assert len(token.top_logprobs) == 2 and token.top_logprobs[0].logprob == token.logprob
            assert bytes(token.bytes).decode() == token.token

    def json_schema(self):
        schema = {"type": "object", "properties": {"colour": {"enum": ["red", "blue"]}, "many": {"type": "boolean"}},
                  "required": ["colour", "many"], "additionalProperties": False}
        done = self.plain.chat.completions.create(
            model=NAME, temperature=0, max_tokens=400, messages=[{"role": "user", "content": "A ball."}],
            response_format={"type": "json_schema", "json_schema": {"name": "ball", "schema": schema}})
        told = json.loads(done.choices[0].message.content)
        assert told["colour"] in ("red", "blue") and isinstance(told["many"], bool)

    def tool_call(self):
        ask = {"model": NAME, "temperature": 0, "max_tokens": 400, "frequency_penalty": 2, "parallel_tool_calls": False, "tools": [WEATHER], "tool_choice": "required",
               "messages": [{"role": "user", "content": "How is the weather?"}]}
        done = self.tools.chat.completions.create(**ask)
        assert done.choices[0].finish_reason == "tool_calls", done
        call = done.choices[0].message.tool_calls[0]
        assert call.type == "function" and call.function.name == "weather"
        assert json.loads(call.function.arguments) == {"city": "Oslo"}

        name, arguments, finish = "", "", None
        for chunk in self.tools.chat.completions.create(**ask, stream=True):
            for delta in chunk.choices[0].delta.tool_calls or []:
                assert delta.index == 0
                name += delta.function.name or ""
                arguments += delta.function.arguments or ""
            finish = chunk.choices[0].finish_reason or finish
        assert (name, json.loads(arguments), finish) == ("weather", {"city": "Oslo"}, "tool_calls")

    def tool_results(self):
        done = self.tools.chat.completions.create(
            model=NAME, temperature=0, max_tokens=8, tools=[WEATHER], tool_choice="none",
            messages=[{"role": "user", "content": "How is the weather?"},
                      {"role": "assistant", "content": None, "tool_calls": [
                          {"id": "call_1", "type": "function",
                           "function": {"name": "weather", "arguments": "{\"city\": \"Oslo\"}"}}]},
                      {"role": "tool", "tool_call_id": "call_1", "content": "Sunny."}])
        assert done.choices[0].message.tool_calls is None

    def models(self):
        assert [m.id for m in self.plain.models.list()] == [NAME]
        assert self.plain.models.retrieve(NAME).object == "model"

    def errors(self):
        openai = self.openai
        expected = [
            (openai.NotFoundError, {"model": "another", "prompt": "x"}),
            (openai.BadRequestError, {"model": NAME, "prompt": "x", "temperature": -1}),
            (openai.BadRequestError, {"model": NAME, "prompt": "word " * 5000}),
            (openai.BadRequestError, {"model": NAME, "prompt": "x", "max_tokens": "many"}),
        ]
        for kind, ask in expected:
            try:
                self.plain.completions.create(**ask)
            except kind as error:
                assert error.body["message"] and error.body["type"] == "invalid_request_error", error.body
            else:
                raise AssertionError(f"{ask} was taken")
        try:
            self.plain.with_options(api_key="wrong").models.list()
        except openai.AuthenticationError as error:
            assert error.code == "invalid_api_key"
        else:
            raise AssertionError("a wrong key was taken")
        try:
            self.plain.embeddings.create(model=NAME, input="x")
        except openai.BadRequestError as error:
            assert "--is-embedding" in error.message
        else:
            raise AssertionError("embeddings were made")

    def embeddings(self):
        made = self.embedding_server.embeddings.create(model=NAME, input=["A cat", "A dog"])
        assert made.object == "list" and made.model == NAME and made.usage.total_tokens == made.usage.prompt_tokens > 0
        assert [item.index for item in made.data] == [0, 1] and made.data[0].object == "embedding"
        vectors = [item.embedding for item in made.data]
        assert len(vectors[0]) > 8 and all(abs(sum(x * x for x in vector) - 1) < 1e-3 for vector in vectors)
        assert vectors[0] != vectors[1]
        # The client asks for base64 by default, and decodes it.
        plain = self.embedding_server.embeddings.create(model=NAME, input="A cat", encoding_format="float")
        assert all(abs(a - b) < 1e-6 for a, b in zip(plain.data[0].embedding, vectors[0], strict=True))

    def embeddings_of_fewer_dimensions_and_of_ids(self):
        made = self.embedding_server.embeddings.create(model=NAME, input=[[5, 6, 7], [8]], dimensions=8, user="me")
        assert [len(item.embedding) for item in made.data] == [8, 8]
        assert all(abs(sum(x * x for x in item.embedding) - 1) < 1e-3 for item in made.data)
        assert made.usage.prompt_tokens == 4

    def embeddings_that_cannot_be_made(self):
        for wrong in ({"input": ""}, {"input": []}, {"input": "a", "dimensions": 0}, {"input": [1 << 30]}):
            try:
                self.embedding_server.embeddings.create(model=NAME, **wrong)
            except self.openai.BadRequestError as error:
                assert error.body["message"] and error.body["param"] in wrong, error.body
            else:
                raise AssertionError(f"{wrong} was taken")
        try:
            self.embedding_server.completions.create(model=NAME, prompt="a")
        except self.openai.BadRequestError as error:
            assert "/v1/embeddings" in error.message
        else:
            raise AssertionError("an embedding model generated text")


def replay(servers):
    passed = failed = 0
    for exchange in json.loads(RECORD.read_text()):
        headers = {"Authorization": f"Bearer {KEY if exchange['key'] else 'wrong'}"}
        status, _, body = servers[exchange["server"]].request(exchange["method"], exchange["path"], exchange["body"],
                                                             headers)
        good = status == exchange["status"] and shape_of_body(body) == exchange["answer"]
        passed += good
        failed += not good
        if not good:
            print(f"FAILED: {exchange['method']} {exchange['path']} {exchange['body']}: {status} {body.decode()[:400]}")
    return passed, failed


def record(servers, exchanges):
    for exchange in exchanges:
        headers = {"Authorization": f"Bearer {KEY if exchange['key'] else 'wrong'}"}
        _, _, body = servers[exchange["server"]].request(exchange["method"], exchange["path"], exchange["body"], headers)
        exchange["answer"] = shape_of_body(body)
    RECORD.write_text(json.dumps(exchanges, indent=1, ensure_ascii=False) + "\n")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("tessera")
    parser.add_argument("build")
    parser.add_argument("--record", action="store_true")
    options = parser.parse_args()
    openai, why_not = import_client(options.build)
    with contextlib.ExitStack() as running:
        servers = {name: running.enter_context(Served(options.tessera, flags)) for name, flags in SERVERS.items()}
        if openai is None:
            print(f"the client cannot be had, its recorded requests are sent instead: {why_not}")
            passed, failed = replay(servers)
        else:
            kept = Exchanges()
            clients = []
            for name, server in servers.items():
                client = openai.OpenAI(base_url=f"http://127.0.0.1:{server.port}/v1", api_key=KEY, max_retries=0)
                client._client.event_hooks["response"].append(kept.hook(name))
                clients.append(client)
            passed, failed = run_cases(Cases(openai, *clients))
            if options.record and not failed:
                record(servers, kept.kept)
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
