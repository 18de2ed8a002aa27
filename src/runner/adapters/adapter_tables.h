// Holds, in device memory, the matrices of the adapters that are in use. A slot holds one adapter. Every linear that
// adapters may change (AdapterLayout) has tables (AdapterTable), which have one entry for each slot. Forwards with
// adapters read the tables. The engine chooses the slot of each adapter (engine/adapters/adapter_pool.h).
//
// Threads: only the runner's thread calls these functions.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "tessera/base/status.h"
#include "tessera/device/device.h"
#include "tessera/model/adapters/adapter_layout.h"
#include "tessera/model/adapters/adapter_share.h"
#include "tessera/piecewise/external_values.h"
#include "tessera/runner/adapters/adapted_graphs.h"

namespace tessera {

class AdapterTables {
 public:
  // Allocates the tables, and enqueues a fill on `stream` that empties all slots. `layout` must outlive the tables.
  static Result<std::unique_ptr<AdapterTables>> create(const AdapterLayout& layout, Device& device, Stream& stream);
  // Returns the device memory that the tables take, in bytes.
  static Result<std::int64_t> bytes_needed(const AdapterLayout& layout);

  void add_to(ExternalValues& externals) const;
  const AdapterLayout& layout() const { return layout_; }
  std::int64_t num_slots() const { return layout_.limits().slots; }
  std::int64_t bytes() const { return static_cast<std::int64_t>(memory_->size()); }

  // Copies this rank's share of an adapter, the part that this rank needs, to a slot. Forwards that were enqueued
  // before still read the slot's old content. Forwards that are enqueued later read the new content. Returns kInternal
  // if the slot does not exist. `share` must live until the stream has completed the copies.
  Status write(std::int64_t slot, const AdapterShare& share, Stream& stream);
  // Fills every slot with small pseudo-random numbers. Each slot then seems to hold an adapter of the largest rank. If
  // adapters may replace whole matrices (ops/adapters/adapter_whole.h), each of these adapters replaces all of the
  // matrices. The oracle (verify/verify.h) and measurements use this. Asynchronous on `stream`. Precondition: no slot
  // is in use.
  Status fill_at_random(Stream& stream);

 private:
  // The offsets of one linear's tables, in bytes from the start of the memory, indexed by AdapterTable.
  using Place = std::array<std::size_t, kNumAdapterTables>;
  struct Places {
    std::vector<Place> linears;
    std::size_t numbers = 0;  // offset of the ranks and scales of all linears, which are contiguous
    std::size_t bytes = 0;
  };
  static Result<Places> places_of(const AdapterLayout& layout);
  AdapterTables(const AdapterLayout& layout, Places places, std::unique_ptr<Allocation> memory);

  const AdapterLayout& layout_;
  Places places_;
  std::unique_ptr<Allocation> memory_;
  std::vector<std::byte> numbers_;  // the host's copy of ranks and scales
};

}  // namespace tessera
