// The page table of one request in one cache group, as a batch shows it to plans: borrowed from its owner, with a
// number by which a plan that keeps a copy on the device knows what it has already.
#pragma once

#include <cstdint>
#include <span>

#include "tessera/base/strong_id.h"

namespace tessera {

// Names a table while it only grows; 0: none.
using PageTableNumber = StrongId<struct PageTableNumberTag, std::uint64_t>;

// Never given out before in this process. Any thread may call it.
PageTableNumber new_page_table_number();

// Two tables of one number have the same entries as far as both reach, but for the first ones, which become page 0: the
// later table may be longer, and its first_held greater. An owner that changes an entry in any other way takes a new
// number. Tables without one are copied whole for every forward.
struct PageTable {
  std::span<const PageId> pages;  // position p lies in page p / page_size; valid until the forward was submitted
  std::int64_t first_held = 0;    // the entries before it are page 0: all rows have left the window
  PageTableNumber number{};
};

}  // namespace tessera
