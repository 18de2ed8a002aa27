#!/usr/bin/env python3
"""Runs a fixed task in every graph mode: tools/score_task.py TESSERA [FLAG …]

The task is sums that the bundled model has learnt, as questions with four answers each; its choice is the answer with
the highest probability. The score, which is the number of right choices, must be the same with and without graphs.
Flags, such as --device cuda, go to each call of `tessera score`. Exit code 1: the scores differ."""

import json
import pathlib
import subprocess
import sys
import tempfile

MODEL = pathlib.Path(__file__).resolve().parents[1] / "models" / "demo"
MODES = ["off", "full_and_piecewise", "piecewise", "full"]  # the second one is the default
SUMS = [(a, b) for a in range(2, 10) for b in range(3, 9, 2)]
OFFSETS = [0, 1, -1, 3]  # each of the four answers is the sum plus one of these offsets


def question(a, b, answer):
    return f"<|im_start|>user\nWhat is {a} plus {b}?<|im_end|>\n<|im_start|>assistant\n{a} plus {b} is {answer}.<|im_end|>\n"


def score(program, mode, flags):
    """Returns the number of right choices, and the mean log-probability of the right answers with their questions."""
    prompts = [word for a, b in SUMS for offset in OFFSETS for word in ("--prompt", question(a, b, a + b + offset))]
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run([program, "score", "--model-path", MODEL, "--cuda-graph-mode", mode, "--log-level", "error",
                               "--output", f"{folder}/scores.safetensors", "--json", *prompts, *flags],
                              capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(done.stderr.strip())
    logprobs = [prompt["logprob"] for prompt in json.loads(done.stdout)["prompts"]]
    answers = [logprobs[i:i + len(OFFSETS)] for i in range(0, len(logprobs), len(OFFSETS))]
    right = sum(max(answer) == answer[0] for answer in answers)
    return right, sum(answer[0] for answer in answers) / len(answers)


def main(program, flags):
    scores = {mode: score(program, mode, flags) for mode in MODES}
    print("| graphs | score | log-probability of a right answer |\n|---|---:|---:|")
    for mode, (right, logprob) in scores.items():
        print(f"| {mode} | {right}/{len(SUMS)} | {logprob:.4f} |")
    equal = len({right for right, _ in scores.values()}) == 1
    print(f"\nThe scores are {'equal' if equal else 'not equal'}.")
    return 0 if equal else 1


if __name__ == "__main__":
    if len(sys.argv) < 2 or sys.argv[1].startswith("-"):
        sys.exit("usage: tools/score_task.py TESSERA [FLAG …]")
    sys.exit(main(sys.argv[1], sys.argv[2:]))
