"""LLM: a model in this process, with the interface of vllm.LLM.

    from tessera_engine import LLM, SamplingParams
    llm = LLM("models/demo")
    for output in llm.generate(["Once upon a time", "The dog"], SamplingParams(temperature=0, max_tokens=20)):
        print(output.prompt, output.outputs[0].text)"""

from __future__ import annotations

import json
import os
import threading
from dataclasses import asdict, dataclass
from typing import Any, Optional, Sequence, Union

from ._library import Request
from .engine import Engine, Json, _next


@dataclass
class SamplingParams:
    """Has the names and defaults of vLLM's class; another name is a TypeError. `logprobs` is the number of most probable
    tokens to report besides the chosen one. If `max_tokens` is None, the answer may fill the model's context."""

    n: int = 1
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = -1
    min_p: float = 0.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    repetition_penalty: float = 1.0
    seed: Optional[int] = None
    stop: Optional[Union[str, list[str]]] = None
    stop_token_ids: Optional[list[int]] = None
    ignore_eos: bool = False
    max_tokens: Optional[int] = 16
    min_tokens: int = 0
    logprobs: Optional[int] = None
    skip_special_tokens: bool = True

    def _body(self, room: int) -> Json:
        """Returns the members of a request to /generate. `room` is the number of tokens that fit in the context after the
        prompt."""
        sampling = {name: value for name, value in asdict(self).items() if value is not None and name != "logprobs"}
        if self.max_tokens is None:  # if it were left out, /generate's own default would apply
            sampling["max_tokens"] = max(room, 1)  # a prompt without room is an error, as for other values
        if self.top_k <= 0:  # vLLM's value for all tokens; /generate takes all if the member is absent
            del sampling["top_k"]
        if self.logprobs is None:
            return {"sampling_params": sampling}
        return {"sampling_params": sampling, "return_logprob": True, "top_logprobs_num": self.logprobs}


@dataclass
class Logprob:
    logprob: float
    decoded_token: Optional[str]


@dataclass
class CompletionOutput:
    """`logprobs` maps, for each position, the ids of the chosen token and of the most probable ones to their values."""

    index: int
    text: str
    token_ids: list[int]
    cumulative_logprob: Optional[float]
    logprobs: Optional[list[dict[int, Logprob]]]
    finish_reason: Optional[str]
    stop_reason: Optional[Union[int, str]]


@dataclass(frozen=True)
class LoRARequest:
    """Names a low-rank adapter, as vLLM's class does: a folder that PEFT has written. `lora_int_id` is accepted but not needed:
    the name says which adapter it is."""

    lora_name: str
    lora_int_id: int
    lora_path: str


@dataclass
class RequestOutput:
    prompt: Optional[str]
    prompt_token_ids: list[int]
    outputs: list[CompletionOutput]
    finished: bool = True
    lora_request: Optional[LoRARequest] = None


@dataclass
class Embedding:
    embedding: list[float]


@dataclass
class EmbeddingRequestOutput:
    outputs: Embedding
    prompt_token_ids: list[int]


Adapters = Optional[Union[LoRARequest, Sequence[Optional[LoRARequest]]]]  # one for all prompts, or one for each
Prompt = Union[str, Json]  # {"prompt": text} or {"prompt_token_ids": ids} for a dictionary


def _read_logprobs(meta: Json) -> list[dict[int, Logprob]]:
    found = []
    for chosen, best in zip(meta["output_token_logprobs"], meta.get("output_top_logprobs") or [[]] * len(meta["output_token_logprobs"])):
        found.append({entry[1]: Logprob(entry[0], entry[2]) for entry in [*(best or []), chosen]})
    return found


def _read_completion(index: int, answer: Json) -> CompletionOutput:
    meta = answer["meta_info"]
    reason = meta.get("finish_reason") or {}
    with_logprobs = "output_token_logprobs" in meta
    return CompletionOutput(
        index=index, text=answer["text"], token_ids=answer["output_ids"],
        cumulative_logprob=sum(entry[0] for entry in meta["output_token_logprobs"]) if with_logprobs else None,
        logprobs=_read_logprobs(meta) if with_logprobs else None,
        finish_reason=reason.get("type"), stop_reason=reason.get("matched"))


class LLM:
    """A loaded model. `options` are those of Engine, which also takes many of vLLM's names (max_model_len, enforce_eager,
    gpu_memory_utilization, tensor_parallel_size). Any thread may use the object."""

    def __init__(self, model: str, **options: Any) -> None:
        self.engine = Engine(model, **options)
        self._loading = threading.Lock()
        self._context: int = self.engine.get_server_info()["engine"]["max_request_tokens"]

    def generate(self, prompts: Union[Prompt, Sequence[Prompt]],
                 sampling_params: Optional[Union[SamplingParams, Sequence[SamplingParams]]] = None, *,
                 use_tqdm: bool = False, lora_request: Adapters = None) -> list[RequestOutput]:
        """Returns one output for each prompt, in their order. `use_tqdm` is accepted but shows no progress bar. Adapters of
        `lora_request` that are not loaded yet are loaded first, and stay loaded; the engine needs `enable_lora`."""
        del use_tqdm
        given: list[Prompt] = [prompts] if isinstance(prompts, (str, dict)) else list(prompts)
        return self._run([self._read_prompt(prompt) for prompt in given], sampling_params, lora_request)

    def chat(self, messages: Union[list[Json], list[list[Json]]],
             sampling_params: Optional[Union[SamplingParams, Sequence[SamplingParams]]] = None, *, use_tqdm: bool = False,
             lora_request: Adapters = None, **fields: Any) -> list[RequestOutput]:
        """generate() for conversations. `fields` are the fields of the chat template (tools, chat_template_kwargs, …)."""
        del use_tqdm
        conversations: Any = [messages] if messages and isinstance(messages[0], dict) else messages
        texts = [self.engine.apply_chat_template(conversation, **fields) for conversation in conversations]
        return self._run([(text, self.engine.tokenize(text, add_special_tokens=False)) for text in texts], sampling_params,
                         lora_request)

    def embed(self, prompts: Union[str, Sequence[str]]) -> list[EmbeddingRequestOutput]:
        """Returns the texts' embeddings. The model must make embeddings, or be loaded with is_embedding=True."""
        texts = [prompts] if isinstance(prompts, str) else list(prompts)
        return [EmbeddingRequestOutput(Embedding(made["embedding"]), self.engine.tokenize(text))
                for text, made in zip(texts, self.engine.encode(texts))]

    def shutdown(self) -> None:
        self.engine.shutdown()

    def _read_prompt(self, prompt: Prompt) -> tuple[Optional[str], list[int]]:
        if isinstance(prompt, str):
            return prompt, self.engine.tokenize(prompt)
        if "prompt_token_ids" in prompt:
            return prompt.get("prompt"), list(prompt["prompt_token_ids"])
        return prompt["prompt"], self.engine.tokenize(prompt["prompt"])

    def _load(self, adapters: Sequence[Optional[LoRARequest]]) -> None:
        """Loads the adapters that are not loaded. A name that is loaded from another folder is an error of the engine."""
        wanted = {adapter.lora_name: adapter for adapter in adapters if adapter}
        if not wanted:
            return
        with self._loading:
            loaded = {adapter["lora_name"]: adapter["lora_path"] for adapter in self.engine.list_lora_adapters()}
            for adapter in wanted.values():
                if loaded.get(adapter.lora_name) != os.fspath(adapter.lora_path):
                    self.engine.load_lora_adapter(adapter.lora_name, adapter.lora_path)

    def _run(self, prompts: list[tuple[Optional[str], list[int]]],
             given: Optional[Union[SamplingParams, Sequence[SamplingParams]]], lora_request: Adapters) -> list[RequestOutput]:
        each = given if isinstance(given, Sequence) else [given or SamplingParams()] * len(prompts)
        adapters = lora_request if isinstance(lora_request, Sequence) else [lora_request] * len(prompts)
        for name, values in (("sampling_params", each), ("lora_request", adapters)):
            if len(values) != len(prompts):
                raise ValueError(f"{len(values)} {name} are given for {len(prompts)} prompts; accepted is one, or one for each")
        self._load(adapters)
        requests: list[Request] = []
        try:
            for (_, ids), params, adapter in zip(prompts, each, adapters):
                body = {"input_ids": ids, **params._body(self._context - len(ids))}
                requests.append(self.engine._submit("/generate", {**body, "lora_path": adapter.lora_name} if adapter else body))
            answers = [json.loads(_next(request)[1]) for request in requests]
        finally:
            for request in requests:
                request.free()
        outputs = []
        for (text, ids), answer, adapter in zip(prompts, answers, adapters):
            choices = answer if isinstance(answer, list) else [answer]
            made = [_read_completion(i, choice) for i, choice in enumerate(choices)]
            outputs.append(RequestOutput(text, ids, made, lora_request=adapter))
        return outputs
