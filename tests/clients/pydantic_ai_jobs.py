"""pydantic-ai."""

import asyncio
from typing import Literal

from jobs import API, KEY, LONG, NAME, WORDS, check, fails_with, main
from pydantic import BaseModel
from pydantic_ai import Agent, ModelHTTPError, NativeOutput
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider

MODEL = OpenAIChatModel(NAME, provider=OpenAIProvider(base_url=API, api_key=KEY))
SHORT = {"temperature": 0, "max_tokens": 12}
LONGER = {"temperature": 0, "max_tokens": 400, "frequency_penalty": 2, "parallel_tool_calls": False}


class Ball(BaseModel):
    round: bool
    colour: Literal["red", "blue"]


def weather(city: Literal["Oslo"]) -> str:
    """The weather of a city."""
    return f"sunny in {city}"


def run():
    check(Agent(MODEL, model_settings=SHORT).run_sync(WORDS).output)


def stream():
    async def text():
        async with Agent(MODEL, model_settings=SHORT).run_stream(WORDS) as result:
            return await result.get_output()
    check(asyncio.run(text()) == Agent(MODEL, model_settings=SHORT).run_sync(WORDS).output)


def tools_auto():
    check(Agent(MODEL, tools=[weather], model_settings=SHORT).run_sync(WORDS).output)


def output_by_tool():
    check(isinstance(Agent(MODEL, output_type=Ball, model_settings=LONGER).run_sync(WORDS).output, Ball))


def output_by_schema():
    check(isinstance(Agent(MODEL, output_type=NativeOutput(Ball), model_settings=LONGER).run_sync(WORDS).output, Ball))


def overflow():
    fails_with(ModelHTTPError, lambda: Agent(MODEL, model_settings=SHORT).run_sync(LONG))


main(run, stream, tools_auto, output_by_tool, output_by_schema, overflow)
