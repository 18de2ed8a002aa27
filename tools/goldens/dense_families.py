"""The cases of tools/make_goldens.py with attention and dense MLPs of the Llama kind. Each is a function that returns a small transformers
model with random weights.

The sizes are the largest that fit into a golden checkpoint with three layers; a tied embedding leaves room for a wider MLP."""

import transformers as hf

from .text_families import base

UNTIED = dict(hidden_size=64, intermediate_size=48, tie_word_embeddings=False)
TIED = dict(hidden_size=64, intermediate_size=96, tie_word_embeddings=True)
QWEN3 = dict(TIED, intermediate_size=32, head_dim=32, rope_theta=1000000.0)
# Sizes for head sizes of published models: the matrices of attention leave no room for a larger hidden size.
WIDE_HEADS = dict(num_attention_heads=2, num_key_value_heads=1, num_hidden_layers=2, hidden_size=32)


def llama(**changes):
    return hf.LlamaForCausalLM(hf.LlamaConfig(**base(**{**UNTIED, "rope_theta": 10000.0, **changes})))


def phi3(**changes):
    return hf.Phi3ForCausalLM(hf.Phi3Config(**base(**{**UNTIED, **changes})))


def phi3_longrope():
    """Returns a model whose original context is shorter than every prompt, so that the long factors apply. Its rows are whole blocks of
    Q8_0, because a GGUF golden is made from it."""
    return phi3(intermediate_size=32, original_max_position_embeddings=16, sliding_window=100, rope_parameters=dict(
        rope_type="longrope", rope_theta=10000.0, partial_rotary_factor=0.75, short_factor=[1.0, 1.05, 1.1, 1.2, 1.3, 1.4],
        long_factor=[1.1, 1.5, 2.5, 6.0, 14.0, 31.5], original_max_position_embeddings=16))


def ministral3():
    """Returns a model whose queries grow with the position. Its original context is shorter than most prompts."""
    return hf.Ministral3ForCausalLM(hf.Ministral3Config(**base(**UNTIED, head_dim=16, rope_parameters=dict(
        rope_type="yarn", rope_theta=1000000.0, factor=16.0, original_max_position_embeddings=16, beta_fast=32.0, beta_slow=1.0, mscale=1.0,
        mscale_all_dim=1.0, llama_4_scaling_beta=0.3))))


def qwen3(cls, **changes):
    return cls(hf.Qwen3Config(**base(**{**QWEN3, **changes})))


CASES = {
    "llama": lambda: llama(rope_theta=500000.0, intermediate_size=160),
    "llama-bias": lambda: llama(attention_bias=True, mlp_bias=True),
    "llama-linear": lambda: llama(rope_scaling=dict(rope_type="linear", factor=3.0)),
    "llama-yarn": lambda: llama(head_dim=32, num_hidden_layers=2, rope_scaling=dict(
        rope_type="yarn", factor=4.0, original_max_position_embeddings=64, beta_fast=32.0, beta_slow=1.0)),
    "llama3-rope-tied": lambda: llama(**{**TIED, "num_hidden_layers": 2}, head_dim=32, rope_theta=500000.0, rope_scaling=dict(
        rope_type="llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=256)),
    "llama-d64": lambda: llama(**WIDE_HEADS, head_dim=64),
    "llama-d128": lambda: llama(**WIDE_HEADS, head_dim=128, rope_theta=500000.0),
    "qwen3": lambda: qwen3(hf.Qwen3ForCausalLM),
    "qwen3-d128": lambda: qwen3(hf.Qwen3ForCausalLM, **WIDE_HEADS, head_dim=128),
    "mistral-swa": lambda: hf.MistralForCausalLM(hf.MistralConfig(**base(**UNTIED, sliding_window=24, head_dim=16))),
    "ministral3": ministral3,
    "olmo2": lambda: hf.Olmo2ForCausalLM(hf.Olmo2Config(**base(**UNTIED))),
    "phi3": phi3,
    "phi3-longrope": phi3_longrope,
    "qwen2": lambda: hf.Qwen2ForCausalLM(hf.Qwen2Config(**base(**TIED))),
    "qwen2-swa": lambda: hf.Qwen2ForCausalLM(hf.Qwen2Config(**base(**UNTIED, use_sliding_window=True, sliding_window=24, max_window_layers=1))),
    "gemma2": lambda: hf.Gemma2ForCausalLM(hf.Gemma2Config(**base(**TIED, head_dim=16, query_pre_attn_scalar=16, sliding_window=24))),
}
