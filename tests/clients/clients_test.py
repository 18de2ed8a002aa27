#!/usr/bin/env python3
"""Runs real clients against the server: tests/clients/clients_test.py TESSERA FOLDER [--record] [--only NAME …]

Each client is installed from PyPI at the versions of its requirements file, into a virtual environment in FOLDER that
later runs reuse. It does its jobs (NAME_jobs.py) against a server of the bundled model. A client that cannot be
installed is skipped, with the reason. --record stores the clients' requests and the shape of the answers in
tests/data/server/client_exchanges.json, which tests/server/client_replay_test.py sends again. The last line is "N
passed, N failed"; the line before it says how many were skipped."""

import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "server"))
from recorder import Recorder  # noqa: E402
from served import Served  # noqa: E402

KEY = "a-key"
FLAGS = ["--api-key", KEY, "--served-model-name", "demo", "--enable-deterministic-inference"]
# Maps each client to the requirements that it is installed from; None means that it needs none.
CLIENTS = {
    "openai": "openai", "langchain": "openai", "agents": "openai", "instructor": "openai", "pydantic_ai": "openai",
    "litellm": "litellm", "llama_index": "llama_index", "lm_eval": "lm_eval", "locust": "openai",
    "prometheus": "openai", "comply": "openai", "smg": "smg", "smg_pooled": "smg",
    "smg_cache": "smg", "aiperf": "aiperf", "ollama": "ollama", "plain": None,
    "anthropic": "anthropic", "claude_code": "claude_code", "responses": "openai",
    "codex": "codex", "dynamo": "dynamo", "k6": "k6", "schemathesis": "schemathesis",
}
NOT_HERE = {
    "guidellm": "it needs PyTorch",
    "grafana": "dashboards are files: their queries are tested where the dashboards are",
}


def environment(folder, requirements):
    """Returns (the environment's Python or None, the reason)."""
    home = folder / requirements
    python = home / "bin" / "python"
    done = home / "installed.txt"
    pins = (HERE / "requirements" / f"{requirements}.txt").read_text()
    if done.exists() and done.read_text() == pins:
        return python, ""
    try:
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(home)], check=True, capture_output=True, timeout=120)
        subprocess.run([str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps",
                        "--require-hashes", "-r", str(HERE / "requirements" / f"{requirements}.txt")],
                       check=True, capture_output=True, timeout=900)
    except (OSError, subprocess.SubprocessError) as error:
        said = (getattr(error, "stderr", b"") or str(error).encode()).decode(errors="replace").strip()
        return None, said.splitlines()[-1]
    done.write_text(pins)
    return python, ""


class Count:
    def __init__(self):
        self.ok = self.skipped = self.failed = 0

    def take(self, client, text, code):
        """Counts the lines of a client's jobs."""
        lines = [line for line in text.splitlines() if line.startswith(("ok: ", "skipped: ", "FAILED: "))]
        for line in lines:
            word, rest = line.split(": ", 1)
            setattr(self, word.lower(), getattr(self, word.lower()) + 1)
            print(f"{word}: {client}: {rest}", flush=True)
        if code != 0 and not any(line.startswith("FAILED") for line in lines):
            self.failed += 1
            print(f"FAILED: {client}: it ended with {code}: {text[-1500:]}", flush=True)

    def skip(self, client, reason):
        self.skipped += 1
        print(f"skipped: {client}: {reason}", flush=True)


def run_client(python, client, program, url, work):
    variables = {**os.environ, "TESSERA_URL": url, "TESSERA_KEY": KEY, "TESSERA_PROGRAM": str(program),
                 "TESSERA_WORK": str(work), "HOME": str(work),
                 "OPENAI_API_KEY": KEY, "DO_NOT_TRACK": "1", "LITELLM_LOCAL_MODEL_COST_MAP": "True",
                 "HF_HUB_OFFLINE": "1", "PYTHONWARNINGS": "ignore"}
    try:
        result = subprocess.run([str(python), str(HERE / f"{client}_jobs.py")], capture_output=True, text=True, timeout=600,
                                env=variables, cwd=work, check=False)
        return result.stdout + result.stderr, result.returncode
    except subprocess.TimeoutExpired as late:
        return f"{late.stdout}\nit did not end", 1


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("tessera", type=pathlib.Path)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--record", action="store_true")
    parser.add_argument("--only", nargs="+", choices=[*CLIENTS], default=[*CLIENTS])
    options = parser.parse_args()
    count = Count()
    kept = []
    program = options.tessera.resolve()
    with (tempfile.TemporaryDirectory() as work, tempfile.TemporaryDirectory() as files,
          Served(str(program), [*FLAGS, "--file-storage-path", files]) as server):
        for client in options.only:
            requirements = CLIENTS[client]
            python, why_not = environment(options.folder.resolve(), requirements) if requirements else (sys.executable, "")
            if python is None:
                count.skip(client, why_not)
                continue
            with Recorder(server.port) as recorder:
                text, code = run_client(python, client, program, recorder.url if options.record else server.url, work)
            count.take(client, text, code)
            kept += [{"client": client, **exchange} for exchange in recorder.kept]
    for client, reason in NOT_HERE.items():
        if len(options.only) == len(CLIENTS):
            count.skip(client, reason)
    if options.record:
        Recorder.write(kept)
    print(f"{count.skipped} skipped")
    print(f"{count.ok} passed, {count.failed} failed")
    return 1 if count.failed or not count.ok else 0


if __name__ == "__main__":
    sys.exit(main())
