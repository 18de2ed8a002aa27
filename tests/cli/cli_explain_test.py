#!/usr/bin/env python3
"""The tessera command: explain and verify. tests/cli/cli_explain_test.py PROGRAM [TEST …]

Catches: an explanation that differs from what an engine does, a picture or graph that is not written, and a comparison
that misses a difference.
Prints a line for each test; the last line is "N passed, N failed"."""

import json
import pathlib
import re
import subprocess
import sys

from program import DEMO, FEW_SIZES, GOLDENS, LLAMA, PROGRAM, SHARED_CONFIGS, CliTest, main, tessera


class Explain(CliTest):
    def check(self, config):
        answer = json.loads(self.ok("explain", "--model-path", config, "--format", "json", "--num-tokens", 17).stdout)
        told = json.loads(config.read_text())
        layers = told.get("text_config", told)["num_hidden_layers"]
        kinds = [part["kind"] for part in answer["pieces"]]
        # The head contains the operators after the last attention. Exceptions are embedding models, which need all
        # rows, and models whose last layer adds a level of the vision tower.
        last = 1 if config.parent.name in ("qwen3-embedding", "qwen3-vl", "qwen3-vl-moe") else 0
        self.assertEqual(kinds, ["piece", "split_op"] * layers + ["piece"] * last)
        for part in answer["pieces"]:
            self.assertTrue(part["ops"])
            self.assertTrue(part["name"])
        self.assertEqual((answer["num_pieces"], answer["num_split_ops"]), (layers + last, layers))
        memory = answer["memory"]
        self.assertEqual([n["size"] for n in memory["prefill"]], answer["runners"]["prefill"]["sizes"])
        for need in memory["prefill"] + memory["decode"]:
            self.assertLessEqual(need["lower_bound_bytes"], need["arena_bytes"])
            self.assertLessEqual(need["arena_bytes"], memory["arena_bytes"])
        self.assertFalse(any(rule["applied"] for rule in answer["rules"]))
        prefill, decode = (row for row in answer["dispatch"] if row["batch"] != "image")
        self.assertEqual((prefill["runner"], prefill["size"], prefill["padding"]), ("prefill", 20, 3))
        # A model that generates no tokens has no decode graphs.
        generates = config.parent.name not in ("qwen3-embedding", "qwen3-reranker")
        self.assertEqual((decode["runner"], decode["size"], decode["reason"]),
                         ("decode", 24, "padded_to_size") if generates else ("prefill", 20, "padded_to_size"))

    def test_goldens(self):
        configs = sorted(GOLDENS.glob("*/config.json")) + [DEMO / "config.json"]
        self.assertGreater(len(configs), 5)
        for config in configs:
            with self.subTest(config=config.parent.name):
                self.check(config)

    def test_published_configs_are_explained_or_refused(self):
        configs = sorted(SHARED_CONFIGS.rglob("*.json"))[::8]
        if not configs:
            self.skipTest("no shared data: configs")
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
        for words in ("6 pieces and 6 split ops", "piece 0", "KV cache", "padded to the next captured size", "1792 2048",
                      "disable_cuda_graph"):
            self.assertIn(words, text)

    def test_programs_that_run_in_halves_say_so(self):
        self.assertNotIn("halves", self.graph("program:2", "text", "--tp-size", "2"))
        self.assertRegex(self.graph("program:2", "text", "--tp-size", "2", "--enable-two-batch-overlap"),
                         r"from 1024 tokens: 0 to \d+ in two halves of their rows\n")
        cut = self.graph("program:2", "text", "--tp-size", "2", "--enable-two-batch-overlap", "--cuda-graph-split-ops",
                         "attention,all_reduce")
        self.assertNotIn("in two halves", cut)
        self.assertIn("two-batch overlap is left out: ", cut)

    def test_suggested_tokens(self):
        metrics = self.folder / "metrics.txt"
        metrics.write_text("# TYPE tessera:prefill_tokens histogram\n"
                           "tessera:prefill_tokens_bucket{le=\"8\"} 4\ntessera:prefill_tokens_bucket{le=\"300\"} 96\n"
                           "tessera:prefill_tokens_bucket{le=\"+Inf\"} 100\n")
        answer = json.loads(self.ok("explain", "--model-path", LLAMA, "--suggest-tokens", metrics, "--format",
                                    "json").stdout)
        self.assertEqual((answer["forwards"], answer["p50"], answer["p90"]), (100, 300, 300))
        self.assertLess(answer["proposed"]["padding_time"], answer["present"]["padding_time"])
        # The suggested flag can be used as it is, and has the effect that was stated.
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

    def test_notes_and_log_lines_name_flags(self):
        arguments = ["--model-path", LLAMA, "--piecewise-cuda-graph-tokens", "8,64", "--piecewise-cuda-graph-max-tokens",
                     "32"]
        note = "--piecewise-cuda-graph-tokens: 1 sizes above 32 are dropped"
        self.assertIn(f"  note: {note}\n", self.ok("explain", *arguments).stdout)
        self.assertIn(note, json.loads(self.ok("explain", *arguments, "--format", "json").stdout)["notes"])
        for command in (["generate", "--input-ids", "1,2", "--max-new-tokens", "1"], ["explain", "--print-config"]):
            self.assertIn(f"engine: {note}\n", self.ok(*command, *arguments).stderr)

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
        for name in ("body", "head", "sampler", "choose", "logprobs", "decode", "prefill", "prefill_head", "stitched", "0",
                     "1"):
            with self.subTest(graph=name):
                answer = json.loads(self.graph(name, "json"))
                self.assertEqual(answer["graph"], name)
                nodes[name] = len(answer["nodes"])
                self.assertTrue(self.graph(name, "dot").startswith("digraph"))
                self.assertIn("<svg", self.graph(name, "svg")[:200])
                self.assertTrue(self.graph(name, "text").startswith("stitching" if name == "stitched" else "graph @"))
        self.assertEqual(nodes["decode"], nodes["body"] + nodes["head"] + nodes["sampler"])
        self.assertEqual((nodes["stitched"], nodes["1"]), (nodes["prefill"], 1))
        # The body passes two values to the head, so the prefill gathers twice, whereas body and head gather once.
        self.assertEqual(nodes["prefill"] + nodes["prefill_head"], nodes["body"] + nodes["head"] + 1)
        parts = [node["part"] for node in json.loads(self.graph("stitched", "json"))["nodes"]]
        self.assertEqual((parts[0], parts[-1]), ("piece 0", "split op 5: attention"))

    def test_help_names_every_graph_of_a_seeing_model(self):
        error = self.fails(2, ["tower"], "explain", "--model-path", GOLDENS / "qwen2.5-vl", "--graph", "none").stderr
        names = re.search(r"there are (.*?), pass:", error)[1].split(", ")
        self.assertIn("tower", names)
        said = re.search(r"--graph NAME(.*?)--export", self.ok("explain", "--help").stdout, re.DOTALL)[1]
        for name in names:
            self.assertRegex(said, rf"\b{name}\b")

    def test_programs_and_entries(self):
        for part in range(6):
            text = self.graph(f"program:{part}", "text")
            self.assertIn(f"{part}", text.splitlines()[0])
            self.assertIn("\nprogram of ", text)
        plan = json.loads(self.ok("explain", "--model-path", LLAMA, "--format", "json").stdout)
        entries = self.graph("entries", "text")
        self.assertEqual(entries.count("need to compile: "), 6 * len(plan["runners"]["prefill"]["sizes"]))
        self.fails(2, ["--graph", "program:0 to program:5"], "explain", "--model-path", LLAMA, "--graph", "program:6")
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
        # Models are built in the form that the passes would give them, so the passes change nothing.
        self.assertFalse(any(report["changed"] for report in passes))
        self.fails(2, ["--graph", f"the pass {name} changes no graph"], "explain", "--model-path", LLAMA, "--graph",
                   f"pass:{name}")

    def test_export(self):
        folder = self.folder / "all" / "graphs"
        self.ok("explain", "--model-path", LLAMA / "config.json", "--export", folder)
        names = {file.stem for file in folder.iterdir()}
        self.assertTrue({"body", "decode", "stitched", "part.00", "part.05"} <= names, names)
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
                         ["full_and_piecewise", "piecewise", "full", "full by choice", "eager capture", "lazy capture",
                          "core capture", "without passes", "deterministic", "after a cache restart"])
        for mode in answer["modes"]:
            self.assertTrue(mode["equal"], mode)
            self.assertGreater(mode["runners"]["prefill"]["comparisons"], 0)
        chosen = next(mode["runners"] for mode in answer["modes"] if mode["mode"] == "full by choice")
        self.assertEqual(chosen["prefill, full"]["sizes"], [8, 32])

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

    # A soak's tolerance must be larger than the differences that rounding causes.
    def test_rounding_carries_less_than_a_soak_allows(self):
        tool = pathlib.Path(__file__).parents[2] / "tools" / "rounding_response.py"
        command = [sys.executable, tool, "--tessera", PROGRAM, "--prompts", "2", "--tokens", "8"]
        done = subprocess.run([*command, GOLDENS / "llama"], capture_output=True, text=True, check=True)
        greatest = float(re.fullmatch(r"llama: greatest (\S+), median \S+\n", done.stdout).group(1))
        self.assertGreater(greatest, 1e-8)
        self.assertLess(greatest, 1e-5)

    def test_nothing_to_verify_is_no_success(self):
        self.fails(1, ["no graphs to verify"], "verify", "--model-path", LLAMA, "--disable-cuda-graph")


if __name__ == "__main__":
    main()
