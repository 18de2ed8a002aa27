// Binds norms and gates before a quantised_linear that reads rounded rows (cuda/rounded_rows.cuh). Their kernels write
// the first result as rounded rows, with the same bits as if the operator's own result were rounded.
#pragma once

#include <memory>

#include "tessera/ops/contract/op.h"
#include "tessera/ops/cuda/rounded_rows.cuh"

namespace tessera {

// bind_rounded_norm() binds an rms_norm or add_rms_norm, and bind_rounded_gate() binds a silu_mul or gelu_mul. The
// first result is written only as rounded rows; add_rms_norm writes its sum too. Both functions return null for other
// operators, for float32, and for rows that are not whole groups of columns. bind_rounded_norm() also returns null for
// rows that do not fit in registers.
std::unique_ptr<BoundOp> bind_rounded_norm(const BindArgs& args, const cuda::RoundedRows& to);
std::unique_ptr<BoundOp> bind_rounded_gate(const BindArgs& args, const cuda::RoundedRows& to);

}  // namespace tessera
