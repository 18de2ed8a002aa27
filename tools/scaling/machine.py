"""The measured performance of a machine (h200.json), and assumptions about the network between hosts."""

import dataclasses
import json
import math
import pathlib
from typing import Any

Table = list[tuple[float, float]]  # KiB and µs, ascending

DATA = pathlib.Path(__file__).parent / "h200.json"
GPUS_OF_A_HOST = 8


@dataclasses.dataclass(frozen=True)
class Network:
    """The network between hosts; assumed, not measured. Each GPU has an adapter of 400 Gbit/s (50 GB/s), of which NCCL's large
    messages reach some nine tenths. It also has the time of a small message from GPU to GPU through NCCL."""
    gb_per_s: float = 45
    latency_us: float = 10


def between(table: Table, kib: float) -> float:
    """Returns µs at `kib`, interpolated linearly between measured sizes; constant below the smallest, by bandwidth above the
    largest."""
    if kib <= table[0][0]:
        return table[0][1]
    for (low, low_us), (high, high_us) in zip(table, table[1:]):
        if kib <= high:
            return low_us + (high_us - low_us) * (kib - low) / (high - low)
    return table[-1][1] * kib / table[-1][0]


class Machine:
    """Times in µs, sizes in bytes. `fit` has the constants by name; h200.json says what each means and where it comes from."""

    def __init__(self, data: dict[str, Any], network: Network = Network()):
        self.data, self.network = data, network
        self.fit: dict[str, float] = {name: constant["value"] for name, constant in data["constants"].items()}

    def nccl_us(self, op: str, size: float, ranks: int) -> float:
        """Returns the time of an NCCL collective inside a graph, on 2 or 4 GPUs of a host."""
        return between(self.data["nccl_us"][op][str(ranks)], size / 1024)

    def growth(self, op: str, size: float, ranks: int) -> float:
        """Returns the time on `ranks` GPUs of a host relative to 2 GPUs. The value for 4 is measured with NCCL. The value for 8
        assumes one more such step and is not measured; for large messages it equals the 1.75 of 2 (n - 1) / n."""
        return (self.nccl_us(op, size, 4) / self.nccl_us(op, size, 2)) ** (math.log2(ranks) - 1)

    def all_reduce_us(self, size: float, ranks: int) -> float:
        """Returns the time to sum `size` bytes of every rank, measured on 2 GPUs. With several hosts each GPU has a
        part of the host's sum and adds it to those of the other hosts: 2 log2(hosts) messages, and 2 (hosts - 1) /
        hosts of the part over its adapter."""
        if ranks == 1:
            return 0
        inside = min(ranks, GPUS_OF_A_HOST)
        us = between(self.data["all_reduce_us"]["2"], size / 1024) * self.growth("all_reduce", size, inside)
        hosts = ranks // inside
        if hosts > 1:
            us += 2 * math.ceil(math.log2(hosts)) * self.network.latency_us
            us += 2 * (hosts - 1) / hosts * size / inside / self.network.gb_per_s / 1e3
        return us

    def all_gather_us(self, size: float, ranks: int) -> float:
        """Returns the time to gather `size` bytes, of which each rank has a part, on all ranks. Within a host this is
        NCCL's time. Between hosts, each GPU sends half of what it sends in all_reduce_us(): log2(hosts) messages."""
        if ranks == 1:
            return 0
        inside = min(ranks, GPUS_OF_A_HOST)
        us = self.nccl_us("all_gather", size, 2) * self.growth("all_gather", size, inside)
        hosts = ranks // inside
        if hosts > 1:
            us += math.ceil(math.log2(hosts)) * self.network.latency_us
            us += (hosts - 1) / hosts * size / inside / self.network.gb_per_s / 1e3
        return us

    def all_to_all_us(self, size: float, ranks: int) -> float:
        """Returns the time in which each GPU sends `size` bytes, in equal parts to all. Transfers within the host
        overlap those between hosts."""
        if ranks == 1:
            return 0
        inside = min(ranks, GPUS_OF_A_HOST)
        us = self.nccl_us("all_to_all", size, 2) * self.growth("all_to_all", size, inside)
        if ranks > inside:
            us = max(us, self.network.latency_us + (ranks - inside) / ranks * size / self.network.gb_per_s / 1e3)
        return us

    def send_us(self, size: float, other_host: bool) -> float:
        """Returns the time to send from one GPU to another. Within a host, the speed is that of NCCL's all-to-all of
        two GPUs, in which each GPU sends half of its bytes."""
        if other_host:
            return self.network.latency_us + size / self.network.gb_per_s / 1e3
        return self.nccl_us("all_to_all", 2 * size, 2)


def load(network: Network = Network()) -> Machine:
    """Returns the only measured machine."""
    return Machine(json.loads(DATA.read_text()), network)
