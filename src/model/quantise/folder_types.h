// Lists the types of quantised folders. A quantised folder has Hugging Face's layout and contains quantised linears.
// The type says how linears are stored and how config.json describes them.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/base/json.h"
#include "tessera/model/formats/start_format.h"
#include "tessera/model/rounding/quantise_values.h"
#include "tessera/model/weights/safetensors.h"

namespace tessera {

struct FolderType {
  std::string_view name;
  StartFormat format;            // decides which linears are quantised
  bool channels = false;         // true for one scale per row instead of one per block of the format
  std::string_view values;       // suffix of the name of a linear's tensor of values
  std::string_view scales;       // suffix of the name of a linear's tensor of scales
  std::string_view description;  // for messages: "FP8", "int4"
};

// Returns the type called `name`; null if the name is unknown.
const FolderType* find_folder_type(std::string_view name);
std::span<const FolderType> folder_types();
// Returns whether an importance matrix changes how the type's numbers are rounded. It does for the 4-bit types.
bool uses_importance(const FolderType& type);

// A linear that is quantised.
struct QuantisedLinear {
  std::string module;  // "model.layers.0.mlp.up_proj"
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  Rounding rounding = {};
};

// Returns the tensors of the linear, in this order: values, scales, then the shape or the divisor if the type has one.
std::vector<TensorLayout> stored_tensors(const FolderType& type, const QuantisedLinear& linear);

// Returns "quantization_config" for these linears. `unquantised` lists the linears that stay unquantised.
Json quantisation_config(const FolderType& type, std::span<const QuantisedLinear> linears,
                         std::span<const std::string> unquantised);

}  // namespace tessera
