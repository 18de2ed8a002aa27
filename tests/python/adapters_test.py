#!/usr/bin/env python3
"""Tests low-rank adapters of the installed Python package: tests/python/adapters_test.py DATA_FOLDER [TEST …]

DATA_FOLDER is tests/data. Catches: adapters that are loaded, named, listed or unloaded otherwise than in an engine that was
opened with them, an unload that returns while a request uses the adapter, and wrong calls without an error."""

import asyncio
import pathlib
import signal
import sys
import threading
import time
import unittest

from tessera_engine import LLM, Engine, LoRARequest, SamplingParams, TesseraError

DATA = pathlib.Path(sys.argv.pop(1))
MODEL = DATA / "goldens/qwen3"
TUNED = DATA / "adapters/qwen3-lora/r8-attention"
OTHER = DATA / "adapters/qwen3-lora/r4-all-rslora"
FEW = {"served_model_name": "demo", "dtype": "float32", "disable_cost_measurement": True, "context_length": 512,
       "piecewise_cuda_graph_tokens": [16, 64], "cuda_graph_bs": [1, 4], "enable_deterministic_inference": True,
       "log_level": "error"}
GREEDY = {"temperature": 0, "max_new_tokens": 16, "ignore_eos": True}
LONG = {"temperature": 0, "max_new_tokens": 500, "ignore_eos": True}
PROMPT = [5, 6, 7]


class AdaptersTest(unittest.TestCase):
    def setUp(self):
        self.engine = Engine(MODEL, enable_lora=True, **FEW)
        self.addCleanup(self.engine.shutdown)

    def ids(self, engine=None, **fields):
        return (engine or self.engine).generate(input_ids=PROMPT, sampling_params=GREEDY, **fields)["output_ids"]

    def slow(self, **fields):
        """Starts a request that takes at least two seconds, because its callback is slow."""
        started = threading.Event()

        def on_event(_kind, _code, _text):
            started.set()
            time.sleep(0.004)

        body = {"input_ids": PROMPT, "sampling_params": LONG, "stream": True, **fields}
        request = self.engine._submit("/generate", body, on_event)
        self.addCleanup(request.free)
        self.assertTrue(started.wait(60))
        return request

    def test_a_loaded_one_equals_one_given_at_the_start(self):
        base = self.ids()
        self.assertEqual(self.engine.load_lora_adapter("tuned", TUNED),
                         {"success": True, "loaded_adapters": {"tuned": str(TUNED)}})
        tuned = self.ids(lora_path="tuned")
        with Engine(MODEL, lora_paths=[f"tuned={TUNED}"], **FEW) as given:
            self.assertEqual(tuned, self.ids(given, lora_path="tuned"))
        self.assertNotEqual(tuned, base)
        completed = self.engine.request("/v1/completions", {"model": "tuned", "prompt": PROMPT, "max_tokens": 16,
                                                            "temperature": 0, "ignore_eos": True})
        self.assertEqual(completed["choices"][0]["token_ids"], tuned)
        both = self.engine.generate(input_ids=[PROMPT, PROMPT], sampling_params=GREEDY, lora_path=["tuned", None])
        self.assertEqual([answer["output_ids"] for answer in both], [tuned, base])
        self.engine.load_lora_adapter("tuned", str(OTHER), load_inplace=True)
        self.assertNotIn(self.ids(lora_path="tuned"), (tuned, base))
        self.assertEqual(self.engine.unload_lora_adapter("tuned"), {"success": True, "loaded_adapters": {}})
        self.assertEqual(self.ids(), base)

    def test_lists_what_is_loaded(self):
        self.assertEqual(self.engine.list_lora_adapters(), [])
        self.engine.load_lora_adapter("b", TUNED, pinned=True)
        self.engine.load_lora_adapter("a", OTHER)
        self.ids(lora_path="b")
        self.assertEqual(self.engine.list_lora_adapters(), [
            {"lora_name": "a", "lora_path": str(OTHER), "rank": 4, "pinned": False, "running": 0, "on_device": False},
            {"lora_name": "b", "lora_path": str(TUNED), "rank": 8, "pinned": True, "running": 0, "on_device": True}])

    def test_an_unload_waits_for_the_last_request(self):
        self.engine.load_lora_adapter("tuned", TUNED)
        self.slow(lora_path="tuned")
        self.assertEqual(self.engine.list_lora_adapters()[0]["running"], 1)
        begin = time.monotonic()
        self.engine.unload_lora_adapter("tuned")
        self.assertGreater(time.monotonic() - begin, 1)
        self.assertEqual(self.engine.metrics()["tokens"]["output"], 500)

    def test_an_end_does_not_wait_for_an_unload(self):
        self.engine.load_lora_adapter("tuned", TUNED)
        self.slow(lora_path="tuned")
        failed = []

        def unload():
            try:
                self.engine.unload_lora_adapter("tuned")
            except TesseraError as error:
                failed.append(str(error))

        thread = threading.Thread(target=unload)
        thread.start()
        while self.engine.list_lora_adapters():
            time.sleep(0.001)
        self.engine.shutdown()
        thread.join()
        self.assertEqual(failed, ["the engine was shut down"])

    def test_an_interrupt_ends_the_wait_alone(self):
        self.engine.load_lora_adapter("tuned", TUNED)
        self.slow(lora_path="tuned")
        threading.Timer(0.3, signal.raise_signal, (signal.SIGINT,)).start()
        with self.assertRaises(KeyboardInterrupt):
            self.engine.unload_lora_adapter("tuned")
        self.assertEqual(self.engine.list_lora_adapters(), [])
        self.assertEqual(self.engine.metrics()["requests"]["running"], 1)

    def test_asyncio(self):
        async def run():
            loaded = await self.engine.async_load_lora_adapter("tuned", TUNED)
            stream = await self.engine.async_generate(input_ids=PROMPT, sampling_params=LONG, lora_path="tuned", stream=True)
            await anext(stream)
            unloaded = await self.engine.async_unload_lora_adapter("tuned")
            return loaded["loaded_adapters"], unloaded["loaded_adapters"], len([part async for part in stream])

        self.assertEqual(asyncio.run(run()), ({"tuned": str(TUNED)}, {}, 499))

    def test_wrong_calls_name_the_fault(self):
        self.engine.load_lora_adapter("tuned", TUNED)
        for arguments, field, message in (
                (("other", "/nowhere"), "lora_path", "/nowhere is no folder"),
                (("tuned", TUNED), "lora_name", "load_inplace replaces it"),
                (("demo", TUNED), "lora_name", "the model itself"),
                (("", TUNED), "lora_name", "a name"),
                ((3, TUNED), "lora_name", "a string"),
                (("other", TUNED, "yes"), "pinned", "true or false")):
            with self.subTest(arguments), self.assertRaisesRegex(TesseraError, message) as caught:
                self.engine.load_lora_adapter(*arguments)
            self.assertEqual((caught.exception.name, caught.exception.field), ("invalid argument", field))
        with self.assertRaisesRegex(TesseraError, 'no adapter "other" is loaded; loaded: tuned') as caught:
            self.engine.unload_lora_adapter("other")
        self.assertEqual((caught.exception.name, caught.exception.field), ("not found", "lora_name"))
        with self.assertRaisesRegex(TesseraError, "without NUL characters"):
            self.engine.unload_lora_adapter("tuned\0")
        for name in (3, "\ud800"):
            with self.assertRaises(TesseraError) as caught:
                self.engine.unload_lora_adapter(name)
            self.assertEqual(caught.exception.field, "lora_name")
        with self.assertRaisesRegex(TesseraError, 'no adapter "other" is loaded'):
            self.ids(lora_path="other")
        self.assertEqual(list(self.engine._loaded()["loaded_adapters"]), ["tuned"])

    def test_prompts_of_llm_name_adapters_as_in_vllm(self):
        llm = LLM(MODEL, enable_lora=True, **FEW)
        self.addCleanup(llm.shutdown)
        prompt, params = {"prompt_token_ids": PROMPT}, SamplingParams(temperature=0, max_tokens=16, ignore_eos=True)
        tuned, other = LoRARequest("tuned", 1, str(TUNED)), LoRARequest("other", 2, str(OTHER))
        outputs = llm.generate([prompt] * 3, params, lora_request=[tuned, None, other])
        self.assertEqual([output.lora_request for output in outputs], [tuned, None, other])
        self.engine.load_lora_adapter("tuned", TUNED)
        self.engine.load_lora_adapter("other", OTHER)
        want = [self.ids(lora_path="tuned"), self.ids(), self.ids(lora_path="other")]
        self.assertEqual([output.outputs[0].token_ids for output in outputs], want)
        both = llm.generate([prompt] * 2, params, lora_request=other)  # one adapter for both prompts, already loaded
        self.assertEqual([output.outputs[0].token_ids for output in both], [want[2]] * 2)
        with self.assertRaisesRegex(TesseraError, "loaded already, from"):
            llm.generate(prompt, params, lora_request=LoRARequest("tuned", 1, str(OTHER)))
        with self.assertRaisesRegex(ValueError, "2 lora_request are given for 1 prompts"):
            llm.generate(prompt, params, lora_request=[tuned, other])

    def test_an_engine_without_adapters_says_so(self):
        with Engine(MODEL, **FEW) as engine:
            self.assertEqual(engine.list_lora_adapters(), [])
            for call in (lambda: engine.load_lora_adapter("tuned", TUNED), lambda: engine.unload_lora_adapter("tuned"),
                         lambda: self.ids(engine, lora_path="tuned")):
                with self.assertRaisesRegex(TesseraError, "(?s)^(?!.*--).*enable_lora"):
                    call()


if __name__ == "__main__":
    unittest.main()
