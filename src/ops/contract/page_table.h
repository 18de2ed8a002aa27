// The page table of one request for one cache group, which is a set of layers that share page tables. A batch borrows
// the page table from its owner and passes it to plans. Each table has a number. A plan that keeps a copy of the table
// on the device uses the number to tell which entries the copy already has.
#pragma once

#include <cstdint>
#include <span>

#include "tessera/base/strong_id.h"

namespace tessera {

// Identifies a table. A table keeps its number as long as it changes only as PageTable allows. 0 means that the table
// has no number.
using PageTableNumber = StrongId<struct PageTableNumberTag, std::uint64_t>;

// Returns a number that this process has not used before. Any thread may call it.
PageTableNumber new_page_table_number();

// Two tables with the same number are states of one growing table. The later state may have more entries, and more of
// its first entries may be page 0 (first_held). All other entries are the same. An owner that changes an entry in any
// other way must take a new number. Plans copy a table without a number completely for every forward.
struct PageTable {
  std::span<const PageId> pages;  // position p lies in pages[p / page_size]; valid until the forward was submitted
  std::int64_t first_held = 0;    // entries before this index are page 0, because the window has passed them
  PageTableNumber number{};
};

}  // namespace tessera
