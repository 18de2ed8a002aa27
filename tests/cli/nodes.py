"""Helpers of the scripts that test the tessera command as processes of one model, over TCP."""

import os
import socket
import subprocess
import time

from program import FEW_SIZES, PROGRAM, CliTest

OTHERS = ["--dtype", "float32", "--log-level", "error", "--disable-cost-measurement", *FEW_SIZES]
QUICK = ["--tp-size", "2", *OTHERS]
FLAGS = [*QUICK, "--dist-timeout", "60"]
IDS = "3,9,27,81,243,17,51,153"


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def node_flags(port, rank, nodes=2):
    return ["--nnodes", str(nodes), "--node-rank", str(rank), "--dist-init-addr", f"127.0.0.1:{port}"]


def half_of_the_cores(rank):
    """Returns the cores for a rank with two threads. The number must be right, because a kernel's order of sums depends on it."""
    cores = sorted(os.sched_getaffinity(0))
    half = len(cores) // 2
    return cores[rank * half:(rank + 1) * half] or cores


def start(arguments, environment=None, rank=0, program=(PROGRAM,)):
    return subprocess.Popen([*map(str, [*program, *arguments])], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                            stderr=subprocess.PIPE, text=True, env={**os.environ, **(environment or {})},
                            preexec_fn=lambda: os.sched_setaffinity(0, half_of_the_cores(rank)))


class NodesCliTest(CliTest):
    def setUp(self):
        super().setUp()
        self.port = free_port()

    def ends(self, processes, limit=60):
        """Returns (exit code, standard output, standard error) of each."""
        ended = []
        deadline = time.monotonic() + limit
        try:
            for process in processes:
                out, errors = process.communicate(timeout=max(deadline - time.monotonic(), 0.1))
                ended.append((process.returncode, out, errors))
        finally:
            for process in processes:
                if process.poll() is None:
                    process.kill()
                    process.communicate()
        return ended

    def on_two(self, *arguments, flags=(FLAGS, FLAGS), limit=60):
        """Runs a command on both nodes, with flags for each, and returns its results."""
        return self.ends([start([*arguments, *flags[rank], *node_flags(self.port, rank)], rank=rank) for rank in (0, 1)], limit)

    def assert_follows(self, ended):
        for code, _, errors in ended:
            self.assertEqual(code, 0, errors)
        self.assertIn("Node 1 of 2, rank 1 of 2: joining node 0 at 127.0.0.1", ended[1][2])
        self.assertIn("Node 1 of 2: follows node 0", ended[1][2])
        self.assertIn("Node 1 of 2: ended", ended[1][2])
        self.assertEqual(ended[1][1], "")

    def refuses(self, words, ended):
        """Checks that both nodes end with one line of error that has all of `words`."""
        for code, _, errors in ended:
            self.assertIn(code, (1, 2), errors)
            lines = [line for line in errors.splitlines() if line.startswith("tessera: error: ")]
            self.assertEqual(len(lines), 1, errors)
            for word in words:
                self.assertIn(word, lines[0])
