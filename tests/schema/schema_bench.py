#!/usr/bin/env python3
"""Measures the compilation of a folder of JSON schemas: tests/schema/schema_bench.py PROGRAM FOLDER [--tokenizer FILE] [--end TOKEN]

PROGRAM is schema_samples; every *.json file below FOLDER is one schema. Prints the share of accepted schemas, the 50th, 90th
and 99th percentile of the CPU time and of the wall-clock time (refusals included), the slowest files, and the number of refusals
by reason. Other work on the machine increases the wall-clock time, and less so the CPU time, since cores share caches."""

import argparse
import collections
import json
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent


def one_line(path):
    """Returns a file's text as one line: its own bytes if they parse, so that no number or order of names changes."""
    text = path.read_text(encoding="utf-8-sig")
    json.loads(text)
    return text.replace("\r", " ").replace("\n", " ")


def compiled(program, tokenizer, end, lines, words=()):
    """Returns an answer for each line, without a time limit."""
    done = subprocess.run([program, tokenizer, end, "0", "0", "1", *words], input="".join(line + "\n" for line in lines),
                          capture_output=True, text=True)
    answers = [json.loads(line) for line in done.stdout.split("\n") if line]
    if done.returncode or len(answers) != len(lines):
        sys.exit(f"{program} ended with {done.returncode} after {len(answers)} of {len(lines)} schemas: {done.stderr}")
    return answers


def reason(message):
    """Returns a refusal without place and numbers, so that equal refusals are counted together."""
    message = re.sub(r'(?s)#.*?: (?=")', "", message)
    message = re.sub(r'"\$ref": ".*?" (?=is|names|has)', '"$ref" ', message)
    return re.sub(r"-?\d[\d.e+]*", "N", message)[:150]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--tokenizer", type=pathlib.Path, default=ROOT / "models/demo/tokenizer.json")
    parser.add_argument("--end", default="<|im_end|>", help="the token that ends a text")
    parser.add_argument("--json", type=pathlib.Path, help="writes every answer to this file")
    options = parser.parse_args()
    paths, lines = [], []
    for path in sorted(options.folder.rglob("*.json")):
        try:
            lines.append(one_line(path))
            paths.append(str(path.relative_to(options.folder)))
        except ValueError as error:
            print(f"left out: {path} is no JSON: {error}")
    if not paths:
        sys.exit(f"no *.json below {options.folder}")
    answers = compiled(options.program, options.tokenizer, options.end, lines)
    if options.json:
        options.json.write_text(json.dumps(dict(zip(paths, answers)), indent=0))
    served = sum(answer["status"] == "served" for answer in answers)
    print(f"{len(paths)} schemas: {served} accepted, {100 * served / len(paths):.2f} %")
    for what, field in (("of the processor", "ms"), ("that passed", "wall_ms")):
        ms = sorted(answer[field] for answer in answers)
        shares = ", ".join(f"p{100 * share:g} {ms[min(int(share * len(ms)), len(ms) - 1)]:.1f}" for share in (0.5, 0.9, 0.99))
        print(f"ms {what} to compile: {shares}, most {ms[-1]:.0f}")
    for answer, path in sorted(zip(answers, paths), key=lambda pair: -pair[0]["ms"])[:10]:
        print(f"  {answer['ms']:.0f} ms  {path} ({answer['status']})")
    reasons = collections.Counter(reason(a["message"]) for a in answers if a["status"] != "served")
    print(f"{len(answers) - served} refused")
    for text, count in reasons.most_common():
        print(f"  {count} x {text}")


if __name__ == "__main__":
    main()
