// The low-rank adapters that requests may name, as the server's threads see them.
//
// Threads: any.
#pragma once

#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/device/device.h"
#include "tessera/model/adapters/adapter_layout.h"

namespace tessera {

class ServedAdapters {
 public:
  // What Adapter::load() needs; both outlive the object.
  ServedAdapters(const AdapterLayout& layout, Device& device) : layout_(layout), device_(device) {}

  const AdapterLayout& layout() const { return layout_; }
  Device& device() const { return device_; }

  bool has(std::string_view name) const;
  void add(std::string name, std::string path);
  void remove(std::string_view name);
  std::map<std::string, std::string> all() const;  // paths by name
  // Returns a JSON object of all names and paths.
  std::string json() const;

 private:
  const AdapterLayout& layout_;
  Device& device_;
  mutable std::mutex mutex_;
  std::map<std::string, std::string, std::less<>> paths_;
};

}  // namespace tessera
