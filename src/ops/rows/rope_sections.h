// Which of a token's three positions turns a pair, where positions are time, height and width (M-RoPE, Qwen2-VL,
// arXiv 2409.12191): 0, 1 or 2. For both devices.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "tessera/ops/contract/op.h"

namespace tessera {

struct RopeSections {
  std::int64_t counts[3] = {};  // pairs of each; their sum: all pairs
  bool interleaved = false;

  // In order: those of time, of height, of width. Interleaved, pair 3i + a turns by position a while a's last one of
  // them is within three times its count, and by time past that: Hugging Face's apply_interleaved_mrope.
  constexpr int axis_of(std::int64_t pair) const {
    if (interleaved) return pair % 3 != 0 && pair < 3 * counts[pair % 3] ? static_cast<int>(pair % 3) : 0;
    return pair < counts[0] ? 0 : pair < counts[0] + counts[1] ? 1 : 2;
  }
};

// Of a rotary_table whose positions are i32[3, T].
inline RopeSections rope_sections(const ir::Node& node) {
  RopeSections made;
  std::ranges::copy(std::get<std::vector<std::int64_t>>(*node.find_attribute("sections")), made.counts);
  made.interleaved = node.attribute_or("interleaved", false);
  return made;
}

}  // namespace tessera
