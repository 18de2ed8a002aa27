// The page tables of a forward's requests in device memory, a row for each. A row remembers whose table it is and how
// much of it the device has, so that a forward's work is what changed: the pages added since the last forward, and the
// rows that another request's table takes.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "tessera/base/status.h"
#include "tessera/device/device.h"
#include "tessera/ops/contract/forward_batch.h"

namespace tessera {

class DevicePageTables {
 public:
  // Preconditions: limits of at least one request, page for each and token in a page. Page ids are below `num_pages`.
  static Result<DevicePageTables> create(Device& device, const PlanLimits& limits, std::int64_t num_pages);
  // What create() will take of the device's memory.
  static std::int64_t bytes_needed(const PlanLimits& limits);

  // Makes the first rows the tables, [B], of requests with `kv_lens` tokens each; the other rows stay as they are. In
  // the order of `stream`; the tables are not read later. New entries are checked: kInternal for a page outside the
  // cache and a table too short, kResourceExhausted for one too long; nothing was changed then. After an error of an
  // upload the next call uploads all rows. Precondition: at most as many tables as limits.max_requests. Allocates
  // nothing.
  Status update(std::span<const PageTable> tables, std::span<const std::int32_t> kv_lens, Stream& stream);

  // i32[max_requests, max_pages_per_request] in device memory, fixed; its start is aligned to an entry and no more.
  // Before the first update() of undefined content; past a table's end the entries are pages of the cache.
  const std::int32_t* data() const { return reinterpret_cast<const std::int32_t*>(start().raw()); }
  std::int64_t bytes() const { return static_cast<std::int64_t>(memory_->size()); }

 private:
  struct Row {
    PageTableNumber number{};
    std::size_t size = 0;  // entries
    std::size_t first_held = 0;
  };
  // Bytes before the first row: half of what a GPU reads at once (a sector, 32 bytes, 8 entries). FlashInfer's decode
  // asks for the entries of 128 keys at a time, 8 pages of 16 tokens. Where these are exactly a sector, each request
  // for them waits on its own; where they straddle two, the first half has come with the entries before. A step of
  // Qwen3-0.6B with 8 requests of 1024 tokens takes 1.7 % less time (docs/benchmarks.md).
  static constexpr std::int64_t kSkew = 16;
  struct Range {  // of entries
    std::size_t begin = 0;
    std::size_t end = 0;
  };

  DevicePageTables(const PlanLimits& limits, std::int64_t num_pages);
  // What the row has of the table; nothing where it has another one.
  Row known(std::size_t b, const PageTable& table) const;
  Status check(std::size_t b, const PageTable& table, std::int64_t kv_len) const;
  Status check_unchanged(std::size_t b, const PageTable& table) const;
  Range write(std::size_t b, const PageTable& table);
  Status upload(Range range, Stream& stream) const;
  DeviceAddress start() const { return memory_->data() + kSkew; }

  std::int64_t num_pages_;
  std::int64_t page_size_;
  std::size_t row_entries_;
  bool check_all_;
  std::vector<Row> rows_;             // [max_requests]
  std::vector<std::int32_t> mirror_;  // of the device's memory
  std::unique_ptr<Allocation> memory_;
  bool uploaded_ = false;  // the device has the mirror
};

}  // namespace tessera
