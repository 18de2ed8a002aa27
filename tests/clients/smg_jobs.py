"""smg: a gateway in front of the server, which writes the model's name into requests."""

import json
import os
import pathlib
import re
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request

from jobs import KEY, NAME, URL, check, main

WORK = pathlib.Path(os.environ["TESSERA_WORK"])


def free_port():
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        return listening.getsockname()[1]


class Gateway:
    def __init__(self):
        self.url = f"http://127.0.0.1:{free_port()}"

    def __enter__(self):
        self.log = open(WORK / "smg.log", "w+")
        self.process = subprocess.Popen(
            [str(pathlib.Path(sys.executable).parent / "smg"), "launch", "--worker-urls", URL, "--api-key", KEY, "--host", "127.0.0.1",
             "--port", self.url.rsplit(":", 1)[1], "--prometheus-port", str(free_port())], stdout=self.log, stderr=self.log)
        for _ in range(240):
            try:
                if self.ask("/v1/models")[1]["data"]:
                    return self
            except (OSError, ValueError, KeyError, TypeError):
                pass
            if self.process.poll() is not None:
                break
            time.sleep(0.25)
        raise AssertionError(f"the gateway does not serve: {self.said()}")

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait(60)
        self.log.close()

    def said(self):
        self.log.seek(0)
        return re.sub(r"\x1b\[\d*m", "", self.log.read())[-1500:]

    def ask(self, path, body=None):
        """Returns (status, body), as JSON but for streams."""
        request = urllib.request.Request(self.url + path, headers={"Authorization": f"Bearer {KEY}", "Content-Type": "application/json"},
                                         data=None if body is None else json.dumps(body).encode())
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                text = answer.read().decode()
                return answer.status, text if text.startswith("data:") else json.loads(text)
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()


GATEWAY = Gateway()


def expect_200(path, body):
    status, answer = GATEWAY.ask(path, body)
    check(status == 200, f"{status}: {answer}")
    return answer


def models():
    answer = expect_200("/v1/models", None)
    check(NAME in [model["id"] for model in answer["data"]], answer)


def chat():
    answer = expect_200("/v1/chat/completions", {"model": NAME, "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 4})
    check(answer["choices"][0]["message"]["role"] == "assistant" and answer["model"] == NAME, answer)


def chat_stream():
    text = expect_200("/v1/chat/completions", {"model": NAME, "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 4,
                                               "stream": True})
    check(text.rstrip().endswith("data: [DONE]"), text)


def completion():
    answer = expect_200("/v1/completions", {"model": NAME, "prompt": "Once", "max_tokens": 4})
    check(answer["usage"]["completion_tokens"] == 4, answer)


def generate_without_a_model():
    answer = expect_200("/generate", {"text": "Once", "sampling_params": {"max_new_tokens": 4}})
    check(answer["meta_info"]["completion_tokens"] == 4, answer)


def generate_of_a_model():
    answer = expect_200("/generate", {"model": NAME, "text": "Once", "sampling_params": {"max_new_tokens": 4}})
    check(answer["meta_info"]["completion_tokens"] == 4, answer)


def load_is_read():
    """The gateway reads the load from the server's own route, with its capacity."""
    for _ in range(60):
        answer = expect_200("/get_loads", None)
        if answer["loads"] and answer["loads"][0]["max_total_num_tokens"] > 0:
            return
        time.sleep(0.5)
    raise AssertionError(f"no load was read: {answer}")


with GATEWAY:
    main(load_is_read, models, chat, chat_stream, completion, generate_without_a_model, generate_of_a_model)
