"""schemathesis: requests made from /openapi.json, many of them wrong, to a server with a folder for files and to a
server without one. No request may end with a status that the description lacks, or with a status 5xx. Only the server
without the folder may answer 501."""

import os
import pathlib
import re
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "server"))
from jobs import KEY, NAME, check, main  # noqa: E402
from served import Served  # noqa: E402

WORK = pathlib.Path(os.environ["TESSERA_WORK"]) / "schemathesis"
LEAST_CALLS = 5_000  # 10^4 for both servers
EXAMPLES = 20  # generated requests of each route and method, beside those that cover the limits of every field
# Requests with generated model names would end with 404. With the served model's name, they reach the later checks.
HOOKS = f"""
import schemathesis

@schemathesis.hook
def map_body(context, body):
    if isinstance(body, dict) and isinstance(body.get("model"), str):
        return {{**body, "model": "{NAME}"}}
    return body
"""


def statuses(server):
    """Returns the number of requests by their route and status."""
    _, _, metrics = server.request("GET", "/metrics", headers={"Authorization": f"Bearer {KEY}"})
    found = re.findall(r'http_requests_total\{.*route="([^"]*)",status="(\d+)".*\} (\d+)', metrics.decode())
    return {(route, int(status)): int(count) for route, status, count in found}


def calls(*flags):
    WORK.mkdir(exist_ok=True)
    (WORK / "hooks.py").write_text(HOOKS)
    flags = ["--api-key", KEY, "--served-model-name", NAME, "--context-length", "64", *flags]
    with Served(os.environ["TESSERA_PROGRAM"], flags) as server:
        program = pathlib.Path(sys.executable).parent / "schemathesis"
        done = subprocess.run(
            [str(program), "run", f"{server.url}/openapi.json", "--header", f"Authorization: Bearer {KEY}",
             "--checks", "status_code_conformance", "--continue-on-failure", "--phases", "coverage,fuzzing",
             "--max-examples", str(EXAMPLES), "--seed", "1", "--generation-database", "none", "--request-timeout", "60",
             "--workers", "1", "--no-color"],
            capture_output=True, text=True, timeout=550, check=False, cwd=WORK,
            env={**os.environ, "SCHEMATHESIS_HOOKS": "hooks", "PYTHONPATH": str(WORK)})
        seen = statuses(server)
    check(done.returncode == 0, done.stdout[-3000:] + done.stderr[-1000:])
    total = sum(seen.values())
    check(total >= LEAST_CALLS, f"{total} calls")
    answered = sum(count for (_, status), count in seen.items() if status == 200)
    failed = {(route, status) for route, status in seen if status >= 500}
    return failed, f"{total} calls, {answered} of them answered with 200"


def with_a_folder_for_files():
    failed, measured = calls("--file-storage-path", str(WORK / "files"))
    check(not failed, failed)
    return measured


def without_a_folder_for_files():
    failed, measured = calls()
    others = {(route, status) for route, status in failed
              if status != 501 or not route.startswith(("/v1/files", "/v1/batches"))}
    check(failed and not others, others)
    return measured


main(with_a_folder_for_files, without_a_folder_for_files)
