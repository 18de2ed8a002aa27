// Binds the linear with a gate on Hopper, without adapters.
#include "tessera/ops/linear/linear_gated.h"

#include "tessera/ops/linear/linear_gated_bind.cuh"

namespace tessera {
namespace {

using namespace cuda;
using namespace cuda::gated_linear;

template <class T, class Gate>
Result<std::unique_ptr<BoundOp>> make(const LinearProblem& p, std::byte* y) {
  const std::optional<Launch<T>> launch = TRY(make_launch<T, Gate, NoParts>(p, y));
  if (!launch) return std::unique_ptr<BoundOp>();
  return make_cuda_op("linear and gate, by warpgroups", [launch = *launch](cudaStream_t stream) {
    launch_with(linear_gated<T, Gate, NoParts>, launch.shape, kSharedBytes, /*early=*/true, stream, launch.linear,
                NoParts{});
  });
}

}  // namespace

Result<std::unique_ptr<BoundOp>> bind_gated_linear(std::span<const BindArgs> calls) {
  const LinearProblem p = make_linear_problem(calls[0]);
  std::byte* const y = calls[1].results[0].data.raw();
  if (!supports<NoParts>(calls[0], p, y)) return std::unique_ptr<BoundOp>();
  return with_gate(calls[1].node, [&]<class Gate>() {
    return p.dtype == ir::DType::kBFloat16 ? make<__nv_bfloat16, Gate>(p, y) : make<__half, Gate>(p, y);
  });
}

}  // namespace tessera
