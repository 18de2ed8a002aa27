#!/usr/bin/env python3
"""Tests what a server reports about its graphs: tests/server/graph_info_test.py TESSERA

Catches: answers that do not say how their forwards ran, counters of /metrics and /engine_state that disagree with the
answers, and sizes captured during service that are not reported.

The last line is "N passed, N failed"."""

import asyncio
import json
import re
import sys
import time

from served import Served, run_cases

FLAGS = ["--piecewise-cuda-graph-tokens", "16,64", "--cuda-graph-bs", "1,4", "--context-length", "256",
         "--disable-radix-cache", "--enable-deterministic-inference"]  # costs are not measured, so that dispatch stays as it is
IDS = list(range(5, 15))


def metric(server, name):
    """Returns a sample of /metrics; 0 if there is none."""
    _, text = server.get("/metrics")
    found = re.search("^" + re.escape(name) + r" (\S+)$", text, re.MULTILINE)
    return float(found[1]) if found else 0.0


class Cases:
    def __init__(self, server, core):
        self.server, self.core = server, core

    def _expect_forwards(self, told):
        prefill, decode = told["forwards"]
        assert prefill == {"phase": "prefill", "runner": "prefill", "size": 16, "reason": "padded_to_size", "count": 1,
                           "tokens": 10, "padding": 6}, prefill
        assert decode == {"phase": "decode", "runner": "decode", "size": 1, "reason": "exact_size", "count": 3,
                          "tokens": 3, "padding": 0}, decode
        assert told["cached_tokens"] == 0

    def completion(self):
        ask = {"prompt": IDS, "max_tokens": 4, "ignore_eos": True}
        status, body = self.server.post("/v1/completions", {**ask, "return_graph_info": True})
        assert status == 200 and body["graph_info"][0]["index"] == 0, body
        self._expect_forwards(body["graph_info"][0])
        assert "graph_info" not in self.server.post("/v1/completions", ask)[1]

    def generate(self):
        ask = {"input_ids": IDS, "sampling_params": {"max_new_tokens": 4, "ignore_eos": True}, "return_graph_info": True}
        status, body = self.server.post("/generate", ask)
        assert status == 200, body
        self._expect_forwards(body["meta_info"]["graph_info"])

    def chat_stream(self):
        events = asyncio.run(self.server.stream("/v1/chat/completions", {
            "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 3, "ignore_eos": True, "return_graph_info": True}))
        assert [("graph_info" in event) for event in events] == [False] * (len(events) - 1) + [True], events
        told = events[-1]["graph_info"][0]["forwards"]
        assert [entry["runner"] for entry in told] == ["prefill", "decode"], told

    def above_the_largest_size(self):
        ask = {"prompt": [5] * 100, "max_tokens": 1, "return_graph_info": True}
        before = metric(self.server, 'tessera:forwards_total{reason="above_largest_size"}')
        _, body = self.server.post("/v1/completions", ask)
        (told,) = body["graph_info"][0]["forwards"]
        assert told["runner"] == "eager" and told["reason"] == "above_largest_size" and told["tokens"] == 100, told
        assert metric(self.server, 'tessera:forwards_total{reason="above_largest_size"}') == before + 1

    def wrong_type(self):
        for path, ask in [("/v1/completions", {"prompt": "a"}), ("/generate", {"text": "a"}),
                          ("/v1/chat/completions", {"messages": [{"role": "user", "content": "a"}]})]:
            status, body = self.server.post(path, {**ask, "return_graph_info": "yes"})
            assert status == 400 and body["error"]["param"] == "return_graph_info", body

    def metrics_agree_with_answers(self):
        name = 'tessera:graph_replays_total{runner="prefill",bucket="64",reason="padded_to_size"}'
        before = metric(self.server, name), metric(self.server, 'tessera:prefill_tokens_bucket{le="44"}')
        self.server.post("/v1/completions", {"prompt": [6] * 41, "max_tokens": 1})
        after = metric(self.server, name), metric(self.server, 'tessera:prefill_tokens_bucket{le="44"}')
        assert after == (before[0] + 1, before[1] + 1), (before, after)
        assert metric(self.server, 'tessera:captured_sizes{runner="prefill"}') == 2

    def memory_is_of_now(self):
        eager = {"prompt": [7] * 99, "max_tokens": 1}
        bound = metric(self.server, 'tessera:shape_compiles_total{runner="prefill"}')
        self.server.post("/v1/completions", eager)
        assert metric(self.server, 'tessera:shape_compiles_total{runner="prefill"}') == bound + 1
        state = json.loads(self.server.get("/engine_state")[1])
        for entry in state["memory"]:
            assert metric(self.server, f'tessera:memory_bytes{{kind="{entry["kind"]}"}}') == entry["bytes"], entry

    def sizes_that_come_late_show(self):
        for _ in range(200):
            state = json.loads(self.core.get("/engine_state")[1])
            if not state["prefill"]["to_come"] and not state["decode"]["to_come"]:
                break
            time.sleep(0.05)
        sizes = [entry["size"] for entry in state["prefill"]["sizes"]]
        assert sizes == list(range(4, 36, 4)), sizes
        assert metric(self.core, 'tessera:captured_sizes{runner="prefill"}') == len(sizes)
        assert metric(self.core, 'tessera:sizes_to_come{runner="prefill"}') == 0


def main():
    core = ["--piecewise-cuda-graph-max-tokens", "32", "--cuda-graph-capture", "core", "--context-length", "256"]
    with Served(sys.argv[1], FLAGS) as server, Served(sys.argv[1], core) as late:
        passed, failed = run_cases(Cases(server, late))
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
