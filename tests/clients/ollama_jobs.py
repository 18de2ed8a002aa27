"""Ollama's own client."""

import json
import urllib.request

import ollama
from jobs import KEY, NAME, URL, WORDS, check, fails_with, main

CLIENT = ollama.Client(host=URL, headers={"Authorization": f"Bearer {KEY}"})
OPTIONS = {"temperature": 0, "num_predict": 12, "num_ctx": 4096, "seed": 1, "repeat_penalty": 1.0}
ASK = {"model": NAME, "messages": [{"role": "user", "content": WORDS}], "options": OPTIONS, "keep_alive": "10m"}


def weather(city: str) -> str:
    """The weather of a city.

    Args:
      city: its name
    """
    return f"rain in {city}"


def chat():
    done = CLIENT.chat(**ASK)
    check(done.message.content and done.done and done.done_reason == "length", done)
    check(done.eval_count == 12 and done.prompt_eval_count > 0 and done.total_duration > done.eval_duration > 0, done)


def chat_stream():
    chunks = list(CLIENT.chat(**ASK, stream=True))
    text = "".join(chunk.message.content for chunk in chunks)
    check(text == CLIENT.chat(**ASK).message.content, text)
    check([chunk.done for chunk in chunks] == [False] * (len(chunks) - 1) + [True], chunks)


def generate():
    raw = CLIENT.generate(NAME, WORDS, raw=True, options=OPTIONS)
    rendered = CLIENT.generate(NAME, WORDS, system="Be brief.", options=OPTIONS)
    check(raw.response and rendered.response and raw.prompt_eval_count < rendered.prompt_eval_count, (raw, rendered))


def generate_stream():
    chunks = list(CLIENT.generate(NAME, WORDS, options=OPTIONS, stream=True, logprobs=True, top_logprobs=2))
    check("".join(chunk.response for chunk in chunks) == CLIENT.generate(NAME, WORDS, options=OPTIONS).response, chunks)
    check(len(chunks[0].logprobs[0].top_logprobs) == 2, chunks[0])


def tools():
    turn = {"role": "assistant", "tool_calls": [{"function": {"name": "weather", "arguments": {"city": "Oslo"}}}]}
    result = {"role": "tool", "tool_name": "weather", "content": weather("Oslo")}
    done = CLIENT.chat(NAME, [*ASK["messages"], turn, result], tools=[weather], options=OPTIONS)
    check(done.message.role == "assistant", done)


def structured():
    schema = {"type": "object", "properties": {"x": {"enum": [1, 2]}}, "required": ["x"], "additionalProperties": False}
    done = CLIENT.chat(**{**ASK, "options": {**OPTIONS, "num_predict": 200, "frequency_penalty": 2}}, format=schema)
    check(json.loads(done.message.content)["x"] in (1, 2), done)


def models():
    check(CLIENT.list().models[0].model == NAME, CLIENT.list())
    check(CLIENT.ps().models[0].size_vram > 0, CLIENT.ps())
    show = CLIENT.show(NAME)
    check("completion" in show.capabilities and show.modelinfo["general.parameter_count"] > 0, show)


def load():
    check(CLIENT.generate(NAME).done_reason == "load", "generate")
    check(CLIENT.chat(NAME, []).done_reason == "load", "chat")


def errors():
    gone = fails_with(ollama.ResponseError, lambda: CLIENT.chat("other", ASK["messages"]))
    check(gone.status_code == 404 and "other" in gone.error, gone)
    wrong = fails_with(ollama.ResponseError, lambda: CLIENT.chat(**{**ASK, "options": {"temperature": -1}}))
    check(wrong.status_code == 400 and "options.temperature" in wrong.error, wrong)
    vectors = fails_with(ollama.ResponseError, lambda: CLIENT.embed(NAME, "a"))
    check(vectors.status_code == 400 and "--is-embedding" in vectors.error, vectors)


def running():
    with urllib.request.urlopen(URL) as answer:
        check(answer.read() == b"Ollama is running", "the answer at /")


main(chat, chat_stream, generate, generate_stream, tools, structured, models, load, errors, running)
