#!/usr/bin/env python3
"""Makes blocks.bin: random blocks of GGUF's types with the numbers to which gguf-py dequantises them.

    pip install gguf==0.19.0
    make_blocks.py blocks.bin

The file is a list of records, all numbers little-endian: u32 type, as GGUF numbers them; u32 number of blocks; the
blocks; their numbers as float32. Every byte is random, except the bytes of scales, which are finite."""

import struct
import sys

import numpy as np
from gguf import quants
from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType as Type

# Byte offsets of the float16 scales in a block.
SCALES = {
    Type.Q4_0: [0], Type.Q4_1: [0, 2], Type.Q5_0: [0], Type.Q5_1: [0, 2], Type.Q8_0: [0],
    Type.Q2_K: [80, 82], Type.Q3_K: [108], Type.Q4_K: [0, 2], Type.Q5_K: [0, 2], Type.Q6_K: [208],
    Type.IQ1_S: [0], Type.IQ2_XXS: [0], Type.IQ2_XS: [0], Type.IQ2_S: [0], Type.IQ3_XXS: [0], Type.IQ3_S: [0],
    Type.IQ4_NL: [0], Type.IQ4_XS: [0], Type.IQ1_M: [], Type.MXFP4: [], Type.NVFP4: [],
}  # fmt: skip
VALUES = 1024  # values of each type


def random_blocks(kind, random):
    values, size = GGML_QUANT_SIZES[kind]
    blocks = random.integers(0, 256, (VALUES // values, size), dtype=np.uint8)
    for at in SCALES[kind]:
        scales = random.normal(0, 0.1, len(blocks)).astype(np.float16)
        scales[0] = 3e-6  # a subnormal number
        blocks[:, at : at + 2] = scales.view(np.uint8).reshape(-1, 2)
    if kind == Type.IQ1_M:  # the upper four bits of the scale
        blocks[:, 55] = blocks[:, 55] & 0x0F | random.choice([0x00, 0x20, 0x30, 0xB0], len(blocks)).astype(np.uint8)
    if kind == Type.MXFP4:
        blocks[:, 0] = random.integers(0, 140, len(blocks))
        blocks[:3, 0] = [0, 1, 2]
    if kind == Type.NVFP4:
        blocks[:, :4] &= 0x7F
    return blocks


def main():
    random = np.random.default_rng(38)
    with open(sys.argv[1], "wb") as out:
        for kind in SCALES:
            blocks = random_blocks(kind, random)
            numbers = quants.dequantize(blocks, kind).astype("<f4")
            assert numbers.size == VALUES and np.isfinite(numbers).all(), kind
            out.write(struct.pack("<II", kind, len(blocks)) + blocks.tobytes() + numbers.tobytes())


main()
