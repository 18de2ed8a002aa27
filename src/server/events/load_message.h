// Writes the load of an engine as a message in MessagePack, in the form of SGLang's LoadStat. The message is an array
// of the name "LoadStat" and ten numbers.
#pragma once

#include <cstdint>
#include <string>

#include "tessera/engine/stats/prefill_work.h"
#include "tessera/server/events/loads.h"

namespace tessera {

struct PublishedLoad {
  LoadNumbers numbers{};
  std::int64_t max_running_requests = 0;
  PrefillWork prefill{};

  friend bool operator==(const PublishedLoad&, const PublishedLoad&) = default;
};

// Returns the message. `rank` is the index of the engine among the server's engines, 0 if it is the only one.
std::string load_message(const PublishedLoad& load, int rank);

}  // namespace tessera
