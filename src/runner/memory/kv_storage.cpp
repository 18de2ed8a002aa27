#include "tessera/runner/memory/kv_storage.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

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
  for (const ir::Graph* graph : graphs) {
    for (const ir::ValueId id : graph->states) {
      const ir::Value& state = graph->value(id);
      const std::size_t group = TRY(group_of(graphs[0]->cache_groups.size(), state));
      const std::int64_t page_bytes = TRY(state_bytes(state, group, 1));
      const std::int64_t bytes = align_up(TRY(state_bytes(state, group, num_pages[group])));
      storage.states_.push_back(
          {.name = state.name, .group = group, .address = {}, .page_bytes = page_bytes, .bytes = bytes});
    }
  }
  std::ranges::stable_sort(storage.states_, {}, [](const State& s) { return std::pair(s.group, s.page_bytes); });
  std::int64_t total = 0;
  for (const State& state : storage.states_) total += state.bytes;
  storage.memory_ = TRY(device.allocate(static_cast<std::size_t>(total), "KV cache"));
  DeviceAddress at = storage.memory_->data();
  for (State& state : storage.states_) {
    state.address = at;
    at += state.bytes;
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
  for (auto first = states_.begin(); first != states_.end();) {
    const auto end = std::find_if(first, states_.end(), [&](const State& s) {
      return s.group != first->group || s.page_bytes != first->page_bytes;
    });
    if (first->group == copy.group)
      TRY(stream.copy_rows(first->address + copy.to.value() * first->page_bytes,
                           first->address + copy.from.value() * first->page_bytes,
                           static_cast<std::size_t>(first->page_bytes), first->bytes, end - first));
    first = end;
  }
  return ok_status();
}

}  // namespace tessera
