#include "tessera/model/sampler.h"

#include "tessera/ir/builder.h"
#include "tessera/model/model.h"

namespace tessera {

Result<ir::Graph> build_sampler(std::int64_t vocab_size, const ir::OpTable& ops) {
  ir::GraphBuilder b("sampler", ops);
  const ir::Dim rows(ir::Symbol::kRows);
  const auto parameter = [&](std::string_view name, ir::DType dtype) {
    return b.input(std::string(name), {dtype, {rows}});
  };
  const ir::ValueId logits = b.input("logits", {ir::DType::kFloat32, {rows, ir::Dim(vocab_size)}});
  const ir::ValueId ids = b.op(
      "sample", {logits, parameter(input_names::kTemperature, ir::DType::kFloat32),
                 parameter(input_names::kTopK, ir::DType::kInt32), parameter(input_names::kTopP, ir::DType::kFloat32),
                 parameter(input_names::kSeed, ir::DType::kInt64), parameter(input_names::kChoice, ir::DType::kInt32),
                 parameter(input_names::kSamplePosition, ir::DType::kInt32)});
  b.output(ids);
  ir::Graph graph = TRY(b.finish());
  graph.value(ids).name = "sampled_ids";
  return graph;
}

}  // namespace tessera
