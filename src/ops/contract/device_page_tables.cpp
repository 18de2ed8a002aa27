#include "tessera/ops/contract/device_page_tables.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "tessera/ops/contract/step_buffer.h"

namespace tessera {

DevicePageTables::DevicePageTables(const PlanLimits& limits, std::int64_t num_pages)
    : num_pages_(num_pages),
      page_size_(limits.page_size),
      row_entries_(static_cast<std::size_t>(limits.max_pages_per_request)),
      check_all_(limits.check_page_tables),
      rows_(static_cast<std::size_t>(limits.max_requests)),
      mirror_(rows_.size() * row_entries_) {}

std::int64_t DevicePageTables::bytes_needed(const PlanLimits& limits) {
  return kSkew + limits.max_requests * limits.max_pages_per_request * static_cast<std::int64_t>(sizeof(std::int32_t));
}

Result<DevicePageTables> DevicePageTables::create(Device& device, const PlanLimits& limits, std::int64_t num_pages) {
  DevicePageTables tables(limits, num_pages);
  tables.memory_ = TRY(device.allocate(static_cast<std::size_t>(bytes_needed(limits)), "attention's page table"));
  return tables;
}

DevicePageTables::Row DevicePageTables::known(std::size_t b, const PageTable& table) const {
  const bool same = table.number != PageTableNumber{} && rows_[b].number == table.number;
  return same ? rows_[b] : Row{.number = table.number};
}

Status DevicePageTables::check(std::size_t b, const PageTable& table, std::int64_t kv_len) const {
  const std::size_t count = table.pages.size();
  if (count > row_entries_)
    return resource_exhausted(fmt::format("{} pages; the plan was made for {}", count, row_entries_));
  if (static_cast<std::int64_t>(count) * page_size_ < kv_len)
    return internal_error(
        fmt::format("{} pages of {} tokens do not hold the request's {} tokens", count, page_size_, kv_len));
  for (std::size_t i = known(b, table).size; i < count; ++i) {
    const std::int32_t page = table.pages[i].value();
    if (page < 0 || page >= num_pages_)
      return internal_error(fmt::format("page {} is outside the cache's {}", page, num_pages_));
  }
  return check_all_ ? check_unchanged(b, table) : ok_status();
}

// Checks that the entries before first_held are page 0. If the table is the one that the device has, also checks that
// first_held did not decrease and that no entry from first_held on differs from the device's.
Status DevicePageTables::check_unchanged(std::size_t b, const PageTable& table) const {
  const Row row = known(b, table);
  const auto first_held = static_cast<std::size_t>(table.first_held);
  if (first_held < row.first_held)
    return internal_error(fmt::format("the first {} entries were page 0, and now {} are", row.first_held, first_held));
  for (std::size_t i = 0; i < table.pages.size(); ++i) {
    const std::int32_t page = table.pages[i].value();
    if (i < first_held && page != 0)
      return internal_error(fmt::format("entry {} is page {}, and the first {} should be page 0", i, page, first_held));
    const std::int32_t before = mirror_[b * row_entries_ + i];
    if (i >= first_held && i < row.size && page != before)
      return internal_error(fmt::format("entry {} was page {} and is page {}, although the table's number is unchanged",
                                        i, before, page));
  }
  return ok_status();
}

// Writes the table to the mirror, which is the host's copy of the device's tables, and returns the range of entries
// that changed.
DevicePageTables::Range DevicePageTables::write(std::size_t b, const PageTable& table) {
  Row& row = rows_[b];
  row = known(b, table);
  const std::size_t begin = b * row_entries_;
  Range changed{.begin = begin + row.size, .end = begin + row.size};
  const std::size_t left = std::min(static_cast<std::size_t>(table.first_held), row.size);
  if (left > row.first_held) {
    std::fill_n(mirror_.begin() + static_cast<std::ptrdiff_t>(begin + row.first_held), left - row.first_held, 0);
    changed = {.begin = begin + row.first_held, .end = begin + left};
  }
  if (table.pages.size() > row.size) {
    for (std::size_t i = row.size; i < table.pages.size(); ++i) mirror_[begin + i] = table.pages[i].value();
    row.size = table.pages.size();
    changed.end = begin + row.size;
  }
  row.first_held = static_cast<std::size_t>(table.first_held);
  return changed;
}

Status DevicePageTables::upload(Range range, Stream& stream) const {
  if (range.begin == range.end) return ok_status();
  return stream.upload(start() + range.begin * sizeof(std::int32_t), mirror_.data() + range.begin,
                       (range.end - range.begin) * sizeof(std::int32_t));
}

Status DevicePageTables::update(std::span<const PageTable> tables, std::span<const std::int32_t> kv_lens,
                                Stream& stream) {
  for (std::size_t b = 0; b < tables.size(); ++b) {
    if (Status status = check(b, tables[b], kv_lens[b]); !status.ok()) [[unlikely]]
      return std::move(status).with_context(fmt::format("request {}", b));
  }
  const bool all = !std::exchange(uploaded_, false);
  Range next;  // the changes to upload; changes in rows that are near each other are merged
  for (std::size_t b = 0; b < tables.size(); ++b) {
    const Range changed = write(b, tables[b]);
    if (changed.begin == changed.end || all) continue;
    if (next.end > 0 && (changed.begin - next.end) * sizeof(std::int32_t) > StepBuffer::kMaxGap) {
      TRY(upload(next, stream));
      next = {};
    }
    next = {.begin = next.end == 0 ? changed.begin : next.begin, .end = changed.end};
  }
  TRY(upload(all ? Range{.begin = 0, .end = mirror_.size()} : next, stream));
  uploaded_ = true;
  return ok_status();
}

}  // namespace tessera
