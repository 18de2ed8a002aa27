// Binds gates (on the output of attention or of a delta net) before a quantised_linear that reads rounded rows
// (cuda/rounded_rows.cuh).
#pragma once

#include <memory>

#include "tessera/ops/contract/op.h"
#include "tessera/ops/cuda/rounded_rows.cuh"

namespace tessera {

// Binds a gated_norm or sigmoid_gate that writes its result as rounded rows, with the same bits as if the operator's
// own result were rounded. Returns null for other operators, for float32, for gated_norm whose heads do not have
// kRoundedGroup values, and for rows that are not whole groups of columns.
std::unique_ptr<BoundOp> bind_rounded_output_gate(const BindArgs& args, const cuda::RoundedRows& to);

}  // namespace tessera
