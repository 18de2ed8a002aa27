#!/usr/bin/env python3
"""Tests engines that share the requests of one server: tests/server/replicas_test.py TESSERA

Catches: answers that depend on the engine that gives them, an engine that gets no requests, prefixes that are computed
again although another engine has them, and metrics that leave an engine out.

The last line is "N passed, N failed"."""

import asyncio
import re
import sys
import threading
import time

from served import Served, run_cases

FLAGS = ["--dp-size", "2", "--enable-deterministic-inference", "--piecewise-cuda-graph-tokens", "64",
         "--cuda-graph-bs", "1,8", "--context-length", "512"]


def of_replicas(server, name):
    """Returns a metric of both replicas, by their number."""
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

    def _cached(self, prompt):
        """Returns how many tokens of the prompt each replica found in its cache."""
        before = of_replicas(self.server, "replica_cached_tokens_total")
        status, _ = self.server.post("/generate", {"input_ids": prompt, "sampling_params": {
            "max_new_tokens": 2, "ignore_eos": True}})
        assert status == 200
        return [now - then for now, then in zip(of_replicas(self.server, "replica_cached_tokens_total"), before)]

    def _ask_while_the_first_is_busy(self, prompt):
        """Sends the prompt to the second replica. The first one would be chosen among equals, so it is kept busy."""
        holder = threading.Thread(target=self.server.post, args=("/generate", {"input_ids": ids(1, 20), "sampling_params": {
            "max_new_tokens": 450, "ignore_eos": True}}))
        holder.start()
        for _ in range(1000):
            if of_replicas(self.server, "replica_running_requests") == [1, 0]:
                break
            time.sleep(0.002)
        asked = self._cached(prompt)
        holder.join()
        return asked

    def a_prefix_is_looked_for_where_it_is(self):
        prompt = ids(50, 320)
        assert self._ask_while_the_first_is_busy(prompt) == [0, 0]
        for last in range(3):
            first, second = self._cached(prompt + [last + 3])
            assert first == 0 and second > 0, (first, second)

    def flushing_reaches_every_engine(self):
        first, second = ids(60, 320), ids(70, 320)
        self._cached(first)
        self._ask_while_the_first_is_busy(second)
        assert self.server.request("POST", "/flush_cache")[0] == 200
        assert self._cached(first) == [0, 0]
        assert self._ask_while_the_first_is_busy(second) == [0, 0]

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
