#!/usr/bin/env python3
"""The tessera command on several ranks. tests/cli/cli_ranks_test.py PROGRAM [TEST …]

Catches: a command that accepts --tp-size and runs one rank, ranks that give other answers than one rank, a model that
does not divide and is refused without its name, and a comparison that leaves ranks out.
Prints a line for each test; the last line is "N passed, N failed"."""

import json

from program import DEMO, FEW_SIZES, GOLDENS, LLAMA, CliTest, main

MIXTURE = GOLDENS / "qwen3-moe"
TWO = ["--tp-size", "2", "--dtype", "float32", "--log-level", "error", *FEW_SIZES]


class Ranks(CliTest):
    def test_generate_as_one_rank_does(self):
        ask = ["generate", "--model-path", DEMO, "--prompt", "Once upon a time", "--max-new-tokens", "12", "--temperature", "0"]
        one = self.ok_json(*ask, "--tp-size", "1", *TWO[2:])
        for spelling in ("--tp-size", "--tp", "--tensor-parallel-size"):
            self.assertEqual(self.ok_json(*ask, spelling, "2", *TWO[2:])["output_ids"], one["output_ids"], spelling)

    def test_score(self):
        out = self.folder / "logits.safetensors"
        self.ok("score", "--model-path", LLAMA, "--input-ids", "3,9,27,81,243", "--output", out, *TWO)
        self.assertTrue(out.exists())

    def test_explain_names_ranks(self):
        answer = self.ok("explain", "--model-path", LLAMA, "--tp-size", "2").stdout
        self.assertIn("2 ranks", answer)
        self.assertIn("all_reduce", answer)

    def test_whole_experts_on_each_rank(self):
        answer = self.ok("explain", "--model-path", MIXTURE, "--tp-size", "4", "--ep-size", "2").stdout
        self.assertIn("every 2 of them share 4 of the 8 experts", answer)
        explain = ["explain", "--model-path", MIXTURE, "--format", "json"]
        model = json.loads(self.ok(*explain, "--tp-size", "2", "--enable-expert-parallel").stdout)["model"]
        self.assertEqual((model["tp_size"], model["ep_size"]), (2, 2))
        self.assertEqual(model["parameters"], json.loads(self.ok(*explain).stdout)["model"]["parameters"])
        printed = self.ok(*explain, "--tp-size", "2", "--enable-ep-moe", "--print-config").stdout
        self.assertEqual(json.loads(printed)["ep-size"], 2)
        config = self.folder / "ranks.json"
        config.write_text(printed)
        self.assertEqual(json.loads(self.ok("explain", "--config", config).stdout)["model"]["ep_size"], 2)
        ask = ["generate", "--model-path", MIXTURE, "--input-ids", "3,9,27,81,243", "--max-new-tokens", "8", "--temperature", "0"]
        one = self.ok_json(*ask, *TWO[2:])["output_ids"]
        for words in (["--ep", "2"], ["--expert-parallel-size", "2"], ["--moe-a2a-backend", "deepep"]):
            self.assertEqual(self.ok_json(*ask, *words, *TWO)["output_ids"], one, words)
        self.assertTrue(self.ok_json("verify", "--model-path", MIXTURE, "--ep-size", "2", *TWO)["equal"])
        soaked = self.ok_json("verify", "--model-path", MIXTURE, "--soak", "30", "--ep-size", "2", *TWO)
        self.assertEqual((soaked["batches"], soaked["failures"], soaked["ties"]), (30, 0, 0))

    def test_stages_of_a_pipeline(self):
        ask = ["generate", "--model-path", DEMO, "--prompt", "Once upon a time", "--max-new-tokens", "12", "--temperature", "0"]
        one = self.ok_json(*ask, *TWO[2:])
        for spelling in ("--pp-size", "--pp", "--pipeline-parallel-size"):
            self.assertEqual(self.ok_json(*ask, spelling, "2", *TWO[2:])["output_ids"], one["output_ids"], spelling)
        answer = self.ok("explain", "--model-path", LLAMA, "--pp-size", "2").stdout
        self.assertIn("2 stages, of which this is the last, with layers 1 to 2", answer)
        self.assertIn("receive_from_previous", answer)
        out = self.folder / "staged.safetensors"
        self.ok("score", "--model-path", LLAMA, "--input-ids", "3,9,27,81,243", "--output", out, "--pp-size", "2", *TWO)
        self.assertTrue(out.exists())
        self.assertTrue(self.ok_json("verify", "--model-path", LLAMA, "--pp-size", "2", *TWO[2:])["equal"])
        soaked = self.ok_json("verify", "--model-path", LLAMA, "--soak", "30", "--pp-size", "2", *TWO[2:])
        self.assertEqual((soaked["batches"], soaked["failures"]), (30, 0))
        decode = self.ok_json("bench", "decode", "--model-path", LLAMA, "--batch-size", "1,2", "--context", "8", "--repeat", "2",
                              "--pp-size", "2", *TWO[2:])
        self.assertEqual((decode["ranks"], decode["stages"]), (2, 2))
        self.assertEqual([row["runner"] for row in decode["rows"]], ["decode", "decode"])
        prefill = self.ok_json("bench", "prefill", "--model-path", LLAMA, "--num-tokens", "3,30", "--repeat", "2", "--pp-size", "2", *TWO[2:])
        self.assertEqual([row["tokens"] for row in prefill["rows"]], [3, 30])

    def test_verify_on_every_rank(self):
        answer = self.ok_json("verify", "--model-path", LLAMA, *TWO)
        self.assertTrue(answer["equal"])
        self.assertGreater(answer["runners"]["prefill"]["comparisons"], 1)

    def test_soak_on_every_rank(self):
        answer = self.ok_json("verify", "--model-path", LLAMA, "--soak", "30", *TWO)
        self.assertEqual((answer["batches"], answer["failures"]), (30, 0))

    def test_bench_times_forwards_of_both_ranks(self):
        quick = ["--repeat", "2", *TWO]
        decode = self.ok_json("bench", "decode", "--model-path", LLAMA, "--batch-size", "1,2", "--context", "8", *quick)
        self.assertEqual([(row["tokens"], row["runner"]) for row in decode["rows"]], [(1, "decode"), (2, "decode")])
        prefill = self.ok_json("bench", "prefill", "--model-path", LLAMA, "--num-tokens", "3,30", *quick)
        self.assertEqual([row["tokens"] for row in prefill["rows"]], [3, 30])
        self.assertTrue(all(row["graph_ms"] > 0 and row["eager_ms"] > 0 for row in decode["rows"] + prefill["rows"]))

    def test_what_does_not_divide_is_refused_by_name(self):
        self.fails(1, ["--tp-size: 3", "num_attention_heads is 4", "3 ranks"], "generate", "--model-path", LLAMA, "--input-ids", "1",
                   "--tp-size", "3")
        self.fails(1, ["--tp-size: 2", "the experts' intermediate size is 96"], "explain", "--model-path", GOLDENS / "gpt-oss-mxfp4",
                   "--tp-size", "2")
        self.fails(1, ["--ep-size: 3", "must divide --tp-size, which is 4"], "explain", "--model-path", MIXTURE, "--tp-size", "4",
                   "--ep-size", "3")
        self.fails(1, ["--ep-size: 2", "no experts"], "explain", "--model-path", LLAMA, "--tp-size", "2", "--ep-size", "2")
        self.fails(2, ["--moe-a2a-backend", "none, deepep, mooncake"], "explain", "--model-path", MIXTURE, "--moe-a2a-backend", "nixl")
        self.fails(2, ["--tp-size", "65", "64"], "generate", "--model-path", LLAMA, "--tp-size", "65")
        self.fails(2, ["--pp-size", "65", "64"], "generate", "--model-path", LLAMA, "--pp-size", "65")
        self.fails(1, ["--pp-size: 4", "1 to 3, the number of layers"], "explain", "--model-path", LLAMA, "--pp-size", "4")
        for what in (["graphs"], ["profile", "--batch-size", "1", "--output", self.folder / "trace.json"]):
            self.fails(2, ["--tp-size", "bench " + what[0]], "bench", *what, "--model-path", LLAMA, "--tp-size", "2")
            self.fails(2, ["--pp-size", "bench " + what[0]], "bench", *what, "--model-path", LLAMA, "--pp-size", "2")


if __name__ == "__main__":
    main()
