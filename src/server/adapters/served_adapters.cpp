#include "tessera/server/adapters/served_adapters.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <utility>

#include "tessera/base/json.h"
#include "tessera/engine/engine.h"

namespace tessera {

namespace fs = std::filesystem;

Result<std::shared_ptr<ServedAdapters>> ServedAdapters::create(const AdapterLayout& layout, Device& device,
                                                               const std::string& folder) {
  std::error_code error;
  const fs::path real = folder.empty() ? fs::path() : fs::canonical(folder, error);
  if (error || (!folder.empty() && !fs::is_directory(real, error)))
    return invalid_argument(fmt::format("--lora-folder: {} is no folder", folder));
  return std::shared_ptr<ServedAdapters>(new ServedAdapters(layout, device, real.string()));
}

void ServedAdapters::add_devices(std::span<Engine* const> engines) {
  for (const Engine* engine : engines) devices_.push_back(&engine->device());
}

Result<std::string> ServedAdapters::allowed_path(const std::string& path) const {
  if (folder_.empty()) return path;
  const fs::path folder(folder_);
  std::error_code error;
  // For an absolute `path`, `folder / path` equals `path`.
  const fs::path real = fs::weakly_canonical(folder / path, error);
  const auto differs = std::ranges::mismatch(folder, real);
  if (!error && differs.in1 == folder.end()) return real.string();
  return invalid_argument(
      fmt::format("{} is outside of the folder from which adapters are loaded; accepted: a folder "
                  "in {} (--lora-folder)",
                  path, folder_));
}

bool ServedAdapters::has(std::string_view name) const {
  const std::scoped_lock lock(mutex_);
  return paths_.find(name) != paths_.end();
}

void ServedAdapters::add(std::string name, std::string path) {
  const std::scoped_lock lock(mutex_);
  paths_[std::move(name)] = std::move(path);
}

void ServedAdapters::remove(std::string_view name) {
  const std::scoped_lock lock(mutex_);
  if (const auto found = paths_.find(name); found != paths_.end()) paths_.erase(found);
}

std::map<std::string, std::string> ServedAdapters::all() const {
  const std::scoped_lock lock(mutex_);
  return {paths_.begin(), paths_.end()};
}

std::string ServedAdapters::json() const {
  Json paths = Json::object();
  for (const auto& [name, path] : all()) paths.set(name, path);
  return paths.dump();
}

}  // namespace tessera
