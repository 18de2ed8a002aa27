"""The EAGLE-3 layers of tools/make_draft_goldens.py: random layers in the published layout, and the logits of their drafts."""

import json

import safetensors.torch
import torch
import transformers
from transformers.models.llama.modeling_llama import LlamaAttention, LlamaMLP, LlamaRMSNorm, LlamaRotaryEmbedding

from . import reference
from .draft_layers import LEAST_GAP, causal, fill

BASES = ("llama", "qwen3-moe")  # the second case has an embedding of its own
VOCABULARY = 320  # number of ids that a layer can draft
DRAFTS = 3


def linear(inputs, outputs):
    return torch.nn.Linear(inputs, outputs, bias=False)


class Layer(torch.nn.Module):
    """A layer of the Llama kind whose attention reads twice the hidden size: the embedding of a token, and the state before it."""

    def __init__(self, config, own_embedding):
        super().__init__()
        hidden, head = config.hidden_size, config.head_dim
        attention = LlamaAttention(config, 0)
        attention.q_proj = linear(2 * hidden, config.num_attention_heads * head)
        attention.k_proj = linear(2 * hidden, config.num_key_value_heads * head)
        attention.v_proj = linear(2 * hidden, config.num_key_value_heads * head)
        norms = {name: LlamaRMSNorm(hidden, config.rms_norm_eps) for name in ("input_layernorm", "hidden_norm", "post_attention_layernorm")}
        self.fc = linear(3 * hidden, hidden)
        self.midlayer = torch.nn.ModuleDict(dict(self_attn=attention, mlp=LlamaMLP(config), **norms))
        self.norm = LlamaRMSNorm(hidden, config.rms_norm_eps)
        self.lm_head = linear(hidden, VOCABULARY)
        self.rotary = LlamaRotaryEmbedding(config)
        if own_embedding:
            self.embed_tokens = torch.nn.Embedding(config.vocab_size, hidden)

    def forward(self, embeddings, states):
        """Returns (logits of the drafts, the states that the next drafts read)."""
        layer, length = self.midlayer, embeddings.shape[1]
        both = torch.cat([layer["input_layernorm"](embeddings), layer["hidden_norm"](states)], -1)
        rotary = self.rotary(both, torch.arange(length)[None])
        states = states + layer["self_attn"](both, position_embeddings=rotary, attention_mask=causal(length))[0]
        states = states + layer["mlp"](layer["post_attention_layernorm"](states))
        return self.lm_head(self.norm(states)), states


def config_of(base):
    return transformers.LlamaConfig(
        hidden_size=base.hidden_size, intermediate_size=96, num_hidden_layers=1, num_attention_heads=4, num_key_value_heads=2,
        head_dim=16, vocab_size=base.vocab_size, max_position_embeddings=2048, rms_norm_eps=1e-5, rope_theta=10000.0,
        bos_token_id=1, eos_token_id=2, pad_token_id=0, attn_implementation="eager")


def save(layer, config, to_target, folder):
    in_draft = torch.zeros(config.vocab_size, dtype=torch.bool)
    in_draft[to_target + torch.arange(VOCABULARY)] = True
    tensors = {name: value.bfloat16().contiguous() for name, value in layer.state_dict().items() if "rotary" not in name}
    safetensors.torch.save_file({**tensors, "d2t": to_target, "t2d": in_draft}, folder / "model.safetensors", metadata={"format": "pt"})
    published = dict(architectures=["LlamaForCausalLMEagle3"], model_type="llama", draft_vocab_size=VOCABULARY, attention_bias=False,
                     attention_dropout=0.0, hidden_act="silu", rope_scaling=None, rope_theta=10000.0, tie_word_embeddings=False,
                     torch_dtype="bfloat16", use_cache=True)
    copied = ("bos_token_id", "eos_token_id", "pad_token_id", "head_dim", "hidden_size", "intermediate_size", "max_position_embeddings",
              "num_attention_heads", "num_hidden_layers", "num_key_value_heads", "rms_norm_eps", "vocab_size")
    config = {**published, **{name: getattr(config, name) for name in copied}}
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n")


def drafts_of(layer, to_target, embedding, states, tokens):
    """Returns (logits of every position of the prompt, logits of the drafts after it, the drafts as ids of the target). `tokens` are
    those after each position; each further draft reads the layer's own state and draft."""
    tokens, rows, drafts, of_prompt = list(tokens), [], [], None
    for _ in range(DRAFTS):
        logits, outputs = layer(embedding(torch.tensor([tokens])), states)
        of_prompt = logits[0] if of_prompt is None else of_prompt
        best = logits[0, -1].topk(2)
        if float(best.values[0] - best.values[1]) < LEAST_GAP:
            raise reference.Unclear("two drafts are nearly equal")
        rows.append(logits[0, -1])
        drafts.append(int(best.indices[0] + to_target[best.indices[0]]))
        tokens.append(drafts[-1])
        states = torch.cat([states, outputs[:, -1:]], 1)
    return of_prompt, torch.stack(rows), drafts


def reference_of(base, seed, folder):
    """Saves a layer in the folder. Returns (members of golden.json, tensors)."""
    target = transformers.AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32, attn_implementation="eager").eval()
    layers = target.config.num_hidden_layers
    aux_layers = sorted({2, layers // 2, layers - 3})  # the layers whose inputs EAGLE-3 reads
    config, generator = config_of(target.config), torch.Generator().manual_seed(seed)
    layer = Layer(config, own_embedding=base.name == "qwen3-moe").eval()
    fill(layer, generator)
    ids = torch.randperm(config.vocab_size, generator=generator)[:VOCABULARY].sort().values
    to_target = ids - torch.arange(VOCABULARY)
    save(layer, config, to_target, folder)
    golden = json.loads((base / "golden.json").read_text())
    prompts, firsts, drafts, tensors = golden["prompts"], [answer[:1] for answer in golden["greedy"]], [], {}
    embedding = layer.embed_tokens if hasattr(layer, "embed_tokens") else target.model.embed_tokens
    for i, (prompt, first) in enumerate(zip(prompts, firsts)):
        inputs = target(torch.tensor([prompt]), output_hidden_states=True).hidden_states
        states = layer.fc(torch.cat([inputs[k] for k in aux_layers], -1))
        of_prompt, chain, tokens = drafts_of(layer, to_target, embedding, states, prompt[1:] + first)
        tail = "_tail" if len(of_prompt) > reference.STORED_ROWS else ""
        tensors[f"draft_prefill_logits_{i}{tail}"] = of_prompt[-reference.STORED_ROWS:].contiguous()
        tensors[f"draft_free_logits_{i}"] = chain
        drafts.append(tokens)
    return dict(base=base.name, aux_layers=aux_layers, prompts=prompts, greedy=firsts, draft_tokens_free=drafts), tensors
