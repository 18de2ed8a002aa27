#include "tessera/ops/sampling/top_logprobs.h"

#include "tessera/ops/cuda/cuda_launch.cuh"
#include "tessera/ops/cuda/cuda_op.h"
#include "tessera/ops/sampling/cuda_token_order.cuh"

namespace tessera {
namespace {

using namespace cuda;

constexpr int kThreads = static_cast<int>(kBlockThreads);
constexpr int kWarps = kThreads / kWarp;
constexpr int kPerThread = 16;  // the number of logits of a thread, held in registers
// The number of logits of a chunk. It does not depend on the batch, so that a row's sum is always added in the same
// order.
constexpr std::int64_t kChunk = kThreads * kPerThread;

// The result of a chunk, which is a part of a row.
struct ChunkTop {
  std::uint64_t keys[kMaxTopLogprobs];  // ascending, as in the order of the draw; kNoToken: no more tokens
  double sum;                           // Σ e^(x - the chunk's greatest logit)
};

struct TopLogprobs {
  const float* logits;          // [rows, vocab]
  const std::int32_t* targets;  // [rows]
  float* logprobs;              // [rows]
  std::int32_t* top_ids;        // [rows, kMaxTopLogprobs]
  float* top_logprobs;          // [rows, kMaxTopLogprobs]
  ChunkTop* chunks;             // [rows, chunks_per_row]
  std::int64_t vocab;
  std::int64_t chunks_per_row;
};

struct Scratch {
  std::uint64_t warps[2][kWarps];  // results of the warps; rounds alternate, so one barrier per round suffices
  std::uint64_t keys[kMaxTopLogprobs];
  double sums[kWarps];
};

// Writes the kMaxTopLogprobs smallest keys of the block to scratch.keys, in ascending order. `next(after)` returns the
// smallest of the calling thread's keys above `after`. Only the thread whose key was taken calls `next` again. No key
// is 0. All threads must call this function.
template <class Next>
__device__ void select_first(Scratch& scratch, const Next& next) {
  std::uint64_t mine = next(0);
  for (int i = 0; i < kMaxTopLogprobs; ++i) {
    std::uint64_t least = mine;
    for (int step = kWarp / 2; step > 0; step /= 2) {
      const std::uint64_t other = __shfl_xor_sync(0xffffffffu, least, step);
      least = other < least ? other : least;
    }
    std::uint64_t* const warps = scratch.warps[i % 2];
    if (threadIdx.x % kWarp == 0) warps[threadIdx.x / kWarp] = least;
    __syncthreads();
    for (int w = 0; w < kWarps; ++w) least = warps[w] < least ? warps[w] : least;
    if (threadIdx.x == 0) scratch.keys[i] = least;
    if (mine == least && least != kNoToken) mine = next(least);
  }
  __syncthreads();
}

// Returns the sum of x over all threads of the block.
__device__ double block_sum(double x, Scratch& scratch) {
  for (int step = kWarp / 2; step > 0; step /= 2) x += __shfl_xor_sync(0xffffffffu, x, step);
  if (threadIdx.x % kWarp == 0) scratch.sums[threadIdx.x / kWarp] = x;
  __syncthreads();
  double sum = 0;
  for (const double warp : scratch.sums) sum += warp;
  return sum;
}

// Finds the tokens with the greatest logits of each chunk, and ChunkTop::sum. A block takes one chunk.
template <int N>
__global__ void __launch_bounds__(kThreads) top_of_chunks(const __grid_constant__ TopLogprobs t) {
  __shared__ Scratch scratch;
  const std::int64_t row = blockIdx.x / t.chunks_per_row;
  const std::int64_t begin = blockIdx.x % t.chunks_per_row * kChunk;
  const std::int64_t end = begin + kChunk < t.vocab ? begin + kChunk : t.vocab;
  std::uint64_t keys[kPerThread];
#pragma unroll
  for (int i = 0; i < kPerThread; ++i) keys[i] = kNoToken;
  using Batch = TokenBatch<N, kPerThread / N>;
  // The loop has at most one iteration, because a chunk is one batch.
  for_each_batch<N, kPerThread / N>(t.logits + row * t.vocab, begin, end, [&](const Batch& batch) {
#pragma unroll
    for (int i = 0; i < Batch::kSize; ++i) keys[i] = greatest_key(batch.logit(i), batch.id(i));
  });
  select_first(scratch, [&](std::uint64_t after) {
    std::uint64_t least = kNoToken;
#pragma unroll
    for (int i = 0; i < kPerThread; ++i) least = keys[i] > after && keys[i] < least ? keys[i] : least;
    return least;
  });

  const float greatest = key_logit(scratch.keys[0]);
  double sum = 0;
  if (isfinite(greatest)) {
#pragma unroll
    for (int i = 0; i < kPerThread; ++i)
      if (keys[i] != kNoToken) sum += static_cast<double>(expf(key_logit(keys[i]) - greatest));
  }
  sum = block_sum(sum, scratch);
  ChunkTop& out = t.chunks[blockIdx.x];
  if (threadIdx.x < kMaxTopLogprobs) out.keys[threadIdx.x] = scratch.keys[threadIdx.x];
  if (threadIdx.x == 0) out.sum = sum;
}

// Merges the results of a row's chunks. A block takes one row.
__global__ void __launch_bounds__(kThreads) top_of_rows(const __grid_constant__ TopLogprobs t) {
  __shared__ Scratch scratch;
  __shared__ float log_sum;
  const std::int64_t row = blockIdx.x;
  const ChunkTop* const chunks = t.chunks + row * t.chunks_per_row;
  select_first(scratch, [&](std::uint64_t after) {
    std::uint64_t least = kNoToken;
    for (std::int64_t c = threadIdx.x; c < t.chunks_per_row; c += kThreads) {
      // Keys ascend, so the first key above `after` is the chunk's least key above `after`.
      for (const std::uint64_t key : chunks[c].keys) {
        if (key <= after) continue;
        least = key < least ? key : least;
        break;
      }
    }
    return least;
  });

  const float greatest = key_logit(scratch.keys[0]);
  const bool distribution = isfinite(greatest);
  double sum = 0;
  for (std::int64_t c = threadIdx.x; distribution && c < t.chunks_per_row; c += kThreads) {
    const float of_chunk = key_logit(chunks[c].keys[0]);  // NaN if the chunk has no number
    if (isfinite(of_chunk)) sum += chunks[c].sum * exp(static_cast<double>(of_chunk) - static_cast<double>(greatest));
  }
  sum = block_sum(sum, scratch);
  if (threadIdx.x == 0) log_sum = static_cast<float>(log(sum));
  __syncthreads();
  // Subtracts `greatest` and log(sum) one after the other. If they were added first, rounding could lose the smaller
  // one.
  const auto logprob = [&](float logit) {
    return distribution && !isnan(logit) ? (logit - greatest) - log_sum : -INFINITY;
  };
  if (threadIdx.x < kMaxTopLogprobs) {
    const std::uint64_t key = scratch.keys[threadIdx.x];
    const std::int64_t at = row * kMaxTopLogprobs + threadIdx.x;
    t.top_ids[at] = key == kNoToken ? -1 : static_cast<std::int32_t>(static_cast<std::uint32_t>(key));
    t.top_logprobs[at] = logprob(key_logit(key));
  }
  if (threadIdx.x == 0) {
    const std::int64_t target = t.targets[row];
    t.logprobs[row] = target >= 0 && target < t.vocab ? logprob(t.logits[row * t.vocab + target]) : -INFINITY;
  }
}

std::int64_t chunks_of(const TensorView& logits) { return ceil_div(logits.cols(), kChunk); }

Result<std::size_t> workspace(const BindArgs& args) {
  return static_cast<std::size_t>(args.operands[0].rows() * chunks_of(args.operands[0])) * sizeof(ChunkTop);
}

Result<std::unique_ptr<BoundOp>> bind(const BindArgs& args) {
  const TensorView& logits = args.operands[0];
  const std::int64_t rows = logits.rows();
  const TopLogprobs t{.logits = logits.as<float>(),
                      .targets = args.operands[1].as<std::int32_t>(),
                      .logprobs = args.results[0].as<float>(),
                      .top_ids = args.results[1].as<std::int32_t>(),
                      .top_logprobs = args.results[2].as<float>(),
                      .chunks = reinterpret_cast<ChunkTop*>(args.workspace.raw()),
                      .vocab = logits.cols(),
                      .chunks_per_row = chunks_of(logits)};
  const auto of_chunks = t.vocab % kPackSize<float> == 0 ? top_of_chunks<kPackSize<float>> : top_of_chunks<1>;
  return make_cuda_op("top_logprobs", [=](cudaStream_t stream) {
    launch(of_chunks, flat_shape(rows * t.chunks_per_row * kBlockThreads), stream, t);
    launch(top_of_rows, flat_shape(rows * kBlockThreads), stream, t);
  });
}

}  // namespace

const KernelDef kTopLogprobsCuda{.op = "top_logprobs", .name = "cuda", .bind = bind, .workspace_bytes = workspace};

}  // namespace tessera
