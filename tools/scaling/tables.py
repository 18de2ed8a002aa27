"""Compares layouts on one host and on up to 64 hosts in Markdown tables."""

import math

from scaling import cost
from scaling.cost import Parts
from scaling.layout import Layout, problem, whole_experts
from scaling.machine import GPUS_OF_A_HOST, Machine
from scaling.shapes import Shapes

PAYS = 0.90    # doubling tensor parallelism pays if it reduces a step's time to at most this part
PROMPT = 4096  # tokens of the prefill in the table
NONE = "–"     # for an impossible layout


def total(parts: Parts) -> float:
    return sum(parts.values())


def table(heads: list[str], rows: list[list[str]]) -> str:
    """Writes a table with right-aligned numbers."""
    lines = [heads, ["---"] + ["---:"] * (len(heads) - 1), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def step(parts: Parts) -> str:
    return table(["part", "ms"], [[name, f"{ms:.3f}"] for name, ms in parts.items() if ms > 0] + [["together", f"{total(parts):.3f}"]])


class Sizing:
    """The layouts of one model under one load: `requests` a GPU decode at a time, with `context` tokens each."""

    def __init__(self, machine: Machine, shapes: Shapes, requests: int, context: int):
        self.machine, self.shapes, self.requests, self.context = machine, shapes, requests, context

    def alone_ms(self, layout: Layout) -> float:
        """Returns the time of a token of one request; infinite for an impossible layout."""
        if problem(self.machine, self.shapes, layout, 1, self.context):
            return math.inf
        return total(cost.decode(self.machine, self.shapes, layout, 1, self.context))

    def loaded(self, layout: Layout) -> tuple[float, float]:
        """Returns (tokens/s of a GPU, ms a token); (0, infinite) for an impossible layout."""
        batch = self.requests * layout.gpus()
        if problem(self.machine, self.shapes, layout, batch, self.context):
            return 0, math.inf
        ms = total(cost.decode(self.machine, self.shapes, layout, batch, self.context))
        return batch / ms * 1e3 / layout.gpus(), ms

    def host_layouts(self) -> list[Layout]:
        sizes = [1, 2, 4, GPUS_OF_A_HOST]
        whole = [whole_experts(self.shapes, tp) for tp in sizes]
        return [Layout(tp=tp) for tp in sizes] + [layout for layout in whole if layout.ep > 1]

    def host_row(self, layout: Layout) -> list[str]:
        alone_ms, (rate, ms) = self.alone_ms(layout), self.loaded(layout)
        if math.isinf(alone_ms):
            return [str(layout), *[NONE] * 5, "does not divide or fit"]
        prompt_ms = total(cost.prefill(self.machine, self.shapes, layout, PROMPT))
        return [str(layout), f"{alone_ms:.2f}", f"{prompt_ms:.1f}", f"{PROMPT / prompt_ms * 1e3 / layout.gpus():.0f}",
                *([f"{ms:.1f}", f"{rate:.0f}"] if rate else [NONE, NONE]), "checked" if layout.gpus() <= 2 else "extrapolated"]

    def one_host(self) -> str:
        """Writes a row for each layout within a host, and the number of ranks above which tensor parallelism gains nothing."""
        heads = ["one host", "1 request, ms a token", f"prompt of {PROMPT}, ms", "its tokens/s a GPU",
                 f"{self.requests} requests a GPU, ms a token", "tokens/s a GPU", ""]
        return table(heads, [self.host_row(layout) for layout in self.host_layouts()]) + "\n" + self.where_it_stops()

    def where_it_stops(self) -> str:
        """Writes the largest number of ranks at which tensor parallelism still pays for one request."""
        ms = {tp: self.alone_ms(Layout(tp=tp)) for tp in (1, 2, 4, 8, 16, 32, 64)}
        ms = {tp: alone_ms for tp, alone_ms in ms.items() if math.isfinite(alone_ms)}
        if not ms:
            return "No tensor parallel layout of up to 64 GPUs runs this model.\n"
        pays = min(ms)
        while ms.get(2 * pays, math.inf) <= PAYS * ms[pays]:
            pays *= 2
        after = f"TP {2 * pays} would take {ms[2 * pays]:.2f}" if 2 * pays in ms else "the model divides no further"
        return (f"One request takes {ms[pays]:.2f} ms a token at TP {pays}, where tensor parallelism stops to pay: {after}. "
                "A doubling pays where it takes a tenth or more.\n")

    def cell(self, layout: Layout) -> str:
        rate, ms = self.loaded(layout)
        return f"{rate:.0f} ({ms:.1f})" if rate else NONE

    def hosts(self, most: int) -> str:
        """Writes a row for 1, 2, 4 … `most` hosts, with each way to use them under the same load a GPU."""
        best = max(self.host_layouts(), key=self.loaded)
        stage = whole_experts(self.shapes, GPUS_OF_A_HOST)
        ways = {f"DP of {best}": lambda hosts: best,
                f"{stage}, a stage a host": lambda hosts: whole_experts(self.shapes, GPUS_OF_A_HOST, hosts),
                "TP over all": lambda hosts: whole_experts(self.shapes, hosts * GPUS_OF_A_HOST)}
        if self.shapes.experts:
            ways["DP attention, EP over all"] = lambda hosts: Layout(tp=hosts * GPUS_OF_A_HOST, spread=True)
        counts = [1 << power for power in range(most.bit_length())]
        rows = [[f"{hosts} ({hosts * GPUS_OF_A_HOST} GPUs)", *(self.cell(way(hosts)) for way in ways.values())] for hosts in counts]
        return table([f"hosts, {self.requests} requests a GPU", *ways], rows) + (
            f"\nTokens/s a GPU, and ms a token in brackets; {NONE} where it does not divide or fit. "
            "All but DP of TP 1 and 2 is extrapolated.\n")
