#include "tessera/ops/linear/linear_epilogue.h"

#include "tessera/device/cuda/cuda_device.h"
#include "tessera/ops/linear/linear_cuda.h"

namespace tessera {

bool allows_epilogue(const BindArgs& args, const LinearProblem& p) {
  return allows_own_kernels(args, p) && p.residual == nullptr && p.k % 8 == 0 && p.n % 8 == 0;
}

Result<std::unique_ptr<BoundOp>> bind_epilogue(const LinearProblem& p, Device& device) {
  TRY(static_cast<CudaDevice&>(device).make_current());
  Result<std::unique_ptr<BoundOp>> linear = bind_cublaslt(p, device);
  if (!linear.ok() && linear.status().code() == StatusCode::kUnimplemented) return std::unique_ptr<BoundOp>();
  return linear;
}

}  // namespace tessera
