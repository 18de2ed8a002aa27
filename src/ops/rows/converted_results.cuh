// Binds norms and gates whose first result goes to a quantised_linear that reads converted rows
// (cuda/converted_rows.cuh). The kernels of these norms and gates write this result as converted rows, with the same
// bits as if the result of the operator's own kernel were converted.
#pragma once

#include <memory>

#include "tessera/ops/contract/op.h"
#include "tessera/ops/cuda/converted_rows.cuh"

namespace tessera {

// bind_converted_norm() binds an rms_norm or add_rms_norm, and bind_converted_gate() binds a silu_mul or gelu_mul. The
// operator's first result is written only as converted rows. add_rms_norm also writes its sum. Both functions return
// null for other operators, for float32, and for rows whose length is not a multiple of kConvertedGroup.
// bind_converted_norm() also returns null for rows that do not fit in registers.
std::unique_ptr<BoundOp> bind_converted_norm(const BindArgs& args, const cuda::ConvertedRows& to);
std::unique_ptr<BoundOp> bind_converted_gate(const BindArgs& args, const cuda::ConvertedRows& to);

}  // namespace tessera
