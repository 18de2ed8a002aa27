#!/usr/bin/env python3
"""Makes golden checkpoints with quantised weights: tools/make_quantised_goldens.py FOLDER [NAME …]

Each is a small model with random weights in a published format, with the results that Hugging Face transformers computes in float32 from
the dequantised weights. If the format rounds inputs at run time, golden.safetensors also has `logits_act_<i>`, the logits with rounded
inputs, and golden.json describes the rounding. Without names the script makes all of its cases. tests/data/goldens/README.md describes
the files. Needs the same packages as tools/make_goldens.py."""

import argparse
import json
import pathlib
import sys
import tempfile

import safetensors.torch
import torch
import transformers

from goldens import quantised_families, reference, weights

SEEDS = range(1, 400)
LIMITS = reference.Limits(gap=1e-3, rounding=0.5)
GREATEST_BYTES = 300 * 1024


def store(case, tensors):
    """Returns (the tensors of the checkpoint, the dequantised weights, the names of quantised modules)."""
    stored, plain, modules = {}, {}, []
    for name, tensor in tensors.items():
        if not quantised_families.is_quantised(case, name):
            stored[name] = tensor.to(case.dtype) if tensor.dtype == torch.bfloat16 else tensor
            plain[name] = stored[name].float()
            continue
        module = name.removesuffix(".weight")
        parts, numbers = case.quantise(tensor.float())
        dot = "." if module != name else ""  # tensors of all experts have no modules of their own
        stored |= {f"{module}{dot}{suffix}": value.contiguous() for suffix, value in parts.items()}
        plain[name] = numbers.contiguous()
        modules.append(module)
    return stored, plain, modules


def save_config(case, model, folder):
    """Writes config.json. Its fields are spelled as in the published model if `model` has that config, and otherwise in
    the older way, as in nearly all quantised checkpoints."""
    config = json.loads((folder / "config.json").read_text())
    if hasattr(model, "published_config"):
        config = {**model.published_config, "transformers_version": transformers.__version__}
    else:
        rope = config.pop("rope_parameters")
        config.pop("dtype", None)
        scaling = {name: value for name, value in rope.items() if name != "rope_theta"} if rope["rope_type"] != "default" else None
        config |= dict(rope_theta=rope["rope_theta"], rope_scaling=scaling, torch_dtype=str(case.dtype).removeprefix("torch."))
        config |= case.published
    (folder / "config.json").write_text(json.dumps({**config, "quantization_config": case.settings}, indent=2) + "\n")
    if case.beside:
        (folder / "hf_quant_config.json").write_text(json.dumps(case.beside, indent=2) + "\n")


def with_rounded_inputs(case, model, modules, prompts):
    """Returns the logits if every quantised linear's input is rounded."""
    hooks = [module.register_forward_pre_hook(lambda _, args: (case.inputs[1](args[0]),))
             for name, module in model.named_modules() if name in modules]
    if len(hooks) != len(modules):
        sys.exit(f"{len(modules)} modules are quantised, of which the model has {len(hooks)}")
    tensors = {}
    for i, prompt in enumerate(prompts):
        reference.store_logits(tensors, i, model(torch.tensor([prompt])).logits[0].float())
    for hook in hooks:
        hook.remove()
    return {name.replace("logits_", "logits_act_"): logits for name, logits in tensors.items()}


def reference_of(case, seed, folder):
    """Returns (members of golden.json, tensors) for the checkpoint in the folder."""
    model, generator = weights.random_model(case.model, seed)
    weights.narrow(model)
    model.save_pretrained(folder)
    stored, plain, modules = store(case, safetensors.torch.load_file(folder / "model.safetensors"))
    with tempfile.TemporaryDirectory() as numbers:
        model.config.save_pretrained(numbers)
        safetensors.torch.save_file(plain, f"{numbers}/model.safetensors", metadata={"format": "pt"})
        read = type(model).from_pretrained(numbers, dtype=torch.float32, attn_implementation="eager").eval()
    members, tensors, _ = reference.of_text(read, generator, case.prompts, LIMITS)
    if case.inputs:
        tensors |= with_rounded_inputs(case, read, modules, members["prompts"])
        members["activations"] = case.inputs[0]
    safetensors.torch.save_file(stored, folder / "model.safetensors", metadata={"format": "pt"})
    save_config(case, model, folder)
    return members, tensors


def make_golden(name, folder):
    case = quantised_families.CASES[name]
    folder.mkdir(parents=True, exist_ok=True)
    for seed in SEEDS:
        try:
            members, tensors = reference_of(case, seed, folder)
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
    known = list(quantised_families.CASES)
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
