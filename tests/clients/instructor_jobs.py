"""instructor: structured outputs through tools and schemas."""

from typing import Literal

import instructor
import openai
from jobs import API, KEY, NAME, WORDS, check, main
from pydantic import BaseModel

CLIENT = openai.OpenAI(base_url=API, api_key=KEY, max_retries=0)
ASK = {"model": NAME, "temperature": 0, "max_tokens": 400, "frequency_penalty": 2, "max_retries": 0,
       "messages": [{"role": "user", "content": WORDS}]}


class Ball(BaseModel):
    round: bool
    colour: Literal["red", "blue"]


def made(mode):
    check(isinstance(instructor.from_openai(CLIENT, mode=mode).chat.completions.create(response_model=Ball, **ASK), Ball))


def by_tools():
    made(instructor.Mode.TOOLS)


def by_schema():
    made(instructor.Mode.JSON_SCHEMA)


main(by_tools, by_schema)
