#!/usr/bin/env python3
"""Tests examples/dynamo_worker/worker.py without Dynamo and without an engine: tests/clients/dynamo_worker_test.py

Catches: an aborted request that never ends, an error that becomes a normal answer, and reports of the load that end with
the first exception. Dynamo's modules and tessera_engine are replaced by stand-ins; dynamo_jobs.py has the real ones.
The last line is "N passed, N failed"."""

import asyncio
import logging
import pathlib
import sys
from unittest import mock

ROOT = pathlib.Path(__file__).resolve().parents[2]
REPLACED = ("dynamo", "dynamo._core", "dynamo.common", "dynamo.common.backend", "dynamo.common.backend.engine",
            "dynamo.common.backend.health_check", "dynamo.common.backend.logprobs", "dynamo.common.backend.metrics",
            "dynamo.common.backend.publisher", "dynamo.common.backend.run", "dynamo.common.backend.worker", "dynamo.common.utils",
            "dynamo.common.utils.token_ids", "dynamo.llm", "dynamo.llm.exceptions", "prometheus_client",
            "prometheus_client.metrics_core", "tessera_engine")
WAIT_S = 10


class TesseraError(Exception):
    code = 1


def load_worker():
    for name in REPLACED:
        sys.modules[name] = mock.MagicMock()
    sys.modules["dynamo.common.backend.engine"].LLMEngine = object
    for name in ("EngineShutdown", "InvalidArgument", "Unknown", "WorkerUnavailable"):
        setattr(sys.modules["dynamo.llm.exceptions"], name, type(name, (Exception,), {}))
    sys.modules["tessera_engine"].TesseraError = TesseraError
    sys.path.insert(0, str(ROOT / "examples" / "dynamo_worker"))
    import worker
    worker.completion_body = lambda *_: {}
    worker.SNAPSHOT_S = 0.001
    return worker


WORKER = load_worker()


class Engine:
    """An engine that answers with a chunk and then raises `error`, or goes on without end if there is none."""

    def __init__(self, error=None):
        self.error = error

    async def async_stream(self, _path, _body):
        yield {"choices": [{"token_ids": [7], "logprobs": None, "finish_reason": None}]}
        if self.error is not None:
            raise self.error
        await asyncio.Event().wait()


def worker_with(engine):
    made = WORKER.TesseraWorker(mock.MagicMock(drain_timeout=WAIT_S))
    made.engine = engine
    return made


def context(stopped=False):
    made = mock.MagicMock()
    made.id.return_value = "a"
    made.is_stopped.return_value = stopped
    return made


async def chunks_of(worker, told):
    return [chunk async for chunk in worker.generate({}, told)]


def ends_cancelled(worker, chunks):
    assert chunks[-1] == {"token_ids": [], "index": 0, "finish_reason": "cancelled"}, chunks
    assert not worker.running, worker.running


async def an_abort_before_the_readers_first_step_ends_the_answer():
    worker, told = worker_with(Engine()), context()
    answer = asyncio.create_task(chunks_of(worker, told))
    await asyncio.sleep(0)  # generate() has made the reader, which has not run
    assert list(worker.running) == ["a"], worker.running
    await worker.abort(told)
    chunks = await answer
    assert len(chunks) == 1, chunks
    ends_cancelled(worker, chunks)


async def an_abort_of_a_running_request_ends_the_answer():
    worker, told = worker_with(Engine()), context()
    answer = worker.generate({}, told)
    assert (await anext(answer))["token_ids"] == [7]
    await worker.abort(told)
    ends_cancelled(worker, [chunk async for chunk in answer])


async def a_request_that_was_stopped_before_is_not_begun():
    worker = worker_with(mock.MagicMock())
    ends_cancelled(worker, await chunks_of(worker, context(stopped=True)))
    worker.engine.async_stream.assert_not_called()


async def errors_are_passed_on():
    exceptions = sys.modules["dynamo.llm.exceptions"]
    for error, kind, words in ((TesseraError("n is 0"), exceptions.InvalidArgument, "n is 0"),
                               (ValueError("no JSON"), exceptions.Unknown, "ValueError: no JSON")):
        worker = worker_with(Engine(error))
        try:
            chunks = await chunks_of(worker, context())
        except Exception as raised:
            assert type(raised) is kind and str(raised) == words, repr(raised)
        else:
            raise AssertionError(f"{error!r} became the answer {chunks}")
        assert not worker.running, worker.running


async def an_engine_that_was_shut_down_is_named():
    try:
        await chunks_of(worker_with(None), context())
    except sys.modules["dynamo.llm.exceptions"].EngineShutdown:
        return
    raise AssertionError("the request has an answer")


async def reports_go_on_after_an_exception():
    told = {"tokens": {"cached": 1, "prompt": 2}, "cache": [{"used_pages": 1, "usable_pages": 4}]}
    engine = mock.MagicMock()
    worker = worker_with(engine)
    worker.publisher = mock.MagicMock()
    engine.metrics.side_effect = [RuntimeError("busy"), RuntimeError("busy"), told, RuntimeError("busy"), told, *[told] * 10_000]
    reports = asyncio.create_task(worker.report_load())
    with mock.patch.object(WORKER.logger, "exception") as logged:
        while worker.publisher.publish.call_count < 2:
            assert not reports.done(), reports
            await asyncio.sleep(0.001)
    reports.cancel()
    assert logged.call_count == 2, "a failure is logged once until a report succeeds"


def main():
    logging.disable()
    failed = 0
    tests = (an_abort_before_the_readers_first_step_ends_the_answer, an_abort_of_a_running_request_ends_the_answer,
             a_request_that_was_stopped_before_is_not_begun, errors_are_passed_on, an_engine_that_was_shut_down_is_named,
             reports_go_on_after_an_exception)
    for test in tests:
        try:
            asyncio.run(asyncio.wait_for(test(), WAIT_S))
            print(f"ok: {test.__name__}")
        except Exception as error:
            failed += 1
            print(f"FAILED: {test.__name__}: {type(error).__name__}: {error}")
    print(f"{len(tests) - failed} passed, {failed} failed")
    sys.exit(failed > 0)


if __name__ == "__main__":
    main()
