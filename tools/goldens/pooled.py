"""The cases of tools/make_goldens.py that return a vector or a score of a prompt instead of logits, and their results."""

import copy
import json

import torch
import transformers as hf

from . import reference
from .dense_families import qwen3

CASES = {
    "qwen3-embedding": lambda: qwen3(hf.Qwen3Model),
    "qwen3-reranker": lambda: qwen3(hf.Qwen3ForSequenceClassification, num_labels=1),
}
STAGES = (("", "Transformer"), ("1_Pooling", "Pooling"), ("2_Normalize", "Normalize"))


def save_pooling(model, folder):
    """Writes what an embedding model is published with: the causal model's name, and the stages of sentence_transformers."""
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "architectures": ["Qwen3ForCausalLM"]}, indent=2) + "\n")
    modules = [dict(idx=i, name=str(i), path=path, type=f"sentence_transformers.models.{kind}") for i, (path, kind) in enumerate(STAGES)]
    (folder / "modules.json").write_text(json.dumps(modules, indent=2) + "\n")
    (folder / "1_Pooling").mkdir(exist_ok=True)
    pooling = dict(word_embedding_dimension=model.config.hidden_size, pooling_mode_cls_token=False, pooling_mode_mean_tokens=False,
                   pooling_mode_max_tokens=False, pooling_mode_lasttoken=True, include_prompt=True)
    (folder / "1_Pooling" / "config.json").write_text(json.dumps(pooling, indent=2) + "\n")


def result_of(model, prompt):
    """Returns (name of the result, the score, or the normalised vector of the last token)."""
    outputs = model(torch.tensor([prompt]))
    if "logits" in outputs:
        return "score", outputs.logits[0].float()
    return "embedding", torch.nn.functional.normalize(outputs.last_hidden_state[0, -1].float(), dim=-1)


def reference_of(model, generator, limits):
    """Returns (members of golden.json, tensors, relative error of bfloat16)."""
    prompts = reference.random_prompts(generator, reference.TEXT_PROMPTS)
    narrow = copy.deepcopy(model).to(torch.bfloat16)
    tensors, error = {}, 0.0
    for i, prompt in enumerate(prompts):
        name, result = result_of(model, prompt)
        tensors[f"{name}_{i}"] = result.contiguous()
        error = max(error, float((result_of(narrow, prompt)[1] - result).norm() / result.norm()))
    if error > limits.rounding:
        raise reference.Unclear("bfloat16 is far from float32")
    return dict(prompts=prompts), tensors, error
