#!/usr/bin/env python3
"""The tessera command as two processes with a GPU each, joined by NCCL. tests/cli/cli_nccl_test.py PROGRAM [TEST …]

Catches: ranks of two processes that compute other results than two ranks of one, graphs with NCCL kernels that replay
wrong values, a process that waits forever on its GPU for a killed one, and a failed start without a named cause.
Needs two GPUs that this process sees, and libnccl.so.2 where the loader finds it (LD_LIBRARY_PATH); skipped otherwise.
Prints a line for each test; the last line is "N passed, N failed"."""

import ctypes
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time

from program import DEMO, FEW_SIZES, GOLDENS, LLAMA, PROGRAM, CliTest, main, read_safetensors

FLAGS = ["--tp-size", "2", "--dtype", "float32", "--log-level", "error", "--disable-cost-measurement", "--mem-fraction-static",
         "0.2", "--dist-timeout", "60", *FEW_SIZES]
# The families: dense, sliding windows, experts, experts with latent attention, gated delta nets.
FAMILIES = ["llama", "mistral-swa", "qwen3-moe", "glm4-moe-lite", "qwen3.5-text"]
IDS = "3,9,27,81,243,17,51,153"


def missing():
    """Returns what is missing; "" if the tests can run."""
    # In a build the library is beside the program; where Tessera is installed, it is in lib/.
    if not any((PROGRAM.parent / folder / "libtessera_cuda.so").exists() for folder in (".", "../lib")):
        return "this build has no CUDA backend"
    try:
        ctypes.CDLL("libnccl.so.2")
        seen = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, check=False).stdout
    except OSError as error:
        return str(error)
    gpus = len(re.findall(r"^GPU ", seen, re.MULTILINE))
    return "" if gpus >= 2 else f"there are {gpus} GPUs, and two are needed"


class Nccl(CliTest):
    def setUp(self):
        super().setUp()
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]

    def start(self, rank, *arguments, gpu=None, environment=None):
        command = [PROGRAM, *arguments, "--nnodes", "2", "--node-rank", rank, "--dist-init-addr", f"127.0.0.1:{self.port}",
                   "--device", f"cuda:{rank if gpu is None else gpu}"]
        process = subprocess.Popen([*map(str, command)], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE, text=True, env={**os.environ, **(environment or {})})
        self.addCleanup(process.kill)
        return process

    def ends(self, processes, limit=60):
        """Returns (exit code, standard output, standard error) of each."""
        deadline = time.monotonic() + limit
        ended = []
        for process in processes:
            out, errors = process.communicate(timeout=max(deadline - time.monotonic(), 0.1))
            ended.append((process.returncode, out, errors))
        return ended

    def on_two(self, *arguments):
        ended = self.ends([self.start(rank, *arguments, *FLAGS) for rank in (0, 1)])
        for code, _, errors in ended:
            self.assertEqual(code, 0, errors)
        self.assertIn("Node 1 of 2: ended", ended[1][2])
        return ended[0][1]

    def on_one(self, *arguments):
        return self.ok(*arguments, *FLAGS, "--device", "cuda:0").stdout

    def test_families_as_two_ranks_of_one_process(self):
        for family in FAMILIES:
            with self.subTest(family):
                scores = ["score", "--model-path", GOLDENS / family, "--input-ids", IDS]
                one, two = self.folder / f"{family}-1", self.folder / f"{family}-2"
                self.on_one(*scores, "--output", one)
                self.on_two(*scores, "--output", two)
                expected, found = read_safetensors(one), read_safetensors(two)
                self.assertEqual(expected.keys(), found.keys())
                largest = max(abs(a - b) for name in expected for a, b in zip(expected[name][1], found[name][1]))
                print(f"{family}: greatest difference {largest:g}")
                self.assertLessEqual(largest, 1e-4)

    def test_generate_as_two_ranks_of_one_process(self):
        ask = ["generate", "--model-path", DEMO, "--prompt", "Once upon a time", "--max-new-tokens", "48", "--json"]
        one, two = json.loads(self.on_one(*ask)), json.loads(self.on_two(*ask))
        self.assertEqual(len(two["output_ids"]), 48)
        self.assertEqual(two["output_ids"], one["output_ids"])

    def test_verify_and_soak_on_both(self):
        answer = json.loads(self.on_two("verify", "--model-path", LLAMA, "--json"))
        self.assertTrue(answer["equal"])
        self.assertGreater(answer["runners"]["prefill"]["comparisons"], 1)
        answer = json.loads(self.on_two("verify", "--model-path", LLAMA, "--soak", "100", "--json"))
        self.assertEqual((answer["batches"], answer["failures"]), (100, 0))

    def refused(self, words, processes):
        """Returns node 0's error; the other nodes end with it."""
        code, _, errors = self.ends(processes)[0]
        self.assertIn(code, (1, 2), errors)
        lines = [line for line in errors.splitlines() if line.startswith("tessera: error: ")]
        self.assertEqual(len(lines), 1, errors)
        for word in words:
            self.assertIn(word, lines[0])

    def test_two_ranks_on_one_gpu(self):
        ask = ["generate", "--model-path", LLAMA, "--input-ids", IDS, *FLAGS]
        self.refused(["are both on GPU GPU-", "each needs one of its own"], [self.start(rank, *ask, gpu=0) for rank in (0, 1)])

    def test_without_nccl(self):
        (self.folder / "libnccl.so.2").write_text("")
        hidden = {"LD_LIBRARY_PATH": f"{self.folder}:{os.environ.get('LD_LIBRARY_PATH', '')}"}
        ask = ["generate", "--model-path", LLAMA, "--input-ids", IDS, *FLAGS]
        self.refused(["--nnodes: ", "libnccl.so.2 cannot be loaded", "nvidia-nccl-cu12"],
                     [self.start(0, *ask, environment=hidden)])

    def test_a_node_that_is_killed_ends_the_other(self):
        ask = ["verify", "--model-path", LLAMA, "--soak", "1000000", *FLAGS]
        for killed in (1, 0):
            with self.subTest(killed):
                nodes = [self.start(rank, *ask) for rank in (0, 1)]
                for line in nodes[1].stderr:
                    if "follows node 0" in line:
                        break
                time.sleep(5)  # in the middle of its batches
                for process in nodes:
                    self.assertIsNone(process.poll(), "it ended before anything was killed")
                nodes[killed].send_signal(signal.SIGKILL)
                began = time.monotonic()
                code, _, errors = self.ends([nodes[1 - killed]], 20)[0]
                print(f"node {killed} killed: the other ended within {time.monotonic() - began:.1f} s")
                self.assertEqual(code, 1, errors)
                self.assertRegex(errors, rf"tessera: error: .*node {killed} of 2 \(127\.0\.0\.1:\d+\)")


if __name__ == "__main__":
    if PROGRAM is not None and missing():
        print(f"skipped: {missing()}")
        sys.exit(77)
    main()
