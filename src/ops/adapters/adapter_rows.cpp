#include "tessera/ops/adapters/adapter_rows.h"

#include <vector>

namespace tessera {
namespace {

// Returns a list with each slot's first index in `order`. The list's last entry is the number of rows with an adapter.
// Precondition: at least one row has an adapter.
std::vector<std::int32_t> begins_of(std::span<const std::int32_t> slots) {
  std::vector<std::int32_t> begins(static_cast<std::size_t>(std::ranges::max(slots)) + 2);
  for (const std::int32_t slot : slots)
    if (slot >= 0) ++begins[static_cast<std::size_t>(slot) + 1];
  for (std::size_t i = 1; i < begins.size(); ++i) begins[i] += begins[i - 1];
  return begins;
}

}  // namespace

void write_adapter_rows(std::span<const std::int32_t> slots, std::size_t padded, std::byte* to) {
  const std::span<std::int32_t> all(reinterpret_cast<std::int32_t*>(to),
                                    static_cast<std::size_t>(kAdapterRowLists) * padded);
  const auto list = [&](std::size_t i) { return all.subspan(i * padded, padded); };
  std::ranges::fill(all, 0);
  std::ranges::fill(list(0), -1);
  std::ranges::copy(slots, list(0).begin());
  std::ranges::fill(list(2), -1);
  if (std::ranges::all_of(slots, [](std::int32_t slot) { return slot < 0; })) return;

  const std::vector<std::int32_t> begins = begins_of(slots);
  std::vector<std::int32_t> next = begins;
  for (std::size_t row = 0; row < slots.size(); ++row)
    if (slots[row] >= 0)
      list(1)[static_cast<std::size_t>(next[static_cast<std::size_t>(slots[row])]++)] = static_cast<std::int32_t>(row);

  const auto most = static_cast<std::int32_t>(adapter_chunk_rows(static_cast<std::int64_t>(padded)));
  std::size_t chunk = 0;
  for (std::size_t slot = 0; slot + 1 < begins.size(); ++slot)
    for (std::int32_t begin = begins[slot]; begin < begins[slot + 1]; begin += most, ++chunk) {
      list(2)[chunk] = static_cast<std::int32_t>(slot);
      list(3)[chunk] = begin;
      list(4)[chunk] = std::min(most, begins[slot + 1] - begin);
    }
}

}  // namespace tessera
