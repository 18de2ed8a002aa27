#include "tessera/model/sampler.h"

#include <vector>

#include "tessera/ir/builder.h"
#include "tessera/model/layers/inputs.h"

namespace tessera {
namespace {

using ir::DType;
using ir::ValueId;

ValueId add_sample(ir::GraphBuilder& b, ValueId logits) {
  std::vector<ValueId> operands = declare_sampling_inputs(b);
  operands.insert(operands.begin(), logits);
  return b.op("sample", operands);
}

Result<ir::Graph> finish(ir::GraphBuilder& b, const std::vector<ValueId>& outputs,
                         const std::vector<std::string>& names) {
  for (const ValueId output : outputs) b.output(output);
  ir::Graph graph = TRY(b.finish());
  for (std::size_t i = 0; i < names.size(); ++i) graph.value(outputs[i]).name = names[i];
  return graph;
}

ir::Type logits_type(std::int64_t vocab_size) { return {DType::kFloat32, {ir::Symbol::kRows, vocab_size}}; }

}  // namespace

Result<ir::Graph> build_sampler(std::int64_t vocab_size, const ir::OpTable& ops) {
  ir::GraphBuilder b("sampler", ops);
  return finish(b, {add_sample(b, b.input("logits", logits_type(vocab_size)))}, {"sampled_ids"});
}

Result<ir::Graph> build_choose(std::int64_t vocab_size, const ir::OpTable& ops) {
  ir::GraphBuilder b("choose", ops);
  const ValueId logits = b.state(std::string(input_names::kChoiceLogits), logits_type(vocab_size));
  std::vector<ValueId> operands = declare_edit_inputs(b, vocab_size);
  operands.insert(operands.begin(), logits);
  b.op("logit_edits", operands);
  return finish(b, {add_sample(b, logits)}, {"sampled_ids"});
}

Result<ir::Graph> build_logprobs(std::int64_t vocab_size, const ir::OpTable& ops) {
  ir::GraphBuilder b("logprobs", ops);
  const ValueId logits = b.input(std::string(input_names::kChoiceLogits), logits_type(vocab_size));
  const std::vector<ValueId> made = b.multi_op("top_logprobs", {logits, declare_logprob_targets(b)});
  return finish(b, {made.begin(), made.begin() + 3}, {"logprobs", "top_ids", "top_logprobs"});
}

}  // namespace tessera
