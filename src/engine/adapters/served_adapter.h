// A low-rank adapter that requests can name. The object exists while the adapter is loaded or a request still uses it.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "tessera/model/adapters/adapter.h"

namespace tessera {

// The pool, the slots and the sequences share a ServedAdapter. It is destroyed when the pool has unloaded it and the
// last sequence that uses it has ended. Only the engine's thread reads and writes the members that are not const.
struct ServedAdapter {
  const std::string name;
  // The number of this load, at least 1. A later load under the same name gets another number, so that the prefix cache
  // keeps the keys and values of both loads apart.
  const std::int64_t number;
  const std::shared_ptr<const Adapter> content;
  const bool pinned = false;  // no other adapter gets this adapter's slot
  // The number of adapters that were loaded under this name before.
  const std::int64_t earlier_loads = 0;

  std::int64_t slot = -1;    // the adapter's slot on the device; -1: none
  std::int64_t running = 0;  // running sequences that use the slot
  bool unloaded = false;     // no new request can name the adapter
};

}  // namespace tessera
