// Makes the launches of the kernels of moe_streamed.cuh, for any form of weights.
#pragma once

#include <algorithm>

#include "tessera/ops/cuda/cuda_op.h"
#include "tessera/ops/cuda/cuda_shared_memory.h"
#include "tessera/ops/moe/moe_streamed.cuh"
#include "tessera/ops/quantised/quantised_values.cuh"

namespace tessera::cuda::moe {

// How blocks of gate and up share a multiprocessor's shared memory. On an H200, two blocks with half of the memory each
// are faster in two cases: for one token, because a block has few items; and for MXFP4, because two blocks keep the
// arithmetic units busier. Otherwise one block with a long ring is faster. Quantised weights need as much arithmetic as
// MXFP4.
struct Share {
  std::int64_t blocks;      // blocks of gate and up per multiprocessor
  std::int64_t ring_bytes;  // bytes of a block's ring of weights
};
inline constexpr Share kOneBlock{.blocks = 1, .ring_bytes = 200 * 1024};
inline constexpr Share kTwoBlocks{.blocks = 2, .ring_bytes = 96 * 1024};
inline Share share_of(const ExpertsProblem& p) {
  return p.tokens == 1 || p.mxfp4 || p.quantised ? kTwoBlocks : kOneBlock;
}

template <class T>
struct StreamedLaunch {
  void (*kernel)(Streamed<T>);
  Streamed<T> problem;
  LaunchShape shape;
  std::size_t shared_bytes;
};

// Makes a kernel's launch. `Stream` is a class of moe_streams.cuh, or another with the same members.
template <class T, bool kGateUp, class Stream>
Result<StreamedLaunch<T>> streamed_launch(const ExpertsProblem& p, const Matmul<T>& matmul,
                                          std::int64_t multiprocessors) {
  const std::int64_t items = p.tokens * p.top_k * (p.intermediate / (kStreamedWeightRows / 2));
  const std::int64_t blocks =
      kGateUp ? std::min(items, share_of(p).blocks * multiprocessors) : p.hidden / kStreamedWeightRows;
  const int columns = Stream::stage_columns(matmul.k);
  const std::int64_t slot = Stream::slot_bytes(columns);
  const std::int64_t slots = std::min<std::int64_t>(kStreamedSlots, share_of(p).ring_bytes / slot);
  const Streamed<T> problem{.matmul = matmul,
                            .ids = p.ids,
                            .weights = p.weights,
                            .pairs = static_cast<int>(p.tokens * p.top_k),
                            .stage_columns = columns,
                            .pitch = Stream::row_bytes(columns),
                            .slots = static_cast<int>(slots),
                            .inverse_top_k = static_cast<int>((65535 + p.top_k) / p.top_k),
                            .group_shift = quantised::group_shift_of(matmul.matrix),
                            .inverse_group_rows = 1.0F / static_cast<float>(matmul.matrix.format.group_rows)};
  const auto outputs_of = [](std::int64_t pairs) {
    return kGateUp ? 0 : pairs * kStreamedWeightRows * static_cast<std::int64_t>(sizeof(T));
  };
  constexpr auto kKernel = streamed_experts<T, kGateUp, Stream>;
  // The limit of shared memory is set for the largest sizes, because a kernel has one limit for all its launches.
  TRY(allow_shared_memory(reinterpret_cast<const void*>(kKernel),
                          static_cast<std::size_t>(kOneBlock.ring_bytes + outputs_of(kStreamedPairs)), "moe_experts"));
  return StreamedLaunch<T>{.kernel = kKernel,
                           .problem = problem,
                           .shape = {.grid = dim3(static_cast<unsigned>(blocks)), .block = dim3(kStreamedThreads)},
                           .shared_bytes = static_cast<std::size_t>(slots * slot + outputs_of(problem.pairs))};
}

template <class T>
std::unique_ptr<BoundOp> make_streamed(const StreamedLaunch<T>& gate_up, const StreamedLaunch<T>& down) {
  return make_cuda_op("moe_experts, streamed", [=](cudaStream_t stream) {
    for (const StreamedLaunch<T>* l : {&gate_up, &down})
      launch_with(l->kernel, l->shape, l->shared_bytes, /*early=*/true, stream, l->problem);
  });
}

// Returns whether there are few enough pairs of a token and an expert, and the device has what the kernels need.
inline bool streamed_runs(const ExpertsProblem& p) {
  const Result<std::size_t> memory = most_shared_memory("moe_experts");
  return p.tokens * p.top_k <= kStreamedPairs && can_launch_early() && memory.ok() &&
         *memory >= static_cast<std::size_t>(kOneBlock.ring_bytes + 2 * kStreamedPairs * kStreamedWeightRows);
}

}  // namespace tessera::cuda::moe
