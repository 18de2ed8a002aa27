#!/usr/bin/env python3
"""End-to-end tests of the tessera command: tests/cli/cli_test.py PROGRAM [TEST …]

Catches: an answer that breaks its documented form (a key that is missing, words beside the JSON object), scores that
are not what was computed, a wrong exit code, an error that is more than one line or names neither what is wrong nor what
is accepted, and input that crashes the program.
Prints a line for each test; the last line is "N passed, N failed"."""

import array
import hashlib
import http.server
import json
import math
import os
import pathlib
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import threading
import unittest
import unittest.mock
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
DEMO = ROOT / "models" / "demo"
GOLDENS = ROOT / "tests" / "data" / "goldens"
LLAMA = GOLDENS / "llama"
SHARED_CONFIGS = pathlib.Path(os.environ.get("TESSERA_SHARED_DIR", ROOT.parent / "shared")) / "data" / "configs"
PROGRAM = None

# Few sizes: what is tested here does not depend on how many there are.
FEW_SIZES = ["--piecewise-cuda-graph-tokens", "8,32", "--cuda-graph-bs", "1,4", "--max-running-requests", "4",
             "--chunked-prefill-size", "32"]


def tessera(*arguments):
    command = [str(PROGRAM), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=200, stdin=subprocess.DEVNULL, check=False)


def read_safetensors(path):
    """{name: (shape, float32 values)}"""
    data = pathlib.Path(path).read_bytes()
    header_bytes = struct.unpack("<Q", data[:8])[0]
    tensors = {}
    for name, entry in json.loads(data[8:8 + header_bytes]).items():
        if name == "__metadata__":
            continue
        assert entry["dtype"] == "F32", (name, entry["dtype"])
        begin, end = (8 + header_bytes + offset for offset in entry["data_offsets"])
        tensors[name] = (entry["shape"], array.array("f", data[begin:end]))
    return tensors


class CliTest(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.folder)

    def ok(self, *arguments):
        result = tessera(*arguments)
        self.assertEqual(result.returncode, 0, result.stderr)
        return result

    def ok_json(self, *arguments):
        """The one object on standard output."""
        result = self.ok(*arguments, "--json")
        self.assertEqual(result.stderr, "")
        return json.loads(result.stdout)

    def fails(self, exit_code, words, *arguments):
        """One line of error that has all of `words`."""
        result = tessera(*arguments)
        self.assertEqual(result.returncode, exit_code, f"{arguments}: {result.stderr}")
        errors = [line for line in result.stderr.splitlines() if line.startswith("tessera: error: ")]
        self.assertEqual(len(errors), 1, f"{arguments}: {result.stderr}")
        self.assertEqual(result.stderr.splitlines()[-1], errors[0])
        for word in words:
            self.assertIn(word, errors[0], arguments)
        return result


class Generate(CliTest):
    PROMPT = "Once upon a time, in the forest, there lived a brave fox named Ruby."

    def check_contract(self, answer, completion_tokens):
        self.assertEqual(set(answer), {"text", "output_ids", "finish_reason", "seed", "usage", "graphs", "timing_ms"})
        usage = answer["usage"]
        self.assertEqual(usage["completion_tokens"], completion_tokens)
        self.assertEqual(len(answer["output_ids"]), completion_tokens)
        self.assertEqual(usage["total_tokens"], usage["prompt_tokens"] + usage["completion_tokens"])
        for name in ("load", "capture", "time_to_first_token", "prefill", "decode", "total"):
            self.assertGreaterEqual(answer["timing_ms"][name], 0)
        graphs = answer["graphs"]
        self.assertEqual(graphs["pieces"], graphs["split_ops"] + 1)
        for runner in ("prefill", "decode"):
            self.assertEqual(graphs[runner]["sizes"], sorted(graphs[runner]["sizes"]))
            self.assertEqual(graphs[runner]["dropped"], [])
        forwards = graphs["forwards"]
        self.assertEqual(sum(graphs["reasons"].values()), sum(f["count"] for f in forwards))
        self.assertEqual(graphs["tokens"], sum(f["tokens"] for f in forwards))
        self.assertEqual(graphs["padding"], sum(f["padding"] for f in forwards))
        self.assertEqual(sum(f["tokens"] for f in forwards if f["phase"] == "prefill"), usage["prompt_tokens"])

    def test_json(self):
        answer = self.ok_json("generate", "--model-path", DEMO, "--prompt", self.PROMPT, "--max-new-tokens", 12)
        self.check_contract(answer, 12)
        self.assertEqual(answer["finish_reason"], "length")
        self.assertEqual(answer["usage"]["prompt_tokens"], 17)
        prefill, decode = answer["graphs"]["forwards"]
        self.assertEqual((prefill["runner"], prefill["size"], prefill["reason"]), ("prefill", 20, "padded_to_size"))
        self.assertEqual(prefill["padding"], 3)
        self.assertEqual((decode["runner"], decode["size"], decode["reason"]), ("decode", 1, "exact_size"))
        self.assertEqual(decode["count"], 11)

    def test_streamed_text_is_the_json_text(self):
        arguments = ["generate", "--model-path", DEMO, "--prompt", self.PROMPT, "--max-new-tokens", 40, *FEW_SIZES]
        self.assertEqual(self.ok(*arguments).stdout, self.ok_json(*arguments)["text"] + "\n")

    def test_stats_stand_on_standard_error(self):
        arguments = ["generate", "--model-path", DEMO, "--prompt", self.PROMPT, "--max-new-tokens", 5, *FEW_SIZES]
        plain, stats = self.ok(*arguments), self.ok(*arguments, "--stats")
        self.assertEqual(plain.stdout, stats.stdout)
        self.assertEqual(plain.stderr, "")
        for words in ("7 pieces and 6 split ops", "padded to the next captured size", "tokens/s"):
            self.assertIn(words, stats.stderr)

    def test_prompt_file(self):
        file = self.folder / "prompt.txt"
        file.write_text(self.PROMPT)
        arguments = ["generate", "--model-path", DEMO, "--max-new-tokens", 5, *FEW_SIZES]
        self.assertEqual(self.ok(*arguments, "--prompt-file", file).stdout,
                         self.ok(*arguments, "--prompt", self.PROMPT).stdout)

    def test_chat_ends_by_itself(self):
        answer = self.ok_json("generate", "--model-path", DEMO, "--chat", "--prompt", "Tell me about foxes.",
                              "--max-new-tokens", 200, *FEW_SIZES)
        self.assertEqual(answer["finish_reason"], "stop")
        self.assertNotIn("<|im", answer["text"])
        self.assertGreater(len(answer["text"].split()), 3)

    def test_ids_need_no_tokenizer(self):
        golden = json.loads((LLAMA / "golden.json").read_text())
        ids = ",".join(map(str, golden["prompts"][1]))
        for more in ([], ["--disable-cuda-graph"], ["--chunked-prefill-size", 4], ["--cuda-graph-mode", "full"]):
            answer = self.ok_json("generate", "--model-path", LLAMA, "--input-ids", ids, "--max-new-tokens", 12,
                                  "--ignore-eos", "--dtype", "float32", "--log-level", "error", *more)
            self.assertIsNone(answer["text"])
            self.assertEqual(answer["output_ids"], golden["greedy"][1], more)

    def test_why_no_graph(self):
        arguments = ["generate", "--model-path", LLAMA, "--input-ids", "1,2,3", "--max-new-tokens", 3, "--ignore-eos",
                     "--log-level", "error"]
        answer = self.ok_json(*arguments, "--disable-cuda-graph")
        self.assertEqual(answer["graphs"]["reasons"], {"graphs_disabled": 3})
        answer = self.ok_json(*arguments, "--disable-piecewise-cuda-graph")
        self.assertEqual(answer["graphs"]["reasons"], {"prefill_graphs_disabled": 1, "exact_size": 2})
        answer = self.ok_json(*arguments, "--piecewise-cuda-graph-tokens", "2")
        self.assertEqual(answer["graphs"]["reasons"], {"above_largest_size": 1, "exact_size": 2})

    def test_seed_decides_the_tokens(self):
        arguments = ["generate", "--model-path", LLAMA, "--input-ids", "1,2,3", "--max-new-tokens", 8, "--ignore-eos",
                     "--temperature", 1.5, *FEW_SIZES]
        first = self.ok_json(*arguments)
        again = self.ok_json(*arguments, "--seed", first["seed"])
        other = self.ok_json(*arguments, "--seed", first["seed"] ^ 1)
        self.assertEqual(first["output_ids"], again["output_ids"])
        self.assertNotEqual(first["output_ids"], other["output_ids"])

    def test_random_weights_from_a_config_alone(self):
        config = self.folder / "config.json"
        shutil.copy(LLAMA / "config.json", config)
        answer = self.ok_json("generate", "--model-path", config, "--load-format", "dummy", "--input-ids", "5",
                              "--max-new-tokens", 4, "--ignore-eos", *FEW_SIZES)
        self.check_contract(answer, 4)

    def test_deprecated_flag_warns_once(self):
        result = self.ok("generate", "--model-path", LLAMA, "--input-ids", "1", "--max-new-tokens", 1, "--ignore-eos",
                         "--enable-piecewise-cuda-graph")
        self.assertEqual(result.stderr.count("--enable-piecewise-cuda-graph"), 1)


class Score(CliTest):
    @classmethod
    def setUpClass(cls):
        cls.golden = json.loads((LLAMA / "golden.json").read_text())

    def score(self, prompts, *more):
        output = self.folder / "scores.safetensors"
        ids = [word for prompt in prompts for word in ("--input-ids", ",".join(map(str, prompt)))]
        summary = self.ok_json("score", "--model-path", LLAMA, "--dtype", "float32", *ids, "--output", output,
                               "--log-level", "error", *more)
        return summary, read_safetensors(output)

    def check(self, prompt, logits, logprobs):
        shape, values = logits
        tokens, vocab = shape
        self.assertEqual(tokens, len(prompt))
        self.assertEqual(logprobs[0], [tokens])
        self.assertEqual(logprobs[1][0], 0)
        for i in range(1, tokens):
            row = values[(i - 1) * vocab:i * vocab]
            most = max(row)
            expected = row[prompt[i]] - most - math.log(sum(math.exp(x - most) for x in row))
            self.assertAlmostEqual(logprobs[1][i], expected, places=4)

    def test_one_prompt(self):
        prompt = self.golden["prompts"][1]
        summary, tensors = self.score([prompt])
        self.assertEqual(set(tensors), {"logits", "logprobs"})
        self.check(prompt, tensors["logits"], tensors["logprobs"])
        self.assertIsNone(summary["prompts"][0]["text"])
        self.assertAlmostEqual(summary["prompts"][0]["logprob"], sum(tensors["logprobs"][1]), places=3)
        expected = read_safetensors(LLAMA / "golden.safetensors")["logits_1"][1]
        self.assertLess(max(abs(a - b) for a, b in zip(tensors["logits"][1], expected)), 1e-4)

    def test_batch(self):
        prompts = self.golden["prompts"][:3]
        for more in ([], ["--chunked-prefill-size", 16], ["--disable-cuda-graph"]):
            _, tensors = self.score(prompts, *more)
            self.assertEqual(set(tensors), {f"{kind}_{i}" for kind in ("logits", "logprobs") for i in range(3)})
            for i, prompt in enumerate(prompts):
                self.check(prompt, tensors[f"logits_{i}"], tensors[f"logprobs_{i}"])

    def test_text_prompt_and_summary_for_people(self):
        output = self.folder / "scores.safetensors"
        arguments = ["score", "--model-path", DEMO, "--prompt", "Once upon a time", "--output", output, *FEW_SIZES]
        self.assertEqual(self.ok_json(*arguments)["prompts"][0]["text"], "Once upon a time")
        self.assertIn("perplexity", self.ok(*arguments).stdout)


class Explain(CliTest):
    def check(self, config):
        answer = json.loads(self.ok("explain", "--model-path", config, "--format", "json", "--num-tokens", 17).stdout)
        layers = json.loads(config.read_text())["num_hidden_layers"]
        kinds = [part["kind"] for part in answer["pieces"]]
        self.assertEqual(kinds, ["piece", "split_op"] * layers + ["piece"])
        for part in answer["pieces"]:
            self.assertTrue(part["ops"])
            self.assertTrue(part["name"])
        self.assertEqual((answer["num_pieces"], answer["num_split_ops"]), (layers + 1, layers))
        memory = answer["memory"]
        self.assertEqual([n["size"] for n in memory["prefill"]], answer["runners"]["prefill"]["sizes"])
        for need in memory["prefill"] + memory["decode"]:
            self.assertLessEqual(need["lower_bound_bytes"], need["arena_bytes"])
            self.assertLessEqual(need["arena_bytes"], memory["arena_bytes"])
        self.assertFalse(any(rule["applied"] for rule in answer["rules"]))
        prefill, decode = answer["dispatch"]
        self.assertEqual((prefill["runner"], prefill["size"], prefill["padding"]), ("prefill", 20, 3))
        self.assertEqual((decode["runner"], decode["size"], decode["reason"]), ("decode", 24, "padded_to_size"))

    def test_goldens(self):
        configs = sorted(GOLDENS.glob("*/config.json")) + [DEMO / "config.json"]
        self.assertGreater(len(configs), 5)
        for config in configs:
            with self.subTest(config=config.parent.name):
                self.check(config)

    def test_published_configs_are_explained_or_refused(self):
        configs = sorted(SHARED_CONFIGS.rglob("*.json"))[::8]
        if not configs:
            self.skipTest(f"{SHARED_CONFIGS} is not there")
        explained = 0
        for config in configs:
            with self.subTest(config=config.name):
                result = tessera("explain", "--model-path", config, "--format", "json")
                if result.returncode == 0:
                    self.assertTrue(json.loads(result.stdout)["pieces"])
                    explained += 1
                else:
                    self.assertEqual(result.returncode, 1, result.stderr)
                    self.assertEqual(result.stderr.count("\n"), 1, result.stderr)
        self.assertGreater(explained, 0)

    def test_text(self):
        text = self.ok("explain", "--model-path", DEMO, "--num-tokens", 100).stdout
        for words in ("7 pieces and 6 split ops", "piece 0", "KV cache", "padded to the next captured size", "1792 2048",
                      "disable_cuda_graph"):
            self.assertIn(words, text)

    def test_pictures(self):
        self.assertTrue(self.ok("explain", "--model-path", DEMO, "--format", "dot").stdout.startswith("digraph"))
        file = self.folder / "graph.svg"
        self.ok("explain", "--model-path", DEMO, "--format", "svg", "--output", file)
        self.assertIn("<svg", file.read_text()[:200])

    def test_exit_code_where_piecewise_graphs_are_off(self):
        for flag, words in (("--disable-cuda-graph", "because disable_cuda_graph is set"),
                            ("--disable-piecewise-cuda-graph", "disable_piecewise_cuda_graph is set")):
            result = self.fails(1, ["piecewise graphs are off", words], "explain", "--model-path", DEMO, "--format",
                                "json", flag)
            applied = [rule["name"] for rule in json.loads(result.stdout)["rules"] if rule["applied"]]
            self.assertEqual(applied, [flag[2:].replace("-", "_")])

    def test_ladders(self):
        def sizes(*more):
            answer = json.loads(self.ok("explain", "--model-path", DEMO, "--format", "json", *more).stdout)
            return answer["runners"]["prefill"]["sizes"], answer["runners"]["decode"]["sizes"]
        prefill, decode = sizes()
        self.assertEqual((len(prefill), prefill[-1], len(decode), decode[-1]), (42, 2048, 36, 256))
        self.assertEqual(sizes("--piecewise-cuda-graph-tokens", "64", "[32]", "--cuda-graph-bs", "[2,1]",
                               "--log-level", "error"), ([32, 64], [1, 2]))
        self.assertEqual(sizes("--piecewise-cuda-graph-max-tokens", 100, "--log-level", "error")[0][-1], 100)


class Verify(CliTest):
    def test_every_size_is_equal(self):
        answer = self.ok_json("verify", "--model-path", LLAMA, *FEW_SIZES, "--log-level", "error")
        self.assertTrue(answer["equal"])
        self.assertEqual(answer["differences"], [])
        self.assertEqual(answer["dropped"], [])
        self.assertIn("head", answer["runners"])
        for runner, sizes in (("prefill", [8, 32]), ("decode", [1, 4])):
            self.assertEqual(answer["runners"][runner]["sizes"], sizes)
            self.assertGreaterEqual(answer["runners"][runner]["comparisons"], len(sizes))
        self.assertIn("comparisons", self.ok("verify", "--model-path", LLAMA, *FEW_SIZES).stdout)

    def test_nothing_to_verify_is_no_success(self):
        self.fails(1, ["no graphs to verify"], "verify", "--model-path", LLAMA, "--disable-cuda-graph")


class Bench(CliTest):
    COMMON = ["--model-path", LLAMA, "--repeat", 2, "--log-level", "error"]

    def test_prefill(self):
        answer = self.ok_json("bench", "prefill", *self.COMMON, "--num-tokens", "8,30", *FEW_SIZES)
        self.assertEqual([(row["tokens"], row["size"]) for row in answer["rows"]], [(8, 8), (30, 32)])
        for row in answer["rows"]:
            self.assertGreater(row["eager_ms"], 0)
            self.assertAlmostEqual(row["speedup"], row["eager_ms"] / row["graph_ms"])

    def test_decode(self):
        answer = self.ok_json("bench", "decode", *self.COMMON, "--batch-size", 1, 3, "--context", 16, *FEW_SIZES)
        self.assertEqual([(row["tokens"], row["runner"], row["size"]) for row in answer["rows"]],
                         [(1, "decode", 1), (3, "decode", 4)])
        self.assertGreater(answer["memory_bytes_per_s"], 1e8)
        self.assertGreater(answer["rows"][1]["bytes_read"], answer["rows"][0]["bytes_read"])

    def test_startup(self):
        answer = self.ok_json("bench", "startup", *self.COMMON, *FEW_SIZES)
        layers = json.loads((LLAMA / "config.json").read_text())["num_hidden_layers"]
        self.assertEqual(answer["runners"]["prefill"]["graphs"], 2 * (layers + 1))
        self.assertEqual(answer["runners"]["decode"]["graphs"], 2)
        self.assertGreater(answer["runners"]["prefill"]["nodes"], answer["runners"]["prefill"]["graphs"])

    def test_tables(self):
        for what in ("prefill", "decode", "startup"):
            self.assertIn("graph", self.ok("bench", what, *self.COMMON, *FEW_SIZES, "--context-length", 128).stdout)


class Batch(CliTest):
    def answers(self, lines, *more, exit_code=0):
        """The answers to `lines`, and the one object on standard output."""
        requests, out = self.folder / "requests.jsonl", self.folder / "out.jsonl"
        requests.write_text("".join(line if isinstance(line, str) else json.dumps(line) + "\n" for line in lines))
        result = tessera("generate", "--model-path", DEMO, "--input-file", requests, "--output-file", out, "--json",
                         *FEW_SIZES, *more)
        self.assertEqual(result.returncode, exit_code, result.stderr)
        return [json.loads(line) for line in out.read_text().splitlines()], json.loads(result.stdout)

    def test_answers_come_in_order(self):
        lines = [{"custom_id": f"r{i}", "method": "POST", "url": "/v1/completions",
                  "body": {"prompt": f"Fox number {i}", "max_tokens": 40 - 3 * i, "temperature": 0, "ignore_eos": True}}
                 for i in range(12)]
        lines.append({"custom_id": "chat", "method": "POST", "url": "/v1/chat/completions",
                      "body": {"model": "demo", "messages": [{"role": "user", "content": "Tell me about foxes."}],
                               "max_tokens": 9}})
        lines.append({"prompt": "Once upon a time", "max_tokens": 3, "n": 2})
        answers, totals = self.answers(lines, "--served-model-name", "demo")
        self.assertEqual([answer["custom_id"] for answer in answers], [f"r{i}" for i in range(12)] + ["chat", None])
        self.assertEqual(len({answer["id"] for answer in answers}), len(lines))
        for answer in answers:
            self.assertEqual(set(answer), {"id", "custom_id", "response", "error"})
            self.assertIsNone(answer["error"])
            self.assertEqual(answer["response"]["status_code"], 200)
            self.assertEqual(answer["response"]["request_id"], answer["response"]["body"]["id"])
        bodies = [answer["response"]["body"] for answer in answers]
        self.assertEqual([body["usage"]["completion_tokens"] for body in bodies[:12]], [40 - 3 * i for i in range(12)])
        self.assertEqual(bodies[12]["object"], "chat.completion")
        self.assertEqual(len(bodies[13]["choices"]), 2)
        self.assertEqual((totals["requests"], totals["failed"]), (14, 0))
        self.assertEqual(totals["completion_tokens"], sum(body["usage"]["completion_tokens"] for body in bodies))
        alone = self.ok("generate", "--model-path", DEMO, "--prompt", "Fox number 0", "--max-new-tokens", 40,
                        "--ignore-eos", *FEW_SIZES).stdout
        self.assertEqual(bodies[0]["choices"][0]["text"], alone.removesuffix("\n"))

    def test_bad_lines_stop_nothing(self):
        good = {"prompt": "Once", "max_tokens": 2}
        lines = ["{\n", "\n", {"custom_id": "a", "url": "/v1/embeddings", "body": {}}, good,
                 {"prompt": "Once", "temperature": -1}, {"prompt": "Once", "stream": True},
                 {"custom_id": "b", "model": "other", "prompt": "x"}, {"prompt": [99999]}, good]
        answers, totals = self.answers(lines, exit_code=1)
        self.assertEqual([answer["response"] and answer["response"]["status_code"] for answer in answers],
                         [None, None, 200, 400, 400, 404, 400, 200])
        self.assertEqual((totals["requests"], totals["failed"]), (8, 6))
        self.assertIn("/v1/chat/completions", answers[1]["error"]["message"])
        self.assertEqual(answers[1]["custom_id"], "a")
        for answer, word in zip(answers[3:7], ("temperature", "stream", "other", "99999")):
            self.assertIn(word, answer["response"]["body"]["error"]["message"])

    def test_more_bad_lines_than_the_window_holds(self):
        answers, totals = self.answers(["{\n"] * 1200 + [{"prompt": "Once", "max_tokens": 2}], exit_code=1)
        self.assertEqual((len(answers), totals["failed"]), (1201, 1200))
        self.assertEqual(answers[-1]["response"]["status_code"], 200)

    def test_more_requests_than_the_window_holds(self):
        answers, _ = self.answers([{"prompt": [i % 100], "max_tokens": 1, "custom_id": str(i)} for i in range(1500)])
        self.assertEqual([answer["custom_id"] for answer in answers], [str(i) for i in range(1500)])

    def test_files(self):
        arguments = ["generate", "--model-path", DEMO]
        self.fails(1, ["/no/such/file"], *arguments, "--input-file", "/no/such/file", "--output-file", "x")
        empty = self.folder / "empty"
        empty.write_text("\n")
        self.fails(1, ["no requests"], *arguments, "--input-file", empty, "--output-file", self.folder / "x")
        full = self.folder / "full"
        full.write_text("{}\n")
        self.fails(2, ["--output-file", "overwrite"], *arguments, "--input-file", full, "--output-file", full)
        self.assertEqual(full.read_text(), "{}\n")
        self.fails(2, ["--output-file", "cannot be written"], *arguments, "--input-file", full, "--output-file",
                   self.folder / "no" / "x")


class Chat(CliTest):
    QUESTION = "Tell me about foxes."

    def chat(self, lines, *more, model=DEMO):
        command = [str(PROGRAM), "chat", "--model-path", str(model), *FEW_SIZES, *map(str, more)]
        return subprocess.run(command, capture_output=True, text=True, timeout=200, check=False,
                              input="".join(line + "\n" for line in lines))

    def answers(self, lines, *more):
        result = self.chat(lines, *more)
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        return result.stdout

    def test_first_answer_is_that_of_generate(self):
        alone = self.ok("generate", "--model-path", DEMO, "--chat", "--prompt", self.QUESTION, *FEW_SIZES).stdout
        self.assertEqual(self.answers([self.QUESTION], "--temperature", 0), alone)
        self.assertEqual(self.answers([self.QUESTION], "--temperature", 0, "--stop", alone[10:14]), alone[:10] + "\n")

    def test_history(self):
        # Random numbers depend on the position, and so the answer on how much was said before.
        drawn = ["--temperature", 1.5, "--seed", 3, "--max-new-tokens", 12]
        once = self.answers([self.QUESTION], *drawn)
        self.assertNotEqual(self.answers([self.QUESTION, self.QUESTION], *drawn), 2 * once)
        self.assertEqual(self.answers([self.QUESTION, "", "/reset", self.QUESTION], *drawn), 2 * once)
        self.assertEqual(self.answers([self.QUESTION, "/exit", self.QUESTION], *drawn), once)

    def test_system_message(self):
        drawn = ["--temperature", 1.5, "--seed", 3, "--max-new-tokens", 12]
        system = "You speak of the sea."
        plain = self.answers([self.QUESTION], *drawn)
        given = self.answers([self.QUESTION], *drawn, "--system", system)
        self.assertNotEqual(plain, given)
        self.assertEqual(self.answers(["/system " + system, self.QUESTION], *drawn), given)
        self.assertEqual(self.answers([self.QUESTION, "/reset", self.QUESTION], *drawn, "--system", system), 2 * given)
        self.assertEqual(self.answers(["/system", self.QUESTION], *drawn, "--system", system), plain)

    def test_errors(self):
        result = self.chat(["Tell me about foxes.", "word " * 400], "--context-length", 256, "--max-new-tokens", 9)
        self.assertEqual(result.returncode, 1)
        self.assertEqual(len(result.stdout.splitlines()), 1)
        for words in ("too long", "256", "/reset"):
            self.assertIn(words, result.stderr)
        result = self.chat(["/rest"])
        self.assertEqual(result.returncode, 1)
        self.assertIn("\"/rest\" is no command; accepted are /reset", result.stderr)
        self.fails(1, ["tokenizer"], "chat", "--model-path", LLAMA, *FEW_SIZES)

    def reasoning_model(self):
        """The bundled one, with a template that opens its reasoning, which it never closes."""
        folder = self.folder / "thinker"
        folder.mkdir()
        for file in DEMO.iterdir():
            (folder / file.name).symlink_to(file)
        (folder / "chat_template.jinja").unlink(missing_ok=True)
        (folder / "chat_template.jinja").write_text(
            "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content.split('</think>')[-1] }}<|im_end|>\n"
            "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n<think>\n{% endif %}")
        return folder

    def test_reasoning_is_for_terminals(self):
        self.assertEqual(self.chat([self.QUESTION], "--max-new-tokens", 9, model=self.reasoning_model()).stdout, "\n")

    def terminal(self, model, *more):
        """The program on a terminal, what to type at, and a function that reads on until it has seen some words."""
        controller, terminal = os.openpty()
        chat = subprocess.Popen([str(PROGRAM), "chat", "--model-path", str(model), *FEW_SIZES, *map(str, more)],
                                stdin=terminal, stdout=terminal, stderr=subprocess.DEVNULL, start_new_session=True)
        os.close(terminal)
        self.addCleanup(os.close, controller)
        self.addCleanup(chat.wait)
        self.addCleanup(chat.kill)
        seen = ""

        def read_until(words):
            nonlocal seen
            while words not in seen:
                seen += os.read(controller, 65536).decode(errors="replace")
            before, seen = seen.split(words, 1)
            return before

        return chat, controller, read_until

    def test_interrupted_answer(self):
        chat, controller, read_until = self.terminal(DEMO, "--ignore-eos")
        read_until("> ")
        os.write(controller, self.QUESTION.encode() + b"\n")
        read_until("foxes.\r\n")
        read_until(" ")  # the answer has begun, and would go on for thousands of tokens
        chat.send_signal(signal.SIGINT)
        read_until("> ")
        os.write(controller, b"/help\n")
        read_until("/reset")
        read_until("> ")
        os.write(controller, b"\x04")
        self.assertEqual(chat.wait(60), 0)

    def test_reasoning_is_dimmed(self):
        _, controller, read_until = self.terminal(self.reasoning_model(), "--max-new-tokens", 9)
        read_until("> ")
        os.write(controller, self.QUESTION.encode() + b"\n")
        read_until("\033[2m")
        self.assertTrue(read_until("\033[0m").strip())
        read_until("> ")


class BenchServe(CliTest):
    COMMON = ["--num-prompts", 6, "--input-len", 20, "--output-len", 5, "--warmup", 1]

    def check_run(self, run, requests, input_tokens, output_tokens):
        self.assertEqual((run["completed"], run["failed"], run["failures"]), (requests, 0, {}))
        self.assertEqual((run["input_tokens"], run["output_tokens"]), (input_tokens, output_tokens))
        for name in ("ttft_ms", "tpot_ms", "itl_ms", "e2e_ms"):
            values = run[name]
            self.assertEqual(set(values), {"mean", "p50", "p90", "p99"})
            self.assertTrue(0 <= values["p50"] <= values["p90"] <= values["p99"], run)
        self.assertLessEqual(run["ttft_ms"]["p99"], run["e2e_ms"]["p99"])
        self.assertAlmostEqual(run["output_tokens_per_second"], output_tokens / run["seconds"])

    def test_graphs_off_and_on(self):
        answer = self.ok_json("bench", "serve", "--model-path", DEMO, *self.COMMON, *FEW_SIZES, "--graphs", "off,on",
                              "--request-rate", "50,inf", "--log-level", "error")
        self.assertEqual([(run["graphs"], run["request_rate"]) for run in answer["runs"]],
                         [(False, 50), (False, "inf"), (True, 50), (True, "inf")])
        for run in answer["runs"]:
            self.check_run(run, 6, 120, 30)
            self.assertEqual(run["clipped"], 0)

    def test_trace_is_clipped_and_shares_prefixes(self):
        trace = self.folder / "trace.jsonl"
        lines = [{"timestamp": 10 * i, "input_length": 520 + i, "output_length": 3, "hash_ids": [0, i + 1]}
                 for i in range(3)] + [{"timestamp": 30, "input_length": 5000, "output_length": 3, "hash_ids": [9]}]
        trace.write_text("".join(json.dumps(line) + "\n" for line in lines))
        with Serving() as server:
            answer = self.ok_json("bench", "serve", "--url", server.url, "--vocab-size", 2048, "--trace", trace,
                                  "--num-prompts", 4, "--max-concurrency", 1, "--warmup", 0, "--request-rate", "100",
                                  "--api-key", "secret")
            run, = answer["runs"]
            self.check_run(run, 4, 520 + 521 + 522 + server.context - 3, 12)
            self.assertEqual(run["clipped"], 1)
            self.assertGreaterEqual(server.metric("cached_tokens_total"), 2 * 500)

    def test_failures_have_reasons(self):
        with Serving() as server:
            self.fails(1, ["/v1/models: 401", "API key"], "bench", "serve", "--url", server.url,
                                "--served-model-name", "demo", *self.COMMON, "--api-key", "wrong")
            result = self.fails(1, ["no request succeeded: 400", "2047"], "bench", "serve", "--url", server.url,
                                "--vocab-size", 1 << 24, *self.COMMON, "--api-key", "secret", "--json")
            run, = json.loads(result.stdout)["runs"]
            self.assertEqual((run["completed"], run["failed"]), (0, 6))
        self.fails(1, ["http://127.0.0.1:1"], "bench", "serve", "--url", "http://127.0.0.1:1")

    def test_table(self):
        text = self.ok("bench", "serve", "--model-path", DEMO, *self.COMMON, *FEW_SIZES).stdout
        for words in ("all at once", "requests/s", "TTFT", "p99", "end to end"):
            self.assertIn(words, text)

    def test_wrong_traces(self):
        trace = self.folder / "trace.csv"
        trace.write_text("TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:17:03.9,1\n")
        self.fails(2, ["--trace", f"{trace}:2", "accepted"], "bench", "serve", "--model-path", DEMO, "--trace", trace)


class Serving:
    """`tessera serve` of the bundled model on a free port, with a key."""
    def __enter__(self):
        self.process = subprocess.Popen([str(PROGRAM), "serve", "--model-path", str(DEMO), "--port", "0", "--api-key",
                                         "secret", "--served-model-name", "demo", "--drain-timeout", "0", *FEW_SIZES],
                                        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        self.url = self.process.stdout.readline().split()[-1]
        self.context = json.loads(self.get("/v1/models"))["data"][0]["max_model_len"]
        return self

    def get(self, path):
        request = urllib.request.Request(self.url + path, headers={"Authorization": "Bearer secret"})
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.read().decode()

    def metric(self, name):
        """The sum of all that end in `name`."""
        lines = [line for line in self.get("/metrics").splitlines() if not line.startswith("#")]
        return sum(float(line.split()[-1]) for line in lines if line.split("{")[0].split()[0].endswith(name))

    def __exit__(self, *_):
        self.process.terminate()
        self.process.communicate(timeout=60)
        assert self.process.returncode == 0, self.process.returncode


class FakeHub(http.server.BaseHTTPRequestHandler):
    """Serves the model folder LLAMA as org/llama, revisions main and v1."""
    COMMIT = "0123456789abcdef0123456789abcdef01234567"
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        self.server.seen.append((self.path, dict(self.headers)))
        resolve = f"/org/llama/resolve/{self.COMMIT}/"
        if self.path in (f"/api/models/org/llama/revision/{name}?blobs=true" for name in ("main", "v1")):
            self.answer(json.dumps({"sha": self.COMMIT, "siblings": list(map(self.entry, LLAMA.iterdir()))}).encode())
        elif self.path.startswith(resolve):
            self.answer((LLAMA / self.path[len(resolve):]).read_bytes())
        else:
            self.send_error(404)

    def entry(self, file):
        data = file.read_bytes()
        blob = hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()
        entry = {"rfilename": file.name, "size": len(data), "blobId": blob}
        if file.suffix == ".safetensors":
            entry["lfs"] = {"size": len(data), "sha256": hashlib.sha256(data).hexdigest()}
        return entry

    def answer(self, data):
        begin = int(self.headers.get("Range", "bytes=0-").removeprefix("bytes=").removesuffix("-"))
        self.send_response(206 if begin else 200)
        if begin:
            self.send_header("Content-Range", f"bytes {begin}-{len(data) - 1}/{len(data)}")
        self.send_header("Content-Length", str(len(data) - begin))
        self.end_headers()
        sent = self.server.stall_after if self.path.endswith("model.safetensors") else len(data)
        self.wfile.write(data[begin:][:sent])
        self.wfile.flush()
        if sent < len(data) - begin:
            self.server.stalled.set()
            self.server.go_on.wait(60)

    def log_message(self, *arguments):
        pass


class Hub(CliTest):
    def setUp(self):
        super().setUp()
        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), FakeHub)
        self.server.seen, self.server.stall_after = [], 1 << 40
        self.server.stalled, self.server.go_on = threading.Event(), threading.Event()
        thread = threading.Thread(target=self.server.serve_forever)
        thread.start()
        for clean_up in (self.server.server_close, thread.join, self.server.shutdown, self.server.go_on.set):
            self.addCleanup(clean_up)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"
        self.hub = self.folder / "home" / "hub"
        self.snapshot = self.hub / "models--org--llama" / "snapshots" / FakeHub.COMMIT
        kept = {name: value for name, value in os.environ.items() if not name.startswith("HF_")}
        environment = {**kept, "HF_HOME": str(self.folder / "home"), "HF_ENDPOINT": self.url, "no_proxy": "*"}
        patch = unittest.mock.patch.dict(os.environ, environment, clear=True)
        patch.start()
        self.addCleanup(patch.stop)

    def generate(self, model, *more):
        return self.ok_json("generate", "--model-path", model, "--input-ids", "1,2,3", "--max-new-tokens", 4,
                            "--ignore-eos", "--log-level", "error", *FEW_SIZES, *more)["output_ids"]

    def test_pull_then_every_command_by_name(self):
        result = self.ok("pull", "org/llama")
        self.assertEqual(result.stdout, f"{self.snapshot}\n")
        self.assertEqual({file.name for file in self.snapshot.iterdir()},
                         {"config.json", "generation_config.json", "golden.json", "model.safetensors"})
        requests = len(self.server.seen)
        self.assertEqual(self.generate("org/llama"), self.generate(LLAMA))
        self.ok("explain", "--model-path", "org/llama", "--revision", FakeHub.COMMIT)
        self.ok("score", "--model-path", "org/llama", "--input-ids", "1,2", "--output", self.folder / "s", *FEW_SIZES)
        self.ok("verify", "--model-path", "org/llama", *FEW_SIZES)
        self.ok("bench", "prefill", "--model-path", "org/llama", "--num-tokens", 8, "--repeat", 1, *FEW_SIZES)
        self.assertEqual(len(self.server.seen), requests)

    def test_download_on_demand(self):
        self.fails(1, ["org/llama", str(self.hub), "`tessera pull org/llama`", "--download"], "explain",
                   "--model-path", "org/llama")
        self.ok("explain", "--model-path", "org/llama", "--download")
        self.assertFalse((self.snapshot / "model.safetensors").exists())
        self.fails(1, ["lacks model.safetensors"], "generate", "--model-path", "org/llama", "--input-ids", "1")
        self.assertEqual(self.generate("org/llama", "--download"), self.generate(LLAMA))
        self.fails(1, ["no revision \"v1\"", "main", "--revision v1`"], "explain", "--model-path", "org/llama",
                   "--revision", "v1")
        self.ok("explain", "--model-path", "org/llama", "--revision", "v1", "--download")

    def test_flags_of_pull_come_before_the_environment(self):
        os.environ["HF_ENDPOINT"] = "http://127.0.0.1:1"
        os.environ["HF_TOKEN"] = "secret"
        cache = self.folder / "elsewhere"
        result = self.ok("pull", "org/llama", "--revision", "v1", "--endpoint", self.url, "--cache-dir", cache)
        self.assertTrue(result.stdout.startswith(str(cache)))
        self.assertEqual((cache / "models--org--llama" / "refs" / "v1").read_text(), FakeHub.COMMIT)
        self.assertFalse(self.hub.exists())
        self.assertEqual({headers["Authorization"] for _, headers in self.server.seen}, {"Bearer secret"})

    def test_interrupted_pull_goes_on(self):
        self.server.stall_after = 1000
        pull = subprocess.Popen([str(PROGRAM), "pull", "org/llama"], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.assertTrue(self.server.stalled.wait(60))
        blobs = self.hub / "models--org--llama" / "blobs"
        while not any(file.stat().st_size == 1000 for file in blobs.glob("*.incomplete")):
            self.assertIsNone(pull.poll())
        pull.send_signal(signal.SIGINT)
        self.assertEqual(pull.communicate(timeout=60)[0], b"")
        self.assertEqual(pull.returncode, -signal.SIGINT)
        self.server.stall_after = 1 << 40
        self.fails(1, ["only a part", "model.safetensors"], "generate", "--model-path", "org/llama", "--revision",
                   FakeHub.COMMIT, "--input-ids", "1")
        self.ok("pull", "org/llama")
        self.assertEqual([headers.get("Range") for path, headers in self.server.seen
                          if path.endswith("/model.safetensors")], [None, "bytes=1000-"])
        self.assertEqual((self.snapshot / "model.safetensors").read_bytes(), (LLAMA / "model.safetensors").read_bytes())

    def test_refusals(self):
        self.fails(1, ["org/other", self.url, "404"], "pull", "org/other")
        self.fails(1, ["org/llama", "404"], "pull", "org/llama", "--revision", "v9")
        self.fails(1, ["no-such-folder", "is no path here", str(self.hub)], "explain", "--model-path", "no-such-folder")
        self.fails(2, ["--revision", "v1", str(LLAMA)], "explain", "--model-path", LLAMA, "--revision", "v1")
        self.fails(2, ["--revision", "../x"], "explain", "--model-path", "org/llama", "--revision", "../x")
        self.fails(2, ["pull: \"../x\" is no id", "org/name"], "pull", "../x")
        self.fails(2, ["org/name"], "pull")
        self.fails(2, ["unknown flag --json of pull"], "pull", "org/llama", "--json")
        self.fails(1, ["HF_ENDPOINT", "\"ftp://x\"", "https://"], "pull", "org/llama", "--endpoint", "ftp://x")
        self.fails(1, ["cannot make the folder", "Not a directory"], "pull", "org/llama", "--cache-dir",
                   LLAMA / "config.json")
        os.environ["HF_HUB_OFFLINE"] = "1"
        self.fails(1, ["HF_HUB_OFFLINE"], "pull", "org/llama")
        self.fails(1, ["HF_HUB_OFFLINE"], "explain", "--model-path", "org/llama", "--download")


class HelpAndVersion(CliTest):
    def test_help(self):
        for arguments in ([], ["--help"], ["generate", "--help"], ["score", "-h"], ["explain", "--help"],
                          ["verify", "--help"], ["bench", "--help"], ["chat", "--help"], ["serve", "--help"]):
            result = self.ok(*arguments)
            self.assertIn("Usage", result.stdout)
            self.assertEqual(result.stderr, "")
        self.assertIn("tessera 0.", self.ok("--version").stdout)


class BadCommandLine(CliTest):
    """Exit code 2, one line naming the flag, its value and what is accepted."""

    def test_table(self):
        ids = ["generate", "--model-path", LLAMA, "--input-ids", "1,2"]
        text = ["generate", "--model-path", DEMO]
        for words, arguments in (
                (["\"generat\" is no command", "serve, generate, chat, score"], ["generat"]),
                (["--model-path is missing"], ["generate", "--prompt", "x"]),
                (["a prompt is missing"], text),
                (["--prompt: the text is empty"], [*text, "--prompt", ""]),
                (["two kinds of prompt"], [*ids, "--prompt", "x"]),
                (["--chat goes with"], [*ids, "--chat"]),
                (["--input-ids", "\"x\"", "1,2,3"], ["generate", "--model-path", LLAMA, "--input-ids", "1,x"]),
                (["--input-ids", "no ids"], ["generate", "--model-path", LLAMA, "--input-ids", ""]),
                (["--input-ids", "\"-1\""], ["generate", "--model-path", LLAMA, "--input-ids", "-1"]),
                (["--prompt", "UTF-8"], [*text, "--prompt", b"\xff".decode("utf-8", "surrogateescape")]),
                (["--temperature", "-0.5", "0 (greedy) or more"], [*ids, "--temperature", "-0.5"]),
                (["--temperature", "nan"], [*ids, "--temperature", "nan"]),
                (["--top-p", "1.5"], [*ids, "--top-p", "1.5"]),
                (["--top-k", "-2"], [*ids, "--top-k", "-2"]),
                (["--max-new-tokens", "0"], [*ids, "--max-new-tokens", "0"]),
                (["--seed", "abc"], [*ids, "--seed", "abc"]),
                (["--max-new-tokens"], [*ids, "--max-new-tokens"]),
                (["--piecewise-cuda-graph-tokens", "\"0\"", "1 to 1048576"], [*ids, "--piecewise-cuda-graph-tokens", "0,4"]),
                (["--piecewise-cuda-graph-tokens", "\"-4\""], [*ids, "--piecewise-cuda-graph-tokens", "-4"]),
                (["--piecewise-cuda-graph-tokens", "\"many\""], [*ids, "--piecewise-cuda-graph-tokens", "many"]),
                (["--piecewise-cuda-graph-tokens", "\"\""], [*ids, "--piecewise-cuda-graph-tokens", "[]"]),
                (["--piecewise-cuda-graph-tokens", "1048577"], [*ids, "--piecewise-cuda-graph-tokens", "1048577"]),
                (["--piecewise-cuda-graph-max-tokens", "0"], [*ids, "--piecewise-cuda-graph-max-tokens", "0"]),
                (["--cuda-graph-bs", "1.5"], [*ids, "--cuda-graph-bs", "1.5"]),
                (["--cuda-graph-max-bs", "-1"], [*ids, "--cuda-graph-max-bs", "-1"]),
                (["--cuda-graph-mode", "fast", "full_and_piecewise"], [*ids, "--cuda-graph-mode", "fast"]),
                (["--cuda-graph-schedule", "auto", "default, legacy"], [*ids, "--cuda-graph-schedule", "auto"]),
                (["--cuda-graph-split-ops", "atention", "attention"], [*ids, "--cuda-graph-split-ops", "atention"]),
                (["--piecewise-cuda-graph-compiler", "inductor", "not supported yet"],
                 [*ids, "--piecewise-cuda-graph-compiler", "inductor"]),
                (["unknown flag --max-new-token ", "did you mean --max-new-tokens?"], [*ids, "--max-new-token", "3"]),
                (["unknown flag --zzz", "--help"], [*ids, "--zzz"]),
                (["--quantization is not supported yet"], [*ids, "--quantization", "fp8"]),
                (["--enable-torch-compile is not supported yet"], [*ids, "--enable-torch-compile"]),
                (["--kv-cache-dtype is not supported yet"], [*ids, "--kv-cache-dtype", "fp8_e5m2"]),
                (["--tp-size", "2", "accepted is 1"], [*ids, "--tp-size", "2"]),
                (["--dp-size", "2", "accepted is 1"], [*ids, "--dp-size=2"]),
                (["--device", "npu", "cpu, cuda and cuda:N"], [*ids, "--device", "npu"]),
                (["--device", "cuda:x", "cpu, cuda and cuda:N"], [*ids, "--device", "cuda:x"]),
                (["--dtype", "int4", "float32"], [*ids, "--dtype", "int4"]),
                (["--load-format", "gguf", "dummy"], [*ids, "--load-format", "gguf"]),
                (["--page-size", "0"], [*ids, "--page-size", "0"]),
                (["--context-length", "99999999", "positions"], [*ids, "--context-length", "99999999"]),
                (["--chunked-prefill-size", "0"], [*ids, "--chunked-prefill-size", "0"]),
                (["--mem-fraction-static", "2", "0.1 to 0.95"], [*ids, "--mem-fraction-static", "2"]),
                (["--memory-plan", "none", "planned, isolated"], [*ids, "--memory-plan", "none"]),
                (["--log-level", "loud"], [*ids, "--log-level", "loud"]),
                (["--output is missing"], ["score", "--model-path", LLAMA, "--input-ids", "1"]),
                (["--num-tokens", "0"], ["explain", "--model-path", LLAMA, "--num-tokens", "0"]),
                (["--format", "png", "text, json, dot, svg"], ["explain", "--model-path", LLAMA, "--format", "png"]),
                (["bench of what"], ["bench", "--model-path", LLAMA]),
                (["--input-file has its own prompts"], [*ids, "--input-file", "x", "--output-file", "y"]),
                (["--output-file is missing"], [*text, "--input-file", "x"]),
                (["--stop", "empty"], [*ids, "--stop", ""]),
                (["--presence-penalty", "3", "-2 to 2"], [*ids, "--presence-penalty", "3"]),
                (["unknown flag --prompt of chat"], ["chat", "--model-path", DEMO, "--prompt", "x"]),
                (["--input-len", "--trace"], ["bench", "serve", "--model-path", DEMO, "--trace", "x", "--input-len", "3"]),
                (["--request-rate", "\"fast\"", "inf"],
                 ["bench", "serve", "--model-path", DEMO, "--request-rate", "fast"]),
                (["--url", "\"example.org\"", "http://"], ["bench", "serve", "--url", "example.org"]),
                (["--graphs", "--url"], ["bench", "serve", "--url", "http://x", "--graphs", "on"]),
                (["--num-prompts", "bench decode"],
                 ["bench", "decode", "--model-path", LLAMA, "--num-prompts", "9"]),
                (["bench", "speed", "prefill, decode, startup, serve"], ["bench", "speed", "--model-path", LLAMA]),
                (["--context", "does not go with bench prefill"],
                 ["bench", "prefill", "--model-path", LLAMA, "--context", "9"])):
            with self.subTest(arguments=arguments[1:]):
                self.fails(2, words, *arguments)


class BadModel(CliTest):
    """Exit code 1, one line naming file, tensor or field, the value and what is accepted."""

    def model(self, **config_changes):
        folder = self.folder / "model"
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(LLAMA, folder)
        if config_changes:
            config = json.loads((folder / "config.json").read_text())
            config.update(config_changes)
            (folder / "config.json").write_text(json.dumps(config))
        return folder

    def generate_fails(self, words, model, *more):
        self.fails(1, words, "generate", "--model-path", model, "--input-ids", "1,2", "--max-new-tokens", 2, *FEW_SIZES,
                   "--log-level", "error", *more)

    def test_missing_files(self):
        self.generate_fails(["/no/such/model"], "/no/such/model")
        model = self.model()
        (model / "model.safetensors").unlink()
        self.generate_fails(["model.safetensors"], model)
        (model / "config.json").unlink()
        self.generate_fails(["config.json"], model)
        self.fails(1, ["tokenizer.json"], "generate", "--model-path", self.model(), "--prompt", "hello")
        self.generate_fails(["/no/tokenizer.json"], self.model(), "--tokenizer-path", "/no/tokenizer.json")
        self.fails(1, ["/no/prompt"], "generate", "--model-path", DEMO, "--prompt-file", "/no/prompt")

    def test_missing_shard(self):
        model = self.model()
        (model / "model.safetensors").rename(model / "model-00001-of-00002.safetensors")
        index = {"metadata": {}, "weight_map": {"lm_head.weight": "model-00002-of-00002.safetensors"}}
        (model / "model.safetensors.index.json").write_text(json.dumps(index))
        self.generate_fails(["model-00002-of-00002.safetensors"], model)

    def test_configs(self):
        for words, changes in ((["MambaForCausalLM", "LlamaForCausalLM"], {"architectures": ["MambaForCausalLM"]}),
                               (["hidden_size", "-64"], {"hidden_size": -64}),
                               (["num_hidden_layers", "1000000000"], {"num_hidden_layers": 10**9}),
                               (["vocab_size", "many"], {"vocab_size": "many"}),
                               (["num_key_value_heads"], {"num_key_value_heads": 3}),
                               (["rope"], {"rope_scaling": {"rope_type": "spiral", "factor": 2.0},
                                           "rope_parameters": {"rope_type": "spiral", "factor": 2.0}})):
            with self.subTest(changes=changes):
                self.generate_fails(["config.json", *words], self.model(**changes))
        model = self.model()
        (model / "config.json").write_text("{")
        self.generate_fails(["config.json"], model)

    def edit_header(self, model, edit):
        path = model / "model.safetensors"
        data = path.read_bytes()
        header_bytes = struct.unpack("<Q", data[:8])[0]
        header = json.loads(data[8:8 + header_bytes])
        edit(header)
        text = json.dumps(header).encode()
        path.write_bytes(struct.pack("<Q", len(text)) + text + data[8 + header_bytes:])

    def test_corrupt_safetensors(self):
        path = self.model() / "model.safetensors"
        whole = path.read_bytes()
        header_bytes = struct.unpack("<Q", whole[:8])[0]
        for what, content in (("empty", b""), ("cut in the length", whole[:5]), ("cut in the header", whole[:40]),
                              ("cut in the data", whole[:-100]), ("longer than it says", whole + b"x" * 64),
                              ("header beyond the file", struct.pack("<Q", 1 << 40) + whole[8:]),
                              ("header is no JSON", whole[:8] + b"x" * header_bytes + whole[8 + header_bytes:])):
            with self.subTest(what=what):
                path.write_bytes(content)
                self.generate_fails(["model.safetensors"], path.parent)

    def test_lying_headers(self):
        name = "model.norm.weight"

        def overlap(header):
            begin, end = header[name]["data_offsets"]
            header[name]["data_offsets"] = [begin - 4, end - 4] if begin >= 4 else [begin + 4, end + 4]

        def misshape(header):
            header[name]["shape"] = [header[name]["shape"][0] + 1]

        def negative(header):
            header[name]["shape"] = [-1]

        def unknown_dtype(header):
            header[name]["dtype"] = "F7"

        def missing(header):
            header["other"] = header.pop(name)

        for edit in (overlap, misshape, negative, unknown_dtype, missing):
            with self.subTest(edit=edit.__name__):
                model = self.model()
                self.edit_header(model, edit)
                self.generate_fails([name] if edit is not overlap else ["model.safetensors"], model)

    def test_weights_of_another_shape(self):
        self.generate_fails(["shape"], self.model(intermediate_size=2 * 64))

    def test_tokenizers(self):
        folder = self.folder / "tokenizer"
        shutil.copytree(DEMO, folder, ignore=shutil.ignore_patterns("*.safetensors"))
        tokenizer = json.loads((folder / "tokenizer.json").read_text())
        tokenizer["pre_tokenizer"] = {"type": "Sequence", "pretokenizers": [
            {"type": "Split", "pattern": {"Regex": "(unclosed"}, "behavior": "Isolated", "invert": False}]}
        (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
        self.generate_fails(["tokenizer.json", "(unclosed"], LLAMA, "--tokenizer-path", folder)
        (folder / "tokenizer.json").write_text("[1, 2")
        self.generate_fails(["tokenizer.json"], LLAMA, "--tokenizer-path", folder)

    def test_requests(self):
        vocab = json.loads((LLAMA / "config.json").read_text())["vocab_size"]
        for words, ids, more in ((["id 99999999", f"0 to {vocab - 1}"], "1,99999999", []),
                                 ([f"id {vocab}", f"0 to {vocab - 1}"], str(vocab), []),
                                 (["the prompt has 30 tokens", "context of 20"], ",".join(["1"] * 30),
                                  ["--context-length", 20])):
            with self.subTest(ids=ids[:20]):
                self.fails(1, words, "generate", "--model-path", LLAMA, "--input-ids", ids, *FEW_SIZES, "--log-level",
                           "error", *more)
        file = self.folder / "empty"
        file.write_text("")
        self.fails(1, ["empty", str(file)], "generate", "--model-path", DEMO, "--prompt-file", file, *FEW_SIZES)

    def test_paths_that_no_system_takes(self):
        path = "a" * 5000
        self.generate_fails([path], path)
        self.generate_fails(["File name too long"], LLAMA, "--tokenizer-path", path)
        self.generate_fails(["config.json/x"], LLAMA / "config.json" / "x")

    @unittest.skipUnless(os.path.exists("/dev/full"), "there is no /dev/full")
    def test_full_standard_output(self):
        few = ["--model-path", LLAMA, *FEW_SIZES, "--log-level", "error"]
        for command in (["generate", *few, "--input-ids", "1", "--max-new-tokens", 3],
                        ["generate", *few, "--input-ids", "1", "--json"],
                        ["explain", "--model-path", LLAMA, "--format", "json"], ["--help"]):
            with open("/dev/full", "w") as full:
                result = subprocess.run([str(PROGRAM), *map(str, command)], stdout=full, stderr=subprocess.PIPE,
                                        text=True, timeout=200, check=False)
            self.assertEqual(result.returncode, 1, command)
            self.assertEqual(result.stderr.count("\n"), 1, result.stderr)
            self.assertIn("standard output cannot be written", result.stderr)

    def test_output_that_cannot_be_written(self):
        self.fails(1, ["/no/folder"], "score", "--model-path", LLAMA, "--input-ids", "1", "--output",
                   "/no/folder/f.safetensors", *FEW_SIZES, "--log-level", "error")
        self.fails(1, ["/no/folder"], "explain", "--model-path", LLAMA, "--output", "/no/folder/f.svg")


class LineResult(unittest.TextTestResult):
    """One line for each test."""

    def startTest(self, test):
        unittest.TestResult.startTest(self, test)
        self.faults_before = len(self.failures) + len(self.errors)

    def stopTest(self, test):
        faults = len(self.failures) + len(self.errors) - self.faults_before
        skipped = bool(self.skipped) and self.skipped[-1][0] is test
        word = "FAILED" if faults else "skipped" if skipped else "ok"
        reason = f" ({self.skipped[-1][1]})" if skipped else ""
        self.stream.writeln(f"{word}: {test.id().removeprefix('__main__.')}{reason}")
        self.stream.flush()
        self.failed_tests = getattr(self, "failed_tests", 0) + bool(faults)
        super().stopTest(test)


def main():
    global PROGRAM
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    PROGRAM = pathlib.Path(sys.argv[1]).resolve()
    names = sys.argv[2:]
    loader = unittest.defaultTestLoader
    module = sys.modules["__main__"]
    tests = loader.loadTestsFromNames(names, module) if names else loader.loadTestsFromModule(module)
    result = unittest.TextTestRunner(stream=sys.stdout, resultclass=LineResult, verbosity=0).run(tests)
    failed = getattr(result, "failed_tests", 0)
    print(f"{result.testsRun - failed - len(result.skipped)} passed, {failed} failed")
    sys.exit(0 if failed == 0 and result.testsRun > 0 else 1)


if __name__ == "__main__":
    main()
