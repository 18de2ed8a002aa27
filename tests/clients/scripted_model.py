"""A checkpoint that follows a script, for clients whose sessions need tool calls that a random model does not make.

    write_model(folder, steps)

The answer to a conversation with n answers of the assistant is steps[n]: a list of texts, each a token, that follow each
other in a stream. The last step answers all later conversations too. Each text is an added token of the bundled
tokenizer. The chat template counts the answers and ends the prompt with a token for the step. The layers add nothing
(their output matrices are zero), so the logits depend on the last token alone, and the matrix of the head leads from each
token of the script to its successor. All else is as in any model: the prompt is computed and cached."""

import array
import json
import pathlib
import struct

ROOT = pathlib.Path(__file__).resolve().parents[2]
DEMO = ROOT / "models" / "demo"
HIDDEN, HEADS, HEAD_SIZE, INNER, LAYERS = 128, 2, 16, 16, 2
CONTEXT = 262144
STRENGTH = 10  # logit of the next token: other tokens have no chance against it
# The template writes a call as the scripts do, so that the next prompt begins with this prompt and its answer.
TEMPLATE = """
{%- set ns = namespace(step=0) %}
{%- if tools %}{{- '<|im_start|>system\\n' }}{% for tool in tools %}{{- tool | tojson + '\\n' }}{% endfor %}{{- '<|im_end|>\\n' }}{% endif %}
{%- for m in messages %}
  {%- if m.role == 'assistant' %}
    {{- '<|im_start|>assistant\\n<|step' ~ [ns.step, LAST] | min ~ '|>' }}
    {%- set ns.step = ns.step + 1 %}
    {%- if m.reasoning_content %}{{- '<think>\\n' + m.reasoning_content + '\\n</think>\\n\\n' }}{% endif %}
    {{- m.content }}
    {%- for call in m.tool_calls or [] %}
      {{- '\\n<tool_call>\\n{"name": "' + call.function.name + '", "arguments": ' + call.function.arguments | tojson + '}\\n</tool_call>' }}
    {%- endfor %}
    {{- '<|im_end|>\\n' }}
  {%- else %}
    {{- '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' }}
  {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n<|step' ~ [ns.step, LAST] | min ~ '|>' }}{% endif %}
{%- if enable_thinking and reasoning_effort %}{% endif %}"""


def _tokenizer(chains):
    """Returns tokenizer.json with the script's tokens, and the ids of each chain's tokens."""
    tokenizer = json.loads((DEMO / "tokenizer.json").read_text())
    added = tokenizer["added_tokens"]
    first = max(token["id"] for token in added) + 1
    texts = [text for chain in chains for text in chain]
    if len(texts) != len(set(texts)) or len(texts) >= HIDDEN:
        raise ValueError(f"{len(texts)} texts; accepted: fewer than {HIDDEN}, all different")
    ids = {text: first + i for i, text in enumerate(texts)}
    for text, number in ids.items():
        added.append({**added[-1], "id": number, "content": text, "special": text.startswith("<|step")})
    return tokenizer, [[ids[text] for text in chain] for chain in chains]


def _tensors(size, chains, end):
    """Returns {name: (shape, values)}. Token j of the script has the unit vector j, all other tokens the vector 0."""
    def zeros(*shape):
        count = 1
        for length in shape:
            count *= length
        return list(shape), array.array("f", bytes(4 * count))

    embedding, head = zeros(size, HIDDEN), zeros(size, HIDDEN)
    for row in range(size):
        embedding[1][row * HIDDEN] = 1
    head[1][end * HIDDEN] = STRENGTH
    unit = 0
    for chain in chains:
        for token, following in zip(chain, [*chain[1:], end]):
            unit += 1
            embedding[1][token * HIDDEN] = 0
            embedding[1][token * HIDDEN + unit] = 1
            head[1][following * HIDDEN + unit] = STRENGTH
    ones = [HIDDEN], array.array("f", [1] * HIDDEN)
    tensors = {"model.embed_tokens.weight": embedding, "lm_head.weight": head, "model.norm.weight": ones}
    for layer in range(LAYERS):
        name = f"model.layers.{layer}."
        tensors[name + "input_layernorm.weight"] = tensors[name + "post_attention_layernorm.weight"] = ones
        for part in ("q", "k", "v"):
            tensors[f"{name}self_attn.{part}_proj.weight"] = zeros(HEADS * HEAD_SIZE, HIDDEN)
        tensors[name + "self_attn.o_proj.weight"] = zeros(HIDDEN, HEADS * HEAD_SIZE)
        for part in ("gate", "up"):
            tensors[f"{name}mlp.{part}_proj.weight"] = zeros(INNER, HIDDEN)
        tensors[name + "mlp.down_proj.weight"] = zeros(HIDDEN, INNER)
    return tensors


def _write_safetensors(path, tensors):
    header, at = {}, 0
    for name, (shape, values) in tensors.items():
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [at, at + 4 * len(values)]}
        at += 4 * len(values)
    text = json.dumps(header).encode()
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for _, values in tensors.values():
            file.write(values.tobytes())


def write_model(folder, steps):
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    chains = [[f"<|step{i}|>", *texts] for i, texts in enumerate(steps)]
    tokenizer, ids = _tokenizer(chains)
    size = max(token["id"] for token in tokenizer["added_tokens"]) + 1
    end = next(token["id"] for token in tokenizer["added_tokens"] if token["content"] == "<|im_end|>")
    config = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_act": "silu", "hidden_size": HIDDEN,
              "intermediate_size": INNER, "max_position_embeddings": CONTEXT, "num_attention_heads": HEADS,
              "num_key_value_heads": HEADS, "head_dim": HEAD_SIZE, "num_hidden_layers": LAYERS, "rms_norm_eps": 1e-6,
              "rope_theta": 10000.0, "tie_word_embeddings": False, "torch_dtype": "float32", "vocab_size": size,
              "bos_token_id": None, "eos_token_id": end}
    names = {"chat_template": TEMPLATE.replace("LAST", str(len(steps) - 1)), "eos_token": "<|im_end|>", "bos_token": None}
    for name, value in (("tokenizer.json", tokenizer), ("config.json", config), ("tokenizer_config.json", names),
                        ("generation_config.json", {"eos_token_id": end, "do_sample": False})):
        (folder / name).write_text(json.dumps(value))
    _write_safetensors(folder / "model.safetensors", _tensors(size, ids, end))
