// The page table of one request in one cache group. A batch borrows it from its owner and passes it to plans. A plan
// that keeps a copy on the device knows by the table's number which entries it already has.
#pragma once

#include <cstdint>
#include <span>

#include "tessera/base/strong_id.h"

namespace tessera {

// Identifies a table as long as it only grows; 0 means no number.
using PageTableNumber = StrongId<struct PageTableNumberTag, std::uint64_t>;

// Returns a number that this process has not used before. Any thread may call it.
PageTableNumber new_page_table_number();

// Two tables with the same number have equal entries up to the shorter length, except that the first entries may have
// become page 0: the later table may be longer, and its first_held greater. An owner that changes an entry in any other
// way must take a new number. A table without a number is copied completely for every forward.
struct PageTable {
  std::span<const PageId> pages;  // position p lies in page p / page_size; valid until the forward was submitted
  std::int64_t first_held = 0;    // entries before it are page 0, because all their rows have left the window
  PageTableNumber number{};
};

}  // namespace tessera
