// Device memory by kind, from the memory ledger, in the order that metrics, page and server info share.
#pragma once

#include <array>
#include <cstdint>
#include <utility>

#include "tessera/runner/memory_ledger.h"

namespace tessera {

inline std::array<std::pair<const char*, std::int64_t>, 7> memory_kinds(const MemoryLedger& memory) {
  return {{{"weights", memory.weights},
           {"kv_cache", memory.kv_cache},
           {"arena", memory.arena},
           {"workspace", memory.workspace},
           {"static_inputs", memory.static_inputs},
           {"attention", memory.plans},
           {"graph_objects", memory.graph_objects}}};
}

}  // namespace tessera
