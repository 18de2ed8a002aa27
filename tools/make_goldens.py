#!/usr/bin/env python3
"""Makes golden checkpoints: tools/make_goldens.py FOLDER [NAME …]

A golden checkpoint is a small model with random weights, with the results that Hugging Face transformers computes from it in float32.
Without names the script makes all of its cases. tests/data/goldens/README.md describes the files.

The seed is the first one, from 1 on, whose weights make a good reference: each greedy token is well ahead of the second best, and
transformers' own forward in bfloat16 is close to that in float32. Needs these packages, on a CPU, in a virtual environment of their own:
  pip install transformers==5.17.0 torch==2.15.0 torchvision==0.29.2 safetensors==0.8.0 numpy==2.4.6 pillow==13.0.0"""

import argparse
import json
import pathlib
import sys

import safetensors.torch
import torch
import transformers

from goldens import dense_families, image_families, pooled, reference, text_families, weights

SEEDS = range(1, 400)
# Seeds whose texts the tests of the engine count on: greedy tokens of long answers are clear too.
SEEDS_OF = {"llama": (4321,), "qwen2": (2,)}
# The tests accept differences of 1e-4 for logits in float32, and of 2 % or more in bfloat16. A mixture of experts has a
# larger limit for rounding, because a token may go to another expert in bfloat16 than in float32, and then all later
# layers differ.
DENSE_LIMITS = reference.Limits(gap=2e-3, rounding=0.015)
ROUTED_LIMITS = reference.Limits(gap=2e-3, rounding=0.3)
DENSE = ("gemma3", "gemma3-d256", "gemma4", "gemma4-e", "qwen3.5", "qwen3.5-text", *dense_families.CASES, *image_families.CASES)
TEXT = {**dense_families.CASES, **text_families.CASES}
PROMPTS = {name: reference.LONG_PROMPTS for name in ("gemma3-d256", "llama-d64", "llama-d128", "qwen3-d128")}
PROMPTS["phi3-longrope"] = reference.LONGROPE_PROMPTS
GREATEST_BYTES = 300 * 1024
LARGER = ("llama",)


def save_weights(name, model, folder):
    """Saves the weights, in the layout of published checkpoints even if transformers saves another one."""
    weights.narrow(model)
    model.save_pretrained(folder)
    file = folder / "model.safetensors"
    tensors = safetensors.torch.load_file(file)
    if name == "qwen3.5-moe":  # published with the experts of a layer in one tensor
        tensors = {key: value for key, value in tensors.items() if ".experts." not in key}
        tensors |= {key: value.detach() for key, value in model.named_parameters() if ".experts." in key}
    if name == "qwen3-vl-moe":  # published with the experts' matrices transposed, which transformers undoes on reading only
        tensors |= {key: value.transpose(1, 2).contiguous() for key, value in tensors.items() if ".experts." in key}
    if name == "qwen3.5":  # published with next-token layers, which the text model does not read
        tensors |= {"mtp.fc.weight": torch.zeros(32, 64, dtype=torch.bfloat16), "mtp.norm.weight": torch.ones(32, dtype=torch.bfloat16)}
    safetensors.torch.save_file(tensors, file, metadata={"format": "pt"})
    if hasattr(model, "published_config"):
        config = {**model.published_config, "transformers_version": transformers.__version__}
        (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    if name == "qwen3-vl-moe":  # published with this name of the field
        text = (folder / "config.json").read_text().replace('"num_local_experts"', '"num_experts"')
        (folder / "config.json").write_text(text)
    if name == "qwen3-embedding":
        pooled.save_pooling(model, folder)


def saved_model(name, seed, folder):
    """Saves a model. Returns it as transformers reads it again in float32, and the generator that makes its prompts."""
    make = image_families.CASES[name][0] if name in image_families.CASES else {**TEXT, **pooled.CASES}[name]
    model, generator = weights.random_model(make, seed)
    save_weights(name, model, folder)
    return type(model).from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval(), generator


def reference_of(name, seed, folder):
    """Saves a model in the folder. Returns (members of golden.json, tensors, files, relative error in bfloat16)."""
    model, generator = saved_model(name, seed, folder)
    limits = DENSE_LIMITS if name in (*DENSE, *pooled.CASES) else ROUTED_LIMITS
    if name in image_families.CASES:
        _, make_processor, sizes = image_families.CASES[name]
        return reference.of_images(model, make_processor(), generator, seed, sizes, limits)
    if name in pooled.CASES:
        members, tensors, error = pooled.reference_of(model, generator, limits)
    else:
        members, tensors, error = reference.of_text(model, generator, PROMPTS.get(name, reference.TEXT_PROMPTS), limits)
    return members, tensors, {}, error


def good_reference(name, folder):
    """Returns (seed, the result of reference_of() for it) for the first seed that makes a good reference."""
    for seed in SEEDS_OF.get(name, SEEDS):
        try:
            return seed, reference_of(name, seed, folder)
        except reference.Unclear:
            continue
    sys.exit(f"{name}: no seed in {SEEDS} makes a good reference")


def make_golden(name, folder):
    folder.mkdir(parents=True, exist_ok=True)
    seed, (members, tensors, files, error) = good_reference(name, folder)
    if name in image_families.CASES:
        image_families.CASES[name][1]().save_pretrained(folder)
        for file, content in files.items():
            (folder / file).write_bytes(content)
    safetensors.torch.save_file(tensors, folder / "golden.safetensors")
    told = dict(transformers=transformers.__version__, torch=torch.__version__, seed=seed, **members)
    (folder / "golden.json").write_text(json.dumps(told) + "\n")
    size = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
    print(f"{name}: seed {seed}, {size / 1024:.0f} KiB, bfloat16 {100 * error:.1f} % apart", flush=True)
    if size > GREATEST_BYTES and name not in LARGER:
        sys.exit(f"{name}: more than {GREATEST_BYTES // 1024} KiB")


def main():
    known = [*TEXT, *image_families.CASES, *pooled.CASES]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(known))
    arguments = parser.parse_args()
    if unknown := sorted(set(arguments.names) - set(known)):
        parser.error(f"{unknown[0]} is none of {', '.join(known)}")
    with torch.no_grad():
        for name in arguments.names or known:
            make_golden(name, arguments.folder / name)


if __name__ == "__main__":
    main()
