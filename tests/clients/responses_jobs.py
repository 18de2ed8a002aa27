"""OpenAI's own client on the Responses API, and agents in their default mode."""

import json

import openai
from agents import Agent, ModelSettings, Runner, function_tool, set_default_openai_client, set_tracing_disabled
from agents.agent import StopAtTools
from jobs import API, KEY, LONG, NAME, WORDS, check, fails_with, main
from pydantic import BaseModel

CLIENT = openai.OpenAI(base_url=API, api_key=KEY, max_retries=0)
ASK = {"model": NAME, "temperature": 0, "max_output_tokens": 12, "input": WORDS}
TOOL = {"type": "function", "name": "weather", "description": "of a city", "strict": True, "parameters": {
    "type": "object", "properties": {"city": {"enum": ["Oslo"]}}, "required": ["city"], "additionalProperties": False}}
REPEATS_LITTLE = {"frequency_penalty": 2}
set_tracing_disabled(True)


class Ball(BaseModel):
    round: bool


def create():
    done = CLIENT.responses.create(**ASK)
    check(done.output_text and done.status == "incomplete" and done.usage.output_tokens == 12, done)
    check(done.incomplete_details.reason == "max_output_tokens", done)


def stream():
    events = list(CLIENT.responses.create(**ASK, stream=True))
    check([event.sequence_number for event in events] == list(range(len(events))), events)
    text = "".join(event.delta for event in events if event.type == "response.output_text.delta")
    check(text == CLIENT.responses.create(**ASK).output_text == events[-1].response.output_text, text)


def stream_helper():
    with CLIENT.responses.stream(**ASK) as events:
        kinds = [event.type for event in events]
        check(kinds[0] == "response.created" and kinds[-1] == "response.incomplete", kinds)


def stored():
    first = CLIENT.responses.create(**ASK, metadata={"a": "b"})
    check(CLIENT.responses.retrieve(first.id).output_text == first.output_text, first)
    second = CLIENT.responses.create(**{**ASK, "input": "And owls?"}, previous_response_id=first.id)
    check(second.usage.input_tokens > first.usage.input_tokens, second)
    check(len(list(CLIENT.responses.input_items.list(second.id, limit=1))) == 3, second)
    CLIENT.responses.delete(first.id)
    fails_with(openai.NotFoundError, lambda: CLIENT.responses.retrieve(first.id))


def background():
    with CLIENT.responses.create(**ASK, background=True, stream=True) as events:
        seen = next(iter(events))
    rest = list(CLIENT.responses.retrieve(seen.response.id, stream=True, starting_after=seen.sequence_number))
    check(rest[0].sequence_number == 1 and rest[-1].type == "response.incomplete", rest)
    long = CLIENT.responses.create(**{**ASK, "max_output_tokens": 400}, background=True)
    check(CLIENT.responses.cancel(long.id).status in ("cancelled", "incomplete", "completed"), long)


def tools_required():
    ask = {**ASK, "max_output_tokens": 400, "extra_body": REPEATS_LITTLE, "tools": [TOOL]}
    done = CLIENT.responses.create(**ask, tool_choice="required", parallel_tool_calls=False)
    call = done.output[-1]
    check(call.type == "function_call" and json.loads(call.arguments) == {"city": "Oslo"}, done)
    turns = [{"role": "user", "content": WORDS}, *done.output,
             {"type": "function_call_output", "call_id": call.call_id, "output": "Sunny."}]
    check(CLIENT.responses.create(**{**ask, "input": turns, "max_output_tokens": 12}).output_text)


def custom_tool():
    tool = {"type": "custom", "name": "note", "description": "takes a note"}
    with CLIENT.responses.create(**{**ASK, "max_output_tokens": 60}, tools=[tool], stream=True,
                                 tool_choice={"type": "custom", "name": "note"}) as events:
        seen = list(events)
    item = seen[-1].response.output[0]
    deltas = "".join(event.delta for event in seen if event.type == "response.custom_tool_call_input.delta")
    check(item.type == "custom_tool_call" and item.input == deltas and deltas, seen[-1])


def structured():
    done = CLIENT.responses.parse(**{**ASK, "max_output_tokens": 400}, text_format=Ball, extra_body=REPEATS_LITTLE)
    check(isinstance(done.output_parsed, Ball), done)


def logprobs():
    done = CLIENT.responses.create(**ASK, top_logprobs=2, include=["message.output_text.logprobs"])
    check(len(done.output[-1].content[0].logprobs) == 12, done)


def overflow():
    error = fails_with(openai.BadRequestError, lambda: CLIENT.responses.create(**{**ASK, "input": LONG}))
    check(error.code == "context_length_exceeded" and error.param == "input", error)


@function_tool
def weather(city: str) -> str:
    """The weather of a city."""
    return f"sunny in {city}"


def agent(**more):
    set_default_openai_client(openai.AsyncOpenAI(base_url=API, api_key=KEY, max_retries=0), use_for_tracing=False)
    return Agent(name="helper", instructions="Be brief.", model=NAME, **more)


def agent_goes_on():
    # Uses an output that a grammar ends, because agents accept no response that is cut off.
    settings = ModelSettings(temperature=0, max_tokens=400, extra_body=REPEATS_LITTLE)
    first = Runner.run_sync(agent(output_type=Ball, model_settings=settings), WORDS)
    check(isinstance(first.final_output, Ball), first)
    again = Runner.run_sync(agent(output_type=Ball, model_settings=settings), "And owls?",
                            previous_response_id=first.last_response_id)
    check(again.raw_responses[0].usage.input_tokens > first.raw_responses[0].usage.input_tokens, again)


def agent_calls():
    settings = ModelSettings(temperature=0, max_tokens=400, tool_choice="required", parallel_tool_calls=False,
                             extra_body=REPEATS_LITTLE)
    called = agent(tools=[weather], model_settings=settings, tool_use_behavior=StopAtTools(stop_at_tool_names=["weather"]))
    check(Runner.run_sync(called, WORDS).final_output.startswith("sunny in"))


main(create, stream, stream_helper, stored, background, tools_required, custom_tool, structured, logprobs, overflow,
     agent_goes_on, agent_calls)
