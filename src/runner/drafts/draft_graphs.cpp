#include "tessera/runner/drafts/draft_graphs.h"

#include <vector>

#include "tessera/ir/builder.h"
#include "tessera/piecewise/chain.h"

namespace tessera {
namespace {

using ir::DType;

// Returns a graph that translates the sampled ids of the draft into ids of the model (target_ids.h).
Result<ir::Graph> name_as_target(const DraftGraphs& draft, const ir::OpTable& ops) {
  const ir::Value& sampled = draft.sampler.value(draft.sampler.outputs[0]);
  ir::GraphBuilder b("target_ids", ops);
  const ir::ValueId table =
      b.input(std::string(input_names::kTargetIds), {DType::kInt32, {std::ssize(draft.target_ids), 1}});
  b.output(b.op("gather_rows", {table, b.input(sampled.name, sampled.type)}));
  return b.finish();
}

}  // namespace

Result<ir::Graph> make_draft_head(const DraftGraphs& draft, const ir::OpTable& ops) {
  std::vector<const ir::Graph*> graphs{&draft.head, &draft.sampler};
  if (draft.target_ids.empty()) return chain("draft_head", graphs);
  const ir::Graph named = TRY(name_as_target(draft, ops));
  graphs.push_back(&named);
  return chain("draft_head", graphs);
}

Result<ir::Graph> make_draft_decode(const DraftGraphs& draft, const ir::Graph& head) {
  return chain("draft_decode", std::vector{&draft.body, &head});
}

}  // namespace tessera
