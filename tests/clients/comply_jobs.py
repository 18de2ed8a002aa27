"""llm-comply: its checks of OpenAI's chats (9), Anthropic's Messages (9) and the Responses API (13). The bundled model
passes the checks that ask for text. The other checks need a model that reads images, a model that ends its list of tool
calls, or a model that reasons. These checks run on servers of such models."""

import json
import os
import pathlib
import shutil
import subprocess
import sys

from jobs import API, KEY, NAME, check, main
from llm_comply.tests import get_tests
from scripted_model import write_model

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "server"))
from served import MODEL, Served  # noqa: E402
from stall_test import CONFIG, PAD  # noqa: E402

TESSERA = os.environ["TESSERA_PROGRAM"]
WORK = pathlib.Path(os.environ["TESSERA_WORK"])
# The checks of each format that the bundled model cannot pass: of images, of tools and of reasoning.
CHATS = ("chat-image-input", "chat-tool-calling", "chat-reasoning-summary")
MESSAGES = ("anth-image-input", "anth-tool-calling", "anth-thinking-display")
RESPONSES = ("image-input", "tool-calling", "reasoning-summary")
FORMATS = {"openai-chat": CHATS, "anthropic": MESSAGES, "open-responses": RESPONSES}
SEEING_TEMPLATE = ("{% for m in messages %}{% if m.content is string %}{{ m.content }}{% else %}{% for part in m.content %}"
                   "{% if part.type == 'text' %}{{ part.text }}{% else %}<|image_pad|>{% endif %}{% endfor %}{% endif %}"
                   "{% endfor %}")


def checked(api, form, name, *only):
    """Returns the results of the checks by their names."""
    words = [str(pathlib.Path(sys.executable).parent / "llm-comply"), "--format", form, "--json", "--timeout", "250",
             "-u", api, "-k", KEY, "-m", name, *(["-f", ",".join(only)] if only else [])]
    said = subprocess.run(words, capture_output=True, text=True, timeout=300, check=False)
    check(said.stdout, said.stderr)
    return {result["id"]: result for result in json.loads(said.stdout)["results"]}


def passes(results, name):
    check(results[name]["status"] == "passed" and not results[name].get("warnings"), results[name])


def text_of_the_bundled_model(form, count):
    """Runs all checks but that of tools: the bundled model may write calls until its context ends."""
    names = [test.id for test in get_tests(form)]
    check(len(names) == count, names)
    image, tools, reasoning = FORMATS[form]
    results = checked(API, form, NAME, *(name for name in names if name != tools))
    for name in set(results) - {image, reasoning}:
        passes(results, name)
    check("HTTP 400" in str(results[image]), f"the bundled model reads no images: {results[image]}")
    check(results[reasoning]["status"] == "skipped", f"it is for models of certain names: {results[reasoning]}")
    return f"{sum(result['status'] == 'passed' for result in results.values())} of {count}"


def chats_of_the_bundled_model():
    return text_of_the_bundled_model("openai-chat", 9)


def messages_of_the_bundled_model():
    return text_of_the_bundled_model("anthropic", 9)


def responses_of_the_bundled_model():
    return text_of_the_bundled_model("open-responses", 13)


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


def images_of_a_model_that_sees():
    flags = ["--api-key", KEY, "--served-model-name", NAME, "--chat-template", SEEING_TEMPLATE, "--seed", "1"]
    with Served(TESSERA, flags, seeing_model()) as server:
        for form, (image, _, _) in FORMATS.items():
            passes(checked(server.url + "/v1", form, NAME, image), image)


def tools_of_a_model_that_ends_its_calls():
    model = WORK / "calling"
    write_model(model, [["[{\"name\": \"get_weather\", \"parameters\": ", "{\"location\": \"San Francisco\"}}]"]])
    with Served(TESSERA, ["--api-key", KEY, "--served-model-name", NAME], model) as server:
        for form, (_, tools, _) in FORMATS.items():
            passes(checked(server.url + "/v1", form, NAME, tools), tools)


def reasoning_of_a_model_that_thinks():
    """Runs the checks under names that llm-comply takes for reasoning models."""
    model = WORK / "thinking"
    write_model(model, [["<think>\n15 times", " 37 is", " 555.\n</think>\n\n", "It is 555."]])
    for form in FORMATS:
        name = "claude-4-demo" if form == "anthropic" else "deepseek-r-demo"
        flags = ["--api-key", KEY, "--served-model-name", name, "--reasoning-parser", "qwen3"]
        with Served(TESSERA, flags, model) as server:
            reasoning = FORMATS[form][2]
            passes(checked(server.url + "/v1", form, name, reasoning), reasoning)


main(chats_of_the_bundled_model, messages_of_the_bundled_model, responses_of_the_bundled_model,
     images_of_a_model_that_sees, tools_of_a_model_that_ends_its_calls, reasoning_of_a_model_that_thinks)
