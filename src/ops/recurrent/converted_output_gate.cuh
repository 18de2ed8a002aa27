// Binds gates on the output of attention or of a delta net. The result of each gate goes to a quantised_linear that
// reads converted rows (cuda/converted_rows.cuh).
#pragma once

#include <memory>

#include "tessera/ops/contract/op.h"
#include "tessera/ops/cuda/converted_rows.cuh"

namespace tessera {

// Binds a gated_norm or sigmoid_gate that writes its result as converted rows, with the same bits as if the operator's
// own result were converted. Returns null for other operators, for float32, for a gated_norm whose heads do not have
// kConvertedGroup values, and for rows whose length is not a multiple of kConvertedGroup.
std::unique_ptr<BoundOp> bind_converted_output_gate(const BindArgs& args, const cuda::ConvertedRows& to);

}  // namespace tessera
