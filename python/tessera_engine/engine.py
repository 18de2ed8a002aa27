"""Engine: a model in this process, with the interface of sglang.Engine."""

from __future__ import annotations

import asyncio
import collections
import json
import os
import threading
import weakref
from contextlib import contextmanager
from ctypes import c_void_p
from types import TracebackType
from typing import Any, AsyncIterator, Callable, Iterator, Optional, Type, Union

from . import _library
from ._library import CHUNK, ERROR, Request, TesseraError

Prompt = Union[str, list[str]]
Json = dict[str, Any]

# The longest wait in the library, after which Python can handle signals (Ctrl-C).
_SLICE_MS = 100

# The time between two checks whether the last request of an unloaded adapter has ended.
_UNLOAD_POLL_S = 0.01

# The number of texts in one request for embeddings, and the number of such requests at the same time.
_ENCODED_AT_ONCE = 64
_ENCODINGS = 4


class _Calls:
    """Counts the calls that use an engine's handle, so that closing the engine can wait for them. It is a separate object,
    because the Engine's finalizer must not refer to the Engine."""

    def __init__(self) -> None:
        self._process = os.getpid()
        self._changed = threading.Condition()
        self._count = 0
        self._closed = False

    def in_fork(self) -> bool:
        """Returns whether this process was forked from the engine's. Here the engine has no thread, so nothing may wait."""
        return os.getpid() != self._process

    def begin(self) -> None:
        with self._changed:
            if self._closed:
                raise TesseraError(3, "the engine was shut down")
            self._count += 1

    def end(self) -> None:
        with self._changed:
            self._count -= 1
            self._changed.notify_all()

    def close(self) -> None:
        """Refuses new calls, and returns when no call is left."""
        with self._changed:
            self._closed = True
            self._changed.wait_for(lambda: self._count == 0)


def _close(handle: c_void_p, calls: _Calls) -> None:
    if calls.in_fork():
        return
    if _library.in_callback():  # the garbage collector ran here; the engine's thread cannot wait for its own end
        threading.Thread(target=_close, args=(handle, calls)).start()
        return
    calls.close()
    _library.call("tessera_close", handle)


def _raise(code: int, text: str) -> None:
    error = json.loads(text)["error"]
    raise TesseraError(code, _library.in_python(error["message"]), error.get("param") or "")


def _next(request: Request) -> tuple[int, str]:
    """Returns kind and text of the next event. Waits for short times only, so that Python can handle signals between."""
    while True:
        event = request.next(_SLICE_MS)
        if event is None:
            continue
        kind, code, text = event
        if kind == ERROR:
            _raise(code, text)
        return kind, text


def _read_embeddings(answer: Json) -> list[Json]:
    made = [{"embedding": entry["embedding"], "meta_info": {"id": answer["id"]}} for entry in answer["data"]]
    if len(made) == 1:
        made[0]["meta_info"]["prompt_tokens"] = answer["usage"]["prompt_tokens"]
    return made


def _drop_none(fields: Json) -> Json:
    return {key: value for key, value in fields.items() if value is not None}


def _options_text(model_path: Union[str, os.PathLike[str]], options: Json) -> str:
    """Returns the options as JSON. A path object among them becomes its text."""
    return json.dumps(_drop_none({"model_path": model_path, **options}), default=os.fspath)


class Engine:
    """A loaded model. `options` are the flags of `tessera serve`, with underscores (page_size=16, device="cpu",
    download=True); an unknown option is an error. Any thread may use the object."""

    def __init__(self, model_path: Union[str, os.PathLike[str]], **options: Any) -> None:
        self._handle = _library.open_engine(_options_text(model_path, options))
        self._calls = _Calls()
        self._finalizer = weakref.finalize(self, _close, self._handle, self._calls)

    def __enter__(self) -> Engine:
        return self

    def __exit__(self, kind: Optional[Type[BaseException]], error: Optional[BaseException],
                 trace: Optional[TracebackType]) -> None:
        self.shutdown()

    def shutdown(self) -> None:
        """Ends the engine. Running requests end with an error. Waits until calls of other threads have returned. A second
        call does nothing."""
        self._finalizer()

    @contextmanager
    def _alive(self) -> Iterator[c_void_p]:
        self._calls.begin()
        try:
            yield self._handle
        finally:
            self._calls.end()

    def _submit(self, path: str, body: Json, on_event: Optional[Callable[[int, int, str], None]] = None) -> Request:
        with self._alive() as handle:
            return Request(handle, path, json.dumps(body), on_event)

    # -- requests in any of the server's protocols --

    def request(self, path: str, body: Json) -> Any:
        """Returns the whole answer to `body` at `path` (such as "/v1/completions")."""
        request = self._submit(path, body)
        try:
            return json.loads(_next(request)[1])
        finally:
            request.free()

    def stream(self, path: str, body: Json) -> Iterator[Any]:
        """Returns an iterator over the chunks of the answer, as they arrive. Submits the request at once, and cancels it if
        the iteration ends early."""
        return self._chunks(self._submit(path, {**body, "stream": True}))

    def _chunks(self, request: Request) -> Iterator[Any]:  # a method, so that the iterator keeps the engine alive
        try:
            while True:
                kind, text = _next(request)
                if kind != CHUNK:
                    return
                yield json.loads(text)
        finally:
            request.free()

    async def async_stream(self, path: str, body: Json) -> AsyncIterator[Any]:
        """stream() for asyncio. It needs no thread of its own."""
        async for text in self._events(path, {**body, "stream": True}):
            if text:
                yield json.loads(text)

    async def async_request(self, path: str, body: Json) -> Any:
        answer = ""
        async for answer in self._events(path, body):
            pass
        return json.loads(answer)

    async def _events(self, path: str, body: Json) -> AsyncIterator[str]:
        loop = asyncio.get_running_loop()
        events: asyncio.Queue[tuple[int, int, str]] = asyncio.Queue()

        def on_event(kind: int, code: int, text: str) -> None:
            loop.call_soon_threadsafe(events.put_nowait, (kind, code, text))

        # Submits on another thread, because tokenising a long prompt would block the event loop.
        request = await loop.run_in_executor(None, self._submit, path, body, on_event)
        try:
            kind = CHUNK
            while kind == CHUNK:
                kind, code, text = await events.get()
                if kind == ERROR:
                    _raise(code, text)
                yield text
        finally:
            request.free()

    # -- the interface of sglang.Engine --

    @staticmethod
    def _generate_body(prompt: Optional[Prompt], sampling_params: Optional[Union[Json, list[Json]]],
                       input_ids: Optional[Union[list[int], list[list[int]]]], fields: Json) -> Json:
        body = {"text": prompt, "input_ids": input_ids, "sampling_params": sampling_params}
        return _drop_none({**body, **fields})

    def generate(self, prompt: Optional[Prompt] = None, sampling_params: Optional[Union[Json, list[Json]]] = None,
                 input_ids: Optional[Union[list[int], list[list[int]]]] = None, *, stream: bool = False,
                 **fields: Any) -> Any:
        """Returns {"text", "output_ids", "meta_info"}, or a list of such results for a list of prompts. With `stream`
        returns an iterator of such results, each with the text so far. `fields` are the other fields of /generate
        (return_logprob, image_data, …)."""
        body = self._generate_body(prompt, sampling_params, input_ids, fields)
        return self.stream("/generate", body) if stream else self.request("/generate", body)

    async def async_generate(self, prompt: Optional[Prompt] = None,
                             sampling_params: Optional[Union[Json, list[Json]]] = None,
                             input_ids: Optional[Union[list[int], list[list[int]]]] = None, *, stream: bool = False,
                             **fields: Any) -> Any:
        """generate() for asyncio; with `stream` an asynchronous iterator."""
        body = self._generate_body(prompt, sampling_params, input_ids, fields)
        if stream:
            return self.async_stream("/generate", body)
        return await self.async_request("/generate", body)

    def encode(self, prompt: Prompt, **fields: Any) -> Any:
        """Returns {"embedding", "meta_info"} for a text, or a list of such results for a list of texts of any length. The
        model must make embeddings (is_embedding=True)."""
        if prompt and all(isinstance(part, int) for part in prompt):  # the ids of one text
            return self._encode_all([prompt], fields)
        if isinstance(prompt, str):
            return self._encode_all([prompt], fields)[0]
        return self._encode_all(prompt, fields)

    def _encode_all(self, texts: list[Any], fields: Json) -> list[Json]:
        """Encodes the texts in several requests at a time, so that the engine is not idle while an answer is read."""
        made: list[Json] = []
        under_way: collections.deque[Request] = collections.deque()
        begins = iter(range(0, len(texts), _ENCODED_AT_ONCE))
        try:
            while True:
                while len(under_way) < _ENCODINGS and (begin := next(begins, None)) is not None:
                    body = {"input": texts[begin:begin + _ENCODED_AT_ONCE], **fields}
                    under_way.append(self._submit("/v1/embeddings", _drop_none(body)))
                if not under_way:
                    return made
                answer = json.loads(_next(under_way[0])[1])
                under_way.popleft().free()
                made += _read_embeddings(answer)
        finally:
            for request in under_way:
                request.free()

    # -- adapters --

    def load_lora_adapter(self, lora_name: str, lora_path: Union[str, os.PathLike[str]], pinned: bool = False,
                          load_inplace: bool = False) -> Json:
        """Loads a low-rank adapter from a folder that PEFT has written; other requests go on meanwhile. Requests name it in
        `lora_path`. `pinned` keeps it on the device. `load_inplace` replaces an adapter of the same name. Returns
        {"success": True, "loaded_adapters": {name: path}}, as the server does; a failure is a TesseraError. The engine must
        have been opened with `enable_lora` or `lora_paths`."""
        body = {"lora_name": lora_name, "lora_path": lora_path, "pinned": pinned, "load_inplace": load_inplace}
        with self._alive() as handle:
            _library.call("tessera_lora_load", handle, json.dumps(body, default=os.fspath).encode())
        return self._loaded()

    def unload_lora_adapter(self, lora_name: str) -> Json:
        """Unloads an adapter, which no new request can name then. Returns the same as load_lora_adapter(), when the last
        request that uses the adapter has ended. If the wait is interrupted, the adapter is unloaded nevertheless."""
        self._unload(lora_name)
        while not self._is_unused(lora_name, _SLICE_MS):
            pass
        return self._loaded()

    async def async_load_lora_adapter(self, lora_name: str, lora_path: Union[str, os.PathLike[str]], pinned: bool = False,
                                      load_inplace: bool = False) -> Json:
        """load_lora_adapter() for asyncio; another thread reads the folder."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(None, self.load_lora_adapter, lora_name, lora_path, pinned, load_inplace)

    async def async_unload_lora_adapter(self, lora_name: str) -> Json:
        """unload_lora_adapter() for asyncio."""
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(None, self._unload, lora_name)
        while not self._is_unused(lora_name, 0):
            await asyncio.sleep(_UNLOAD_POLL_S)
        return await loop.run_in_executor(None, self._loaded)

    def list_lora_adapters(self) -> list[Json]:
        """Returns the loaded adapters, sorted by name: {"lora_name", "lora_path", "rank", "pinned", "running", "on_device"}.
        `running` is the number of running requests that use the adapter."""
        with self._alive() as handle:
            adapters: list[Json] = json.loads(_library.call_for_text("tessera_lora_list", handle))
        return adapters

    def _unload(self, lora_name: str) -> None:
        with self._alive() as handle:
            _library.unload_adapter(handle, lora_name)

    def _is_unused(self, lora_name: str, timeout_ms: int) -> bool:
        with self._alive() as handle:
            return _library.wait_for_adapter(handle, lora_name, timeout_ms)

    def _loaded(self) -> Json:
        return {"success": True,
                "loaded_adapters": {adapter["lora_name"]: adapter["lora_path"] for adapter in self.list_lora_adapters()}}

    # -- texts --

    def chat(self, messages: list[Json], *, stream: bool = False, **fields: Any) -> Any:
        """Returns OpenAI's chat completion, or with `stream` an iterator over its chunks."""
        body = _drop_none({"messages": messages, **fields})
        return self.stream("/v1/chat/completions", body) if stream else self.request("/v1/chat/completions", body)

    def tokenize(self, text: str, add_special_tokens: bool = True) -> list[int]:
        with self._alive() as handle:
            return _library.tokenize(handle, text, add_special_tokens)

    def detokenize(self, ids: list[int], skip_special_tokens: bool = True) -> str:
        with self._alive() as handle:
            return _library.detokenize(handle, ids, skip_special_tokens)

    def apply_chat_template(self, messages: list[Json], **fields: Any) -> str:
        """Returns the prompt that the model's template makes. It already contains the special tokens that it needs."""
        body = json.dumps(_drop_none({"messages": messages, **fields}))
        with self._alive() as handle:
            return _library.call_for_text("tessera_apply_chat_template", handle, body.encode())

    # -- information --

    def get_server_info(self) -> Json:
        """Returns {"model", "engine"}: options, plan, forwards by reason and size, cache, memory."""
        return self._told("tessera_info")

    def metrics(self) -> Json:
        return self._told("tessera_metrics")

    def _told(self, function: str) -> Json:
        with self._alive() as handle:
            told: Json = json.loads(_library.call_for_text(function, handle))
        return told

    @staticmethod
    def explain(model_path: Union[str, os.PathLike[str]], **options: Any) -> Json:
        """Returns what an engine with these options would run: pieces, split operators, sizes, rules, memory. Needs only
        config.json."""
        given = _options_text(model_path, options).encode()
        explained: Json = json.loads(_library.call_for_text("tessera_explain", given))
        return explained
