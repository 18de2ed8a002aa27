#include "tessera/capi/metrics_json.h"

#include <span>

#include "tessera/server/fields/json_writer.h"
#include "tessera/server/report/forwards_json.h"

namespace tessera::capi {
std::string metrics_json(const EngineStats& stats) {
  JsonWriter json;
  json.object().key("requests").object().key("running").value(stats.running).key("queued").value(stats.queued);
  json.key("preemptions").value(stats.preemptions).end_object();
  json.key("tokens").object().key("prompt").value(stats.prompt_tokens).key("cached").value(stats.cached_tokens);
  json.key("output").value(stats.output_tokens).end_object();
  json.key("steps").value(stats.steps).key("forwards");
  write_forwards(json, stats.forwards);
  json.key("cache").array();
  for (const CacheGroupStats& group : std::span(stats.cache_groups).first(stats.num_cache_groups)) {
    json.object().key("usable_pages").value(group.usable_pages).key("used_pages").value(group.used_pages);
    json.key("cached_pages").value(group.cached_pages).key("page_size").value(stats.page_size).end_object();
  }
  json.end_array();
  return json.end_object().take();
}

}  // namespace tessera::capi
