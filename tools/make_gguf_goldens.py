#!/usr/bin/env python3
"""Writes golden GGUF files in Q8_0, with references of their own: tools/make_gguf_goldens.py DATA [NAME …]

DATA is tests/data. Each case below becomes a folder of gguf: golden-Q8_0.gguf, with the names, metadata and tensors of llama.cpp's
converter but without a tokenizer, and the results that Hugging Face transformers computes in float32 from the dequantised weights. The
weights are those of a checkpoint in goldens. Only the last case has its own random ones: experts in NVFP4 have rows of at least 64.
golden.safetensors also has `logits_act_<i>`, the logits if the inputs of products with Q8_0 weights are rounded to eight bits with a
scale for 32 values. Needs the packages of tools/make_goldens.py and gguf==0.19.0."""

import contextlib
import copy
import json
import pathlib
import sys
import tempfile

import gguf
import numpy as np
import safetensors.torch
import torch
import transformers

from goldens import quantise, reference, weights
from make_gguf_text_goldens import NVFP4, blocks_of
from make_gguf_vision_goldens import finish, read_safetensors

SEED, TRIES = 1, 20000
APART = 1e-5  # greatest relative difference of logits in float32 and float64 that makes a good reference
# Each greedy token's logit is ahead of the others by a tenth of the logits' root mean square at least. Rounded inputs change
# logits by about 2 % of it, so they choose the same tokens.
LEAD = 0.1
GREATEST_BYTES = 300 * 1024
GROUP, GREATEST = 32, 127
F32, F16, Q8_0 = gguf.GGMLQuantizationType.F32, gguf.GGMLQuantizationType.F16, gguf.GGMLQuantizationType.Q8_0
LENGTHS = (1, 5, 9, 17, 40)
LONG_CONTEXT = (17, 18, 20, 24, 40)  # each prompt is longer than the original context, so the long factors hold


def add_experts(writer, config):
    writer.add_expert_count(config["n_routed_experts"])
    writer.add_expert_used_count(config["num_experts_per_tok"])
    writer.add_expert_feed_forward_length(config["moe_intermediate_size"])
    writer.add_expert_shared_count(config["n_shared_experts"])
    writer.add_leading_dense_block_count(config["first_k_dense_replace"])
    writer.add_expert_weights_scale(config["routed_scaling_factor"])
    writer.add_expert_weights_norm(config["norm_topk_prob"])
    writer.add_expert_group_count(config["n_group"])
    writer.add_expert_group_used_count(config["topk_group"])
    sigmoid = config["architectures"] != ["DeepseekV2ForCausalLM"]
    writer.add_expert_gating_func(gguf.ExpertGatingFuncType.SIGMOID if sigmoid else gguf.ExpertGatingFuncType.SOFTMAX)


def add_gemma2(writer, config):
    writer.add_key_length(config["head_dim"])
    writer.add_value_length(config["head_dim"])
    writer.add_attn_logit_softcapping(config["attn_logit_softcapping"])
    writer.add_final_logit_softcapping(config["final_logit_softcapping"])
    writer.add_sliding_window(config["sliding_window"])


def add_phi3(writer, config):
    rope, size = config["rope_parameters"], config["hidden_size"] // config["num_attention_heads"]
    original = config["original_max_position_embeddings"]
    writer.add_rope_dimension_count(int(rope["partial_rotary_factor"] * size))
    writer.add_rope_scaling_orig_ctx_len(original)
    writer.add_sliding_window(config["sliding_window"])
    growth = config["max_position_embeddings"] / original
    writer.add_rope_scaling_attn_factors(float(np.sqrt(1 + np.log(growth) / np.log(original))))
    for kind in ("long", "short"):
        writer.add_tensor(f"rope_factors_{kind}.weight", np.array(rope[f"{kind}_factor"], np.float32))


def add_deepseek2(writer, config):
    latent, rotated = config["kv_lora_rank"], config["qk_rope_head_dim"]
    if config["q_lora_rank"] is not None:
        writer.add_q_lora_rank(config["q_lora_rank"])
    writer.add_kv_lora_rank(latent)
    writer.add_key_length(latent + rotated)
    writer.add_value_length(latent)
    writer.add_key_length_mla(config["qk_nope_head_dim"] + rotated)
    writer.add_value_length_mla(config["v_head_dim"])
    writer.add_rope_dimension_count(rotated)
    add_experts(writer, config)


def add_glm4moe(writer, config):
    writer.add_key_length(config["head_dim"])
    writer.add_value_length(config["head_dim"])
    writer.add_rope_dimension_count(int(config["head_dim"] * config["rope_parameters"]["partial_rotary_factor"]))
    add_experts(writer, config)


def add_qwen3moe(writer, config):
    writer.add_key_length(config["head_dim"])
    writer.add_value_length(config["head_dim"])
    writer.add_expert_count(config["num_local_experts"])
    writer.add_expert_used_count(config["num_experts_per_tok"])
    writer.add_expert_feed_forward_length(config["moe_intermediate_size"])


def nvfp4_mixture(folder):
    """Saves a mixture whose experts' rows are whole blocks of NVFP4."""
    model, _ = weights.random_model(lambda: transformers.Qwen3MoeForCausalLM(transformers.Qwen3MoeConfig(
        hidden_size=64, intermediate_size=128, moe_intermediate_size=64, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
        head_dim=16, num_experts=4, num_experts_per_tok=2, decoder_sparse_step=1, norm_topk_prob=True, vocab_size=512,
        max_position_embeddings=2048, tie_word_embeddings=True, bos_token_id=1, eos_token_id=2, pad_token_id=0)), SEED)
    weights.narrow(model)
    model.save_pretrained(folder)


# The checkpoint of each case, its architecture, and what adds the architecture's own metadata.
CASES = {
    "qwen2-q8_0": ("qwen2", "qwen2", lambda writer, config: None),
    "gemma2-q8_0": ("gemma2", "gemma2", add_gemma2),
    "phi3-q8_0": ("phi3-longrope", "phi3", add_phi3),
    "deepseek2-q8_0": ("deepseek-v3", "deepseek2", add_deepseek2),
    "deepseek2-v2-q8_0": ("deepseek-v2", "deepseek2", add_deepseek2),
    "glm4moe-q8_0": ("glm4-moe", "glm4moe", add_glm4moe),
    "qwen3moe-nvfp4": (None, "qwen3moe", add_qwen3moe),
}


def type_of(name, values):
    """Returns the type that the converter chooses for Q8_0: F32 for vectors and routers, F16 for rows of other lengths."""
    if values.ndim == 1 or "ffn_gate_inp" in name:
        return F32
    return Q8_0 if values.shape[-1] % GROUP == 0 else F16


class Tensors:
    """The file's tensors, and the same weights as transformers reads them."""

    def __init__(self, writer, config, arch):
        self.writer, self.config = writer, config
        self.plain, self.quantised, self.experts = {}, set(), {}
        kind = next(kind for kind, name in gguf.MODEL_ARCH_NAMES.items() if name == arch)
        self.names = gguf.get_tensor_name_map(kind, config["num_hidden_layers"])
        self.plus_one = arch == "gemma2"
        self.nvfp4_experts = arch == "qwen3moe"

    def add(self, own, values):
        """Adds a tensor to the file. Returns its dequantised values."""
        kind = type_of(own, values)
        stored = gguf.quants.quantize(np.ascontiguousarray(values, np.float32), kind)
        self.writer.add_tensor(own, stored, raw_dtype=kind)
        return gguf.quants.dequantize(stored, kind).reshape(values.shape)

    def own_name(self, name):
        if name.endswith("e_score_correction_bias"):
            name = name.replace("_bias", ".bias")
        stem, _, suffix = name.rpartition(".")
        own = self.names.get_name(stem)
        assert own, name
        return f"{own}.{suffix}"

    def take(self, name, values):
        if ".experts." in name:
            stem, _, rest = name.partition(".experts.")
            number, projection = rest.split(".")[:2]
            self.experts.setdefault(f"{stem}.experts.{projection}.weight", {})[int(number)] = values
        elif name.endswith("kv_b_proj.weight"):
            self.take_latents(name, values)
        elif self.plus_one and name.endswith("norm.weight"):
            self.plain[name] = self.add(self.own_name(name), values + 1) - 1
        else:
            own = self.own_name(name)
            self.plain[name] = self.add(own, values)
            if type_of(own, values) == Q8_0:
                self.quantised.add(name)

    def take_latents(self, name, values):
        """Adds the keys' rows [heads, latent, size] and the values' rows [heads, size, latent]. No program multiplies with
        them as they are, so their inputs are not rounded."""
        heads, keys = self.config["num_attention_heads"], self.config["qk_nope_head_dim"]
        rows = values.reshape(heads, -1, values.shape[1])
        key = self.add(self.own_name(name.replace("kv_b_proj", "k_b_proj")), rows[:, :keys].transpose(0, 2, 1)).transpose(0, 2, 1)
        value = self.add(self.own_name(name.replace("kv_b_proj", "v_b_proj")), rows[:, keys:])
        self.plain[name] = np.concatenate([key, value], axis=1).reshape(values.shape)

    def add_nvfp4(self, own, experts):
        """Adds the experts' blocks, and a factor for each. Returns the dequantised values."""
        parts, numbers = zip(*(quantise.nvfp4_modelopt(torch.from_numpy(values.copy())) for values in experts))
        blocks = [blocks_of(part["weight"].numpy(), part["weight_scale"].view(torch.uint8).numpy()) for part in parts]
        self.writer.add_tensor(own, np.stack(blocks), raw_dtype=NVFP4)
        self.writer.add_tensor(own.removesuffix(".weight") + ".scale", np.array([float(part["weight_scale_2"]) for part in parts], np.float32))
        return [values.numpy() for values in numbers]

    def take_experts(self):
        for merged, rows in self.experts.items():
            own = self.own_name(merged)
            stem, _, projection = merged.partition(".experts.")
            experts = np.stack([rows[i] for i in range(len(rows))])
            for i, values in enumerate(self.add_nvfp4(own, experts) if self.nvfp4_experts else self.add(own, experts)):
                name = f"{stem}.experts.{i}.{projection}"
                self.plain[name] = values
                if not self.nvfp4_experts and type_of(own, values) == Q8_0:
                    self.quantised.add(name)


def write_file(path, arch, config, tensors, add_own):
    writer = gguf.GGUFWriter(path, arch)
    writer.add_type("model")
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(config["num_attention_heads"])
    writer.add_head_count_kv(1 if arch == "deepseek2" else config["num_key_value_heads"])
    writer.add_rope_freq_base(config["rope_parameters"]["rope_theta"])
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_Q8_0)
    writer.add_vocab_size(config["vocab_size"])
    writer.add_tokenizer_model("none")
    add_own(writer, config)
    file = Tensors(writer, config, arch)
    for name, values in tensors.items():
        file.take(name, values)
    file.take_experts()
    finish(writer)
    return file


def rounded(values):
    """Rounds rows to integers of eight bits with a scale for 32 values."""
    groups = values.reshape(*values.shape[:-1], -1, GROUP)
    scale = groups.abs().amax(-1, keepdim=True) / GREATEST
    numbers = (groups / torch.where(scale == 0, 1, scale)).round()
    return (numbers * scale).reshape(values.shape)


@contextlib.contextmanager
def rounded_inputs(model, quantised):
    """Rounds the inputs of every product with a quantised weight. Experts are one parameter, and a product takes a slice of it."""
    def is_quantised(name):
        if ".experts." in name:
            stem, projection = name.split(".experts.")
            parts = ("gate_proj", "up_proj") if projection == "gate_up_proj" else (projection,)
            return all(f"{stem}.experts.0.{part}.weight" in quantised for part in parts)
        return name in quantised

    storages = {p.untyped_storage().data_ptr() for name, p in model.named_parameters() if is_quantised(name)}
    linear = torch.nn.functional.linear

    def product(values, weight, bias=None):
        return linear(rounded(values) if weight.untyped_storage().data_ptr() in storages else values, weight, bias)

    torch.nn.functional.linear = product
    try:
        yield
    finally:
        torch.nn.functional.linear = linear


def logits_of(model, prompt):
    return model(torch.tensor([prompt])).logits[0]


def rounded_logits(model, precise, quantised, prompt):
    """Returns the logits with rounded inputs. If a value is nearly halfway between two integers, another order of sums
    rounds it to the other one, which changes all later layers: then float32 and float64 are apart, and the prompt is unclear."""
    with rounded_inputs(model, quantised):
        logits = logits_of(model, prompt).float()
    with rounded_inputs(precise, quantised):
        expected = logits_of(precise, prompt)
    if float((logits - expected).norm() / expected.norm()) > APART:
        raise reference.Unclear("a value is halfway between two integers")
    return logits


def reference_of(model, quantised, lengths):
    """Returns (members of golden.json, tensors). Each prompt is the first random one that makes a good reference."""
    precise = copy.deepcopy(model).double()
    prompts, answers, tensors = [], [], {}
    generator = torch.Generator().manual_seed(SEED)
    for i, length in enumerate(lengths):
        for _ in range(TRIES):
            prompt = torch.randint(3, 500, (length,), generator=generator).tolist()
            try:
                logits = logits_of(model, prompt).float()
                lead = LEAD * float(logits[-1].square().mean().sqrt())
                answer = reference.greedy(lambda ids: model(ids).logits[0].float(), prompt, reference.GREEDY_TOKENS["text"], lead)
                act = rounded_logits(model, precise, quantised, prompt)
                break
            except reference.Unclear:
                continue
        else:
            sys.exit(f"no prompt of {length} tokens in {TRIES} makes a good reference")
        prompts.append(prompt)
        answers.append(answer)
        reference.store_logits(tensors, i, logits)
        rows = {}
        reference.store_logits(rows, i, act)
        tensors |= {name.replace("logits_", "logits_act_"): values for name, values in rows.items()}
    return dict(seed=SEED, prompts=prompts, greedy=answers), tensors


def make_golden(name, data):
    checkpoint, arch, add_own = CASES[name]
    folder = data / "gguf" / name
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as made:
        source = data / "goldens" / checkpoint if checkpoint else pathlib.Path(made)
        if not checkpoint:
            nvfp4_mixture(source)
        config = json.loads((source / "config.json").read_text())
        tensors = read_safetensors(source / "model.safetensors")
    path = folder / ("golden-Q8_0.gguf" if checkpoint else "golden-NVFP4.gguf")
    file = write_file(path, arch, config, tensors, add_own)
    with tempfile.TemporaryDirectory() as numbers:
        (pathlib.Path(numbers) / "config.json").write_text(json.dumps(config))
        plain = {name: torch.from_numpy(values.copy()) for name, values in file.plain.items()}
        safetensors.torch.save_file(plain, f"{numbers}/model.safetensors", metadata={"format": "pt"})
        model = transformers.AutoModelForCausalLM.from_pretrained(numbers, dtype=torch.float32, attn_implementation="eager",
                                                                  experts_implementation="eager").eval()
    members, tensors = reference_of(model, file.quantised, LONG_CONTEXT if checkpoint == "phi3-longrope" else LENGTHS)
    safetensors.torch.save_file(tensors, folder / "golden.safetensors")
    told = dict(transformers=transformers.__version__, torch=torch.__version__, **members)
    (folder / "golden.json").write_text(json.dumps(told) + "\n")
    size = sum(file.stat().st_size for file in folder.iterdir())
    away = max(float((tensors[key] - tensors[key.replace("act_", "")]).norm() / tensors[key].norm()) for key in tensors if "act" in key)
    print(f"{name}: {size / 1024:.0f} KiB, rounded inputs {100 * away:.1f} % apart", flush=True)
    if size > GREATEST_BYTES:
        sys.exit(f"{name}: more than {GREATEST_BYTES // 1024} KiB")


def main():
    data, *names = sys.argv[1:]
    with torch.no_grad():
        for name in names or CASES:
            make_golden(name, pathlib.Path(data))


if __name__ == "__main__":
    main()
