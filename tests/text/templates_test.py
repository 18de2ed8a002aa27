#!/usr/bin/env python3
"""Compares published chat templates with Python's jinja2: tests/text/templates_test.py PROGRAM (render_templates)

Catches: a rendering that differs from Hugging Face's apply_chat_template for the same conversation, a template that
fails in only one of them, and a lost message of raise_exception.
Needs jinja2 and the shared data (TESSERA_SHARED_DIR, or shared/ beside the repository); without them it is skipped.
The last line is "N passed, N failed"."""

import datetime
import json
import os
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
DATA = pathlib.Path(os.environ.get("TESSERA_SHARED_DIR", ROOT.parent / "shared")) / "data"
NOW = 1721997296
SKIPPED = 77

WEATHER = {"type": "function", "function": {
    "name": "get_weather", "description": "The weather at a place: <now> & \"soon\"",
    "parameters": {"type": "object", "properties": {
        "place": {"type": "string", "description": "Città, país"}, "days": {"type": "integer", "default": 1},
        "units": {"type": "string", "enum": ["celsius", "fahrenheit"]},
        "spot": {"type": "object", "properties": {"lat": {"type": "number"}}}, "tags": {"type": "array", "items": {"type": "string"}}},
        "required": ["place"]},
    "return": {"type": "string"}}}
CLOCK = {"type": "function", "function": {"name": "clock", "description": "", "parameters": {"type": "object", "properties": {}}}}


def user(text):
    return {"role": "user", "content": text}


def assistant(text, **more):
    return {"role": "assistant", "content": text, **more}


def call(name, arguments, call_id="abcdef123"):
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


SYSTEM = {"role": "system", "content": "Be brief. "}
PLACE = {"place": "Zürich", "days": 2, "tags": ["a", "b\"c"], "deep": {"x": [1.5, None, True]}}


def tool(text, call_id="abcdef123"):
    return {"role": "tool", "name": "get_weather", "tool_call_id": call_id, "content": text}


# Conversations by name: (messages, the other arguments of the call).
CONVERSATIONS = {
    "one question": ([user("Hello")], {}),
    "no generation prompt": ([user("Hello"), assistant("Hi")], {"generate": False}),
    "several turns": ([SYSTEM, user("Hi\nthere"), assistant("  Hello é世 "), user("Bye <b>'\"&"), assistant("b"), user("c")], {}),
    "thoughts": ([user("1+1?"), assistant("<think>\nadd\n</think>\n\n2"), user("and 2+2?")], {}),
    "thoughts apart": ([user("1+1?"), assistant("2", reasoning_content="add"), user("and 2+2?"),
                        assistant("4", reasoning_content="again")], {"generate": False}),
    "thinking off": ([SYSTEM, user("Hello")], {"extra": {"enable_thinking": False, "thinking": False}}),
    "thinking on": ([SYSTEM, user("Hello")], {"extra": {"enable_thinking": True, "thinking": True}}),
    "tools": ([SYSTEM, user("Weather?")], {"tools": [WEATHER, CLOCK]}),
    "tools, no system": ([user("Weather?")], {"tools": [WEATHER]}),
    "a call": ([user("Weather?"), assistant("", tool_calls=[call("get_weather", PLACE)])], {"tools": [WEATHER], "generate": False}),
    "a call and its result": ([SYSTEM, user("Weather?"), assistant("", tool_calls=[call("get_weather", PLACE)]),
                               tool("{\"sun\": true}"), assistant("Sunny."), user("Thanks")], {"tools": [WEATHER]}),
    "arguments as text": ([user("Weather?"), assistant("", tool_calls=[call("get_weather", json.dumps(PLACE))]),
                           tool("rain")], {"tools": [WEATHER]}),
    "no content": ([user("Weather?"), assistant(None, tool_calls=[call("get_weather", PLACE)]), tool("rain")], {"tools": [WEATHER]}),
    "two calls at once": ([user("Both?"), assistant("Wait.", tool_calls=[call("get_weather", PLACE, "aaaaaaaa1"),
                                                                           call("clock", {}, "bbbbbbbb2")]),
                           tool("rain", "aaaaaaaa1"), tool("12:00", "bbbbbbbb2")], {"tools": [WEATHER, CLOCK]}),
    "calls, no tools": ([user("Weather?"), assistant("", tool_calls=[call("get_weather", PLACE)]), tool("rain")], {}),
    "content in parts": ([user([{"type": "text", "text": "What "}, {"type": "text", "text": "now?"}])], {}),
    "assistant first": ([assistant("Hi"), user("Hello")], {}),
    "two questions": ([user("a"), user("b")], {}),
    "system behind": ([user("a"), assistant("b"), SYSTEM, user("c")], {}),
    "unknown role": ([user("a"), {"role": "narrator", "content": "b"}], {}),
    "no messages": ([], {}),
    "no content field": ([{"role": "user"}], {}),
    "short id": ([user("a"), assistant("", tool_calls=[call("clock", {}, "1")]), tool("x", "1"), user("c")], {"tools": [CLOCK]}),
    "date given": ([user("Hello")], {"extra": {"date_string": "1 Jan 2025"}}),
    "documents": ([user("Hello")], {"extra": {"documents": [{"title": "T", "text": "D é"}]}}),
}


def environment(jinja2):
    """Makes the environment of transformers' apply_chat_template."""
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    def raise_exception(message):
        raise jinja2.exceptions.TemplateError(message)

    def tojson(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)

    def strftime_now(form):
        return datetime.datetime.fromtimestamp(NOW, datetime.timezone.utc).strftime(form)

    env = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"])
    env.filters["tojson"] = tojson
    env.globals["raise_exception"] = raise_exception
    env.globals["strftime_now"] = strftime_now
    return env


def published_templates():
    """Yields (name, source) of all published templates."""
    for path in sorted((DATA / "chat_templates" / "llama.cpp").glob("*.jinja")):
        yield path.name, path.read_text()
    for folder in sorted((DATA / "tokenizers" / "tokenizer_configs").iterdir()):
        for path in sorted(folder.glob("*.jinja")):
            yield f"{folder.name}/{path.name}", path.read_text()
        source = json.loads((folder / "tokenizer_config.json").read_text()).get("chat_template")
        if isinstance(source, str):
            yield folder.name, source
        for named in source if isinstance(source, list) else []:
            yield f"{folder.name}/{named['name']}", named["template"]


def expected(jinja2, template, job):
    """Returns ("text", …), ("raised", message of raise_exception) or ("error", message)."""
    try:
        return "text", template.render(messages=job["messages"], tools=job["tools"], bos_token="<s>", eos_token="</s>",
                                       add_generation_prompt=job["generate"], **job["extra"])
    except jinja2.exceptions.TemplateError as error:
        return ("raised" if type(error) is jinja2.exceptions.TemplateError else "error"), str(error)
    except (TypeError, ValueError, KeyError, AttributeError, IndexError) as error:
        return "error", f"{type(error).__name__}: {error}"


def fault(wanted, answer):
    """Returns what is wrong with the answer, or None."""
    kind, text = wanted
    if kind == "text":
        return None if answer.get("text") == text else f"expected {text!r}, got {answer!r}"
    if "error" not in answer:
        return f"expected the error {text!r}, got {answer!r}"
    if kind == "raised" and not answer["error"].endswith(": " + text):
        return f"expected the message {text!r}, got {answer['error']!r}"
    return None


def main():
    try:
        import jinja2
    except ImportError:
        print("skipped: Python has no jinja2")
        return SKIPPED
    if not (DATA / "chat_templates").is_dir():
        print("skipped: no shared data: chat_templates")
        return SKIPPED

    env = environment(jinja2)
    names, jobs, wanted = [], [], []
    templates = list(published_templates())
    for template_name, source in templates:
        template = env.from_string(source)
        for name, (messages, more) in CONVERSATIONS.items():
            job = {"source": source, "messages": messages, "tools": None, "extra": {}, "generate": True, "now": NOW, **more}
            names.append(f"{template_name}: {name}")
            jobs.append(job)
            wanted.append(expected(jinja2, template, job))
    done = subprocess.run([sys.argv[1]], input="".join(json.dumps(job) + "\n" for job in jobs), text=True,
                          capture_output=True, check=False, timeout=200, env={**os.environ, "TZ": "UTC"})
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    if done.returncode != 0 or len(answers) != len(jobs):
        print(f"render_templates ended with {done.returncode} after {len(answers)} of {len(jobs)} jobs: {done.stderr}")
        return 1

    failed = 0
    for name, want, answer in zip(names, wanted, answers):
        message = fault(want, answer)
        if message:
            failed += 1
            print(f"FAILED {name}: {message}")
    kinds = [kind for kind, _ in wanted]
    print(f"{len(templates)} templates, {len(CONVERSATIONS)} conversations: {kinds.count('text')} renderings, "
          f"{kinds.count('raised')} refused by the template, {kinds.count('error')} refused by the language")
    print(f"{len(jobs) - failed} passed, {failed} failed")
    return 1 if failed else 0


sys.exit(main())
