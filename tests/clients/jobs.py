"""Helpers of this folder's scripts: the server's address, and running and counting their jobs."""

import os
import sys
import traceback

URL = os.environ["TESSERA_URL"]
API = URL + "/v1"
KEY = os.environ["TESSERA_KEY"]
NAME = "demo"
WORDS = "Tell me about foxes."
LONG = "word " * 6000
NOTE = "X-Tessera-Note"


class Skipped(Exception):
    """Raised with the reason if a job cannot be done here."""


def check(what, seen=""):
    if not what:
        raise AssertionError(seen)


def fails_with(kind, work):
    """Returns the exception of this class with which `work` ends."""
    try:
        work()
    except kind as error:
        return error
    raise AssertionError(f"no {kind.__name__} was raised")


def main(*jobs):
    """Runs the jobs and prints a line for each: "ok: NAME", "skipped: NAME: why" or "FAILED: NAME: why"."""
    failed = 0
    for job in jobs:
        name = job.__name__
        try:
            job()
            print(f"ok: {name}", flush=True)
        except Skipped as reason:
            print(f"skipped: {name}: {reason}", flush=True)
        except Exception as error:  # pylint: disable=broad-except  (any exception of a client is the result)
            failed += 1
            place = traceback.extract_tb(error.__traceback__)[-1]
            text = " ".join(str(error).split())[:600]
            print(f"FAILED: {name}: {type(error).__name__}: {text} ({place.filename}:{place.lineno})", flush=True)
    sys.exit(1 if failed else 0)
