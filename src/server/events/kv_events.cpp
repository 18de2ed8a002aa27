#include "tessera/server/events/kv_events.h"

#include "tessera/base/log.h"
#include "tessera/server/metrics/metric_families.h"

namespace tessera {

Result<std::unique_ptr<KvEvents>> KvEvents::start(const KvEventsOptions& options, std::vector<Engine*> engines) {
  std::unique_ptr<KvEvents> events(new KvEvents(std::move(engines)));
  if (!options.enabled) return events;
  for (std::size_t i = 0; i < events->engines_.size(); ++i) {
    Engine& engine = *events->engines_[i];
    events->publishers_.push_back(TRY(EventPublisher::create(options, static_cast<int>(i), engine.stats().page_size)));
    engine.observe_cache(
        [publisher = events->publishers_.back().get()](CacheEvents changed) { publisher->add(std::move(changed)); });
  }
  log_info("server", "KV cache events are published at {}", options.endpoint);
  return events;
}

KvEvents::~KvEvents() {
  if (publishers_.empty()) return;
  for (Engine* const engine : engines_) engine->observe_cache({});
}

std::string KvEvents::metrics() const {
  if (publishers_.empty()) return "";
  double published = 0;
  double dropped = 0;
  double replayed = 0;
  for (const std::unique_ptr<EventPublisher>& publisher : publishers_) {
    published += static_cast<double>(publisher->published());
    dropped += static_cast<double>(publisher->dropped());
    replayed += static_cast<double>(publisher->replayed());
  }
  MetricFamilies families;
  families.counters("tessera:kv_event_batches_total", "Batches of KV cache events.",
                    {{{{"outcome", "published"}}, published},
                     {{{"outcome", "dropped"}}, dropped},
                     {{{"outcome", "replayed"}}, replayed}});
  return families.text();
}

Status check_kv_events(const KvEventsOptions& options, int engines) {
  if (!options.enabled) return ok_status();
  TRY(check_ports(tcp_address(options.endpoint), engines).with_context("\"endpoint\""));
  TRY(check_ports(tcp_address(options.replay_endpoint), engines).with_context("\"replay_endpoint\""));
  std::vector<std::unique_ptr<EventSockets>> opened;
  for (int rank = 0; rank < engines; ++rank) opened.push_back(TRY(EventSockets::open(options, rank)));
  return ok_status();
}

}  // namespace tessera
