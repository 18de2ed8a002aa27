#include "tessera/server/report/forwards_json.h"

#include "tessera/runner/dispatch/dispatch.h"

namespace tessera {

void write_forwards(JsonWriter& json, const ForwardCounters& forwards) {
  json.object().key("tokens").value(forwards.tokens).key("padded_tokens").value(forwards.padded_tokens);
  json.key("by_reason").object();
  for (int r = 0; r < kNumReasons; ++r) {
    const auto reason = static_cast<Reason>(r);
    json.key(reason_name(reason)).value(forwards.forwards(reason));
  }
  json.end_object().key("by_bucket").array();
  for (const auto& [key, count] : forwards.by_key) {
    json.object().key("runner").value(runner_kind_name(key.runner)).key("size").value(key.size);
    json.key("reason").value(reason_name(key.reason)).key("count").value(count.forwards);
    json.key("tokens").value(count.tokens).key("padding").value(count.padding).end_object();
  }
  json.end_array().end_object();
}

}  // namespace tessera
