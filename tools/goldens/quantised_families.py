"""The cases of tools/make_quantised_goldens.py. Each has a small model, the list of its quantised modules, their format, and the settings.

Sizes are the smallest for which each of two ranks has whole bytes and groups. Settings are those of published checkpoints, with fewer
layers."""

import functools
import re
from typing import Callable, NamedTuple, Optional

import torch
import transformers as hf

from . import quantise, reference
from .text_families import FULL, LINEAR, SLIDING, base, gemma4, gemma4_nested, published, qwen3_5_text, qwen3_5_tower, IMAGE_TOKENS

ALL_LINEARS = r"(_proj|in_proj_qkv|in_proj_z)$"


class Case(NamedTuple):
    model: Callable
    quantise: Callable  # function of quantise.py
    settings: dict  # "quantization_config"
    modules: str = ALL_LINEARS  # a regular expression
    dtype: torch.dtype = torch.bfloat16  # type of the weights that are not quantised
    inputs: Optional[tuple] = None  # for logits_act_<i>: (description of the inputs' rounding, rounding function)
    beside: Optional[dict] = None  # content of hf_quant_config.json
    prompts: tuple = reference.TEXT_PROMPTS  # lengths
    published: dict = {}  # fields of published configs that transformers does not save


def small(**changes):
    return base(hidden_size=64, intermediate_size=128, num_hidden_layers=2, head_dim=16, **changes)


def llama(**changes):
    return lambda: hf.LlamaForCausalLM(hf.LlamaConfig(**{**small(), "rope_theta": 500000.0, "tie_word_embeddings": False, **changes}))


def qwen3():
    return hf.Qwen3ForCausalLM(hf.Qwen3Config(**small(), rope_theta=1000000.0, tie_word_embeddings=True))


def qwen3_moe():
    """A case in which each of two ranks has 48 values of an expert, so that the cut divides a group of 32."""
    return hf.Qwen3MoeForCausalLM(hf.Qwen3MoeConfig(
        **small(), rope_theta=1000000.0, tie_word_embeddings=False, decoder_sparse_step=1, norm_topk_prob=True, num_experts=4,
        num_experts_per_tok=2, moe_intermediate_size=96))


def qwen3_5_moe(expert_size):
    text = {**qwen3_5_text("qwen3_5_moe", 4, 1, num_experts=4, num_experts_per_tok=2, moe_intermediate_size=expert_size,
                           shared_expert_intermediate_size=expert_size, router_aux_loss_coef=0.001),
            "hidden_size": 64, "layer_types": [LINEAR, FULL], "head_dim": 32}
    return published(hf.Qwen3_5MoeForConditionalGeneration, model_type="qwen3_5_moe", **IMAGE_TOKENS, tie_word_embeddings=False, text_config=text,
                     vision_config=qwen3_5_tower("qwen3_5_moe", out_hidden_size=64))


def gpt_oss():
    return hf.GptOssForCausalLM(hf.GptOssConfig(**{
        **small(sliding_window=24, num_local_experts=4, num_experts_per_tok=2), "intermediate_size": 96}))


def gemma4_dense():
    return gemma4_nested(hidden_size=64, intermediate_size=64, num_hidden_layers=2, layer_types=[SLIDING, FULL])


def compressed(form, weights, inputs=None, ignore=("lm_head",)):
    """Returns settings as compressed-tensors 0.18 writes them."""
    args = dict(actorder=None, block_structure=None, dynamic=False, group_size=None, observer="memoryless_minmax", observer_kwargs={},
                scale_dtype=None, symmetric=True, zp_dtype=None)
    group = dict(format=form, input_activations=inputs and {**args, "dynamic": True, "observer": None, **inputs}, output_activations=None,
                 targets=["Linear"], weights={**args, **weights})
    return dict(config_groups=dict(group_0=group), format=form, global_compression_ratio=None, ignore=list(ignore), kv_cache_scheme=None,
                quant_method="compressed-tensors", quantization_status="compressed", sparsity_config={}, transform_config={}, version="0.18.0")


def fp8_block(plain):
    return dict(activation_scheme="dynamic", fmt="e4m3", modules_to_not_convert=plain, quant_method="fp8", weight_block_size=[128, 128])


def modelopt_nvfp4(plain):
    """Returns (the settings in config.json, those in hf_quant_config.json)."""
    four = dict(dynamic=False, num_bits=4, type="float", group_size=16)
    producer = dict(name="modelopt", version="0.37.0")
    config = dict(config_groups=dict(group_0=dict(input_activations=four, weights=four, targets=["Linear"])), ignore=plain, quant_algo="NVFP4",
                  producer=producer, quant_method="modelopt")
    beside = dict(producer=producer, quantization=dict(quant_algo="NVFP4", kv_cache_quant_algo=None, group_size=16, exclude_modules=plain))
    return config, beside


def quark_mxfp4():
    """Returns settings as AMD Quark 0.13 writes them."""
    four = dict(dtype="fp4", qscheme="per_group", ch_axis=-1, group_size=32, block_size=None, symmetric=None, round_method="half_even",
                scale_type="float", zero_point_type="int32", scale_format="e8m0", scale_calculation_mode="even", mx_element_dtype=None,
                observer_cls="PerBlockMXObserver", is_scale_quant=False, enable_buffer_reuse=False, max_input_numel=None)
    layer = dict(input_tensors={**four, "is_dynamic": True}, output_tensors=None, weight={**four, "is_dynamic": False}, bias=None, target_device=None)
    return dict(global_quant_config=layer, exclude=["lm_head"], algo_config=None, softmax_quant_spec=None, quant_method="quark",
                layer_type_quant_config={}, layer_quant_config={}, kv_cache_quant_config={}, kv_cache_post_rope=False, quant_mode="eager_mode",
                version="0.13", export=dict(kv_cache_group=[], min_kv_scale=0.0, pack_method="reorder", weight_format="real_quantized",
                                            weight_merge_groups=None))


LINEARS = [f"self_attn.{name}_proj" for name in "qkvo"] + [f"mlp.{name}_proj" for name in ("gate", "up", "down")]
QWEN3_5_PLAIN = ["lm_head", "model.visual", "model.language_model.embed_tokens", "model.language_model.layers.0.linear_attn.conv1d",
                 "model.language_model.layers.0.linear_attn.in_proj_a", "model.language_model.layers.0.linear_attn.in_proj_b",
                 *[f"model.language_model.layers.{i}.mlp.{name}" for i in range(2) for name in ("gate", "shared_expert_gate")]]
QWEN3_5_NVFP4, QWEN3_5_NVFP4_BESIDE = modelopt_nvfp4(QWEN3_5_PLAIN)
GEMMA4_NVFP4, GEMMA4_NVFP4_BESIDE = modelopt_nvfp4(["lm_head", "model.vision_tower*", "model.embed_vision*"])
FP8_TOKENS = "FP8 E4M3, one scale for each token, absmax / 448"

CASES = {
    "llama-fbgemm-fp8": Case(
        llama(num_hidden_layers=3, tie_word_embeddings=True), quantise.fp8_channels,
        dict(activation_scale_ub=1200.0, quant_method="fbgemm_fp8", modules_to_not_convert=[f"model.layers.0.{name}" for name in LINEARS]),
        modules=r"layers\.[12]\..*_proj$", inputs=(FP8_TOKENS + ", at most 1200 / 448", functools.partial(quantise.token_fp8, most=1200.0))),
    "llama-ct-fp8-head": Case(
        llama(), functools.partial(quantise.fp8_channels, scale_dtype=torch.bfloat16),
        compressed("float-quantized", dict(num_bits=8, strategy="channel", type="float"), dict(num_bits=8, strategy="token", type="float"), ()),
        modules=r"(_proj|lm_head)$", inputs=(FP8_TOKENS, quantise.token_fp8)),
    "llama-quark-mxfp4": Case(llama(), functools.partial(quantise.mxfp4, matrix="weight"), quark_mxfp4()),
    "qwen3-awq": Case(
        qwen3, quantise.awq, dict(bits=4, group_size=32, modules_to_not_convert=None, quant_method="awq", version="gemm", zero_point=True),
        dtype=torch.float16),
    "qwen3-moe-ct-mxfp4": Case(
        qwen3_moe, functools.partial(quantise.mxfp4, matrix="weight_packed"),
        compressed("mxfp4-pack-quantized",
                   dict(group_size=32, num_bits=4, scale_dtype="torch.uint8", strategy="group", type="float", zp_dtype="torch.uint8"),
                   ignore=["lm_head", "model.layers.0.mlp.gate", "model.layers.1.mlp.gate"])),
    "qwen3.5-moe-fp8-block": Case(lambda: qwen3_5_moe(16), quantise.fp8_blocks, fp8_block(QWEN3_5_PLAIN)),
    "qwen3.5-moe-nvfp4-modelopt": Case(lambda: qwen3_5_moe(32), quantise.nvfp4_modelopt, QWEN3_5_NVFP4, beside=QWEN3_5_NVFP4_BESIDE),
    "gpt-oss-mxfp4": Case(
        gpt_oss, quantise.mxfp4_experts,
        dict(quant_method="mxfp4",
             modules_to_not_convert=["model.layers.*.self_attn", "model.layers.*.mlp.router", "model.embed_tokens", "lm_head"]),
        modules=r"experts\.(gate_up|down)_proj$", prompts=(1, 7, 33, 200),
        published=dict(experts_per_token=2, initial_context_length=4096, swiglu_limit=7.0)),
    "gemma4-nvfp4-modelopt": Case(gemma4_dense, quantise.nvfp4_modelopt, GEMMA4_NVFP4, beside=GEMMA4_NVFP4_BESIDE),
}


def is_quantised(case, tensor):
    module = tensor.removesuffix(".weight")
    is_matrix = module != tensor or case.quantise is quantise.mxfp4_experts
    return is_matrix and "visual" not in module and "vision" not in module and re.search(case.modules, module) is not None
