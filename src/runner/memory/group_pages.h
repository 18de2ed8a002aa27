// Assigns pages to the requests of the tools verify and soak, which have no scheduler. As in the engine, each cache
// group has its own pool of pages.
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

// Adds the slots of the request's rows. `table` lists the request's pages from its first page to the last page in
// pages_touched(). The pages before pages_touched() are replaced by page 0.
void append_slots(CacheGroupBatch& batch, const ir::CacheGroup& group, std::int64_t computed, std::int64_t length,
                  std::int64_t page_size, std::span<const PageId> table);

}  // namespace tessera
