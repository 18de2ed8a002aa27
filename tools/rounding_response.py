#!/usr/bin/env python3
"""Measures how strongly a model amplifies rounding errors. Changes each value of its embeddings randomly up or down by a
unit in the last place of float32, and compares the logits of random prompts with those of the unchanged model.

    tools/rounding_response.py --tessera build/tessera ../shared/goldens/qwen3-next ../shared/goldens/qwen3

Prints for each folder the greatest and the median change of a row's logits, relative to the row's greatest magnitude.
For small checkpoints with bfloat16 embeddings (goldens), in float32 on the CPU.
"""

import argparse
import array
import json
import pathlib
import random
import shutil
import struct
import subprocess
import sys
import tempfile


def read(path):
    """Returns header and data of a safetensors file."""
    with open(path, "rb") as file:
        header = json.loads(file.read(struct.unpack("<Q", file.read(8))[0]))
        return header, file.read()


def tensor(header, data, name):
    begin, end = header[name]["data_offsets"]
    return data[begin:end]


def changed_embeddings(raw, draw):
    """Returns bfloat16 values as float32, each changed by a unit in the last place, up or down."""
    bits = array.array("I", (half << 16 for half in array.array("H", raw)))
    return array.array("I", (b + draw.choice((-1, 1)) if b & 0x7FFFFFFF else b for b in bits)).tobytes()


def write_changed(source, target, draw):
    for file in source.glob("*.json"):
        if file.name != "golden.json":
            shutil.copy(file, target)
    header, data = read(source / "model.safetensors")
    names = [name for name in header if name != "__metadata__"]
    embeddings = [name for name in names if name.endswith("embed_tokens.weight") and header[name]["dtype"] == "BF16"]
    if len(embeddings) != 1:
        sys.exit(f"{source}: wanted one embed_tokens.weight of BF16, found {embeddings}")
    entries, parts, offset = {}, [], 0
    for name in names:
        raw, dtype = tensor(header, data, name), header[name]["dtype"]
        if name in embeddings:
            raw, dtype = changed_embeddings(raw, draw), "F32"
        entries[name] = {"dtype": dtype, "shape": header[name]["shape"], "data_offsets": [offset, offset + len(raw)]}
        parts.append(raw)
        offset += len(raw)
    text = json.dumps(entries).encode()
    text += b" " * (-len(text) % 8)
    (target / "model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + b"".join(parts))


def logits(tessera, model, prompts, folder):
    output = folder / "logits.safetensors"
    ids = [argument for prompt in prompts for argument in ("--input-ids", ",".join(map(str, prompt)))]
    subprocess.run([tessera, "score", "--model-path", model, "--dtype", "float32", "--output", output, *ids],
                   check=True, stdout=subprocess.DEVNULL)
    header, data = read(output)
    rows = []
    for name in sorted(name for name in header if name.startswith("logits")):
        values = array.array("f", tensor(header, data, name))
        width = header[name]["shape"][-1]
        rows += [values[i:i + width] for i in range(0, len(values), width)]
    return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tessera", default="build/tessera")
    parser.add_argument("--prompts", type=int, default=8)
    parser.add_argument("--tokens", type=int, default=240, help="of each prompt")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("model", nargs="+", type=pathlib.Path)
    options = parser.parse_args()
    for model in options.model:
        draw = random.Random(options.seed)
        config = json.loads((model / "config.json").read_text())
        vocabulary = config.get("text_config", config)["vocab_size"]
        prompts = [[draw.randrange(vocabulary) for _ in range(options.tokens)] for _ in range(options.prompts)]
        with tempfile.TemporaryDirectory() as folder:
            folder = pathlib.Path(folder)
            write_changed(model, folder, draw)
            before = logits(options.tessera, model, prompts, folder)
            after = logits(options.tessera, folder, prompts, folder)
        changes = sorted(max(abs(a - b) for a, b in zip(x, y)) / max(map(abs, x)) for x, y in zip(before, after))
        print(f"{model.name}: greatest {changes[-1]:.1e}, median {changes[len(changes) // 2]:.1e}", flush=True)


if __name__ == "__main__":
    main()
