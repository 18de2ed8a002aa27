"""Reads a model's shapes from its config.json, and computes the bytes that follow from them."""

import dataclasses
import json
import pathlib
from typing import Any

BYTES = 2  # bytes of a weight, an activation and an entry of the KV cache; measurements are 16-bit

# Members of config.json whose presence shows that this file does not support the model.
OTHER = {"kv_lora_rank": "latent attention", "linear_num_value_heads": "recurrent layers", "quantization_config": "quantised weights",
         "n_shared_experts": "shared experts", "shared_expert_intermediate_size": "shared experts",
         "first_k_dense_replace": "dense layers before experts", "mlp_only_layers": "dense layers among experts",
         "vision_config": "a vision tower", "num_kv_shared_layers": "layers that share keys"}


@dataclasses.dataclass(frozen=True)
class Shapes:
    """A decoder of equal layers. `intermediate` is the size of the MLP, or of an expert if there are any."""
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    intermediate: int
    experts: int
    experts_per_token: int
    vocab: int

    def attention_bytes(self) -> int:
        """Returns the bytes of a layer's projections of queries, keys, values and output."""
        return BYTES * self.hidden * self.head_dim * (2 * self.heads + 2 * self.kv_heads)

    def mlp_bytes(self) -> int:
        """Returns the bytes of a layer's gate, up and down; of one expert, if there are experts."""
        return BYTES * 3 * self.hidden * self.intermediate

    def dense_bytes(self) -> int:
        """Returns the bytes of a layer's weights that every token uses."""
        return self.attention_bytes() + (BYTES * self.hidden * self.experts if self.experts else self.mlp_bytes())

    def head_bytes(self) -> int:
        return BYTES * self.hidden * self.vocab

    def weight_bytes(self) -> int:
        """Returns the bytes of all weights; the embedding counts beside the head, although some models tie them."""
        return self.layers * (self.dense_bytes() + self.experts * self.mlp_bytes()) + 2 * self.head_bytes()

    def kv_bytes(self, ranks: int = 1) -> int:
        """Returns the bytes of one token in one layer on a rank. With fewer KV heads than ranks, neighbours hold the
        same heads."""
        return BYTES * 2 * self.head_dim * -(-self.kv_heads // ranks)

    def reached(self, tokens: int) -> float:
        """Returns the share of experts that some token chooses with an even router: 1 - (1 - k/E)^tokens."""
        return 1 - (1 - self.experts_per_token / self.experts) ** tokens


def read_shapes(config: dict[str, Any]) -> Shapes:
    """Returns the shapes. Raises ValueError with the member's name for an unsupported model."""
    other = {name: what for name, what in OTHER.items() if config.get(name)}
    if config.get("use_sliding_window", True) and config.get("sliding_window"):
        other["sliding_window"] = "layers with a window"
    if set(config.get("layer_types") or ["full_attention"]) != {"full_attention"}:
        other["layer_types"] = "layers of several kinds"
    for name, what in other.items():
        raise ValueError(f"{name}: {config[name]!r} is not accepted ({what}); dense decoders and mixtures whose layers are alike are, "
                         "with full attention and 16-bit weights")
    dtype = config.get("dtype") or config.get("torch_dtype") or "bfloat16"
    if dtype not in ("bfloat16", "float16"):
        raise ValueError(f"torch_dtype: {dtype!r} is not accepted; bfloat16 and float16 are")
    if config.get("decoder_sparse_step", 1) != 1:
        raise ValueError(f"decoder_sparse_step: {config['decoder_sparse_step']} is not accepted: layers have to be alike (1)")

    def number(*names: str) -> int:
        """Returns the first of these members that exists."""
        name = next((name for name in names if config.get(name)), names[-1])
        if not isinstance(config.get(name), int) or config[name] < 1:
            raise ValueError(f"{name}: {config.get(name)!r} is not accepted in config.json; a whole number from 1 on is")
        return config[name]

    heads, hidden = number("num_attention_heads"), number("hidden_size")
    counts = ("num_experts", "num_local_experts", "n_routed_experts")
    experts = number(*counts) if any(config.get(name) for name in counts) else 0
    return Shapes(layers=number("num_hidden_layers"), hidden=hidden, heads=heads,
                  kv_heads=number("num_key_value_heads", "num_attention_heads"),
                  head_dim=number("head_dim") if config.get("head_dim") else hidden // heads,
                  intermediate=number("moe_intermediate_size", "intermediate_size") if experts else number("intermediate_size"),
                  experts=experts, experts_per_token=number("num_experts_per_tok") if experts else 0, vocab=number("vocab_size"))


def load_shapes(path: str) -> Shapes:
    """Reads a config.json or the folder with it. Raises OSError, or ValueError for another file."""
    file = pathlib.Path(path)
    config = json.loads((file / "config.json" if file.is_dir() else file).read_text())
    if not isinstance(config, dict):
        raise ValueError(f"{path}: a JSON object is accepted")
    return read_shapes(config)
