#!/usr/bin/env python3
"""Measures the loss of quality by the types of `tessera quantize`: tools/perplexity.py TESSERA [--imatrix] [TYPE …]

Writes the bundled model in each type. Scores held-out documents, from the grammar of the training data, with the model
itself and with each output. Prints a table for docs/gguf.md: bytes of the weights, bits per weight, the perplexity over
all tokens but the first of each document, and the Kullback-Leibler divergence of the next token's probabilities from the
model's own (the mean over tokens, in thousandths of a nat). Without types it takes those of the table in docs/gguf.md.

With --imatrix it writes each type without and with an importance matrix, which `tessera calibrate` makes of other
documents of the grammar, and takes the types of the second table.

With `caches` in place of the types it scores the documents over each type of KV cache, for docs/quantisation.md."""

import array
import json
import math
import pathlib
import random
import struct
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[1]
MODEL = ROOT / "models" / "demo"
sys.path.insert(0, str(ROOT / "tools" / "demo_model"))
from language import make_dialogue, make_story  # noqa: E402  pylint: disable=wrong-import-position

TYPES = ["BF16", "Q8_0", "Q6_K", "Q5_K_M", "Q5_1", "Q5_0", "Q4_K_M", "Q4_K_S", "IQ4_NL", "IQ4_XS", "Q4_1", "Q4_0", "Q3_K_M",
         "Q2_K", "fp8", "fp8-dynamic", "int8", "int4", "nvfp4"]
IMPORTANT_TYPES = ["Q5_K_M", "Q4_K_M", "IQ4_XS", "Q4_0", "Q3_K_M", "Q2_K", "int4", "nvfp4"]
CACHES = ["bfloat16", "int8", "fp8_e4m3"]
SEED = 20261126  # the training documents have other seeds
CALIBRATION_SEED = 20261127
DOCUMENTS = 48
CALIBRATION_DOCUMENTS = 96
LONGEST = 2000  # bytes of a document, so that it has far fewer tokens than the context


def document(source):
    if source.random() < 0.5:
        return make_story(source) + "<|endoftext|>"
    turns = make_dialogue(source)
    return "".join(f"<|im_start|>{turn['role']}\n{turn['content']}<|im_end|>\n" for turn in turns)


def documents(seed, count):
    source = random.Random(seed)
    texts = []
    while len(texts) < count:
        text = document(source)
        if len(text) <= LONGEST:
            texts.append(text)
    return texts


def run(*arguments):
    done = subprocess.run([str(word) for word in arguments], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, arguments[:4]))} … failed: {done.stderr}")
    return json.loads(done.stdout)


def log_probabilities(logits):
    """Returns the logarithms of the probabilities, and the probabilities."""
    most = max(logits)
    exponentials = [math.exp(logit - most) for logit in logits]
    total = sum(exponentials)
    shift = most + math.log(total)
    return [logit - shift for logit in logits], [value / total for value in exponentials]


def rows_of(scores):
    """Yields the logits of each token of each text."""
    data = pathlib.Path(scores).read_bytes()
    start = 8 + struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8:start])
    for name in sorted(name for name in header if name.startswith("logits")):
        tokens, vocabulary = header[name]["shape"]
        begin, end = (start + offset for offset in header[name]["data_offsets"])
        values = array.array("f", data[begin:end])
        for token in range(tokens):
            yield values[token * vocabulary:(token + 1) * vocabulary]


def score(program, model, texts, scores, cache="float32"):
    """Returns the perplexity, and the number of tokens that it was computed over."""
    prompts = [word for text in texts for word in ("--prompt", text)]
    rows = run(program, "score", "--model-path", model, "--dtype", "float32", "--kv-cache-dtype", cache, "--log-level",
               "error", "--output", scores, "--json", *prompts)["prompts"]
    tokens = sum(row["tokens"] - 1 for row in rows)
    return math.exp(-sum(row["logprob"] for row in rows) / tokens), tokens


def divergence(scores, own):
    """Returns the mean divergence. `own`: log_probabilities() of the model itself."""
    total = 0
    for logits, (logarithms, probabilities) in zip(rows_of(scores), own, strict=True):
        got, _ = log_probabilities(logits)
        total += sum(p * (a - b) for p, a, b in zip(probabilities, logarithms, got))
    return total / len(own)


def calibrated(program, folder):
    """Returns the words that make quantize use an importance matrix. Prints what calibrate says."""
    text = folder / "calibration.txt"
    text.write_text("".join(documents(CALIBRATION_SEED, CALIBRATION_DOCUMENTS)))
    told = run(program, "calibrate", MODEL, text, "-o", folder / "imatrix.gguf", "--json")
    print(f"importance matrix of {told['tokens']} tokens of other documents")
    return ["--imatrix", folder / "imatrix.gguf"]


def main():
    program, words = sys.argv[1], sys.argv[2:]
    important = "--imatrix" in words
    types = [word for word in words if word != "--imatrix"] or (IMPORTANT_TYPES if important else TYPES)
    texts = documents(SEED, DOCUMENTS)
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        ways = {"": []}
        if important:
            ways[", matrix"] = calibrated(program, folder)
        own, tokens = score(program, MODEL, texts, folder / "own")
        probabilities = [log_probabilities(row) for row in rows_of(folder / "own")]
        if types == ["caches"]:
            print(f"{len(texts)} documents, {tokens} tokens\n\n| cache | perplexity | divergence |\n|---|---|---|\n"
                  f"| `float32` | {own:.4f} | 0 |")
            for cache in CACHES:
                value, _ = score(program, MODEL, texts, folder / "scores", cache)
                print(f"| `{cache}` | {value:.4f} | {1000 * divergence(folder / 'scores', probabilities):.5f} |")
            return
        print(f"{len(texts)} documents, {tokens} tokens\n\n| type | weights | bits | perplexity | divergence |\n"
              f"|---|---|---|---|---|\n| the model itself | | 16 | {own:.4f} | 0 |")
        for kind in types:
            for way, flags in ways.items():
                out = folder / (f"{kind}{len(flags)}" + (".gguf" if kind.isupper() else ""))
                told = run(program, "quantize", MODEL, out, "--type", kind, "--json", *flags)
                value, _ = score(program, out, texts, folder / "scores")
                print(f"| `{kind}`{way} | {told['bytes_after'] / 2**20:.2f} MiB | {told['bits_per_weight']:.2f} | "
                      f"{value:.4f} | {1000 * divergence(folder / 'scores', probabilities):.{3 if important else 2}f} |", flush=True)


if __name__ == "__main__":
    main()
