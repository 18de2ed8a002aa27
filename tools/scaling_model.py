#!/usr/bin/env python3
"""Estimates a deployment from a model's config.json and the measurements of one machine (scaling/h200.json).

    tools/scaling_model.py size CONFIG [--requests N] [--context N] [--hosts N]   layouts side by side, on one host and on more
    tools/scaling_model.py step CONFIG [--tp N] [--ep N] [--pp N] [--spread] [--batch N] [--context N] [--prefill T]
                                                                               one forward by its parts
    tools/scaling_model.py check                                               the model against all measured points

CONFIG is a config.json, its folder, or one of the measured models (such as Llama-3-8B). The formulas are in
scaling/cost.py, and the assumptions in docs/scaling.md."""

import argparse
import math
import sys

import scaling.machine
from scaling import check, cost, layout, shapes, tables


def positive(text: str) -> int:
    if not text.isdigit() or int(text) == 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not accepted; a whole number from 1 on is")
    return int(text)


def above_nothing(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not 0 < number < math.inf:
        raise argparse.ArgumentTypeError(f"{text!r} is not accepted; a number above 0 is")
    return number


def arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    for name in ("size", "step", "check"):
        command = commands.add_parser(name)
        network = scaling.machine.Network()
        command.add_argument("--network-GBps", type=above_nothing, default=network.gb_per_s,
                             help="of each GPU to another host (%(default)s)")
        command.add_argument("--network-us", type=above_nothing, default=network.latency_us,
                             help="a small message between hosts (%(default)s)")
        if name != "check":
            command.add_argument("config", help="config.json, the folder that has it, or a model that was measured")
            command.add_argument("--context", type=positive, default=1024, help="tokens of each request in the KV cache (%(default)s)")
        if name == "size":
            command.add_argument("--requests", type=positive, default=32, help="that decode at a time, for each GPU (%(default)s)")
            command.add_argument("--hosts", type=positive, default=64, help="of 8 GPUs, the most that are shown (%(default)s)")
        if name == "step":
            for flag, text in (("--tp", "ranks that share each layer"), ("--ep", "parts of the experts"), ("--pp", "stages")):
                command.add_argument(flag, type=positive, default=1, help=text + " (%(default)s)")
            command.add_argument("--spread", action="store_true",
                                 help="on each of --tp GPUs attention for requests of its own; experts are shared by all")
            command.add_argument("--batch", type=positive, default=1, help="requests that decode (%(default)s)")
            command.add_argument("--prefill", type=positive, help="instead of a decode: tokens of a prompt")
    return parser


def run(given: argparse.Namespace) -> str:
    machine = scaling.machine.load(scaling.machine.Network(given.network_GBps, given.network_us))
    if given.command == "check":
        return check.check(machine)
    known = machine.data["models"]
    model = shapes.read_shapes(known[given.config]) if given.config in known else shapes.load_shapes(given.config)
    if given.command == "size":
        sizing = tables.Sizing(machine, model, given.requests, given.context)
        return sizing.one_host() + "\n" + sizing.hosts(given.hosts)
    chosen = layout.Layout(tp=given.tp, ep=given.ep, pp=given.pp, spread=given.spread)
    if reason := layout.problem(machine, model, chosen, given.batch, given.context):
        raise ValueError(reason)
    return tables.step(cost.prefill(machine, model, chosen, given.prefill) if given.prefill else
                       cost.decode(machine, model, chosen, given.batch, given.context))


def main() -> int:
    given = arguments().parse_args()
    try:
        print(run(given), end="")
    except (OSError, ValueError) as error:
        print(f"scaling_model.py: error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
