"""Train the demo model's next-token layer (MTP), which drafts tokens for speculative decoding.

    python train_mtp.py MODEL_FOLDER

The folder must hold the model that train.py wrote. The script adds the layer's tensors to
model.safetensors and num_nextn_predict_layers to config.json; the model's own tensors stay as they
are. The learning rate follows a cosine over the given time.

The row of position p takes the hidden state of token p and the embedding of token p + 1, and
predicts token p + 2. For the first draft the hidden state comes from the model, after its final norm;
for a further draft it is the layer's own output of the row before. Embedding and head are the
model's. The layer is trained on three drafts in a row, each with the model's own distribution for
the same token as the target.
"""

import argparse
import json
import math
import time
from pathlib import Path

import torch
import torch.nn.functional as F
from safetensors.torch import load_file, save_file
from torch import nn
from transformers import Qwen3ForCausalLM
from transformers.models.qwen3.modeling_qwen3 import Qwen3Attention, Qwen3MLP, Qwen3RMSNorm, apply_rotary_pos_emb

from language import GRAMMAR
from train import Packer, tokenized_shard

SEED = 3
SHARD = 500                 # seed of the training documents; train.py uses others
DOCUMENTS = 16_000
PREFERENCE = 0.95           # weight of favoured options; the model's own texts have more of them than train.py's
HELD_OUT_DOCUMENTS = 200
DRAFTS = 3
ROWS, ROW_LENGTH = 6, 256   # size of a step
PEAK_LEARNING_RATE = 2e-3
WARM_UP_STEPS = 20
WEIGHT_DECAY = 0.01


class NextTokenLayer(nn.Module):
    """The next-token layer. Its tensors have the names of DeepSeek-V3's next-token layer."""

    def __init__(self, config):
        super().__init__()
        size, eps = config.hidden_size, config.rms_norm_eps
        self.enorm = Qwen3RMSNorm(size, eps)
        self.hnorm = Qwen3RMSNorm(size, eps)
        self.eh_proj = nn.Linear(2 * size, size, bias=False)
        self.input_layernorm = Qwen3RMSNorm(size, eps)
        self.self_attn = Qwen3Attention(config, layer_idx=0)
        self.post_attention_layernorm = Qwen3RMSNorm(size, eps)
        self.mlp = Qwen3MLP(config)
        self.shared_head = nn.ModuleDict({"norm": Qwen3RMSNorm(size, eps)})
        self.groups = config.num_attention_heads // config.num_key_value_heads

    def start_from(self, model):
        """Copy the model's last layer and final norm; the projection starts as a mean of its inputs."""
        layer = model.model.layers[-1]
        for name in ("input_layernorm", "self_attn", "post_attention_layernorm", "mlp"):
            getattr(self, name).load_state_dict(getattr(layer, name).state_dict())
        self.shared_head.norm.load_state_dict(model.model.norm.state_dict())
        half = 0.5 * torch.eye(self.eh_proj.out_features)
        self.eh_proj.weight.data.copy_(torch.cat([half, half], dim=1))

    def forward(self, hidden, embedding, rotation, drafts):
        """Return the hidden states of one more draft: [rows, length, size].

        ``drafts`` holds the keys and values of the earlier drafts. The new draft's are appended.
        """
        x = self.eh_proj(torch.cat([self.enorm(embedding), self.hnorm(hidden)], dim=-1))
        x = x + self.attention(self.input_layernorm(x), rotation, drafts)
        x = x + self.mlp(self.post_attention_layernorm(x))
        return self.shared_head.norm(x)

    def attention(self, x, rotation, drafts):
        a = self.self_attn
        heads = (*x.shape[:-1], -1, a.head_dim)
        query = a.q_norm(a.q_proj(x).view(heads)).transpose(1, 2)
        key = a.k_norm(a.k_proj(x).view(heads)).transpose(1, 2)
        value = a.v_proj(x).view(heads).transpose(1, 2)
        query, key = apply_rotary_pos_emb(query, key, *rotation)
        drafts.append((key.repeat_interleave(self.groups, 1), value.repeat_interleave(self.groups, 1)))
        mixed = attend(query * a.scaling, drafts)
        return a.o_proj(mixed.transpose(1, 2).flatten(2))


def attend(query, drafts):
    """Return the attention of the last draft's queries.

    The row of draft n at position p sees its own key, the key of draft n - 1 at position p - 1, and so
    on to the key of draft 2. It also sees the first draft's keys at all earlier positions.
    """
    length, n = query.shape[2], len(drafts)
    first_key, first_value = drafts[0]
    seen = torch.ones(length, length, dtype=torch.bool).tril(1 - n)
    scores = (query @ first_key.transpose(2, 3)).float().masked_fill(~seen, -1e9)
    near = [(later(drafts[n - 1 - back][0], back), later(drafts[n - 1 - back][1], back)) for back in range(n - 1)]
    near_scores = [(query * key).sum(-1, keepdim=True).float() for key, _ in near]
    weights = torch.cat([scores, *near_scores], dim=-1).softmax(-1).to(first_value.dtype)
    mixed = weights[..., :length] @ first_value
    for i, (_, value) in enumerate(near):
        mixed = mixed + weights[..., length + i, None] * value
    return mixed


def later(x, rows):
    """Move the rows of x (dimension -2) to later positions, with zeros before them."""
    return F.pad(x, (0, 0, rows, 0))[..., :x.shape[-2], :]


def draft_logits(model, layer, tokens):
    """Return the model's logits of the tokens 2 … of each row, and the same by each draft.

    A further draft has no hidden state at the first positions, so their rows are left out.
    """
    with torch.no_grad():
        hidden = model.model(input_ids=tokens[:, :-1], use_cache=False).last_hidden_state
        wanted = model.lm_head(hidden)[:, DRAFTS:]
    hidden = hidden[:, :-1]
    embedding = model.model.embed_tokens(tokens[:, 1:-1])
    rotation = model.model.rotary_emb(hidden, torch.arange(hidden.shape[1])[None])
    drafts, logits = [], []
    for _ in range(DRAFTS):
        hidden = layer(hidden, embedding, rotation, drafts)
        logits.append(model.lm_head(hidden[:, DRAFTS - 1:]))
        hidden = later(hidden, 1)
    return wanted, logits


def run_step(model, layer, tokens):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        wanted, drafts = draft_logits(model, layer, tokens)
    target = wanted.float().softmax(-1).flatten(0, 1)
    loss = sum(F.cross_entropy(logits.float().flatten(0, 1), target) for logits in drafts) / DRAFTS
    loss.backward()
    return loss


def train(model, layer, packer, minutes):
    optimizer = torch.optim.AdamW(layer.parameters(), lr=PEAK_LEARNING_RATE, betas=(0.9, 0.95),
                                  weight_decay=WEIGHT_DECAY)
    start = time.monotonic()
    step = 0
    while (progress := (time.monotonic() - start) / (60 * minutes)) < 1:
        rate = PEAK_LEARNING_RATE * min(1, (step + 1) / WARM_UP_STEPS)
        for group in optimizer.param_groups:
            group["lr"] = rate * (0.5 + 0.5 * math.cos(math.pi * progress))
        loss = run_step(model, layer, packer.batch(ROWS, ROW_LENGTH))
        nn.utils.clip_grad_norm_(layer.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        if step % 25 == 0:
            print(f"step {step}  {100 * progress:.0f} %  loss {loss.item():.4f}", flush=True)
        step += 1
    print(f"{step} steps, {step * ROWS * ROW_LENGTH / 1e6:.2f} million tokens")


@torch.no_grad()
def report_agreement(model, layer, packer):
    """Print how often each draft is the model's most probable token."""
    wanted, drafts = draft_logits(model, layer, packer.batch(16, ROW_LENGTH))
    for i, logits in enumerate(drafts):
        same = (logits.argmax(-1) == wanted.argmax(-1)).float().mean()
        print(f"held-out documents: draft {i + 1} is the model's choice in {100 * same:.1f} % of the rows")


def save(layer, folder):
    """Add the layer behind the model's last one."""
    config = json.loads((folder / "config.json").read_text())
    config["num_nextn_predict_layers"] = 1
    prefix = f"model.layers.{config['num_hidden_layers']}."
    weights = {name: tensor for name, tensor in load_file(folder / "model.safetensors").items()
               if not name.startswith(prefix)}
    weights |= {prefix + name: tensor.detach().to(torch.bfloat16).contiguous()
                for name, tensor in layer.state_dict().items()}
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    (folder / "config.json").write_text(json.dumps(dict(sorted(config.items())), indent=2) + "\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--minutes", type=float, default=10)
    arguments = parser.parse_args()
    folder = arguments.folder

    torch.manual_seed(SEED)
    model = Qwen3ForCausalLM.from_pretrained(folder, dtype=torch.float32).eval().requires_grad_(False)
    layer = NextTokenLayer(model.config)
    layer.start_from(model)
    print(f"{sum(p.numel() for p in layer.parameters())} parameters", flush=True)
    tokenizer_file = str(folder / "tokenizer.json")
    GRAMMAR.preference = PREFERENCE
    documents = tokenized_shard(tokenizer_file, SHARD, DOCUMENTS)
    train(model, layer, Packer(documents, SEED), arguments.minutes)
    save(layer, folder)
    report_agreement(model, layer, Packer(tokenized_shard(tokenizer_file, 1, HELD_OUT_DOCUMENTS), SEED))


if __name__ == "__main__":
    main()
