#!/usr/bin/env python3
"""A server on two ranks: tests/server/ranks_test.py TESSERA

Catches: answers that differ from those of one rank, streams that do not end, metrics without ranks, and a rank's thread
that keeps the server from ending.

The last line is "N passed, N failed"."""

import asyncio
import json
import re
import sys

from served import Served, run_cases

FLAGS = ["--piecewise-cuda-graph-tokens", "16,64", "--cuda-graph-bs", "1,4", "--context-length", "256", "--dtype", "float32",
         "--max-running-requests", "8"]
ASK = {"messages": [{"role": "user", "content": "Tell me a story."}], "max_tokens": 16, "temperature": 0, "ignore_eos": True}


class Cases:
    def __init__(self, one, two):
        self.one, self.two = one, two

    def answers_are_those_of_one_rank(self):
        for prompt in ("Once", "Once upon a time there was a dog", "Once " * 40):
            ask = {"text": prompt, "sampling_params": {"max_new_tokens": 16, "temperature": 0, "ignore_eos": True},
                   "return_logprob": True}
            (status, one), (_, two) = self.one.post("/generate", ask), self.two.post("/generate", ask)
            assert status == 200 and one["text"] == two["text"], (one["text"], two["text"])

    def streams_together(self):
        async def ask_all():
            return await asyncio.gather(*(self.two.stream("/v1/chat/completions", ASK) for _ in range(6)))

        texts = {"".join(event["choices"][0]["delta"].get("content") or "" for event in events)
                 for events in asyncio.run(ask_all())}
        assert len(texts) == 1 and texts.pop(), texts

    def the_client_that_leaves(self):
        assert asyncio.run(self.two.stream("/v1/chat/completions", {**ASK, "max_tokens": 200}, leave_after=3)) is None
        status, body = self.two.post("/v1/chat/completions", ASK)
        assert status == 200 and body["usage"]["completion_tokens"] == 16, body

    def metrics_tell_of_ranks(self):
        _, text = self.two.get("/metrics")
        assert re.search(r"^tessera:tp_ranks 2$", text, re.MULTILINE), text
        weights = [float(n) for n in re.findall(r'^tessera:(?:rank_)?memory_bytes\{(?:rank="1",)?kind="weights"\} (\S+)$', text,
                                                re.MULTILINE)]
        assert len(weights) == 2 and weights[0] == weights[1] > 0, weights
        assert json.loads(self.two.get("/get_server_info")[1])["options"]["tp_size"] == 2
        assert re.search(r"^tessera:tp_ranks 1$", self.one.get("/metrics")[1], re.MULTILINE)


def main():
    with Served(sys.argv[1], FLAGS) as one, Served(sys.argv[1], [*FLAGS, "--tp-size", "2"]) as two:
        passed, failed = run_cases(Cases(one, two))
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
