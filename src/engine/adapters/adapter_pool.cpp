#include "tessera/engine/adapters/adapter_pool.h"

#include <fmt/format.h>

#include <utility>

namespace tessera {

Status AdapterPool::check_served() const {
  if (slots_.count() > 0) return ok_status();
  return unimplemented("the engine serves no adapters; enable_lora at its start lets it");
}

Status AdapterPool::check(const AdapterLoad& load) const {
  TRY(check_served());
  if (load.name.empty()) return invalid_argument("lora_name: an adapter has a name of at least one character");
  const auto found = adapters_.find(load.name);
  if (found != adapters_.end() && !load.replace)
    return invalid_argument(
        fmt::format("lora_name: an adapter \"{}\" is loaded already, from {}; load_inplace replaces it", load.name,
                    found->second->content->path()));
  std::int64_t pinned = load.pinned ? 1 : 0;
  for (const auto& [name, adapter] : adapters_) pinned += adapter->pinned && name != load.name ? 1 : 0;
  if (pinned >= slots_.count() && load.pinned)
    return invalid_argument(
        fmt::format("pinned: {} adapters would be pinned, and there are {} slots (max_loras_per_batch), of which one "
                    "must stay free "
                    "for others",
                    pinned, slots_.count()));
  return ok_status();
}

Status AdapterPool::load(const AdapterLoad& load, std::shared_ptr<const Adapter> content) {
  TRY(check(load));
  std::shared_ptr<ServedAdapter>& place = adapters_[load.name];
  if (place != nullptr) drop(*place);
  place = std::make_shared<ServedAdapter>(ServedAdapter{.name = load.name,
                                                        .number = next_number_++,
                                                        .content = std::move(content),
                                                        .pinned = load.pinned,
                                                        .earlier_loads = loads_[load.name]++});
  return ok_status();
}

Result<std::weak_ptr<const ServedAdapter>> AdapterPool::unload(std::string_view name) {
  TRY(check_served());
  const auto found = adapters_.find(name);
  if (found == adapters_.end())
    return not_found(fmt::format("lora_name: no adapter \"{}\" is loaded; loaded: {}", name, names()));
  const std::shared_ptr<ServedAdapter> adapter = std::move(found->second);
  adapters_.erase(found);
  drop(*adapter);
  return std::weak_ptr<const ServedAdapter>(adapter);
}

Result<std::shared_ptr<ServedAdapter>> AdapterPool::find(std::string_view name) const {
  if (name.empty()) return std::shared_ptr<ServedAdapter>();
  const auto found = adapters_.find(name);
  if (found != adapters_.end()) return found->second;
  if (slots_.count() == 0)
    return invalid_argument(fmt::format("adapter \"{}\": the engine serves none (enable_lora)", name));
  return not_found(fmt::format("no adapter \"{}\" is loaded; loaded: {}", name, names()));
}

std::vector<AdapterInfo> AdapterPool::list() const {
  std::vector<AdapterInfo> infos;
  for (const auto& [name, adapter] : adapters_)
    infos.push_back({.name = name,
                     .path = adapter->content->path(),
                     .rank = adapter->content->rank(),
                     .pinned = adapter->pinned,
                     .running = adapter->running,
                     .on_device = adapter->slot >= 0});
  return infos;
}

void AdapterPool::drop(ServedAdapter& adapter) {
  adapter.unloaded = true;
  slots_.unload(adapter);
}

std::string AdapterPool::names() const {
  std::string names;
  for (const auto& [name, adapter] : adapters_) names += (names.empty() ? "" : ", ") + name;
  return names.empty() ? "none" : names;
}

}  // namespace tessera
