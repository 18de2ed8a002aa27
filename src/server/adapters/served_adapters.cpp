#include "tessera/server/adapters/served_adapters.h"

#include <utility>

#include "tessera/base/json.h"

namespace tessera {

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
