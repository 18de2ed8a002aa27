// Memory of the KV cache: what every state of the model's cache groups takes, [pages, …].
// Which page belongs to which request is the engine's affair (engine/cache/cache_manager.h).
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "tessera/base/status.h"
#include "tessera/device/device.h"
#include "tessera/ir/graph.h"
#include "tessera/ops/contract/forward_batch.h"
#include "tessera/piecewise/external_values.h"

namespace tessera {

class KvStorage {
 public:
  // [cache groups]: bytes that a page, or a state group's slot, takes over all states of the group. kInvalidArgument
  // for a state of no cache group.
  static Result<std::vector<std::int64_t>> page_bytes(const ir::Graph& graph);
  // `num_pages`: [cache groups], at least 1 of each. Page 0 of each is zeroed, so that padding reads finite numbers;
  // others are written before they are read.
  static Result<KvStorage> create(const ir::Graph& graph, std::span<const std::int64_t> num_pages, Device& device,
                                  Stream& stream);

  void add_to(ExternalValues& externals) const;
  // Copies a slot over all states of its group. Asynchronous on `stream`. Precondition: both slots are there.
  Status copy(const SlotCopy& copy, Stream& stream) const;
  // Fills `count` pages from `first` on over all states of the group. Asynchronous on `stream`. Precondition: they are
  // there.
  Status fill(std::size_t group, PageId first, std::int64_t count, std::uint8_t value, Stream& stream) const;
  std::span<const std::int64_t> num_pages() const { return num_pages_; }
  DeviceAddress data() const { return memory_->data(); }
  std::int64_t bytes() const { return static_cast<std::int64_t>(memory_->size()); }

 private:
  struct State {
    std::string name;
    std::size_t group;
    DeviceAddress address;
    std::int64_t page_bytes;
  };

  std::vector<std::int64_t> num_pages_;
  std::unique_ptr<Allocation> memory_;
  std::vector<State> states_;
};

}  // namespace tessera
