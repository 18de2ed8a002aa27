// The names and paths of the low-rank adapters that requests may use, shared by the server's threads.
//
// Threads: any thread may call every function.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tessera/base/status.h"
#include "tessera/device/device.h"
#include "tessera/model/adapters/adapter_layout.h"

namespace tessera {

class Engine;

class ServedAdapters {
 public:
  // Requests may load only adapters in `folder` or below it. If `folder` is "", they may load adapters from anywhere.
  // `layout` and `device` belong to the engine and must outlive this object, because Adapter::load() needs them.
  // Returns invalid_argument if `folder` is not a folder.
  static Result<std::shared_ptr<ServedAdapters>> create(const AdapterLayout& layout, Device& device,
                                                        const std::string& folder);

  // Returns the path of an adapter that a request names. If there is an allowed folder, relative paths are relative to
  // it, and the result is absolute. Returns invalid_argument for a path that leads outside the folder, whether
  // directly, by ".." or by a link.
  Result<std::string> allowed_path(const std::string& path) const;

  const AdapterLayout& layout() const { return layout_; }
  // Adds the devices of further engines, which have the same adapter layout as the first engine. Called before the
  // engines get their threads.
  void add_devices(std::span<Engine* const> engines);
  // The devices of all engines. Each engine gets its own copy of an adapter, in host memory that belongs to the
  // engine's device. The device outlives this copy.
  const std::vector<Device*>& devices() const { return devices_; }

  bool has(std::string_view name) const;
  void add(std::string name, std::string path);
  void remove(std::string_view name);
  std::map<std::string, std::string> all() const;  // maps names to paths
  // Returns a JSON object of all names and paths.
  std::string json() const;

 private:
  ServedAdapters(const AdapterLayout& layout, Device& device, std::string folder)
      : layout_(layout), devices_{&device}, folder_(std::move(folder)) {}

  const AdapterLayout& layout_;
  std::vector<Device*> devices_;
  const std::string folder_;  // the allowed folder, with links resolved; "": every folder is allowed
  mutable std::mutex mutex_;
  std::map<std::string, std::string, std::less<>> paths_;
};

}  // namespace tessera
