// Splits Hugging Face's names of tensors into the parts that the rules of gguf/tensor_names.h need.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace tessera {

// "model.layers.3.mlp.experts.7.up_proj.weight" is split into layer 3, expert 7 and "mlp.experts.{}.up_proj.weight".
// For a name without a layer, `layer` and `expert` are empty, and `rest` is a '/' followed by the name.
struct OwnName {
  std::optional<std::int64_t> layer;
  std::optional<std::int64_t> expert;
  std::string rest;
};

OwnName parse_own_name(std::string_view name);

}  // namespace tessera
