// A low-rank adapter that requests can name, while it is loaded or a request still uses it.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "tessera/model/adapters/adapter.h"

namespace tessera {

// The pool, the slots and the sequences share it. It is gone when the pool has unloaded it and its last sequence has
// ended. The engine's thread alone reads and writes what is not const.
struct ServedAdapter {
  const std::string name;
  // The number of this load in the engine's life, which a later load under the same name does not share; at least 1.
  // Keys and values in the prefix cache belong to it.
  const std::int64_t number;
  const std::shared_ptr<const Adapter> content;
  const bool pinned = false;  // its slot is not given to another adapter

  std::int64_t slot = -1;    // on the device; -1: none
  std::int64_t running = 0;  // running sequences that use the slot
  bool unloaded = false;     // no new request can name it
};

}  // namespace tessera
