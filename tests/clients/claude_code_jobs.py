"""Claude Code, from its SDK for Python, in sessions with tools. The model follows a script: each turn thinks, says
something and runs a command. The program's requests depend on the name of the model. Program and server run in a network
namespace of their own, so no other server can answer."""

import asyncio
import os
import pathlib
import re
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "server"))
import own_network  # noqa: E402
from claude_agent_sdk import AssistantMessage, ClaudeAgentOptions, ResultMessage, ThinkingBlock, query  # noqa: E402
from jobs import KEY, Skipped, check, main  # noqa: E402
from scripted_model import write_model  # noqa: E402
from served import Served  # noqa: E402

WORK = pathlib.Path(os.environ["TESSERA_WORK"]) / "claude_code"
TURNS = 20


def step(number):
    """A turn with a command. Every fifth one fails."""
    status = 1 if number % 5 == 0 else 0
    return [f"<think>\nPart {number} comes next.\n</think>\n\n", f"I write part {number}.",
            f"\n<tool_call>\n{{\"name\": \"Bash\", \"arguments\": {{\"command\": \"echo part {number} >> parts.txt; ",
            f"exit {status}\", \"description\": \"part {number}\"}}}}\n</tool_call>"]


SCRIPT = [*(step(number) for number in range(1, TURNS + 1)),
          ["<think>\nNothing is left.\n</think>\n\n", "All parts are written."]]


async def ask(url, prompt, **more):
    home = WORK / "home"
    home.mkdir(exist_ok=True)
    options = ClaudeAgentOptions(
        cwd=str(WORK), permission_mode="bypassPermissions", max_turns=TURNS + 5, env={
            "ANTHROPIC_BASE_URL": url, "ANTHROPIC_API_KEY": KEY, "HOME": str(home), "IS_SANDBOX": "1",
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1"}, **more)
    return [message async for message in query(prompt=prompt, options=options)]


def run_session(**options):
    reason = own_network.enter()
    if reason:
        raise Skipped(reason)
    write_model(WORK / "model", SCRIPT)
    (WORK / "parts.txt").unlink(missing_ok=True)
    flags = ["--api-key", KEY, "--tool-call-parser", "hermes", "--reasoning-parser", "qwen3"]
    with Served(os.environ["TESSERA_PROGRAM"], flags, model=WORK / "model") as server:
        messages = asyncio.run(ask(server.url, "Write the parts.", **options))
        _, _, metrics = server.request("GET", "/metrics", headers={"Authorization": f"Bearer {KEY}"})
    result = messages[-1]
    check(isinstance(result, ResultMessage) and not result.is_error, result)
    check(result.result == "All parts are written.", result)
    answers = [message for message in messages if isinstance(message, AssistantMessage)]
    thoughts = sum(isinstance(block, ThinkingBlock) for message in answers for block in message.content)
    check(thoughts == TURNS + 1, thoughts)
    check((WORK / "parts.txt").read_text() == "".join(f"part {i}\n" for i in range(1, TURNS + 1)), "not all parts")
    statuses = re.findall(r'http_requests_total\{.*route="/v1/messages.*status="(\d+)".*\} (\d+)', metrics.decode())
    check(statuses == [("200", str(TURNS + 1))], metrics.decode())
    # The usage at the beginning of a message counts its whole prompt; the session's usage leaves out cached tokens.
    first = answers[0].usage["input_tokens"]
    cached = result.usage["cache_read_input_tokens"]
    computed = result.usage["input_tokens"] - first
    check(cached >= 0.95 * (cached + computed), result.usage)
    return f"{100 * cached / (cached + computed):.2f} % of {cached + computed} prompt tokens from the cache"


def thinks_within_a_budget():
    return run_session(model="claude-sonnet-4-5", max_thinking_tokens=4000)


def has_a_system_message_in_mid_conversation():
    """Checks requests for the default model: thinking is adaptive, and the environment follows the user's first message."""
    return run_session()


main(thinks_within_a_budget, has_a_system_message_in_mid_conversation)
