#!/usr/bin/env python3
"""Measures the memory that clients make a server hold: tests/server/memory_test.py TESSERA [--budget BYTES|none]

Catches: bodies that are buffered before route and key are checked, inflated bodies, parsed JSON, embeddings and results
that no limit counts, and memory that remains after the last client has left.

Each case has a server of its own with a small budget. It checks the greatest resident memory during the case, and that the
memory is back at its former size within five seconds. --budget none leaves the flag out. Prints the measurements; the last
line is "N passed, N failed"."""

import argparse
import concurrent.futures
import gzip
import http.client
import json
import pathlib
import re
import socket
import time

from served import Served, run_cases

MIB = 1 << 20
BUDGET_MIB = 256
SLACK_MIB = 48  # threads, socket buffers, and the memory of a forward beside the requests
KEY = "a-key"
COUNT = 400  # prompts of 350 tokens: half a megabyte of ids


def peak_mib(server):
    status = pathlib.Path(f"/proc/{server.process.pid}/status").read_text()
    return int(re.search(r"VmHWM:\s+(\d+) kB", status).group(1)) / 1024


def status_of(server, path, body, headers=()):
    """Returns the status of a POST; reads the answer and drops it."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
    try:
        connection.request("POST", path, body, {"Content-Type": "application/json", **dict(headers)})
        response = connection.getresponse()
        while response.read(MIB):
            pass
        return response.status, response.headers
    finally:
        connection.close()


def send_without_key(server, method, path, size):
    """Sends a request's header and up to `size` bytes of body. Returns the status line and the number of bytes accepted."""
    with socket.create_connection(("127.0.0.1", server.port), timeout=20) as connection:
        head = f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {size}\r\n\r\n"
        connection.sendall(head.encode())
        sent = 0
        try:
            while sent < size:
                sent += connection.send(b" " * min(MIB, size - sent))
        except (BrokenPipeError, ConnectionResetError):
            pass
        try:
            return connection.recv(64).split(b"\r\n")[0].decode(), sent
        except ConnectionResetError:
            return "reset", sent


def together(count, work):
    with concurrent.futures.ThreadPoolExecutor(count) as pool:
        return list(pool.map(lambda _: work(), range(count)))


class Cases:
    def __init__(self, tessera, budget):
        self.tessera = tessera
        self.budget = budget

    def _served(self, flags=()):
        budget = [] if self.budget is None else ["--request-memory-budget", str(self.budget)]
        return Served(self.tessera, [*budget, "--served-model-name", "demo", "--max-running-requests", "16", "--max-total-tokens",
                                     "8192", *flags])

    def _measure(self, name, work, flags=(), most_mib=BUDGET_MIB + SLACK_MIB, headers=()):
        """Runs work(server), asserts the memory that it took, and returns its result."""
        with self._served(flags) as server:
            # The first requests take memory for good, such as pages of the KV cache, which this case must not count.
            assert status_of(server, "/generate", self._prompts(40), headers)[0] == 200
            time.sleep(1)
            before = server.resident_mib()
            pathlib.Path(f"/proc/{server.process.pid}/clear_refs").write_text("5")
            began = time.monotonic()
            result = work(server)
            took = time.monotonic() - began
            peak = peak_mib(server)
            idle = time.monotonic()
            while (after := server.resident_mib()) > 1.2 * before and time.monotonic() < idle + 5:
                time.sleep(0.1)
            print(f"{name}: before {before:.0f} MiB, greatest {peak:.0f}, {time.monotonic() - idle:.1f} s later {after:.0f}; "
                  f"{took:.1f} s", flush=True)
            assert peak <= before + most_mib, f"the greatest resident memory is {peak:.0f} MiB, {peak - before:.0f} above {before:.0f}"
            assert after <= 1.2 * before, f"{after:.0f} MiB are resident after 5 s idle, {before:.0f} were before"
            return result

    def bodies_without_a_key_are_not_held(self):
        path = "/v1/chat/completions"
        answers = self._measure("60 bodies of 31 MiB without a key",
                                lambda server: together(60, lambda: send_without_key(server, "POST", path, 31 * MIB)),
                                flags=["--api-key", KEY], most_mib=SLACK_MIB, headers={"Authorization": f"Bearer {KEY}"})
        refused = [line for line, _ in answers if " 401 " in line]
        assert len(refused) + len([line for line, _ in answers if line == "reset"]) == 60, answers
        assert len(refused) >= 50, answers

    def bodies_of_unknown_routes_are_not_held(self):
        def ask(server):
            return [send_without_key(server, method, path, 31 * MIB)[0]
                    for method, path in [("POST", "/nothing"), ("PUT", "/v1/completions")] for _ in range(6)]
        lines = self._measure("12 bodies of 31 MiB to no route", ask, most_mib=SLACK_MIB)
        assert sum(" 404 " in line for line in lines) >= 4 and sum(" 405 " in line for line in lines) >= 4, lines

    def small_compressed_bodies_are_charged_inflated(self):
        zeros = b"[" + b"0," * 63 + b"0]"
        rows = (31 * MIB - 100) // (len(zeros) + 1)
        body = gzip.compress(b'{"input_embeds": [' + b",".join([zeros] * rows) + b"]}")
        print(f"  {len(body)} bytes on the wire")
        headers = {"Content-Encoding": "gzip"}
        answers = self._measure("30 compressed bodies of embeddings",
                                lambda server: together(30, lambda: status_of(server, "/generate", body, headers)))
        assert all(status in (400, 413, 503) for status, _ in answers), answers
        assert all(headers["Retry-After"] for status, headers in answers if status == 503), answers

    def a_chat_of_a_million_messages_is_charged(self):
        messages = b",".join([b'{"role":"user","content":"a"}'] * 1_000_000)
        body = b'{"model": "demo", "messages": [' + messages + b"]}"
        answers = self._measure("4 chats of 10^6 messages",
                                lambda server: together(4, lambda: status_of(server, "/v1/chat/completions", body)))
        assert all(status in (400, 413, 503) for status, _ in answers), answers

    def long_texts_leave_nothing_behind(self):
        body = json.dumps({"prompt": "once upon a time there was a fox " * (9_000_000 // 33)})
        answers = self._measure("8 texts of 9 MB", lambda server: together(8, lambda: status_of(server, "/tokenize", body)))
        assert all(status in (200, 413, 503) for status, _ in answers), answers

    @staticmethod
    def _prompts(count, **fields):
        ids = [[7 + (i * (p + 1)) % 400 for i in range(350)] for p in range(count)]
        return json.dumps({"input_ids": ids, **fields, "sampling_params": {"max_new_tokens": 1, "ignore_eos": True}})

    def hidden_states_are_charged_and_written_in_pieces(self):
        body = self._prompts(COUNT, return_hidden_states=True)
        answers = self._measure("hidden states of 400 prompts", lambda server: [status_of(server, "/generate", body)])
        assert [status for status, _ in answers] == [200], answers

    def prompt_logprobs_are_charged_and_written_in_pieces(self):
        body = self._prompts(COUNT, return_logprob=True, logprob_start_len=0, top_logprobs_num=20)
        answers = self._measure("20 log-probabilities of 400 prompts", lambda server: [status_of(server, "/generate", body)])
        assert [status for status, _ in answers] == [200], answers

    def a_request_above_the_budget_names_it(self):
        with Served(self.tessera, ["--request-memory-budget", "4M", "--served-model-name", "demo"]) as server:
            status, _, data = server.request("POST", "/v1/completions", b" " * (5 * MIB))
            assert status == 413, (status, data)
            message = json.loads(data)["error"]["message"]
            # A sixteenth of the budget is reserved for small requests.
            assert "--request-memory-budget" in message and "3932160" in message, message
            status, _ = server.post("/v1/completions", {"model": "demo", "prompt": "a", "max_tokens": 1})
            assert status == 200, status
            _, metrics = server.get("/metrics")
            assert "tessera:request_memory_limit_bytes 4194304" in metrics, metrics
            assert re.search(r'tessera:request_memory_refused_total\{status="413"\} 1', metrics), metrics


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("tessera")
    parser.add_argument("--budget", default=f"{BUDGET_MIB}M")
    parser.add_argument("--only", help="the name of one case")
    arguments = parser.parse_args()
    cases = Cases(arguments.tessera, None if arguments.budget == "none" else arguments.budget)
    skipped = [name for name in vars(Cases) if arguments.only and name != arguments.only]
    passed, failed = run_cases(cases, skipped)
    print(f"{passed} passed, {failed} failed")
    raise SystemExit(1 if failed else 0)


if __name__ == "__main__":
    main()
