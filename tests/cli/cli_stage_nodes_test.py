#!/usr/bin/env python3
"""The stages of one pipeline as two processes, over TCP. tests/cli/cli_stage_nodes_test.py PROGRAM [TEST …]

Catches: stages of two processes whose bits differ from those of one process, mixed-up steps in flight on two nodes, a
process that is left running or waits forever when the other one dies at the start or in a step, and combinations that
are accepted and then fail.
Prints a line for each test; the last line is "N passed, N failed"."""

import json
import signal
import time

from nodes import IDS, OTHERS, NodesCliTest, node_flags, start
from program import DEMO, GOLDENS, LLAMA, main

STAGES = ["--pp-size", "2", *OTHERS, "--dist-timeout", "60"]
# The families: dense, experts, gated delta nets.
FAMILIES = ["llama", "qwen3-moe", "qwen3.5-text"]


class StageNodes(NodesCliTest):
    def on_two_in_stages(self, *arguments, flags=STAGES):
        ended = self.on_two(*arguments, flags=(flags, flags))
        self.assertEqual([code for code, _, _ in ended], [0, 0], ended)
        return ended

    def test_families_have_the_bits_of_one_process(self):
        for family in FAMILIES:
            with self.subTest(family):
                scores = ["score", "--model-path", GOLDENS / family, "--input-ids", IDS]
                one, two = self.folder / f"{family}-1", self.folder / f"{family}-2"
                self.ok(*scores, "--output", one, *STAGES)
                self.assert_follows(self.on_two(*scores, "--output", two, flags=(STAGES, STAGES)))
                self.assertGreater(one.stat().st_size, 1000)
                self.assertEqual(one.read_bytes(), two.read_bytes())

    def test_two_stages_of_two_ranks_on_each_node(self):
        flags = ["--pp-size", "4", "--tp-size", "2", *OTHERS, "--dist-timeout", "60"]
        ask = ["generate", "--model-path", GOLDENS / "qwen3.5-text", "--input-ids", IDS, "--max-new-tokens", "12", "--json"]
        ended = self.on_two_in_stages(*ask, flags=flags)
        self.assertIn("Node 1 of 2, ranks 4 to 7 of 8: joining", ended[1][2])
        self.assertEqual(json.loads(ended[0][1])["output_ids"], json.loads(self.ok(*ask, *flags).stdout)["output_ids"])

    def test_texts_of_several_requests(self):
        """Checks requests whose steps are in flight on both nodes at once."""
        asked = self.folder / "asked.jsonl"
        asked.write_text("".join(json.dumps({"custom_id": str(n), "method": "POST", "url": "/v1/completions", "body": {
            "model": str(DEMO), "prompt": "Once upon a time" + " there was" * n, "max_tokens": 8 + n, "temperature": 0}}) + "\n"
            for n in range(6)))
        answers = []
        for nodes in (1, 2):
            answered = self.folder / f"answered-{nodes}.jsonl"
            ask = ["generate", "--model-path", DEMO, "--input-file", asked, "--output-file", answered]
            self.ok(*ask, *STAGES) if nodes == 1 else self.on_two_in_stages(*ask)
            rows = [json.loads(line) for line in answered.read_text().splitlines()]
            answers.append({row["custom_id"]: row["response"]["body"]["choices"] for row in rows})
        self.assertEqual(len(answers[0]), 6)
        self.assertEqual(answers[0], answers[1])

    def test_verify_and_soak(self):
        ended = self.on_two_in_stages("verify", "--model-path", LLAMA, "--soak", "30", "--json")
        answer = json.loads(ended[0][1])
        self.assertEqual((answer["batches"], answer["failures"]), (30, 0))

    def test_bench_counts_all_stages(self):
        ask = ["bench", "decode", "--model-path", LLAMA, "--batch-size", "3", "--context", "16", "--repeat", "2", "--json"]
        stages = json.loads(self.on_two_in_stages(*ask)[0][1])
        self.assertEqual((stages["ranks"], stages["stages"]), (2, 2))
        one = json.loads(self.ok(*ask, *OTHERS).stdout)["rows"][0]["bytes_read"]
        # A constant table that both stages read counts in each stage.
        self.assertAlmostEqual(stages["rows"][0]["bytes_read"] / one, 1, delta=0.01)

    def test_a_node_that_is_killed_is_missed(self):
        """Kills either node, once while both load and once in the middle of steps."""
        ask = ["verify", "--model-path", LLAMA, "--soak", "1000000", *STAGES]
        for killed in (0, 1):
            for delay in (0, 0.7):
                with self.subTest(killed=killed, delay=delay):
                    nodes = [start([*ask, *node_flags(self.port, rank)], rank=rank) for rank in (0, 1)]
                    for line in nodes[1].stderr:
                        if "follows node 0" in line:
                            break
                    time.sleep(delay)
                    nodes[killed].send_signal(signal.SIGKILL)
                    began = time.monotonic()
                    code, _, errors = self.ends([nodes[1 - killed]], 20)[0]
                    self.ends([nodes[killed]])
                    self.assertLess(time.monotonic() - began, 15)
                    self.assertEqual(code, 1, errors)
                    said = [line for line in errors.splitlines() if line.startswith("tessera: error: ")]
                    self.assertEqual(len(said), 1, errors)
                    self.assertIn(f"node {killed} of 2 (127.0.0.1:", said[0])

    def test_a_launcher(self):
        ask = ["generate", "--model-path", LLAMA, "--input-ids", IDS, "--max-new-tokens", "4", *STAGES, "--json"]
        place = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(self.port), "OMPI_COMM_WORLD_SIZE": "2"}
        ended = self.ends([start(ask, {**place, "OMPI_COMM_WORLD_RANK": str(node)}, node) for node in (0, 1)])
        self.assert_follows(ended)
        self.assertEqual(json.loads(ended[0][1])["output_ids"], json.loads(self.ok(*ask).stdout)["output_ids"])

    def test_what_is_refused_by_name(self):
        def refused(words, *flags):
            self.fails(2, words, "generate", "--input-ids", IDS, "--model-path", LLAMA, *flags)
        refused(["--nnodes: 3 stages (--pp-size) do not divide among 2 nodes; a node has whole stages"], "--pp-size", "3",
                *node_flags(self.port, 0))
        refused(["--nnodes: 2 stages (--pp-size) do not divide among 4 nodes"], "--pp-size", "2", "--tp-size", "2",
                *node_flags(self.port, 0, nodes=4))
        other = [*OTHERS, "--dist-timeout", "5"]
        self.refuses(["--pp-size: 2 on node 0 and 4 on node 1"], self.on_two(
            "generate", "--input-ids", IDS, "--model-path", GOLDENS / "qwen3.5-text",
            flags=(["--pp-size", "2", *other], ["--pp-size", "4", *other])))


if __name__ == "__main__":
    main()
