// Binds moe_experts for one token whose weights have 4 bits (moe_one_token.cuh).
#include "tessera/ops/moe_one_token.h"

#include <algorithm>

#include "tessera/ops/cuda_op.h"
#include "tessera/ops/moe_one_token.cuh"

namespace tessera {
namespace {

using namespace cuda;
using namespace cuda::moe;

constexpr std::size_t kMostShared = std::size_t{40} << 10;  // of the 48 that every kernel may have

std::size_t shared_bytes(const ExpertsProblem& p) {
  return static_cast<std::size_t>(token_columns(p.hidden)) * ir::dtype_size(p.dtype);
}

}  // namespace

bool one_token_serves(const ExpertsProblem& p) {
  return p.mxfp4 && p.dtype == ir::DType::kBFloat16 && p.tokens == 1 && p.top_k <= 2 * kTokenDownWarps &&
         shared_bytes(p) <= kMostShared;
}

std::size_t one_token_scratch_bytes(const ExpertsProblem& p) {
  return static_cast<std::size_t>(p.top_k * token_columns(p.intermediate)) * ir::dtype_size(p.dtype);
}

std::unique_ptr<BoundOp> bind_one_token_experts(const ExpertsProblem& p, std::byte* scratch,
                                                std::int64_t multiprocessors) {
  using T = __nv_bfloat16;
  const auto [gate_up, down] = matmuls_of<T>(p, 0, reinterpret_cast<T*>(scratch), reinterpret_cast<T*>(p.y));
  // A place for each unit, and blocks for all multiprocessors.
  const std::int64_t units = p.top_k * p.intermediate / kTokenColumns;
  const std::int64_t blocks = std::min(units, multiprocessors);
  const std::int64_t of_block = std::min<std::int64_t>(ceil_div(units, blocks), kTokenMostWarps / kTokenShares);
  const LaunchShape first{.grid = dim3(static_cast<unsigned>(blocks)),
                          .block = dim3(static_cast<unsigned>(of_block * kTokenShares * kWarp))};
  const LaunchShape second{.grid = dim3(static_cast<unsigned>(p.hidden / kTokenColumns)),
                           .block = dim3(kTokenDownWarps * kWarp)};
  const std::size_t shared = shared_bytes(p);
  return make_cuda_op("moe_experts, one token",
                      [=, gate_up = gate_up, down = down, ids = p.ids, weights = p.weights](cudaStream_t stream) {
                        launch_with(token_gate_up<T>, first, shared, can_launch_early(), stream, gate_up, ids);
                        launch_early(token_down<T>, second, stream, down, ids, weights);
                      });
}

}  // namespace tessera
