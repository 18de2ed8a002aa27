"""Train the demo model: a small Qwen3 on text from our grammar.

    python train.py MODEL_FOLDER

The folder must hold the tokenizer already. Writes config.json, generation_config.json and
model.safetensors. The learning rate follows a cosine over the given time.
"""

import argparse
import json
import math
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from safetensors.torch import save_file
from tokenizers import Tokenizer
from transformers import Qwen3Config, Qwen3ForCausalLM

from make_data import END_OF_TEXT, TURN_END, make_documents
from train_tokenizer import VOCABULARY_SIZE

SEED = 2
SHARDS = 64
DOCUMENTS_PER_SHARD = 8_000
HELD_OUT_DOCUMENTS = 2_000
TOKENS_PER_STEP = 65_536
ROW_LENGTHS = [512, 2048]   # used in turn; long rows train long contexts
PEAK_LEARNING_RATE = 2e-3
WARM_UP_STEPS = 200
WEIGHT_DECAY = 0.05


def model_config(end_of_text, end_of_turn):
    """Return config.json in the spelling that published Qwen3 checkpoints use."""
    return {
        "architectures": ["Qwen3ForCausalLM"],
        "attention_bias": False,
        "attention_dropout": 0.0,
        "bos_token_id": None,
        "eos_token_id": end_of_turn,
        "head_dim": 64,
        "hidden_act": "silu",
        "hidden_size": 256,
        "initializer_range": 0.02,
        "intermediate_size": 768,
        "max_position_embeddings": 4096,
        "max_window_layers": 6,
        "model_type": "qwen3",
        "num_attention_heads": 8,
        "num_hidden_layers": 6,
        "num_key_value_heads": 4,
        "pad_token_id": end_of_text,
        "rms_norm_eps": 1e-06,
        "rope_scaling": None,
        "rope_theta": 10000,
        "sliding_window": None,
        "tie_word_embeddings": True,
        "torch_dtype": "bfloat16",
        "use_cache": True,
        "use_sliding_window": False,
        "vocab_size": VOCABULARY_SIZE,
    }


def generation_config(end_of_text, end_of_turn):
    return {
        "do_sample": True,
        "eos_token_id": [end_of_turn, end_of_text],
        "pad_token_id": end_of_text,
        "temperature": 0.7,
        "top_k": 20,
        "top_p": 0.9,
    }


def tokenized_shard(tokenizer_file, seed, count):
    """Return the token ids of the documents of one shard, one array each."""
    tokenizer = Tokenizer.from_file(tokenizer_file)
    return [np.array(e.ids, dtype=np.uint16) for e in tokenizer.encode_batch(make_documents(seed, count))]


def training_documents(tokenizer_file):
    with ProcessPoolExecutor() as pool:
        shards = pool.map(tokenized_shard, [tokenizer_file] * SHARDS, range(1000, 1000 + SHARDS),
                          [DOCUMENTS_PER_SHARD] * SHARDS)
        return [document for shard in shards for document in shard]


class Packer:
    """Packs shuffled documents into rows; every row starts with the start of a document."""

    def __init__(self, documents, seed):
        self.documents = documents
        self.random = np.random.default_rng(seed)
        self.order = iter(())

    def _next_document(self):
        index = next(self.order, None)
        if index is None:
            self.order = iter(self.random.permutation(len(self.documents)))
            index = next(self.order)
        return self.documents[index]

    def batch(self, rows, length):
        """Return an array of rows with one token more than ``length``."""
        packed = np.empty((rows, length + 1), dtype=np.int64)
        for row in packed:
            filled = 0
            while filled < len(row):
                document = self._next_document()[:len(row) - filled]
                row[filled:filled + len(document)] = document
                filled += len(document)
        return torch.from_numpy(packed)


def token_losses(model, tokens):
    logits = model(input_ids=tokens[:, :-1], use_cache=False).logits
    return F.cross_entropy(logits.float().flatten(0, 1), tokens[:, 1:].flatten(), reduction="none")


def train(model, packer, minutes, device):
    decayed = [p for p in model.parameters() if p.dim() >= 2]
    others = [p for p in model.parameters() if p.dim() < 2]
    optimizer = torch.optim.AdamW(
        [{"params": decayed, "weight_decay": WEIGHT_DECAY}, {"params": others, "weight_decay": 0.0}],
        lr=PEAK_LEARNING_RATE, betas=(0.9, 0.95))
    start = time.monotonic()
    step = 0
    while (progress := (time.monotonic() - start) / (60 * minutes)) < 1:
        rate = PEAK_LEARNING_RATE * min(1, (step + 1) / WARM_UP_STEPS)
        for group in optimizer.param_groups:
            group["lr"] = rate * (0.5 + 0.5 * math.cos(math.pi * progress))
        length = ROW_LENGTHS[step % len(ROW_LENGTHS)]
        loss = run_step(model, packer.batch(TOKENS_PER_STEP // length, length).to(device))
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        if step % 250 == 0:
            print(f"step {step}  {100 * progress:.0f} %  loss {loss.item():.4f}", flush=True)
        step += 1
    print(f"{step} steps, {step * TOKENS_PER_STEP / 1e6:.0f} million tokens")


def run_step(model, tokens):
    with torch.autocast(tokens.device.type, dtype=torch.bfloat16):
        loss = token_losses(model, tokens).mean()
    loss.backward()
    return loss


@torch.no_grad()
def report_held_out_loss(model, packer, device):
    """Print the mean loss over positions of packed rows: it should not rise with the position."""
    length = 2048
    total = torch.zeros(length)
    rounds = 4
    for _ in range(rounds):
        losses = token_losses(model, packer.batch(16, length).to(device))
        total += losses.view(16, length).mean(0).cpu() / rounds
    for first in range(0, length, 512):
        print(f"held-out loss at positions {first}..{first + 511}: {total[first:first + 512].mean():.4f}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--minutes", type=float, default=2.5)
    parser.add_argument("--device", default="cuda")
    arguments = parser.parse_args()
    folder, device = arguments.folder, arguments.device

    tokenizer_file = str(folder / "tokenizer.json")
    tokenizer = Tokenizer.from_file(tokenizer_file)
    ends = tokenizer.token_to_id(END_OF_TEXT), tokenizer.token_to_id(TURN_END)
    documents = training_documents(tokenizer_file)
    print(f"{len(documents)} documents, {sum(map(len, documents)) / 1e6:.1f} million tokens", flush=True)

    torch.manual_seed(SEED)
    torch.set_float32_matmul_precision("high")
    config = model_config(*ends)
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    (folder / "generation_config.json").write_text(json.dumps(generation_config(*ends), indent=2) + "\n")
    model = Qwen3ForCausalLM(Qwen3Config.from_pretrained(folder)).float().to(device)
    print(f"{sum(p.numel() for p in model.parameters())} parameters", flush=True)
    train(model, Packer(documents, SEED), arguments.minutes, device)

    weights = {name: tensor.detach().to("cpu", torch.bfloat16).contiguous()
               for name, tensor in model.state_dict().items() if name != "lm_head.weight"}
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    held_out = tokenized_shard(tokenizer_file, 1, HELD_OUT_DOCUMENTS)
    report_held_out_loss(model, Packer(held_out, SEED), device)


if __name__ == "__main__":
    main()
