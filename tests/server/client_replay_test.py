#!/usr/bin/env python3
"""Replays recorded requests of real clients: tests/server/client_replay_test.py TESSERA

Catches: requests of langchain, openai-agents and others that are refused, and answers without the fields and types that
they read. The exchanges were recorded by tools/clients_test.sh --record. The last line is "N passed, N failed"."""

import json
import sys

from openai_test import shape_of_body
from served import ROOT, Served

RECORD = ROOT / "tests" / "data" / "server" / "client_exchanges.json"
KEY = "a-key"


def lacking(recorded, seen, place="answer"):
    """Returns which recorded fields the answer lacks; "" if none. Additional fields are accepted."""
    if isinstance(recorded, dict) and isinstance(seen, dict):
        for key, shape in recorded.items():
            if key not in seen:
                return f"{place} has no \"{key}\""
            if found := lacking(shape, seen[key], f"{place}.{key}"):
                return found
        return ""
    if isinstance(recorded, list) and isinstance(seen, list):
        for shape in recorded:
            found = [lacking(shape, item, f"{place}[]") for item in seen] or [f"{place} is empty"]
            if all(found):
                return found[0]
        return ""
    return "" if recorded == seen else f"{place} is {json.dumps(seen)[:300]}, recorded was {json.dumps(recorded)[:300]}"


def main():
    passed = failed = 0
    with Served(sys.argv[1], ["--api-key", KEY, "--served-model-name", "demo", "--enable-deterministic-inference"]) as server:
        for exchange in json.loads(RECORD.read_text()):
            headers = {**exchange["headers"], "Authorization": f"Bearer {KEY}"}
            body = json.dumps(exchange["body"]) if exchange["body"] is not None else None
            status, _, data = server.request(exchange["method"], exchange["path"], body, headers)
            wrong = (f"status {status}, recorded was {exchange['status']}: {data.decode()[:300]}"
                     if status != exchange["status"] else lacking(exchange["answer"], shape_of_body(data)))
            passed += not wrong
            failed += bool(wrong)
            if wrong:
                print(f"FAILED: {exchange['client']}: {exchange['path']} {json.dumps(exchange['body'])[:300]}: {wrong}")
    print(f"{passed} passed, {failed} failed")
    return 1 if failed or not passed else 0


if __name__ == "__main__":
    sys.exit(main())
