// The low-rank adapters (LoRA) that requests can name. Their matrices are in host memory. The adapters in use also have
// slots on the device (adapter_slots.h).
//
// Only the engine's thread uses this class.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/base/status.h"
#include "tessera/engine/adapters/adapter_slots.h"
#include "tessera/engine/adapters/served_adapter.h"

namespace tessera {

// Says how an adapter is loaded.
struct AdapterLoad {
  std::string name;      // the name that requests use
  bool pinned = false;   // the adapter keeps its slot once it has one
  bool replace = false;  // the adapter replaces a loaded one of the same name
};

// One adapter, for reports.
struct AdapterInfo {
  std::string name;
  std::string path;
  std::int64_t rank = 0;  // largest rank of the adapter's modules; 0 if the adapter has only whole matrices
  bool pinned = false;
  std::int64_t running = 0;  // running requests that use the adapter
  bool on_device = false;
};

class AdapterPool {
 public:
  // `slots` must outlive the pool.
  explicit AdapterPool(AdapterSlots& slots) : slots_(slots) {}

  // Checks a load before the adapter is read. The name must not be empty, `replace` must be set if the name is in use,
  // and a pinned adapter must leave a slot for other adapters. Returns invalid_argument if one of these conditions does
  // not hold, and unimplemented if the engine serves no adapters.
  Status check(const AdapterLoad& load) const;
  // Makes an adapter available under its name. Returns the errors of check(). If the adapter replaces a loaded adapter,
  // requests that already use the replaced adapter keep it to their end.
  Status load(const AdapterLoad& load, std::shared_ptr<const Adapter> content);
  // Removes an adapter, so that no new request can name it. Returns a pointer that expires when the last request that
  // uses the adapter has ended. Returns not_found for an unknown name.
  Result<std::weak_ptr<const ServedAdapter>> unload(std::string_view name);

  // Returns the adapter that a request names, or null for an empty name. The error for an unknown name lists the loaded
  // adapters.
  Result<std::shared_ptr<ServedAdapter>> find(std::string_view name) const;
  std::vector<AdapterInfo> list() const;  // sorted by name

 private:
  Status check_served() const;
  std::string names() const;
  void drop(ServedAdapter& adapter);

  AdapterSlots& slots_;
  std::map<std::string, std::shared_ptr<ServedAdapter>, std::less<>> adapters_;
  std::int64_t next_number_ = 1;
  std::map<std::string, std::int64_t> loads_;  // number of loads under each name, unloaded adapters included
};

}  // namespace tessera
