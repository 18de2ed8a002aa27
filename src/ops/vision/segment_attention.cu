#include "tessera/ops/vision/segment_attention.h"

#include <algorithm>
#include <cmath>

#include "tessera/ops/cuda/cuda_op.h"
#include "tessera/ops/cuda/cuda_shared_memory.h"
#include "tessera/ops/cuda/online_softmax.cuh"
#include "tessera/ops/vision/segment_attention.cuh"

namespace tessera {
namespace {

using namespace cuda;
using segments::Problem;

constexpr int kPlainWarps = 4;

// Computes attention for float32, and for heads whose rows are not whole packs of 16 bytes. A warp computes one row of
// one head. Each lane has a key while scores are computed, and elements of the head while values are added.
template <class T>
__global__ void __launch_bounds__(kPlainWarps* kWarp) plain_segment_attention(const Problem p) {
  __shared__ float queries[kPlainWarps][kMaxSegmentHeadDim];
  constexpr int kHeld = static_cast<int>(kMaxSegmentHeadDim) / kWarp;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  const int row = static_cast<int>(blockIdx.x) * kPlainWarps + warp;
  const int head = static_cast<int>(blockIdx.y);
  if (row >= p.rows) return;
  const std::int64_t width = static_cast<std::int64_t>(p.heads) * p.dim;
  const T* const qkv = static_cast<const T*>(p.qkv) + head * p.dim;
  for (int i = lane; i < p.dim; i += kWarp) queries[warp][i] = to_float(qkv[row * 3 * width + i]) * p.scale;
  __syncwarp();

  const segments::Range range = segments::range_of(p, row);
  float out[kHeld] = {};
  OnlineSoftmax<BaseTwo> sums;
  for (int first = range.begin; first < range.end; first += kWarp) {
    const int keys = min(kWarp, range.end - first);
    float score = -INFINITY;
    if (lane < keys) {
      const T* const key = qkv + (first + lane) * 3 * width + width;
      score = 0;
      for (int i = 0; i < p.dim; ++i) score += queries[warp][i] * to_float(key[i]);
    }
    const float shrink = sums.raise(warp_max(fmaxf(sums.running_max, score)));
    const float weight = sums.weight(score);
    sums.sum += warp_sum(weight);
#pragma unroll
    for (int h = 0; h < kHeld; ++h) out[h] *= shrink;
    for (int k = 0; k < keys; ++k) {
      const float of_key = __shfl_sync(0xffffffffu, weight, k);
      const T* const value = qkv + (first + k) * 3 * width + 2 * width;
#pragma unroll
      for (int h = 0; h < kHeld; ++h)
        if (h * kWarp + lane < p.dim) out[h] += of_key * to_float(value[h * kWarp + lane]);
    }
  }
  T* const to = static_cast<T*>(p.out) + row * width + head * p.dim;
  const float inverse = sums.inverse();
#pragma unroll
  for (int h = 0; h < kHeld; ++h)
    if (h * kWarp + lane < p.dim) to[h * kWarp + lane] = from_float<T>(out[h] * inverse);
}

template <class T>
std::unique_ptr<BoundOp> make_plain(const Problem& p) {
  LaunchShape shape{.grid = dim3(static_cast<unsigned>(ceil_div(p.rows, kPlainWarps)), static_cast<unsigned>(p.heads)),
                    .block = dim3(kPlainWarps * kWarp)};
  return make_cuda_op("segment_attention",
                      [=](cudaStream_t stream) { launch(plain_segment_attention<T>, shape, stream, p); });
}

template <class S>
std::int64_t blocks_of(const Problem& p) {
  return ceil_div(p.rows, S::kRows) * p.heads;
}

// Says how many of the kernel's blocks a multiprocessor should run at once.
enum class Together { kOne, kAsManyAsFit };

template <class T, class S, int kDim>
Result<std::unique_ptr<BoundOp>> make_shaped(const Problem& p, Together together) {
  constexpr std::size_t kBytes = segments::kSharedBytes<S, kDim>;
  const std::size_t most = TRY(most_shared_memory("segment_attention"));
  // If blocks start while an earlier kernel still runs, only a few multiprocessors have room, and several blocks could
  // go to one of them. With kOne, each block requests more than half of a multiprocessor's shared memory, so that no
  // two blocks share a multiprocessor.
  const std::size_t bytes = together == Together::kOne ? std::max(kBytes, most / 2 + 1) : kBytes;
  // The limit that is set here holds for all launches of this kernel. It is the device's maximum, because launches
  // for other sizes may take more memory.
  const auto kernel = segments::segment_attention<T, S, kDim>;
  TRY(allow_shared_memory(reinterpret_cast<const void*>(kernel), std::max(bytes, most), "segment_attention"));
  const LaunchShape shape{
      .grid = dim3(static_cast<unsigned>(ceil_div(p.rows, S::kRows)), static_cast<unsigned>(p.heads)),
      .block = dim3(S::kThreads)};
  return make_cuda_op("segment_attention", [=](cudaStream_t stream) {
    launch_with(segments::segment_attention<T, S, kDim>, shape, bytes, can_launch_early(), stream, p);
  });
}

template <class T, int kDim>
Result<std::unique_ptr<BoundOp>> make_tiled(const Problem& p, std::int64_t multiprocessors) {
  using segments::Rows32;
  using segments::Rows64;
  constexpr std::int64_t kRows64Together =
      kDim <= 80 ? 2 : 1;  // blocks of Rows64 for which a multiprocessor has registers
  const std::size_t most = TRY(most_shared_memory("segment_attention"));
  if (blocks_of<Rows32>(p) <= multiprocessors && segments::kSharedBytes<Rows32, kDim> <= most)
    return make_shaped<T, Rows32, kDim>(p, Together::kOne);
  if (blocks_of<Rows64>(p) <= multiprocessors) return make_shaped<T, Rows64, kDim>(p, Together::kOne);
  if (blocks_of<Rows64>(p) <= kRows64Together * multiprocessors)
    return make_shaped<T, Rows64, kDim>(p, Together::kAsManyAsFit);
  return make_shaped<T, segments::ManyBlocks, kDim>(p, Together::kAsManyAsFit);
}

Result<std::unique_ptr<BoundOp>> bind_segment_attention(const BindArgs& args) {
  const std::int64_t heads = args.node.attribute_or("heads", std::int64_t{0});
  const std::int64_t dim = args.results[0].dim(1) / heads;
  // In a deterministic forward the shape of blocks must not depend on the number of rows. With 0 multiprocessors
  // make_tiled() chooses ManyBlocks for any number of rows.
  const std::int64_t multiprocessors =
      args.context.limits.deterministic ? 0 : std::int64_t{args.device.properties().threads};
  constexpr double kLog2E = 1.4426950408889634;
  const Problem p{.qkv = args.operands[0].data.raw(),
                  .ranges = args.operands[1].as<std::int32_t>(),
                  .out = args.results[0].data.raw(),
                  .rows = static_cast<int>(args.operands[0].dim(0)),
                  .heads = static_cast<int>(heads),
                  .dim = static_cast<int>(dim),
                  .scale = static_cast<float>(kLog2E / std::sqrt(static_cast<double>(dim)))};
  return dispatch_dtype(args.operands[0].dtype, "segment_attention",
                        [&]<class T>() -> Result<std::unique_ptr<BoundOp>> {
                          if constexpr (sizeof(T) == 2) {
                            if (dim % 8 == 0) {
                              if (dim <= 64) return make_tiled<T, 64>(p, multiprocessors);
                              if (dim <= 80) return make_tiled<T, 80>(p, multiprocessors);
                              return make_tiled<T, 128>(p, multiprocessors);
                            }
                          }
                          return make_plain<T>(p);
                        });
}

}  // namespace

const KernelDef kSegmentAttentionCuda{.op = "segment_attention", .name = "cuda", .bind = bind_segment_attention};

}  // namespace tessera
