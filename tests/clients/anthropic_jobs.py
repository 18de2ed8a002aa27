"""Anthropic's own client."""

import json

import anthropic
from jobs import KEY, LONG, NOTE, URL, WORDS, check, fails_with, main

CLIENT = anthropic.Anthropic(base_url=URL, api_key=KEY, max_retries=0)
ASK = {"model": "claude-sonnet-4-5", "max_tokens": 12, "messages": [{"role": "user", "content": WORDS}]}
TOOL = {"name": "weather", "description": "of a city", "input_schema": {
    "type": "object", "properties": {"city": {"enum": ["Oslo"]}}, "required": ["city"], "additionalProperties": False}}
GREEDY = {"extra_body": {"temperature": 0}}


def message():
    done = CLIENT.messages.create(**ASK, **GREEDY)
    check(done.content[0].type == "text" and done.content[0].text, done)
    check(done.model == ASK["model"] and done.stop_reason == "max_tokens" and done.usage.output_tokens == 12, done)
    check(done._request_id.startswith("req_"), done)  # pylint: disable=protected-access


def stream():
    with CLIENT.messages.stream(**ASK, **GREEDY) as events:
        text = "".join(events.text_stream)
        done = events.get_final_message()
    check(text and text == CLIENT.messages.create(**ASK, **GREEDY).content[0].text == done.content[0].text, text)
    check(done.stop_reason == "max_tokens" and done.usage.output_tokens == 12, done)


def raw_events():
    kinds = [event.type for event in CLIENT.messages.create(**ASK, stream=True)]
    check(kinds[0] == "message_start" and kinds[-2:] == ["message_delta", "message_stop"], kinds)
    check(kinds.count("content_block_start") == kinds.count("content_block_stop") == 1, kinds)


def cached_prompt():
    system = [{"type": "text", "text": "Foxes are small. " * 40, "cache_control": {"type": "ephemeral"}}]
    CLIENT.messages.create(**ASK, system=system)
    again = CLIENT.messages.create(**ASK, system=system).usage
    check(again.cache_read_input_tokens > again.input_tokens > 0, again)
    billed = [{"type": "text", "text": f"x-anthropic-billing-header: nonce={id(again)}"}, *system]
    check(CLIENT.messages.create(**ASK, system=billed).usage.cache_read_input_tokens >= again.cache_read_input_tokens)


def tools_auto():
    raw = CLIENT.messages.with_raw_response.create(**ASK, tools=[TOOL, {"type": "web_search_20250305", "name": "web_search"}])
    check("web_search_20250305" in raw.headers[NOTE], raw.headers)


def tools_named():
    asked = {**ASK, "max_tokens": 400, "tools": [TOOL], "tool_choice": {"type": "tool", "name": "weather"}}
    done = CLIENT.messages.create(**asked)
    call = done.content[0]
    check(done.stop_reason == "tool_use" and call.type == "tool_use" and call.input == {"city": "Oslo"}, done)
    with CLIENT.messages.stream(**asked) as events:
        check(events.get_final_message().content[0].input == {"city": "Oslo"})
    turns = [*ASK["messages"], {"role": "assistant", "content": done.content},
             {"role": "user", "content": [{"type": "tool_result", "tool_use_id": call.id, "is_error": True,
                                           "content": [{"type": "text", "text": "No such city."}]}]}]
    check(CLIENT.messages.create(**{**ASK, "messages": turns}, tools=[TOOL]).stop_reason)


def tools_any():
    done = CLIENT.messages.create(**{**ASK, "max_tokens": 400}, tools=[TOOL], tool_choice={
        "type": "any", "disable_parallel_tool_use": True}, **GREEDY)
    check([block.name for block in done.content] == ["weather"], done)


def structured():
    done = CLIENT.messages.create(**{**ASK, "max_tokens": 400}, output_config={"format": {"type": "json_schema", "schema": {
        "type": "object", "properties": {"round": {"type": "boolean"}}, "required": ["round"],
        "additionalProperties": False}}})
    check(isinstance(json.loads(done.content[0].text)["round"], bool), done)


def stop_sequences():
    text = CLIENT.messages.create(**{**ASK, "max_tokens": 40}, **GREEDY).content[0].text
    stop = text.split()[3]
    done = CLIENT.messages.create(**{**ASK, "max_tokens": 40}, stop_sequences=[stop], **GREEDY)
    check(done.stop_reason == "stop_sequence" and done.stop_sequence == stop, done)


def thinking_and_effort():
    for thinking in ({"type": "adaptive"}, {"type": "enabled", "budget_tokens": 1024}, {"type": "disabled"}):
        check(CLIENT.messages.create(**{**ASK, "max_tokens": 2000}, thinking=thinking, stop_sequences=["."],
                                     output_config={"effort": "low"}).content, thinking)


def count_tokens():
    asked = {key: ASK[key] for key in ("model", "messages")}
    counted = CLIENT.messages.count_tokens(**asked, tools=[TOOL], system="Be brief.")
    usage = CLIENT.messages.create(**ASK, tools=[TOOL], system="Be brief.").usage
    check(counted.input_tokens == usage.input_tokens + usage.cache_read_input_tokens, (counted, usage))


def beta():
    done = CLIENT.beta.messages.create(**ASK, betas=["context-management-2025-06-27"], context_management={
        "edits": [{"type": "clear_thinking_20251015", "keep": "all"}]})
    check(done.context_management.applied_edits == [], done)


def errors():
    bad = fails_with(anthropic.BadRequestError, lambda: CLIENT.messages.create(**ASK, extra_body={"top_p": 7}))
    check(bad.body["error"]["type"] == "invalid_request_error" and "top_p" in bad.message, bad)
    long = {**ASK, "messages": [{"role": "user", "content": LONG}]}
    check("prompt is too long" in fails_with(anthropic.BadRequestError, lambda: CLIENT.messages.create(**long)).message)
    stranger = anthropic.Anthropic(base_url=URL, api_key="another", max_retries=0)
    wrong = fails_with(anthropic.AuthenticationError, lambda: stranger.messages.create(**ASK))
    check(wrong.body["error"]["type"] == "authentication_error", wrong)
    fails_with(anthropic.NotFoundError, CLIENT.messages.batches.list)


def bearer_token():
    other = anthropic.Anthropic(base_url=URL, auth_token=KEY, api_key=None, max_retries=0)
    check(other.messages.create(**ASK).content)


main(message, stream, raw_events, cached_prompt, tools_auto, tools_named, tools_any, structured, stop_sequences,
     thinking_and_effort, count_tokens, beta, errors, bearer_token)
