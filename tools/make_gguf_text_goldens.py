#!/usr/bin/env python3
"""Writes golden checkpoints without images as GGUF files: tools/make_gguf_text_goldens.py DATA

DATA is tests/data. Each of the checkpoints below, of its folders goldens and quantised, becomes golden.gguf in a folder of
gguf, with the names, metadata and tensors of llama.cpp's converter, but without a tokenizer. The values stay the same, so the
checkpoint's golden.json and golden.safetensors are valid for the file too. Needs, in a virtual environment of its own:
pip install gguf==0.19.0 numpy==2.4.6"""

import json
import pathlib
import struct
import sys

import gguf
import numpy as np

from make_gguf_vision_goldens import BF16, add, finish

CASES = ("goldens/gemma4", "goldens/gemma4-e", "goldens/gemma4-moe", "quantised/gemma4-nvfp4-modelopt", "goldens/ministral3")
NVFP4 = gguf.GGMLQuantizationType.NVFP4
GROUP, GROUPS = 16, 4  # values that share a scale, and groups of a block
UNROTATED = 1e30  # the converter's factor of pairs that are not rotated


def read_tensors(path):
    """Returns the stored types and arrays. BF16 becomes float32, and bytes of E4M3 and of packed values stay bytes."""
    data = path.read_bytes()
    size = struct.unpack("<Q", data[:8])[0]
    tensors = {}
    for name, entry in json.loads(data[8 : 8 + size]).items():
        if name == "__metadata__":
            continue
        begin, end = entry["data_offsets"]
        raw = np.frombuffer(data[8 + size + begin : 8 + size + end], np.uint8)
        if entry["dtype"] == "BF16":
            raw = (raw.view(np.uint16).astype(np.uint32) << 16).view(np.float32)
        elif entry["dtype"] == "F32":
            raw = raw.view(np.float32)
        tensors[name] = raw.reshape(entry["shape"])
    return tensors


def blocks_of(values, scales):
    """Packs ModelOpt's bytes [rows, columns / 2] and scales [rows, columns / 16] as blocks of 64 values."""
    rows = values.shape[0]
    codes = np.stack([values & 15, values >> 4], axis=-1).reshape(rows, -1, GROUPS, GROUP)
    packed = codes[..., : GROUP // 2] | codes[..., GROUP // 2 :] << 4
    blocks = np.concatenate([scales.reshape(rows, -1, GROUPS), packed.reshape(rows, -1, GROUPS * GROUP // 2)], axis=-1)
    return np.ascontiguousarray(blocks.reshape(rows, -1))


def write_gemma4(path, text, tensors):
    layers, shared = text["num_hidden_layers"], text["num_kv_shared_layers"]
    windows = [kind == "sliding_attention" for kind in text["layer_types"]]
    ropes = text["rope_parameters"]
    writer = gguf.GGUFWriter(path, "gemma4")
    writer.add_type("model")
    writer.add_block_count(layers)
    writer.add_context_length(text["max_position_embeddings"])
    writer.add_embedding_length(text["hidden_size"])
    size = text["intermediate_size"]
    wide = text["use_double_wide_mlp"]
    writer.add_feed_forward_length([size if i < layers - shared else 2 * size for i in range(layers)] if wide else size)
    writer.add_head_count(text["num_attention_heads"])
    heads, full_heads = text["num_key_value_heads"], text["num_global_key_value_heads"]
    writer.add_head_count_kv([heads if window else full_heads for window in windows] if full_heads else heads)
    writer.add_layer_norm_rms_eps(text["rms_norm_eps"])
    writer.add_sliding_window(text["sliding_window"])
    writer.add_sliding_window_pattern(windows)
    writer.add_shared_kv_layers(shared)
    writer.add_embedding_length_per_layer_input(text["hidden_size_per_layer_input"])
    writer.add_final_logit_softcapping(text["final_logit_softcapping"])
    writer.add_key_length(text["global_head_dim"])
    writer.add_value_length(text["global_head_dim"])
    writer.add_key_length_swa(text["head_dim"])
    writer.add_value_length_swa(text["head_dim"])
    writer.add_rope_freq_base(ropes["full_attention"]["rope_theta"])
    writer.add_rope_freq_base_swa(ropes["sliding_attention"]["rope_theta"])
    writer.add_rope_dimension_count(text["global_head_dim"])
    writer.add_rope_dimension_count_swa(text["head_dim"])
    if text["enable_moe_block"]:
        writer.add_expert_count(text["num_experts"])
        writer.add_expert_used_count(text["top_k_experts"])
        writer.add_expert_feed_forward_length(text["moe_intermediate_size"])
    kind = NVFP4 if any(values.dtype == np.uint8 for values in tensors.values()) else BF16
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_NVFP4 if kind == NVFP4 else gguf.LlamaFileType.MOSTLY_BF16)
    writer.add_tokenizer_model("none")
    pairs = text["global_head_dim"] // 2
    rotated = int(pairs * ropes["full_attention"]["partial_rotary_factor"])
    add(writer, "rope_freqs.weight", np.array([1.0] * rotated + [UNROTATED] * (pairs - rotated)))
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.GEMMA4, layers)
    for name, values in tensors.items():
        if "vision" in name or name.endswith(("weight_scale", "weight_scale_2", "input_scale")):
            continue
        stem = name.removesuffix(".weight")
        name = name.replace("model.language_model.", "model.")
        if name.endswith("layer_scalar") or (".experts." in name and not name.endswith(".weight")):
            name += ".weight"
        block = name.split(".")[2]
        if name.endswith("router.scale"):
            own = f"blk.{block}.ffn_gate_inp.scale"
        elif name.endswith("router.per_expert_scale"):
            own = f"blk.{block}.ffn_down_exps.scale"
        else:
            own = f"{names.get_name(name.removesuffix('.weight'))}.weight"
        assert not own.startswith("None"), name
        if values.dtype != np.uint8:
            add(writer, own, values)
            continue
        writer.add_tensor(own, blocks_of(values, tensors[f"{stem}.weight_scale"]), raw_dtype=NVFP4)
        for suffix, member in ((".scale", "weight_scale_2"), (".input_scale", "input_scale")):
            add(writer, own.removesuffix(".weight") + suffix, tensors[f"{stem}.{member}"].reshape(1))
    finish(writer)


def paired(values, heads):
    """Returns the rows in the order in which files store those of queries and keys: 0, n/2, 1, n/2 + 1, … of each head."""
    return values.reshape(heads, 2, values.shape[0] // heads // 2, -1).swapaxes(1, 2).reshape(values.shape)


def write_mistral3(path, text, tensors):
    rope = text["rope_parameters"]
    heads, kv_heads = text["num_attention_heads"], text["num_key_value_heads"]
    writer = gguf.GGUFWriter(path, "mistral3")
    writer.add_type("model")
    writer.add_block_count(text["num_hidden_layers"])
    writer.add_context_length(text["max_position_embeddings"])
    writer.add_embedding_length(text["hidden_size"])
    writer.add_feed_forward_length(text["intermediate_size"])
    writer.add_head_count(heads)
    writer.add_head_count_kv(kv_heads)
    writer.add_layer_norm_rms_eps(text["rms_norm_eps"])
    writer.add_key_length(text["head_dim"])
    writer.add_value_length(text["head_dim"])
    writer.add_vocab_size(text["vocab_size"])
    writer.add_rope_freq_base(rope["rope_theta"])
    writer.add_rope_dimension_count(text["head_dim"])
    writer.add_rope_scaling_type(gguf.RopeScalingType.YARN)
    writer.add_rope_scaling_factor(rope["factor"])
    writer.add_rope_scaling_orig_ctx_len(rope["original_max_position_embeddings"])
    writer.add_rope_scaling_yarn_beta_fast(rope["beta_fast"])
    writer.add_rope_scaling_yarn_beta_slow(rope["beta_slow"])
    writer.add_rope_scaling_yarn_log_mul(rope["mscale_all_dim"])
    writer.add_attn_temperature_scale(rope["llama_4_scaling_beta"])
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_BF16)
    writer.add_tokenizer_model("none")
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.MISTRAL3, text["num_hidden_layers"])
    for name, values in tensors.items():
        if name.endswith(("q_proj.weight", "k_proj.weight")):
            values = paired(values, heads if name.endswith("q_proj.weight") else kv_heads)
        add(writer, f"{names.get_name(name.removesuffix('.weight'))}.weight", values)
    finish(writer)


def main():
    data = pathlib.Path(sys.argv[1])
    for case in CASES:
        folder = data / "gguf" / pathlib.Path(case).name
        folder.mkdir(parents=True, exist_ok=True)
        config = json.loads((data / case / "config.json").read_text())
        write = write_mistral3 if config["model_type"] == "ministral3" else write_gemma4
        write(folder / "golden.gguf", config.get("text_config", config), read_tensors(data / case / "model.safetensors"))


if __name__ == "__main__":
    main()
