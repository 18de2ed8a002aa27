"""locust: a short load of chats."""

import os
import subprocess
import sys

from jobs import KEY, NAME, URL, WORDS, check, main

USERS = """
from locust import HttpUser, constant, task

class Chat(HttpUser):
    wait_time = constant(0.1)

    @task
    def chat(self):
        with self.client.post("/v1/chat/completions", headers={{"Authorization": "Bearer {key}"}}, catch_response=True,
                              json={{"model": "{name}", "max_tokens": 4,
                                    "messages": [{{"role": "user", "content": "{words}"}}]}}) as done:
            if not done.json()["choices"][0]["message"]["content"]:
                done.failure("no text")
"""


def load():
    file = os.path.join(os.environ["TESSERA_WORK"], "locustfile.py")
    with open(file, "w", encoding="utf-8") as out:
        out.write(USERS.format(key=KEY, name=NAME, words=WORDS))
    result = subprocess.run([sys.executable, "-m", "locust", "-f", file, "--headless", "-u", "4", "-r", "4", "-t", "4s",
                             "--host", URL, "--only-summary"], capture_output=True, text=True, timeout=60, check=False)
    check(result.returncode == 0, result.stderr)


main(load)
