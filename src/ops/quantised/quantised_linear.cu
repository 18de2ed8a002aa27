// quantised_linear on CUDA. bind() chooses one of four kernels, by sizes, types and the format alone:
//
//   streamed      16-bit types, up to 16 rows, Hopper (quantised_streamed.cuh): reading w bounds it
//   rounded rows  FP8 made for rounded inputs, Hopper (quantised_fp8.cuh): products of eight bits
//   tiles         16-bit types, any number of rows, Hopper (quantised_tiles.cuh): products of sixteen bits
//   plain         everything else (quantised_plain.cu)
//
// Only rounded rows are rounded. Deterministic forwards take the same kernel for any number of rows, so none of them is
// streamed.
#include "tessera/ops/quantised/quantised_linear.h"

#include <limits>

#include "tessera/device/cuda/cuda_device.h"
#include "tessera/ops/cuda/cuda_op.h"
#include "tessera/ops/quantised/quantised_cuda.h"

namespace tessera {
namespace {

bool is_streamed(const QuantisedProblem& p, bool deterministic) {
  return !deterministic && quantised_streamed_serves(p);
}

Result<std::size_t> workspace_bytes(const BindArgs& args) {
  const QuantisedProblem p = make_quantised_problem(args);
  const bool rounds = p.m > 0 && !is_streamed(p, args.context.limits.deterministic) && quantised_fp8_serves(p);
  return rounds ? quantised_fp8_workspace(p) : std::size_t{0};
}

Result<std::unique_ptr<BoundOp>> bind(const BindArgs& args) {
  const QuantisedProblem p = make_quantised_problem(args);
  if (p.m == 0) return make_cuda_op("quantised_linear", [](cudaStream_t) {});
  TRY(static_cast<CudaDevice&>(args.device).make_current());
  const bool deterministic = args.context.limits.deterministic;
  if (is_streamed(p, deterministic)) return bind_quantised_streamed(p);
  if (quantised_fp8_serves(p)) return bind_quantised_fp8(p, deterministic);
  if (quantised_tiles_serve(p)) return bind_quantised_tiles(p, deterministic);
  return bind_quantised_plain(p);
}

}  // namespace

const KernelDef kQuantisedLinearCuda{
    .op = "quantised_linear", .name = "cuda", .bind = bind, .workspace_bytes = workspace_bytes};

const std::vector<JoinedKernelDef>& joined_quantised_kernels() {
  constexpr std::int64_t kAnyRows = std::numeric_limits<std::int64_t>::max();
  static const std::vector<JoinedKernelDef> kernels{
      {.ops = {"quantised_linear", "silu_mul"}, .name = "streamed", .most_rows = 16, .bind = bind_quantised_gated},
      {.ops = {"quantised_linear", "gelu_mul"}, .name = "streamed", .most_rows = 16, .bind = bind_quantised_gated},
      {.ops = {"quantised_linear", "silu_mul"},
       .name = "rounded rows",
       .most_rows = kAnyRows,
       .bind = bind_quantised_fp8_gated},
      {.ops = {"quantised_linear", "gelu_mul"},
       .name = "rounded rows",
       .most_rows = kAnyRows,
       .bind = bind_quantised_fp8_gated},
      {.ops = {"quantised_linear", "silu_mul"},
       .name = "tiles",
       .most_rows = kAnyRows,
       .bind = bind_quantised_tiles_gated},
      {.ops = {"quantised_linear", "gelu_mul"},
       .name = "tiles",
       .most_rows = kAnyRows,
       .bind = bind_quantised_tiles_gated}};
  return kernels;
}

}  // namespace tessera
