#include "tessera/ops/sampling/logit_edits.h"

#include "tessera/ops/cuda/cuda_launch.cuh"
#include "tessera/ops/cuda/cuda_op.h"
#include "tessera/ops/sampling/logit_edits_args.h"

namespace tessera {
namespace {

using namespace cuda;

constexpr std::int64_t kMostEditBlocks = 64;  // maximum blocks per row; only the device knows a row's number of edits

// Applies the edits to the rows. All blocks with the same blockIdx.x share a row.
__global__ void edit_logits(const __grid_constant__ LogitEditArgs a) {
  const std::int64_t r = blockIdx.x;
  const std::int64_t begin = a.first[r] > 0 ? a.first[r] : 0;
  const std::int64_t stop = static_cast<std::int64_t>(a.first[r]) + a.count[r];
  const std::int64_t end = stop < a.edits ? stop : a.edits;
  for (std::int64_t e = begin + item_of_thread(); e < end; e += item_step()) {
    const std::int64_t id = a.ids[e];
    if (id < 0 || id >= a.vocab) continue;
    float& logit = a.logits[r * a.vocab + id];
    const float x = logit;
    // The intrinsics keep the compiler from fusing the product with the sum, so that the result equals the CPU's.
    const float penalised = x > 0.0f ? __fdiv_rn(x, a.penalties[e]) : __fmul_rn(x, a.penalties[e]);
    logit = __fadd_rn(penalised, a.offsets[e]);
  }
}

// Applies the masks. Each thread processes one token.
__global__ void mask_logits(const __grid_constant__ LogitEditArgs a) {
  const std::int64_t r = blockIdx.x;
  const std::int64_t mask = a.mask[r];
  if (mask < 0 || mask >= a.num_masks) return;
  for (std::int64_t i = item_of_thread(); i < a.vocab; i += item_step()) {
    const std::uint32_t word = a.masks[mask * a.words + i / 32];
    if ((word >> (i % 32) & 1u) == 0) a.logits[r * a.vocab + i] = -INFINITY;
  }
}

Result<std::unique_ptr<BoundOp>> bind(const BindArgs& args) {
  const LogitEditArgs a = LogitEditArgs::of(args);
  const auto blocks = [&](std::int64_t items, std::int64_t most) {
    if (a.rows == 0) return LaunchShape{};
    const std::int64_t across = std::clamp<std::int64_t>(ceil_div(items, kBlockThreads), 1, most);
    return LaunchShape{.grid = dim3(static_cast<unsigned>(a.rows), static_cast<unsigned>(across)),
                       .block = dim3(kBlockThreads)};
  };
  const LaunchShape edits = blocks(std::min(a.edits, a.vocab), kMostEditBlocks);
  const LaunchShape tokens = blocks(a.vocab, kMaxGridY);
  return make_cuda_op("logit_edits", [=](cudaStream_t stream) {
    launch(edit_logits, edits, stream, a);
    launch(mask_logits, tokens, stream, a);
  });
}

}  // namespace

const KernelDef kLogitEditsCuda{.op = "logit_edits", .name = "cuda", .bind = bind};

}  // namespace tessera
