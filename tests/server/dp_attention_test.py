#!/usr/bin/env python3
"""A server whose ranks have requests of their own and share experts: tests/server/dp_attention_test.py TESSERA

Catches: answers that differ from those of one rank, a rank that gets no requests, a server that does not end while a
rank waits for another, and a model without experts that is served.

The last line is "N passed, N failed"."""

import asyncio
import json
import pathlib
import re
import subprocess
import sys
import tempfile

from served import MODEL, Served, run_cases

MIXTURE = {"architectures": ["MixtralForCausalLM"], "vocab_size": 512, "hidden_size": 64, "intermediate_size": 128,
           "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 4, "max_position_embeddings": 2048,
           "num_local_experts": 8, "num_experts_per_tok": 2}
FLAGS = ["--load-format", "dummy", "--random-seed", "3", "--dtype", "float32", "--context-length", "256",
         "--max-running-requests", "8", "--piecewise-cuda-graph-tokens", "16,64", "--cuda-graph-bs", "1,4"]
RANKS = ["--tp-size", "2", "--ep-size", "2", "--enable-dp-attention"]


class Cases:
    def __init__(self, tessera, one, two):
        self.tessera, self.one, self.two = tessera, one, two

    def _ask(self, server, first):
        status, body = server.post("/generate", {"input_ids": [first, 17, 33, 4, 9, 12], "sampling_params": {
            "max_new_tokens": 24, "ignore_eos": True, "temperature": 0}})
        assert status == 200, body
        return body["output_ids"]

    def answers_are_those_of_one_rank(self):
        alone = [self._ask(self.one, first) for first in range(3, 9)]
        assert [self._ask(self.two, first) for first in range(3, 9)] == alone, "one request at a time"

        async def together():
            return await asyncio.gather(*(asyncio.to_thread(self._ask, self.two, first) for first in range(3, 9)))

        assert asyncio.run(together()) == alone
        _, text = self.two.get("/metrics")
        prompts = re.findall(r'^tessera:replica_prompt_tokens_total\{replica="\d"\} (\d+)$', text, re.MULTILINE)
        assert len(prompts) == 2 and min(map(int, prompts)) > 0, prompts

    def a_model_without_experts_is_refused(self):
        done = subprocess.run([self.tessera, "serve", "--model-path", MODEL, "--port", "0", *RANKS], capture_output=True,
                              text=True, timeout=60, check=False)
        assert done.returncode != 0 and "the model has no experts" in done.stderr, done.stderr


def main():
    with tempfile.TemporaryDirectory() as folder:
        (pathlib.Path(folder) / "config.json").write_text(json.dumps(MIXTURE), encoding="utf-8")
        with Served(sys.argv[1], FLAGS, folder) as one, Served(sys.argv[1], [*FLAGS, *RANKS], folder) as two:
            passed, failed = run_cases(Cases(sys.argv[1], one, two))
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
