#include "tessera/runner/memory/kv_storage.h"

#include <fmt/format.h>

#include "tessera/device/alignment.h"

namespace tessera {
namespace {

// Returns the index of the state's cache group. Fails if the state belongs to no group, or if the index is not below
// `groups`.
Result<std::size_t> group_of(std::size_t groups, const ir::Value& state) {
  const std::optional<std::size_t> group = ir::cache_group_of(state.type);
  if (group && *group < groups) return *group;
  return invalid_argument(
      fmt::format("%{} is {}, of none of the graph's {} cache groups", state.name, state.type.to_string(), groups));
}

Result<std::int64_t> state_bytes(const ir::Value& state, std::size_t group, std::int64_t num_pages) {
  ir::Bucket bucket;
  bucket[ir::page_symbol(group)] = num_pages;
  return ir::size_bytes(state.type, bucket).with_context("%" + state.name);
}

}  // namespace

Result<std::vector<std::int64_t>> KvStorage::page_bytes(std::span<const ir::Graph* const> graphs) {
  std::vector<std::int64_t> bytes(graphs[0]->cache_groups.size());
  for (const ir::Graph* graph : graphs) {
    for (const ir::ValueId id : graph->states) {
      const ir::Value& state = graph->value(id);
      const std::size_t group = TRY(group_of(graphs[0]->cache_groups.size(), state));
      bytes[group] += TRY(state_bytes(state, group, 1));
    }
  }
  return bytes;
}

Result<KvStorage> KvStorage::create(std::span<const ir::Graph* const> graphs, std::span<const std::int64_t> num_pages,
                                    Device& device, Stream& stream) {
  if (num_pages.size() != graphs[0]->cache_groups.size())
    return internal_error(
        fmt::format("pages of {} cache groups for a graph with {}", num_pages.size(), graphs[0]->cache_groups.size()));
  KvStorage storage;
  storage.num_pages_.assign(num_pages.begin(), num_pages.end());
  std::vector<std::int64_t> offsets;
  std::int64_t total = 0;
  for (const ir::Graph* graph : graphs) {
    for (const ir::ValueId id : graph->states) {
      const ir::Value& state = graph->value(id);
      const std::size_t group = TRY(group_of(graphs[0]->cache_groups.size(), state));
      offsets.push_back(total);
      total += align_up(TRY(state_bytes(state, group, num_pages[group])));
      const std::int64_t page_bytes = TRY(state_bytes(state, group, 1));
      storage.states_.push_back({.name = state.name, .group = group, .address = {}, .page_bytes = page_bytes});
    }
  }
  storage.memory_ = TRY(device.allocate(static_cast<std::size_t>(total), "KV cache"));
  for (std::size_t i = 0; i < offsets.size(); ++i) {
    State& state = storage.states_[i];
    state.address = storage.memory_->data() + offsets[i];
    TRY(stream.fill(state.address, 0, static_cast<std::size_t>(state.page_bytes)));
  }
  return storage;
}

void KvStorage::add_to(ExternalValues& externals) const {
  for (const State& state : states_) externals.add(state.name, state.address);
}

Status KvStorage::fill(std::size_t group, PageId first, std::int64_t count, std::uint8_t value, Stream& stream) const {
  for (const State& state : states_) {
    if (state.group != group) continue;
    TRY(stream.fill(state.address + first.value() * state.page_bytes, value,
                    static_cast<std::size_t>(count * state.page_bytes)));
  }
  return ok_status();
}

Status KvStorage::copy(const SlotCopy& copy, Stream& stream) const {
  for (const State& state : states_) {
    if (state.group != copy.group) continue;
    TRY(stream.copy(state.address + copy.to.value() * state.page_bytes,
                    state.address + copy.from.value() * state.page_bytes, static_cast<std::size_t>(state.page_bytes)));
  }
  return ok_status();
}

}  // namespace tessera
