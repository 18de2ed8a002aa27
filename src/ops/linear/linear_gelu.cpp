#include "tessera/ops/linear/linear_gelu.h"

#include <limits>

#include "tessera/ops/linear/linear_cuda.h"
#include "tessera/ops/linear/linear_epilogue.h"

namespace tessera {
namespace {

Result<std::unique_ptr<BoundOp>> bind(std::span<const BindArgs> calls) {
  LinearProblem p = make_linear_problem(calls[0]);
  if (!calls[1].node.attribute_or("tanh", true) || !allows_epilogue(calls[0], p) || p.bias == nullptr ||
      p.m <= kMostSplitRows)
    return std::unique_ptr<BoundOp>();
  p.gelu = true;
  p.y = calls[1].results[0].data.raw();
  return bind_epilogue(p, calls[0].device);
}

}  // namespace

const JoinedKernelDef kLinearGeluCuda{.ops = {"linear", "gelu"},
                                      .name = "gelu in the matmul",
                                      .most_rows = std::numeric_limits<std::int64_t>::max(),
                                      .bind = bind};

}  // namespace tessera
