"""openai-agents: agents with tools on the chat protocol."""

import asyncio
from typing import Literal

import openai
from agents import Agent, ModelSettings, OpenAIChatCompletionsModel, Runner, function_tool, set_tracing_disabled
from agents.agent import StopAtTools
from jobs import API, KEY, LONG, NAME, WORDS, check, fails_with, main
from pydantic import BaseModel

set_tracing_disabled(True)


def model():
    """Makes a model for each job, because its connections belong to one event loop."""
    return OpenAIChatCompletionsModel(
        model=NAME, openai_client=openai.AsyncOpenAI(base_url=API, api_key=KEY, max_retries=0))


SHORT = ModelSettings(temperature=0, max_tokens=12)


@function_tool
def weather(city: Literal["Oslo"]) -> str:
    """The weather of a city."""
    return f"sunny in {city}"


class Ball(BaseModel):
    round: bool


def agent(**more):
    return Agent(name="helper", instructions="Be brief.", model=model(), **{"model_settings": SHORT, **more})


def run():
    check(Runner.run_sync(agent(), WORDS).final_output)


def tools_auto():
    check(Runner.run_sync(agent(tools=[weather]), WORDS).final_output)


def tools_streamed():
    async def stream():
        result = Runner.run_streamed(agent(tools=[weather]), WORDS)
        return [event async for event in result.stream_events()], result.final_output
    events, output = asyncio.run(stream())
    check(len(events) > 3 and output, output)


def tool_is_called():
    settings = ModelSettings(temperature=0, max_tokens=400, tool_choice="required", parallel_tool_calls=False,
                             frequency_penalty=2)
    called = agent(tools=[weather], model_settings=settings, tool_use_behavior=StopAtTools(stop_at_tool_names=["weather"]))
    check(Runner.run_sync(called, WORDS).final_output == "sunny in Oslo")


def results_go_on():
    # After the call the client no longer sends "required", so the model answers in words.
    settings = ModelSettings(temperature=0, max_tokens=400, tool_choice="required", parallel_tool_calls=False,
                             frequency_penalty=2)
    result = Runner.run_sync(agent(tools=[weather], model_settings=settings), WORDS, max_turns=3)
    check(len(result.raw_responses) >= 2 and result.final_output, result)


def structured():
    settings = ModelSettings(temperature=0, max_tokens=400, frequency_penalty=2)
    check(isinstance(Runner.run_sync(agent(output_type=Ball, model_settings=settings), WORDS).final_output, Ball))


def overflow():
    fails_with(openai.BadRequestError, lambda: Runner.run_sync(agent(), LONG))


main(run, tools_auto, tools_streamed, tool_is_called, results_go_on, structured, overflow)
