"""locust: short loads of chats, streamed and whole, whose token counts must be the server's."""

import os
import re
import subprocess
import sys

from jobs import KEY, NAME, URL, WORDS, check, counts, main

USERS = """
import json
from locust import HttpUser, constant, events, task

counts = [0, 0, 0]

class Chat(HttpUser):
    wait_time = constant(0.1)

    def chat(self, **more):
        return self.client.post("/v1/chat/completions", headers={{"Authorization": "Bearer {key}"}}, catch_response=True,
                                json={{"model": "{name}", "max_tokens": 4,
                                      "messages": [{{"role": "user", "content": "{words}"}}], **more}})

    def count(self, usage):
        for i, tokens in enumerate((1, usage["prompt_tokens"], usage["completion_tokens"])):
            counts[i] += tokens

    @task
    def whole(self):
        with self.chat() as done:
            if not done.json()["choices"][0]["message"]["content"]:
                done.failure("no text")
            self.count(done.json()["usage"])

    @task
    def streamed(self):
        with self.chat(stream=True, stream_options={{"include_usage": True}}) as done:
            events = [line[len("data: "):] for line in done.text.splitlines() if line.startswith("data: ")]
            if events.pop() != "[DONE]":
                done.failure("the stream did not end")
            self.count(json.loads(events[-1])["usage"])

@events.quitting.add_listener
def tell(**_):
    print("counts:", *counts, flush=True)
"""


def load():
    file = os.path.join(os.environ["TESSERA_WORK"], "locustfile.py")
    with open(file, "w", encoding="utf-8") as out:
        out.write(USERS.format(key=KEY, name=NAME, words=WORDS))
    before = counts()
    # At the end of the time, users may finish the requests that are under way, so that both sides count them.
    result = subprocess.run([sys.executable, "-m", "locust", "-f", file, "--headless", "-u", "4", "-r", "4", "-t", "4s",
                             "--stop-timeout", "20", "--host", URL, "--only-summary"], capture_output=True, text=True,
                            timeout=60, check=False)
    check(result.returncode == 0, result.stderr)
    seen = [int(count) for count in re.search(r"^counts: (\d+) (\d+) (\d+)$", result.stdout, re.MULTILINE).groups()]
    served = [after - earlier for after, earlier in zip(counts(), before)]
    check(seen == served and seen[0] > 8, f"locust counted {seen}, the server {served}")


main(load)
