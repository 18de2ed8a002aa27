// Says which of a token's three positions rotates a pair in M-RoPE (Qwen2-VL, arXiv 2409.12191): 0 is time, 1 is
// height, 2 is width. Kernels on the CPU and on CUDA use this code.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "tessera/ops/contract/op.h"

namespace tessera {

struct RopeSections {
  std::int64_t counts[3] = {};  // the number of pairs of each axis; the sum is the number of all pairs
  bool interleaved = false;

  // Returns the axis of a pair. If the axes are not interleaved, the pairs of time come first, then those of height,
  // then those of width. If they are interleaved, pair 3i + a, with a in {0, 1, 2}, uses axis a if
  // 3i + a < 3 · counts[a], and time otherwise, as in Hugging Face's apply_interleaved_mrope.
  constexpr int axis_of(std::int64_t pair) const {
    if (interleaved) return pair % 3 != 0 && pair < 3 * counts[pair % 3] ? static_cast<int>(pair % 3) : 0;
    return pair < counts[0] ? 0 : pair < counts[0] + counts[1] ? 1 : 2;
  }
};

// Reads the sections of a rotary_table node whose positions are i32[3, T].
inline RopeSections rope_sections(const ir::Node& node) {
  RopeSections made;
  std::ranges::copy(std::get<std::vector<std::int64_t>>(*node.find_attribute("sections")), made.counts);
  made.interleaved = node.attribute_or("interleaved", false);
  return made;
}

}  // namespace tessera
