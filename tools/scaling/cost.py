"""Computes the time of a forward as a sum of its parts, in µs. forward(), decode() and prefill() return ms.

    read      weights from memory: bytes / memory_TBps
    matmul    the time of matmuls in addition to `read`. A matmul that reads for r and computes for c takes
              sqrt(r² + c²), with c = 2 x parameters x rows / matmul_TFLOPs. The longer one hides the other, unless they
              are similar
    experts   the greater of reading the experts' weights and computing their matmuls, since an expert has few rows or many weights
    attention keys and values: a constant for each layer and bytes / attention_TBps; for prompts 4 x heads x head_dim x T² / 2
              operations / prompt_attention_TFLOPs
    launches  norms, rotation and the rest of a layer: a constant for each layer, which grows up to 16 rows
    waits     the ranks' waits for the slowest one: a constant for each collective
    collectives  two all-reduces a layer, one for the embedding, an all-gather of the logits; sends between pipeline stages
"""

import math
import statistics

from scaling.layout import Layout
from scaling.machine import GPUS_OF_A_HOST, Machine
from scaling.shapes import BYTES, Shapes

Parts = dict[str, float]


def gather(parts: Parts, more: Parts, times: float = 1) -> None:
    for name, value in more.items():
        parts[name] = parts.get(name, 0) + times * value


def product(machine: Machine, weights: float, rows: float) -> Parts:
    """Returns the time of a linear whose weights have `weights` bytes. A parameter has 2 bytes, and one row takes 2
    operations for it."""
    read, compute = weights / machine.fit["memory_TBps"] / 1e6, weights * rows / machine.fit["matmul_TFLOPs"] / 1e6
    return {"read": read, "matmul": math.hypot(read, compute) - read}


def experts(machine: Machine, shapes: Shapes, tokens: int, ranks: int, slices: int) -> float:
    """Returns the time of a layer's experts on the rank that reads most. `tokens` counts the tokens of all ranks. The
    experts are divided among ranks / slices groups, and each expert is cut into `slices`. The largest of n groups is
    estimated as the greatest of n normal values (Blom's approximation)."""
    groups, part = ranks // slices, shapes.reached(tokens)
    read = shapes.experts * part / groups
    if groups > 1:
        deviations = statistics.NormalDist().inv_cdf((groups - 0.375) / (groups + 0.25))
        read = min(read + deviations * math.sqrt(shapes.experts / groups * part * (1 - part)), shapes.experts / groups)
    width = shapes.intermediate / slices
    speed = machine.fit["experts_TBps"] * min(1.0, width / 768) ** machine.fit["experts_width_exponent"]
    compute = tokens * shapes.experts_per_token * shapes.mlp_bytes() / ranks / machine.fit["experts_TFLOPs"]
    return machine.fit["experts_us"] + max(read * shapes.mlp_bytes() / slices / speed, compute) / 1e6


def exchange(machine: Machine, size: float, tp: int) -> Parts:
    """Returns the time of one all-reduce and of the ranks' wait in it."""
    return {"collectives": machine.all_reduce_us(size, tp), "waits": machine.fit["wait_us"]} if tp > 1 else {}


def layers(machine: Machine, shapes: Shapes, layout: Layout, rows: int, attention_us: float, launches_us: float) -> Parts:
    """Returns the time of one layer over `rows` tokens. If requests are spread, each GPU has `rows` tokens of its own.
    Otherwise the ranks compute the same `rows` tokens together."""
    tp = 1 if layout.spread else layout.tp
    parts = {"attention": attention_us, "launches": launches_us}
    gather(parts, product(machine, shapes.dense_bytes() / tp, rows))
    if shapes.experts:
        parts["launches"] += machine.fit["router_us"]
        if layout.spread:
            parts["experts"] = experts(machine, shapes, rows * layout.tp, layout.tp, 1)
            if layout.tp > 1:
                size = rows * shapes.experts_per_token * shapes.hidden * BYTES
                gather(parts, {"collectives": machine.all_to_all_us(size, layout.tp), "waits": machine.fit["wait_us"]}, 2)
        else:
            parts["experts"] = experts(machine, shapes, rows, tp, tp // layout.ep)
    gather(parts, exchange(machine, rows * shapes.hidden * BYTES, tp), 2)
    return parts


def forward(machine: Machine, shapes: Shapes, layout: Layout, rows: int, layer: Parts, logits: int) -> Parts:
    """Returns ms of a forward through all stages, while other forwards keep the stages busy. Every stage takes as long as the last
    one, which also has the head. `layer` has the parts of one layer, in µs."""
    tp = 1 if layout.spread else layout.tp
    parts: Parts = {}
    gather(parts, layer, layout.pp * math.ceil(shapes.layers / layout.pp))
    gather(parts, exchange(machine, rows * shapes.hidden * BYTES, tp))
    gather(parts, product(machine, shapes.head_bytes() / tp, logits), layout.pp)
    gather(parts, {"collectives": machine.all_gather_us(logits * shapes.vocab * BYTES, tp)}, layout.pp)
    if layout.pp > 1:
        other_host = layout.gpus() > GPUS_OF_A_HOST
        send_us = machine.send_us(rows * shapes.hidden * BYTES, other_host)
        gather(parts, {"collectives": send_us, "waits": machine.fit["wait_us"]}, layout.pp)
    return {name: us / 1e3 for name, us in parts.items()}


def decode(machine: Machine, shapes: Shapes, layout: Layout, batch: int, context: int) -> Parts:
    """Returns ms of one token for each of `batch` requests of a model instance. If requests are spread, each GPU has a
    part of them; each stage computes a `pp`th of them at a time."""
    shares = layout.tp if layout.spread else layout.pp
    rows = math.ceil(batch / shares)
    tp = 1 if layout.spread else layout.tp
    attention = machine.fit["attention_us"] + rows * context * shapes.kv_bytes(tp) / machine.fit["attention_TBps"] / 1e6
    grown = min(1.0, math.log2(rows) / 4)
    launches = machine.fit["launches_1_us"] + (machine.fit["launches_16_us"] - machine.fit["launches_1_us"]) * grown
    return forward(machine, shapes, layout, rows, layers(machine, shapes, layout, rows, attention, launches), rows)


def prefill(machine: Machine, shapes: Shapes, layout: Layout, tokens: int) -> Parts:
    """Returns ms of a prompt of `tokens`, computed at once (one on each GPU if requests are spread)."""
    tp = 1 if layout.spread else layout.tp
    operations = 2 * shapes.heads / tp * shapes.head_dim * tokens**2
    attention = machine.fit["prompt_attention_us"] + operations / machine.fit["prompt_attention_TFLOPs"] / 1e6
    layer = layers(machine, shapes, layout, tokens, attention, machine.fit["launches_prefill_us"])
    return forward(machine, shapes, layout, tokens, layer, 1)
