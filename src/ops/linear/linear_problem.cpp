#include "tessera/ops/linear/linear_problem.h"

#include <algorithm>

namespace tessera {

LinearProblem make_linear_problem(const BindArgs& args) {
  const TensorView& x = args.operands[0];
  const TensorView& w = args.operands[1];
  std::int64_t rows = 1;
  for (int i = 0; i + 1 < x.rank; ++i) rows *= x.dim(i);
  return {.x = x.data.raw(),
          .w = w.data.raw(),
          .bias = args.node.attribute_or("bias", false) ? args.operands[2].data.raw() : nullptr,
          .residual = args.node.attribute_or("residual", false) ? args.operands.back().data.raw() : nullptr,
          .y = args.results[0].data.raw(),
          .m = rows,
          .n = w.dim(0),
          .k = w.dim(1),
          .dtype = x.dtype,
          .workspace = args.workspace.raw(),
          .workers = std::max(1, args.device.properties().threads)};
}

}  // namespace tessera
