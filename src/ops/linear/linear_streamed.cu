// Binds the streamed linear (linear_streamed.cuh), alone or with the silu_mul or gelu_mul after it, and lists all
// kernels that compute a linear together with operators after it.
#include <cstdint>
#include <limits>

#include "tessera/ops/linear/linear_cuda.h"
#include "tessera/ops/linear/linear_gated.h"
#include "tessera/ops/linear/linear_streamed_bind.cuh"

namespace tessera {
namespace {

using namespace cuda;
using namespace cuda::streamed_linear;

// Returns whether the streamed kernel is the fastest. With up to eight rows it always is. With more rows, it reads x as
// often as w. So the kernel that splits k is faster for large matrices (docs/measurements/prefill-decode.md).
bool is_worth_streaming(const LinearProblem& p) {
  constexpr std::int64_t kSmall = std::int64_t{16} << 20;  // the size of a small w in bytes
  if (p.m <= 8) return true;
  return 2 * p.n * p.k <= kSmall;
}

Result<std::unique_ptr<BoundOp>> make(const char* name, const LinearProblem& p, Gate gate, std::byte* y) {
  if (p.dtype == ir::DType::kBFloat16) return make_streamed<__nv_bfloat16>(name, p, NoChange{}, gate, y);
  return make_streamed<__half>(name, p, NoChange{}, gate, y);
}

// Binds a linear and its gate.
Result<std::unique_ptr<BoundOp>> bind_joined(std::span<const BindArgs> calls) {
  const LinearProblem p = make_linear_problem(calls[0]);
  if (!can_stream(calls[0]) || p.residual != nullptr) return std::unique_ptr<BoundOp>();
  return make("linear and gate, streamed", p, gate_of(calls[1].node), calls[1].results[0].data.raw());
}

}  // namespace

bool can_stream(const BindArgs& args) {
  const LinearProblem p = make_linear_problem(args);
  return allows_own_kernels(args, p) && args.operands[1].is_weight && p.m >= 1 && p.m <= kMaxRows &&
         p.k % kStepColumns == 0 && p.n % kTileRows == 0 && can_launch_early() && is_worth_streaming(p);
}

Result<std::unique_ptr<BoundOp>> bind_streamed(const LinearProblem& p) {
  return make("linear, streamed", p, Gate::kNone, p.y);
}

const std::vector<JoinedKernelDef>& joined_linear_kernels() {
  constexpr std::int64_t kAnyRows = std::numeric_limits<std::int64_t>::max();
  static const std::vector<JoinedKernelDef> kernels{
      {.ops = {"linear", "adapter_add", "silu_mul"}, .name = "streamed", .most_rows = kMaxRows, .bind = bind_adapted},
      {.ops = {"linear", "adapter_add", "gelu_mul"}, .name = "streamed", .most_rows = kMaxRows, .bind = bind_adapted},
      {.ops = {"linear", "adapter_add"}, .name = "streamed", .most_rows = kMaxRows, .bind = bind_adapted},
      {.ops = {"linear", "adapter_add", "silu_mul"},
       .name = "by warpgroups",
       .most_rows = kAnyRows,
       .bind = bind_gated_adapted},
      {.ops = {"linear", "adapter_add", "gelu_mul"},
       .name = "by warpgroups",
       .most_rows = kAnyRows,
       .bind = bind_gated_adapted},
      {.ops = {"linear", "silu_mul"}, .name = "streamed", .most_rows = kMaxRows, .bind = bind_joined},
      {.ops = {"linear", "gelu_mul"}, .name = "streamed", .most_rows = kMaxRows, .bind = bind_joined},
      {.ops = {"adapter_shrink", "linear"},
       .name = "k split",
       .most_rows = kMostSplitRows,
       .side_by_side = true,
       .bind = bind_split_shrink},
      {.ops = {"linear", "silu_mul"}, .name = "k split", .most_rows = kMostSplitRows, .bind = bind_split_gated},
      {.ops = {"linear", "gelu_mul"}, .name = "k split", .most_rows = kMostSplitRows, .bind = bind_split_gated},
      {.ops = {"linear", "silu_mul"}, .name = "by warpgroups", .most_rows = kAnyRows, .bind = bind_gated_linear},
      {.ops = {"linear", "gelu_mul"}, .name = "by warpgroups", .most_rows = kAnyRows, .bind = bind_gated_linear}};
  return kernels;
}

}  // namespace tessera
