#!/usr/bin/env python3
"""Makes golden adapters: tools/make_adapter_goldens.py GOLDENS FOLDER [BASE …]

A golden adapter is a LoRA adapter with random weights, as PEFT saves it, for a golden checkpoint in the folder GOLDENS. Its results are
those of PEFT in float32, with the adapter not merged. Only r4-experts-linear is merged, because PEFT cannot compute it. Without bases
the script makes all of its cases, in FOLDER/BASE-lora/NAME. tests/data/adapters/README.md describes them. Needs the packages of
tools/make_goldens.py and peft==0.21.0."""

import argparse
import json
import math
import pathlib
import re
import sys
from typing import NamedTuple

import peft
import safetensors.torch
import torch
import transformers

from goldens import reference

SEEDS = range(1, 400)
LIMITS = reference.Limits(gap=1e-3, rounding=0.015)
GREATEST_BYTES = 300 * 1024
ATTENTION = ["q_proj", "k_proj", "v_proj", "o_proj"]
MLP = ["gate_proj", "up_proj", "down_proj"]


class Case(NamedTuple):
    config: dict  # the arguments of peft.LoraConfig
    dtype: torch.dtype  # the type of the stored tensors
    linear_experts: bool = False  # one pair of matrices for each expert's linear


CASES = {
    "qwen3": {
        "r8-attention": Case(dict(r=8, lora_alpha=16, target_modules=ATTENTION), torch.float32),
        "r4-all-rslora": Case(dict(r=4, lora_alpha=6, target_modules=ATTENTION + MLP, use_rslora=True), torch.bfloat16)},
    "llama": {
        "r16-pattern": Case(dict(r=16, lora_alpha=16, target_modules=ATTENTION + MLP, layers_to_transform=[0, 1],
                                 rank_pattern={r"layers\.0\.self_attn\.q_proj": 4, "down_proj": 6},
                                 alpha_pattern={r"layers\.1\.mlp\.up_proj": 40}), torch.bfloat16),
        "r4-embed-head": Case(dict(r=4, lora_alpha=8, target_modules=ATTENTION + ["embed_tokens", "lm_head"]), torch.bfloat16),
        "r8-save-embed-head": Case(dict(r=8, lora_alpha=16, target_modules=ATTENTION, modules_to_save=["lm_head", "embed_tokens"]),
                                   torch.bfloat16)},
    "qwen3-moe": {
        "r4-target-parameters": Case(dict(r=4, lora_alpha=8, lora_dropout=0.0, target_modules=["q_proj", "o_proj"],
                                          target_parameters=["mlp.experts.gate_up_proj", "mlp.experts.down_proj"]), torch.float32),
        "r4-experts-linear": Case(dict(r=4, lora_alpha=8, target_modules=MLP), torch.bfloat16, linear_experts=True)},
}


def of_pattern(patterns, name, default):
    """Returns the value for a parameter, by the expression in `patterns` that matches the name of its module."""
    return next((value for pattern, value in (patterns or {}).items() if re.search(rf"(.*\.)?({pattern})\.lora", name)), default)


def fill(model, config, generator):
    """Gives every tensor of the adapter values that affect the logits, exact in bfloat16."""
    for name, parameter in model.named_parameters():
        name = name.replace(".default", "")
        rank = of_pattern(config.rank_pattern, name, config.r)
        scale = of_pattern(config.alpha_pattern, name, config.lora_alpha) / (math.sqrt(rank) if config.use_rslora else rank)
        noise = torch.randn(parameter.shape, generator=generator)
        if "lora_embedding_A" in name:  # [rank, vocabulary]
            values = noise
        elif "lora_embedding_B" in name:
            values = noise * 0.02 / scale
        elif "lora_A" in name:
            values = noise / parameter.shape[1] ** 0.5
        elif "lora_B" in name:
            values = noise * 0.3 / scale / rank ** 0.5
        elif "modules_to_save" in name:
            values = parameter + 0.5 * parameter.std() * noise
        else:
            continue
        parameter.data = values.bfloat16().float()


def with_linear_experts(model, config, generator):
    """Adds an adapter to every linear of every expert. PEFT cannot, because transformers holds the experts of a layer in one tensor:
    here the products are added to the weights. Returns (the model, the tensors of the adapter)."""
    parameters, tensors, scale = dict(model.named_parameters()), {}, config.lora_alpha / config.r
    hidden, inner = model.config.hidden_size, model.config.moe_intermediate_size
    for layer in range(model.config.num_hidden_layers):
        experts = f"model.layers.{layer}.mlp.experts."
        gate_up, down = parameters[experts + "gate_up_proj"].data, parameters[experts + "down_proj"].data
        for expert in range(model.config.num_experts):
            rows = {"gate": gate_up[expert, :inner], "up": gate_up[expert, inner:], "down": down[expert]}
            for name, weight in rows.items():
                outputs, inputs = (hidden, inner) if name == "down" else (inner, hidden)
                a = (torch.randn(config.r, inputs, generator=generator) / inputs ** 0.5).bfloat16().float()
                b = (torch.randn(outputs, config.r, generator=generator) * 0.3 / scale / config.r ** 0.5).bfloat16().float()
                prefix = f"base_model.model.{experts}{expert}.{name}_proj.lora_"
                tensors |= {prefix + "A.weight": a, prefix + "B.weight": b}
                weight += scale * b @ a
    return model, tensors


def adapted(case, base, seed, folder):
    """Saves an adapter. Returns the model with it, as PEFT reads the folder again."""
    config = peft.LoraConfig(**{**dict(task_type="CAUSAL_LM", lora_dropout=0.05), **case.config})
    generator = torch.Generator().manual_seed(seed)
    read = lambda: transformers.AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32, attn_implementation="eager").eval()
    if case.linear_experts:
        model, tensors = with_linear_experts(read(), config, generator)
        config.save_pretrained(folder)
    else:
        model = peft.get_peft_model(read(), config).eval()
        fill(model, config, generator)
        model.save_pretrained(folder)
        (folder / "README.md").unlink()
        tensors = safetensors.torch.load_file(folder / "adapter_model.safetensors")
    stored = {name: tensor.to(case.dtype).contiguous() for name, tensor in tensors.items()}
    safetensors.torch.save_file(stored, folder / "adapter_model.safetensors", metadata={"format": "pt"})
    settings = json.loads((folder / "adapter_config.json").read_text())
    settings |= dict(base_model_name_or_path=base.name, target_modules=sorted(settings["target_modules"]))
    (folder / "adapter_config.json").write_text(json.dumps(settings, indent=2) + "\n")
    return model if case.linear_experts else peft.PeftModel.from_pretrained(read(), folder).eval()


def reference_of(model, prompts):
    """Returns (members of golden.json, tensors)."""
    run = lambda ids, model=model: model(ids).logits[0].float()
    tensors = {}
    for i, prompt in enumerate(prompts):
        reference.store_logits(tensors, i, run(torch.tensor([prompt])))
    stored = list(tensors.values())
    runs = [lambda narrow, p=p, s=s: run(torch.tensor([p]), narrow)[-len(s):] for p, s in zip(prompts, stored)]
    reference.rounding(model, runs, stored, LIMITS.rounding)
    answers = [reference.greedy(run, prompt, reference.GREEDY_TOKENS["text"], LIMITS.gap) for prompt in prompts]
    return dict(prompts=prompts, greedy=answers), tensors


def make_golden(base, name, folder):
    folder.mkdir(parents=True, exist_ok=True)
    prompts = json.loads((base / "golden.json").read_text())["prompts"]
    plain = safetensors.torch.load_file(base / "golden.safetensors")
    for seed in SEEDS:
        try:
            members, tensors = reference_of(adapted(CASES[base.name][name], base, seed, folder), prompts)
            break
        except reference.Unclear:
            continue
    else:
        sys.exit(f"{base.name} {name}: no seed in {SEEDS} makes a good reference")
    safetensors.torch.save_file(tensors, folder / "golden.safetensors")
    told = dict(transformers=transformers.__version__, peft=peft.__version__, torch=torch.__version__, seed=seed, base=base.name, **members)
    (folder / "golden.json").write_text(json.dumps(told) + "\n")
    change = min(float((tensors[key] - plain[key]).norm() / plain[key].norm()) for key in tensors)
    size = sum(file.stat().st_size for file in folder.iterdir())
    print(f"{base.name} {name}: seed {seed}, {size / 1024:.0f} KiB, changes the logits by {100 * change:.0f} % or more", flush=True)
    if size > GREATEST_BYTES:
        sys.exit(f"{base.name} {name}: more than {GREATEST_BYTES // 1024} KiB")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("goldens", type=pathlib.Path)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("bases", nargs="*", metavar="BASE", help=", ".join(CASES))
    arguments = parser.parse_args()
    if unknown := sorted(set(arguments.bases) - set(CASES)):
        parser.error(f"{unknown[0]} is none of {', '.join(CASES)}")
    with torch.no_grad():
        for base in arguments.bases or CASES:
            for name in CASES[base]:
                make_golden(arguments.goldens / base, name, arguments.folder / f"{base}-lora" / name)


if __name__ == "__main__":
    main()
