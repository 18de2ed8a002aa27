// Writes a batch of KV cache events as a message in MessagePack, in the form of vLLM and SGLang. The message is an
// array of the time, the events and the engine's rank. Each event is a map whose "type" is BlockStored, BlockRemoved or
// AllBlocksCleared.
#pragma once

#include <cstdint>
#include <string>

#include "tessera/engine/cache/cache_events.h"

namespace tessera {

// A batch of events, and the time at which it was queued.
struct EventBatch {
  CacheEvents events{};
  double unix_seconds = 0;
};

// Returns the message. `page_size` is the number of tokens in a block. `rank` is the index of the engine among the
// server's engines, 0 if it is the only one.
std::string event_message(const EventBatch& batch, std::int64_t page_size, int rank);

}  // namespace tessera
