// Binds moe_experts on CUDA. bind() chooses one of six algorithms, by sizes and types alone. Each line below has the
// algorithm's name, the conditions for its use, the file that describes it, and after the colon its launches. "order"
// sorts the rows of x by expert, and "down + sum" is one launch that computes both:
//
//   one token  4-bit weights, one token, short rows, Hopper (moe_one_token.h): gate and up; down + sum
//   streamed   16-bit types, a decode's tokens, Hopper (moe_streamed.cuh): gate and up; down + sum
//   few rows   16-bit types, few tokens (moe_few_rows.cuh): gate and up; down; sum
//   hopper     16-bit types with many rows per expert, or 4-bit weights with one row per expert, Hopper
//              (moe_hopper.cuh): order; gate and up; down; sum
//   grouped    16-bit types (moe_grouped.cuh): order; gate and up; down; sum
//   plain      everything else, such as float32 and odd sizes (moe_plain.cuh): the same launches as grouped
//
// If x is bfloat16, the type in which models with MXFP4 compute, MXFP4 weights use any of these algorithms except
// "plain". With other types of x they use only "plain". bind() refuses packed blocks of GGUF. Other quantised matrices
// use any algorithm except "one token", through moe_quantised_stream.cuh, moe_quantised_readers.cuh and, for bfloat16,
// moe_hopper_quantised.cuh. They use only "plain" if has_whole_pieces() is false for their format, but it is true for
// all published formats. A deterministic forward uses "grouped" or "plain". The choice between these two does not
// depend on the number of tokens, and each of them adds in one fixed order. So in a deterministic forward a row's bits
// do not depend on other rows. Other forwards choose by the number of tokens among algorithms that add in different
// orders. The shape of a launch does not depend on the router's choice, which the kernels read from device memory.
#include <algorithm>

#include "tessera/ops/moe/moe_hopper.h"
#include "tessera/ops/moe/moe_launches.cuh"
#include "tessera/ops/moe/moe_one_token.h"
#include "tessera/ops/moe/moe_plain.cuh"
#include "tessera/ops/moe/moe_quantised_tiles.h"
#include "tessera/ops/moe/moe_route.h"
#include "tessera/ops/moe/moe_streamed.h"

namespace tessera {
namespace cuda::moe {
namespace {

static_assert(kSomeRows == kPlainRows);

enum class Way { kNothing, kRefused, kOneToken, kStreamed, kFewRows, kGrouped, kHopper, kPlain };

Way choose(const ExpertsProblem& p, bool deterministic) {
  if (p.tokens == 0) return Way::kNothing;
  if (p.quantised && p.gate_up_matrix.format.is_blocks()) return Way::kRefused;
  const bool whole_chunks = p.hidden % 8 == 0 && p.intermediate % 8 == 0;
  if (p.dtype == ir::DType::kFloat32 || !whole_chunks) return Way::kPlain;
  if (p.mxfp4 && p.dtype != ir::DType::kBFloat16) return Way::kPlain;
  if (p.quantised && !quantised_experts_serve(p)) return Way::kPlain;
  if (deterministic) return Way::kGrouped;
  if (one_token_serves(p)) return Way::kOneToken;
  // The hopper algorithm unpacks 4-bit weights only once for all rows of an expert.
  if (p.mxfp4 && hopper_serves(p)) return Way::kHopper;
  if (streamed_serves(p)) return Way::kStreamed;
  if (p.tokens * p.top_k <= kMostPairs) return Way::kFewRows;
  return hopper_serves(p) ? Way::kHopper : Way::kGrouped;
}

std::int64_t tile_rows(const ExpertsProblem& p, Way way) {
  return way == Way::kFewRows ? 0 : way == Way::kGrouped ? grouped_tile_rows(p) : kSomeRows;
}

Scratch scratch_of(const ExpertsProblem& p, Way way) {
  if (way == Way::kNothing || way == Way::kRefused) return {};
  const std::int64_t rows = tile_rows(p, way);
  return lay_out(p, rows == 0 ? 0 : most_tiles(p, rows));
}

template <class T>
Result<std::unique_ptr<BoundOp>> make_plain(const ExpertsProblem& p, std::byte* scratch, std::int64_t multiprocessors) {
  const std::int64_t tiles = most_tiles(p, kSomeRows);
  const TileKernel gate_up = TRY(tile_kernel(reinterpret_cast<const void*>(plain<T, true>), 0,
                                             tiles * ceil_div(p.intermediate, kPlainWeightRows / 2), multiprocessors));
  const TileKernel down = TRY(tile_kernel(reinterpret_cast<const void*>(plain<T, false>), 0,
                                          tiles * ceil_div(p.hidden, kPlainWeightRows), multiprocessors));
  return make_cuda_op("moe_experts, plain", [=](cudaStream_t stream) {
    for (std::int64_t begin = 0; begin < p.tokens; begin += kMostTokens) {
      const Launches<T> l = launches_of<T>(p, kSomeRows, scratch, begin);
      launch_sort(p, begin, l, stream);
      launch_early(plain<T, true>, gate_up.shape, stream, l.gate_up, l.order);
      launch_early(plain<T, false>, down.shape, stream, l.down, l.order);
      launch_add_up<T, 1>(l, l.order.place, stream);
    }
  });
}

template <class T>
Result<std::unique_ptr<BoundOp>> bind_way(const BindArgs& args, const ExpertsProblem& p, Way way) {
  std::byte* const scratch = args.workspace.raw();
  const std::int64_t multiprocessors = std::max(1, args.device.properties().threads);
  const bool few = way == Way::kFewRows;
  if (way == Way::kPlain) return make_plain<T>(p, scratch, multiprocessors);
  if (p.quantised) return bind_quantised_experts(p, scratch, multiprocessors, few);
  if constexpr (std::is_same_v<T, __nv_bfloat16>) {
    if (p.mxfp4) return make_tiles<T, PackedRows, PackedCopy>(p, scratch, multiprocessors, few);
  }
  if constexpr (!std::is_same_v<T, float>) return make_tiles<T, PlainRows, PlainCopy>(p, scratch, multiprocessors, few);
  return internal_error("moe_experts: no tensor-core kernel for float32");
}

}  // namespace
}  // namespace cuda::moe

namespace {

Result<std::size_t> workspace_bytes(const BindArgs& args) {
  const ExpertsProblem p = make_experts_problem(args);
  const cuda::moe::Way way = cuda::moe::choose(p, args.context.limits.deterministic);
  if (way == cuda::moe::Way::kOneToken) return one_token_scratch_bytes(p);
  if (way == cuda::moe::Way::kStreamed) return streamed_scratch_bytes(p);
  return way == cuda::moe::Way::kHopper ? hopper_scratch_bytes(p) : cuda::moe::scratch_of(p, way).size;
}

Result<std::unique_ptr<BoundOp>> bind(const BindArgs& args) {
  const ExpertsProblem p = make_experts_problem(args);
  const cuda::moe::Way way = cuda::moe::choose(p, args.context.limits.deterministic);
  if (way == cuda::moe::Way::kNothing) return make_cuda_op("moe_experts", [](cudaStream_t) {});
  if (way == cuda::moe::Way::kRefused) return refuse_blocks("moe_experts", p.gate_up_matrix.format.blocks);
  if (way == cuda::moe::Way::kHopper) return bind_hopper(p, args.workspace.raw());
  if (way == cuda::moe::Way::kOneToken)
    return bind_one_token_experts(p, args.workspace.raw(), std::max(1, args.device.properties().threads));
  if (way == cuda::moe::Way::kStreamed)
    return bind_streamed_experts(p, args.workspace.raw(), std::max(1, args.device.properties().threads));
  return cuda::dispatch_dtype(p.dtype, "moe_experts", [&]<class T>() -> Result<std::unique_ptr<BoundOp>> {
    return cuda::moe::bind_way<T>(args, p, way);
  });
}

}  // namespace

const KernelDef kMoeExpertsCuda{.op = "moe_experts", .name = "cuda", .bind = bind, .workspace_bytes = workspace_bytes};

}  // namespace tessera
