"""The next-token layers of tools/make_draft_goldens.py: checkpoints with such a layer, and the logits of its drafts. transformers ignores
these layers; here they are put together from its own layers, as SGLang and vLLM do."""

import json
import tempfile

import safetensors.torch
import torch
import transformers as hf

from . import reference, weights
from .text_families import LATENTS, base, qwen3_5

# Lengths of the prompts. The logits of all rows of the last one are stored, of the others those of the last rows.
PROMPTS = (1, 70, 12)
DRAFTS = 3
LEAST_GAP = 1e-3  # between the logits of a draft and of the second best token


def deepseek_v3():
    """Returns a model with small latents, which leave room for the layer's copies of the embedding and the head."""
    return hf.DeepseekV3ForCausalLM(hf.DeepseekV3Config(**base(num_hidden_layers=2, q_lora_rank=24, n_group=2, topk_group=1, **{
        **LATENTS, "kv_lora_rank": 16, "n_routed_experts": 6})))


def glm4_moe():
    return hf.Glm4MoeForCausalLM(hf.Glm4MoeConfig(**base(
        num_hidden_layers=2, head_dim=16, n_group=1, topk_group=1, n_routed_experts=8, n_shared_experts=1, num_experts_per_tok=2,
        moe_intermediate_size=16, first_k_dense_replace=1, use_qk_norm=True, attention_bias=True, tie_word_embeddings=False)))


def qwen3_5_mtp():
    return qwen3_5(hf.Qwen3_5ForConditionalGeneration, "qwen3_5", 6, linear_layers=2, intermediate_size=48, mtp_num_hidden_layers=1,
                   mtp_use_dedicated_embeddings=False)


CASES = {"mtp-deepseek-v3": deepseek_v3, "mtp-glm4-moe": glm4_moe, "mtp-qwen3.5": qwen3_5_mtp}


def causal(length):
    return torch.full((length, length), float("-inf")).triu(1)[None, None]


def fill(module, generator):
    """Gives every parameter values that affect the logits, exact in bfloat16."""
    for name, parameter in module.named_parameters():
        noise = torch.randn(parameter.shape, generator=generator)
        if parameter.dim() == 1:
            values = parameter + 0.2 * noise
        else:
            values = noise * (0.02 if "embed" in name else 0.6 / parameter.shape[-1] ** 0.5)
        if name.endswith("mlp.gate.weight"):
            values = 2 * values
        parameter.data = values.bfloat16().float()
    for name, buffer in module.named_buffers():
        if "e_score_correction_bias" in name:
            buffer.copy_((0.1 * torch.randn(buffer.shape, generator=generator)).bfloat16().float())


class Layer(torch.nn.Module):
    """A decoder layer like the last one of `text`, that reads the embedding of a token and the hidden state before it."""

    def __init__(self, text, config):
        super().__init__()
        last, hidden = text.layers[-1], config.hidden_size
        norm = lambda: type(last.input_layernorm)(hidden, config.rms_norm_eps)
        self.enorm, self.hnorm, self.norm = norm(), norm(), norm()
        self.join = torch.nn.Linear(2 * hidden, hidden, bias=False)
        self.block = type(last)(config, len(text.layers) - 1)

    def forward(self, text, tokens, hidden):
        """Returns the normalised output for tokens[t], which follows hidden[t]. Positions start at 1."""
        length = tokens.shape[1]
        positions = torch.arange(1, length + 1)[None]
        x = self.join(torch.cat([self.enorm(text.embed_tokens(tokens)), self.hnorm(hidden)], -1))
        rotary = text.rotary_emb(x, positions[None].expand(3, 1, length) if is_qwen3_5(text) else positions)
        x = self.block(x, attention_mask=causal(length), position_ids=positions, position_embeddings=rotary)
        return self.norm(x[0] if isinstance(x, tuple) else x)


def is_qwen3_5(text):
    return text.config.model_type == "qwen3_5_text"


def text_of(model):
    return getattr(model.model, "language_model", model.model)


def tensors_of_block(model, layer):
    """Returns the block's tensors under the names they have as the model's last layer, with the experts as published."""
    kind, count = type(model), model.config.num_hidden_layers
    settings = {name: value for name, value in model.config.to_dict().items() if name not in ("mlp_layer_types", "layer_types")}
    longer = kind(type(model.config)(**{**settings, "num_hidden_layers": count + 1})).to(torch.bfloat16)
    longer.model.layers[count].load_state_dict(layer.block.state_dict())
    with tempfile.TemporaryDirectory() as folder:
        longer.save_pretrained(folder)
        saved = safetensors.torch.load_file(f"{folder}/model.safetensors")
    return {name: value for name, value in saved.items() if name.startswith(f"model.layers.{count}.")}


def save(model, layer, folder):
    """Saves the checkpoint with the layer's tensors under their published names."""
    weights.narrow(model)
    model.save_pretrained(folder)
    file = folder / "model.safetensors"
    tensors = safetensors.torch.load_file(file)
    narrow = lambda value: value.detach().bfloat16().contiguous()
    if is_qwen3_5(text_of(model)):
        names = {"fc": layer.join, "norm": layer.norm, "pre_fc_norm_embedding": layer.enorm, "pre_fc_norm_hidden": layer.hnorm}
        tensors |= {f"mtp.{name}.weight": narrow(module.weight) for name, module in names.items()}
        tensors |= {f"mtp.layers.0.{name}": narrow(value) for name, value in layer.block.state_dict().items()}
        config = {**model.published_config, "transformers_version": hf.__version__}
    else:
        prefix = f"model.layers.{model.config.num_hidden_layers}."
        names = {"enorm": layer.enorm, "hnorm": layer.hnorm, "eh_proj": layer.join, "shared_head.norm": layer.norm,
                 "embed_tokens": model.model.embed_tokens, "shared_head.head": model.lm_head}
        tensors |= {key: value.float() if "e_score" in key else value for key, value in tensors_of_block(model, layer).items()}
        tensors |= {f"{prefix}{name}.weight": narrow(module.weight).clone() for name, module in names.items()}
        config = {**json.loads((folder / "config.json").read_text()), "num_nextn_predict_layers": 1}
    safetensors.torch.save_file(tensors, file, metadata={"format": "pt"})
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n")


def drafts_of(model, layer, hidden, tokens, has_chain):
    """Returns (logits for each of `tokens`, logits of the drafts, the drafts). Each further draft reads the layer's own output."""
    text, rows, drafts, of_prompt = text_of(model), [], [], None
    for _ in range(DRAFTS if has_chain else 1):
        outputs = layer(text, torch.tensor([tokens]), hidden)
        logits = model.lm_head(outputs)[0]
        of_prompt = logits if of_prompt is None else of_prompt
        best = logits[-1].topk(2)
        if float(best.values[0] - best.values[1]) < LEAST_GAP:
            raise reference.Unclear("two drafts are nearly equal")
        rows.append(logits[-1])
        drafts.append(int(best.indices[0]))
        tokens = [*tokens, drafts[-1]]
        hidden = torch.cat([hidden, outputs[:, -1:]], 1)
    return of_prompt, torch.stack(rows), drafts


def reference_of(name, seed, folder):
    """Saves a checkpoint in the folder. Returns (members of golden.json, tensors)."""
    model, generator = weights.random_model(CASES[name], seed)
    text, has_chain = text_of(model), name != "mtp-qwen3.5"
    layer = Layer(text, text.config).eval()
    fill(layer, generator)
    prompts = reference.random_prompts(generator, PROMPTS)
    run = lambda ids: model(ids).logits[0].float()
    greedy = [reference.greedy(run, prompt, reference.GREEDY_TOKENS["text"], LEAST_GAP) for prompt in prompts]
    tensors, chains = {}, []
    for i, (prompt, answer) in enumerate(zip(prompts, greedy)):
        hidden = text(torch.tensor([prompt])).last_hidden_state
        logits, chain, drafts = drafts_of(model, layer, hidden, prompt[1:] + answer[:1], has_chain)
        logits = logits[:-1]  # the last row follows a token that is not of the prompt
        if i == len(prompts) - 1:
            tensors[f"mtp_logits_{i}"] = logits.contiguous()
        elif len(prompt) > 1:
            tensors[f"mtp_logits_{i}_tail"] = logits[-reference.STORED_ROWS:].contiguous()
        if has_chain:
            tensors[f"mtp_chain_{i}"] = chain
            chains.append(drafts)
    save(model, layer, folder)
    return dict(prompts=prompts, greedy=greedy, **(dict(mtp_chain_tokens=chains) if has_chain else {})), tensors
