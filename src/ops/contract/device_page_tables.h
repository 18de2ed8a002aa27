// The page tables of a forward's requests in device memory, one row for each request. For each row, the host records
// which table the row holds and how much of that table is on the device. So a forward uploads only changes: new pages,
// and whole tables where a row now holds another request's table.
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
  // Allocates the tables in device memory. Preconditions: `limits` allows at least one request, one page per request
  // and one token per page. Page ids are below `num_pages`.
  static Result<DevicePageTables> create(Device& device, const PlanLimits& limits, std::int64_t num_pages);
  // Returns the bytes of device memory that create() will allocate.
  static std::int64_t bytes_needed(const PlanLimits& limits);

  // Writes the tables, [B], to the first B rows. The other rows stay as they are. Request b has kv_lens[b] tokens. The
  // upload is enqueued on `stream`. The function does not read `tables` after it has returned. Checks only new entries,
  // or all entries if PlanLimits::check_page_tables is set. Returns kInternal if a page is outside the cache or a table
  // is too short, and kResourceExhausted if a table is too long. After these errors nothing has changed. After an
  // upload error the next call uploads all rows. Precondition: at most limits.max_requests tables. Allocates nothing.
  Status update(std::span<const PageTable> tables, std::span<const std::int32_t> kv_lens, Stream& stream);

  // Returns i32[max_requests, max_pages_per_request] in device memory, at a fixed address. The address is aligned only
  // to the size of one entry. The content is undefined before the first update(). Entries past a table's end are valid
  // page ids.
  const std::int32_t* data() const { return reinterpret_cast<const std::int32_t*>(start().raw()); }
  std::int64_t bytes() const { return static_cast<std::int64_t>(memory_->size()); }

 private:
  struct Row {
    PageTableNumber number{};
    std::size_t size = 0;  // in entries
    std::size_t first_held = 0;
  };
  // Bytes before the first row: half of a sector. A sector is the unit in which a GPU reads, 32 bytes or 8 entries.
  // FlashInfer's decode reads the entries of 8 pages at a time (128 keys in pages of 16 tokens). If these 8 entries
  // were exactly one sector, each read would wait for a new sector. With the skew, the 8 entries lie in two sectors,
  // and the preceding read has already fetched the first of the two. A step of Qwen3-0.6B with 8 requests of 1024
  // tokens takes 1.7 % less time (docs/measurements/redesign.md).
  static constexpr std::int64_t kSkew = 16;
  struct Range {  // in entries
    std::size_t begin = 0;
    std::size_t end = 0;
  };

  DevicePageTables(const PlanLimits& limits, std::int64_t num_pages);
  // Returns the part of `table` that row b already has. The part is empty if the row holds another table.
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
  std::vector<std::int32_t> mirror_;  // host copy of the device's memory
  std::unique_ptr<Allocation> memory_;
  bool uploaded_ = false;  // the device's memory equals the mirror
};

}  // namespace tessera
