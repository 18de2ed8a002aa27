// Memory of the KV cache: keys and values of every layer, [pages, page_size, kv_heads, head_dim].
// Which page belongs to which request is the engine's affair (engine/page_pool.h).
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tessera/base/status.h"
#include "tessera/device/device.h"
#include "tessera/ir/graph.h"
#include "tessera/piecewise/external_values.h"

namespace tessera {

class KvStorage {
 public:
  // Bytes one page takes over all states of `graph` (whose shapes use P, the number of pages).
  static Result<std::int64_t> bytes_per_page(const ir::Graph& graph);
  // Page 0 is zeroed, so that padding reads finite numbers; others are written before they are read.
  static Result<KvStorage> create(const ir::Graph& graph, std::int64_t num_pages, Device& device, Stream& stream);

  void add_to(ExternalValues& externals) const;
  std::int64_t num_pages() const { return num_pages_; }
  std::byte* data() const { return memory_->data(); }
  std::int64_t bytes() const { return static_cast<std::int64_t>(memory_->size()); }

 private:
  std::int64_t num_pages_ = 0;
  std::unique_ptr<Allocation> memory_;
  std::vector<std::pair<std::string, std::byte*>> states_;  // name and address
};

}  // namespace tessera
