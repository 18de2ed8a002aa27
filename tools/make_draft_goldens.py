#!/usr/bin/env python3
"""Makes golden draft layers: tools/make_draft_goldens.py GOLDENS FOLDER [NAME …]

A golden draft layer has random weights, and the logits that its published recipe computes in float32 with the layers of transformers.
`mtp-*` are whole checkpoints with a next-token layer; BASE-eagle3 are EAGLE-3 layers for the golden checkpoint BASE in the folder GOLDENS.
Without names the script makes all of its cases. tests/data/drafts/README.md describes the files. Needs the same packages as
tools/make_goldens.py."""

import argparse
import json
import pathlib
import sys

import safetensors.torch
import torch
import transformers

from goldens import draft_layers, eagle, reference

SEEDS = range(1, 400)
# In the texts of the first seed, drafts are kept so often that a test of short pages preempts no request.
SEEDS_OF = {"mtp-deepseek-v3": range(2, 400)}
GREATEST_BYTES = 300 * 1024


def make_golden(name, goldens, folder):
    folder.mkdir(parents=True, exist_ok=True)
    for seed in SEEDS_OF.get(name, SEEDS):
        try:
            if name in draft_layers.CASES:
                members, tensors = draft_layers.reference_of(name, seed, folder)
            else:
                members, tensors = eagle.reference_of(goldens / name.removesuffix("-eagle3"), seed, folder)
            break
        except reference.Unclear:
            continue
    else:
        sys.exit(f"{name}: no seed in {SEEDS} makes a good reference")
    safetensors.torch.save_file(tensors, folder / "golden.safetensors")
    told = dict(transformers=transformers.__version__, torch=torch.__version__, seed=seed, **members)
    (folder / "golden.json").write_text(json.dumps(told) + "\n")
    size = sum(file.stat().st_size for file in folder.iterdir())
    print(f"{name}: seed {seed}, {size / 1024:.0f} KiB", flush=True)
    if size > GREATEST_BYTES:
        sys.exit(f"{name}: more than {GREATEST_BYTES // 1024} KiB")


def main():
    known = [*draft_layers.CASES, *(f"{base}-eagle3" for base in eagle.BASES)]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("goldens", type=pathlib.Path)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(known))
    arguments = parser.parse_args()
    if unknown := sorted(set(arguments.names) - set(known)):
        parser.error(f"{unknown[0]} is none of {', '.join(known)}")
    with torch.no_grad():
        for name in arguments.names or known:
            make_golden(name, arguments.goldens, arguments.folder / name)


if __name__ == "__main__":
    main()
