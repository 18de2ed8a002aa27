#!/usr/bin/env python3
"""The tessera command: generate and score. tests/cli/cli_generate_test.py PROGRAM [TEST …]

Catches: an answer that breaks its documented form (a missing key, text beside the JSON object), and scores that differ
from the computed ones.
Prints a line for each test; the last line is "N passed, N failed"."""

import json
import math
import os
import re
import shutil
import subprocess
import sys
import unittest.mock

from program import DEMO, FEW_SIZES, LLAMA, PROGRAM, ROOT, CliTest, main, read_safetensors


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
        self.assertEqual(graphs["pieces"], graphs["split_ops"])
        for runner in ("prefill", "decode"):
            self.assertEqual(graphs[runner]["dropped"], [])
        forwards = graphs["forwards"]
        for runner in ("prefill", "decode"):
            ran = sorted({f["size"] for f in forwards if f["runner"] == runner})
            self.assertEqual(graphs[runner]["sizes"], ran)
            self.assertGreaterEqual(graphs[runner]["captured_sizes"], len(ran))
            self.assertEqual([entry["size"] for entry in graphs["memory_bytes"]["runners"][runner]], ran)
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
        for words in ("6 pieces and 6 split ops", "padded to the next captured size", "tokens/s"):
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

    def test_the_prompt_uses_its_adapter(self):
        adapter = ROOT / "tests/data/adapters/llama-lora/r16-pattern"
        golden = json.loads((adapter / "golden.json").read_text())
        ids = ",".join(map(str, golden["prompts"][1]))
        arguments = ["generate", "--model-path", LLAMA, "--dtype", "float32", "--input-ids", ids, "--max-new-tokens", 12,
                     "--ignore-eos", "--log-level", "error", *FEW_SIZES]
        answer = self.ok_json(*arguments, "--lora-paths", f"tuned={adapter}")
        self.assertEqual(answer["output_ids"], golden["greedy"][1])
        self.assertNotEqual(self.ok_json(*arguments)["output_ids"], golden["greedy"][1])
        self.fails(2, ["a prompt uses one"], *arguments, "--lora-paths", f"a={adapter}", f"b={adapter}")
        self.fails(2, ["--lora-paths: a=/nowhere"], *arguments, "--lora-paths", "a=/nowhere")

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

    def test_cudagraph_gc_warns_and_changes_nothing(self):
        ask = ["generate", "--model-path", LLAMA, "--dtype", "float32", "--input-ids", "1,2,3", "--max-new-tokens", 6, "--ignore-eos",
               "--json", *FEW_SIZES]
        plain, flagged = self.ok(*ask), self.ok(*ask, "--enable-cudagraph-gc")
        self.assertNotIn("--enable-cudagraph-gc", plain.stderr)
        self.assertEqual(flagged.stderr.count("--enable-cudagraph-gc has no effect: "), 1, flagged.stderr)
        first, second = json.loads(plain.stdout), json.loads(flagged.stdout)
        self.assertEqual(second["output_ids"], first["output_ids"])
        for runner in ("prefill", "decode"):
            self.assertEqual(second["graphs"][runner]["captured_sizes"], first["graphs"][runner]["captured_sizes"])
        memory = second["graphs"]["memory_bytes"]
        for use, predicted in memory["predicted"].items():
            self.assertEqual(memory[use], predicted, use)
            self.assertEqual(predicted, first["graphs"]["memory_bytes"][use], use)


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
        expected = read_safetensors(LLAMA / "golden.safetensors")["logits_1_tail"][1]
        last_rows = tensors["logits"][1][-len(expected):]
        self.assertLess(max(abs(a - b) for a, b in zip(last_rows, expected, strict=True)), 1e-4)

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


class Task(CliTest):
    TOOL = ROOT / "tools" / "score_task.py"

    def run_task(self, *flags, program=PROGRAM):
        done = subprocess.run([sys.executable, self.TOOL, program, *flags], capture_output=True, text=True, check=False)
        rows = re.findall(r"^\| (\w+) \| (\d+)/(\d+) \| (-[\d.]+) \|$", done.stdout, re.MULTILINE)
        return done, rows

    def test_the_score_is_the_same_with_graphs_and_without(self):
        done, rows = self.run_task()
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertEqual([row[0] for row in rows], ["off", "full_and_piecewise", "piecewise", "full"])
        self.assertEqual({row[1:3] for row in rows}, {(rows[0][1], "24")}, done.stdout)
        self.assertGreater(int(rows[0][1]), 12, "the model knows its sums")
        self.assertEqual({row[3] for row in rows}, {rows[0][3]}, "the log-probability, to the last digit shown")

    def test_another_score_is_told(self):
        program = self.folder / "tessera"
        program.write_text(f"""#!{sys.executable}
import json, sys
wrong = sys.argv[sys.argv.index("--cuda-graph-mode") + 1] == "piecewise"
prompts = sys.argv.count("--prompt")
print(json.dumps({{"prompts": [{{"logprob": -1.0 - (i % 4 - 2 * wrong) ** 2}} for i in range(prompts)]}}))
""")
        program.chmod(0o755)
        done, rows = self.run_task(program=program)
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertEqual([row[1] for row in rows], ["24", "24", "0", "24"])
        self.assertIn("not equal", done.stdout)
        done, _ = self.run_task("--no-such-flag")
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("--no-such-flag", done.stderr)


if __name__ == "__main__":
    main()
