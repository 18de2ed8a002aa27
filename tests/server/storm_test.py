#!/usr/bin/env python3
"""All kinds of heavy clients at once: tests/server/storm_test.py TESSERA [--seconds N] [--budget MIB]

Catches: memory beyond --request-memory-budget, memory that stays after the clients have gone, short chats that wait for heavy
requests, and statuses that no document names.

A server of a small model that reads images has a key and a budget. Clients without the key send bodies of 31 MiB. Clients with the key
send compressed embeddings, long prompts with hidden states or log-probabilities, chats of 10^6 and of 10^5 messages, images, texts of
20 MB and slow schemas. Other clients disconnect in the middle of their body or of the answer, or read nothing. Short chats are sent
meanwhile, as in stall_test.py. The loads begin after 5 s of idleness and end all at once.

Prints the measurements; the last line is "N passed, N failed"."""

import argparse
import gzip
import http.client
import json
import os
import pathlib
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

from memory_test import Cases, MIB, peak_mib
from served import Served
from stall_test import MOST_HEALTH_S, MOST_WAIT_S, WAIT, grammar, make_model, measure, of_images, png, report

KEY = "a-key"
HIDDEN = 64  # values of an embedding of the model
RESET = "reset"  # the server refused a request by its header and closed before the whole body was sent
CHAT = "/v1/chat/completions"
HEAVY = {200, 413, 503}


def exchange(port, address, path, body, headers):
    """Returns (status or RESET, seconds to wait before the next request) of a POST; reads the answer and drops it."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=300, source_address=(address, 0))
    try:
        try:
            connection.request("POST", path, body, {"Content-Type": "application/json", **headers})
        except (BrokenPipeError, ConnectionResetError):
            pass  # the answer came before the body's end
        response = connection.getresponse()
        while response.read(MIB):
            pass
        return response.status, float(response.headers["Retry-After"] or 0)
    except ConnectionResetError:
        return RESET, 0
    finally:
        connection.close()


def leave(port, address, path, body, sent, read, pause):
    """Sends `sent` bytes of a request's body, waits for `read` bytes of the answer, and disconnects after `pause` seconds."""
    with socket.create_connection(("127.0.0.1", port), timeout=300, source_address=(address, 0)) as connection:
        head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nAuthorization: Bearer {KEY}\r\n"
        try:
            connection.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body[:sent])
            if read:
                connection.recv(read)
            time.sleep(pause)
        except (BrokenPipeError, ConnectionResetError):
            return RESET, 0
    return "left", 0


class Kind:
    """Clients of one kind: each of `at_once` threads calls `ask(k)` in a loop, which does exchange() or leave() with request k."""

    def __init__(self, name, at_once, accepted, ask):
        self.name, self.at_once, self.accepted, self.ask = name, at_once, accepted, ask
        self.seen = {}

    def start(self):
        for first in range(self.at_once):
            threading.Thread(target=self._run, args=(first,), daemon=True).start()

    def _run(self, first):
        for k in range(first, 10**9, self.at_once):
            try:
                status, wait = self.ask(k)
            except OSError as error:
                status, wait = repr(error), 1
            self.seen[str(status)] = self.seen.get(str(status), 0) + 1
            time.sleep(max(wait, 0.05))


def prompts(count, **fields):
    return Cases._prompts(count, **fields).encode()  # pylint: disable=protected-access  (its requests are ours)


def chat(messages):
    return b'{"model": "demo", "max_tokens": 1, "messages": [' + b",".join([b'{"role":"user","content":"a"}'] * messages) + b"]}"


def kinds(port):
    key = {"Authorization": f"Bearer {KEY}"}
    row = b"[" + b"0," * (HIDDEN - 1) + b"0]"
    embeddings = b'{"input_embeds": [' + b",".join([row] * (30 * MIB // len(row))) + b"]}"
    short_embeddings = b'{"sampling_params": {"max_new_tokens": 1}, "input_embeds": [' + b",".join([row] * 4000) + b"]}"
    text = json.dumps({"prompt": "Once upon a time " * (20_000_000 // 17)}).encode()
    schemas = [grammar(i).encode() for i in range(50)]  # more than the server keeps
    photo, picture = png(3600, 2700, 9), png(2400, 1800, 5)
    states = prompts(40, return_hidden_states=True)
    logprobs = prompts(40, return_logprob=True, logprob_start_len=0, top_logprobs_num=20)
    stream = json.dumps({"model": "demo", "stream": True, "max_tokens": 64, "ignore_eos": True,
                         "messages": [{"role": "user", "content": "hi"}]}).encode()
    addresses = iter(range(2, 200))

    def asks(name, at_once, accepted, path, bodies, **headers):
        address = f"127.0.0.{next(addresses)}"
        return Kind(name, at_once, accepted, lambda k: exchange(port, address, path, bodies[k % len(bodies)], {**key, **headers}))

    def leaves(name, at_once, path, body, sent=None, read=0, pause=0.0):
        address = f"127.0.0.{next(addresses)}"
        return Kind(name, at_once, {"left", RESET}, lambda _: leave(port, address, path, body, sent, read, pause))

    zipped = {"Content-Encoding": "gzip"}
    return [
        asks("bodies of 31 MiB without the key", 60, {401, RESET}, CHAT, [b" " * (31 * MIB)], Authorization="Bearer none"),
        asks("compressed embeddings, too many", 8, {400, 413, 503}, "/generate", [gzip.compress(embeddings)], **zipped),
        asks("compressed embeddings", 2, HEAVY, "/generate", [gzip.compress(short_embeddings)], **zipped),
        asks("hidden states", 2, HEAVY, "/generate", [states, prompts(400, return_hidden_states=True)]),
        asks("log-probabilities", 2, HEAVY, "/generate",
             [logprobs, prompts(400, return_logprob=True, logprob_start_len=0, top_logprobs_num=20)]),
        asks("chats of 10^6 messages", 4, {400, 413, 503, RESET}, CHAT, [chat(1_000_000)]),
        asks("chats of 10^5 messages", 2, {400, 413, 503, RESET}, CHAT, [chat(100_000)]),
        asks("16 images", 5, HEAVY, "/generate", [of_images([picture] * 16)]),
        *[asks(f"photo {i}", 1, HEAVY, "/generate", [of_images([photo])]) for i in range(8)],
        asks("texts of 20 MB", 6, HEAVY | {RESET}, "/tokenize", [text]),
        asks("schemas", 6, {200, 503}, "/generate", schemas),
        leaves("left in the body", 2, "/tokenize", text, sent=len(text) // 2, pause=1),
        leaves("left after the body", 2, "/tokenize", text, pause=0.2),
        leaves("left in a stream", 4, CHAT, stream, read=400),
        leaves("left in hidden states", 1, "/generate", states, read=1000),
        leaves("read no log-probabilities", 2, "/generate", logprobs, read=1, pause=10)]


def run_loads(port, only):
    """Runs in a process that yields the CPU to the server, since real clients have their own machines. Prints its
    counts at SIGTERM."""
    os.nice(10)
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    loads = [kind for kind in kinds(port) if re.search(only, kind.name)]
    print("ready", flush=True)
    sys.stdin.readline()
    for load in loads:
        load.start()
    signal.sigwait({signal.SIGTERM})
    print(json.dumps([[load.name, sorted(map(str, load.accepted)), load.seen] for load in loads]), flush=True)
    os._exit(0)


def warm(server):
    """Sends first requests. The memory that these keep allocated, such as pages of the KV cache and the tower's buffers,
    must not count as held by clients."""
    key = {"Authorization": f"Bearer {KEY}"}
    for body in (prompts(100), of_images([png(900, 700, 1)]), *[grammar(-i).encode() for i in range(1, 7)]):
        status, _, data = server.request("POST", "/generate", body, key)
        if status != 200:
            raise RuntimeError(f"status {status}: {data[:400]}")


def gauge(metrics, name):
    return float(re.search(rf"^{name}(?:{{[^}}]*}})? (\S+)", metrics, re.MULTILINE).group(1))


def storm(server, seconds, only):
    """Loads `server` for `seconds`. Returns the measurements by name, the probes, and the counts of the loads."""
    warm(server)
    loads = subprocess.Popen([sys.executable, __file__, "-", "--loads", str(server.port), "--only", only],
                             stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    loads.stdout.readline()
    time.sleep(5)
    idle, threads, descriptors = server.resident_mib(), server.threads(), server.descriptors()
    pathlib.Path(f"/proc/{server.process.pid}/clear_refs").write_text("5")
    loads.stdin.write("begin\n")
    loads.stdin.flush()
    try:
        probes = measure(server.port, seconds, KEY)
    finally:
        loads.terminate()
        seen = json.loads(loads.communicate()[0])
    peak = peak_mib(server)
    time.sleep(5)
    after, threads_after, descriptors_after = server.resident_mib(), server.threads(), server.descriptors()
    metrics = server.request("GET", "/metrics", headers={"Authorization": f"Bearer {KEY}"})[2].decode()
    return {"idle": idle, "peak": peak, "after": after, "threads": (threads, threads_after),
            "descriptors": (descriptors, descriptors_after), "charged": gauge(metrics, "tessera:request_memory_bytes"),
            "running": gauge(metrics, "sglang:num_running_reqs")}, probes, seen


def run(options):
    """Returns whether each check holds, by name."""
    with tempfile.TemporaryDirectory() as folder:
        flags = ["--log-level", "warn", "--served-model-name", "demo", "--context-length", "8192", "--device", "cpu",
                 "--max-total-tokens", "32768", "--api-key", KEY, "--request-memory-budget", f"{options.budget}M"]
        with Served(options.tessera, flags, make_model(options.tessera, folder)) as server:
            found, probes, loads = storm(server, options.seconds, options.only)
    for name, _, seen in loads:
        print(f"{name}: {seen}")
    for name, probe in probes.items():
        print(f"{name}: {probe.summary()}")
    print(f"resident MiB: idle {found['idle']:.0f}, greatest {found['peak']:.0f}, 5 s after {found['after']:.0f}; "
          f"budget {options.budget}; {options.seconds} s")
    most = 1.5 * found["idle"] + options.budget
    # Compiled grammars stay in a cache. It may take a sixteenth of the budget in addition to the budget
    # (request_memory.h).
    most_after = 1.2 * found["idle"] + options.budget / 16
    return {
        f"at most {most:.0f} MiB are resident": found["peak"] <= most,
        f"5 s after at most {most_after:.0f} MiB are": found["after"] <= most_after,
        WAIT: probes["prepared chats"].share(0.99) <= MOST_WAIT_S,
        f"no health check takes more than {MOST_HEALTH_S} s": probes["health checks"].share(1) <= MOST_HEALTH_S,
        "all short requests get their status": not any(probe.wrong for probe in probes.values()),
        "all heavy requests get a status of theirs": all(seen.keys() <= set(accepted) for _, accepted, seen in loads),
        "each kind is answered": all(seen.keys() - {RESET} for _, _, seen in loads),
        f"nothing is held or running after ({found['charged']:.0f} bytes, {found['running']:.0f} requests)":
            found["charged"] == found["running"] == 0,
        f"threads and descriptors are those of before: {found['threads']}, {found['descriptors']}":
            found["threads"][1] <= found["threads"][0] and found["descriptors"][1] <= found["descriptors"][0]}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("tessera")
    parser.add_argument("--seconds", type=int, default=40)
    parser.add_argument("--budget", type=int, default=512, help="MiB that requests may hold")
    parser.add_argument("--only", default="", help="clients whose kind this regular expression finds")
    parser.add_argument("--loads", type=int, default=0, help="the port to load; this script starts itself with it")
    options = parser.parse_args()
    if options.loads:
        run_loads(options.loads, options.only)
    return report(lambda: run(options))


if __name__ == "__main__":
    sys.exit(main())
