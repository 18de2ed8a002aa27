#!/usr/bin/env python3
"""Measures llama.cpp on this CPU, alternating with Tessera, for the comparison in docs/measurements/cpu.md.

Both programs run a model with the configuration's shapes and random weights on all cores. They compute prompts, and one
request that decodes after a context. Weights are bfloat16, or blocks of --type; with blocks both read one GGUF file.
Prints tokens a second as medians over the turns, and the least and greatest ratio of a turn.

  tools/anchor_llama_cpp.py --llama-bench bin/llama-bench qwen3-0.6b/config.json
  tools/anchor_llama_cpp.py --llama-bench bin/llama-bench --turns 3 --num-tokens 512 --context 16 config.json

llama-bench is built from llama.cpp's sources, which PyPI's llama-cpp-python contains (measured with 0.3.36):
cmake -B b -DLLAMA_CURL=OFF vendor/llama.cpp && cmake --build b --target llama-bench. The machine should be idle."""

import argparse
import array
import json
import math
import os
import pathlib
import random
import statistics
import struct
import subprocess
import tempfile

ARCHITECTURES = {"Qwen3ForCausalLM": "qwen3", "Qwen3MoeForCausalLM": "qwen3moe", "LlamaForCausalLM": "llama"}
ALIGNMENT = 32
F32, BF16 = 0, 30  # types of ggml's tensors
PATTERN_VALUES = 1 << 20


class BlockType:
    """A type of blocks. `kind` is its number in files. A block has `elements` values in `size` bytes. `scales` maps the
    offset of each float16 scale to a factor for random scales. In a type with two scales, products with the second one
    are subtracted. Its factor is the mean code, so that the mean of random values is about 0."""

    def __init__(self, kind, elements, size, scales):
        self.kind, self.elements, self.size, self.scales = kind, elements, size, scales

    def pattern(self, draw):
        """Returns a million random values, whose first scales are about 0.001."""
        data = bytearray(draw.randbytes(PATTERN_VALUES // self.elements * self.size))
        for block in range(0, len(data), self.size):
            scale = draw.uniform(0.0005, 0.0015)
            for at, factor in self.scales.items():
                data[block + at : block + at + 2] = struct.pack("<e", scale * factor)
        return bytes(data)


BLOCK_TYPES = {"q4_0": BlockType(2, 32, 18, {0: 1}), "q8_0": BlockType(8, 32, 34, {0: 1}),
               "q4_k": BlockType(12, 256, 144, {0: 1, 2: 7.5}), "q5_k": BlockType(13, 256, 176, {0: 1, 2: 15.5}),
               "q6_k": BlockType(14, 256, 210, {208: 1})}


def tensors_of(config, matrix, down):
    """Returns the tensors in the order of the file as [(name, shape, type)]: llama.cpp's names, Hugging Face's shapes.
    Matrices have the type `matrix`, but the down matrices of feed-forward layers have the type `down`."""
    architecture = ARCHITECTURES[config["architectures"][0]]
    hidden, inner, heads = config["hidden_size"], config["intermediate_size"], config["num_attention_heads"]
    kv_heads = config.get("num_key_value_heads", heads)
    dim = config.get("head_dim") or hidden // heads
    tensors = [("token_embd", (config["vocab_size"], hidden), matrix), ("output_norm", (hidden,), F32)]
    if not config.get("tie_word_embeddings"):
        tensors.append(("output", (config["vocab_size"], hidden), matrix))
    of_layer = [("attn_norm", (hidden,)), ("attn_q", (heads * dim, hidden)), ("attn_k", (kv_heads * dim, hidden)),
                ("attn_v", (kv_heads * dim, hidden)), ("attn_output", (hidden, heads * dim)), ("ffn_norm", (hidden,))]
    if architecture != "llama":
        of_layer += [("attn_q_norm", (dim,)), ("attn_k_norm", (dim,))]
    if architecture == "qwen3moe":
        experts, inner = config["num_experts"], config["moe_intermediate_size"]
        of_layer += [("ffn_gate_inp", (experts, hidden)), ("ffn_gate_exps", (experts, inner, hidden)),
                     ("ffn_up_exps", (experts, inner, hidden)), ("ffn_down_exps", (experts, hidden, inner))]
    else:
        of_layer += [("ffn_gate", (inner, hidden)), ("ffn_up", (inner, hidden)), ("ffn_down", (hidden, inner))]
    for layer in range(config["num_hidden_layers"]):
        for name, shape in of_layer:
            numbers = len(shape) == 1 or name == "ffn_gate_inp"
            of_matrix = down if name.startswith("ffn_down") else matrix
            tensors.append((f"blk.{layer}.{name}", shape, F32 if numbers else of_matrix))
    return tensors


def text(value):
    return struct.pack("<Q", len(value)) + value.encode()


def values_of(config):
    """Returns the header's keys and values as bytes: integers as u32 (type 4), floats as f32 (type 6), texts as type 8."""
    name = ARCHITECTURES[config["architectures"][0]]
    heads = config["num_attention_heads"]
    dim = config.get("head_dim") or config["hidden_size"] // heads
    keys = {"general.architecture": name, "tokenizer.ggml.model": "none", f"{name}.context_length": 8192,
            f"{name}.embedding_length": config["hidden_size"], f"{name}.block_count": config["num_hidden_layers"],
            f"{name}.feed_forward_length": config["intermediate_size"], f"{name}.attention.head_count": heads,
            f"{name}.attention.head_count_kv": config.get("num_key_value_heads", heads),
            f"{name}.attention.key_length": dim, f"{name}.attention.value_length": dim,
            f"{name}.rope.dimension_count": dim, f"{name}.rope.freq_base": float(config.get("rope_theta", 10000.0)),
            f"{name}.attention.layer_norm_rms_epsilon": float(config.get("rms_norm_eps", 1e-6)),
            f"{name}.vocab_size": config["vocab_size"]}
    if name == "qwen3moe":
        keys |= {f"{name}.expert_count": config["num_experts"], f"{name}.expert_used_count": config["num_experts_per_tok"],
                 f"{name}.expert_feed_forward_length": config["moe_intermediate_size"]}
    packed = []
    for key, value in keys.items():
        if isinstance(value, str):
            packed.append(text(key) + struct.pack("<I", 8) + text(value))
        elif isinstance(value, float):
            packed.append(text(key) + struct.pack("<If", 6, value))
        else:
            packed.append(text(key) + struct.pack("<II", 4, value))
    return packed


def write_gguf(config, path, blocks, down):
    """Writes a GGUF file of version 3: header, keys, tensors' offsets, then their data. Weights repeat a pattern of
    random values. Down matrices have the type `down`, all others the type `blocks`; None means bfloat16. Routers repeat
    no pattern, so that they choose all experts equally."""
    draw = random.Random(1)
    types = {kind.kind: kind for kind in (blocks, down) if kind}
    patterns = {kind: block.pattern(draw) for kind, block in types.items()}
    if not blocks:
        values = array.array("f", (draw.gauss(0, 0.02) for _ in range(PATTERN_VALUES)))
        patterns[BF16] = array.array("H", (bits >> 16 for bits in memoryview(values).cast("B").cast("I"))).tobytes()
    tensors = tensors_of(config, blocks.kind if blocks else BF16, down.kind if down else BF16)
    keys = values_of(config)
    header = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(keys)) + b"".join(keys)
    sizes, offset = [], 0
    for name, shape, kind in tensors:
        count = math.prod(shape)
        size = 4 * count if kind == F32 else 2 * count
        if kind in types:
            size = count // types[kind].elements * types[kind].size
        header += text(name + ".weight") + struct.pack(f"<I{len(shape)}QIQ", len(shape), *reversed(shape), kind, offset)
        sizes.append(size)
        offset += -(-size // ALIGNMENT) * ALIGNMENT
    with open(path, "wb") as file:
        file.write(header + bytes(-len(header) % ALIGNMENT))
        for size, (name, _, kind) in zip(sizes, tensors):
            if kind == F32:
                is_router = name.endswith("ffn_gate_inp")
                data = array.array("f", (draw.gauss(0, 0.02) if is_router else 1.0 for _ in range(size // 4))).tobytes()
            else:
                data = patterns[kind]
            for begin in range(0, size, len(data)):
                file.write(data[: size - begin])
            file.write(bytes(-size % ALIGNMENT))


def ask(command):
    return json.loads(subprocess.run(list(map(str, command)), stdout=subprocess.PIPE, text=True, check=True).stdout)


def llama_cpp(options, gguf):
    """Returns {("prefill", tokens) or ("decode", context): tokens a second}."""
    command = [options.llama_bench, "-m", gguf, "-t", os.cpu_count(), "-o", "json", "-r", 3]
    rates = {}
    for row in ask([*command, "-n", 0, "-p", ",".join(map(str, options.num_tokens))]):
        rates["prefill", row["n_prompt"]] = row["avg_ts"]
    for row in ask([*command, "-n", 32, "-p", 0, "-d", ",".join(map(str, options.context))]):
        rates["decode", row["n_depth"]] = row["avg_ts"]
    return rates


def tessera(options, gguf):
    command = [options.tessera, "bench"]
    weights = (["--model-path", gguf] if options.type else
               ["--model-path", options.config, "--load-format", "dummy", "--dtype", "bfloat16"])
    model = [*weights, "--max-running-requests", 1, "--context-length", 8192, "--json"]
    tokens = ",".join(map(str, options.num_tokens))
    rates = {}
    for row in ask([*command, "prefill", *model, "--num-tokens", tokens, "--repeat", 3])["rows"]:
        rates["prefill", row["tokens"]] = row["graph_tokens_per_s"]
    for context in options.context:
        answer = ask([*command, "decode", *model, "--batch-size", 1, "--context", context, "--repeat", 32])
        rates["decode", context] = answer["rows"][0]["graph_tokens_per_s"]
    return rates


def positive_list(value):
    numbers = value.split(",")
    if not all(number.isdecimal() and int(number) > 0 for number in numbers):
        raise argparse.ArgumentTypeError(f'"{value}" is not accepted; whole numbers from 1 are, like 16,512')
    return [int(number) for number in numbers]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tessera", type=pathlib.Path, default="build/tessera")
    parser.add_argument("--llama-bench", type=pathlib.Path, required=True)
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--num-tokens", type=positive_list, default=[16, 128, 512, 2048], help="of prompts")
    parser.add_argument("--context", type=positive_list, default=[16, 1024], help="tokens before the decoded ones")
    parser.add_argument("--type", choices=BLOCK_TYPES, help="of the weights; bfloat16 if it is absent")
    parser.add_argument("--down-type", choices=BLOCK_TYPES, help="of feed-forward layers' down, as Q4_K_M has q6_k; --type's")
    parser.add_argument("config", type=pathlib.Path, help="config.json of a Qwen3, dense or a mixture, or of a Llama")
    options = parser.parse_args()
    if options.down_type and not options.type:
        parser.error("--down-type goes with --type")
    config = json.loads(options.config.read_text())
    if config.get("architectures", [""])[0] not in ARCHITECTURES:
        parser.error(f"{options.config}: architectures {config.get('architectures')} is not accepted; "
                     f"one of {', '.join(ARCHITECTURES)} is")
    turns = []
    with tempfile.TemporaryDirectory() as folder:
        gguf = pathlib.Path(folder) / "model.gguf"
        write_gguf(config, gguf, BLOCK_TYPES.get(options.type), BLOCK_TYPES.get(options.down_type or options.type))
        for _ in range(options.turns):
            turns.append((llama_cpp(options, gguf), tessera(options, gguf)))
    print(f"{'':16}{'llama.cpp':>10}{'Tessera':>10}{'ratio':>8}  of a turn")
    for kind, size in turns[0][0]:
        other, own = ([rates[kind, size] for rates in side] for side in zip(*turns))
        ratios = [b / a for a, b in zip(other, own)]
        print(f"{kind:8}{size:8}{statistics.median(other):10.1f}{statistics.median(own):10.1f}"
              f"{statistics.median(ratios):8.2f}  {min(ratios):.2f} to {max(ratios):.2f}")


if __name__ == "__main__":
    main()
