// The low-rank adapters that requests may name, as the server's threads see them.
//
// Threads: any.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tessera/base/status.h"
#include "tessera/device/device.h"
#include "tessera/model/adapters/adapter_layout.h"

namespace tessera {

class ServedAdapters {
 public:
  // `layout` and `device`, which Adapter::load() needs, outlive the object. Requests may load adapters that lie in
  // `folder` or below it; "": all. invalid_argument if `folder` is no folder.
  static Result<std::shared_ptr<ServedAdapters>> create(const AdapterLayout& layout, Device& device,
                                                        const std::string& folder);

  // Returns the path of an adapter that a request names. A relative path begins in the allowed folder, if there is one.
  // invalid_argument for a path outside of it, whether by "..", by a link or as it is.
  Result<std::string> allowed_path(const std::string& path) const;

  const AdapterLayout& layout() const { return layout_; }
  Device& device() const { return device_; }

  bool has(std::string_view name) const;
  void add(std::string name, std::string path);
  void remove(std::string_view name);
  std::map<std::string, std::string> all() const;  // paths by name
  // Returns a JSON object of all names and paths.
  std::string json() const;

 private:
  ServedAdapters(const AdapterLayout& layout, Device& device, std::string folder)
      : layout_(layout), device_(device), folder_(std::move(folder)) {}

  const AdapterLayout& layout_;
  Device& device_;
  const std::string folder_;  // without links; "": all are allowed
  mutable std::mutex mutex_;
  std::map<std::string, std::string, std::less<>> paths_;
};

}  // namespace tessera
