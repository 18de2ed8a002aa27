"""Codex, from a wheel, in a session with tools. The model follows a script: each turn thinks, says something and calls a
function; one function is in a namespace of tools. Program and server run in a network namespace of their own."""

import json
import os
import pathlib
import re
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "server"))
import codex_cli_bin  # noqa: E402
import own_network  # noqa: E402
from jobs import KEY, Skipped, check, main  # noqa: E402
from scripted_model import write_model  # noqa: E402
from served import Served  # noqa: E402

PROGRAM = pathlib.Path(codex_cli_bin.__file__).parent / "bin" / "codex"
WORK = pathlib.Path(os.environ["TESSERA_WORK"]) / "codex"
TURNS = 20
IN_NAMESPACE = 7  # the turn that calls a function within a namespace
CONFIG = """model = "demo"
model_provider = "tessera"
[model_providers.tessera]
name = "tessera"
base_url = "URL/v1"
wire_api = "responses"
env_key = "OPENAI_API_KEY"
"""


def step(number):
    """A turn with a call. Every fifth command fails."""
    thought = f"<think>\nPart {number} comes next.\n</think>\n\n"
    if number == IN_NAMESPACE:
        return [thought, "I look for a helper.", "\n<tool_call>\n{\"name\": \"multi_agent_v1__close_agent\", \"arguments\": ",
                "{\"target\": \"nobody\"}}\n</tool_call>"]
    status = 1 if number % 5 == 0 else 0
    return [thought, f"I write part {number}.",
            f"\n<tool_call>\n{{\"name\": \"exec_command\", \"arguments\": {{\"cmd\": \"echo part {number} >> parts.txt; ",
            f"exit {status}\", \"login\": false, \"max_output_tokens\": {1000 + number}}}}}\n</tool_call>"]


SCRIPT = [*(step(number) for number in range(1, TURNS + 1)),
          ["<think>\nNothing is left.\n</think>\n\n", "All parts are written."]]


def run_codex(url):
    """Runs Codex and returns its events."""
    home = WORK / "home"
    home.mkdir(parents=True, exist_ok=True)
    (home / "config.toml").write_text(CONFIG.replace("URL", url))
    done = subprocess.run(
        [str(PROGRAM), "exec", "--json", "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox",
         "Write the parts."],
        capture_output=True, text=True, timeout=300, check=False, cwd=WORK, stdin=subprocess.DEVNULL,
        env={**os.environ, "CODEX_HOME": str(home), "HOME": str(home), "OPENAI_API_KEY": KEY})
    check(done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:])
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


def usages():
    """Returns the usage of each of the session's responses, from Codex's own record of it."""
    found = []
    for record in (WORK / "home" / "sessions").rglob("*.jsonl"):
        for line in record.read_text().splitlines():
            payload = json.loads(line).get("payload", {})
            info = payload.get("info") if payload.get("type") == "token_count" else None
            if info and (not found or info["total_token_usage"] != found[-1]["total_token_usage"]):
                found.append(info)
    return [info["last_token_usage"] for info in found]


def session():
    reason = own_network.enter()
    if reason:
        raise Skipped(reason)
    write_model(WORK / "model", SCRIPT)
    flags = ["--api-key", KEY, "--served-model-name", "demo", "--tool-call-parser", "hermes", "--reasoning-parser", "qwen3"]
    with Served(os.environ["TESSERA_PROGRAM"], flags, model=WORK / "model") as server:
        events = run_codex(server.url)
        _, _, metrics = server.request("GET", "/metrics", headers={"Authorization": f"Bearer {KEY}"})
    items = [event["item"] for event in events if event["type"] == "item.completed"]
    messages = [item["text"] for item in items if item["type"] == "agent_message"]
    check(messages[-1] == "All parts are written." and len(messages) == TURNS + 1, messages)
    check(sum(item["type"] == "reasoning" for item in items) == TURNS + 1, items)
    parts = [f"part {i}\n" for i in range(1, TURNS + 1) if i != IN_NAMESPACE]
    check((WORK / "parts.txt").read_text() == "".join(parts), "not all parts")
    statuses = re.findall(r'http_requests_total\{.*route="(/v1/responses)".*status="(\d+)".*\} (\d+)', metrics.decode())
    check(statuses == [("/v1/responses", "200", str(TURNS + 1))], metrics.decode())
    later = usages()[1:]
    check(len(later) == TURNS, later)
    cached, asked = (sum(usage[key] for usage in later) for key in ("cached_input_tokens", "input_tokens"))
    check(cached >= 0.95 * asked, later)
    return f"{100 * cached / asked:.2f} % of {asked} prompt tokens from the cache"


main(session)
