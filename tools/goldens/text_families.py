"""The text cases of tools/make_goldens.py. Each is a function that returns a small transformers model with random weights.

Sizes are the smallest with all features of a family: several key and value heads, both kinds of its layers, groups of experts.
The vocabulary has 512 tokens, because the tests use ids below that."""

import copy

import transformers as hf

BASE = dict(hidden_size=32, intermediate_size=64, num_hidden_layers=3, num_attention_heads=4, num_key_value_heads=2, vocab_size=512,
            max_position_embeddings=2048, bos_token_id=1, eos_token_id=2, pad_token_id=0)
EXPERTS = dict(num_experts_per_tok=2, moe_intermediate_size=16)
LATENTS = dict(num_key_value_heads=4, kv_lora_rank=32, qk_nope_head_dim=16, qk_rope_head_dim=16, v_head_dim=16, n_routed_experts=8,
               n_shared_experts=1, first_k_dense_replace=1, **EXPERTS)
SLIDING, FULL, LINEAR = "sliding_attention", "full_attention", "linear_attention"
# Nested configs name these tokens.
IMAGE_TOKENS = dict(image_token_id=505, video_token_id=506, vision_start_token_id=503, vision_end_token_id=504)


def base(**changes):
    return {**BASE, **changes}


def published(cls, **config):
    """Returns a model whose config.json is saved as given here, because published ones have fewer fields than
    transformers saves."""
    model = cls(cls.config_class(**copy.deepcopy(config)))
    model.published_config = dict(architectures=[cls.__name__], **config)
    return model


def gemma3_wide_heads():
    """Returns a model with heads of the published size. Its attention scores are scaled down: averages over 1 500 tokens
    are small, and the norm after attention would amplify their rounding to 3 % of the logits."""
    return hf.Gemma3ForCausalLM(hf.Gemma3TextConfig(**base(
        num_attention_heads=2, num_key_value_heads=1, head_dim=256, query_pre_attn_scalar=2048, num_hidden_layers=2, intermediate_size=48,
        sliding_window=512, sliding_window_pattern=2)))


def qwen3_5_text(kind, value_heads, linear_layers, **changes):
    return dict(model_type=kind + "_text", attention_bias=False, attention_dropout=0.0, attn_output_gate=True, dtype="bfloat16",
                eos_token_id=2, full_attention_interval=linear_layers + 1, head_dim=32, hidden_act="silu", hidden_size=32,
                layer_types=[LINEAR] * linear_layers + [FULL], linear_conv_kernel_dim=4, linear_key_head_dim=16, linear_num_key_heads=2,
                linear_num_value_heads=value_heads, linear_value_head_dim=16, mamba_ssm_dtype="float32", max_position_embeddings=4096,
                mlp_only_layers=[], num_attention_heads=4, num_hidden_layers=linear_layers + 1, num_key_value_heads=2, rms_norm_eps=1e-6, use_cache=True,
                vocab_size=512, **changes,
                rope_parameters=dict(mrope_interleaved=True, mrope_section=[2, 1, 1], rope_type="default", rope_theta=10000000,
                                     partial_rotary_factor=0.25))


def qwen3_5_tower(kind, **changes):
    return dict(dict(model_type=kind, deepstack_visual_indexes=[], depth=1, hidden_act="gelu_pytorch_tanh", hidden_size=16, in_channels=3,
                     intermediate_size=32, num_heads=2, num_position_embeddings=16, out_hidden_size=32, patch_size=4, spatial_merge_size=2,
                     temporal_patch_size=2), **changes)


def qwen3_5(cls, kind, value_heads, linear_layers=3, tower=None, tied=False, **changes):
    return published(cls, model_type=kind, **IMAGE_TOKENS, tie_word_embeddings=tied,
                     text_config=qwen3_5_text(kind, value_heads, linear_layers, **changes), vision_config=qwen3_5_tower(kind, **(tower or {})))


def gemma4(**changes):
    """Returns Gemma 4's text_config as published: layers with full attention have another head size, and use their keys
    as values."""
    rope = {FULL: dict(partial_rotary_factor=0.25, rope_theta=1000000.0, rope_type="proportional"),
            SLIDING: dict(rope_theta=10000.0, rope_type="default")}
    return dict(dict(model_type="gemma4_text", attention_bias=False, attention_dropout=0.0, attention_k_eq_v=True, bos_token_id=1,
                     dtype="bfloat16", enable_moe_block=False, eos_token_id=2, final_logit_softcapping=30.0, global_head_dim=32, head_dim=16,
                     hidden_activation="gelu_pytorch_tanh", hidden_size=32, hidden_size_per_layer_input=0, intermediate_size=64,
                     layer_types=[SLIDING, SLIDING, FULL], max_position_embeddings=2048, moe_intermediate_size=None, num_attention_heads=4,
                     num_experts=None, num_global_key_value_heads=1, num_hidden_layers=3, num_key_value_heads=2, num_kv_shared_layers=0,
                     pad_token_id=0, rms_norm_eps=1e-6, rope_parameters=rope, sliding_window=24, tie_word_embeddings=True, top_k_experts=None,
                     use_bidirectional_attention=None, use_cache=True, use_double_wide_mlp=False, vocab_size=512,
                     vocab_size_per_layer_input=512), **changes)


def gemma4_nested(**changes):
    tower = dict(model_type="gemma4_vision", attention_bias=False, dtype="bfloat16", head_dim=16, global_head_dim=16,
                 hidden_activation="gelu_pytorch_tanh", hidden_size=16, intermediate_size=32, num_attention_heads=1, num_key_value_heads=1,
                 num_hidden_layers=1, patch_size=4, pooling_kernel_size=3, position_embedding_size=16, rms_norm_eps=1e-6,
                 rope_parameters=dict(rope_theta=100.0, rope_type="default"), standardize=True, use_clipped_linears=False,
                 default_output_length=4)
    return published(hf.Gemma4ForConditionalGeneration, model_type="gemma4", audio_config=None, audio_token_id=500, boa_token_id=501,
                     boi_token_id=502, dtype="bfloat16", eoa_token_id=503, eoa_token_index=503, eoi_token_id=504, image_token_id=505,
                     video_token_id=506, tie_word_embeddings=True, text_config=gemma4(**changes), vision_soft_tokens_per_image=4,
                     vision_config=tower)


CASES = {
    "gemma3": lambda: hf.Gemma3ForCausalLM(hf.Gemma3TextConfig(**base(
        head_dim=16, query_pre_attn_scalar=16, sliding_window=24, sliding_window_pattern=3))),
    "gemma3-d256": gemma3_wide_heads,
    "gemma4": lambda: published(hf.Gemma4ForCausalLM, **gemma4()),
    "gemma4-e": lambda: gemma4_nested(
        attention_k_eq_v=False, num_global_key_value_heads=None, num_key_value_heads=1, hidden_size_per_layer_input=16, num_kv_shared_layers=2,
        num_hidden_layers=4, layer_types=[SLIDING, FULL, SLIDING, FULL], use_double_wide_mlp=True),
    "gemma4-moe": lambda: gemma4_nested(
        enable_moe_block=True, num_experts=8, top_k_experts=2, moe_intermediate_size=16, use_bidirectional_attention="vision"),
    "mixtral": lambda: hf.MixtralForCausalLM(hf.MixtralConfig(**base(
        num_hidden_layers=2, intermediate_size=32, num_local_experts=8, num_experts_per_tok=2))),
    "qwen3-moe": lambda: hf.Qwen3MoeForCausalLM(hf.Qwen3MoeConfig(**base(
        head_dim=32, num_experts=8, decoder_sparse_step=1, norm_topk_prob=True, **EXPERTS))),
    "glm4-moe": lambda: hf.Glm4MoeForCausalLM(hf.Glm4MoeConfig(**base(
        head_dim=16, n_routed_experts=8, n_shared_experts=1, first_k_dense_replace=1, n_group=1, topk_group=1, **EXPERTS))),
    "gpt-oss": lambda: hf.GptOssForCausalLM(hf.GptOssConfig(**base(
        head_dim=16, num_local_experts=8, num_experts_per_tok=2, sliding_window=24, num_hidden_layers=2, intermediate_size=32))),
    "deepseek-v2": lambda: hf.DeepseekV2ForCausalLM(hf.DeepseekV2Config(**base(
        q_lora_rank=None, n_group=1, topk_group=1, topk_method="greedy", **LATENTS))),
    "deepseek-v3": lambda: hf.DeepseekV3ForCausalLM(hf.DeepseekV3Config(**base(
        q_lora_rank=24, n_group=2, topk_group=1, **LATENTS))),
    "glm4-moe-lite": lambda: hf.Glm4MoeLiteForCausalLM(hf.Glm4MoeLiteConfig(**base(
        rope_theta=1000000.0, routed_scaling_factor=1.8, n_group=1, topk_group=1, tie_word_embeddings=False,
        **{**LATENTS, "q_lora_rank": 24, "num_hidden_layers": 2, "qk_nope_head_dim": 24, "qk_rope_head_dim": 8, "v_head_dim": 32}))),
    "qwen3.5": lambda: qwen3_5(hf.Qwen3_5ForConditionalGeneration, "qwen3_5", 6, intermediate_size=48, mtp_num_hidden_layers=1,
                               mtp_use_dedicated_embeddings=False),
    "qwen3.5-text": lambda: hf.Qwen3_5ForCausalLM(hf.Qwen3_5TextConfig(**base(
        num_hidden_layers=4, head_dim=32, linear_num_value_heads=4, linear_num_key_heads=4, linear_key_head_dim=16, linear_value_head_dim=16,
        tie_word_embeddings=True, rope_parameters=dict(rope_type="default", rope_theta=10000000.0, partial_rotary_factor=0.25,
                                                       mrope_interleaved=True, mrope_section=[2, 1, 1])))),
    "qwen3.5-moe": lambda: qwen3_5(hf.Qwen3_5MoeForConditionalGeneration, "qwen3_5_moe", 4, linear_layers=2, num_experts=8, router_aux_loss_coef=0.001,
                                   shared_expert_intermediate_size=16, **EXPERTS),
    "qwen3-next": lambda: hf.Qwen3NextForCausalLM(hf.Qwen3NextConfig(**base(
        layer_types=[LINEAR, LINEAR, FULL], head_dim=32, linear_num_value_heads=4, linear_num_key_heads=2, linear_key_head_dim=16, linear_value_head_dim=16,
        linear_conv_kernel_dim=4, decoder_sparse_step=1, shared_expert_intermediate_size=16, norm_topk_prob=True, num_experts=8, **EXPERTS))),
}
