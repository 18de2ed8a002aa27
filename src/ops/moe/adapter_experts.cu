#include "tessera/ops/moe/adapter_experts.h"

#include "tessera/ops/cuda/cuda_launch.cuh"
#include "tessera/ops/cuda/cuda_math.cuh"
#include "tessera/ops/cuda/cuda_op.h"
#include "tessera/ops/moe/moe_experts.cuh"

namespace tessera {
namespace {

using namespace cuda;

// The largest sizes that the kernel supports. Each block has arrays of these sizes in shared memory.
constexpr std::int64_t kMostHidden = 7168;
constexpr std::int64_t kMostIntermediate = 3072;
constexpr std::int32_t kMostRank = 512;

// Computes one row of y. The row's adapter changes at least one of the row's experts. The threads of a block share the
// work.
template <class T>
struct RowAgain {
  const AdapterExpertsArgs& in;
  std::int32_t slot;
  float* t;  // [kMostRank], in shared memory: the products of A's rows with x

  __device__ std::int32_t rank_of(const AdapterStack& stack, std::int64_t module) const {
    return stack.ranks[slot * stack.modules + module];
  }

  // Returns the dot product of x [n] and w [n] to every lane. The lanes of a warp share the products. X is float or T.
  template <class X>
  __device__ float dot(const X* x, const T* w, std::int64_t n) const {
    float sum = 0;
    for (std::int64_t i = threadIdx.x % kWarp; i < n; i += kWarp) sum = fmaf(to_float(x[i]), to_float(w[i]), sum);
    return warp_sum(sum);
  }

  // Computes (w + scale · Bᵀ · A) · x. A warp computes one row at a time, and its lane 0 calls take(row, value).
  template <class X, class Take>
  __device__ void multiply(const X* x, const T* w, std::int64_t rows, const AdapterStack& stack, std::int64_t module,
                           const Take& take) const {
    const std::int64_t warps = blockDim.x / kWarp;
    const std::int64_t warp = threadIdx.x / kWarp;
    const bool first = threadIdx.x % kWarp == 0;
    const std::int64_t n = stack.columns;
    const std::int32_t rank = rank_of(stack, module);
    const T* const a = static_cast<const T*>(stack.a) + (slot * stack.modules + module) * in.rank * n;
    __syncthreads();  // x is complete, and no thread still reads t
    for (std::int64_t r = warp; r < rank; r += warps) {
      const float sum = dot(x, a + r * n, n);
      if (first) t[r] = sum;
    }
    __syncthreads();
    const T* const b = static_cast<const T*>(stack.b) + std::int64_t{slot} * in.rank * stack.width + module * rows;
    const float scale = stack.scales[slot * stack.modules + module];
    for (std::int64_t row = warp; row < rows; row += warps) {
      const float base = dot(x, w + row * n, n);
      float change = 0;
      for (std::int32_t r = threadIdx.x % kWarp; r < rank; r += kWarp)
        change = fmaf(t[r], to_float(b[r * stack.width + row]), change);
      change = warp_sum(change);
      if (first) take(row, rounded<T>(base + scale * change));
    }
  }
};

// Each block computes one row of y. In each matrix product, a warp takes one row of the matrix at a time.
template <class T>
__global__ void adapter_experts(const AdapterExpertsArgs in) {
  __shared__ float sums[kMostHidden];
  __shared__ float activated[kMostIntermediate];
  __shared__ float t[kMostRank];
  let_next_begin();
  wait_for_previous();
  const std::int64_t row = blockIdx.x;
  const std::int32_t slot = in.slots[row];
  if (slot < 0 || slot >= in.num_slots) return;
  const RowAgain<T> again{in, slot, t};
  bool changes = false;
  for (std::int64_t k = 0; k < in.top_k; ++k) {
    const std::int64_t e = in.ids[row * in.top_k + k];
    if (e < 0 || e >= in.experts) continue;
    changes |= again.rank_of(in.gate_up_change, 2 * e) > 0 || again.rank_of(in.gate_up_change, 2 * e + 1) > 0 ||
               again.rank_of(in.down_change, e) > 0;
  }
  if (!changes) return;
  for (std::int64_t i = threadIdx.x; i < in.hidden; i += blockDim.x) sums[i] = 0;
  const T* const x = static_cast<const T*>(in.x) + row * in.hidden;
  const std::int64_t size = in.intermediate;
  for (std::int64_t k = 0; k < in.top_k; ++k) {
    const std::int64_t e = in.ids[row * in.top_k + k];
    if (e < 0 || e >= in.experts) continue;
    const float weight = in.weights[row * in.top_k + k];
    const T* const gate = static_cast<const T*>(in.gate_up) + 2 * e * size * in.hidden;
    again.multiply(x, gate, size, in.gate_up_change, 2 * e, [&](std::int64_t i, float value) { activated[i] = value; });
    // The thread that has written a row's gate also reads it here, so no barrier is needed.
    const GatedActivation kind = in.gelu ? GatedActivation::kGeglu : GatedActivation::kSwiglu;
    again.multiply(x, gate + size * in.hidden, size, in.gate_up_change, 2 * e + 1, [&](std::int64_t i, float value) {
      activated[i] = rounded<T>(moe::activate<T>(activated[i], value, kind, 0.0F));
    });
    again.multiply(activated, static_cast<const T*>(in.down) + e * in.hidden * size, in.hidden, in.down_change, e,
                   [&](std::int64_t i, float value) { sums[i] = fmaf(weight, value, sums[i]); });
  }
  __syncthreads();
  T* const y = static_cast<T*>(in.y) + row * in.hidden;
  for (std::int64_t i = threadIdx.x; i < in.hidden; i += blockDim.x) y[i] = from_float<T>(sums[i]);
}

Result<std::unique_ptr<BoundOp>> bind_experts(const BindArgs& args) {
  const AdapterExpertsArgs in = adapter_experts_args(args);
  TRY(check_sizes(in, {.hidden = kMostHidden, .intermediate = kMostIntermediate, .rank = kMostRank}));
  return cuda::dispatch_dtype(
      args.operands[0].dtype, "adapter_experts", [&]<class T>() -> Result<std::unique_ptr<BoundOp>> {
        const LaunchShape shape{.grid = dim3(static_cast<unsigned>(in.rows)), .block = dim3(kBlockThreads)};
        return make_cuda_op("adapter_experts",
                            [=](cudaStream_t stream) { launch_early(adapter_experts<T>, shape, stream, in); });
      });
}

}  // namespace

const KernelDef kAdapterExpertsCuda{.op = "adapter_experts", .name = "cuda", .bind = bind_experts};

}  // namespace tessera
