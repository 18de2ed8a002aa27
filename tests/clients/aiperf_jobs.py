"""aiperf: streamed loads, whose token counts must be the server's."""

import json
import os
import pathlib
import subprocess
import sys

from jobs import KEY, MODEL, NAME, URL, check, counts, main

REQUESTS = 24
PROMPT_TOKENS = 64
OUTPUT_TOKENS = 16


def run(endpoint):
    """Sends the load and returns aiperf's numbers."""
    folder = pathlib.Path(os.environ["TESSERA_WORK"]) / f"aiperf_{endpoint}"
    # Offline, aiperf loads tokenizers only from Hugging Face's cache and not from a folder.
    variables = {name: value for name, value in os.environ.items() if name != "HF_HUB_OFFLINE"}
    before = counts()
    program = pathlib.Path(sys.executable).parent / "aiperf"
    done = subprocess.run(
        [sys.executable, str(program), "profile", "--model", NAME, "--url", URL, "--api-key", KEY, "--endpoint-type", endpoint,
         "--streaming", "--tokenizer", str(MODEL), "--concurrency", "4", "--request-count", str(REQUESTS),
         "--isl", str(PROMPT_TOKENS), "--osl", str(OUTPUT_TOKENS), "--extra-inputs", "ignore_eos:true", "--random-seed", "1",
         "--ui", "none", "--artifact-dir", str(folder)], capture_output=True, text=True, timeout=300, check=False, env=variables)
    check(done.returncode == 0, done.stdout[-1500:] + done.stderr[-500:])
    seen = json.loads((folder / "profile_export_aiperf.json").read_text())
    check(seen["completed_request_count"]["avg"] == REQUESTS and not seen["error_summary"], seen["error_summary"])
    served = [after - earlier for after, earlier in zip(counts(), before)]
    reported = [REQUESTS, *(int(seen[f"total_usage_{kind}_tokens"]["avg"]) for kind in ("prompt", "completion"))]
    check(served == reported, f"aiperf counted {reported}, the server {served}")
    check(reported[2] == REQUESTS * OUTPUT_TOKENS, reported)
    return seen


def completions():
    seen = run("completions")
    check(seen["total_isl"]["avg"] == REQUESTS * PROMPT_TOKENS, "aiperf's own count of the prompts' tokens is the server's")
    check(seen["usage_prompt_tokens_diff_pct"]["avg"] == 0, seen["usage_prompt_tokens_diff_pct"])


def chat():
    run("chat")


main(completions, chat)
