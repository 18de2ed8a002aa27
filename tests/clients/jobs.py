"""Helpers of this folder's scripts: the server's address and counters, and running and counting their jobs."""

import json
import os
import pathlib
import re
import subprocess
import sys
import traceback
import urllib.error
import urllib.request

URL = os.environ["TESSERA_URL"]
API = URL + "/v1"
KEY = os.environ["TESSERA_KEY"]
NAME = "demo"
WORDS = "Tell me about foxes."
LONG = "word " * 6000
NOTE = "X-Tessera-Note"
MODEL = pathlib.Path(__file__).resolve().parents[2] / "models" / "demo"


class Skipped(Exception):
    """Raised with the reason if a job cannot be done here."""


def check(what, seen=""):
    if not what:
        raise AssertionError(seen)


def fails_with(kind, work):
    """Returns the exception with which `work` ends, which must have the class `kind`."""
    try:
        work()
    except kind as error:
        return error
    raise AssertionError(f"no {kind.__name__} was raised")


def ask(url, body=None, method=None, headers=None):
    """Returns (status, body). A body in JSON is parsed; any other body, such as a stream's, is text."""
    request = urllib.request.Request(url, None if body is None else json.dumps(body).encode(), method=method,
                                     headers={"Authorization": f"Bearer {KEY}", "Content-Type": "application/json",
                                              **(headers or {})})
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            status, text = answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        status, text = error.code, error.read().decode()
    try:
        return status, json.loads(text)
    except ValueError:
        return status, text


def end_process(process, seconds):
    """Asks a process to end, and kills it if it still runs after `seconds`."""
    process.terminate()
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def counted(url, name):
    """Returns a counter of a server's metrics, such as "num_requests_total"."""
    return int(re.search(rf"^sglang:{name}\S* (\d+)", ask(url + "/metrics")[1], re.MULTILINE).group(1))


def counts():
    """Returns how many requests, prompt tokens and generated tokens the server has counted."""
    return [counted(URL, name) for name in ("num_requests_total", "prompt_tokens_total", "generation_tokens_total")]


def main(*jobs):
    """Runs the jobs and prints a line for each: "ok: NAME", "skipped: NAME: why" or "FAILED: NAME: why". A job may return
    what it measured, which is added to its line."""
    failed = 0
    for job in jobs:
        name = job.__name__
        try:
            measured = job()
            print(f"ok: {name}" + (f": {measured}" if measured else ""), flush=True)
        except Skipped as reason:
            print(f"skipped: {name}: {reason}", flush=True)
        except Exception as error:  # pylint: disable=broad-except  (any exception of a client is the result)
            failed += 1
            place = traceback.extract_tb(error.__traceback__)[-1]
            text = " ".join(str(error).split())[:600]
            print(f"FAILED: {name}: {type(error).__name__}: {text} ({place.filename}:{place.lineno})", flush=True)
    sys.exit(1 if failed else 0)
