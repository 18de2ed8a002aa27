"""llm-comply: its nine checks of OpenAI's chats. The bundled model passes six. The three others need a model that reads
images, a model that ends its list of tool calls, and a chat template with a reasoning effort; they run on other servers."""

import json
import os
import pathlib
import shutil
import subprocess
import sys

from jobs import API, KEY, NAME, check, main

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "server"))
from served import MODEL, Served  # noqa: E402
from stall_test import CONFIG, PAD  # noqa: E402

TESSERA = os.environ["TESSERA_PROGRAM"]
WORK = pathlib.Path(os.environ["TESSERA_WORK"])
IMAGE, TOOLS, REASONING = "chat-image-input", "chat-tool-calling", "chat-reasoning-summary"
SEEING_TEMPLATE = ("{% for m in messages %}{% if m.content is string %}{{ m.content }}{% else %}{% for part in m.content %}"
                   "{% if part.type == 'text' %}{{ part.text }}{% else %}<|image_pad|>{% endif %}{% endfor %}{% endif %}"
                   "{% endfor %}")
REASONING_TEMPLATE = "effort {{ reasoning_effort }}: {% for m in messages %}{{ m.content }}{% endfor %}"


def checked(api, name, *only):
    """Returns the results of the checks by their names."""
    words = [str(pathlib.Path(sys.executable).parent / "llm-comply"), "--format", "openai-chat", "--json", "--timeout", "250", "-u", api,
             "-k", KEY, "-m", name, *(["-f", ",".join(only)] if only else [])]
    said = subprocess.run(words, capture_output=True, text=True, timeout=300, check=False)
    check(said.stdout, said.stderr)
    return {result["id"]: result for result in json.loads(said.stdout)["results"]}


def passes(results, name):
    check(results[name]["status"] == "passed" and not results[name].get("warnings"), results[name])


def chats_of_the_bundled_model():
    results = checked(API, NAME)
    check(len(results) == 9, [*results])
    for name in set(results) - {IMAGE, TOOLS, REASONING}:
        passes(results, name)
    check(results[TOOLS].get("errors", []) in ([], ["finish_reason: expected 'tool_calls', got 'length'"]),
          f"the bundled model may call until its context ends: {results[TOOLS]}")
    check("HTTP 400" in str(results[IMAGE]), f"the bundled model reads no images: {results[IMAGE]}")
    check(results[REASONING]["status"] == "skipped", f"it is for models of certain names: {results[REASONING]}")


def seeing_model():
    """Makes a small model of random numbers that reads images and that any of 96 tokens ends."""
    home = WORK / "seeing"
    shutil.rmtree(home, ignore_errors=True)
    home.mkdir()
    (home / "config.json").write_text(json.dumps(CONFIG))
    model = home / "model"
    subprocess.run([TESSERA, "make-checkpoint", home / "config.json", model, "--tokenizer-path", MODEL, "--log-level", "warn"],
                   check=True, stdout=subprocess.DEVNULL)
    (model / "preprocessor_config.json").write_text(json.dumps(
        {"patch_size": 14, "merge_size": 2, "temporal_patch_size": 2, "min_pixels": 3136, "max_pixels": 200704}))
    (model / "generation_config.json").write_text(json.dumps({"eos_token_id": [*range(512, 2048, 16)], "do_sample": True}))
    tokenizer = json.loads((model / "tokenizer.json").read_text())
    tokenizer["added_tokens"] += [{**tokenizer["added_tokens"][0], "id": PAD - 2 + i, "content": text, "special": True}
                                  for i, text in enumerate(("<|vision_start|>", "<|vision_end|>", "<|image_pad|>"))]
    (model / "tokenizer.json").write_text(json.dumps(tokenizer))
    return model


def image_and_tools_of_a_model_that_ends():
    flags = ["--api-key", KEY, "--served-model-name", NAME, "--chat-template", SEEING_TEMPLATE]
    with Served(TESSERA, flags, seeing_model()) as server:
        results = checked(server.url + "/v1", NAME, IMAGE, TOOLS)
        for name in (IMAGE, TOOLS):
            passes(results, name)


def reasoning_with_a_template_that_takes_an_effort():
    """Runs the check under a name that llm-comply takes for a reasoning model's."""
    name = "deepseek-r-demo"
    flags = ["--api-key", KEY, "--served-model-name", name, "--chat-template", REASONING_TEMPLATE]
    with Served(TESSERA, flags) as server:
        result = checked(server.url + "/v1", name, REASONING)[REASONING]
        check(result["status"] == "passed", result)
        check("may not support reasoning" in str(result["warnings"]), f"the model does not reason: {result}")


main(chats_of_the_bundled_model, image_and_tools_of_a_model_that_ends, reasoning_with_a_template_that_takes_an_effort)
