// Computes moe_route on CUDA. Each warp processes a row of logits. Lane l holds the experts l, l + 32, … as keys in
// registers. To pick the best expert, the warp needs two reduction instructions.
//
// A row has E logits and top_k results, so the rows of a step are at most a few hundred KiB, which are read quickly.
// The kernel's time is therefore the time of the launch and of the top_k picks, which follow each other and take about
// 60 cycles each. Rows share nothing, so a row's bits do not depend on other rows.
#include "tessera/ops/cuda/cuda_launch.cuh"
#include "tessera/ops/cuda/cuda_math.cuh"
#include "tessera/ops/cuda/cuda_op.h"
#include "tessera/ops/cuda/online_softmax.cuh"
#include "tessera/ops/moe/moe_route.h"

namespace tessera {
namespace cuda {
namespace {

constexpr int kWarps = 4;  // warps of a block; each warp takes one row
constexpr unsigned kAllLanes = 0xffffffffu;
constexpr unsigned kTaken = 0;  // the key of a taken expert or group, below the keys of all numbers

// Maps a number to a key. Keys have the same order as the numbers, and NaN maps to the key of the lowest number.
__device__ unsigned key_of(float x) {
  const unsigned bits = __float_as_uint(isnan(x) ? -INFINITY : x + 0.0f);  // -0 becomes 0
  return (bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u;
}

// Returns the index of the greatest key, and marks the key as taken. Among equal keys the lowest index wins. The key
// with index i is keys[i / 32] of lane i % 32. Precondition: at least one key is not taken.
template <int kPerLane>
__device__ int take_greatest(unsigned (&keys)[kPerLane], int lane) {
  unsigned greatest = keys[0];
#pragma unroll
  for (int i = 1; i < kPerLane; ++i) greatest = max(greatest, keys[i]);
  greatest = __reduce_max_sync(kAllLanes, greatest);
  unsigned index = ~0u;
#pragma unroll
  for (int i = kPerLane - 1; i >= 0; --i)
    if (keys[i] == greatest) index = static_cast<unsigned>(i * kWarp + lane);
  index = __reduce_min_sync(kAllLanes, index);
#pragma unroll
  for (int i = 0; i < kPerLane; ++i)
    if (index == static_cast<unsigned>(i * kWarp + lane)) keys[i] = kTaken;
  return static_cast<int>(index);
}

// Does the same as take_greatest() above, for keys in shared memory.
__device__ int take_greatest(unsigned* keys, int count, int lane) {
  unsigned greatest = kTaken;
  unsigned index = ~0u;
  for (int i = lane; i < count; i += kWarp)
    if (keys[i] > greatest) greatest = keys[i], index = static_cast<unsigned>(i);
  const unsigned of_all = __reduce_max_sync(kAllLanes, greatest);
  index = __reduce_min_sync(kAllLanes, greatest == of_all ? index : ~0u);
  if (lane == 0) keys[index] = kTaken;
  __syncwarp();
  return static_cast<int>(index);
}

// Returns the number by which an expert is chosen: its score plus its correction, or -INFINITY if this sum is NaN.
__device__ float choice_of(const RouteProblem& p, const float* scores, int expert) {
  const float c = p.correction != nullptr ? scores[expert] + p.correction[expert] : scores[expert];
  return isnan(c) ? -INFINITY : c;
}

// Marks the experts of all groups except the best ones as taken. `groups` is shared memory with one element for each
// group. The element is the group's key, and becomes kTaken if the group is one of the best.
template <int kPerLane>
__device__ void exclude_groups(const RouteProblem& p, const float* scores, unsigned* groups, unsigned (&keys)[kPerLane],
                               int lane) {
  const int count = static_cast<int>(p.groups);
  const int size = static_cast<int>(p.experts) / count;
  for (int g = lane; g < count; g += kWarp) {
    float first = -INFINITY;
    float second = -INFINITY;
    for (int e = g * size; e < (g + 1) * size; ++e) {
      const float c = choice_of(p, scores, e);
      second = fmaxf(second, fminf(first, c));
      first = fmaxf(first, c);
    }
    groups[g] = key_of(p.best_two ? first + second : first);
  }
  __syncwarp();
  for (std::int64_t i = 0; i < p.groups_per_token; ++i) (void)take_greatest(groups, count, lane);
#pragma unroll
  for (int i = 0; i < kPerLane; ++i) {
    const int e = i * kWarp + lane;
    if (e < p.experts && groups[e / size] != kTaken) keys[i] = kTaken;
  }
}

// Computes the scores of one row in shared memory. The scores are the softmax or the sigmoid of the logits.
template <class T, int kPerLane>
__device__ void score_row(const RouteProblem& p, const T* logits, float* scores, int lane) {
  const int experts = static_cast<int>(p.experts);
  float value[kPerLane];
  float greatest = -INFINITY;
#pragma unroll
  for (int i = 0; i < kPerLane; ++i) {
    const int e = i * kWarp + lane;
    value[i] = e < experts ? to_float(logits[e]) : -INFINITY;
    greatest = fmaxf(greatest, value[i]);
  }
  if (p.sigmoid) {
#pragma unroll
    for (int i = 0; i < kPerLane; ++i) value[i] = 1.0f / (1.0f + expf(-value[i]));
  } else {
    greatest = warp_max(greatest);
    float sum = 0;
#pragma unroll
    for (int i = 0; i < kPerLane; ++i) {
      value[i] = expf(value[i] - greatest);
      sum += value[i];
    }
    sum = warp_sum(sum);
#pragma unroll
    for (int i = 0; i < kPerLane; ++i) value[i] /= sum;
  }
#pragma unroll
  for (int i = 0; i < kPerLane; ++i) scores[i * kWarp + lane] = value[i];
  __syncwarp();
}

// Routes rows, one for each warp. kPerLane is the number of experts of a lane. Precondition:
// 32 · kPerLane >= p.experts.
template <class T, int kPerLane>
__global__ void __launch_bounds__(kWarps* kWarp) route(const T* logits, const RouteProblem p) {
  __shared__ float all_scores[kWarps][kPerLane * kWarp];
  __shared__ unsigned all_groups[kWarps][kPerLane * kWarp];
  let_next_begin();
  wait_for_previous();
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  const std::int64_t row = static_cast<std::int64_t>(blockIdx.x) * kWarps + warp;
  if (row >= p.tokens) return;
  const int top_k = static_cast<int>(p.top_k);
  std::int32_t* ids = p.ids + row * top_k;
  float* weights = p.weights + row * top_k;
  if (p.slots[row] == 0) {
    for (int k = lane; k < top_k; k += kWarp) ids[k] = -1, weights[k] = 0.0f;
    return;
  }

  float* scores = all_scores[warp];
  score_row<T, kPerLane>(p, logits + row * p.experts, scores, lane);
  unsigned keys[kPerLane];
#pragma unroll
  for (int i = 0; i < kPerLane; ++i) {
    const int e = i * kWarp + lane;
    keys[i] = e < p.experts ? key_of(choice_of(p, scores, e)) : kTaken;
  }
  if (p.groups_per_token < p.groups) exclude_groups(p, scores, all_groups[warp], keys, lane);

  // Lane k keeps the results k and k + 32. Two results for each lane suffice, because top_k is at most 64.
  int my_id[2] = {};
  float my_weight[2] = {};
  float sum = 0;
  for (int k = 0; k < top_k; ++k) {
    const int expert = take_greatest(keys, lane);
    const float weight = scores[expert];
    sum += weight;
    if (k == lane) my_id[0] = expert, my_weight[0] = weight;
    if (k == lane + kWarp) my_id[1] = expert, my_weight[1] = weight;
  }
  const float factor = p.normalise ? p.scale / (sum + 1e-20f) : p.scale;
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const int k = i * kWarp + lane;
    if (k >= top_k) continue;
    const int local = my_id[i] - static_cast<int>(p.first_expert);
    const bool here = local >= 0 && local < p.local_experts;
    ids[k] = here ? local : -1;
    weights[k] = here ? my_weight[i] * factor * (p.expert_scale != nullptr ? p.expert_scale[my_id[i]] : 1.0f) : 0.0f;
  }
}

template <class T, int kPerLane>
std::unique_ptr<BoundOp> make_route(const RouteProblem& p, const T* logits) {
  LaunchShape shape{};
  if (p.tokens > 0)
    shape = {.grid = dim3(static_cast<unsigned>(ceil_div(p.tokens, kWarps))), .block = dim3(kWarps * kWarp)};
  return make_cuda_op("moe_route",
                      [=](cudaStream_t stream) { launch_early(route<T, kPerLane>, shape, stream, logits, p); });
}

}  // namespace
}  // namespace cuda

namespace {

static_assert(kMaxExperts <= 32 * cuda::kWarp && kMaxExpertsPerToken <= 2 * cuda::kWarp);

Result<std::unique_ptr<BoundOp>> bind(const BindArgs& args) {
  return cuda::dispatch_dtype(args.operands[0].dtype, "moe_route", [&]<class T>() -> Result<std::unique_ptr<BoundOp>> {
    const RouteProblem p = make_route_problem(args);
    const T* logits = args.operands[0].as<T>();
    if (p.experts <= 4 * cuda::kWarp) return cuda::make_route<T, 4>(p, logits);
    if (p.experts <= 8 * cuda::kWarp) return cuda::make_route<T, 8>(p, logits);
    return cuda::make_route<T, 32>(p, logits);
  });
}

}  // namespace

const KernelDef kMoeRouteCuda{.op = "moe_route", .name = "cuda", .bind = bind};

}  // namespace tessera
