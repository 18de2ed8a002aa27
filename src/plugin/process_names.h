// The additions of plugins in this process, by name. Declarations and kernel definitions are plain functions that get
// only the node, the device or the config; by its name they find the plugin's table here. Registries that load the same
// library share its entries. A second library cannot claim a name while the first is loaded. Thread-safe.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>

namespace tessera::plugin {

template <class T>
class ProcessNames {
 public:
  // Returns the entry that was made from `table` before, or a new one from `make`. Null if another table has the name.
  std::shared_ptr<T> add(std::string_view name, const void* table, const std::function<std::shared_ptr<T>()>& make) {
    const std::lock_guard lock(mutex_);
    Entry& entry = entries_[std::string(name)];
    if (std::shared_ptr<T> known = entry.value.lock()) return entry.table == table ? known : nullptr;
    std::shared_ptr<T> made = make();
    entry = {.table = table, .value = made};
    return made;
  }

  // Null if there is no such entry.
  std::shared_ptr<T> find(std::string_view name) const {
    const std::lock_guard lock(mutex_);
    const auto entry = entries_.find(name);
    return entry == entries_.end() ? nullptr : entry->second.value.lock();
  }

 private:
  struct Entry {
    const void* table = nullptr;
    std::weak_ptr<T> value{};
  };
  mutable std::mutex mutex_;
  std::map<std::string, Entry, std::less<>> entries_;
};

}  // namespace tessera::plugin
