// A batch of KV cache events as a message in MessagePack, in the form of vLLM and SGLang: an array of the time, the
// events and the engine's rank. Each event is a map whose "type" is BlockStored, BlockRemoved or AllBlocksCleared.
#pragma once

#include <cstdint>
#include <string>

#include "tessera/engine/cache/cache_events.h"

namespace tessera {

// A batch and what its message says beside the events.
struct EventBatch {
  CacheEvents events{};
  double unix_seconds = 0;
};

// `page_size` is the number of tokens in a block, `rank` the engine's index among those that share the requests.
std::string event_message(const EventBatch& batch, std::int64_t page_size, int rank);

// Returns the 8 bytes of a batch's number, the highest one first.
std::string number_bytes(std::uint64_t number);

}  // namespace tessera
