#!/usr/bin/env python3
"""Writes golden checkpoints with images as GGUF files: tools/make_gguf_vision_goldens.py GOLDENS FOLDER

GOLDENS is tests/data/goldens, FOLDER is tests/data/gguf. Each of the checkpoints below becomes a language model
(golden-BF16.gguf) and a projector (mmproj-golden-BF16.gguf), with the names, metadata, shapes and orders of rows of
llama.cpp's converter. The values stay the same, so the checkpoint's golden.json and golden.safetensors are valid for
the files too. Needs, in a virtual environment of its own: pip install gguf==0.19.0 numpy==2.4.6"""

import json
import pathlib
import re
import struct
import sys

import gguf
import numpy as np

CASES = {"qwen2-vl": "qwen2vl", "qwen2.5-vl": "qwen2vl", "qwen3-vl": "qwen3vl", "qwen3.5-vl": "qwen35"}
SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|vision_start|>", "<|vision_end|>", "<|image_pad|>", "<|video_pad|>")
FIRST_SPECIAL = 500
CHAT = ("{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\\n' }}{% if m['content'] is string %}{{ m['content'] }}{% else %}"
        "{% for part in m['content'] %}{{ part['text'] if part['type'] == 'text' else '<|vision_start|><|image_pad|><|vision_end|>' }}"
        "{% endfor %}{% endif %}{{ '<|im_end|>\\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}")
F32, BF16 = gguf.GGMLQuantizationType.F32, gguf.GGMLQuantizationType.BF16


def read_safetensors(path):
    data = path.read_bytes()
    size = struct.unpack("<Q", data[:8])[0]
    tensors = {}
    for name, entry in json.loads(data[8 : 8 + size]).items():
        if name == "__metadata__":
            continue
        begin, end = entry["data_offsets"]
        raw = data[8 + size + begin : 8 + size + end]
        if entry["dtype"] == "BF16":
            values = (np.frombuffer(raw, np.uint16).astype(np.uint32) << 16).view(np.float32)
        else:
            assert entry["dtype"] == "F32", name
            values = np.frombuffer(raw, np.float32)
        tensors[name] = values.reshape(entry["shape"])
    return tensors


def add(writer, name, values, plain=False):
    """Adds a tensor. Vectors, norms and whatever is `plain` are F32, as the converter writes them."""
    kind = F32 if plain or values.ndim == 1 else BF16
    writer.add_tensor(name, gguf.quants.quantize(np.ascontiguousarray(values, np.float32), kind), raw_dtype=kind)


def finish(writer):
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def add_vocabulary(writer, size):
    """Adds a vocabulary of single bytes, with the converter's names for unused ids."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in printable]
    tokens = [chr(byte) for byte in printable] + [chr(256 + i) for i in range(len(others))]
    tokens += [f"[PAD{i}]" for i in range(len(tokens), size)]
    kinds = [gguf.TokenType.NORMAL] * 256 + [gguf.TokenType.UNUSED] * (size - 256)
    for i, text in enumerate(SPECIAL):
        tokens[FIRST_SPECIAL + i] = text
        kinds[FIRST_SPECIAL + i] = gguf.TokenType.CONTROL
    tokens[256], kinds[256] = "th", gguf.TokenType.NORMAL
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("qwen2")
    writer.add_token_list(tokens)
    writer.add_token_types(kinds)
    writer.add_token_merges(["t h"])
    writer.add_eos_token_id(tokens.index("<|im_end|>"))
    writer.add_pad_token_id(tokens.index("<|endoftext|>"))
    writer.add_add_bos_token(False)
    writer.add_chat_template(CHAT)


def swapped(values, axis, first, a, b, unit):
    """[a, b, unit] → [b, a, unit] along an axis, behind the first `first` elements."""
    values = np.moveaxis(values, axis, 0)
    head, tail = values[:first], values[first:]
    tail = tail.reshape(a, b, unit, *tail.shape[1:]).swapaxes(0, 1).reshape(tail.shape)
    return np.moveaxis(np.concatenate([head, tail]), 0, axis)


def net_form(name, values, text):
    """Returns a tensor of a gated delta net in the converter's form, or None for another tensor."""
    keys, heads = text["linear_num_key_heads"], text["linear_num_value_heads"]
    size, first = text["linear_value_head_dim"], 2 * keys * text["linear_key_head_dim"]
    groups = heads // keys
    if "in_proj_qkv" in name:
        return swapped(values, 0, first, keys, groups, size)
    if "conv1d" in name:
        return swapped(values[:, 0], 0, first, keys, groups, size)
    if "in_proj_z" in name:
        return swapped(values, 0, 0, keys, groups, size)
    if "in_proj_a" in name or "in_proj_b" in name or "dt_bias" in name:
        return swapped(values, 0, 0, keys, groups, 1)
    if "A_log" in name:
        return -np.exp(swapped(values, 0, 0, keys, groups, 1))
    if "out_proj" in name:
        return swapped(values, 1, 0, keys, groups, size)
    return None


def write_text(path, arch, config, tensors):
    text, vision = config["text_config"], config["vision_config"]
    writer = gguf.GGUFWriter(path, arch)
    writer.add_type("model")
    writer.add_block_count(text["num_hidden_layers"])
    writer.add_context_length(text["max_position_embeddings"])
    writer.add_embedding_length(text["hidden_size"])
    writer.add_feed_forward_length(text["intermediate_size"])
    writer.add_head_count(text["num_attention_heads"])
    writer.add_head_count_kv(text["num_key_value_heads"])
    writer.add_key_length(text["head_dim"])
    writer.add_value_length(text["head_dim"])
    writer.add_layer_norm_rms_eps(text["rms_norm_eps"])
    rope = text["rope_parameters"]
    writer.add_rope_freq_base(float(rope["rope_theta"]))
    writer.add_rope_dimension_sections([*rope["mrope_section"], 0])
    if arch == "qwen3vl":
        writer.add_num_deepstack_layers(len(vision["deepstack_visual_indexes"]))
    if arch == "qwen35":
        writer.add_rope_dimension_count(int(text["head_dim"] * rope["partial_rotary_factor"]))
        writer.add_ssm_conv_kernel(text["linear_conv_kernel_dim"])
        writer.add_ssm_state_size(text["linear_key_head_dim"])
        writer.add_ssm_group_count(text["linear_num_key_heads"])
        writer.add_ssm_time_step_rank(text["linear_num_value_heads"])
        writer.add_ssm_inner_size(text["linear_value_head_dim"] * text["linear_num_value_heads"])
        writer.add_full_attention_interval(text["full_attention_interval"])
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_BF16)
    add_vocabulary(writer, text["vocab_size"])
    model_arch = next(key for key, name in gguf.MODEL_ARCH_NAMES.items() if name == arch)
    names = gguf.get_tensor_name_map(model_arch, text["num_hidden_layers"])
    for name, values in tensors.items():
        if "visual." in name:
            continue
        name = name.replace("model.language_model.", "model.")
        formed = net_form(name, values, text) if "linear_attn." in name else None
        if formed is not None:
            values = formed
        elif arch == "qwen35" and name.endswith("norm.weight") and "linear_attn" not in name:
            values = values + 1
        if name.endswith(".dt_bias"):
            name = name.replace(".dt_bias", ".dt_proj.bias")
        stem, _, suffix = name.rpartition(".")
        own = names.get_name(name) if name.endswith("A_log") else f"{names.get_name(stem)}.{suffix}"
        assert own and not own.startswith("None"), name
        add(writer, own, values, plain="conv1d" in name)
    finish(writer)


def write_projector(path, config, tensors):
    vision, processor = config["vision_config"], config["processor"]
    windows = "fullatt_block_indexes" in vision
    first = "embed_dim" in vision  # Qwen2-VL: as the MLPs' size, the converter writes the language model's hidden size
    writer = gguf.GGUFWriter(path, "clip")
    writer.add_type("mmproj")
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_BF16)
    writer.add_clip_has_vision_encoder(True)
    writer.add_vision_projection_dim(config["text_config"]["hidden_size"])
    writer.add_vision_image_size(560 if windows or first else int(vision["num_position_embeddings"] ** 0.5) * vision["patch_size"])
    writer.add_vision_patch_size(vision["patch_size"])
    writer.add_vision_embedding_length(vision["embed_dim" if first else "hidden_size"])
    writer.add_vision_feed_forward_length(vision["hidden_size" if first else "intermediate_size"])
    writer.add_vision_block_count(vision["depth"])
    writer.add_vision_head_count(vision["num_heads"])
    writer.add_vision_image_mean(processor["image_mean"])
    writer.add_vision_image_std(processor["image_std"])
    writer.add_vision_attention_layernorm_eps(1e-6)
    if first:
        writer.add_clip_projector_type("qwen2vl_merger")
    elif windows:
        writer.add_clip_projector_type("qwen2.5vl_merger")
        writer.add_vision_use_silu(True)
        writer.add_vision_n_wa_pattern(vision["fullatt_block_indexes"][0] + 1)
        writer.add_vision_window_size(vision["window_size"])
    else:
        writer.add_clip_projector_type("qwen3vl_merger")
        writer.add_vision_use_gelu(True)
        writer.add_vision_spatial_merge_size(vision["spatial_merge_size"])
        levels = vision["deepstack_visual_indexes"]
        writer.add_vision_is_deepstack_layers([block in levels for block in range(vision["depth"])])
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.MMPROJ, 32)
    for name, values in tensors.items():
        if "visual." not in name:
            continue
        name = name.removeprefix("model.")
        level = re.fullmatch(r"visual\.deepstack_merger_list\.(\d+)\.(norm|linear_(fc\d))\.(\w+)", name)
        merger = re.fullmatch(r"visual\.merger\.(norm|linear_fc([12]))\.(\w+)", name)
        if name == "visual.patch_embed.proj.weight":
            add(writer, "v.patch_embd.weight", values[:, :, 0], plain=True)
            add(writer, "v.patch_embd.weight.1", values[:, :, 1], plain=True)
        elif level:
            block = vision["deepstack_visual_indexes"][int(level[1])]
            add(writer, f"v.deepstack.{block}.{level[3] or 'norm'}.{level[4]}", values)
        elif merger:
            stem = "v.post_ln" if merger[1] == "norm" else {"1": "mm.0", "2": "mm.2"}[merger[2]]
            add(writer, f"{stem}.{merger[3]}", values)
        elif (windows or first) and ".qkv." in name:
            for part, own in zip(np.split(values, 3), "qkv"):
                stem, _, suffix = name.replace("qkv", own).rpartition(".")
                add(writer, f"{names.get_name(stem)}.{suffix}", part)
        else:
            stem, _, suffix = name.rpartition(".")
            assert names.get_name(stem), name
            add(writer, f"{names.get_name(stem)}.{suffix}", values, plain="pos_embed" in name)
    finish(writer)


def main():
    goldens, folder = map(pathlib.Path, sys.argv[1:])
    for case, arch in CASES.items():
        config = json.loads((goldens / case / "config.json").read_text())
        config["processor"] = json.loads((goldens / case / "preprocessor_config.json").read_text())
        tensors = read_safetensors(goldens / case / "model.safetensors")
        (folder / case).mkdir(exist_ok=True)
        write_text(folder / case / "golden-BF16.gguf", arch, config, tensors)
        write_projector(folder / case / "mmproj-golden-BF16.gguf", config, tensors)


if __name__ == "__main__":
    main()
