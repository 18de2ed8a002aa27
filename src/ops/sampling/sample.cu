#include "tessera/ops/sampling/sample.h"

#include <algorithm>
#include <bit>
#include <string>

#include "tessera/device/cuda/cuda_device.h"
#include "tessera/ops/cuda/cuda_launch.cuh"
#include "tessera/ops/cuda/cuda_op.h"
#include "tessera/ops/sampling/cuda_token_search.cuh"
#include "tessera/ops/sampling/philox.h"

namespace tessera {
namespace {

using namespace cuda;

// Rows are cut into chunks. A block takes one chunk, so that a few long rows still give work to the whole device.
struct Chunks {
  std::int64_t count;   // the number of chunks of a row
  std::int64_t length;  // the number of logits of a chunk
};

Chunks chunks_of(std::int64_t rows, std::int64_t vocab, Device& device) {
  constexpr std::int64_t kUnit = kBlockThreads * kPackSize<float>;
  constexpr std::int64_t kMostChunks = 128;
  const std::int64_t blocks = 4 * std::max(1, device.properties().threads);
  const std::int64_t wanted = std::clamp<std::int64_t>(blocks / std::max<std::int64_t>(rows, 1), 1, kMostChunks);
  const std::int64_t length = ceil_div(ceil_div(vocab, wanted), kUnit) * kUnit;
  return {ceil_div(vocab, length), length};
}

// Finds the greatest logit of each chunk, as a key. If `bins` is not null, the kernel clears the bins for the next
// launch. The shapes are x [rows, vocab], best [rows, chunks.count] and bins [rows].
template <int N>
__global__ void best_of_chunks(const float* x, std::int64_t vocab, Chunks chunks, std::uint64_t* best, RowBins* bins) {
  __shared__ std::uint64_t warps[kBlockThreads / kWarp];
  const std::int64_t row = blockIdx.x / static_cast<unsigned>(chunks.count);
  const std::int64_t chunk = blockIdx.x % static_cast<unsigned>(chunks.count);
  if (bins != nullptr && chunk == 0) bins[row].clear();
  const std::int64_t begin = chunk * chunks.length;
  const std::int64_t end = begin + chunks.length < vocab ? begin + chunks.length : vocab;
  std::uint64_t key = kNoToken;
  using Batch = TokenBatch<N, 4>;
  for_each_batch<N, 4>(x + row * vocab, begin, end, [&](const Batch& batch) {
#pragma unroll
    for (int i = 0; i < Batch::kSize; ++i) {
      const std::uint64_t here = greatest_key(batch.logit(i), batch.id(i));
      key = here < key ? here : key;
    }
  });
  const auto least_of_warp = [&] {
    for (int step = kWarp / 2; step > 0; step /= 2) {
      const std::uint64_t other = __shfl_xor_sync(0xffffffffu, key, step);
      key = other < key ? other : key;
    }
  };
  least_of_warp();
  if (threadIdx.x % kWarp == 0) warps[threadIdx.x / kWarp] = key;
  __syncthreads();
  if (threadIdx.x >= kWarp) return;
  key = threadIdx.x < kBlockThreads / kWarp ? warps[threadIdx.x] : kNoToken;
  least_of_warp();
  if (threadIdx.x == 0) best[blockIdx.x] = key;
}

// Returns the key of the row's greatest logit, in every lane of a warp. `best` has the best key of each of the row's
// `chunks` chunks.
__device__ std::uint64_t best_of_row(const std::uint64_t* best, std::int64_t chunks) {
  std::uint64_t key = kNoToken;
  for (std::int64_t c = threadIdx.x % kWarp; c < chunks; c += kWarp) key = best[c] < key ? best[c] : key;
  for (int step = kWarp / 2; step > 0; step /= 2) {
    const std::uint64_t other = __shfl_xor_sync(0xffffffffu, key, step);
    key = other < key ? other : key;
  }
  return key;
}

__device__ std::int32_t token_of(std::uint64_t key) {
  return key == kNoToken ? 0 : static_cast<std::int32_t>(static_cast<std::uint32_t>(key));
}

// Writes the id of the token with each row's greatest logit. A warp takes one row.
__global__ void argmax_rows(const std::uint64_t* best, std::int64_t chunks, std::int64_t rows, std::int32_t* out) {
  const std::int64_t row = flat_item() / kWarp;
  if (row >= rows) return;
  const std::uint64_t key = best_of_row(best + row * chunks, chunks);
  if (threadIdx.x % kWarp == 0) out[row] = token_of(key);
}

Result<std::size_t> argmax_workspace(const BindArgs& args) {
  const std::int64_t rows = args.operands[0].rows();
  return static_cast<std::size_t>(rows * chunks_of(rows, args.operands[0].cols(), args.device).count) *
         sizeof(std::uint64_t);
}

Result<std::unique_ptr<BoundOp>> bind_argmax(const BindArgs& args) {
  const float* x = args.operands[0].as<float>();
  std::int32_t* out = args.results[0].as<std::int32_t>();
  const std::int64_t rows = args.operands[0].rows();
  const std::int64_t vocab = args.operands[0].cols();
  const Chunks chunks = chunks_of(rows, vocab, args.device);
  std::uint64_t* best = reinterpret_cast<std::uint64_t*>(args.workspace.raw());
  const auto kernel = vocab % kPackSize<float> == 0 ? best_of_chunks<kPackSize<float>> : best_of_chunks<1>;
  const auto launches = [=](cudaStream_t stream) {
    launch(kernel, flat_shape(rows * chunks.count * kBlockThreads), stream, x, vocab, chunks, best,
           static_cast<RowBins*>(nullptr));
    launch(argmax_rows, flat_shape(rows * kWarp), stream, best, chunks.count, rows, out);
  };
  return make_cuda_op("argmax", launches, reinterpret_cast<std::uintptr_t>(kernel));
}

struct Sample {
  const float* logits;       // [rows, vocab]
  const float* temperature;  // [rows], as all members down to `out` are
  const std::int32_t* top_k;
  const float* top_p;
  const float* min_p;
  const std::int64_t* seed;
  const std::int32_t* choice;
  const std::int32_t* position;
  std::int32_t* out;
  std::uint64_t* best;  // [rows, chunks.count]
  RowBins* bins;        // [rows]
  std::int64_t rows;
  std::int64_t vocab;
  Chunks chunks;
  unsigned row_blocks;  // number of blocks in the cluster that draws a row

  // Returns the arguments for the rows [row, row + count), with the same scratch.
  Sample from(std::int64_t row, std::int64_t count) const {
    Sample part = *this;
    part.logits += row * vocab;
    part.temperature += row;
    part.top_k += row;
    part.top_p += row;
    part.min_p += row;
    part.seed += row;
    part.choice += row;
    part.position += row;
    part.out += row;
    part.rows = count;
    return part;
  }
};

// Returns whether the row's token is drawn at random. In all other rows it is the argmax.
__device__ bool is_drawn(const RowScale& scale) { return scale.temperature > 0.0f && isfinite(scale.greatest); }

// Fills the bins of the rows whose token is drawn. A block takes one chunk of a row.
template <int N>
__global__ void fill_bins(const __grid_constant__ Sample s) {
  __shared__ Histogram<kNatBins> sums;
  __shared__ unsigned first[kNatBins];
  __shared__ unsigned last[kNatBins];
  const std::int64_t row = blockIdx.x / static_cast<unsigned>(s.chunks.count);
  const float temperature = s.temperature[row];
  if (!(temperature > 0.0f)) return;
  const RowScale scale{key_logit(best_of_row(s.best + row * s.chunks.count, s.chunks.count)), temperature};
  if (!is_drawn(scale)) return;

  sums.clear();
  for (int b = static_cast<int>(threadIdx.x); b < kNatBins; b += static_cast<int>(blockDim.x)) {
    first[b] = ~0u;
    last[b] = 0;
  }
  __syncthreads();
  const std::int64_t begin = blockIdx.x % static_cast<unsigned>(s.chunks.count) * s.chunks.length;
  const std::int64_t end = begin + s.chunks.length < s.vocab ? begin + s.chunks.length : s.vocab;
  // Logits below this bound have RowScale::nats() below -kReach, however the division rounds. They are skipped without
  // a division.
  const float least = scale.greatest - 1.03f * kReach * temperature;
  using Batch = TokenBatch<N, 1>;
  for_each_batch<N, 1>(s.logits + row * s.vocab, begin, end, [&](const Batch& batch) {
#pragma unroll
    for (int i = 0; i < Batch::kSize; ++i) {
      if (!(batch.logit(i) >= least)) continue;
      const float nats = scale.nats(batch.logit(i));
      if (!(nats > -kReach)) continue;
      const int bin = static_cast<int>(-nats * kBinsPerNat);
      const unsigned key = static_cast<unsigned>(token_key(batch.logit(i), batch.id(i)) >> kIdBits);
      sums.add(bin, token_weight(nats), static_cast<int>(batch.id(i)));
      atomicMin(&first[bin], key);
      atomicMax(&last[bin], key);
    }
  });
  __syncthreads();

  RowBins& bins = s.bins[row];
  for (int b = static_cast<int>(threadIdx.x); b < kNatBins; b += static_cast<int>(blockDim.x)) {
    const Tally tally = sums.at(b);
    if (tally.count == 0) continue;
    atomicAdd(&bins.weight[b], static_cast<unsigned long long>(tally.weight));
    atomicAdd(&bins.count[b], static_cast<unsigned>(tally.count));
    atomicMin(&bins.first[b], first[b]);
    atomicMax(&bins.last[b], last[b]);
    atomicMax(&bins.token[b], sums.token[b]);
  }
}

// The steps of a draw, in order.
enum DrawStep { kTopK, kTopP, kMinP, kToken, kDrawSteps };

struct Need {
  std::uint64_t amount;  // the number or weight that the first tokens must reach, or 0 to skip the step
  Measure measure;
};

// Returns the number or weight that the first tokens must reach in this step. `kept` has the number and weight of the
// tokens that earlier steps have kept.
__device__ Need need_of(int step, const Sample& s, std::int64_t row, const Tally& kept) {
  if (step == kTopK) {
    const std::int32_t top_k = s.top_k[row];
    const bool cuts = top_k > 0 && static_cast<std::uint64_t>(top_k) < kept.count;
    return {cuts ? static_cast<std::uint64_t>(top_k) : 0, Measure::kCount};
  }
  if (step == kTopP) {
    const float top_p = s.top_p[row];
    if (!(top_p < 1.0f)) return {0, Measure::kWeight};
    const double share = ceil(static_cast<double>(top_p) * static_cast<double>(kept.weight));
    return {share > 1.0 ? min(kept.weight, static_cast<std::uint64_t>(share)) : 1, Measure::kWeight};
  }
  const std::uint64_t bits = sampling_bits(s.seed[row], s.choice[row], s.position[row]);
  return {__umul64hi(bits, kept.weight) + 1, Measure::kWeight};
}

// min_p keeps the tokens whose RowScale::nats() is at least the returned bound. If the bound is -kReach or less, min_p
// keeps all tokens.
__device__ float nats_of_min_p(float min_p) {
  return min_p > 0.0f ? fminf(static_cast<float>(log(static_cast<double>(min_p))), 0.0f) : -INFINITY;
}

// Chooses the token of each row. A cluster of blocks processes one row. The token is the argmax, or it is drawn from
// the tokens that top_k, top_p and min_p keep.
template <int N>
__global__ void __launch_bounds__(kSearchThreads) draw(const __grid_constant__ Sample s) {
  __shared__ SearchScratch scratch;
  const std::int64_t row = blockIdx.x / s.row_blocks;
  const bool writes = threadIdx.x == 0 && blockIdx.x % s.row_blocks == 0;
  const std::uint64_t best = best_of_row(s.best + row * s.chunks.count, s.chunks.count);
  const RowScale scale{key_logit(best), s.temperature[row]};
  if (!is_drawn(scale)) {
    if (writes) s.out[row] = token_of(best);
    return;
  }
  const RowBins& bins = s.bins[row];
  Bin bin{{0, 0}, -1};
  if (threadIdx.x < kNatBins) bin = {{bins.count[threadIdx.x], bins.weight[threadIdx.x]}, bins.token[threadIdx.x]};
  const SearchRow search_row{s.logits + row * s.vocab, s.vocab, scale, bins, bin};

  Tally kept = block_prefix(bin.tally, scratch).total;
  __syncthreads();  // all threads have read the scratch, which is reused below
  int token = 0;
#pragma unroll 1  // keeps one copy of the search in the code, for the instruction cache
  for (int step = kTopK; step < kDrawSteps; ++step) {
    if (step == kMinP) {
      const float nats = nats_of_min_p(s.min_p[row]);
      if (nats > -kReach) kept.weight = min(kept.weight, weight_from<N>(search_row, nats, scratch));
      continue;
    }
    const Need need = need_of(step, s, row, kept);
    if (need.amount == 0) continue;
    const FirstTokens prefix = search<N>(search_row, need.amount, need.measure, scratch);
    kept.weight = prefix.weight;
    token = prefix.last;
  }
  if (writes) s.out[row] = token;
}

// The number of rows that have scratch at the same time. More rows are processed in groups of this size.
constexpr std::int64_t kRowsAtOnce = 512;

// Layout of the scratch: the chunks' keys in the first `best_bytes` bytes, then the bins.
struct SampleScratch {
  Chunks chunks;
  std::size_t best_bytes;
  std::size_t bytes;
};

SampleScratch sample_scratch(const BindArgs& args) {
  const std::int64_t rows = std::min(args.operands[0].rows(), kRowsAtOnce);
  const Chunks chunks = chunks_of(rows, args.operands[0].cols(), args.device);
  const std::size_t best_bytes = static_cast<std::size_t>(rows * chunks.count) * sizeof(std::uint64_t);
  return {chunks, best_bytes, best_bytes + static_cast<std::size_t>(rows) * sizeof(RowBins)};
}

Result<std::size_t> sample_workspace(const BindArgs& args) { return sample_scratch(args).bytes; }

// Returns the number of blocks that share a row. It may be above 1 if there are few rows. It is always 1 if the device
// runs code that was compiled for devices without clusters.
template <int N>
Result<unsigned> row_blocks_of(std::int64_t rows, Device& device) {
  TRY(static_cast<const CudaDevice&>(device).make_current());
  cudaFuncAttributes code{};
  if (const cudaError_t error = cudaFuncGetAttributes(&code, draw<N>); error != cudaSuccess) {
    static_cast<void>(cudaGetLastError());  // clears the error, which the next launch would report as its own
    return internal_error(std::string("sample: cudaFuncGetAttributes: ") + cudaGetErrorString(error));
  }
  if (code.ptxVersion < 90) return 1u;
  const std::int64_t wanted = device.properties().threads / std::max<std::int64_t>(rows, 1);
  return static_cast<unsigned>(
      std::bit_floor(static_cast<std::uint64_t>(std::clamp<std::int64_t>(wanted, 1, kMostRowBlocks))));
}

template <int N>
Result<std::unique_ptr<BoundOp>> make_sample(Sample s, Device& device) {
  s.row_blocks = TRY(row_blocks_of<N>(std::min(s.rows, kRowsAtOnce), device));
  return make_cuda_op("sample", [s](cudaStream_t stream) {
    for (std::int64_t row = 0; row < s.rows; row += kRowsAtOnce) {
      const Sample part = s.from(row, std::min(kRowsAtOnce, s.rows - row));
      const LaunchShape chunks = flat_shape(part.rows * part.chunks.count * kBlockThreads);
      const LaunchShape rows{.grid = dim3(static_cast<unsigned>(part.rows) * part.row_blocks),
                             .block = dim3(kSearchThreads),
                             .cluster = part.row_blocks};
      launch(best_of_chunks<N>, chunks, stream, part.logits, part.vocab, part.chunks, part.best, part.bins);
      launch(fill_bins<N>, chunks, stream, part);
      launch(draw<N>, rows, stream, part);
    }
  });
}

Result<std::unique_ptr<BoundOp>> bind_sample(const BindArgs& args) {
  const TensorView& logits = args.operands[0];
  const SampleScratch scratch = sample_scratch(args);
  const Sample s{.logits = logits.as<float>(),
                 .temperature = args.operands[1].as<float>(),
                 .top_k = args.operands[2].as<std::int32_t>(),
                 .top_p = args.operands[3].as<float>(),
                 .min_p = args.operands[4].as<float>(),
                 .seed = args.operands[5].as<std::int64_t>(),
                 .choice = args.operands[6].as<std::int32_t>(),
                 .position = args.operands[7].as<std::int32_t>(),
                 .out = args.results[0].as<std::int32_t>(),
                 .best = reinterpret_cast<std::uint64_t*>(args.workspace.raw()),
                 .bins = reinterpret_cast<RowBins*>(args.workspace.raw() + scratch.best_bytes),
                 .rows = logits.rows(),
                 .vocab = logits.cols(),
                 .chunks = scratch.chunks,
                 .row_blocks = 1};
  if (s.vocab % kPackSize<float> == 0) return make_sample<kPackSize<float>>(s, args.device);
  return make_sample<1>(s, args.device);
}

}  // namespace

const KernelDef kArgmaxCuda{.op = "argmax", .name = "cuda", .bind = bind_argmax, .workspace_bytes = argmax_workspace};

const KernelDef kSampleCuda{.op = "sample", .name = "cuda", .bind = bind_sample, .workspace_bytes = sample_workspace};

}  // namespace tessera
