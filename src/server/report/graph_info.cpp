#include "tessera/server/report/graph_info.h"

namespace tessera {

void write_graph_info_members(JsonWriter& json, const GraphInfo& info) {
  json.key("cached_tokens").value(info.cached_tokens).key("forwards").array();
  for (const GraphUse& use : info.uses) {
    json.object().key("phase").value(forward_phase_name(use.phase));
    json.key("runner").value(runner_kind_name(use.how.runner)).key("size").value(use.how.size);
    json.key("reason").value(reason_name(use.how.reason)).key("count").value(use.count.forwards);
    json.key("tokens").value(use.count.tokens).key("padding").value(use.count.padding).end_object();
  }
  json.end_array();
  if (info.tower.by_key().empty()) return;
  json.key("tower").array();
  for (const auto& [key, count] : info.tower.by_key()) {
    json.object().key("size").value(key.size).key("reason").value(vision_reason_name(key.reason));
    json.key("count").value(count.forwards).key("images").value(count.images);
    json.key("patches").value(count.patches).key("padding").value(count.padding).end_object();
  }
  json.end_array();
}

}  // namespace tessera
