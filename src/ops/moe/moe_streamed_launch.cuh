// Makes the launches of the kernels of moe_streamed.cuh, for any form of weights.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>

#include "tessera/ops/cuda/cuda_op.h"
#include "tessera/ops/cuda/cuda_shared_memory.h"
#include "tessera/ops/moe/moe_streamed.cuh"
#include "tessera/ops/quantised/quantised_values.cuh"

namespace tessera::cuda::moe {

// Says how blocks share a multiprocessor's shared memory, and how many bytes the multiprocessor's copies may request at
// once. The constants below come from measurements on an H200.
struct Share {
  std::int64_t blocks;      // the number of blocks of gate and up per multiprocessor
  std::int64_t ring_bytes;  // the bytes of a block's ring buffer of weights
  std::int64_t fewest;      // stages hold all columns of k if at least this many such stages fit
  // The maximum number of bytes that a multiprocessor's copies have in flight. Each copying warp may have one stage in
  // flight even if this exceeds the maximum.
  std::int64_t in_flight = std::numeric_limits<std::int64_t>::max();
};
// For 16-bit weights, a multiprocessor has one block, whose ring is longer than the rings of two blocks would be.
inline constexpr Share kOneBlock{.blocks = 1, .ring_bytes = 136 * 1024, .fewest = 2};
// For MXFP4, a multiprocessor has two blocks, which keep its arithmetic units busier than one block would.
inline constexpr Share kTwoBlocks{.blocks = 2, .ring_bytes = 96 * 1024, .fewest = 2};
// Quantised weights need as much arithmetic as MXFP4. Short rings leave the L1 cache more room for x. The loads of x
// and of scales wait in the same memory queues as the weights. A limit on the bytes of weights in flight keeps these
// queues short.
inline constexpr Share kTwoShortRings{.blocks = 2, .ring_bytes = 68 * 1024, .fewest = 2, .in_flight = 96 * 1024};
inline Share share_of(const ExpertsProblem& p) {
  return p.quantised ? kTwoShortRings : p.mxfp4 ? kTwoBlocks : kOneBlock;
}

// The maximum size of a ring in bytes. Only the kernel of down with teams of one warp can have a ring of this size,
// because each block of this kernel has a multiprocessor to itself.
inline constexpr std::int64_t kMostRingBytes = 200 * 1024;

// A block's ring buffer in shared memory. A slot holds one stage of weights.
struct Ring {
  int stage_columns;
  int pitch;  // the bytes from one row of a stage to the next
  int slot_bytes;
  int slots;
};

// Returns a ring of as many stages as fit in `bytes`, up to kStreamedSlots.
inline Ring ring_with(int stage_columns, int pitch, int slot_bytes, std::int64_t bytes) {
  return {.stage_columns = stage_columns,
          .pitch = pitch,
          .slot_bytes = slot_bytes,
          .slots = static_cast<int>(std::min<std::int64_t>(kStreamedSlots, bytes / slot_bytes))};
}

// Returns a ring of stages that hold all columns of k. There are no gaps between rows, so few copies fill a stage.
template <class Stream>
Ring whole_rows(int k, std::int64_t bytes) {
  const int pitch = Stream::row_bytes(k);
  return ring_with(k, pitch, kStreamedWeightRows * pitch + Stream::more_bytes(k), bytes);
}

// Returns a ring of stages that hold about equal parts of the columns of k, so that the last stage does not have only a
// few columns. Gaps of 64 bytes make the distance between rows an odd multiple of 64, so eight threads that read 16
// bytes each from two rows have no bank conflicts.
template <class Stream>
Ring parts_of_rows(int k, std::int64_t bytes) {
  const std::int64_t stages = ceil_div(k, Stream::kStageColumns);
  const auto columns =
      static_cast<int>(ceil_div(ceil_div(k, stages), Stream::kColumnMultiple) * Stream::kColumnMultiple);
  const int pitch = (Stream::row_bytes(columns) + 63) / 128 * 128 + 64;
  return ring_with(columns, pitch, kStreamedWeightRows * pitch, bytes);
}

template <class Stream>
Ring ring_of(int k, const Share& share) {
  const Ring whole = whole_rows<Stream>(k, share.ring_bytes);
  if constexpr (requires { Stream::kColumnMultiple; })
    if (whole.slots < share.fewest) return parts_of_rows<Stream>(k, share.ring_bytes);
  return whole;
}

// Returns how many stages each of `warps` copying warps may have in flight, if the copies of a block may have `bytes`
// bytes in flight. The result is at least one, and at most the number of the warp's slots.
inline int in_flight_of(const Ring& ring, std::int64_t bytes, int warps) {
  return static_cast<int>(std::clamp<std::int64_t>(bytes / ring.slot_bytes, warps, ring.slots) / warps);
}

template <class T>
struct StreamedLaunch {
  void (*kernel)(Streamed<T>);
  Streamed<T> problem;
  LaunchShape shape;
  std::size_t shared_bytes;
};

template <class T, bool kGateUp, class Stream>
Result<StreamedLaunch<T>> streamed_launch(const ExpertsProblem& p, const Matmul<T>& matmul, const Ring& ring, int teams,
                                          std::int64_t blocks, std::int64_t in_flight) {
  const Streamed<T> problem{.matmul = matmul,
                            .ids = p.ids,
                            .weights = p.weights,
                            .pairs = static_cast<int>(p.tokens * p.top_k),
                            .teams = teams,
                            .stage_columns = ring.stage_columns,
                            .pitch = ring.pitch,
                            .slot_bytes = ring.slot_bytes,
                            .slots = ring.slots,
                            .in_flight = in_flight_of(ring, in_flight, kCopyingWarps<Stream::kTeam>),
                            .inverse_top_k = static_cast<int>((65535 + p.top_k) / p.top_k),
                            .group_shift = quantised::group_shift_of(matmul.matrix),
                            .inverse_group_rows = 1.0F / static_cast<float>(matmul.matrix.format.group_rows)};
  const auto outputs_of = [](std::int64_t pairs) {
    return kGateUp ? 0 : pairs * kStreamedWeightRows * static_cast<std::int64_t>(sizeof(T));
  };
  constexpr auto kKernel = streamed_experts<T, kGateUp, Stream>;
  // The limit of shared memory is set for the largest sizes, because a kernel has one limit for all its launches.
  TRY(allow_shared_memory(reinterpret_cast<const void*>(kKernel),
                          static_cast<std::size_t>(kMostRingBytes + outputs_of(kStreamedPairs)), "moe_experts"));
  const std::int64_t ring_bytes = std::int64_t{ring.slots} * ring.slot_bytes;
  return StreamedLaunch<T>{.kernel = kKernel,
                           .problem = problem,
                           .shape = {.grid = dim3(static_cast<unsigned>(blocks)),
                                     .block = dim3(static_cast<unsigned>(streamed_threads<Stream::kTeam>(teams)))},
                           .shared_bytes = static_cast<std::size_t>(ring_bytes + outputs_of(problem.pairs))};
}

// Makes the launch of gate and up. `Stream` is a class of moe_streams.cuh, or another class with the same members.
template <class T, class Stream>
Result<StreamedLaunch<T>> gate_up_launch(const ExpertsProblem& p, const Matmul<T>& matmul,
                                         std::int64_t multiprocessors) {
  const Share share = share_of(p);
  const std::int64_t items = p.tokens * p.top_k * (p.intermediate / (kStreamedWeightRows / 2));
  return streamed_launch<T, true, Stream>(p, matmul, ring_of<Stream>(matmul.k, share), /*teams=*/1,
                                          std::min(items, share.blocks * multiprocessors),
                                          share.in_flight / share.blocks);
}

// Makes the launch of the kernel of down for blocks of one team.
template <class T, class Stream>
Result<StreamedLaunch<T>> block_launch(const ExpertsProblem& p, const Matmul<T>& matmul) {
  const Share share = share_of(p);
  return streamed_launch<T, false, Stream>(p, matmul, ring_of<Stream>(matmul.k, share), /*teams=*/1,
                                           p.hidden / kStreamedWeightRows, share.in_flight / share.blocks);
}

// Returns the number of teams, of one warp each, in a block of down. The result 0 means that a team is a whole block.
// `slots` is the number of stages with all columns of k that fit in shared memory. Each team needs such a stage. The
// ring is therefore so large that a multiprocessor runs only one block. The number of teams is a multiple of
// kCopyingWarps; down_launch() makes the number of slots a multiple of the number of teams. The result is 0 if fewer
// than kFewestTeams teams fit. It is also 0 if the blocks run in several rounds and the last round would leave too many
// multiprocessors idle. With quantised weights, two blocks of one team each then run on a multiprocessor, and are
// faster than teams of one warp.
inline int teams_of_down(const ExpertsProblem& p, int slots, std::int64_t multiprocessors) {
  constexpr int kFewestTeams = 8;
  constexpr double kLeastBusy = 0.8;
  const std::int64_t blocks = p.hidden / kStreamedWeightRows;
  const std::int64_t most = ceil_div(blocks, multiprocessors) * multiprocessors;
  constexpr int kCopying = kCopyingWarps<1>;
  static_assert(kMostTeams % kCopying == 0 && kFewestTeams % kCopying == 0);
  const int teams = std::min(kMostTeams, slots) / kCopying * kCopying;
  const bool busy = blocks <= multiprocessors || static_cast<double>(blocks) >= kLeastBusy * static_cast<double>(most);
  return busy && teams >= kFewestTeams ? teams : 0;
}

// Returns the kernel and the launch shape of the down projection. `Block` reads the weights if a team is a whole block,
// and `Warp` reads them if a team is a warp.
template <class T, class Block, class Warp>
Result<StreamedLaunch<T>> down_launch(const ExpertsProblem& p, const Matmul<T>& matmul, std::int64_t multiprocessors) {
  Ring ring = whole_rows<Warp>(matmul.k, kMostRingBytes);
  const int teams = teams_of_down(p, ring.slots, multiprocessors);
  if (teams == 0) return block_launch<T, Block>(p, matmul);
  ring.slots = ring.slots / teams * teams;
  return streamed_launch<T, false, Warp>(p, matmul, ring, teams, p.hidden / kStreamedWeightRows, share_of(p).in_flight);
}

template <class T>
std::unique_ptr<BoundOp> make_streamed(const StreamedLaunch<T>& gate_up, const StreamedLaunch<T>& down) {
  return make_cuda_op(
      "moe_experts, streamed",
      [=](cudaStream_t stream) {
        for (const StreamedLaunch<T>* l : {&gate_up, &down})
          launch_with(l->kernel, l->shape, l->shared_bytes, /*early=*/true, stream, l->problem);
      },
      /*choice=*/reinterpret_cast<std::uintptr_t>(down.kernel));  // it also determines the kernel of gate and up
}

// Returns whether there are few enough pairs (token, k), and the device has the features and the shared memory that the
// kernels need.
inline bool streamed_runs(const ExpertsProblem& p) {
  const Result<std::size_t> memory = most_shared_memory("moe_experts");
  return p.tokens * p.top_k <= kStreamedPairs && can_launch_early() && memory.ok() &&
         *memory >= static_cast<std::size_t>(kMostRingBytes + 2 * kStreamedPairs * kStreamedWeightRows);
}

}  // namespace tessera::cuda::moe
