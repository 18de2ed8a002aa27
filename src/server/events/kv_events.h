// Publishes what changes in the prefix caches of a server's engines.
//
//   std::unique_ptr<KvEvents> events = TRY(KvEvents::start(options, engines));
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tessera/engine/engine.h"
#include "tessera/server/events/event_publisher.h"
#include "tessera/server/events/kv_events_options.h"

namespace tessera {

class KvEvents {
 public:
  // If the options enable events, gives each engine a publisher of its own. Otherwise publishes nothing. The engines
  // must outlive the object. Precondition of this function and of the destructor: no thread runs the engines.
  static Result<std::unique_ptr<KvEvents>> start(const KvEventsOptions& options, std::vector<Engine*> engines);
  ~KvEvents();
  KvEvents(const KvEvents&) = delete;
  KvEvents& operator=(const KvEvents&) = delete;

  // Returns the metrics in Prometheus' text format, or "" if no events are published.
  std::string metrics() const;

 private:
  explicit KvEvents(std::vector<Engine*> engines) : engines_(std::move(engines)) {}

  std::vector<Engine*> engines_;
  std::vector<std::unique_ptr<EventPublisher>> publishers_;  // one for each engine
};

// Checks that `engines` engines can publish their events. Errors: libzmq is missing, an engine's port would be above
// 65535, or an address is in use. An ipc address is never in use, because a later server takes over the path.
Status check_kv_events(const KvEventsOptions& options, int engines);

}  // namespace tessera
