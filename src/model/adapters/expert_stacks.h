// Adapters of whole stacks of experts, as PEFT writes them for target_parameters: one A [experts · rank, columns],
// whose rows are those of expert 0, then expert 1 and so on, and one B [rows, rank · experts], whose columns are those
// of rank 0 of all experts, then rank 1 and so on. The rows of a stack of gate and up are gate's, then up's.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/base/status.h"
#include "tessera/model/adapters/adapter_config.h"
#include "tessera/model/adapters/adapter_layout.h"
#include "tessera/model/adapters/adapter_share.h"

namespace tessera {

// Returns whether a module is a stack: "….mlp.experts", or "….mlp.experts.base_layer" for the first of two parameters,
// as PEFT nests them.
bool is_expert_stack(std::string_view module);

// A matrix of the file as floats.
struct AdapterMatrix {
  std::vector<float> values;
  std::vector<std::int64_t> shape;
};

// The matrices of one expert's module, and where they belong.
struct ExpertMatrices {
  AdapterLayout::Place place;
  std::shared_ptr<const AdapterMatrices> matrices;
};
// Cuts a stack's matrices into those of the experts of all ranks. Which stack it is, gate and up or down, follows from
// the shapes. invalid_argument for a module without experts in the layout, other shapes, or a rank that is not
// accepted; messages begin with `path`.
Result<std::vector<ExpertMatrices>> cut_expert_stack(const std::string& path, const std::string& module,
                                                     const AdapterMatrix& a, const AdapterMatrix& b,
                                                     const AdapterConfig& config, const AdapterLayout& layout);

}  // namespace tessera
