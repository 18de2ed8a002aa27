"""Compares the cost model with all measurements."""

import dataclasses
from collections.abc import Iterator

from scaling import cost
from scaling.layout import Layout
from scaling.machine import Machine
from scaling.shapes import read_shapes
from scaling.tables import table, total

CONTEXT = 1024  # context length, in tokens, of the measured decodes


@dataclasses.dataclass(frozen=True)
class Point:
    """A measured forward and the model's estimate of it."""
    size: int  # the number of requests if this is a decode, of tokens if it is a prefill
    measured_ms: float
    model_ms: float
    fitted: bool       # a constant was fitted to this point
    few_experts: bool  # with random weights, the router reached fewer experts than the model assumes

    def error(self) -> float:
        return self.model_ms / self.measured_ms - 1

    def error_text(self) -> str:
        return f"{round(100 * self.error()):+d}" + ("*" if self.fitted else "†" if self.few_experts else "")


def compare(machine: Machine) -> Iterator[tuple[str, list[Point]]]:
    """Yields each row of measurements: its name and its points."""
    for entry in machine.data["measured"]:
        shapes = read_shapes(machine.data["models"][entry["model"]])
        layout = Layout(tp=entry["tp"], ep=entry.get("ep", 1))
        kind = "decode" if "decode" in entry else "prefill"
        points = []
        for text, ms in entry[kind].items():
            size = int(text)
            parts = (cost.decode(machine, shapes, layout, size, CONTEXT) if kind == "decode" else
                     cost.prefill(machine, shapes, layout, size))
            points.append(Point(size, ms, total(parts), size in entry.get("fitted", []), size in entry.get("few_experts", [])))
        yield f"{entry['model']}, {layout}, {kind} {' / '.join(str(point.size) for point in points)}", points


def check(machine: Machine) -> str:
    rows = [[name, " / ".join(f"{point.measured_ms:.3g}" for point in points), " / ".join(f"{point.model_ms:.3g}" for point in points),
             " / ".join(point.error_text() for point in points)] for name, points in compare(machine)]
    errors = [abs(point.error()) for _, points in compare(machine) for point in points if not point.fitted and not point.few_experts]
    return table(["", "measured, ms", "model, ms", "error, %"], rows) + (
        "\n* a constant was fitted to this point; † random weights: their router reaches few of the experts. "
        f"Of the {len(errors)} others the greatest error is {100 * max(errors):.0f} %, the mean {100 * sum(errors) / len(errors):.0f} %.\n")
