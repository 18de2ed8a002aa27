#!/usr/bin/env python3
"""Copies golden checkpoints with their first prompts alone: tools/shorten_golden.py PROMPTS FROM TO NAME …

FROM and TO are folders of golden checkpoints (tests/data/goldens/README.md describes the files). The weights stay as they are; golden.json
and golden.safetensors keep the data of the first PROMPTS prompts. Needs no packages."""

import json
import pathlib
import re
import shutil
import struct
import sys


def read_safetensors(file):
    """Returns (header without metadata, data) of a file."""
    content = file.read_bytes()
    (size,) = struct.unpack("<Q", content[:8])
    header = json.loads(content[8:8 + size])
    header.pop("__metadata__", None)
    return header, content[8 + size:]


def write_safetensors(file, tensors):
    """Writes {name: (entry of a header, bytes)}."""
    header, data = {}, b""
    for name, (entry, content) in tensors.items():
        header[name] = {**entry, "data_offsets": [len(data), len(data) + len(content)]}
        data += content
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    file.write_bytes(struct.pack("<Q", len(text)) + text + data)


def is_of_prompts(name, prompts):
    """Returns whether to keep a tensor: names such as logits_2 or logits_act_2_tail must belong to one of the first
    prompts; other names are kept."""
    found = re.search(r"_(\d+)(_tail)?$", name)
    return found is None or int(found.group(1)) < prompts


def shorten(prompts, source, target):
    target.mkdir(parents=True, exist_ok=True)
    for file in source.iterdir():
        if not file.name.startswith("golden."):
            shutil.copyfile(file, target / file.name)
    golden = json.loads((source / "golden.json").read_text())
    for key in ("prompts", "greedy"):
        golden[key] = golden[key][:prompts]
    (target / "golden.json").write_text(json.dumps(golden) + "\n")
    header, data = read_safetensors(source / "golden.safetensors")
    write_safetensors(target / "golden.safetensors",
                      {name: (entry, data[slice(*entry["data_offsets"])]) for name, entry in sorted(header.items())
                       if is_of_prompts(name, prompts)})


def main():
    prompts, source, target, *names = sys.argv[1:]
    for name in names:
        shorten(int(prompts), pathlib.Path(source) / name, pathlib.Path(target) / name)


if __name__ == "__main__":
    main()
