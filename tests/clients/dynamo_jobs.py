"""dynamo: NVIDIA's frontend in front of two workers that hold the engine (examples/dynamo_worker), with its KV router."""

import json
import os
import pathlib
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
import zipfile

from jobs import API, KEY, NAME, Skipped, check, end_process, main

ROOT = pathlib.Path(__file__).resolve().parents[2]
WORK = pathlib.Path(os.environ["TESSERA_WORK"]) / "dynamo"
TEMPORARY = WORK / "tmp"
BUILD = pathlib.Path(os.environ["TESSERA_PROGRAM"]).parent
MODEL = ROOT / "models" / "demo"
OPTIONS = {"device": "cpu", "page_size": 16, "max_total_tokens": 16384, "enable_deterministic_inference": True}
FORM = {"type": "json_schema", "json_schema": {"name": "a", "schema": {
    "type": "object", "properties": {"a": {"enum": ["x", "y"]}}, "required": ["a"], "additionalProperties": False}}}
WAIT_S = 60


def free_port():
    """Returns a free port below 32768, because Dynamo reads DYN_SYSTEM_PORT as a signed number of 16 bits."""
    for port in random.sample(range(20000, 32768), 50):
        with socket.socket() as listening:
            try:
                listening.bind(("127.0.0.1", port))
                return port
            except OSError:
                pass
    raise AssertionError("no port is free")


def eventually(true, what, seconds=WAIT_S):
    end = time.monotonic() + seconds
    while not true():
        check(time.monotonic() < end, f"not within {seconds} s: {what}")
        time.sleep(0.05)


def fetch(url, body=None, key=None):
    """Returns the open answer; raises HTTPError if it is refused."""
    headers = {"Content-Type": "application/json", **({"Authorization": f"Bearer {key}"} if key else {})}
    data = None if body is None else json.dumps(body).encode()
    return urllib.request.urlopen(urllib.request.Request(url, headers=headers, data=data), timeout=WAIT_S)


class Process:
    def __init__(self, name, words, **variables):
        self.log = WORK / f"{name}.log"
        with open(self.log, "w", encoding="utf-8") as log:
            self.process = subprocess.Popen(words, stdout=log, stderr=log, env={**os.environ, **variables})

    def end(self):
        if self.process.poll() is None:
            end_process(self.process, WAIT_S)


class Worker(Process):
    def __init__(self, name):
        port = free_port()
        self.url = f"http://127.0.0.1:{port}"
        super().__init__(name, [
            sys.executable, str(ROOT / "examples/dynamo_worker/worker.py"), "--model-path", str(MODEL), "--served-model-name", NAME,
            "--engine-options", json.dumps(OPTIONS)], DYN_SYSTEM_PORT=str(port))

    def metrics(self):
        with fetch(self.url + "/metrics") as answer:
            return answer.read().decode()

    def number(self, name):
        found = re.search(rf"^tessera:{name}\S* (\S+)", self.metrics(), re.MULTILINE)
        check(found, f"tessera:{name} is missing")
        return float(found[1])

    def is_ready(self):
        check(self.process.poll() is None, "a worker has ended")
        try:
            return "tessera:running_requests" in self.metrics()
        except OSError:
            return False


class Dynamo:
    def __enter__(self):
        self.url = f"http://127.0.0.1:{free_port()}"
        self.processes = [Process("frontend", [
            sys.executable, "-m", "dynamo.frontend", "--http-host", "127.0.0.1", "--http-port", self.url.rsplit(":", 1)[1],
            "--router-mode", "kv", "--migration-limit", "3"])]
        self.workers = [Worker("worker1"), Worker("worker2")]
        self.processes += self.workers
        try:
            eventually(lambda: all(worker.is_ready() for worker in self.workers), "both workers serve", 120)
            eventually(self.lists_the_model, "the frontend lists the model")
            eventually(lambda: (WORK / "frontend.log").read_text().count("Adding worker") >= 2, "the router has both workers")
        except BaseException as error:
            self.__exit__()
            said = "; ".join(process.log.read_text()[-600:] for process in self.processes)
            raise AssertionError(f"{error}: {said}") from None
        return self

    def __exit__(self, *_):
        for process in reversed(self.processes):
            process.end()

    def lists_the_model(self):
        try:
            with fetch(self.url + "/v1/models") as answer:
                return [model["id"] for model in json.load(answer)["data"]] == [NAME]
        except OSError:
            return False

    def ask(self, path, **body):
        with fetch(self.url + "/v1/" + path, {"model": NAME, **body}) as answer:
            return json.load(answer)

    def complete(self, **body):
        return self.ask("completions", **{"prompt": "Once upon a time", "temperature": 0, "max_tokens": 12, **body})

    def refused(self, **body):
        """Returns (status, message) of a completion that is refused."""
        try:
            return 200, self.complete(**body)
        except urllib.error.HTTPError as error:
            return error.code, json.load(error)["message"]

    def stream(self, tokens):
        """Begins a long stream. Returns the open answer after its first chunks, and the worker that has the request."""
        answer = fetch(self.url + "/v1/completions", {"model": NAME, "prompt": "Once", "max_tokens": tokens, "ignore_eos": True,
                                                      "stream": True, "temperature": 0})
        for _ in range(6):
            answer.readline()
        return answer, next(worker for worker in self.workers
                            if worker.process.poll() is None and worker.number("running_requests") > 0)


def own(path, **body):
    """Returns the answer of tessera serve to the same request."""
    with fetch(f"{API}/{path}", {"model": NAME, **body}, KEY) as answer:
        return json.load(answer)


def text_of(stream):
    """Returns the text of a completion's stream, and its last finish reason."""
    check(stream.rstrip().endswith("data: [DONE]"), stream[-300:])
    chunks = [json.loads(line[6:]) for line in stream.splitlines() if line.startswith("data: {")]
    check(all("error" not in chunk for chunk in chunks), stream[-300:])
    choices = [choice for chunk in chunks for choice in chunk["choices"]]
    return "".join(choice["text"] for choice in choices), choices[-1]["finish_reason"]


def completion():
    answer = DYNAMO.complete()
    expected = own("completions", prompt="Once upon a time", temperature=0, max_tokens=12)
    check(answer["choices"][0]["text"] == expected["choices"][0]["text"], answer)
    check(answer["choices"][0]["finish_reason"] == "length", answer)
    check(answer["usage"]["prompt_tokens"] == expected["usage"]["prompt_tokens"], answer)
    check(answer["usage"]["completion_tokens"] == 12, answer)


def chat_in_a_stream():
    words = {"messages": [{"role": "user", "content": "Tell me a story."}], "max_tokens": 24, "temperature": 0}
    with fetch(DYNAMO.url + "/v1/chat/completions", {"model": NAME, **words, "stream": True,
                                                     "stream_options": {"include_usage": True}}) as answer:
        lines = [line for line in answer.read().decode().splitlines() if line.startswith("data: ")]
    check(lines[-1] == "data: [DONE]", lines[-1])
    chunks = [json.loads(line[6:]) for line in lines[:-1]]
    text = "".join(choice["delta"].get("content") or "" for chunk in chunks for choice in chunk["choices"])
    expected = own("chat/completions", **words)
    check(text == expected["choices"][0]["message"]["content"], text)
    check(len(chunks) > 10, f"{len(chunks)} chunks")
    check(chunks[-1]["usage"]["completion_tokens"] == expected["usage"]["completion_tokens"], chunks[-1])


def an_end_of_its_own_is_stop():
    answer = DYNAMO.complete(max_tokens=400)
    check(answer["choices"][0]["finish_reason"] == "stop" and answer["usage"]["completion_tokens"] < 400, answer)
    check("<|" not in answer["choices"][0]["text"], answer)


def texts_and_ids_stop():
    text = DYNAMO.complete()["choices"][0]["text"]
    word = re.findall(r" [a-z]+", text)[2]
    for body in ({"stop": [word]}, {"stop_token_ids": [own_id(word)]}):
        choice = DYNAMO.complete(**body)["choices"][0]
        check(choice["finish_reason"] == "stop" and choice["text"] == text[:text.index(word)], f"{body} {choice} of {text!r}")


def own_id(word):
    with fetch(API[:-3] + "/tokenize", {"model": NAME, "prompt": word, "add_special_tokens": False}, KEY) as answer:
        ids = json.load(answer)["tokens"]
    check(len(ids) == 1, f"{word!r} has the ids {ids}")
    return ids[0]


def logprobs():
    told = DYNAMO.complete(logprobs=2, max_tokens=4)["choices"][0]["logprobs"]
    expected = own("completions", prompt="Once upon a time", temperature=0, max_tokens=4, logprobs=2)["choices"][0]["logprobs"]
    check(told["tokens"] == expected["tokens"], told)
    check(all(abs(a - b) < 1e-4 for a, b in zip(told["token_logprobs"], expected["token_logprobs"])), told)
    check([set(top) for top in told["top_logprobs"]] == [set(top) for top in expected["top_logprobs"]], told)


def a_schema_constrains():
    answer = DYNAMO.ask("chat/completions", messages=[{"role": "user", "content": "Hi"}], max_tokens=30, response_format=FORM)
    check(json.loads(answer["choices"][0]["message"]["content"])["a"] in ("x", "y"), answer)


def what_is_not_done_is_refused():
    for body, words in (({"n": 2, "temperature": 1}, "n: 2 is not accepted"), ({"best_of": 2}, "best_of"),
                        ({"echo": True}, "prompt_logprobs"), ({"min_tokens": 20}, "min_tokens"),
                        ({"prompt": [1] * 5000}, "context length")):
        status, message = DYNAMO.refused(**body)
        check(status == 400 and words in message, f"{words}: {status} {message}")


def a_client_that_leaves_cancels():
    answer, worker = DYNAMO.stream(3500)
    made = worker.number("output_tokens")
    answer.close()
    eventually(lambda: worker.number("running_requests") == 0, "the request is cancelled", 5)
    check(worker.number("output_tokens") - made < 2000, "it ran on")


def prompts_return_to_the_worker_that_has_them():
    """Without events the router would send about half of the prompts to the other worker."""
    def cached():
        counts = []
        for prompt in range(8):
            usage = DYNAMO.complete(prompt=" ".join(f"p{prompt}q{i}" for i in range(40)), max_tokens=2)["usage"]
            counts.append((usage["prompt_tokens_details"]["cached_tokens"], usage["prompt_tokens"]))
        return counts

    check(all(hit < total / 2 for hit, total in cached()), "the prompts are not new")
    check(all(worker.number("prompt_tokens") > 0 for worker in DYNAMO.workers), "one worker got all requests")
    time.sleep(1)  # events take a moment
    again = cached()
    check(all(hit > total - 32 for hit, total in again), again)


def metrics_are_dynamos():
    told = DYNAMO.workers[0].metrics()
    blocks = re.search(r"^dynamo_component_total_blocks\S* (\S+)", told, re.MULTILINE)
    check(blocks and float(blocks[1]) == OPTIONS["max_total_tokens"] / OPTIONS["page_size"], blocks)
    check(re.search(r'^tessera:output_tokens_total\{.*model_name="demo"', told, re.MULTILINE), told[-600:])


def a_lost_workers_requests_continue():
    answer, worker = DYNAMO.stream(1500)
    worker.process.send_signal(signal.SIGKILL)
    text, reason = text_of("data: {\"choices\": []}\n" + answer.read().decode())
    check(reason == "length", f"{reason}: {text[-200:]}")


def a_worker_that_ends_lets_requests_end():
    eventually(lambda: DYNAMO.refused(max_tokens=1)[0] == 200, "the other worker serves")
    answer, worker = DYNAMO.stream(3500)
    folders = len(list(TEMPORARY.glob("tessera-dynamo-*")))
    worker.process.terminate()
    _, reason = text_of(answer.read().decode())
    check(reason == "length", reason)
    check(worker.process.wait(WAIT_S) == 0, worker.log.read_text()[-500:])
    check(len(list(TEMPORARY.glob("tessera-dynamo-*"))) == folders - 1, "the folder of its socket is left")


def add_the_wheel():
    """Makes the Python package of this build importable for the workers."""
    if not (BUILD / "libtessera.so.1").exists() or shutil.which("patchelf") is None:
        raise Skipped("the wheel needs a build with libtessera.so, and patchelf")
    subprocess.run([sys.executable, str(ROOT / "tools/make_wheel.py"), str(BUILD), str(WORK)], check=True, capture_output=True)
    with zipfile.ZipFile(next(WORK.glob("tessera_engine-*.whl"))) as wheel:
        wheel.extractall(WORK / "packages")


TEMPORARY.mkdir(parents=True)
os.environ.update(PYTHONPATH=str(WORK / "packages"), DYN_FILE_KV=str(WORK / "discovery"), DYN_DISCOVERY_BACKEND="file",
                  DYN_REQUEST_PLANE="tcp", DYN_EVENT_PLANE="zmq", TMPDIR=str(TEMPORARY))
try:
    add_the_wheel()
except Skipped as reason:
    print(f"skipped: all: {reason}")
    sys.exit()
with Dynamo() as DYNAMO:
    main(completion, chat_in_a_stream, an_end_of_its_own_is_stop, texts_and_ids_stop, logprobs, a_schema_constrains,
         what_is_not_done_is_refused, a_client_that_leaves_cancels, prompts_return_to_the_worker_that_has_them,
         metrics_are_dynamos, a_lost_workers_requests_continue, a_worker_that_ends_lets_requests_end)
