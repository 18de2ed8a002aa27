#include "tessera/ops/quantised/quantised_problem.h"

#include <algorithm>
#include <string>

#include "tessera/ops/contract/shape_rule.h"

namespace tessera {

QuantisedProblem make_quantised_problem(const BindArgs& args) {
  const QuantisedFormat format = *QuantisedFormat::of(args.node);
  const TensorView& x = args.operands[0];
  const bool bias = args.node.attribute_or("bias", false);
  const bool residual = args.node.attribute_or("residual", false);
  const std::string inputs = string_attribute(args.node, "inputs", "plain");
  QuantisedProblem p{.w = make_quantised_matrix(format, args.operands.subspan(1)),
                     .x = x.data.raw(),
                     .bias = bias ? args.operands[1 + format.num_operands()].data.raw() : nullptr,
                     .residual = residual ? args.operands.back().data.raw() : nullptr,
                     .y = args.results[0].data.raw(),
                     .m = x.rows(),
                     .dtype = x.dtype,
                     .inputs = inputs == "token"   ? QuantisedProblem::Inputs::kToken
                               : inputs == "group" ? QuantisedProblem::Inputs::kGroup
                               : inputs == "block" ? QuantisedProblem::Inputs::kBlock
                                                   : QuantisedProblem::Inputs::kPlain,
                     .workspace = args.workspace.raw(),
                     .workers = std::max(1, args.device.properties().threads)};
  p.n = p.w.rows;
  p.k = p.w.cols;
  return p;
}

LinearProblem without_matrix(const QuantisedProblem& p) {
  return {.x = p.x,
          .w = nullptr,
          .bias = p.bias,
          .residual = p.residual,
          .y = p.y,
          .m = p.m,
          .n = p.n,
          .k = p.k,
          .dtype = p.dtype,
          .workspace = nullptr,
          .workers = p.workers};
}

}  // namespace tessera
