// The adapters that requests can name. Their matrices are in host memory; the slots of the device hold those in use
// (adapter_slots.h).
//
// Threads: the engine's thread.
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

// How an adapter is loaded.
struct AdapterLoad {
  std::string name;      // what requests name
  bool pinned = false;   // keeps its slot once it has one
  bool replace = false;  // takes the place of a loaded adapter of the same name
};

// One adapter, for reports.
struct AdapterInfo {
  std::string name;
  std::string path;
  std::int64_t rank = 0;  // the largest of its modules
  bool pinned = false;
  std::int64_t running = 0;  // running requests that use it
  bool on_device = false;
};

class AdapterPool {
 public:
  // `slots` must outlive the pool.
  explicit AdapterPool(AdapterSlots& slots) : slots_(slots) {}

  // Checks a name without loading: it is neither empty nor taken, unless it is to be replaced, and a pinned adapter
  // leaves a slot for others. invalid_argument otherwise; unimplemented if no adapters are served.
  Status check(const AdapterLoad& load) const;
  // Makes an adapter available, with the errors of check(). Requests that use a replaced one finish with it.
  Status load(const AdapterLoad& load, std::shared_ptr<const Adapter> content);
  // Lets no further request name the adapter. Returns a pointer that expires when its last request has ended. not_found
  // for an unknown name.
  Result<std::weak_ptr<const ServedAdapter>> unload(std::string_view name);

  // Returns the adapter of a request; null for an empty name. The errors name the adapters that are loaded.
  Result<std::shared_ptr<ServedAdapter>> find(std::string_view name) const;
  std::vector<AdapterInfo> list() const;  // by name

 private:
  Status check_served() const;
  std::string names() const;
  void drop(ServedAdapter& adapter);

  AdapterSlots& slots_;
  std::map<std::string, std::shared_ptr<ServedAdapter>, std::less<>> adapters_;
  std::int64_t next_number_ = 1;
};

}  // namespace tessera
