"""Turns Dynamo's requests into bodies for Tessera's /v1/completions, and chunks of the answer into Dynamo's."""

from __future__ import annotations

from typing import Any, Callable, cast

from dynamo.common.backend.engine import GenerateChunk, GenerateRequest
from dynamo.common.backend.logprobs import parse_logprob_options
from dynamo.llm.exceptions import InvalidArgument

# Options that have the same name and meaning in Dynamo's requests and in Tessera's.
SAMPLING = ("temperature", "top_p", "top_k", "min_p", "frequency_penalty", "presence_penalty", "repetition_penalty", "seed",
            "logit_bias")
STOPPING = ("max_tokens", "min_tokens", "ignore_eos")
# Options that cannot be fulfilled, each with the value that asks for nothing.
NOT_HERE = {"n": 1, "best_of": 1, "use_beam_search": False, "length_penalty": 1.0}
# Options that the frontend fulfils, or that this module reads in another way.
READ_ELSEWHERE = {"include_stop_str_in_output", "guided_decoding", "stop", "stop_token_ids", "stop_token_ids_hidden"}
CONSTRAINTS = ("json", "regex", "grammar", "choice")
FINISH_REASONS = {"abort": "cancelled"}


def _given(options: Any) -> dict[str, Any]:
    return {key: value for key, value in (options or {}).items() if value is not None}


def _constraint(guided: dict[str, Any]) -> dict[str, Any]:
    """Returns the constraint of the output in the form of the field structured_outputs."""
    names = [key for key in guided if key != "backend"]
    if len(names) != 1 or names[0] not in CONSTRAINTS:
        raise InvalidArgument(f"the constraints {names} are not accepted; accepted: one of {list(CONSTRAINTS)}")
    return {names[0]: guided[names[0]]}


def completion_body(request: GenerateRequest, model: str, context_length: int) -> dict[str, Any]:
    """Returns the body for /v1/completions. Raises InvalidArgument if the request asks for what this worker does not do."""
    for key in ("multi_modal_data", "prefill_result", "bootstrap_info", "encoder_result"):
        if request.get(key):
            raise InvalidArgument(f"{key}: not accepted; this worker takes texts, and prefills and decodes them itself")
    sampling, stopping = _given(request.get("sampling_options")), _given(request.get("stop_conditions"))
    for key, nothing in NOT_HERE.items():
        if sampling.get(key, nothing) != nothing:
            raise InvalidArgument(f"{key}: {sampling[key]} is not accepted; accepted: {nothing}")
    for key in {*sampling, *stopping} - {*SAMPLING, *STOPPING, *NOT_HERE, *READ_ELSEWHERE}:
        raise InvalidArgument(f"{key}: not accepted by this worker")
    room = context_length - len(request["token_ids"])
    body = {"model": model, "prompt": request["token_ids"], "max_tokens": max(room, 1), "return_token_ids": True,
            "stream_options": {"include_usage": True}}
    body |= {key: sampling[key] for key in SAMPLING if key in sampling}
    body |= {key: stopping[key] for key in STOPPING if key in stopping}
    # The frontend looks for the request's stop texts, and cancels the request at one. The engine looks for stop ids.
    if ids := {*stopping.get("stop_token_ids", ()), *stopping.get("stop_token_ids_hidden", ())}:
        body["stop_token_ids"] = sorted(ids)
    if guided := _given(sampling.get("guided_decoding")):
        body["structured_outputs"] = _constraint(guided)
    top, of_prompt = parse_logprob_options(request.get("output_options") or {})
    if of_prompt is not None:
        raise InvalidArgument("prompt_logprobs: not accepted, because the answers of this worker are streams")
    if top is not None:
        body |= {"logprobs": top, "return_tokens_as_token_ids": True}
    return body


def _logprobs(told: dict[str, Any], text_of: Callable[[int], str]) -> dict[str, Any]:
    """Returns a chunk's members for the log-probabilities of a choice, in which tokens are named "token_id:7"."""
    def entry(rank: int, name: str, value: float) -> dict[str, Any]:
        token = int(name.removeprefix("token_id:"))
        return {"rank": rank, "token_id": token, "token": text_of(token), "logprob": value}

    members: dict[str, Any] = {"log_probs": told["token_logprobs"]}
    tops = [[entry(rank, *each) for rank, each in enumerate(sorted(top.items(), key=lambda pair: -pair[1]), 1)]
            for top in told["top_logprobs"] or ()]
    return members | ({"top_logprobs": tops} if any(tops) else {})


def chunk_of(choice: dict[str, Any], text_of: Callable[[int], str]) -> GenerateChunk:
    """Returns the chunk for one step of a choice. `text_of` returns a token's text."""
    chunk: dict[str, Any] = {"token_ids": choice["token_ids"], "index": 0}
    if choice["logprobs"] and choice["logprobs"]["tokens"]:
        chunk |= _logprobs(choice["logprobs"], text_of)
    if reason := choice["finish_reason"]:
        chunk["finish_reason"] = FINISH_REASONS.get(reason, reason)
    return cast(GenerateChunk, chunk)
