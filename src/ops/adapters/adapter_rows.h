// This table tells the adapter operators which adapter each row has. The host writes the table for each forward. Rows
// of one slot may be anywhere in the batch, but are neighbours in the table's list `order`. A chunk is a range of
// `order` that one thread block processes.
//
//   rows i32[5, T], where T is the number of rows, padding included:
//     slots         [T]  the slot of each row; negative: the row has no adapter
//     order         [T]  the rows with an adapter, rows of one slot together; undefined past the last one
//     chunk_slots   [T]  the slot of each chunk; -1 past the last chunk
//     chunk_begins  [T]  where a chunk begins in `order`
//     chunk_sizes   [T]  the number of rows in a chunk, 1 to adapter_chunk_rows(T); 0 past the last chunk
//
// All rows of a chunk have one slot. There are at most max_adapter_chunks(T, slots) chunks.
// From row to row the slot changes at most PlanLimits::max_requests times, because the rows of each request are
// neighbours or because there are at most max_requests rows.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

namespace tessera {

inline constexpr std::int64_t kAdapterRowLists = 5;

// Returns the maximum number of rows in a chunk. One thread block processes a chunk. `rows` is T.
constexpr std::int64_t adapter_chunk_rows(std::int64_t rows) {
  if (rows <= 8) return 8;
  if (rows <= 1024) return 16;
  return rows <= 4096 ? 32 : 64;
}
constexpr std::int64_t max_adapter_chunks(std::int64_t rows, std::int64_t slots) {
  return std::min(rows, rows / adapter_chunk_rows(rows) + std::min(slots, rows));
}

// Writes the table of `padded` rows to `to`, which is aligned for i32. Rows past slots.size() have no adapter.
// Precondition: slots.size() <= padded.
void write_adapter_rows(std::span<const std::int32_t> slots, std::size_t padded, std::byte* to);

// Points to the lists of a table.
struct AdapterRows {
  const std::int32_t* slots = nullptr;
  const std::int32_t* order = nullptr;
  const std::int32_t* chunk_slots = nullptr;
  const std::int32_t* chunk_begins = nullptr;
  const std::int32_t* chunk_sizes = nullptr;

  static AdapterRows of(const std::int32_t* table, std::int64_t rows) {
    return {.slots = table,
            .order = table + rows,
            .chunk_slots = table + 2 * rows,
            .chunk_begins = table + 3 * rows,
            .chunk_sizes = table + 4 * rows};
  }
};

}  // namespace tessera
