"""OpenAI's own client."""

import json
import time

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


def batch():
    lines = [{"custom_id": f"r{i}", "method": "POST", "url": "/v1/chat/completions", "body": {**ASK, "max_tokens": i}}
             for i in range(1, 6)]
    lines[2]["body"]["temperature"] = -1
    content = "\n".join(json.dumps(line) for line in lines).encode()
    file = CLIENT.files.create(file=("requests.jsonl", content), purpose="batch")
    check(CLIENT.files.retrieve(file.id).bytes == len(content), file)
    check(CLIENT.files.content(file.id).read() == content)
    done = CLIENT.batches.create(input_file_id=file.id, endpoint="/v1/chat/completions", completion_window="24h",
                                 metadata={"job": "a"})
    deadline = time.monotonic() + 60
    while done.status not in ("completed", "failed") and time.monotonic() < deadline:
        time.sleep(0.1)
        done = CLIENT.batches.retrieve(done.id)
    check(done.status == "completed" and done.request_counts.completed == 4 and done.request_counts.failed == 1, done)
    check(done.id in [each.id for each in CLIENT.batches.list(limit=1)], "the list")
    answers = {answer["custom_id"]: answer["response"]["body"]
               for answer in map(json.loads, CLIENT.files.content(done.output_file_id).text.splitlines())}
    check(sorted(answers) == ["r1", "r2", "r4", "r5"] and answers["r5"]["usage"]["completion_tokens"] == 5, answers)
    check(json.loads(CLIENT.files.content(done.error_file_id).text)["response"]["status_code"] == 400)
    check(CLIENT.files.delete(file.id).deleted and file.id not in [each.id for each in CLIENT.files.list()])
    fails_with(openai.NotFoundError, lambda: CLIENT.files.retrieve(file.id))


main(chat, stream, tools_auto, tools_required, structured, logprobs, overflow, batch)
