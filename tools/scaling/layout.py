"""Layouts of a model on GPUs, and whether they are possible."""

import dataclasses
import math

from scaling.machine import Machine
from scaling.shapes import Shapes

USABLE = 0.95  # usable part of the memory, for weights and KV cache, as in the engine


@dataclasses.dataclass(frozen=True)
class Layout:
    """`tp` ranks share each layer, the experts are divided into `ep` parts (`ep` divides `tp`), and `pp` stages share the layers.
    With `spread`, each of the `tp` GPUs has all of attention for its own requests instead, and all GPUs share the experts."""
    tp: int = 1
    ep: int = 1
    pp: int = 1
    spread: bool = False

    def gpus(self) -> int:
        return self.tp * self.pp

    def __str__(self) -> str:
        if self.spread:
            return f"DP attention, EP {self.tp}"
        return f"TP {self.tp}" + (f", EP {self.ep}" if self.ep > 1 else "") + (f", PP {self.pp}" if self.pp > 1 else "")


def whole_experts(shapes: Shapes, tp: int, pp: int = 1) -> Layout:
    """Returns a layout with whole experts if they divide, which is faster than slices for many requests."""
    return Layout(tp=tp, ep=tp if shapes.experts and shapes.experts % tp == 0 else 1, pp=pp)


def bytes_of_a_gpu(shapes: Shapes, layout: Layout, batch: int, context: int) -> float:
    """Returns the bytes of weights, and of the KV cache of `batch` requests of `context` tokens, on the fullest GPU."""
    tp = 1 if layout.spread else layout.tp
    requests = math.ceil(batch / layout.tp) if layout.spread else batch
    layer = shapes.dense_bytes() / tp + shapes.experts * shapes.mlp_bytes() / layout.tp + requests * context * shapes.kv_bytes(tp)
    return math.ceil(shapes.layers / layout.pp) * layer + 2 * shapes.head_bytes() / tp


def problem(machine: Machine, shapes: Shapes, layout: Layout, batch: int, context: int) -> str:
    """Returns why the layout is impossible; "" if it is possible."""
    if layout.tp & (layout.tp - 1):
        return f"TP {layout.tp} is not accepted; powers of two are"
    if not layout.spread and shapes.heads % layout.tp:
        return f"{shapes.heads} heads do not divide by TP {layout.tp}"
    parts = layout.tp if layout.spread else layout.ep
    if layout.tp % layout.ep or (parts > 1 and (not shapes.experts or shapes.experts % parts)):
        return f"EP {parts} has to divide TP ({layout.tp}) and the number of experts ({shapes.experts})"
    if not layout.spread and shapes.intermediate * layout.ep % layout.tp:
        return f"an intermediate size of {shapes.intermediate} does not divide by {layout.tp // layout.ep}"
    if layout.pp > shapes.layers:
        return f"{shapes.layers} layers are fewer than PP {layout.pp}"
    needed, there = bytes_of_a_gpu(shapes, layout, batch, context), USABLE * machine.data["memory_bytes"]
    return "" if needed <= there else f"{layout} needs {needed / 1e9:.0f} GB of each GPU, which has {there / 1e9:.0f} for it"
