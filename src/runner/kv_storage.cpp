#include "tessera/runner/kv_storage.h"

#include "tessera/device/alignment.h"

namespace tessera {
namespace {

Result<std::int64_t> state_bytes(const ir::Value& state, std::int64_t num_pages) {
  ir::Bucket bucket;
  bucket[ir::Symbol::kPages] = num_pages;
  const std::int64_t bytes = TRY(ir::size_bytes(state.type, bucket).with_context("%" + state.name));
  return align_up(bytes);
}

Result<std::int64_t> total_bytes(const ir::Graph& graph, std::int64_t num_pages) {
  std::int64_t total = 0;
  for (const ir::ValueId id : graph.states) total += TRY(state_bytes(graph.value(id), num_pages));
  return total;
}

}  // namespace

Result<std::int64_t> KvStorage::bytes_per_page(const ir::Graph& graph) {
  // Alignment is paid once per state, not per page.
  constexpr std::int64_t kPages = 4096;
  return TRY(total_bytes(graph, kPages)) / kPages;
}

Result<KvStorage> KvStorage::create(const ir::Graph& graph, std::int64_t num_pages, Device& device, Stream& stream) {
  KvStorage storage;
  storage.num_pages_ = num_pages;
  storage.memory_ = TRY(device.allocate(static_cast<std::size_t>(TRY(total_bytes(graph, num_pages))), "KV cache"));
  std::byte* next = storage.memory_->data();
  for (const ir::ValueId id : graph.states) {
    storage.states_.emplace_back(graph.value(id).name, next);
    TRY(stream.fill(next, 0, static_cast<std::size_t>(TRY(state_bytes(graph.value(id), 1)))));
    next += TRY(state_bytes(graph.value(id), num_pages));
  }
  return storage;
}

void KvStorage::add_to(ExternalValues& externals) const {
  for (const auto& [name, address] : states_) externals.add(name, address);
}

}  // namespace tessera
