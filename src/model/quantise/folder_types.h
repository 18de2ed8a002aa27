// The types of folders in Hugging Face's layout whose linears are quantised: how each is stored, and what config.json
// says about it.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/base/json.h"
#include "tessera/model/formats/start_format.h"
#include "tessera/model/weights/quantise_values.h"
#include "tessera/model/weights/safetensors.h"

namespace tessera {

struct FolderType {
  std::string_view name;
  StartFormat format;       // chooses the linears
  bool channels = false;    // a scale for each row instead of the format's blocks
  std::string_view values;  // the tensors of a linear, by what follows its name
  std::string_view scales;
  std::string_view description;  // in the output: "FP8", "int4"
};

// Returns the type called `name`; null if there is none.
const FolderType* find_folder_type(std::string_view name);
std::span<const FolderType> folder_types();

// A linear that is quantised.
struct QuantisedLinear {
  std::string module;  // "model.layers.0.mlp.up_proj"
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  Rounding rounding = {};
};

// Returns the tensors of the linear, in the order: values, scales, and the shape or the divisor, where the type has
// one.
std::vector<TensorLayout> stored_tensors(const FolderType& type, const QuantisedLinear& linear);

// Returns "quantization_config" for these linears. `plain` are the modules that are linears too and stay as they are.
Json quantisation_config(const FolderType& type, std::span<const QuantisedLinear> linears,
                         std::span<const std::string> plain);

}  // namespace tessera
