// Binds moe_experts for one token with 4-bit weights (moe_one_token.cuh).
#include "tessera/ops/moe/moe_one_token.h"

#include <algorithm>

#include "tessera/ops/cuda/cuda_op.h"
#include "tessera/ops/cuda/cuda_shared_memory.h"
#include "tessera/ops/moe/moe_one_token_down.cuh"
#include "tessera/ops/moe/moe_one_token_gate_up.cuh"

namespace tessera {
namespace {

using namespace cuda;
using namespace cuda::moe;
using T = __nv_bfloat16;

// The bytes of a block's shared memory that are left for the kernels' static variables.
constexpr std::int64_t kVariables = 8 << 10;

std::int64_t shared_memory() {
  const Result<std::size_t> bytes = most_shared_memory("moe_experts");
  return bytes.ok() ? static_cast<std::int64_t>(*bytes) - kVariables : 0;
}

}  // namespace

bool one_token_serves(const ExpertsProblem& p) {
  return p.mxfp4 && p.dtype == ir::DType::kBFloat16 && p.tokens == 1 && p.top_k <= kTokenMostExperts &&
         p.hidden % 64 == 0 && can_launch_early() && token_gate_up_bytes(p.hidden) <= shared_memory() &&
         token_down_bytes(p.intermediate) <= shared_memory();
}

std::size_t one_token_scratch_bytes(const ExpertsProblem& p) {
  return static_cast<std::size_t>(p.top_k * token_columns(p.intermediate)) * ir::dtype_size(p.dtype);
}

Result<std::unique_ptr<BoundOp>> bind_one_token_experts(const ExpertsProblem& p, std::byte* scratch,
                                                        std::int64_t multiprocessors) {
  const auto [gate_up, down] = matmuls_of<T>(p, 0, reinterpret_cast<T*>(scratch), reinterpret_cast<T*>(p.y));
  const std::int64_t blocks = std::min(p.top_k * p.intermediate / kTokenColumns, multiprocessors);
  const LaunchShape first{.grid = dim3(static_cast<unsigned>(blocks)), .block = dim3(kTokenThreads)};
  const LaunchShape second{.grid = dim3(static_cast<unsigned>(p.hidden / kTokenColumns)),
                           .block = dim3(kTokenDownWarps * kWarp)};
  const auto first_bytes = static_cast<std::size_t>(token_gate_up_bytes(p.hidden));
  const auto second_bytes = static_cast<std::size_t>(token_down_bytes(p.intermediate));
  // The limit of shared memory is set for the largest sizes, because a kernel has one limit for all its launches.
  for (const void* kernel :
       {reinterpret_cast<const void*>(token_gate_up<T>), reinterpret_cast<const void*>(token_down<T>)})
    TRY(allow_shared_memory(kernel, static_cast<std::size_t>(shared_memory()), "moe_experts"));
  return make_cuda_op("moe_experts, one token",
                      [=, gate_up = gate_up, down = down, ids = p.ids, weights = p.weights](cudaStream_t stream) {
                        launch_with(token_gate_up<T>, first, first_bytes, /*early=*/true, stream, gate_up, ids);
                        launch_with(token_down<T>, second, second_bytes, /*early=*/true, stream, down, ids, weights);
                      });
}

}  // namespace tessera
