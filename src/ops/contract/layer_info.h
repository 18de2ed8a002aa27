// A model family's description of its layers. It tells operators and planners what graphs and operands do not contain:
// the format of packed weights that kernels read directly, and how tokens are spread over experts.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace tessera {

struct Quantisation {
  std::string format;           // "fp8", "mxfp4"
  std::int64_t group_size = 0;  // number of elements that share a scale; 0: the whole tensor has one scale
};

struct MoeLayer {
  std::int64_t num_experts = 0;
  std::int64_t experts_per_token = 0;
};

struct LayerInfo {
  std::optional<Quantisation> quantisation = std::nullopt;
  std::optional<MoeLayer> moe = std::nullopt;
};

}  // namespace tessera
