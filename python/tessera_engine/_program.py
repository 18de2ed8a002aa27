"""The command `tessera`: becomes the program that the package brings."""

import os
import pathlib
import sys


def main() -> None:
    program = pathlib.Path(__file__).with_name("bin") / "tessera"
    os.execv(program, [str(program), *sys.argv[1:]])
