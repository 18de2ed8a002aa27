"""The cases of tools/make_goldens.py that read images. Each has a small transformers model with random weights, its image processor, and
the sizes of the images in each prompt. A patch has 4 × 4 pixels, so that an image of a few kilobytes has several windows."""

import transformers as hf

from .text_families import IMAGE_TOKENS, qwen3_5

TEXT = dict(num_hidden_layers=2, num_key_value_heads=2, vocab_size=512, max_position_embeddings=4096, head_dim=16,
            rope_theta=1000000.0)
HALF = dict(image_mean=[0.5] * 3, image_std=[0.5] * 3)


def processor(**changes):
    """Returns a processor that makes images of 4 to 64 tokens."""
    return hf.Qwen2VLImageProcessor(min_pixels=16 * 16, max_pixels=8 * 8 * 64, patch_size=4, merge_size=2, temporal_patch_size=2, **changes)


def qwen2_vl():
    config = hf.Qwen2VLConfig(
        text_config=dict(TEXT, bos_token_id=None, eos_token_id=None, hidden_size=32, intermediate_size=48, num_attention_heads=2, rope_scaling=dict(type="mrope", rope_type="default", mrope_section=[2, 3, 3])),
        vision_config=dict(depth=2, embed_dim=24, hidden_size=32, mlp_ratio=3, num_heads=3, patch_size=4, spatial_merge_size=2, temporal_patch_size=2),
        tie_word_embeddings=True, **IMAGE_TOKENS)
    return hf.Qwen2VLForConditionalGeneration(config)


def qwen2_5_vl():
    config = hf.Qwen2_5_VLConfig(
        text_config=dict(TEXT, bos_token_id=None, eos_token_id=None, hidden_size=32, intermediate_size=48, num_attention_heads=2, rope_scaling=dict(type="mrope", rope_type="default", mrope_section=[2, 3, 3])),
        vision_config=dict(depth=2, hidden_size=32, intermediate_size=128, num_heads=2, patch_size=4, spatial_merge_size=2,
                           temporal_patch_size=2, window_size=32, out_hidden_size=32, fullatt_block_indexes=[1]),
        tie_word_embeddings=True, **IMAGE_TOKENS)
    return hf.Qwen2_5_VLForConditionalGeneration(config)


def qwen3_vl(cls, hidden_size, **changes):
    config = cls.config_class(
        text_config=dict(TEXT, hidden_size=hidden_size, intermediate_size=16, num_attention_heads=4,
                         rope_scaling=dict(rope_type="default", mrope_section=[2, 3, 3], mrope_interleaved=True), **changes),
        vision_config=dict(depth=3, hidden_size=16, intermediate_size=32, num_heads=2, patch_size=4, spatial_merge_size=2,
                           temporal_patch_size=2, out_hidden_size=hidden_size, num_position_embeddings=36, deepstack_visual_indexes=[0, 1]),
        tie_word_embeddings=True, **IMAGE_TOKENS)
    return cls(config)


def qwen3_vl_moe():
    return qwen3_vl(hf.Qwen3VLMoeForConditionalGeneration, 32, num_experts=8, num_experts_per_tok=2, moe_intermediate_size=24,
                    decoder_sparse_step=1, norm_topk_prob=True)


def qwen3_5_vl():
    return qwen3_5(hf.Qwen3_5ForConditionalGeneration, "qwen3_5", 4, tower=dict(depth=2, num_position_embeddings=36), tied=True, intermediate_size=32)


# name: (model, processor, [for each prompt, the (width, height) of each image])
CASES = {
    "qwen2-vl": (qwen2_vl, processor, [[(24, 16)], [(40, 40)], [(17, 32), (21, 16)]]),
    "qwen2.5-vl": (qwen2_5_vl, processor, [[(24, 16)], [(40, 40)], [(17, 32), (21, 16)]]),
    "qwen3-vl": (lambda: qwen3_vl(hf.Qwen3VLForConditionalGeneration, 64), lambda: processor(**HALF), [[(24, 16)], [(24, 28)], [(17, 24), (16, 17)]]),
    "qwen3-vl-moe": (qwen3_vl_moe, lambda: processor(**HALF), [[(24, 16)], [(24, 28)], [(17, 24), (16, 17)]]),
    "qwen3.5-vl": (qwen3_5_vl, lambda: processor(**HALF), [[(24, 16)], [(24, 28)], [(17, 24), (16, 17)]]),
}
