// Reads adapters that change whole stacks of experts' matrices. PEFT writes such adapters for the setting
// target_parameters. With the LoRA rank r, A is [experts · r, columns]: the r rows of expert 0, then the rows of expert
// 1 and so on. B is [rows, r · experts]: the first column of every expert's B, then the second column of every expert's
// B and so on. If the stack contains gate and up, the rows of gate come before those of up in B.
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

// Returns whether a module is a stack: "….mlp.experts" or "….mlp.experts.base_layer". If an adapter changes two
// parameters of a module, PEFT nests two wrappers, and "base_layer" names the inner wrapper.
bool is_expert_stack(std::string_view module);

// A matrix of the adapter's file, as floats.
struct AdapterMatrix {
  std::vector<float> values;
  std::vector<std::int64_t> shape;
};

// The matrices of one expert's module, and the place in the layout to which they belong.
struct ExpertMatrices {
  AdapterLayout::Place place;
  std::shared_ptr<const AdapterMatrices> matrices;
};
// Splits a stack's A and B into the matrices of each expert, for all ranks. The shapes show whether the stack holds the
// matrices gate and up or the matrix down. Returns invalid_argument for a stack that the layout does not contain, for
// shapes that fit no stack, and for an unsupported LoRA rank. Messages begin with `path`.
Result<std::vector<ExpertMatrices>> cut_expert_stack(const std::string& path, const std::string& module,
                                                     const AdapterMatrix& a, const AdapterMatrix& b,
                                                     const AdapterConfig& config, const AdapterLayout& layout);

}  // namespace tessera
