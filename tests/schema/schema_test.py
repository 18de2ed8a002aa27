#!/usr/bin/env python3
"""Compares JSON schemas with Python's jsonschema: tests/schema/schema_test.py PROGRAM [--schemas N] [--seed N] [--samples N]

PROGRAM is schema_samples. Catches: a text of a schema's grammar that is not JSON or that jsonschema (with its format
checks) refuses; a grammar without a continuation; a stored tool schema that is refused; too few served random schemas.
Needs jsonschema; without it the test is skipped. The last line is "N passed, N failed"."""

import argparse
import collections
import fractions
import json
import pathlib
import re
import subprocess
import sys
import warnings

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from random_schemas import schemas  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
TOKENIZER = ROOT / "models/demo/tokenizer.json"
TOOLS = ROOT / "tests/data/schema/tools.json"
CASES = ROOT / "tests/data/schema/cases.json"
SKIPPED = 77
LEAST_SERVED = 0.9

try:
    warnings.simplefilter("ignore")
    import jsonschema
except ImportError:
    print("skipped: Python's jsonschema is not installed (python3-jsonschema, or pip install jsonschema[format])")
    sys.exit(SKIPPED)


def refuse_constant(name):
    raise ValueError(f"{name} is no JSON")


class Members(dict):
    """An object that records which of its names appeared more than once."""

    def __init__(self, pairs):
        super().__init__(pairs)
        self.repeated = {name for name, count in collections.Counter(name for name, _ in pairs).items() if count > 1}


def properties(validator, named, instance, schema):
    """Implements the keyword "properties"; none of its names may appear twice."""
    yield from validator.VALIDATORS_BEFORE["properties"](validator, named, instance, schema)
    for name in getattr(instance, "repeated", set()) & set(named):
        yield jsonschema.ValidationError(f"the property {name!r} comes twice")


def multiple_of(_, step, instance, __):
    """Implements the keyword "multipleOf" for decimals as the texts have them: a quotient of doubles refuses 0.07 for
    0.01."""
    number = isinstance(instance, (int, float)) and not isinstance(instance, bool)
    if number and (fractions.Fraction(str(instance)) / fractions.Fraction(str(step))).denominator != 1:
        yield jsonschema.ValidationError(f"{instance} is no multiple of {step}")


class TextFormats:
    """Wraps format checks, some of which raise errors of their own, such as fqdn's on an empty string."""

    def __init__(self, checker):
        self.checker = checker

    def check(self, instance, name):
        try:
            self.checker.check(instance, name)
        except ValueError as error:
            raise jsonschema.FormatError(f"{instance!r} is not a {name!r}") from error


def validator_for(schema):
    known = jsonschema.validators.validator_for(schema, default=jsonschema.Draft202012Validator)
    strict = jsonschema.validators.extend(known, {"properties": properties, "multipleOf": multiple_of})
    strict.VALIDATORS_BEFORE = known.VALIDATORS
    return strict(schema, format_checker=TextFormats(known.FORMAT_CHECKER))


def check(schema, text):
    """Returns what is wrong with a text; None if nothing is."""
    try:
        text.encode()  # no halves of surrogate pairs
        value = json.loads(text, parse_constant=refuse_constant, object_pairs_hook=Members)
        json.dumps(value, ensure_ascii=False).encode()
    except ValueError as error:
        return f"no JSON: {error}"
    error = next(validator_for(schema).iter_errors(value), None)
    return error and error.message[:300]


def sampled(program, documents, samples, seed, whitespace=None):
    words = [program, TOKENIZER, "<|im_end|>", str(samples), "250", str(seed)] + ([whitespace] if whitespace else [])
    lines = "".join(json.dumps(document, ensure_ascii=False) + "\n" for document in documents)
    done = subprocess.run(words, input=lines, capture_output=True, text=True)
    if done.returncode == SKIPPED:
        print(f"skipped: {done.stderr.strip()}")
        sys.exit(SKIPPED)
    answers = [json.loads(line) for line in done.stdout.split("\n") if line]
    if done.returncode or len(answers) != len(documents):
        at = json.dumps(documents[len(answers)])[:2000] if len(answers) < len(documents) else ""
        sys.exit(f"schema_samples ended with {done.returncode} after {len(answers)} schemas: {done.stderr} {at}")
    return answers


class Report:
    def __init__(self):
        self.counts = collections.Counter()
        self.reasons = collections.Counter()
        self.failures = []
        self.ms = []

    def add(self, document, answer):
        self.counts[answer["status"]] += 1
        if answer["status"] == "stuck":
            self.failures.append((document, "", answer["message"]))
        if answer["status"] != "served":
            self.reasons[re.sub(r"(?s)#.*?: (?=\")", "", re.sub(r"-?\d[\d.e+]*", "N", answer["message"]))[:110]] += 1
            return
        self.ms.append(answer["ms"])
        for one in answer["texts"]:
            self.counts["ended" if one["ended"] else "token limit"] += 1
            wrong = check(document, one["text"]) if one["ended"] else None
            if wrong:
                self.counts["wrong"] += 1
                self.failures.append((document, one["text"], wrong))

    def print(self, title):
        ms = sorted(self.ms) or [0]
        print(f"{title}: " + ", ".join(f"{count} {name}" for name, count in sorted(self.counts.items())) +
              f"; compiled in {ms[len(ms) // 2]:.1f} ms (median), {ms[-1]:.0f} ms at most")
        for reason, count in self.reasons.most_common(12):
            print(f"  {count} x {reason}")
        for document, text, wrong in self.failures[:10]:
            print(f"  WRONG {wrong}\n    text {text}\n    schema {json.dumps(document, ensure_ascii=False)[:1500]}")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("--schemas", type=int, default=300)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--samples", type=int, default=4)
    options = parser.parse_args()
    passed, failed = 0, 0

    def verdict(title, good):
        nonlocal passed, failed
        passed, failed = passed + bool(good), failed + (not good)
        if not good:
            print(f"FAILED: {title}")

    print(f"jsonschema checks the formats {', '.join(sorted(jsonschema.Draft202012Validator.FORMAT_CHECKER.checkers))}")
    source = schemas(options.seed)
    documents = [next(source) for _ in range(options.schemas)]
    report = Report()
    for begin in range(0, len(documents), 500):
        part = documents[begin:begin + 500]
        for document, answer in zip(part, sampled(options.program, part, options.samples, options.seed + begin)):
            report.add(document, answer)
    report.print(f"{options.schemas} random schemas of seed {options.seed}")
    verdict("every text is of its schema", not report.failures)
    share = report.counts["served"] / len(documents)
    print(f"  served: {share:.1%}")
    verdict(f"at least {LEAST_SERVED:.0%} are served", share >= LEAST_SERVED)

    tools = json.loads(TOOLS.read_text())
    for whitespace in (None, r"[\n\t ]*"):
        report = Report()
        for name, answer in zip(tools, sampled(options.program, tools.values(), options.samples, options.seed, whitespace)):
            report.add(tools[name], answer)
            if answer["status"] != "served":
                print(f"  {name}: {answer['message']}")
        report.print(f"{len(tools)} schemas of tools{', with blanks' if whitespace else ''}")
        verdict("every tool's schema is served, and every text is of it", report.counts["served"] == len(tools) and not report.failures)

    cases = json.loads(CASES.read_text())
    for case, answer in zip(cases, sampled(options.program, [case["schema"] for case in cases], 12, options.seed)):
        wrong = [check(case["schema"], one["text"]) for one in answer["texts"] if one["ended"]]
        good = answer["status"] == case.get("status", "served") and not any(wrong)
        if "texts" in case:
            good = good and {one["text"] for one in answer["texts"] if one["ended"]} <= set(case["texts"])
        if "message" in case:
            good = good and case["message"] in answer["message"]
        verdict(f"{json.dumps(case['schema'])[:200]}: {answer['status']} {answer['message']} {[w for w in wrong if w][:1]}", good)
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
