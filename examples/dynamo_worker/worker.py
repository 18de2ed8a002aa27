#!/usr/bin/env python3
"""A worker for NVIDIA Dynamo that runs Tessera in its own process: worker.py --model-path FOLDER [flags]

Dynamo's frontend tokenises, routes and detokenises. This worker gets token ids and streams token ids, as the contract
dynamo.common.backend.LLMEngine says. README.md says how to start it, and what it refuses."""

from __future__ import annotations

import argparse
import asyncio
import functools
import json
import logging
import os
import tempfile
from collections.abc import AsyncGenerator, Iterator
from typing import Any, Optional

from dynamo._core import Context
from dynamo.common.backend.engine import EngineConfig, GenerateChunk, GenerateRequest, LLMEngine, LlmRegistration
from dynamo.common.backend.health_check import build_health_check_payload
from dynamo.common.backend.metrics import register_engine_registry
from dynamo.common.backend.publisher import ComponentSnapshot, KvEventSource, ZmqSource
from dynamo.common.backend.run import run
from dynamo.common.backend.worker import WorkerConfig
from dynamo.common.utils.token_ids import normalize_request_token_ids
from dynamo.llm.exceptions import EngineShutdown, InvalidArgument, Unknown, WorkerUnavailable
from prometheus_client import CollectorRegistry
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric
from tessera_engine import Engine, TesseraError

from mapping import chunk_of, completion_body

logger = logging.getLogger(__name__)

# Dynamo's error for each code of a TesseraError (tessera.h); Unknown for all others.
ERRORS = {1: InvalidArgument, 4: WorkerUnavailable, 5: InvalidArgument, 6: EngineShutdown, 8: EngineShutdown}
SNAPSHOT_S = 0.25  # the time between two reports of the load
TEXTS_KEPT = 10_000  # texts of tokens that are kept for log-probabilities


class TesseraWorker(LLMEngine):
    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.engine: Optional[Engine] = None
        self.context_length = 0
        self.events: Optional[tempfile.TemporaryDirectory[str]] = None  # the folder of the socket with cache events
        self.running: dict[str, asyncio.Task[None]] = {}  # the task that reads each request's answer, by context
        self.reports: Optional[asyncio.Task[None]] = None
        self.publisher: Any = None
        self.text_of = functools.lru_cache(TEXTS_KEPT)(self.detokenize)

    @classmethod
    async def from_args(cls, argv: list[str] | None = None) -> tuple[TesseraWorker, WorkerConfig]:
        parser = argparse.ArgumentParser(description="Serves a model with Tessera as a worker of NVIDIA Dynamo.")
        parser.add_argument("--model-path", required=True, help="folder with weights, tokenizer and chat template")
        parser.add_argument("--served-model-name", help="what clients call the model (its path)")
        parser.add_argument("--engine-options", type=json.loads, default={}, metavar="JSON",
                            help='flags of tessera serve as keys: \'{"device": "cuda", "page_size": 32}\'')
        parser.add_argument("--no-kv-events", action="store_true", help="do not publish what the prefix cache holds")
        parser.add_argument("--drain-timeout", type=float, default=30, metavar="SECONDS",
                            help="that running requests have to end when the worker is to end (30)")
        parser.add_argument("--tool-call-parser", help="how the frontend reads calls (it does not)")
        parser.add_argument("--reasoning-parser", help="how the frontend reads reasoning (it does not)")
        parser.add_argument("--namespace", default=os.environ.get("DYN_NAMESPACE", "dynamo"))
        parser.add_argument("--component", default="backend")
        parser.add_argument("--endpoint", default="generate")
        parser.add_argument("--endpoint-types", default="chat,completions")
        parser.add_argument("--discovery-backend", default=os.environ.get("DYN_DISCOVERY_BACKEND", "etcd"))
        parser.add_argument("--request-plane", default=os.environ.get("DYN_REQUEST_PLANE", "tcp"))
        parser.add_argument("--event-plane", default=os.environ.get("DYN_EVENT_PLANE"))
        options = parser.parse_args(argv)
        options.served_model_name = options.served_model_name or options.model_path
        return cls(options), WorkerConfig(
            namespace=options.namespace, component=options.component, endpoint=options.endpoint,
            endpoint_types=options.endpoint_types, model_name=options.model_path,
            served_model_name=options.served_model_name, discovery_backend=options.discovery_backend,
            request_plane=options.request_plane, event_plane=options.event_plane,
            tool_call_parser=options.tool_call_parser, reasoning_parser=options.reasoning_parser)

    # -- the start and the end --

    async def start(self, worker_id: int) -> EngineConfig:
        flags = dict(self.options.engine_options)
        if not self.options.no_kv_events:
            self.events = tempfile.TemporaryDirectory(prefix="tessera-dynamo-")
            flags["kv_events_config"] = json.dumps({"publisher": "zmq", "endpoint": self.events_endpoint(), "bind": True})
        self.engine = await asyncio.to_thread(Engine, self.options.model_path,
                                              served_model_name=self.options.served_model_name, **flags)
        info = self.engine.get_server_info()["engine"]
        self.context_length = info["context_length"]
        self.reports = asyncio.create_task(self.report_load())
        return EngineConfig(model=self.options.model_path, served_model_name=self.options.served_model_name,
                            llm=LlmRegistration(context_length=self.context_length,
                                                kv_cache_block_size=info["page_size"],
                                                total_kv_blocks=info["stats"]["usable_pages"],
                                                max_num_seqs=info["max_running_requests"],
                                                max_num_batched_tokens=info["plan"]["max_tokens"]))

    async def cleanup(self) -> None:
        """Lets the running requests end, and ends the engine. Requests that then still run end with EngineShutdown, which lets
        the frontend continue them elsewhere. Dynamo calls this after the start, also after one that failed; by then it
        sends no more requests."""
        loop = asyncio.get_running_loop()
        end = loop.time() + self.options.drain_timeout
        while self.running and loop.time() < end:
            await asyncio.sleep(0.05)
        if self.reports is not None:
            self.reports.cancel()
        engine, self.engine = self.engine, None
        if engine is not None:
            await asyncio.to_thread(engine.shutdown)
        events, self.events = self.events, None
        if events is not None:
            events.cleanup()

    async def health_check_payload(self) -> dict[str, Any]:
        return build_health_check_payload(bos_token_id=0)

    # -- the prefix cache and the load, by which Dynamo routes --

    def events_endpoint(self) -> str:
        assert self.events is not None
        return f"ipc://{self.events.name}/kv"

    async def kv_event_sources(self) -> list[KvEventSource]:
        return [] if self.events is None else [ZmqSource(endpoint=self.events_endpoint())]

    def component_metrics_dp_ranks(self) -> list[int]:
        return [0]

    def attach_snapshot_publisher(self, publisher: Any) -> None:
        self.publisher = publisher

    async def report_load(self) -> None:
        failed = False  # whether the last report failed: only the first of several failures is logged
        while self.engine is not None:
            try:
                self.publish_load(self.engine)
                failed = False
            except Exception:
                if not failed:
                    logger.exception("the load could not be reported")
                failed = True
            await asyncio.sleep(SNAPSHOT_S)

    def publish_load(self, engine: Engine) -> None:
        if self.publisher is None:
            return
        told = engine.metrics()
        tokens, used, usable = told["tokens"], told["cache"][0]["used_pages"], told["cache"][0]["usable_pages"]
        self.publisher.publish(0, ComponentSnapshot(
            kv_used_blocks=used, kv_total_blocks=usable, gpu_cache_usage=used / usable, dp_rank=0,
            kv_cache_hit_rate=tokens["cached"] / tokens["prompt"] if tokens["prompt"] else None))

    async def register_prometheus(self, metrics: Any) -> None:
        registry = CollectorRegistry(auto_describe=False)
        registry.register(self)
        register_engine_registry(metrics, registry, prefix_filters=["tessera:"])

    def collect(self) -> Iterator[Metric]:
        """Yields the engine's metrics to Prometheus' client."""
        if self.engine is None:
            return
        told = self.engine.metrics()
        for name in ("running", "queued"):
            yield GaugeMetricFamily(f"tessera:{name}_requests", f"Requests that are {name}.", value=told["requests"][name])
        for name, count in told["tokens"].items():
            yield CounterMetricFamily(f"tessera:{name}_tokens", f"Tokens: {name}.", value=count)
        yield CounterMetricFamily("tessera:preemptions", "Requests that made room for others.",
                                  value=told["requests"]["preemptions"])
        yield CounterMetricFamily("tessera:steps", "Steps of the engine.", value=told["steps"])

    # -- requests --

    def detokenize(self, token: int) -> str:
        assert self.engine is not None
        return self.engine.detokenize([token], skip_special_tokens=False)

    async def generate(self, request: GenerateRequest, context: Context) -> AsyncGenerator[GenerateChunk, None]:
        last: GenerateChunk = {"token_ids": [], "index": 0, "finish_reason": "cancelled"}  # if the answer has no end
        if context.is_stopped():  # abort() came before the request was known here
            yield last
            return
        normalize_request_token_ids(request)
        body = completion_body(request, self.options.served_model_name, self.context_length)
        chunks: asyncio.Queue[Any] = asyncio.Queue()
        reader = self.running[context.id()] = asyncio.create_task(self.read(body, chunks))
        # The task itself cannot queue the end: a task that is cancelled before its first step runs no line of read().
        reader.add_done_callback(lambda _: chunks.put_nowait(None))
        try:
            while (told := await chunks.get()) is not None:
                if isinstance(told, Exception):
                    raise told
                if not told["choices"]:  # the usage, which follows the choice's end
                    last["completion_usage"] = told["usage"]
                    continue
                chunk = chunk_of(told["choices"][0], self.text_of)
                if "finish_reason" in chunk:
                    last = chunk
                else:
                    yield chunk
            yield last
        finally:
            self.running.pop(context.id(), None)
            reader.cancel()

    async def read(self, body: dict[str, Any], chunks: asyncio.Queue[Any]) -> None:
        """Puts the chunks of the answer into the queue, or an error. The engine's request is cancelled with this task."""
        try:
            if self.engine is None:
                raise EngineShutdown("the engine was shut down")
            async for chunk in self.engine.async_stream("/v1/completions", body):
                chunks.put_nowait(chunk)
        except TesseraError as error:
            chunks.put_nowait(ERRORS.get(error.code, Unknown)(str(error)))
        except EngineShutdown as error:
            chunks.put_nowait(error)
        except Exception as error:
            logger.exception("a request failed")
            chunks.put_nowait(Unknown(f"{type(error).__name__}: {error}"))

    async def abort(self, context: Context) -> None:
        if reader := self.running.get(context.id()):
            reader.cancel()


if __name__ == "__main__":
    run(TesseraWorker)
