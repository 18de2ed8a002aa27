// Binds the streamed linear (linear_streamed.cuh) joined with the change that adapters make to its result, and with the
// gate after that change (silu_mul or gelu_mul), if there is one.
#include "tessera/ops/linear/linear_cuda.h"
#include "tessera/ops/linear/linear_streamed_bind.cuh"

namespace tessera {
namespace {

using namespace cuda;
using namespace cuda::streamed_linear;

template <class T>
Result<std::unique_ptr<BoundOp>> make(const LinearProblem& p, const AdapterAddArgs& adapters, Gate gate, std::byte* y) {
  return make_streamed<T>("linear with adapters, streamed", p, AdapterChange<T>{adapters}, gate, y);
}

}  // namespace

Result<std::unique_ptr<BoundOp>> bind_adapted(std::span<const BindArgs> calls) {
  const LinearProblem p = make_linear_problem(calls[0]);
  const bool gated = calls.size() > 2;
  if (!can_stream(calls[0]) || (gated && p.residual != nullptr)) return std::unique_ptr<BoundOp>();
  const AdapterAddArgs adapters = adapter_add_args(calls[1]);
  const std::int32_t columns = gated ? kTileRows / 2 : kTileRows;  // neighbouring columns of a tile need one module
  for (std::int32_t i = 0; i < adapters.ranges.count; ++i)
    if (adapters.ranges.ends[i] % columns != 0) return std::unique_ptr<BoundOp>();
  const Gate gate = gated ? gate_of(calls[2].node) : Gate::kNone;
  std::byte* const y = gated ? calls[2].results[0].data.raw() : p.y;
  if (p.dtype == ir::DType::kBFloat16) return make<__nv_bfloat16>(p, adapters, gate, y);
  return make<__half>(p, adapters, gate, y);
}

}  // namespace tessera
