"""langchain's ChatOpenAI."""

from typing import Literal

import openai
from jobs import API, KEY, LONG, NAME, WORDS, check, fails_with, main
from langchain_core.messages import HumanMessage, ToolMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from pydantic import BaseModel

MODEL = ChatOpenAI(model=NAME, base_url=API, api_key=KEY, temperature=0, max_tokens=12, max_retries=0)
LONGER = ChatOpenAI(model=NAME, base_url=API, api_key=KEY, temperature=0, max_tokens=400, max_retries=0,
                    frequency_penalty=2)


@tool
def weather(city: Literal["Oslo"]) -> str:
    """The weather of a city."""
    return f"sunny in {city}"


class Ball(BaseModel):
    round: bool


def invoke():
    done = MODEL.invoke(WORDS)
    check(done.content and done.usage_metadata["output_tokens"] == 12, done)


def stream():
    check("".join(chunk.content for chunk in MODEL.stream(WORDS)) == MODEL.invoke(WORDS).content)


def bind_tools():
    check(MODEL.bind_tools([weather]).invoke(WORDS).content)


def bind_tools_and_results():
    asked = HumanMessage(WORDS)
    called = LONGER.bind_tools([weather], tool_choice="required", parallel_tool_calls=False).invoke([asked])
    call = called.tool_calls[0]
    check(call["args"] == {"city": "Oslo"}, called)
    result = ToolMessage(weather.invoke(call["args"]), tool_call_id=call["id"])
    check(MODEL.bind_tools([weather]).invoke([asked, called, result]).content)


def structured_output():
    check(isinstance(LONGER.with_structured_output(Ball, method="json_schema").invoke(WORDS), Ball))


def logprobs():
    done = MODEL.bind(logprobs=True, top_logprobs=2).invoke(WORDS)
    check(len(done.response_metadata["logprobs"]["content"]) == 12, done)


def overflow():
    fails_with(openai.BadRequestError, lambda: MODEL.invoke(LONG))


main(invoke, stream, bind_tools, bind_tools_and_results, structured_output, logprobs, overflow)
