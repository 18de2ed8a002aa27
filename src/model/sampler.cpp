#include "tessera/model/sampler.h"

#include <vector>

#include "tessera/ir/builder.h"
#include "tessera/model/model.h"

namespace tessera {
namespace {

using ir::DType;

ir::ValueId row_input(ir::GraphBuilder& b, std::string_view name, DType dtype) {
  return b.input(std::string(name), {dtype, {ir::Symbol::kRows}});
}

ir::ValueId add_sample(ir::GraphBuilder& b, ir::ValueId logits) {
  return b.op(
      "sample",
      {logits, row_input(b, input_names::kTemperature, DType::kFloat32),
       row_input(b, input_names::kTopK, DType::kInt32), row_input(b, input_names::kTopP, DType::kFloat32),
       row_input(b, input_names::kMinP, DType::kFloat32), row_input(b, input_names::kSeed, DType::kInt64),
       row_input(b, input_names::kChoice, DType::kInt32), row_input(b, input_names::kSamplePosition, DType::kInt32)});
}

Result<ir::Graph> finish(ir::GraphBuilder& b, const std::vector<ir::ValueId>& outputs,
                         const std::vector<std::string>& names) {
  for (const ir::ValueId output : outputs) b.output(output);
  ir::Graph graph = TRY(b.finish());
  for (std::size_t i = 0; i < names.size(); ++i) graph.value(outputs[i]).name = names[i];
  return graph;
}

}  // namespace

Result<ir::Graph> build_sampler(std::int64_t vocab_size, const ir::OpTable& ops) {
  ir::GraphBuilder b("sampler", ops);
  const ir::ValueId ids = add_sample(b, b.input("logits", {DType::kFloat32, {ir::Symbol::kRows, vocab_size}}));
  return finish(b, {ids}, {"sampled_ids"});
}

Result<ir::Graph> build_choose(std::int64_t vocab_size, const ir::OpTable& ops) {
  ir::GraphBuilder b("choose", ops);
  const ir::ValueId logits =
      b.state(std::string(input_names::kChoiceLogits), {DType::kFloat32, {ir::Symbol::kRows, vocab_size}});
  const auto list = [&](std::string_view name, DType dtype) {
    return b.input(std::string(name), {dtype, {max_choice_edits(vocab_size)}});
  };
  const ir::ValueId first = row_input(b, input_names::kEditFirst, DType::kInt32);
  const ir::ValueId count = row_input(b, input_names::kEditCount, DType::kInt32);
  const ir::ValueId ids = list(input_names::kEditIds, DType::kInt32);
  const ir::ValueId penalties = list(input_names::kEditPenalties, DType::kFloat32);
  const ir::ValueId offsets = list(input_names::kEditOffsets, DType::kFloat32);
  const ir::ValueId mask = row_input(b, input_names::kEditMask, DType::kInt32);
  const ir::ValueId masks =
      b.input(std::string(input_names::kEditMasks), {DType::kInt32, {kMaxChoiceRows, (vocab_size + 31) / 32}});
  b.op("logit_edits", {logits, first, count, ids, penalties, offsets, mask, masks});
  return finish(b, {add_sample(b, logits)}, {"sampled_ids"});
}

Result<ir::Graph> build_logprobs(std::int64_t vocab_size, const ir::OpTable& ops) {
  ir::GraphBuilder b("logprobs", ops);
  const ir::ValueId logits =
      b.input(std::string(input_names::kChoiceLogits), {DType::kFloat32, {ir::Symbol::kRows, vocab_size}});
  const std::vector<ir::ValueId> made =
      b.multi_op("top_logprobs", {logits, row_input(b, input_names::kLogprobTargets, DType::kInt32)});
  return finish(b, {made.begin(), made.begin() + 3}, {"logprobs", "top_ids", "top_logprobs"});
}

}  // namespace tessera
