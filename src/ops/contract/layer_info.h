// What a model's family says of its layers beyond the graph, for operators and planners that must know more than their
// operands: how weights are stored that kernels compute with as they are, and how tokens are spread over experts.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace tessera {

struct Quantisation {
  std::string format;           // "fp8", "mxfp4"
  std::int64_t group_size = 0;  // elements that share a scale; 0: all of a tensor
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
