// Pages of requests that no scheduler made, verify's and soak's: as the engine gives them, each cache group from a pool
// of its own.
#pragma once

#include <cstdint>
#include <span>

#include "tessera/ir/graph.h"
#include "tessera/ops/contract/forward_batch.h"

namespace tessera {

// Neighbouring pages: begin … end - 1.
struct PageRange {
  std::int64_t begin = 0;
  std::int64_t end = 0;
  std::int64_t count() const { return end - begin; }
};

// The pages of a request, counted from its start, that a forward of its rows `computed` … `length` - 1 touches in the
// group: all, those that the window of a row reaches, or the one slot of a state group.
PageRange pages_touched(const ir::CacheGroup& group, std::int64_t computed, std::int64_t length,
                        std::int64_t page_size);

// Adds the slots of the request's rows. `table`: its pages from its start, up to those of pages_touched(); page 0
// stands for the ones before.
void append_slots(CacheGroupBatch& batch, const ir::CacheGroup& group, std::int64_t computed, std::int64_t length,
                  std::int64_t page_size, std::span<const PageId> table);

}  // namespace tessera
