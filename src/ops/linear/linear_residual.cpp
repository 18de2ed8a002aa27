#include "tessera/ops/linear/linear_residual.h"

#include <array>
#include <limits>
#include <utility>

#include "tessera/ops/contract/bound_sequence.h"
#include "tessera/ops/linear/linear_epilogue.h"
#include "tessera/ops/rows/norm.h"

namespace tessera {
namespace {

// If there are at least kFewestRows rows and kFewestProducts products (m · n · k), it is faster to add the residual in
// the matmul than in the norm. The residual costs each tile of the matmul one load, which long sums hide. The norm then
// reads one tensor less, which saves more time if the tensor is large.
constexpr std::int64_t kFewestRows = 512;
// Computing this number of products takes 50 µs on an H200 (docs/measurements/prefill-decode.md).
constexpr std::int64_t kFewestProducts = std::int64_t{1} << 34;
bool pays(const LinearProblem& p) { return p.m >= kFewestRows && p.m * p.n * p.k >= kFewestProducts; }

// Binds the rms_norm of the sum, with the attributes of the add_rms_norm that it replaces.
Result<std::unique_ptr<BoundOp>> bind_norm_of_sum(const BindArgs& call) {
  ir::Node node = call.node;
  node.op = "rms_norm";
  const std::array operands{call.results[1], call.operands[2]};
  const std::array results{call.results[0]};
  return kRmsNormCuda.bind({node, operands, results, {}, call.device, call.context});
}

Result<std::unique_ptr<BoundOp>> bind(std::span<const BindArgs> calls) {
  LinearProblem p = make_linear_problem(calls[0]);
  if (!allows_epilogue(calls[0], p) || !pays(p)) return std::unique_ptr<BoundOp>();
  p.residual = calls[1].operands[1].data.raw();
  p.y = calls[1].results[1].data.raw();
  std::unique_ptr<BoundOp> linear = TRY(bind_epilogue(p, calls[0].device));
  if (linear == nullptr) return linear;
  std::vector<std::unique_ptr<BoundOp>> parts;
  parts.push_back(std::move(linear));
  parts.push_back(TRY(bind_norm_of_sum(calls[1])));
  return std::make_unique<BoundSequence>(std::move(parts));
}

}  // namespace

const JoinedKernelDef kLinearResidualNormCuda{.ops = {"linear", "add_rms_norm"},
                                              .name = "residual in the matmul",
                                              .most_rows = std::numeric_limits<std::int64_t>::max(),
                                              .bind = bind};

}  // namespace tessera
