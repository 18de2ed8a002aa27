#!/usr/bin/env python3
"""Tests the installed Python package with the bundled model: tests/python/engine_test.py MODEL_FOLDER [TEST …]

Catches: texts, ids and log-probabilities that differ from the program's, streams and asynchronous requests that lose or
leak requests, unreported errors, and an engine that lives on after its end."""

import asyncio
import gc
import json
import math
import os
import pathlib
import signal
import subprocess
import sys
import threading
import time
import types
import unittest

from tessera_engine import LLM, Engine, SamplingParams, TesseraError, version
from tessera_engine.lm_eval import TesseraLM

MODEL = sys.argv.pop(1)
FEW = {"disable_cost_measurement": True, "piecewise_cuda_graph_tokens": [64], "cuda_graph_bs": [1, 2, 4], "max_total_tokens": 8192,
       "enable_deterministic_inference": True}
GREEDY = {"temperature": 0, "max_new_tokens": 12}
LONG = {"max_new_tokens": 4000, "ignore_eos": True}


def program(*arguments):
    done = subprocess.run(["tessera", *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


class EngineTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.engine = Engine(MODEL, **FEW)

    @classmethod
    def tearDownClass(cls):
        cls.engine.shutdown()

    def test_texts_are_the_programs(self):
        told = json.loads(program("generate", "--model-path", MODEL, "--prompt", "Once upon a time", "--max-new-tokens", "12",
                                  "--temperature", "0", "--json", "--enable-deterministic-inference"))
        answer = self.engine.generate("Once upon a time", GREEDY)
        self.assertEqual(answer["text"], told["text"])
        self.assertEqual(answer["output_ids"], told["output_ids"])
        self.assertEqual(answer["meta_info"]["completion_tokens"], 12)
        self.assertEqual(answer["meta_info"]["finish_reason"]["type"], "length")
        self.assertEqual(version(), program("--version").split()[-1])

    def test_warnings_name_options_as_arguments(self):
        told = subprocess.run([sys.executable, "-c", "import sys; from tessera_engine import Engine\n"
                               "Engine(sys.argv[1], enable_cudagraph_gc=True, torch_compile_max_bs=4, "
                               "disable_cost_measurement=True, cuda_graph_bs=[1], piecewise_cuda_graph_tokens=[64]).shutdown()",
                               MODEL], capture_output=True, text=True, check=False)
        self.assertEqual(told.returncode, 0, told.stderr)
        self.assertIn(" enable_cudagraph_gc has no effect", told.stderr)
        self.assertIn(" torch_compile_max_bs has no effect without enable_torch_compile", told.stderr)
        self.assertNotIn("--", told.stderr)

    def test_lists_keep_their_order(self):
        prompts = ["Once upon a time", "There was", "The dog"]
        answers = self.engine.generate(prompts, [GREEDY, GREEDY, {**GREEDY, "max_new_tokens": 3}])
        alone = [self.engine.generate(prompt, GREEDY)["text"] for prompt in prompts]
        self.assertEqual([answer["text"] for answer in answers[:2]], alone[:2])
        self.assertEqual(answers[2]["meta_info"]["completion_tokens"], 3)
        ids = [self.engine.tokenize(prompt) for prompt in prompts]
        self.assertEqual([a["text"] for a in self.engine.generate(input_ids=ids, sampling_params=GREEDY)], alone)

    def test_streams_grow_to_the_whole(self):
        whole = self.engine.generate("Once upon a time", GREEDY)["text"]
        parts = [part["text"] for part in self.engine.generate("Once upon a time", GREEDY, stream=True)]
        self.assertEqual(len(parts), 12)
        self.assertEqual(parts[-1], whole)
        self.assertTrue(all(whole.startswith(part) for part in parts))

    def test_a_stream_that_is_left_is_cancelled(self):
        for part in self.engine.generate("Once", LONG, stream=True):
            self.assertIn("text", part)
            break
        for _ in range(200):
            if self.engine.metrics()["requests"]["running"] == 0:
                return
            self.engine.generate("a", {"max_new_tokens": 1})
        self.fail("the request still runs")

    def test_asyncio(self):
        async def run():
            texts = await asyncio.gather(*(self.engine.async_generate("Once upon a time", GREEDY) for _ in range(40)))
            parts = [part["text"] async for part in await self.engine.async_generate("Once upon a time", GREEDY, stream=True)]
            with self.assertRaises(TesseraError):
                await self.engine.async_generate("a", {"top_p": 7})
            return {answer["text"] for answer in texts} | {parts[-1]}

        self.assertEqual(asyncio.run(run()), {self.engine.generate("Once upon a time", GREEDY)["text"]})

    def test_threads_share_an_engine(self):
        expected = self.engine.generate("Once upon a time", GREEDY)["text"]
        wrong = []

        def work():
            for _ in range(5):
                if self.engine.generate("Once upon a time", GREEDY)["text"] != expected:
                    wrong.append(1)

        threads = [threading.Thread(target=work) for _ in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(wrong, [])

    def test_tokens_come_back(self):
        ids = self.engine.tokenize("Once upon a time", add_special_tokens=False)
        self.assertEqual(self.engine.detokenize(ids), "Once upon a time")
        self.assertEqual(self.engine.tokenize("", add_special_tokens=False), [])
        for wrong in (-1, 2**31, 2**40):  # 2**40 has 32 zero bits at its end
            with self.assertRaisesRegex(TesseraError, f"id {wrong} at 1 is not the model's"):
                self.engine.detokenize([ids[0], wrong])

    def test_errors_name_what_is_wrong(self):
        with self.assertRaises(TesseraError) as caught:
            self.engine.generate("a", {"top_p": 7})
        self.assertEqual((caught.exception.name, caught.exception.field), ("invalid argument", "sampling_params.top_p"))
        with self.assertRaisesRegex(TesseraError, "unknown option page_sise; did you mean page_size"):
            Engine(MODEL, page_sise=16)
        with self.assertRaisesRegex(TesseraError, "(?s)^(?!.*--)") as caught:
            Engine(MODEL, tool_call_parser="nonsense")
        self.assertIn("tool_call_parser", str(caught.exception))
        with self.assertRaisesRegex(TesseraError, "(?s)^(?!.*--).*is_embedding"):
            self.engine.encode("a")
        with self.assertRaisesRegex(TesseraError, "^page_size: \"x\" is not accepted; a whole number is$"):
            Engine(MODEL, page_size="x")
        with self.assertRaisesRegex(TesseraError, "/nowhere/at/all: there is no such model"):
            Engine(pathlib.Path("/nowhere/at/all"))
        with self.assertRaises(TesseraError):
            self.engine.encode("a")

    def test_it_tells_what_it_is(self):
        info = self.engine.get_server_info()
        self.assertEqual(info["engine"]["plan"]["prefill_sizes"], [64])
        self.assertGreater(Engine.explain(MODEL, **FEW)["memory"] and 1, 0)
        self.assertGreaterEqual(self.engine.metrics()["steps"], 0)

    def test_an_end_is_an_end(self):
        with Engine(MODEL, is_embedding=True, **FEW) as engine:
            made = engine.encode(["Once", "upon a time"])
            self.assertEqual(len(made), 2)
            self.assertAlmostEqual(sum(x * x for x in made[0]["embedding"]), 1, places=4)
            self.assertEqual(len(engine.encode("Once")["embedding"]), len(made[0]["embedding"]))
            texts = [f"Fox number {i}" for i in range(1500)]  # more than one request may take
            many = engine.encode(texts, dimensions=4)
            self.assertEqual(len(many), 1500)
            for i in (0, 63, 64, 1499):
                self.assertEqual(many[i]["embedding"], engine.encode(texts[i], dimensions=4)["embedding"])
            with self.assertRaises(TesseraError):
                engine.encode([*texts[:300], ""])
        engine.shutdown()
        with self.assertRaisesRegex(TesseraError, "shut down"):
            engine.encode("Once")

    def test_an_end_waits_for_calls_of_other_threads(self):
        engine = Engine(MODEL, **FEW)
        ended = []

        def work():
            try:
                while True:
                    engine.tokenize("Once upon a time " * 200)
            except TesseraError as error:
                ended.append(str(error))

        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        engine.shutdown()
        for thread in threads:
            thread.join()
        self.assertEqual(ended, ["the engine was shut down"] * 4)

    def test_a_stream_keeps_its_engine(self):
        stream = Engine(MODEL, **FEW).generate("Once upon a time", {**GREEDY, "ignore_eos": True}, stream=True)
        gc.collect()
        self.assertEqual(len(list(stream)), 12)

    def test_a_forked_process_is_refused(self):
        stream = self.engine.generate("Once upon a time", LONG, stream=True)
        next(stream)
        child = os.fork()
        if child == 0:
            refused = 0
            for call in (lambda: self.engine.generate("a", GREEDY), self.engine.metrics, lambda: next(stream),
                         lambda: Engine(MODEL, **FEW)):
                try:
                    call()
                except TesseraError as error:
                    refused += "forked" in str(error)
            stream.close()
            self.engine.shutdown()  # does nothing
            os._exit(refused)
        for _ in range(600):
            ended, status = os.waitpid(child, os.WNOHANG)
            if ended:
                break
            time.sleep(0.1)
        else:
            os.kill(child, signal.SIGKILL)
            self.fail("the forked process hangs")
        self.assertEqual(os.waitstatus_to_exitcode(status), 4)
        next(stream)
        stream.close()

    def test_an_engine_may_be_collected_within_a_callback(self):
        held = [Engine(MODEL, **FEW)]
        finalizer = held[0]._finalizer
        collected = threading.Event()

        def on_event(_kind, _code, _text):
            held.clear()
            collected.set()

        request = held[0]._submit("/generate", {"text": "a", "sampling_params": LONG, "stream": True}, on_event)
        self.assertTrue(collected.wait(60))
        request.free()  # waits for the callback
        self.assertFalse(finalizer.alive)
        for thread in threading.enumerate():  # the thread that closes the engine
            if thread is not threading.current_thread() and not thread.daemon:
                thread.join(60)
                self.assertFalse(thread.is_alive())


class LlmTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.llm = LLM(MODEL, max_model_len=512, **FEW)

    @classmethod
    def tearDownClass(cls):
        cls.llm.shutdown()

    def test_outputs_are_the_engines(self):
        prompts = ["Once upon a time", {"prompt": "There was"}, {"prompt_token_ids": self.llm.engine.tokenize("The dog")}]
        params = [SamplingParams(temperature=0, max_tokens=12), SamplingParams(temperature=0, max_tokens=3),
                  SamplingParams(temperature=0, max_tokens=40, stop=["."])]
        outputs = self.llm.generate(prompts, params, use_tqdm=False)
        for output, text, length in zip(outputs, ("Once upon a time", "There was", "The dog"), (12, 3, 40), strict=True):
            alone = self.llm.engine.generate(text, {"temperature": 0, "max_new_tokens": length, **({"stop": "."} if length == 40 else {})})
            made = output.outputs[0]
            self.assertEqual((made.text, made.token_ids), (alone["text"], alone["output_ids"]))
            self.assertEqual(output.prompt_token_ids, self.llm.engine.tokenize(text))
            self.assertEqual(made.finish_reason, alone["meta_info"]["finish_reason"]["type"])
        self.assertEqual([output.prompt for output in outputs], ["Once upon a time", "There was", None])
        self.assertEqual((outputs[2].outputs[0].finish_reason, outputs[2].outputs[0].stop_reason), ("stop", "."))
        self.assertEqual(len(self.llm.generate("Once")[0].outputs[0].token_ids), 16)

    def test_without_a_limit_the_context_is_filled(self):
        output, = self.llm.generate("Once upon a time", SamplingParams(temperature=0, max_tokens=None, ignore_eos=True))
        self.assertEqual(len(output.prompt_token_ids) + len(output.outputs[0].token_ids), 512)
        self.assertEqual(output.outputs[0].finish_reason, "length")
        with self.assertRaises(TesseraError):
            self.llm.generate({"prompt_token_ids": output.prompt_token_ids * 512}, SamplingParams(max_tokens=None))

    def test_several_outputs_of_a_prompt(self):
        output, = self.llm.generate("Once", SamplingParams(n=3, temperature=1.5, seed=1, max_tokens=8, ignore_eos=True))
        self.assertEqual([made.index for made in output.outputs], [0, 1, 2])
        self.assertGreater(len({made.text for made in output.outputs}), 1)

    def test_logprobs_are_of_the_chosen_and_the_best(self):
        output, = self.llm.generate("Once upon a", SamplingParams(temperature=0, max_tokens=4, logprobs=2))
        made = output.outputs[0]
        self.assertEqual(len(made.logprobs), 4)
        for entries, chosen in zip(made.logprobs, made.token_ids):
            self.assertEqual(len(entries), 2)  # the chosen token is the best of two
            self.assertEqual(max(entries, key=lambda token: entries[token].logprob), chosen)
        total = sum(entries[token].logprob for entries, token in zip(made.logprobs, made.token_ids))
        self.assertAlmostEqual(made.cumulative_logprob, total, places=5)
        self.assertIsNone(self.llm.generate("a", SamplingParams(max_tokens=1))[0].outputs[0].logprobs)

    def test_chats_are_the_engines(self):
        messages = [{"role": "user", "content": "What is 3 plus 4?"}]
        outputs = self.llm.chat([messages, messages], SamplingParams(temperature=0, max_tokens=16))
        told = self.llm.engine.chat(messages, temperature=0, max_tokens=16)["choices"][0]["message"]["content"]
        self.assertEqual([output.outputs[0].text for output in outputs], [told, told])

    def test_what_is_wrong_is_told(self):
        with self.assertRaisesRegex(TypeError, "max_tokenz"):
            SamplingParams(max_tokenz=3)
        with self.assertRaisesRegex(ValueError, "2 sampling_params are given for 1 prompts"):
            self.llm.generate("a", [SamplingParams()] * 2)
        with self.assertRaises(TesseraError) as caught:
            self.llm.generate(["a", "b"], SamplingParams(top_p=7))
        self.assertEqual(caught.exception.field, "sampling_params.top_p")
        self.assertEqual(len(self.llm.generate(["a", "b"])), 2)  # the engine still works

    def test_embeddings(self):
        llm = LLM(MODEL, is_embedding=True, **FEW)
        made = llm.embed(["Once", "upon a time"])
        self.assertEqual(made[1].outputs.embedding, llm.engine.encode("upon a time")["embedding"])
        llm.shutdown()


class HarnessTest(unittest.TestCase):
    def test_scores_are_those_of_the_engine(self):
        model = TesseraLM(MODEL, batch=2, **FEW)
        request = lambda *given: types.SimpleNamespace(args=given)
        context, continuation = "Once upon a time", " there was a little girl"
        scored = model.loglikelihood([request(context, continuation), request("The dog", " was"), request("", "Once upon")])
        self.assertEqual(len(scored), 3)
        # Computes the same scores from the answer to one prompt.
        ids = model.engine.tokenize(context + continuation)
        before = len(model.engine.tokenize(context))
        answer = model.engine.generate(input_ids=ids, sampling_params={"max_new_tokens": 1}, return_logprob=True, logprob_start_len=0)
        expected = sum(entry[0] for entry in answer["meta_info"]["input_token_logprobs"][before:])
        self.assertTrue(math.isclose(scored[0][0], expected, abs_tol=1e-4), (scored[0], expected))
        # Only the text that greedy decoding gives counts as greedy.
        written = model.generate_until([request(context, {"until": ["\n"], "max_gen_toks": 5})])[0]
        self.assertTrue(model.loglikelihood([request(context, written)])[0][1])
        self.assertFalse(model.loglikelihood([request(context, " zebra zebra")])[0][1])
        rolled = model.loglikelihood_rolling([request("Once upon a time there was a dog. " * 3)])
        self.assertLess(rolled[0], 0)
        model.shutdown()

    def test_a_text_longer_than_the_context_is_scored_whole(self):
        model = TesseraLM(MODEL, **{**FEW, "context_length": 32})
        text = "Once upon a time there was a little dog who liked to play. " * 6
        long = len(model.engine.tokenize(text))
        self.assertGreater(long, 64)
        rows = []
        score = model._score
        model._score = lambda given: rows.extend(given) or score(given)
        total = model.loglikelihood_rolling([types.SimpleNamespace(args=(text,))])[0]
        self.assertEqual(sum(len(after) for _, after in rows), long - 1)
        self.assertTrue(all(len(before) + len(after) <= 31 and before for before, after in rows))
        self.assertLess(total, 0)
        model.shutdown()


if __name__ == "__main__":
    unittest.main()
