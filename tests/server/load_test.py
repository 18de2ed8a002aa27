#!/usr/bin/env python3
"""Many clients at once: tests/server/load_test.py TESSERA [--clients N] [--requests N] [--wrk SECONDS]

Catches: answers that depend on other requests, clients that disturb others by leaving, threads, descriptors and memory
that are not released, and slow work on an I/O thread.

Sends many streams of mixed sizes, cuts a tenth of them off midway, and compares the answers with those to the same
requests sent alone (deterministic mode, greedy). Then sends many short requests, and compares the resident memory after a
tenth of them and at the end. With --wrk, also measures the latency of /health meanwhile. Prints the measurements; the
last line is "N passed, N failed"."""

import argparse
import asyncio
import random
import re
import shutil
import subprocess
import sys
import time

from served import Served

OPENINGS = [
    "Once upon a time", "The little fox", "Tom and Lily", "One day a bird", "In the garden there was a tree",
    "The cat saw the dog", "Mia had a red ball", "It was a sunny day and the children",
]


class Checks:
    def __init__(self):
        self.passed = self.failed = 0

    def check(self, what, good):
        print(f"{'ok' if good else 'FAILED'}: {what}", flush=True)
        self.passed += good
        self.failed += not good


def make_requests(count, longest):
    """Makes distinct requests of mixed prompt and output lengths; some share beginnings."""
    made = []
    draw = random.Random(7)
    for i in range(count):
        words = [draw.choice(OPENINGS) for _ in range(draw.choice([1, 1, 2, 5, 12]))]
        made.append({"prompt": ". ".join(words), "temperature": 0, "ignore_eos": True,
                     "max_tokens": draw.randint(4, longest)})
    return made


def text_of(events):
    return "".join(choice["text"] for event in events for choice in event["choices"])


async def at_once(server, requests, clients):
    """Runs one stream for each client; every tenth leaves midway. Returns texts by client, None for those that left."""
    async def client(i):
        leave = 1 + i % 5 if i % 10 == 9 else None
        events = await server.stream("/v1/completions", requests[i % len(requests)], leave)
        return None if events is None else text_of(events)

    return await asyncio.gather(*(client(i) for i in range(clients)), return_exceptions=True)


async def many(server, count, at_a_time):
    left = iter(range(count))

    async def client():
        for i in left:
            body = {"prompt": OPENINGS[i % len(OPENINGS)], "temperature": 0.8, "seed": i, "max_tokens": 1 + i % 8}
            await server.stream("/v1/completions", body)

    await asyncio.gather(*(client() for _ in range(at_a_time)))


def settled(server):
    """Returns threads and descriptors after the last connections are closed: the minimum over half a second."""
    seen = []
    for _ in range(5):
        time.sleep(0.1)
        seen.append((server.threads(), server.descriptors()))
    return min(seen)


def wait_until_idle(server, threads, descriptors):
    for _ in range(100):
        if server.threads() <= threads and server.descriptors() == descriptors:
            break
        time.sleep(0.1)
    return server.threads(), server.descriptors()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("tessera")
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--requests", type=int, default=600)
    parser.add_argument("--longest", type=int, default=48, help="most tokens of a streamed answer")
    parser.add_argument("--wrk", type=int, default=0, help="seconds of wrk on /health during the load")
    options = parser.parse_args()
    checks = Checks()

    # AddressSanitizer keeps up to 256 MiB of freed memory by default.
    environment = {"ASAN_OPTIONS": "quarantine_size_mb=4"}
    flags = ["--enable-deterministic-inference", "--log-level", "warn"]
    with Served(options.tessera, flags, environment=environment) as server:
        requests = make_requests(32, options.longest)
        alone = [text_of(asyncio.run(server.stream("/v1/completions", r))) for r in requests]
        server.request("POST", "/flush_cache")
        threads, descriptors = settled(server)

        wrk = None
        if options.wrk and shutil.which("wrk"):
            wrk = subprocess.Popen(["wrk", "-t1", "-c4", f"-d{options.wrk}s", "--latency",
                                    f"http://127.0.0.1:{server.port}/health"], stdout=subprocess.PIPE, text=True)
        start = time.time()
        rounds = 0
        texts = []
        while not rounds or (wrk is not None and wrk.poll() is None):
            rounds += 1
            texts += asyncio.run(at_once(server, requests, options.clients))
        seconds = time.time() - start
        errors = [t for t in texts if isinstance(t, BaseException)]
        wrong = [i for i, t in enumerate(texts)
                 if isinstance(t, str) and t != alone[i % options.clients % len(requests)]]
        finished = sum(isinstance(t, str) for t in texts)
        print(f"{options.clients} clients at once, {rounds} rounds in {seconds:.1f} s: {finished} finished, "
              f"{sum(t is None for t in texts)} left")
        checks.check(f"no stream fails {errors[:1]}", not errors)
        checks.check(f"all texts are those of the requests alone (differing: {len(wrong)})", not wrong)
        if wrk is not None:
            report = wrk.communicate()[0]
            print(report)
            value, unit = re.search(r"99%\s+([\d.]+)(us|ms|s)", report).groups()
            p99 = float(value) * {"us": 1e-3, "ms": 1, "s": 1e3}[unit]
            checks.check(f"/health answers within 50 ms at p99 under load: {p99:.2f} ms", p99 < 50)

        now = wait_until_idle(server, threads, descriptors)
        # Accepts fewer threads, because a library may end pool threads that it no longer needs.
        checks.check(f"threads and descriptors at idle: {now}, before {(threads, descriptors)}",
                     now[0] <= threads and now[1] == descriptors)

        first = max(options.requests // 10, 1)
        asyncio.run(many(server, first, 32))
        after_first = server.resident_mib()
        asyncio.run(many(server, options.requests - first, 32))
        after_all = server.resident_mib()
        checks.check(f"resident MiB after {first} requests {after_first:.1f}, after {options.requests} {after_all:.1f}",
                     after_all <= after_first + 16)
        now = wait_until_idle(server, threads, descriptors)
        checks.check(f"threads and descriptors at the end: {now}", now[0] <= threads and now[1] == descriptors)
        _, metrics = server.get("/metrics")
        running = re.search(r"^sglang:num_running_reqs(?:\{[^}]*\})? (\S+)", metrics, re.MULTILINE)
        checks.check("no request is left running", running is not None and float(running.group(1)) == 0)
    print(f"{checks.passed} passed, {checks.failed} failed")
    return 1 if checks.failed else 0


if __name__ == "__main__":
    sys.exit(main())
