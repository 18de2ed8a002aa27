// Holds the memory of the KV cache, which consists of the states of the model's cache groups. A state is a tensor that
// keeps its contents from one forward to the next, for example the keys of one layer. Its shape is [pages, …]. The
// engine decides which page belongs to which request (engine/cache/cache_manager.h).
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
  // For each cache group, returns the bytes that one page takes in all states of the group. In a group of kind kState,
  // a page is the slot of one sequence. Returns kInvalidArgument for a state that belongs to no cache group.
  // Precondition: all graphs have the same cache groups, except for the groups' lists of layers, and no two graphs have
  // a state of the same name.
  static Result<std::vector<std::int64_t>> page_bytes(std::span<const ir::Graph* const> graphs);
  // Allocates the caches. `num_pages` has an entry of at least 1 for each cache group. Page 0 of each group is zeroed,
  // so that padding rows read finite numbers. All other pages are written before they are read.
  static Result<KvStorage> create(std::span<const ir::Graph* const> graphs, std::span<const std::int64_t> num_pages,
                                  Device& device, Stream& stream);

  void add_to(ExternalValues& externals) const;
  // Copies the contents of one slot to another slot, in all states of their group. Asynchronous on `stream`.
  // Precondition: both slots exist.
  Status copy(const SlotCopy& copy, Stream& stream) const;
  // Fills `count` pages, beginning with page `first`, in all states of the group. Asynchronous on `stream`.
  // Precondition: the pages exist.
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
    std::int64_t bytes;  // the size of all pages, aligned, and so the distance to the next state
  };

  std::vector<std::int64_t> num_pages_;
  std::unique_ptr<Allocation> memory_;
  // The states are in the order of their memory. States of one group whose pages have the same size lie next to each
  // other, so that copy() copies a slot of all layers as rows of one copy.
  std::vector<State> states_;
};

}  // namespace tessera
