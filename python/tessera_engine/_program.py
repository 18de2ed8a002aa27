"""The command `tessera`: replaces this process by the program in the package."""

import os
import pathlib
import sys


def main() -> None:
    program = pathlib.Path(__file__).with_name("bin") / "tessera"
    os.execv(program, [str(program), *sys.argv[1:]])
