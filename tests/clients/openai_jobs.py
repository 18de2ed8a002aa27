"""OpenAI's own client."""

import json

import openai
from jobs import API, KEY, LONG, NAME, NOTE, WORDS, check, fails_with, main
from pydantic import BaseModel

CLIENT = openai.OpenAI(base_url=API, api_key=KEY, max_retries=0)
ASK = {"model": NAME, "temperature": 0, "max_tokens": 12, "messages": [{"role": "user", "content": WORDS}]}
TOOL = {"type": "function", "function": {"name": "weather", "description": "of a city", "parameters": {
    "type": "object", "properties": {"city": {"enum": ["Oslo"]}}, "required": ["city"], "additionalProperties": False}}}


class Ball(BaseModel):
    round: bool


def chat():
    done = CLIENT.chat.completions.create(**ASK)
    check(done.choices[0].message.content and done.usage.completion_tokens == 12, done)


def stream():
    chunks = list(CLIENT.chat.completions.create(**ASK, stream=True, stream_options={"include_usage": True}))
    text = "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)
    check(text == CLIENT.chat.completions.create(**ASK).choices[0].message.content, text)
    check(chunks[-1].usage.completion_tokens == 12, chunks[-1])


def tools_auto():
    raw = CLIENT.chat.completions.with_raw_response.create(**ASK, tools=[TOOL])
    check("--tool-call-parser generic" in raw.headers[NOTE], raw.headers)
    check(raw.parse().choices[0].message.content, raw.parse())


def tools_required():
    done = CLIENT.chat.completions.create(**{**ASK, "max_tokens": 400}, tools=[TOOL], tool_choice="required",
                                          parallel_tool_calls=False, frequency_penalty=2)
    call = done.choices[0].message.tool_calls[0]
    check(json.loads(call.function.arguments) == {"city": "Oslo"}, done)
    turns = [*ASK["messages"], done.choices[0].message,
             {"role": "tool", "tool_call_id": call.id, "content": "Sunny."}]
    check(CLIENT.chat.completions.create(**{**ASK, "messages": turns}, tools=[TOOL]).choices[0].message.content)


def structured():
    done = CLIENT.chat.completions.parse(**{**ASK, "max_tokens": 400}, response_format=Ball, frequency_penalty=2)
    check(isinstance(done.choices[0].message.parsed, Ball), done)


def logprobs():
    done = CLIENT.chat.completions.create(**ASK, logprobs=True, top_logprobs=2)
    check(len(done.choices[0].logprobs.content) == 12, done)


def overflow():
    error = fails_with(openai.BadRequestError, lambda: CLIENT.completions.create(model=NAME, prompt=LONG))
    check(error.code == "context_length_exceeded", error)


main(chat, stream, tools_auto, tools_required, structured, logprobs, overflow)
