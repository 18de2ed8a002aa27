#!/usr/bin/env python3
"""Makes quantised.bin: numbers and the blocks of GGUF's types to which gguf-py rounds them.

    pip install gguf==0.19.0
    make_quantised.py quantised.bin

The file is a list of records, all numbers little-endian: u32 type, as GGUF numbers them; u32 number of blocks; the
numbers as float32; the blocks. It has the types that gguf-py can write."""

import struct
import sys

import numpy as np
from gguf import quants
from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType as Type

BLOCK = 32
TYPES = [Type.Q4_0, Type.Q4_1, Type.Q5_0, Type.Q5_1, Type.Q8_0, Type.MXFP4, Type.BF16]


def numbers(random):
    blocks = random.normal(0, 0.02, (24, BLOCK)).astype(np.float32)
    blocks[1] = 0
    blocks[2] = 0.25
    blocks[3] = -blocks[3, 0]
    blocks[4] *= 1e-6  # the float16 scales are 0
    blocks[5] *= 1e5
    blocks[6, 7] = 3  # an outlier
    blocks[7] = np.abs(blocks[7]) + 1
    blocks[8] = np.arange(BLOCK) - 16  # many values are halfway between two codes
    blocks[9] = np.arange(BLOCK) / 2
    return blocks


def main():
    random = np.random.default_rng(38)
    with open(sys.argv[1], "wb") as out:
        for kind in TYPES:
            x = numbers(random)
            elements, size = GGML_QUANT_SIZES[kind]
            blocks = quants.quantize(x.reshape(1, -1), kind)
            assert blocks.size == x.size // elements * size, kind
            out.write(struct.pack("<II", kind, x.size // elements) + x.tobytes() + blocks.tobytes())


main()
