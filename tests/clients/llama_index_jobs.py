"""llama-index's OpenAILike."""

from typing import Literal

import openai
from jobs import API, KEY, LONG, NAME, WORDS, check, fails_with, main
from llama_index.core.llms import ChatMessage
from llama_index.core.tools import FunctionTool
from llama_index.llms.openai_like import OpenAILike


def model(**more):
    return OpenAILike(**{"model": NAME, "api_base": API, "api_key": KEY, "is_chat_model": True, "temperature": 0,
                         "max_tokens": 12, "max_retries": 0, "is_function_calling_model": True,
                         "context_window": 4096, **more})


def weather(city: Literal["Oslo"]) -> str:
    """The weather of a city."""
    return f"sunny in {city}"


def chat():
    check(model().chat([ChatMessage(role="user", content=WORDS)]).message.content)


def stream():
    chunks = list(model().stream_chat([ChatMessage(role="user", content=WORDS)]))
    check(chunks[-1].message.content == model().chat([ChatMessage(role="user", content=WORDS)]).message.content)


def complete():
    check(model(is_chat_model=False).complete("Once upon a time").text)


def tools_auto():
    done = model().chat_with_tools([FunctionTool.from_defaults(weather)], user_msg=WORDS)
    check(done.message.content)


def tools_required():
    longer = model(max_tokens=400, additional_kwargs={"frequency_penalty": 2})
    done = longer.chat_with_tools([FunctionTool.from_defaults(weather)], user_msg=WORDS, tool_required=True)
    check(longer.get_tool_calls_from_response(done)[0].tool_kwargs == {"city": "Oslo"}, done)


def overflow():
    fails_with(openai.BadRequestError, lambda: model().chat([ChatMessage(role="user", content=LONG)]))


main(chat, stream, complete, tools_auto, tools_required, overflow)
