// Binds moe_experts for the rows of a decode step on Hopper (moe_streamed.cuh).
#include "tessera/ops/moe/moe_streamed.h"

#include "tessera/ops/moe/moe_quantised_streamed.h"
#include "tessera/ops/moe/moe_streamed_launch.cuh"

namespace tessera {
namespace {

using namespace cuda;
using namespace cuda::moe;

// The minimum number of pairs (token, k) for 4-bit weights. With up to 32 pairs, the kernel for few rows
// (moe_few_rows.cuh) is as fast.
constexpr std::int64_t kFewestPackedPairs = 33;

template <class T>
Result<std::unique_ptr<BoundOp>> bind_plain(const ExpertsProblem& p, std::byte* scratch, std::int64_t multiprocessors) {
  using Block = PlainStream<T, kTeamOfBlock>;
  using Warp = PlainStream<T, 1>;
  const auto [gate_up, down] = matmuls_of<T>(p, 0, reinterpret_cast<T*>(scratch), reinterpret_cast<T*>(p.y));
  return make_streamed<T>(TRY((gate_up_launch<T, Block>(p, gate_up, multiprocessors))),
                          TRY((down_launch<T, Block, Warp>(p, down, multiprocessors))));
}

Result<std::unique_ptr<BoundOp>> bind_packed(const ExpertsProblem& p, std::byte* scratch,
                                             std::int64_t multiprocessors) {
  using T = __nv_bfloat16;
  const auto [gate_up, down] = matmuls_of<T>(p, 0, reinterpret_cast<T*>(scratch), reinterpret_cast<T*>(p.y));
  return make_streamed<T>(TRY((gate_up_launch<T, PackedStream<T>>(p, gate_up, multiprocessors))),
                          TRY((block_launch<T, PackedStream<T>>(p, down))));
}

}  // namespace

bool streamed_serves(const ExpertsProblem& p) {
  if (p.quantised) return quantised_streamed_serves(p);
  const bool half = p.dtype == ir::DType::kBFloat16 || p.dtype == ir::DType::kFloat16;
  const auto fits = [&](std::int64_t k) {
    constexpr std::int64_t kMost = PackedStream<__nv_bfloat16>::kMostColumns;
    return p.mxfp4 ? p.dtype == ir::DType::kBFloat16 && k % 64 == 0 && k <= kMost : k % 32 == 0;
  };
  const bool many = !p.mxfp4 || p.tokens * p.top_k >= kFewestPackedPairs;
  return half && many && fits(p.hidden) && fits(p.intermediate) && streamed_runs(p);
}

std::size_t streamed_scratch_bytes(const ExpertsProblem& p) {
  return static_cast<std::size_t>(p.tokens * p.top_k * p.intermediate) * ir::dtype_size(p.dtype);
}

Result<std::unique_ptr<BoundOp>> bind_streamed_experts(const ExpertsProblem& p, std::byte* scratch,
                                                       std::int64_t multiprocessors) {
  if (p.quantised) return bind_quantised_streamed(p, scratch, multiprocessors);
  if (p.mxfp4) return bind_packed(p, scratch, multiprocessors);
  if (p.dtype == ir::DType::kBFloat16) return bind_plain<__nv_bfloat16>(p, scratch, multiprocessors);
  return bind_plain<__half>(p, scratch, multiprocessors);
}

}  // namespace tessera
