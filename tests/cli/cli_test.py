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
import resource
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import threading
import time
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

    def test_debug_mode_changes_no_token_and_writes_the_graphs(self):
        arguments = ["generate", "--model-path", LLAMA, "--input-ids", "1,2,3,4,5", "--max-new-tokens", 6, "--json",
                     *FEW_SIZES]
        plain = json.loads(self.ok(*arguments).stdout)
        with unittest.mock.patch.dict(os.environ, {"TESSERA_CACHE_DIR": str(self.folder)}):
            checked = json.loads(self.ok(*arguments, "--enable-torch-compile-debug-mode").stdout)
        self.assertEqual(checked["output_ids"], plain["output_ids"])
        exports = list((self.folder / "torch_compile_cache").iterdir())
        self.assertEqual(len(exports), 1)
        self.assertTrue(exports[0].name.startswith("llama-"))
        self.assertTrue((exports[0] / "decode.svg").is_file())
        not_a_folder = self.folder / "file"
        not_a_folder.write_text("")
        with unittest.mock.patch.dict(os.environ, {"TESSERA_CACHE_DIR": str(not_a_folder)}):
            result = self.ok(*arguments, "--enable-torch-compile-debug-mode")
        self.assertEqual(json.loads(result.stdout)["output_ids"], plain["output_ids"])
        self.assertEqual(result.stderr.count("the graphs are not exported"), 1, result.stderr)

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

    def test_suggested_tokens(self):
        metrics = self.folder / "metrics.txt"
        metrics.write_text("# TYPE tessera:prefill_tokens histogram\n"
                           "tessera:prefill_tokens_bucket{le=\"8\"} 4\ntessera:prefill_tokens_bucket{le=\"300\"} 96\n"
                           "tessera:prefill_tokens_bucket{le=\"+Inf\"} 100\n")
        answer = json.loads(self.ok("explain", "--model-path", LLAMA, "--suggest-tokens", metrics, "--format",
                                    "json").stdout)
        self.assertEqual((answer["forwards"], answer["p50"], answer["p90"]), (100, 300, 300))
        self.assertLess(answer["proposed"]["padding_time"], answer["present"]["padding_time"])
        # The flag is ready to be used, and serves what it says.
        again = json.loads(self.ok("explain", "--model-path", LLAMA, "--suggest-tokens", metrics, "--format", "json",
                                   *answer["flag"].split()).stdout)
        self.assertEqual(again["present"], answer["proposed"])
        trace = self.folder / "trace.jsonl"
        trace.write_text("".join(json.dumps({"timestamp": 900 * i, "input_length": 700 + i % 3, "output_length": 2}) + "\n"
                                 for i in range(60)))
        text = self.ok("explain", "--model-path", LLAMA, "--suggest-tokens", trace).stdout
        for words in ("60 requests", "p50 701", "proposed", "\n--piecewise-cuda-graph-tokens 700,"):
            self.assertIn(words, text)
        trace.write_text("{\"timestamp\": 0, \"input_length\": \"long\"}\n")
        self.fails(2, ["--suggest-tokens", "trace.jsonl:1", "input_length"], "explain", "--model-path", LLAMA,
                   "--suggest-tokens", trace)

    def test_a_budget_that_holds_no_size(self):
        result = self.fails(1, ["piecewise graphs are off: --cuda-graph-memory-budget: ", "prefill sizes dropped"],
                            "explain", "--model-path", LLAMA, "--cuda-graph-memory-budget", "1")
        self.assertIn("Sizes\n  prefill, tokens    off\n", result.stdout)

    def test_a_kv_cache_larger_than_any(self):
        plans = [json.loads(self.ok("explain", "--model-path", LLAMA, "--format", "json", "--max-total-tokens",
                                    tokens).stdout)["memory"] for tokens in (2**31 - 1, 2**63 - 1)]
        self.assertEqual(plans[0], plans[1])

    def test_pictures(self):
        self.assertTrue(self.ok("explain", "--model-path", DEMO, "--format", "dot").stdout.startswith("digraph"))
        file = self.folder / "graph.svg"
        self.ok("explain", "--model-path", DEMO, "--format", "svg", "--output", file)
        self.assertIn("<svg", file.read_text()[:200])

    def graph(self, name, form, *more):
        return self.ok("explain", "--model-path", LLAMA, "--graph", name, "--format", form, *more).stdout

    def test_every_graph_in_every_form(self):
        nodes = {}
        for name in ("body", "head", "sampler", "choose", "logprobs", "decode", "stitched", "0", "1"):
            with self.subTest(graph=name):
                answer = json.loads(self.graph(name, "json"))
                self.assertEqual(answer["graph"], name)
                nodes[name] = len(answer["nodes"])
                self.assertTrue(self.graph(name, "dot").startswith("digraph"))
                self.assertIn("<svg", self.graph(name, "svg")[:200])
                self.assertTrue(self.graph(name, "text").startswith("stitching" if name == "stitched" else "graph @"))
        self.assertEqual(nodes["decode"], nodes["body"] + nodes["head"] + nodes["sampler"])
        self.assertEqual((nodes["stitched"], nodes["1"]), (nodes["body"], 1))
        parts = [node["part"] for node in json.loads(self.graph("stitched", "json"))["nodes"]]
        self.assertEqual((parts[0], parts[-1]), ("piece 0", "piece 6"))

    def test_programs_and_entries(self):
        for part in range(7):
            text = self.graph(f"program:{part}", "text")
            self.assertIn(f"{part}", text.splitlines()[0])
            self.assertIn("\nprogram of ", text)
        plan = json.loads(self.ok("explain", "--model-path", LLAMA, "--format", "json").stdout)
        entries = self.graph("entries", "text")
        self.assertEqual(entries.count("need to compile: "), 7 * len(plan["runners"]["prefill"]["sizes"]))
        self.fails(2, ["--graph", "program:0 to program:6"], "explain", "--model-path", LLAMA, "--graph", "program:7")
        self.fails(2, ["--graph program:0 goes with --format text"], "explain", "--model-path", LLAMA, "--graph",
                   "program:0", "--format", "svg")

    def test_passes(self):
        passes = json.loads(self.ok("explain", "--model-path", LLAMA, "--format", "json").stdout)["passes"]
        text = self.ok("explain", "--model-path", LLAMA).stdout
        for report in passes:
            self.assertGreaterEqual(report["ms"], 0)
            self.assertIn(report["name"], text)
        name = passes[0]["name"]
        off = json.loads(self.ok("explain", "--model-path", LLAMA, "--format", "json",
                                 "--cuda-graph-disable-passes", name).stdout)["passes"]
        self.assertEqual([report["name"] for report in off],
                         [report["name"] for report in passes if report["name"] != name])
        # Models are built as the passes would leave them.
        self.assertFalse(any(report["changed"] for report in passes))
        self.fails(2, ["--graph", f"the pass {name} changes no graph"], "explain", "--model-path", LLAMA, "--graph",
                   f"pass:{name}")

    def test_export(self):
        folder = self.folder / "all" / "graphs"
        self.ok("explain", "--model-path", LLAMA / "config.json", "--export", folder)
        names = {file.stem for file in folder.iterdir()}
        self.assertTrue({"body", "decode", "stitched", "part.00", "part.06"} <= names, names)
        for name in names:
            for form in ("txt", "dot", "svg"):
                self.assertTrue((folder / f"{name}.{form}").stat().st_size > 0, name)
        self.assertEqual((folder / "body.txt").read_text(), self.graph("body", "text"))
        (self.folder / "file").write_text("")
        self.fails(1, [str(self.folder / "file")], "explain", "--model-path", LLAMA, "--export",
                   self.folder / "file" / "x")

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

    def test_every_mode_is_equal(self):
        answer = self.ok_json("verify", "--model-path", LLAMA, "--modes", *FEW_SIZES, "--log-level", "error")
        self.assertTrue(answer["equal"])
        self.assertEqual([mode["mode"] for mode in answer["modes"]],
                         ["full_and_piecewise", "piecewise", "full", "lazy capture", "core capture", "without passes",
                          "deterministic", "after a cache restart"])
        for mode in answer["modes"]:
            self.assertTrue(mode["equal"], mode)
            self.assertGreater(mode["runners"]["prefill"]["comparisons"], 0)

    def test_soak(self):
        soak = ["verify", "--model-path", LLAMA, "--soak", "40", *FEW_SIZES, "--log-level", "error"]
        answer = self.ok_json(*soak, "--seed", "5")
        self.assertEqual((answer["equal"], answer["batches"], answer["failures"]), (True, 40, 0))
        self.assertLessEqual(answer["greatest_difference"], 1e-5)
        again = self.ok_json(*soak, "--seed", "5")
        self.assertEqual(answer["forwards"], again["forwards"])
        self.assertNotEqual(answer["tokens"], self.ok_json(*soak, "--seed", "6")["tokens"])
        self.fails(1, ["there are no graphs to verify"], "verify", "--model-path", LLAMA, "--soak", "4",
                   "--disable-cuda-graph", "--max-running-requests", "4", "--chunked-prefill-size", "32")
        for wrong in (["--soak", "0"], ["--soak", "x"], ["--seed", "3"], ["--soak", "3", "--seed", "-1"],
                      ["--soak", "3", "--modes"]):
            self.fails(2, [wrong[0] if len(wrong) < 4 or wrong[3] != "-1" else "--seed"],
                       "verify", "--model-path", LLAMA, *wrong)

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

    def test_more_than_a_forward_may_have(self):
        self.fails(2, ["--batch-size: 5 ", "4 are the most", "--max-running-requests"], "bench", "decode", *self.COMMON,
                   "--batch-size", "5", *FEW_SIZES)
        self.fails(2, ["--num-tokens: 33 ", "32 are the most", "--chunked-prefill-size"], "bench", "prefill",
                   *self.COMMON, "--num-tokens", "33", *FEW_SIZES)

    def test_startup(self):
        answer = self.ok_json("bench", "startup", *self.COMMON, *FEW_SIZES)
        layers = json.loads((LLAMA / "config.json").read_text())["num_hidden_layers"]
        self.assertEqual(answer["runners"]["prefill"]["graphs"], 2 * (layers + 1))
        self.assertEqual(answer["runners"]["decode"]["graphs"], 2)
        self.assertGreater(answer["runners"]["prefill"]["nodes"], answer["runners"]["prefill"]["graphs"])

    def test_profile(self):
        file = self.folder / "trace.json"
        answer = self.ok_json("bench", "profile", *self.COMMON, "--num-tokens", "5,30", "--batch-size", 3, "--context",
                              16, "--output", file, *FEW_SIZES)
        self.assertEqual([row["forward"] for row in answer["forwards"]], ["prefill 8", "prefill 32", "decode 4"])
        times = [row["ms"] for row in answer["slowest"]]
        self.assertEqual((len(times), times), (10, sorted(times, reverse=True)))
        trace = json.loads(file.read_text())
        self.assertEqual(trace["otherData"]["bench"], "profile")
        layers = json.loads((LLAMA / "config.json").read_text())["num_hidden_layers"]
        for pid, row in enumerate(answer["forwards"], 1):
            for tid, (category, whole_ms) in enumerate((("replay", row["replay_ms"]),
                                                        ("eager operators", row["eager_ms"])), 1):
                spans = [e for e in trace["traceEvents"] if e["ph"] == "X" and (e["pid"], e["tid"]) == (pid, tid)]
                whole, inner = spans[0], spans[1:]
                self.assertEqual({span["cat"] for span in spans}, {category})
                self.assertAlmostEqual(whole["dur"], 1e3 * whole_ms)
                self.assertLessEqual(sum(span["dur"] for span in inner), 1.001 * whole["dur"])
                for before, after in zip(inner, inner[1:]):
                    self.assertGreaterEqual(after["ts"] + 1e-3, before["ts"] + before["dur"])
                if category == "replay":
                    # Pieces around attention, and the head.
                    self.assertEqual(len(inner), 1 if row["forward"] == "decode 4" else 2 * layers + 2)
                    self.assertTrue(inner[0]["args"]["graph"])
                else:
                    self.assertEqual(len(inner), row["operators"])
                    for span in inner:
                        self.assertGreater(span["args"]["bytes"], 0)
                        self.assertIn("%", span["args"]["result"])
                        self.assertIn("->", span["args"]["shapes"])
        text = self.ok("bench", "profile", *self.COMMON, "--num-tokens", 8, "--output", file, *FEW_SIZES).stdout
        for words in ("operator by operator", "linear", str(file)):
            self.assertIn(words, text)
        self.fails(1, [str(self.folder)], "bench", "profile", *self.COMMON, "--num-tokens", 8, "--output", self.folder)

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


class FailedStart(CliTest):
    """A process that may not have the addresses that an arena reserves cannot make its graphs."""

    LIMIT = 4 << 30

    def start(self, cache, *arguments):
        limit = lambda: resource.setrlimit(resource.RLIMIT_AS, (self.LIMIT, self.LIMIT))
        return subprocess.run([str(PROGRAM), *map(str, arguments)], cwd=ROOT, capture_output=True, text=True, timeout=120,
                              preexec_fn=limit, check=False, env={**os.environ, "TESSERA_CACHE_DIR": str(cache)})

    def generate(self, cache, *more):
        if self.start(cache, "--version").returncode != 0:
            self.skipTest("the program itself needs more addresses")
        result = self.start(cache, "generate", "--model-path", LLAMA, "--input-ids", "1,2,3", "--log-level", "error",
                            *FEW_SIZES, *more)
        if result.returncode == 0:
            self.skipTest("this machine has too little memory for an arena to be refused")
        self.assertEqual(result.returncode, 1, result.stderr)
        self.assertTrue(result.stderr.startswith("tessera: error: compiling graphs: "), result.stderr)
        return result.stderr

    def test_says_what_helps_and_keeps_a_report(self):
        said = self.generate(self.folder)
        for words in ("--disable-piecewise-cuda-graph starts without them", "--mem-fraction-static 0.8 (0.7)",
                      "--piecewise-cuda-graph-max-tokens 2048 (1024, 512)", "--cuda-graph-max-bs 16"):
            self.assertIn(words, said)
        (file,) = (self.folder / "failure_reports").iterdir()
        self.assertIn(f"A report of this start: {file}\n", said)
        report = json.loads(file.read_text())
        self.assertEqual(report["command"][:3], ["tessera", "generate", "--model-path"])
        self.assertIn("compiling graphs", report["error"]["message"])
        self.assertEqual(report["plan"]["runners"]["prefill"]["sizes"], report["configuration"]["piecewise-cuda-graph-tokens"])
        self.assertIn("notes", report["plan"])

    def test_where_no_report_can_be_kept(self):
        (self.folder / "file").write_text("")
        said = self.generate(self.folder / "file", "--disable-cuda-graph")
        self.assertIn("No report could be kept: ", said)
        self.assertIn("--chunked-prefill-size 1024", said)
        self.assertNotIn("piecewise", said)  # it is off already


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


class Config(CliTest):
    def write(self, text):
        file = self.folder / "config.yaml"
        file.write_text(text)
        return file

    def test_file_and_command_line(self):
        file = self.write(f"model-path: {LLAMA}\ninput-ids: [1, 2, 3]\nmax_new_tokens: 3\nignore-eos: true\n"
                          "cuda_graph_bs: [1]\npiecewise-cuda-graph-tokens: [4]\nlog-level: [error]\n")
        answer = self.ok_json("generate", "--config", file)
        self.assertEqual(len(answer["output_ids"]), 3)
        self.assertEqual(answer["graphs"]["prefill"]["sizes"], [4])
        answer = self.ok_json("generate", "--config", file, "--max-new-tokens", 2, "--piecewise-cuda-graph-tokens", 8)
        self.assertEqual(len(answer["output_ids"]), 2)
        self.assertEqual(answer["graphs"]["prefill"]["sizes"], [8])

    def test_effective_configuration(self):
        file = self.write("page_size: 8\n")
        first = self.ok("serve", "--model-path", LLAMA, "--config", file, "--enable-torch-compile", *FEW_SIZES,
                        "--print-config")
        self.assertIn("piecewise_cuda_graph has conflict with torch compile", first.stderr)
        config = json.loads(first.stdout)
        sources = config.pop("sources")
        self.assertEqual(set(config), set(sources))
        for key, value, source in (("page-size", 8, "file"), ("chunked-prefill-size", 32, "command line"),
                                   ("port", 30000, "default"), ("disable-piecewise-cuda-graph", True, "engine"),
                                   ("cuda-graph-bs", [1, 4], "command line"), ("context-length", 2048, "engine")):
            self.assertEqual((config[key], sources[key]), (value, source), key)
        self.assertNotIn("config", config)
        second = json.loads(self.ok("serve", "--config", self.write(first.stdout), "--print-config").stdout)
        self.assertEqual({*second.pop("sources").values()}, {"file", "default"})
        self.assertEqual(second, config)
        self.ok("verify", "--model-path", LLAMA, "--print-config")

    def test_wrong_files(self):
        arguments = ["explain", "--model-path", LLAMA, "--config"]
        for words, text in ((["config.yaml:2", "--page-sise", "--page-size"], "page-size: 1\npage-sise: 2\n"),
                            (["config.yaml:1", "page-size", "a whole number"], "page-size: large\n"),
                            (["config.yaml:1", "--cuda-graph-bs", "\"0\""], "cuda-graph-bs: [0]\n"),
                            (["config.yaml:2", "page_size", "already"], "page-size: 1\npage_size: 1\n"),
                            (["config.yaml:1", "a holds a map"], "a:\n  b: 1\n"),
                            (["config.yaml:1"], "a: [1\n"), (["config.yaml"], "{\"a\": }"), (["is empty"], ""),
                            (["config.yaml:1", "--tp-size", "not supported yet"], "tp-size: 2\n")):
            with self.subTest(text=text):
                self.fails(2, words, *arguments, self.write(text))
        self.fails(2, ["--config", "/no/such/file"], *arguments, "/no/such/file")
        self.fails(2, ["--config"], *arguments, self.folder)


class Cache(CliTest):
    def setUp(self):
        super().setUp()
        self.cache = self.folder / "cache"
        patch = unittest.mock.patch.dict(os.environ, {"TESSERA_CACHE_DIR": str(self.cache)})
        patch.start()
        self.addCleanup(patch.stop)

    def info(self, action="info"):
        return self.ok_json("cache", action)

    def test_info_and_clear(self):
        self.assertEqual(self.info(), {"path": str(self.cache), "cleared": False, "entries": 0, "bytes": 0, "kinds": {}})
        folder = self.cache / "profiles" / "v1"
        folder.mkdir(parents=True)
        ours = [folder / f"costs-{digit * 32}.json" for digit in "0a"] + [folder / f"matmul-{'1' * 32}.json"]
        for file in ours:
            file.write_text("{}")
        other = folder / "notes.txt"
        other.write_text("mine")
        info = self.info()
        self.assertEqual((info["entries"], info["bytes"]), (3, 6))
        self.assertEqual(info["kinds"], {"costs": {"entries": 2, "bytes": 4}, "matmul": {"entries": 1, "bytes": 2}})
        text = self.ok("cache", "info").stdout
        for words in (str(self.cache), "3 entries of 6 B", "costs", "matmul"):
            self.assertIn(words, text)
        self.assertEqual(self.info("clear")["entries"], 3)
        self.assertEqual(list(folder.iterdir()), [other])
        self.assertIn("removed 0 entries", self.ok("cache", "clear").stdout)

    def test_folders_that_are_none(self):
        self.cache.mkdir()
        (self.cache / "profiles").write_text("")
        self.fails(1, [str(self.cache / "profiles")], "cache", "info")
        self.fails(1, [str(self.cache / "profiles")], "cache", "clear")
        for name in ("TESSERA_CACHE_DIR", "SGLANG_CACHE_DIR", "XDG_CACHE_HOME", "HOME"):
            os.environ[name] = ""
        self.fails(1, ["TESSERA_CACHE_DIR", "HOME"], "cache", "info")

    def wait_for_costs(self):
        """The file of measured costs, once there is one that is JSON."""
        for _ in range(1200):
            for file in (self.cache / "profiles" / "v1").glob("costs-*.json"):
                if file.read_text() != "{":
                    return file
            time.sleep(0.1)
        self.fail("no costs were measured")

    def test_the_next_start_knows_what_this_one_measured(self):
        with Serving() as server:
            self.assertEqual(server.metric("profile_cache_hits_total"), 0)
            file = self.wait_for_costs()
        kept = json.loads(file.read_text())
        self.assertEqual(kept["kind"], "costs")
        self.assertTrue(kept["value"]["prefill"])
        with Serving() as server:
            self.assertEqual(server.metric("profile_cache_hits_total"), 1)
        file.write_text("{")
        with Serving() as server:
            self.assertEqual(server.metric("profile_cache_hits_total"), 0)
            self.assertEqual(self.wait_for_costs(), file)
        self.assertEqual(json.loads(file.read_text())["key"], kept["key"])

    def test_a_start_needs_no_cache(self):
        arguments = ["generate", "--model-path", LLAMA, "--input-ids", "1,2", "--max-new-tokens", 3, "--ignore-eos",
                     *FEW_SIZES]
        plain = self.ok_json(*arguments)["output_ids"]
        for folder in ("/proc/no/such/folder", str(self.folder / "file" / "below"), "/dev/full"):
            (self.folder / "file").touch()
            os.environ["TESSERA_CACHE_DIR"] = folder
            self.assertEqual(json.loads(self.ok(*arguments, "--json").stdout)["output_ids"], plain, folder)


class HelpAndVersion(CliTest):
    def test_help(self):
        for arguments in ([], ["--help"], ["generate", "--help"], ["score", "-h"], ["explain", "--help"],
                          ["verify", "--help"], ["bench", "--help"], ["chat", "--help"], ["serve", "--help"],
                          ["cache", "--help"]):
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
                (["--cuda-graph-schedule", "none", "default, legacy, auto"], [*ids, "--cuda-graph-schedule", "none"]),
                (["--cuda-graph-capture", "soon", "eager, lazy, core"], [*ids, "--cuda-graph-capture", "soon"]),
                (["--cuda-graph-memory-budget", "much", "0.5GiB"], [*ids, "--cuda-graph-memory-budget", "much"]),
                (["--cuda-graph-disable-passes", "speed"], [*ids, "--cuda-graph-disable-passes", "speed"]),
                (["--enable-vit-cuda-graph is not supported yet"], [*ids, "--enable-vit-cuda-graph"]),
                (["--cuda-graph-split-ops", "atention", "attention"], [*ids, "--cuda-graph-split-ops", "atention"]),
                (["--piecewise-cuda-graph-compiler", "inductor", "not supported yet"],
                 [*ids, "--piecewise-cuda-graph-compiler", "inductor"]),
                (["unknown flag --max-new-token ", "did you mean --max-new-tokens?"], [*ids, "--max-new-token", "3"]),
                (["unknown flag --zzz", "--help"], [*ids, "--zzz"]),
                (["--quantization is not supported yet"], [*ids, "--quantization", "fp8"]),
                (["--kv-cache-dtype", "fp8_e5m2", "accepted is auto"], [*ids, "--kv-cache-dtype", "fp8_e5m2"]),
                (["--speculative-algorithm is not supported yet"], [*ids, "--speculative-algorithm", "EAGLE"]),
                (["cache does what", "info, clear"], ["cache"]),
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
                (["--log-level", "\"dispach\"", "capture, ", "dispatch"], [*ids, "--log-level", "dispach=debug"]),
                (["--output is missing"], ["score", "--model-path", LLAMA, "--input-ids", "1"]),
                (["--num-tokens", "0"], ["explain", "--model-path", LLAMA, "--num-tokens", "0"]),
                (["--format", "png", "text, json, dot, svg"], ["explain", "--model-path", LLAMA, "--format", "png"]),
                (["--suggest-tokens", "/no/such/trace"],
                 ["explain", "--model-path", LLAMA, "--suggest-tokens", "/no/such/trace"]),
                (["--suggest-tokens", "picture"],
                 ["explain", "--model-path", LLAMA, "--suggest-tokens", "trace", "--format", "dot"]),
                (["--config", "/dev/zero", "more than 1048576 bytes"], ["explain", "--config", "/dev/zero"]),
                (["--config", "/dev", "directory"], ["explain", "--config", "/dev"]),
                (["--num-tokens", "--suggest-tokens"],
                 ["explain", "--model-path", LLAMA, "--suggest-tokens", "trace", "--num-tokens", "4"]),
                (["--graph", "\"tail\"", "body, head, sampler", "stitched", "0 to 6"],
                 ["explain", "--model-path", LLAMA, "--graph", "tail"]),
                (["--num-tokens", "--graph"],
                 ["explain", "--model-path", LLAMA, "--graph", "body", "--num-tokens", "3"]),
                (["bench of what"], ["bench", "--model-path", LLAMA]),
                (["--output is missing"], ["bench", "profile", "--model-path", LLAMA, "--num-tokens", "8"]),
                (["bench profile of what", "--num-tokens", "--batch-size"],
                 ["bench", "profile", "--model-path", LLAMA, "--output", "x.json"]),
                (["--context goes with --batch-size"],
                 ["bench", "profile", "--model-path", LLAMA, "--output", "x", "--num-tokens", "8", "--context", "9"]),
                (["--output does not go with bench decode"],
                 ["bench", "decode", "--model-path", LLAMA, "--output", "x"]),
                (["--num-tokens", "\"0\""],
                 ["bench", "profile", "--model-path", LLAMA, "--output", "x", "--num-tokens", "0"]),
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
                (["bench", "speed", "prefill, decode, startup, profile, serve"], ["bench", "speed", "--model-path", LLAMA]),
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
    # Nothing of what tests measure is kept for anybody's next start.
    cache = tempfile.TemporaryDirectory()
    os.environ["TESSERA_CACHE_DIR"] = cache.name
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
