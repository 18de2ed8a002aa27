#include "tessera/ops/linear_problem.h"

#include <algorithm>

namespace tessera {

LinearProblem make_linear_problem(const BindArgs& args) {
  const TensorView& x = args.operands[0];
  const TensorView& w = args.operands[1];
  std::int64_t rows = 1;
  for (int i = 0; i + 1 < x.rank; ++i) rows *= x.dim(i);
  return {.x = x.data,
          .w = w.data,
          .bias = args.node.attribute_or("bias", false) ? args.operands[2].data : nullptr,
          .residual = args.node.attribute_or("residual", false) ? args.operands.back().data : nullptr,
          .y = args.results[0].data,
          .m = rows,
          .n = w.dim(0),
          .k = w.dim(1),
          .dtype = x.dtype,
          .workspace = args.workspace,
          .workers = std::max(1, args.device.properties().threads)};
}

}  // namespace tessera
