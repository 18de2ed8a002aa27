"""Write reference outputs of the demo model, computed by Hugging Face in float32.

    python make_golden.py MODEL_FOLDER OUTPUT_FOLDER

Chooses 20 of the candidates in prompts.json whose greedy paths are clear, and writes
golden.json (prompts, token ids, texts) and golden.safetensors (logits of two of the prompts).
"""

import argparse
import json
import sys
from pathlib import Path

import torch
from safetensors.torch import save_file
from transformers import AutoTokenizer, Qwen3ForCausalLM

from evaluate import ALLOWED_REPEATS, evaluate, most_repeated, parts
from make_data import render_chat

NEW_TOKENS = 60
STORIES, CHATS = 13, 7
REQUIRED_GAP = 0.5
LOGITS_PROMPT_TOKENS = 40   # logits are stored for prompts up to this length


@torch.no_grad()
def greedy(model, input_ids, end_ids):
    """Return the greedy continuation, the logits of all positions, and the smallest gap between the two best tokens."""
    ids = list(input_ids)
    min_gap = float("inf")
    while len(ids) < len(input_ids) + NEW_TOKENS:
        logits = model(input_ids=torch.tensor([ids]), use_cache=False).logits[0]
        best = logits[-1].topk(2)
        min_gap = min(min_gap, (best.values[0] - best.values[1]).item())
        ids.append(best.indices[0].item())
        if ids[-1] in end_ids:
            break
    return ids[len(input_ids):], logits, min_gap


def reference(prompt, model, tokenizer, end_ids):
    """Return one entry of golden.json, and its logits."""
    entry = {}
    if isinstance(prompt, list):
        entry["messages"] = prompt
        entry["prompt"] = tokenizer.apply_chat_template(prompt, tokenize=False, add_generation_prompt=True)
        assert entry["prompt"] == render_chat(prompt, add_generation_prompt=True)
    else:
        entry["prompt"] = prompt
    input_ids = tokenizer(entry["prompt"])["input_ids"]
    output_ids, logits, min_gap = greedy(model, input_ids, end_ids)
    entry |= {"input_ids": input_ids, "output_ids": output_ids,
              "text": tokenizer.decode(output_ids, skip_special_tokens=True), "min_gap": round(min_gap, 4)}
    return entry, logits


def choose(references):
    """Return the first stories and chats that are clear and together repeat no four words too often."""
    chosen = []
    wanted = {True: CHATS, False: STORIES}
    for candidate in references:
        entry = candidate[0]
        texts = [parts(other)[1] for other, _ in chosen + [candidate]]
        if (wanted["messages" in entry] and entry["min_gap"] > REQUIRED_GAP
                and most_repeated(texts)[1] <= ALLOWED_REPEATS):
            wanted["messages" in entry] -= 1
            chosen.append(candidate)
    return chosen


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", type=Path)
    parser.add_argument("output", type=Path)
    arguments = parser.parse_args()

    tokenizer = AutoTokenizer.from_pretrained(arguments.model)
    model = Qwen3ForCausalLM.from_pretrained(arguments.model, dtype=torch.float32).eval()
    end_ids = json.loads((arguments.model / "generation_config.json").read_text())["eos_token_id"]
    prompts = json.loads((Path(__file__).parent / "prompts.json").read_text())
    references = [reference(prompt, model, tokenizer, end_ids) for prompt in prompts]

    print("All candidates:")
    evaluate([entry for entry, _ in references])
    for entry, _ in references:
        print(f"  gap {entry['min_gap']:.3f}  {entry['prompt']!r} -> {entry['text']!r}")

    chosen = choose(references)
    entries = [entry for entry, _ in chosen]
    smallest = min(entry["min_gap"] for entry in entries)
    print("\nChosen prompts:")
    passed = evaluate(entries) and len(entries) == STORIES + CHATS and smallest > REQUIRED_GAP
    print(f"smallest gap between the two best  {smallest:.4f}")

    arguments.output.mkdir(parents=True, exist_ok=True)
    (arguments.output / "golden.json").write_text(json.dumps(entries, indent=1, ensure_ascii=False) + "\n")
    story = next(i for i, e in enumerate(entries)
                 if "messages" not in e and len(e["input_ids"]) <= LOGITS_PROMPT_TOKENS)
    chat = max((i for i, e in enumerate(entries) if "messages" in e and len(e["input_ids"]) <= LOGITS_PROMPT_TOKENS),
               key=lambda i: len(entries[i]["output_ids"]))
    save_file({f"logits.{i}": chosen[i][1].contiguous() for i in (story, chat)},
              arguments.output / "golden.safetensors")
    print("passed" if passed else "failed")
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main())
