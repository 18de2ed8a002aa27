#include "tessera/runner/verify/head_rows.h"

#include "tessera/model/model.h"

namespace tessera {

Result<std::vector<TensorView>> rows_of_head(const RunnerParts& parts, RunnerRole role) {
  const DeviceAddress arena = parts.arena().base();
  const std::vector<HandedOver>& handed_over = parts.model.handed_over;
  if (role == RunnerRole::kDraftHead) {
    const ir::Type& type = parts.model.graphs.draft->body.find_value(input_names::kDraftHidden)->type;
    return std::vector{TRY(make_view(type, {}, arena + handed_over[0].offset))};
  }
  std::vector<TensorView> views;
  for (const HandedOver& value : handed_over)
    views.push_back(
        TRY(make_view(value.type, parts.runner(RunnerRole::kPrefill).executable().largest(), arena + value.offset)));
  return views;
}

}  // namespace tessera
