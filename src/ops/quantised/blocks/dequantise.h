// Converts GGUF's quantised blocks to the numbers that they stand for.
#pragma once

#include <cstdint>

#include "tessera/ops/quantised/block_types.h"

namespace tessera {

// Returns whether dequantise() supports the type.
bool can_dequantise(BlockType type);

// Writes the numbers of `count` neighbouring blocks of one type to y: count · (elements of a block) numbers. Every step
// is rounded to float32 in the order of llama.cpp's ggml-quants.c, so that the bits are those of gguf-py. `blocks`
// needs no alignment. Precondition: can_dequantise(type). Runs on the calling thread.
void dequantise(BlockType type, const std::uint8_t* blocks, std::int64_t count, float* y);

}  // namespace tessera
