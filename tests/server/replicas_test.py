#!/usr/bin/env python3
"""Engines that share the requests of one server: tests/server/replicas_test.py TESSERA

Catches: answers that depend on the engine that gives them, an engine that gets no requests, prefixes that are computed
anew where another engine has them, and metrics that leave an engine out.

The last line is "N passed, N failed"."""

import asyncio
import re
import sys

from served import Served, run_cases

FLAGS = ["--dp-size", "2", "--enable-deterministic-inference", "--piecewise-cuda-graph-tokens", "64",
         "--cuda-graph-bs", "1,8", "--context-length", "512"]


def of_replicas(server, name):
    """A metric of both replicas, by number."""
    _, text = server.get("/metrics")
    found = re.findall(rf'^tessera:{name}\{{replica="(\d)"\}} (\S+)$', text, re.MULTILINE)
    return [float(number) for _, number in sorted(found)]


def ids(salt, tokens=100):
    return [(salt * 97 + i * 13) % 400 + 3 for i in range(tokens)]


class Cases:
    def __init__(self, server):
        self.server = server

    def _ask(self, salt):
        status, body = self.server.post("/generate", {"input_ids": ids(salt), "sampling_params": {
            "max_new_tokens": 12, "ignore_eos": True, "temperature": 0}})
        assert status == 200, body
        return body["output_ids"]

    def answers_are_the_same_whoever_gives_them(self):
        alone = [self._ask(salt) for salt in range(8)]

        async def together():
            return await asyncio.gather(*(asyncio.to_thread(self._ask, salt) for salt in range(8)))

        assert asyncio.run(together()) == alone
        prompts = of_replicas(self.server, "replica_prompt_tokens_total")
        assert len(prompts) == 2 and min(prompts) > 0, prompts

    def a_prefix_is_computed_once(self):
        prompt = ids(50, 320)
        for turn in range(4):
            before = sum(of_replicas(self.server, "replica_cached_tokens_total"))
            status, _ = self.server.post("/generate", {"input_ids": prompt + [turn + 3], "sampling_params": {
                "max_new_tokens": 2, "ignore_eos": True}})
            assert status == 200
            cached = sum(of_replicas(self.server, "replica_cached_tokens_total")) - before
            assert (cached > 0) == (turn > 0), (turn, cached)

    def flushing_reaches_every_engine(self):
        prompt = ids(60, 320)
        ask = {"input_ids": prompt, "sampling_params": {"max_new_tokens": 2, "ignore_eos": True}}
        assert self.server.post("/generate", ask)[0] == 200
        assert self.server.request("POST", "/flush_cache")[0] == 200
        before = sum(of_replicas(self.server, "replica_cached_tokens_total"))
        assert self.server.post("/generate", ask)[0] == 200
        assert sum(of_replicas(self.server, "replica_cached_tokens_total")) == before

    def sums_are_of_both(self):
        _, text = self.server.get("/metrics")
        total = float(re.search(r"^sglang:prompt_tokens_total\{[^}]*\} (\S+)$", text, re.MULTILINE)[1])
        assert total > 0
        assert self.server.get("/engine_state")[0] == 200
        assert self.server.get("/health")[0] == 200


if __name__ == "__main__":
    with Served(sys.argv[1], FLAGS) as served:
        passed, failed = run_cases(Cases(served))
    print(f"{passed} passed, {failed} failed")
    sys.exit(failed > 0)
