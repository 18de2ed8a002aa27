// Binds moe_experts for the rows of a decode on Hopper (moe_streamed.cuh).
#include "tessera/ops/moe/moe_streamed.h"

#include <algorithm>

#include "tessera/ops/cuda/cuda_op.h"
#include "tessera/ops/cuda/cuda_shared_memory.h"
#include "tessera/ops/moe/moe_streamed.cuh"

namespace tessera {
namespace {

using namespace cuda;
using namespace cuda::moe;

// How gate and up uses a multiprocessor's shared memory. Measured on an H200: two blocks with half of it each are
// faster for one token, where a block has few items, and for 4-bit weights, where two blocks keep the arithmetic units
// busier. Else one block with a long ring is faster.
struct Share {
  std::int64_t blocks;      // blocks of gate and up per multiprocessor
  std::int64_t ring_bytes;  // bytes of a block's ring of weights
};
constexpr Share kOne{.blocks = 1, .ring_bytes = 200 * 1024};
constexpr Share kTwo{.blocks = 2, .ring_bytes = 96 * 1024};
Share share_of(const ExpertsProblem& p) { return p.tokens == 1 || p.mxfp4 ? kTwo : kOne; }

// With 4-bit weights the kernel for few rows is as fast up to 32 pairs.
constexpr std::int64_t kFewestPackedPairs = 33;

template <class T>
struct StreamedLaunch {
  Streamed<T> problem;
  LaunchShape shape;
  std::size_t shared_bytes;
};

template <class T, bool kGateUp, template <class> class Stream>
Result<StreamedLaunch<T>> make_launch(const ExpertsProblem& p, const Matmul<T>& matmul, std::int64_t blocks) {
  const int columns = Stream<T>::stage_columns(matmul.k);
  const std::int64_t slot = Stream<T>::slot_bytes(columns);
  const std::int64_t slots = std::min<std::int64_t>(kStreamedSlots, share_of(p).ring_bytes / slot);
  const Streamed<T> problem{.matmul = matmul,
                            .ids = p.ids,
                            .weights = p.weights,
                            .pairs = static_cast<int>(p.tokens * p.top_k),
                            .stage_columns = columns,
                            .slots = static_cast<int>(slots)};
  const auto outputs_of = [](std::int64_t pairs) {
    return kGateUp ? 0 : pairs * kStreamedWeightRows * static_cast<std::int64_t>(sizeof(T));
  };
  const auto* kernel = reinterpret_cast<const void*>(streamed_experts<T, kGateUp, Stream>);
  // The allowance is the same for all sizes, because a kernel has only one limit.
  TRY(allow_shared_memory(kernel, static_cast<std::size_t>(kOne.ring_bytes + outputs_of(kStreamedPairs)),
                          "moe_experts"));
  return StreamedLaunch<T>{.problem = problem,
                           .shape = {.grid = dim3(static_cast<unsigned>(blocks)), .block = dim3(kStreamedThreads)},
                           .shared_bytes = static_cast<std::size_t>(slots * slot + outputs_of(problem.pairs))};
}

template <class T, template <class> class Stream>
Result<std::unique_ptr<BoundOp>> bind_typed(const ExpertsProblem& p, std::byte* scratch, std::int64_t multiprocessors) {
  const auto [gate_up, down] = matmuls_of<T>(p, 0, reinterpret_cast<T*>(scratch), reinterpret_cast<T*>(p.y));
  const std::int64_t items = p.tokens * p.top_k * (p.intermediate / (kStreamedWeightRows / 2));
  const auto first =
      TRY((make_launch<T, true, Stream>(p, gate_up, std::min(items, share_of(p).blocks * multiprocessors))));
  const auto second = TRY((make_launch<T, false, Stream>(p, down, p.hidden / kStreamedWeightRows)));
  return make_cuda_op("moe_experts, streamed", [=](cudaStream_t stream) {
    launch_with(streamed_experts<T, true, Stream>, first.shape, first.shared_bytes, /*early=*/true, stream,
                first.problem);
    launch_with(streamed_experts<T, false, Stream>, second.shape, second.shared_bytes, /*early=*/true, stream,
                second.problem);
  });
}

}  // namespace

bool streamed_serves(const ExpertsProblem& p) {
  const bool half = p.dtype == ir::DType::kBFloat16 || p.dtype == ir::DType::kFloat16;
  const auto fits = [&](std::int64_t k) {
    constexpr std::int64_t kMost = PackedStream<__nv_bfloat16>::kMostColumns;
    return p.mxfp4 ? p.dtype == ir::DType::kBFloat16 && k % 64 == 0 && k <= kMost : k % 32 == 0;
  };
  const std::int64_t pairs = p.tokens * p.top_k;
  const bool few = pairs <= kStreamedPairs && (!p.mxfp4 || pairs >= kFewestPackedPairs);
  const Result<std::size_t> memory = most_shared_memory("moe_experts");
  return half && few && fits(p.hidden) && fits(p.intermediate) && can_launch_early() && memory.ok() &&
         *memory >=
             // Including the results
             static_cast<std::size_t>(kOne.ring_bytes + 2 * kStreamedPairs * kStreamedWeightRows);
}

std::size_t streamed_scratch_bytes(const ExpertsProblem& p) {
  return static_cast<std::size_t>(p.tokens * p.top_k * p.intermediate) * ir::dtype_size(p.dtype);
}

Result<std::unique_ptr<BoundOp>> bind_streamed_experts(const ExpertsProblem& p, std::byte* scratch,
                                                       std::int64_t multiprocessors) {
  if (p.mxfp4) return bind_typed<__nv_bfloat16, PackedStream>(p, scratch, multiprocessors);
  if (p.dtype == ir::DType::kBFloat16) return bind_typed<__nv_bfloat16, PlainStream>(p, scratch, multiprocessors);
  return bind_typed<__half, PlainStream>(p, scratch, multiprocessors);
}

}  // namespace tessera
