// Assigns pages to the requests of verify and soak, which have no scheduler. As in the engine, each cache group has a
// pool of its own.
#pragma once

#include <cstdint>
#include <span>

#include "tessera/ir/graph.h"
#include "tessera/ops/contract/forward_batch.h"

namespace tessera {

// A range of neighbouring pages: begin … end - 1.
struct PageRange {
  std::int64_t begin = 0;
  std::int64_t end = 0;
  std::int64_t count() const { return end - begin; }
};

// Returns the pages of the group that a forward touches when it computes rows `computed` … `length` - 1 of a request.
// Page indices count from the request's start. The kind of the group decides the result: all pages, the pages that a
// row's window reaches, or the one slot of a state group.
PageRange pages_touched(const ir::CacheGroup& group, std::int64_t computed, std::int64_t length,
                        std::int64_t page_size);

// Adds the slots of the request's rows. `table` lists the pages from the request's start up to the end of
// pages_touched(). Page 0 stands in for each page before pages_touched().
void append_slots(CacheGroupBatch& batch, const ir::CacheGroup& group, std::int64_t computed, std::int64_t length,
                  std::int64_t page_size, std::span<const PageId> table);

}  // namespace tessera
