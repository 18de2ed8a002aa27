#!/usr/bin/env python3
"""The tessera command as two processes of one model, over TCP. tests/cli/cli_nodes_test.py PROGRAM [TEST …]

Catches: ranks of two processes whose bits differ from those of two threads, a process that is left running, a start of
processes with different options, endless waiting for a process that is missing or joins twice, and a launcher's
variables that are not understood.
Prints a line for each test; the last line is "N passed, N failed"."""

import json
import shutil
import signal
import socket
import struct
import time
import unittest

from nodes import FLAGS, IDS, OTHERS, QUICK, NodesCliTest, node_flags, start
from program import DEMO, GOLDENS, LLAMA, PROGRAM, main

# The families: dense, sliding windows, experts, experts with latent attention, gated delta nets.
FAMILIES = ["llama", "mistral-swa", "qwen3-moe", "glm4-moe-lite", "qwen3.5-text"]


class Nodes(NodesCliTest):
    def test_families_have_the_bits_of_two_threads(self):
        for family in FAMILIES:
            with self.subTest(family):
                scores = ["score", "--model-path", GOLDENS / family, "--input-ids", IDS]
                threads, nodes = self.folder / f"{family}-1", self.folder / f"{family}-2"
                self.ok(*scores, "--output", threads, *FLAGS)
                self.assert_follows(self.on_two(*scores, "--output", nodes))
                self.assertGreater(threads.stat().st_size, 1000)
                self.assertEqual(threads.read_bytes(), nodes.read_bytes())

    def test_generate_as_two_threads_do(self):
        ask = ["generate", "--model-path", DEMO, "--prompt", "Once upon a time", "--max-new-tokens", "24", "--json"]
        ended = self.on_two(*ask)
        self.assert_follows(ended)
        nodes, threads = json.loads(ended[0][1]), json.loads(self.ok(*ask, *FLAGS).stdout)
        self.assertEqual(nodes["output_ids"], threads["output_ids"])

    def test_four_ranks_on_two_nodes(self):
        ask = ["generate", "--model-path", LLAMA, "--input-ids", IDS, "--max-new-tokens", "12", "--json"]
        four = ["--tp-size", "4", *OTHERS]
        ended = self.on_two(*ask, flags=(four, four))
        self.assertEqual([code for code, _, _ in ended], [0, 0], ended)
        self.assertIn("ranks 2 to 3 of 4", ended[1][2])
        self.assertEqual(json.loads(ended[0][1])["output_ids"], self.ok_json(*ask[:-1], *four)["output_ids"])

    def test_verify_and_soak_on_every_rank(self):
        ended = self.on_two("verify", "--model-path", LLAMA, "--json")
        self.assert_follows(ended)
        answer = json.loads(ended[0][1])
        self.assertTrue(answer["equal"])
        self.assertGreater(answer["runners"]["prefill"]["comparisons"], 1)
        ended = self.on_two("verify", "--model-path", LLAMA, "--soak", "30", "--json")
        self.assert_follows(ended)
        answer = json.loads(ended[0][1])
        self.assertEqual((answer["batches"], answer["failures"]), (30, 0))

    def test_bench_on_two_nodes(self):
        for kind, sizes in (("decode", ["--batch-size", "3", "--context", "16"]), ("prefill", ["--num-tokens", "30"])):
            ended = self.on_two("bench", kind, "--model-path", LLAMA, "--repeat", "2", "--json", *sizes)
            self.assert_follows(ended)
            answer = json.loads(ended[0][1])
            self.assertEqual((answer["bench"], answer["ranks"]), (kind, 2))
            self.assertEqual([row["tokens"] for row in answer["rows"]], [3 if kind == "decode" else 30])
            self.assertGreater(answer["rows"][0]["graph_ms"], 0)

    def test_nodes_that_differ(self):
        """Checks that node 0 waits for a matching node, and at its time-out names the nodes that it refused."""
        ask = ["generate", "--input-ids", IDS]
        soon = ["--dist-timeout", "5"]
        model = ["--model-path", LLAMA, *QUICK, *soon]
        self.refuses(["--page-size: 16 on node 0 and 8 on node 1"],
                     self.on_two(*ask, flags=(model, [*model, "--page-size", "8"])))
        self.refuses(["node 1 has another model than node 0"],
                     self.on_two(*ask, flags=(model, ["--model-path", GOLDENS / "qwen2", *QUICK, *soon])))
        self.refuses(["nnodes: 2 on node 0 and 4 on node 1"],
                     self.ends([start([*ask, *model, *node_flags(self.port, 0)]),
                                start([*ask, "--model-path", LLAMA, "--tp-size", "4", *OTHERS, *soon, *node_flags(self.port, 1, nodes=4)])]))

    def test_another_protocol(self):
        """Sends the first message of a process of a later version."""
        node = start(["generate", "--input-ids", IDS, "--model-path", LLAMA, *QUICK, "--dist-timeout", "10",
                      *node_flags(self.port, 0)])
        body = struct.pack("<q", 99)
        message = struct.pack("<QIIQQ", 0x31736B6E61727374, 1, 1, 0, 32 + len(body)) + body
        frame = struct.pack("<QQQ", 0x3165646F6E727374, 1, len(message)) + message
        deadline = time.monotonic() + 30
        while True:
            try:
                later = socket.create_connection(("127.0.0.1", self.port))
                break
            except ConnectionRefusedError:
                self.assertLess(time.monotonic(), deadline)
                time.sleep(0.05)
        with later:
            later.sendall(frame)
            answer = later.makefile("rb").read()
        words = "the protocol between nodes is 5 on node 0 and 99 on another"
        self.assertIn(words.encode(), answer)
        self.refuses([words], self.ends([node]))

    def test_what_does_not_come(self):
        ask = ["generate", "--input-ids", IDS, "--model-path", LLAMA, *QUICK, "--dist-timeout", "1"]
        began = time.monotonic()
        ended = self.ends([start([*ask, *node_flags(self.port, 0)])])
        self.refuses([f"--dist-init-addr: node 1 of 2 did not come to 127.0.0.1:{self.port} within 1 s"], ended)
        ended = self.ends([start([*ask, *node_flags(self.port, 1)])])
        self.refuses(["node 1 of 2 found no node 0 within 1 s", "Connection refused"], ended)
        self.assertLess(time.monotonic() - began, 20)

    def test_a_port_that_is_taken(self):
        with socket.socket() as other:
            other.bind(("127.0.0.1", self.port))
            other.listen()
            self.fails(2, [f"--dist-init-addr: cannot listen at 127.0.0.1:{self.port}: Address already in use"], "generate",
                       "--input-ids", IDS, "--model-path", LLAMA, *FLAGS, *node_flags(self.port, 0))

    def test_what_is_refused_by_name(self):
        def refused(code, words, *flags):
            self.fails(code, words, "generate", "--input-ids", IDS, "--model-path", LLAMA, *flags)
        refused(2, ["--nnodes: --dist-init-addr is missing"], "--tp-size", "2", "--nnodes", "2")
        refused(2, ["--nnodes: 3 ranks (--tp-size) do not divide among 2 nodes"], "--tp-size", "3", *node_flags(self.port, 0))
        refused(2, ["--node-rank: 2 is not accepted; 0 to 1"], "--tp-size", "2", *node_flags(self.port, 2))
        refused(2, ["--dist-init-addr", "HOST:PORT"], "--nnodes", "2", "--tp-size", "2", "--dist-init-addr", "here")
        refused(2, ["--dist-timeout", "0.5"], "--dist-timeout", "0.5")
        refused(2, ["--nnodes: 2 nodes on device cuda with --enable-deterministic-inference", "NCCL", "accepted is device cpu"],
                "--device", "cuda", "--enable-deterministic-inference", "--tp-size", "2", *node_flags(self.port, 0))
        self.fails(2, ["--nnodes: 2 is accepted by generate"], "bench", "startup", "--model-path", LLAMA, "--tp-size", "2",
                   *node_flags(self.port, 0))

    def test_launchers(self):
        ask = ["generate", "--model-path", LLAMA, "--input-ids", IDS, "--max-new-tokens", "4", *FLAGS, "--json"]
        master = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(self.port)}
        expected = json.loads(self.ok(*ask).stdout)["output_ids"]
        for size, rank in (("OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK"), ("SLURM_NTASKS", "SLURM_PROCID")):
            ended = self.ends([start(ask, {**master, size: "2", rank: str(node)}, node) for node in (0, 1)])
            self.assertEqual([code for code, _, _ in ended], [0, 0], ended)
            for node in (0, 1):
                self.assertIn(f"Several nodes: --nnodes 2 and --node-rank {node} by {size} and {rank}; --dist-init-addr "
                              f"127.0.0.1:{self.port} by MASTER_ADDR and MASTER_PORT", ended[node][2])
            self.assertEqual(json.loads(ended[0][1])["output_ids"], expected)

    @unittest.skipUnless(shutil.which("mpirun"), "there is no mpirun (Debian: apt-get install openmpi-bin)")
    def test_mpirun(self):
        ask = ["generate", "--model-path", LLAMA, "--input-ids", IDS, "--max-new-tokens", "4", *FLAGS, "--json"]
        environment = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(self.port), "OMPI_ALLOW_RUN_AS_ROOT": "1",
                       "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
        code, out, errors = self.ends([start(ask, environment, program=["mpirun", "--oversubscribe", "-np", "2", PROGRAM])])[0]
        self.assertEqual(code, 0, errors)
        self.assertEqual(errors.count("by OMPI_COMM_WORLD_SIZE and OMPI_COMM_WORLD_RANK"), 2, errors)
        self.assertEqual(json.loads(out)["output_ids"], json.loads(self.ok(*ask).stdout)["output_ids"])

    def test_a_node_0_that_is_killed_is_missed(self):
        ask = ["generate", "--model-path", LLAMA, "--input-ids", IDS, "--max-new-tokens", "400", "--ignore-eos", *FLAGS]
        nodes = [start([*ask, *node_flags(self.port, rank)], rank=rank) for rank in (0, 1)]
        for line in nodes[1].stderr:
            if "follows node 0" in line:
                break
        nodes[0].send_signal(signal.SIGKILL)
        began = time.monotonic()
        code, _, errors = self.ends([nodes[1]], 20)[0]
        self.ends([nodes[0]])
        self.assertLess(time.monotonic() - began, 10)
        self.assertEqual(code, 1, errors)
        self.assertRegex(errors, r"tessera: error: node 0 of 2 \(127\.0\.0\.1:\d+; rank 0\) is gone")


if __name__ == "__main__":
    main()
