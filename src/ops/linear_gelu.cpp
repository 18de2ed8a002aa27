#include "tessera/ops/linear_gelu.h"

#include <limits>
#include <utility>

#include "tessera/device/cuda/cuda_device.h"
#include "tessera/ops/linear_cuda.h"

namespace tessera {
namespace {

Result<std::unique_ptr<BoundOp>> bind(std::span<const BindArgs> calls) {
  LinearProblem p = make_linear_problem(calls[0]);
  if (!calls[1].node.attribute_or("tanh", true) || !allows_own_kernels(calls[0], p) || p.bias == nullptr ||
      p.residual != nullptr || p.m <= kMostSplitRows || p.k % 8 != 0 || p.n % 8 != 0)
    return std::unique_ptr<BoundOp>();
  p.gelu = true;
  p.y = calls[1].results[0].data.raw();
  TRY(static_cast<CudaDevice&>(calls[0].device).make_current());
  Result<std::unique_ptr<BoundOp>> linear = bind_cublaslt(p, calls[0].device);
  if (!linear.ok() && linear.status().code() == StatusCode::kUnimplemented) return std::unique_ptr<BoundOp>();
  return linear;
}

}  // namespace

const JoinedKernelDef kLinearGeluCuda{.ops = {"linear", "gelu"},
                                      .name = "gelu in the matmul",
                                      .most_rows = std::numeric_limits<std::int64_t>::max(),
                                      .bind = bind};

}  // namespace tessera
