// Operators before a quantised_linear of rounded rows, which write their first result as the rows that it reads
// (cuda/rounded_rows.cuh). These have the same bits as the operator's own result after rounding.
#pragma once

#include <memory>

#include "tessera/ops/contract/op.h"
#include "tessera/ops/cuda/rounded_rows.cuh"

namespace tessera {

// Binds an rms_norm or add_rms_norm, whose sum is written as ever, or a silu_mul or gelu_mul. The first result itself
// is not written. Returns null for other operators, for float32, and for rows that are not whole groups of columns.
std::unique_ptr<BoundOp> bind_rounded_norm(const BindArgs& args, const cuda::RoundedRows& to);
std::unique_ptr<BoundOp> bind_rounded_gate(const BindArgs& args, const cuda::RoundedRows& to);

}  // namespace tessera
