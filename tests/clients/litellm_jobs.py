"""litellm."""

import json

import litellm
from jobs import API, KEY, LONG, NAME, WORDS, check, fails_with, main

ASK = {"model": f"openai/{NAME}", "api_base": API, "api_key": KEY, "temperature": 0, "max_tokens": 12, "num_retries": 0,
       "messages": [{"role": "user", "content": WORDS}]}
TOOL = {"type": "function", "function": {"name": "weather", "parameters": {
    "type": "object", "properties": {"city": {"enum": ["Oslo"]}}, "required": ["city"], "additionalProperties": False}}}
BALL = {"type": "json_schema", "json_schema": {"name": "ball", "strict": True, "schema": {
    "type": "object", "properties": {"round": {"type": "boolean"}}, "required": ["round"],
    "additionalProperties": False}}}


def chat():
    done = litellm.completion(**ASK)
    check(done.choices[0].message.content and done.usage.completion_tokens == 12, done)


def stream():
    text = "".join(c.choices[0].delta.content or "" for c in litellm.completion(**ASK, stream=True))
    check(text == litellm.completion(**ASK).choices[0].message.content, text)


def tools_auto():
    check(litellm.completion(**ASK, tools=[TOOL]).choices[0].message.content)


def tools_required():
    done = litellm.completion(**{**ASK, "max_tokens": 400}, tools=[TOOL], tool_choice="required", frequency_penalty=2,
                              parallel_tool_calls=False)
    check(json.loads(done.choices[0].message.tool_calls[0].function.arguments) == {"city": "Oslo"}, done)


def structured():
    done = litellm.completion(**{**ASK, "max_tokens": 400}, response_format=BALL, frequency_penalty=2)
    check(isinstance(json.loads(done.choices[0].message.content)["round"], bool), done)


def logprobs():
    done = litellm.completion(**ASK, logprobs=True, top_logprobs=2)
    check(len(done.choices[0].logprobs.content) == 12, done)


def overflow():
    ask = {**ASK, "messages": [{"role": "user", "content": LONG}]}
    fails_with(litellm.ContextWindowExceededError, lambda: litellm.completion(**ask))


main(chat, stream, tools_auto, tools_required, structured, logprobs, overflow)
